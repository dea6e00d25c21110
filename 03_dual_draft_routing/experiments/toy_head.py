"""A draft head without a network, for the enumeration proofs of chapters 03 and 04."""

import torch

from nanogpt.exact.toy_models import ToyModel


class ToyHead:
    """A ToyModel as one of chapter 03's draft heads: its state is the text itself.

    It learns the text from the hidden rows of a ToyTarget, which are the tokens that were read.
    """

    def __init__(self, seed, vocab=3, scale=1.0):
        self.model = ToyModel(seed, vocab, scale)
        self.reset()

    def reset(self):
        self.state = torch.zeros(1, 0, dtype=torch.long)

    def observe(self, tokens, hidden, rows):
        self.state = torch.cat([self.state, hidden[0][:, rows, 0]], 1)

    def read(self, states, tokens):
        """states (n, T), the texts so far; n tokens -> log-probabilities (n, V), longer states."""
        states = torch.cat([states, torch.tensor(tokens)[:, None]], 1)
        logits = torch.stack([self.model.logits(row.tolist()) for row in states])
        return torch.log_softmax(logits, -1), states
