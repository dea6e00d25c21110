"""Draft trees without a network: from chapter 01's table of what followed the same tokens before.

Filled from the text so far it is prompt lookup: an answer often repeats the prompt, or itself.
Prompt lookup takes one match; here every match counts, and the most probable prefixes become a
tree. Filled from the training text it is an n-gram.
"""

import math

from ddtree import best_first_tree
from text_table import TextTable  # chapter 01


class LookupDrafter:
    """The best-first tree of `budget` nodes from a TextTable with contexts of up to four tokens.

    Only what followed before is drafted, so a text without repetitions is decoded plainly.
    """

    def __init__(self, budget):
        self.budget = budget
        self.reset()

    def reset(self):
        self.table = TextTable(5)
        self.text = self.table.text

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
            return self.ranked((*self.text[-longest:], *prefix)[-longest:])

        return below

    def ranked(self, context):
        """What followed -> its log-probabilities and tokens, the most probable first."""
        probs = self.table.next_probs(context)
        best = sorted(probs, key=probs.get, reverse=True)
        return [math.log(probs[token]) for token in best], best


class NgramTreeDrafter(LookupDrafter):
    """The same tree from a table that has read another text, and learns nothing more.

    temperature: the table's; below 1 the tree is narrower and deeper, see ddtree.draft_temperature.
    """

    def __init__(self, budget, table, temperature=1.0):
        self.table, self.temperature = table, temperature
        self.known = {}  # {context: its ranks}, made when it is first met
        super().__init__(budget)

    def reset(self):
        self.text = []

    def ranked(self, context):
        if context not in self.known:
            scores, tokens = super().ranked(context)
            scores = [score / self.temperature for score in scores]
            total = math.log(math.fsum(map(math.exp, scores))) if scores else 0.0
            self.known[context] = [score - total for score in scores], tokens
        return self.known[context]

    def observe(self, tokens, hidden, rows):
        """These tokens were committed; the next ones are looked up behind them."""
        self.text += tokens
