"""Echo: draft what followed the last time.

    draft    the tokens that followed the latest occurrence of the root in the text: a chain
    verify   as in chapter 02
    accept   the walk
    commit   as in chapter 02; the drafter keeps the text

No model drafts, so a draft costs nothing.

Source: Saxena, "Prompt Lookup Decoding" (2023), with n-grams of one token.
"""

from tree_attention import Tree  # chapter 02


def echo(text, root, most):
    """What followed the latest occurrence of a token in a text -> at most `most` tokens.

    Example: text (1, 2, 3, 1), root 2, most 2: (3, 1). A root that the text does not hold: ().
    """
    for place in reversed(range(len(text))):
        if text[place] == root:
            return text[place + 1:place + 1 + most]
    return []


class EchoDrafter:
    """Chains of at most k drafts, for chapter 02's loop `speculate`."""

    def __init__(self, k):
        self.k = k

    def reset(self):
        self.text = []

    def observe(self, tokens, hidden, rows):
        self.text = self.text + tokens

    def propose(self, root, room):
        drafted = echo(self.text, root, min(self.k, room))
        return Tree([root, *drafted], list(range(-1, len(drafted))))
