"""Which token followed which others in a text, and the drafter that looks there."""

from collections import Counter, defaultdict

import torch


class TextTable:
    """Which token followed each context of 1 to n - 1 tokens in a text."""

    def __init__(self, n):
        self.longest = n - 1
        self.counts = defaultdict(Counter)  # {context: {next token: how often}}
        self.text = []

    def read(self, tokens):
        """Append tokens to the text, and count them."""
        for token in tokens:
            # The contexts of every length that end here; all are counted as the text grows.
            for length in range(1, min(self.longest, len(self.text)) + 1):
                self.counts[tuple(self.text[-length:])][token] += 1
            self.text.append(token)

    def next_probs(self, context):
        """{token: probability} of what follows; {} if the last token was never seen before.

        context: a list of tokens, as long as the longest or longer.
        Witten and Bell's estimate: where a context was followed c times, by t different tokens, it
        gets the share c / (c + t) and leaves the rest to the context one token shorter. What was
        seen once, behind one, two, three matching tokens, has 1/2, 3/4, 7/8.
        """
        probs = {}
        for length in range(1, min(self.longest, len(context)) + 1):
            counts = self.counts.get(tuple(context[-length:]))
            if counts is None:  # then no longer context was seen either
                break
            weight = 1 / (sum(counts.values()) + len(counts))  # 1 / (c + t)
            probs = {token: p * len(counts) * weight for token, p in probs.items()}
            for token, count in counts.items():
                probs[token] = probs.get(token, 0.0) + count * weight
        return probs


class NgramDraft:
    """A bigram with a longer memory: what followed the last few tokens in the training text."""

    def __init__(self, table, vocab_size):
        """table: a TextTable that has read that text."""
        self.table, self.vocab_size = table, vocab_size
        self.known = {}  # {context: (V,)}: a row is made when its context is first met
        self.reset()

    def reset(self):
        self.committed, self.ahead = (), ()  # the end of the text; root and drafts behind it

    def observe(self, tokens, hidden=None, rows=None):
        """These tokens were committed; what was read since the last ones were, is forgotten."""
        self.committed = (*self.committed, *tokens)[-self.table.longest:]
        self.ahead = ()

    def logits(self, token):
        """Read one more token -> (V,), the logits of the token after it."""
        self.ahead += (token,)
        return self.after((*self.committed, *self.ahead)[-self.table.longest:])

    def after(self, context):
        """(V,), the logits of the token after a context: a tuple, the table's longest at most."""
        if context not in self.known:
            # What never followed has probability 0: it is not drafted, and comes out all the same,
            # for the residual owes it all that the target wants. Behind a token that was never
            # seen all are alike.
            probs = torch.zeros(self.vocab_size)
            for follower, p in self.table.next_probs(context).items():
                probs[follower] = p
            self.known[context] = (probs if probs.any() else torch.ones_like(probs)).log()
        return self.known[context]


class NgramLevels(NgramDraft):
    """The same, asked about a whole level of a tree at once: a model for chapter 02's trees."""

    def level(self, tokens, parents):
        """n new nodes, their tokens and their parents' rows -> (n, V) logits after each."""
        if parents == [-1]:  # the root: a new tree
            self.paths = []  # of each row, the text that ends there
        self.paths += [(*(self.paths[parent] if parent >= 0 else self.committed), token)
                       for token, parent in zip(tokens, parents, strict=True)]
        return torch.stack([self.after(path[-self.table.longest:])
                            for path in self.paths[-len(tokens):]])
