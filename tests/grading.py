"""Blanks and how they are graded.

A `Blank` names one taught function, asks for it, and knows how to judge an answer:

    still blank   the body raises NotImplementedError
    crashed       it raises something else; the learner's own line is shown
    wrong         an example that one can check on paper gives another result, or the law is broken
    done

While one blank is judged, all other names mean the taught code, so an empty neighbour does no
harm, and no expectation ever comes from the learner's own module. A wrong answer is compared with
the known slips: if it behaves exactly like one, the grader says which.
"""

import ast
import importlib
import traceback
import types
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Blank:
    """One exercise.

    target: 'module:function' or 'module:Class.method'; question: what to write; hint: a nudge;
    lines, minutes: how long the taught body is, and how long a learner needs.
    observe(f) -> a dict {"for this input": result} on hand-sized inputs; expected: the same dict,
    from numbers worked out by hand. law(): raises AssertionError with a sentence if the chapter's
    law is broken; the answer stands in for the taught function meanwhile. slips: {sentence: f}.
    """

    target: str
    question: str
    hint: str
    lines: int
    minutes: int
    observe: Callable
    expected: dict
    law: Callable | None = None
    slips: dict = field(default_factory=dict)

    @property
    def name(self):
        return self.target.split(":")[1].split(".")[-1]

    def owner(self):
        """The module or class that holds the taught function."""
        module, path = self.target.split(":")
        place = importlib.import_module(module)
        for part in path.split(".")[:-1]:
            place = getattr(place, part)
        return place

    def taught(self):
        return getattr(self.owner(), self.name)


@contextmanager
def standing_in(blank, answer):
    """Put the answer in the taught function's place for a while."""
    owner, taught = blank.owner(), blank.taught()
    setattr(owner, blank.name, answer)
    try:
        yield
    finally:
        setattr(owner, blank.name, taught)


def load_answers(source, path, blanks):
    """Run an exercise file -> {name: function}, each bound to the taught neighbours.

    Raises whatever running the file raises (a SyntaxError, say).
    """
    space = {"__name__": "exercise", "__file__": str(path)}
    exec(compile(source, str(path), "exec"), space)
    answers = {}
    for blank in blanks:
        f = space.get(blank.name)
        if isinstance(f, types.FunctionType):
            others = {b.name: b.taught() for b in blanks if b is not blank}
            answers[blank.name] = types.FunctionType(
                f.__code__, {**space, **others, blank.name: f}, f.__name__, f.__defaults__,
                f.__closure__)
    return answers


def plain(value):
    """Results as nested lists of rounded numbers, so that they can be compared and printed."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, range)):
        return [plain(v) for v in value]
    if isinstance(value, float):
        return "nan" if value != value else round(value, 6) + 0.0
    return value


def behaviour(blank, f):
    """What f does on the hand-sized inputs, comparable; an exception is a behaviour too."""
    try:
        return plain(blank.observe(f))
    except Exception as error:
        return type(error).__name__


def own_line(error, path):
    """The learner's line in which an error arose, as 'line 12: code'."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename == str(path):
            return f"line {frame.lineno}: {frame.line}"
    return "outside exercise.py"


def grade_answer(blank, answer, path="exercise.py"):
    """-> (status, message); status: 'done', 'still blank', 'crashed' or 'wrong'."""
    if answer is None:
        return "still blank", f"there is no function {blank.name} in the file"
    try:
        seen = plain(blank.observe(answer))
    except NotImplementedError:
        return "still blank", blank.question
    except Exception as error:
        text = f"{type(error).__name__}: {error} ({own_line(error, path)})"
        return "crashed", text + name_slip(blank, type(error).__name__)
    wanted = plain(blank.expected)
    for case, value in wanted.items():
        if seen[case] != value:
            return "wrong", f"{case}: expected {value}, got {seen[case]}{name_slip(blank, seen)}"
    if blank.law is not None:
        try:
            with standing_in(blank, answer):
                blank.law()
        except AssertionError as error:
            return "wrong", f"the examples are right, but {error}{name_slip(blank, seen)}"
        except Exception as error:
            return "crashed", f"{type(error).__name__}: {error} ({own_line(error, path)})"
    return "done", ""


def name_slip(blank, seen):
    """' This is what you get when ...', if the answer behaves exactly like a known slip."""
    for sentence, slip in blank.slips.items():
        if behaviour(blank, slip) == seen:
            return f". This is what you get when {sentence}"
    return ""


def chapters():
    """{'01': (folder, blanks)} for every chapter that has a table of blanks."""
    found = {}
    for table in sorted((ROOT / "tests").glob("blanks_*.py")):
        blanks = importlib.import_module(table.stem)
        folder = next(ROOT.glob(f"0?_*/{table.stem.removeprefix('blanks_')}.py")).parent
        found[folder.name[:2]] = folder, blanks.BLANKS
    return dict(sorted(found.items()))


def reference_source(blank):
    """The taught function's syntax tree node and its module's source."""
    module = importlib.import_module(blank.target.split(":")[0])
    source = Path(module.__file__).read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.name == blank.name:
            return node, source
    raise ValueError(f"{blank.target} is not a function")
