"""What every loop must hold, proved from its declaration alone: see Loop in nanogpt/chapter.py.

    bias                 its text has the target's distribution, exactly (by enumeration)
    greedy_texts         at temperature 0 it writes what plain decoding writes, letter by letter
    as_good_as_new       after any commit its drafter proposes what a fresh one would propose
    drafts_in_turn       decoders that take turns do not disturb each other

All run on small networks with random weights in float64: the loop's own code, the real caches,
masks and positions, nothing pretended.
"""

import inspect
import sys
from contextlib import contextmanager
from functools import cache

import torch

from nanogpt.bench import take_turns
from nanogpt.chapter import Cast
from nanogpt.decoding import collect, collecting, plain_decode
from nanogpt.exact.enumeration import (
    loop_distribution,
    target_distribution,
    total_variation,
)
from nanogpt.exact.slips import Lost
from nanogpt.exact.toy_models import GPTModel, random_gpt
from nanogpt.sampling import Dice, Sampler


def random_cast(seed=1, vocab=11, block_size=32):
    """A Cast of small random networks; they have one vocabulary and one window."""
    target = random_gpt(seed, vocab, block_size)
    return Cast(target, "random", seed=seed, vocab=vocab)


@contextmanager
def in_float64():
    """In here new tensors are float64, a table of counts, too: what is left of a sum is 1e-16."""
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(usual)


@in_float64()
def laws(loop, budget, sampler, rounds=1, length=4, vocab=2, seed=1, prompt=(0, 1), window=32):
    """The distributions of the text of some rounds, and of plain decoding's, by enumeration.

    length: of the texts, in tokens -> two {tuple of tokens: probability}.
    """
    m, prompt = random_cast(seed, vocab, window), list(prompt)
    model = GPTModel(m.target)
    return (loop_distribution(lambda dice: loop.steps(m, budget, prompt, sampler, dice),
                              model, sampler, prompt, rounds, length),
            target_distribution(model, sampler, prompt, length))


def bias(*case, **facts):
    """Total variation between the two distributions of `laws`, which has the arguments."""
    return total_variation(*laws(*case, **facts))


def cases(loop, quick=False):
    """What of a loop is enumerated -> a list of (budget, sampler, facts), arguments of `laws`.

    One round of the smallest budget with three tokens; one of the largest with two, whose text is
    compared up to the token behind the deepest draft; two rounds, for the second shows what was
    committed. quick: without a second temperature.
    """
    small, *between, large = loop.proof[0], *loop.proof
    found = [(small, Sampler(1), dict(vocab=3)),
             (large, Sampler(1), dict(length=5, seed=2)),
             (small, Sampler(0.9), dict(rounds=2, seed=3)),
             *((budget, Sampler(1), dict(vocab=3)) for budget in between[1:])]
    if not quick:
        found += [(small, sampler, dict(vocab=3))
                  for sampler in (Sampler(0), Sampler(0.7, top_p=0.8))]
    return [case for case in found if loop.runs_at(case[1].temperature)]


def biases(loop, quick=False):
    """Yields (what was enumerated, the bias) for all `cases`."""
    for budget, sampler, facts in cases(loop, quick):
        yield (loop.title(budget), sampler, facts), bias(loop, budget, sampler, **facts)


def greedy_texts(loop, budget, seed=1, length=45, prompt=(1, 2, 3)):
    """-> the loop's text at temperature 0, and plain decoding's. The window of 32 slides."""
    m = random_cast(seed)
    plain = plain_decode(m.target, list(prompt), Sampler(0), Dice(0))
    mine = loop.steps(m, budget, list(prompt), Sampler(0), Dice(0))
    return collect(mine, length).tokens, collect(plain, length).tokens


# ---------------------------------------------------------------- does the drafter remember right?


class AsGoodAsNew:
    """A drafter that is held, whenever it drafts, against a fresh one that reads the whole text.

    make(): a new drafter. It may draft chains, by `logits`, or trees, by `propose`; written: a list
    of all tokens so far, which whoever takes the Steps keeps. Its last one is the root.
    """

    def __init__(self, make, target, written):
        self.make, self.target, self.written, self.drafter = make, target, written, make()
        self.checked = 0
        if hasattr(self.drafter, "logits"):
            self.logits = self.next_logits

    def reset(self):
        self.text, self.read = [], []
        self.drafter.reset()

    def observe(self, tokens, hidden, rows):
        self.text, self.read = self.text + tokens, []
        self.drafter.observe(tokens, hidden, rows)

    def fresh(self):
        """A new drafter that has been told the whole text at once.

        Raises AssertionError if this one was told another text than was written, or too little.
        """
        read = self.written[:-1]
        assert self.text == read[-len(self.text):]
        assert len(self.text) >= min(len(read), self.target.block_size // 2)  # as after a slide
        new = self.make()
        new.reset()
        new.observe(self.text, self.target(torch.tensor([self.text]))[1],
                    list(range(len(self.text))))
        return new

    def next_logits(self, token):
        new, self.read = self.fresh(), self.read + [token]
        *_, expected = (new.logits(read) for read in self.read)
        mine = self.drafter.logits(token)
        torch.testing.assert_close(mine, expected, rtol=0, atol=1e-9)
        self.checked += 1
        return mine

    def propose(self, root, room):
        new = self.fresh()
        for drafter in (self.drafter, new):
            if getattr(drafter, "dice", None):
                drafter.dice = Dice(3)  # both draw the same
        mine, expected = self.drafter.propose(root, room), new.propose(root, room)
        assert mine.tokens.tolist() == expected.tokens.tolist()
        assert mine.parents.tolist() == expected.parents.tolist()
        if mine.draft_probs is not None:
            torch.testing.assert_close(mine.draft_probs, expected.draft_probs, rtol=0, atol=1e-9)
        self.checked += len(mine) > 1
        return mine


def as_good_as_new(loop, budget, temperature=0.9, seed=1):
    """After every commit the drafter drafts what a fresh one does, over two windows of text.

    A drafter that remembers wrongly costs tokens, not exactness: no test of the text can see it.
    Raises AssertionError at the first difference -> how often it was held against a fresh one.
    """
    m, sampler, dice, written = random_cast(seed), Sampler(temperature), Dice(4), [1, 2, 3]
    watched = AsGoodAsNew(lambda: loop.drafter(m, budget, sampler, dice), m.target, written)
    steps = loop.but(drafter=lambda *_: watched).steps(m, budget, [*written], sampler, dice)
    collect(steps, 50, written.extend)
    assert len(written) > m.target.block_size
    return watched.checked


# ---------------------------------------------------------------- what if it were wrong?


@cache
def called_by(loop):
    """The code of all functions that the loop calls, its drafter included, in some rounds."""
    found, budget = set(), loop.proof[0]
    sys.setprofile(lambda frame, event, _: found.add(frame.f_code))
    try:
        collect(loop.steps(random_cast(), budget, [1, 2, 3], Sampler(1), Dice(0)), 40)
    finally:
        sys.setprofile(None)
    return found


def stands_in(function, loop):
    """Does the loop call this function, or a method of this class?"""
    parts = vars(function).values() if inspect.isclass(function) else [function]
    codes = {getattr(part, "__code__", None) for part in parts}
    return bool(codes & called_by(loop))


def damage(loop, slips, sentence):
    """What a wrong variant does to a loop: 0 (to 1e-12) where all proofs hold.

    Else the bias of the text; 1 where the loop breaks, or its drafter is not as good as new. Raises
    ValueError for a slip that could not be made, NameError or AttributeError for a misspelt one:
    nothing would have been tried.
    """
    if isinstance(slips[sentence], Lost):
        raise ValueError(slips[sentence].why)
    # A Loop holds its rule and its decoder themselves, and does not look into their modules.
    loop = loop.but(**{part: slips[sentence] for part in ("rule", "decode")
                       if getattr(loop, part) is slips.right})
    worst = 0.0
    with slips.standing(sentence):
        try:
            for _, found in biases(loop, quick=True):
                worst = max(worst, found)
                if worst > 1e-3:
                    break
            else:
                if not loop.learns:  # else a fresh drafter knows less, and drafts otherwise
                    as_good_as_new(loop, loop.budgets[-1])
        except (NameError, AttributeError):  # a typo in the variant, which proves nothing
            raise
        except Exception:
            return 1.0
    return worst


# ---------------------------------------------------------------- taking turns


def drafts_in_turn(loop, budget, turn, temperature=1.0, seed=2):
    """Three texts, decoded in turns of so many tokens -> {which: the drafts of every round}."""
    m, sampler = random_cast(seed), Sampler(temperature)
    runs = {i: collecting(loop.steps(m, budget, [1, 8, 4 + i], sampler, Dice(i)), 24)
            for i in range(3)}
    return {i: [drafted_tokens(step.detail) for step in text.steps]
            for i, text in take_turns(runs, turn).items()}


def drafted_tokens(record):
    """The drafts of a round, whether its record is a chain's or a tree's."""
    return record.tree.tokens.tolist() if hasattr(record, "tree") else record.drafted
