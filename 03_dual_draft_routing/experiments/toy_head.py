"""Draft heads without a network, for the enumeration proofs of chapters 03 and 04."""

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
        logits = torch.stack([self.model.logits(row) for row in states.tolist()])
        return torch.log_softmax(logits, -1), states

    @staticmethod
    def stack(heads):
        """Several toy heads behind one read."""
        return ToyHeads(heads)


class ToyHeads:
    """Chapter 03's StackedHeads without a network: an axis of H heads in front of everything."""

    def __init__(self, heads):
        self.heads = heads

    @property
    def state(self):
        """(H, 1, T): what each head remembers of the text, T tokens."""
        return torch.stack([head.state for head in self.heads])

    def reset(self):
        for head in self.heads:
            head.reset()

    def observe(self, tokens, hidden, rows):
        for head in self.heads:
            head.observe(tokens, hidden, rows)

    def read(self, states, tokens):
        """states (H, n, T), H lists of n tokens -> log-probabilities (H, n, V), longer states."""
        read = [head.read(*both) for head, *both in zip(self.heads, states, tokens, strict=True)]
        return tuple(torch.stack(part) for part in zip(*read, strict=True))
