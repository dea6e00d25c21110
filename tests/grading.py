"""Blanks and how they are graded.

A `Blank` names one taught function, asks for it, and knows how to judge an answer:

    still blank   the body says `raise NotImplementedError`
    crashed       it raises something else; the learner's own line is shown
    wrong         it fails an example, or what the chapter promises
    done

While one blank is judged, all other names mean the taught code, so an empty neighbour does no
harm, and no expectation ever comes from the learner's own module. A wrong answer is compared with
the known slips: if it behaves exactly like one, the grader says which.
"""

import ast
import copy
import importlib
import inspect
import linecache
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import torch

from nanogpt.exact.slips import replaced
from nanogpt.exact.toy_models import loop_bias
from nanogpt.sampling import Sampler
from tree_attention import Tree

ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Blank:
    """One exercise.

    target: 'module:function' or 'module:Class.method'; question: what to write; hint: a nudge;
    lines, minutes: how long the taught body is, and how long a learner needs.
    examples: {"for this input": (call, expected)}, hand-sized inputs and results worked out by
    hand; call: a tuple of arguments, or call(f) -> what to compare.
    promise(): raises AssertionError with a sentence if what the chapter promises is broken; the
    answer stands in for the taught function meanwhile.
    slips: {sentence: f}, the wrong variants of the chapter's wrong.py.
    """

    target: str
    question: str
    hint: str
    lines: int
    minutes: int
    examples: dict
    promise: Callable | None = None
    slips: dict = field(default_factory=dict)

    @property
    def name(self):
        return self.target.split(":")[1].split(".")[-1]

    @property
    def example(self):
        """The first case with its result, to check on paper."""
        case, (_, result) = next(iter(self.examples.items()))
        return f"{case} -> {plain(result)}"

    def observe(self, f):
        """What f does on the examples: {"for this input": result}, comparable."""
        return {case: plain(call(f) if callable(call) else f(*call))
                for case, (call, _) in self.examples.items()}

    @property
    def expected(self):
        return {case: plain(result) for case, (_, result) in self.examples.items()}

    def owner(self):
        """The module or class that holds the taught function."""
        module, path = self.target.split(":")
        place = importlib.import_module(module)
        for part in path.split(".")[:-1]:
            place = getattr(place, part)
        return place

    def taught(self):
        return getattr(self.owner(), self.name)


def load_answers(source, path, blanks):
    """Run an exercise file -> {name: function}; in each one's namespace its neighbours are taught.

    Raises whatever running the file raises (a SyntaxError, say).
    """
    code, answers = compile(source, str(path), "exec"), {}
    # A message shows the line in which an answer fails, also of a file that is not saved.
    linecache.cache[str(path)] = len(source), None, source.splitlines(True), str(path)
    for blank in blanks:
        space = {"__name__": "exercise", "__file__": str(path)}
        exec(code, space)
        if callable(space.get(blank.name)):
            answers[blank.name] = space[blank.name]
            space.update({b.name: b.taught() for b in blanks if b is not blank})
    return answers


def is_untouched(source):
    """True if no blank of an exercise file was worked on: every body still says 'not yet'."""
    try:
        functions = [n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef)]
    except SyntaxError:
        return False
    return all(isinstance(f.body[-1], ast.Raise) and len(f.body) <= 2 for f in functions)


def plain(value):
    """Results as nested lists of rounded numbers, so that they can be compared and printed."""
    if isinstance(value, Tree):
        parts = [value.tokens, value.parents, value.draft_probs]
        return f"Tree({', '.join(str(plain(part)) for part in parts if part is not None)})"
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, range)):
        return [plain(v) for v in value]
    if isinstance(value, float):
        return "nan" if value != value else round(value, 6) + 0.0
    return value


ARGUMENTS = (torch.Tensor, np.ndarray, list, Tree)  # what an answer must leave as it is


class Misuse(Exception):
    """An answer writes into what it is given, or gives nothing back."""


def guarded(blank, f, calls):
    """f, but it gets copies of its arrays, lists and trees, and may not write into them.

    So no answer can spoil the examples for the next one. Before every call its arguments are
    appended to `calls`, as a text.
    """
    names = list(inspect.signature(blank.taught()).parameters)
    node, _ = reference_source(blank)
    returns = any(isinstance(n, ast.Return) and n.value is not None for n in ast.walk(node))

    def call(*args):
        calls.append(", ".join(f"{name} = {brief(value)}"
                               for name, value in zip(names, args, strict=False)))
        given = [copy.deepcopy(a) if isinstance(a, ARGUMENTS) else a for a in args]
        result = f(*given)
        for name, before, after in zip(names, args, given, strict=False):
            if isinstance(before, ARGUMENTS) and plain(before) != plain(after):
                raise Misuse(f"your code changes its argument {name}; work on a copy")
        if result is None and returns:
            raise Misuse("nothing comes back; is a `return` missing?")
        return result

    return call


def brief(value):
    """A value in a few letters: itself, or what it is."""
    text = str(plain(value))
    if isinstance(value, (*ARGUMENTS, int, float)) and len(text) <= 70:
        return text
    return getattr(value, "__name__", type(value).__name__)


def behaviour(blank, f):
    """What f does on the hand-sized inputs, comparable; an exception is a behaviour too."""
    try:
        return blank.observe(guarded(blank, f, []))
    except Exception as error:
        return told(error)


def told(error):
    """An exception in a line."""
    return f"{type(error).__name__}: {error}"


def own_line(error, path):
    """The learner's line in which an error arose, as 'line 12: code', or ''."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename == str(path):
            return f"line {frame.lineno}: {frame.line}"
    return ""


def says_not_yet(error, path):
    """True if an error comes from the learner's own `raise NotImplementedError`."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return (isinstance(error, NotImplementedError) and last.filename == str(path)
            and last.line.startswith("raise"))


def grade_answer(blank, answer, path="exercise.py"):
    """-> (status, message); status: see above."""
    if answer is None:
        return "still blank", f"there is no function {blank.name} in the file"
    calls, seen = [], None
    try:
        seen, wanted = blank.observe(guarded(blank, answer, calls)), blank.expected
        for case, value in wanted.items():
            if seen[case] != value:
                varies = f"\n        (of: {next(iter(wanted))})" if case[:4] == "the " else ""
                return "wrong", (f"for {case}{varies}\n    expected {value}\n    got      "
                                 f"{seen[case]}{name_slip(blank, seen)}")
        calls.clear()
        if blank.promise is not None:
            with replaced(blank.owner(), **{blank.name: answer}):
                blank.promise()
    except Misuse as error:
        return "wrong", str(error)
    except BaseException as error:  # SystemExit, too, or a class of the learner's own
        if says_not_yet(error, path):
            return "still blank", "its question is above it in exercise.py"
        called = f"\n    called with {calls[-1]}" if calls else ""
        if line := own_line(error, path):
            return "crashed", f"{told(error)}\n    {line}{called}"
        if isinstance(error, AssertionError):
            return "wrong", f"the examples are right, but {error}{name_slip(blank, seen)}"
        return "wrong", (f"the result cannot be used ({told(error)}){called}"
                         f"{name_slip(blank, seen or told(error))}")
    return "done", ""


def name_slip(blank, seen):
    """'This is what you get when ...', if the answer behaves exactly like a known slip.

    Where all values are right, only the promise tells a slip, and none is like the answer.
    """
    for sentence, slip in blank.slips.items():
        if behaviour(blank, slip) == seen != blank.expected:
            return f"\n    This is what you get when {sentence}."
    return ""


class Script:
    """A Dice that follows a script and notes what it was asked; it normalises as the real one."""

    def __init__(self, draws=(), coins=()):
        self.draws, self.coins, self.asked = list(draws), list(coins), []

    def draw(self, probs):
        self.asked.append([round(float(p), 4) for p in probs / probs.sum()])
        return self.draws.pop(0) if self.draws else int(probs.argmax())

    def flip(self, p):
        self.asked.append(round(float(p), 4))
        return self.coins.pop(0)


def check_lossless(start, *samplers):
    """A promise: start(target, sampler, dice) -> Steps must have the target's distribution."""
    for sampler in samplers or [Sampler(1)]:
        bias = loop_bias(lambda target, dice, s=sampler: start(target, s, dice), sampler)
        assert bias < 1e-6, (  # an answer may compute in float32
            "the text no longer has the target's distribution at temperature "
            f"{sampler.temperature}: total variation {bias:.1e} instead of 0")


@cache
def chapters():
    """{'01': (folder, blanks)} for every chapter that has a table of blanks."""
    found = {}
    for table in sorted((ROOT / "tests").glob("blanks_*.py")):
        blanks = importlib.import_module(table.stem)
        folder = next(ROOT.glob(f"0?_*/{table.stem.removeprefix('blanks_')}.py")).parent
        wrong = importlib.import_module(f"{folder.name}.wrong").WRONG
        for blank in blanks.BLANKS:
            blank.slips = wrong[blank.name]
        found[folder.name[:2]] = folder, blanks.BLANKS
    return dict(sorted(found.items()))


def reference_source(blank):
    """The taught function's syntax tree node and its module's source."""
    module, path = blank.target.split(":")
    source = Path(importlib.import_module(module).__file__).read_text(encoding="utf-8")
    node = ast.parse(source)
    for part in path.split("."):
        found = [n for n in node.body if getattr(n, "name", None) == part]
        if not found:
            raise ValueError(f"{blank.target} is not a function")
        node = found[0]
    return node, source
