"""Drafts without a network: a table of what followed the same tokens before.

Filled from the text so far it is prompt lookup: an answer often repeats the prompt, or itself.
Prompt lookup takes one match; here every match counts, and the most probable prefixes become a
tree.
"""

import math
from collections import Counter, defaultdict

from ddtree import best_first_tree


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


class LookupDrafter:
    """The best-first tree of `budget` nodes from a TextTable with contexts of up to four tokens.

    Only what followed before is drafted, so a text without repetitions is decoded plainly.
    """

    def __init__(self, budget):
        self.budget = budget
        self.reset()

    def reset(self):
        self.table = TextTable(5)

    def observe(self, tokens, hidden, rows):
        """These tokens were committed; they are all that is looked at."""
        self.table.read(tokens)

    def propose(self, root, room):
        return best_first_tree(root, self.children(root, room), self.budget)

    def children(self, root, room):
        """What the heap may ask for, see ddtree.best_first."""
        longest = self.table.longest

        def below(prefix):
            if len(prefix) > room:  # they would not fit into the window
                return [], []
            # What it drafted before counts as read: a marginal of DDTree cannot look at it.
            context = (self.table.text[-longest:] + list(prefix))[-longest:]
            probs = self.table.next_probs(context)
            best = sorted(probs, key=probs.get, reverse=True)
            return [math.log(probs[token]) for token in best], best

        return below
