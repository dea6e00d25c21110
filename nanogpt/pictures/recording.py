"""Watching a decoder from outside: what its dice rolled and what its cache kept, step by step.

The decoders stay as they are taught. They get a Dice that shows its numbers, a target whose caches
tell what they commit, and, where a picture needs it, a drafter whose method remembers its results.
"""

from dataclasses import dataclass
from itertools import islice

import torch

from nanogpt.sampling import Dice

# ---------------------------------------------------------------- the three things that tell


@dataclass
class Roll:
    """One use of the dice. u in [0, 1) decided; probs (V,) were drawn from, or p is the coin's.

    value: the index drawn, or True or False.
    """

    u: float
    value: object
    probs: torch.Tensor | None = None
    p: float | None = None


class VisibleDice(Dice):
    """A Dice that shows how it decides: by one number u in [0, 1), by the inverse of the sum.

    draw takes the first index whose cumulated probability exceeds u, flip is True if u < p, so
    both are distributed as those of Dice. rolls: every Roll so far. numbers: a list of u to use
    first, to replay a trace.
    Example: with probs (.2, .5, .3), u = .69 draws 1 and u = .7 draws 2.
    """

    def __init__(self, seed=0, numbers=()):
        super().__init__(seed)
        self.rolls, self.numbers = [], list(numbers)

    def number(self):
        """The next u in [0, 1): a replayed one, else a random one."""
        if self.numbers:
            return self.numbers.pop(0)
        return float(torch.rand((), generator=self.generator, dtype=torch.float64))

    def draw(self, probs):
        u, mass = self.number(), probs.detach().cpu().double()
        edges = mass.cumsum(0)
        # subtle: u times the sum may round up to the sum, where no index is left.
        last = int(mass.nonzero().max())
        index = min(int(torch.searchsorted(edges, u * edges[-1], right=True)), last)
        self.rolls.append(Roll(u, index, probs=mass / edges[-1]))
        return index

    def flip(self, p):
        u = self.number()
        self.rolls.append(Roll(u, u < p, p=float(p)))
        return u < p


def remember(thing, method):
    """Let an object's method keep what it returns, and change nothing else. -> the growing list."""
    results, original = [], getattr(thing, method)

    def remembering(*args, **kwargs):
        results.append(original(*args, **kwargs))
        return results[-1]

    setattr(thing, method, remembering)
    return results


class WatchedTarget:
    """A target whose caches tell what they committed; everything else is the target's own.

    commits: (committed rows before, the rows that were kept), one entry a commit.
    """

    def __init__(self, target):
        self.target, self.commits = target, []

    def __getattr__(self, name):
        return getattr(self.target, name)

    def __call__(self, *args, **kwargs):
        return self.target(*args, **kwargs)

    def new_cache(self, batch=1):
        cache = self.target.new_cache(batch)
        commit = cache.commit

        def watched(rows):
            self.commits.append((cache.length, list(rows)))
            commit(rows)

        cache.commit = watched
        return cache


# ---------------------------------------------------------------- steps as they happened


@dataclass
class Recorded:
    """One verification step as it happened. Trees are flat: row 0 is the root (see chapter 02).

    tokens, parents: lists of N; path: the accepted rows; target_probs (N, V); guesses (N, V): what
    the drafter gave the token after each node, nan where it is not known; rolls: the dice of this
    step; length: committed rows before it; kept: the rows that the cache kept; text: the tokens
    before the root; emitted: the step's tokens; extra: what the chapter noted.
    """

    tokens: list
    parents: list
    path: list
    target_probs: torch.Tensor
    guesses: torch.Tensor
    rolls: list
    length: int
    kept: list
    text: list
    emitted: list
    extra: object = None

    def below(self, row):
        """The rows of a node's children."""
        return [i for i, parent in enumerate(self.parents) if parent == row]


def read_tree(root, detail):
    """What chapter 02's loop leaves in Step.detail -> tokens, parents, path, target, guesses."""
    tree, target_probs = detail.tree, detail.target_probs
    guesses = (torch.full_like(target_probs, torch.nan) if tree.draft_probs is None
               else tree.draft_probs)
    return tree.tokens.tolist(), tree.parents.tolist(), detail.path, target_probs, guesses


def guesses_of(tokens, parents, scores, vocab_size):
    """What drafters with scores gave their own nodes -> (N, V), nan where it is not known.

    scores: a cumulative log-probability a row. Where two drafters hold a token below the same row,
    the larger of both.
    """
    guesses = torch.full((len(tokens), vocab_size), torch.nan)
    for row in range(1, len(tokens)):
        parent, token = parents[row], tokens[row]
        known = torch.tensor(scores[row] - scores[parent]).exp()
        guesses[parent, token] = torch.fmax(guesses[parent, token], known)
    return guesses


def watch(start, target, prompt, dice, count, read=read_tree, note=None):
    """Run a decoder for `count` steps -> list of Recorded, the prefill left out.

    start(target) -> a generator of Steps, whose dice is `dice`; read: see read_tree;
    note(): called after each step -> its `extra`.
    """
    watched, recorded = WatchedTarget(target), []
    steps, text = start(watched), list(prompt)
    text += next(steps).tokens
    for step in islice(steps, count):
        first = sum(len(r.rolls) for r in recorded) + 1  # the prefill rolled once
        length, kept = watched.commits[-1]
        recorded.append(Recorded(
            *read(text[-1], step.detail), dice.rolls[first:], length, kept, text[:-1],
            list(step.tokens), note() if note else None))
        text += step.tokens
    return recorded


def instructive(recorded, decode):
    """The step to show: two drafts accepted, then one rejected, and letters rather than blanks.

    The end of the path must have had children, so that something really was refused there; if no
    step has it all, one accepted draft will do. Where a second child was accepted the tree was of
    use, so such a step comes before a straight one. A root that is a letter reads best.
    """
    def value(r):
        both = bool(r.below(r.path[-1])) and min(len(r.path) - 1, 2)
        second = any(r.below(a)[0] != b for a, b in zip(r.path, r.path[1:], strict=False))
        root, letters = (sum(letter.isalpha() for letter in decode(tokens))
                         for tokens in (r.tokens[:1], r.emitted))
        return both, second, root, len(r.path), letters

    return max(recorded, key=value)
