"""What a chapter declares, once: its loops, and the models that they need.

A chapter's room, the one file `*_room.py` in its folder, holds

    MODELS    {name: Model}: what its drafters need beside the target
    LOOPS     [Loop]: every decoder of the chapter; the first is the one that its script streams
    WRONG     {function: {what was done: the function that does it}}, see exact/slips.py
    HARMLESS  {function or what was done: why no proof of a loop can see it}

and what else its lesson shows. From these the stage makes scripts and tables (run.py), the contest
of all methods (does_it_pay.py), the proofs that every loop gets, and their mutants: each wrong
variant that is not harmless must turn one of them red (exact/proofs.py).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import ModuleType

from nanogpt.gpu.graphs import captured
from nanogpt.gpu.rounds import MOST_ROWS, Round, speculate_in_launches
from nanogpt.sampling import Dice

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Model:
    """One model beside the target, made in two ways from a Cast `m`.

    trained(m): trained or loaded, ready to decode beside m.target.
    random(m): small, with random weights in float64, for the proofs.
    """

    trained: Callable
    random: Callable


class Cast:
    """The models of a run: m.target, and every other one by its name in a chapter's MODELS.

    A model is made when it is first asked for, so a script loads only what it decodes with.
    """

    def __init__(self, target, way, **facts):
        """way: "trained" or "random", see Model; facts: what its makers may look at."""
        self.target, self.way = target, way
        self.__dict__.update(facts)

    def __getattr__(self, name):  # asked only where there is no such attribute yet
        models = known_models()
        if name not in models:
            raise AttributeError(f"no chapter's MODELS has '{name}'; they have {sorted(models)}")
        setattr(self, name, getattr(models[name], self.way)(self))
        return getattr(self, name)


def written(budget):
    """A loop's budget as its name has it: (2, 2, 1), in a file [2, 2, 1], is 2-2-1, and 4 is 4."""
    return "-".join(map(str, budget)) if isinstance(budget, list | tuple) else str(budget)


@dataclass(frozen=True)
class Loop:
    """One decoder: which drafter, which rule, which loop.

    name: how every table calls it; {} stands for the budget, "chain of {}".
    drafter(m, budget, sampler, dice): a new drafter; m: a Cast.
    decode: speculate_chain of chapter 01, speculate of chapter 02, or one with their arguments.
    rule: the accept rule; None: the loop's own, as speculate_chain has one.
    budgets: those of the chapter's table; contest: those of the curve in the contest of all.
    family: which kind of drafter it has; methods of one family are compared with each other, too.
    drawn: its drafts are drawn from q. At temperature 0 there is only one draft to draw, so there
        such a loop is left out of tables, unless `greedy` says that it stands for the picked one.
    proof: small budgets, for exact enumeration.
    learns: what it drafts depends on past rounds, not on the text alone.
    grow(target, drafter, budget, sampler): the drafter as one tensor program, a Grower of
        gpu/rounds.py; None: it has no fixed shape.
    form: "eager", "one launch" or "played", see Round; None: one launch a round where the target
        lies on a GPU and there is a grow, else eager, as are huge trees. A Step says in which form
        it ran.
    """

    name: str
    drafter: Callable
    decode: Callable
    rule: Callable | None = None
    budgets: tuple = ()
    contest: tuple = ()
    family: str = "another drafter"
    drawn: bool = False
    greedy: bool = False
    proof: tuple = (1, 2)
    learns: bool = False
    grow: Callable | None = None
    form: str | None = None

    def but(self, **fields):
        """The same loop with other fields."""
        return replace(self, **fields)

    def title(self, budget):
        """The name with its budget. (2, 2, 1) is written 2-2-1."""
        return self.name.format(written(budget))

    def steps(self, m, budget, prompt, sampler, dice):
        """Decode -> a generator of Steps. prompt: a list of token ids."""
        target = m.target
        drafter = self.drafter(m, budget, sampler, dice)
        form = self.form or ("one launch" if self.grow and captured(target) else "eager")
        grower = self.grow(target, drafter, budget, sampler) if form != "eager" else None
        if grower and grower.rows <= MOST_ROWS:
            round = Round(target, grower, dice, played=form == "played")
            return speculate_in_launches(
                round, grower.beside(round, drafter), prompt, sampler, dice, self.rule)
        # speculate_chain is told how many drafts to ask for; a tree's drafter knows it.
        k = [budget] * ("k" in signature(self.decode).parameters)
        rule = [self.rule] * (self.rule is not None)
        return self.decode(target, drafter, prompt, *k, sampler, dice, *rule)

    def start(self, m, budget, sampler):
        """-> start(prompt, seed), a decoder for nanogpt.bench.compare."""
        return lambda prompt, seed: self.steps(m, budget, prompt, sampler, Dice(seed))

    def runs_at(self, temperature):
        """Does it stand in a table of this temperature?"""
        return temperature > 0 or self.greedy or not self.drawn


def decoders(loops, m, sampler, budgets=None):
    """{title: start(prompt, seed)} of these loops at every budget of theirs.

    budgets: a function of the Loop; default its own `budgets`.
    """
    budgets = budgets or (lambda loop: loop.budgets)
    return {loop.title(budget): loop.start(m, budget, sampler)
            for loop in loops if loop.runs_at(sampler.temperature) for budget in budgets(loop)}


# ---------------------------------------------------------------- the chapters there are


@dataclass(frozen=True)
class Chapter:
    """A folder 0N_name with a room in it."""

    folder: Path
    room: ModuleType

    @property
    def number(self):
        return self.folder.name[:2]

    def module(self, name):
        """A module of its folder, by name. Raises ValueError if there is none."""
        if not (self.folder / f"{name}.py").exists():
            raise ValueError(f"module is '{name}'; {self.folder.name} has no {name}.py")
        return import_module(name)

    @property
    def loops(self):
        return getattr(self.room, "LOOPS", [])

    @property
    def wrong(self):
        return getattr(self.room, "WRONG", {})

    @property
    def harmless(self):
        return getattr(self.room, "HARMLESS", {})

    @property
    def models(self):
        return getattr(self.room, "MODELS", {})


def folders():
    """The folders of all chapters, in order."""
    return sorted(path for path in ROOT.glob("0?_*") if path.is_dir())


def room_of(folder):
    """The name of a chapter's room. Raises ValueError unless there is exactly one."""
    found = [path.stem for path in folder.glob("*_room.py")]
    if len(found) != 1:
        raise ValueError(f"{folder.name} holds {len(found)} files *_room.py; it needs one")
    return found[0]


@cache
def load(number):
    """The Chapter with this number, "01". Raises ValueError if there is none.

    The one place that imports a chapter from the stage.
    """
    found = {path.name[:2]: path for path in folders()}
    if number not in found:
        raise ValueError(f"chapter is '{number}'; it must be one of {', '.join(found)}")
    return Chapter(found[number], import_module(room_of(found[number])))


def chapters():
    """All chapters, in order."""
    return [load(path.name[:2]) for path in folders()]


@cache
def known_models():
    """{name: Model} of all chapters. Raises ValueError if two declare the same name."""
    found = {}
    for chapter in chapters():
        for name, model in chapter.models.items():
            if name in found:
                raise ValueError(f"two chapters declare a model '{name}'; one of them must change")
            found[name] = model
    return found
