"""The hunt: a known slip is planted in a taught decoder. Which one? arena.py starts it:

    python tests/arena.py --hunt 1 --seed 7 --ask enumeration replay --answer 3

Level 1: enumeration sees it, also at temperature 0. Level 2: the text is right; only lengths see
it. Level 3: at temperature 0 nobody sees it. Which slip is on which level is computed.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = map(str, [ROOT, ROOT / "tests", *ROOT.glob("0?_*")])

import contextlib
import logging
import random
from types import SimpleNamespace

import torch

from arena import ASK, read_flags, show_text
from arena_file import candidates, laws, pieces, planted, shortest
from nanogpt.bench import summarize
from nanogpt.chapter import load
from nanogpt.data import held_out_prompts, load_dataset
from nanogpt.decoding import collect
from nanogpt.exact import debugging
from nanogpt.exact.enumeration import total_variation
from nanogpt.run import trained_cast
from nanogpt.sampling import Dice, Sampler
from nanogpt.terminal import print_table, run

COLD, WARM, ALIKE = Sampler(0), Sampler(0.9), 1e-9
RIGHT = "nothing is wrong with it"
CHAIN, PICKED, LAYERS = load("01").loops[0], load("02").loops[0], load("06").loops[0]
LEVELS = {1: (CHAIN,), 2: (CHAIN, PICKED, LAYERS), 3: (CHAIN,)}


class Suspect:
    """A Loop with a slip in it, or as it is. name: what the reader chooses from."""

    def __init__(self, loop, sentence=None, slips=None):
        self.loop, self.sentence, self.slips = loop, sentence, slips
        self.name = f"{slips.right.__name__}: {sentence}" if slips else RIGHT

    def standing(self):
        """Inside `with` the slip stands -> the Loop to run."""
        return (planted(self.loop, self.slips, self.sentence) if self.slips
                else contextlib.nullcontext(self.loop))

    def law(self, sampler, seed=2):
        """-> what it writes, what the target would, tokens on average; on a random network."""
        with self.standing() as loop:
            *both, watched = laws(loop, loop.proof[-1], sampler, seed=seed)
        return *both, watched.tokens()

    def behaviour(self):
        """Its laws: one at T = 0.9, and some at T = 0, where each is one text."""
        return [self.law(WARM)] + [self.law(COLD, seed) for seed in range(1, 9)]


def gap(law, other):
    """How far two laws are apart: texts, or lengths, where it is more."""
    return max(total_variation(law[0], other[0]), abs(law[2] - other[2]))


def distance(one, other):
    """The same of two behaviours."""
    return max(map(gap, one, other))


def level_of(found, right):
    """1, 2, 3, or None if nobody could see it at all."""
    warm, at_zero = found[0], distance(found[1:], right[1:])
    if total_variation(*warm[:2]) > ALIKE:
        return 1 if at_zero > ALIKE else 3
    return 2 if gap(warm, right[0]) > ALIKE else None


def suspects(loop):
    """-> {Suspect: its level}, those that behave differently; the right one is first."""
    right = Suspect(loop)
    known, levels = {right: right.behaviour()}, {right: 0}
    for sentence, slips in candidates(loop, {}):
        one = Suspect(loop, sentence, slips)
        with contextlib.suppress(Exception):  # it breaks, or the real Dice would mend it
            found = one.behaviour()
            level = level_of(found, known[right])
            if level and min(distance(found, other) for other in known.values()) > ALIKE:
                known[one], levels[one] = found, level
    return levels


# ---------------------------------------------------------------- what the reader may ask


class Hunt:
    """A decoder with a slip in it, the suspects, and the real models."""

    def __init__(self, level, seed):
        chance = random.Random(seed)
        loops = list(LEVELS[level])
        self.levels = suspects(chance.choice(loops))
        self.right, *wrong = self.levels
        self.found = chance.choice([one for one in wrong if self.levels[one] == level])
        self.options = sorted(self.levels, key=lambda one: one.name)
        self.networks = 100 + 10 * seed + level  # of its own, so no hunt's numbers tell another's
        self.budget = next(b for b in self.found.loop.budgets if b in (4, (2, 2, 1, 1)))

    def load(self):
        """The real models, for all but the replies."""
        self.dataset = load_dataset()
        self.m = trained_cast(SimpleNamespace(size="baby", retrain=False, precision="float32"),
                              self.dataset, torch.device("cpu"))
        self.prompt = self.dataset.tokenizer.encode("ROMEO:\n")

    def steps(self, one, prompt, sampler, seed, budget=None):
        """-> its Steps; each is made with the slip in its place."""
        steps = None
        while True:
            with one.standing() as loop:
                steps = steps or loop.steps(self.m, budget or self.budget, prompt, sampler,
                                            Dice(seed))
                step = next(steps)
            yield step

    def texts(self):
        for sampler in (COLD, WARM):
            mine, right = (collect(self.steps(one, self.prompt, sampler, 1), 160)
                           for one in (self.found, self.right))
            print(f"\nT = {sampler.temperature:g}", end="; ")
            if sampler is COLD:
                same = sum(a == b for a, b in zip(mine.tokens, right.tokens, strict=True))
                print(f"{same} of 160 letters are plain decoding's", end="; ")
            show_text([["ROMEO:\n", False], *pieces(self.dataset.tokenizer, mine)])

    def enumeration(self):
        """On random networks."""
        warm, *cold = self.found.behaviour()
        worst = max(cold, key=lambda law: total_variation(*law[:2]))
        for name, (written, wanted, _) in (("T = 0", worst), ("T = 0.9", warm)):
            off = total_variation(written, wanted)
            print(f"{name}: total variation {off:.3f}", end="")
            if off > 1e-12:
                text, got, due = shortest(written, wanted)
                print(f"; '{text}' comes out with {got:.3f}, the target has {due:.3f}", end="")
            print()

    def lengths(self):
        prompts, rows = held_out_prompts(self.dataset, 6), []
        budgets = ((1, 2, 4, 8) if isinstance(self.budget, int)
                   else ((1,), (2,), (1, 1, 1, 1), (2, 2, 1, 1)))
        for sampler in (COLD, WARM):
            for name, one in (("hunted", self.found), ("right", self.right)):
                rows.append([f"T = {sampler.temperature:g}, {name}", *(
                    "{tau:.2f}".format(**summarize(
                        [collect(self.steps(one, prompt, sampler, seed, budget), 48)
                         for seed, prompt in enumerate(prompts)])) for budget in budgets)])
        print_table(["tokens a round", *map(CHAIN.but(name="{}").title, budgets)], rows)

    def replay(self):
        if self.found.loop is not CHAIN:
            print("The kit replays chapter 01's chains only.")
            return
        place, off, _, accepted, error, overlap, favourite, (free, own), _ = debugging.evidence(
            lambda prompt, seed: self.steps(self.found, prompt, WARM, seed), self.prompt,
            self.m.target, self.m.small, WARM)
        print("first wrong p: " + ("round {}, row {}".format(*place) if place else "none")
              + f"; q off by {off:.2f}; accepted {accepted:.2f} (one standard error: "
              f"{error:.2f}), the overlap says {overlap:.2f}; "
              f"drafts are q's favourite {favourite:+.1f} standard deviations too often; of {own} "
              f"tokens behind a rejection {free} were not owed")

    def counts(self):
        law = debugging.second_token_law(self.m.target, WARM, self.prompt)
        tokens = debugging.second_tokens(
            lambda prompt, seed: self.steps(self.found, prompt, WARM, seed), self.prompt, 400)
        print(f"the first speculated token under 400 seeds, T = 0.9: counts as far off come with a "
              f"chance of {debugging.chi_square(law, tokens):.2g} by a right decoder")

    def ask(self, what):
        """One of ASK."""
        print(f"\n{what}:")
        getattr(self, what)()

    def judge(self, number):
        """-> is it the answer? Raises ValueError for a number that is none."""
        if not 1 <= number <= len(self.options):
            raise ValueError(f"answer is {number}; it must be in 1..{len(self.options)}")
        chosen = self.options[number - 1]
        print(f"{number} is right: {chosen.name}" if chosen is self.found else
              f"{number} is wrong: with this one, {self.would_be(chosen)}")
        return chosen is self.found

    def would_be(self, one):
        """What enumeration says of another suspect."""
        (*theirs, tokens), (*ours, mine) = (x.law(WARM, self.networks) for x in (one, self.found))
        return (f"total variation would be {total_variation(*theirs):.3f}, and {tokens:.3f} tokens "
                f"in two forwards of small networks; the hunted one has "
                f"{total_variation(*ours):.3f} and {mine:.3f}")


def play(hunt):
    """Questions and answers at a terminal -> was it found?"""
    while True:
        print(f"\nA number, or {', '.join(ASK)}, or Enter to give up: ", end="", flush=True)
        said = sys.stdin.readline().strip()
        if not said:
            print(f"It was: {hunt.found.name}")
            return False
        if said in ASK:
            hunt.ask(said)
        elif said.isdecimal() and 1 <= int(said) <= len(hunt.options):
            if hunt.judge(int(said)):
                return True
        else:
            print(f"'{said}' is neither a test nor a number in 1..{len(hunt.options)}.")


def main():
    args = read_flags()
    logging.getLogger("nanogpt").setLevel(logging.WARNING)  # whose weights they are is no clue
    hunt = Hunt(args.hunt, args.seed)
    print(f"A slip is planted in {hunt.found.loop.title(hunt.budget)}.")
    if args.answer is None or args.ask:
        hunt.load()
        hunt.texts()
    for what in args.ask:
        hunt.ask(what)
    if args.answer is not None:
        raise SystemExit(0 if hunt.judge(args.answer) else 1)
    print()
    for number, one in enumerate(hunt.options, 1):
        print(f"{number:3d}  {one.name}")
    if not sys.stdin.isatty():
        print("\nAsk with --ask", *ASK)
        print("Answer with --answer NUMBER, and the same --seed")
        return
    raise SystemExit(0 if play(hunt) else 1)


if __name__ == "__main__":
    run(main)
