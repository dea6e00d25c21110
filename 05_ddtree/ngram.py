"""An n-gram table: the cheap rival that every learned drafter has to beat.

It counts which token followed each context of up to n - 1 tokens in the training text. The longest
known context has weight 1, each shorter one a fifth of the one before. There is no network, and a
draft takes a few microseconds; on text that repeats itself it is hard to beat.
"""

from collections import Counter, defaultdict

import torch


class NGramDraft:
    """A draft model for chapter 01's chains and chapter 02's trees.

    tokens (T,): the text to count; n: a context holds at most n - 1 tokens; discount: the factor
    for each step back to a shorter context. Raises ValueError if n < 2.
    """

    def __init__(self, tokens, vocab_size, n=7, discount=0.2):
        if n < 2:
            raise ValueError(f"n is {n}; an n-gram with a context needs at least 2")
        self.vocab_size, self.longest, self.discount = vocab_size, n - 1, discount
        self.counts = defaultdict(Counter)
        text = tokens.tolist()
        for length in range(n):
            for i in range(length, len(text)):
                self.counts[tuple(text[i - length:i])][text[i]] += 1
        self.reset()

    def reset(self):
        self.text, self.read = [], []

    def observe(self, tokens, hidden=None, rows=None):
        self.text, self.read = (self.text + tokens)[-self.longest:], []

    def scores(self, context):
        """context: a list of tokens -> (V,) log-scores of the next token."""
        scores = torch.zeros(self.vocab_size)
        weight = 1.0
        for length in range(min(self.longest, len(context)), -1, -1):
            counts = self.counts.get(tuple(context[len(context) - length:]))
            if counts is None:
                continue
            total = counts.total() if hasattr(counts, "total") else sum(counts.values())
            ids = torch.tensor(list(counts))
            scores[ids] += weight * torch.tensor([c / total for c in counts.values()])
            weight *= self.discount
        return (scores + 1e-6).log()

    def logits(self, token):
        """Read one more token -> (V,), for chains."""
        self.read = self.read + [token]
        return self.scores(self.text + self.read)

    def level(self, tokens, parents):
        """Read n new nodes of a tree -> (n, V). parents: their rows; [-1] for the root."""
        if parents == [-1]:
            self.paths = []
        above = [self.paths[p] if p >= 0 else [] for p in parents]
        self.paths += [path + [token] for path, token in zip(above, tokens, strict=True)]
        return torch.stack([self.scores(self.text + path) for path in self.paths[-len(tokens):]])
