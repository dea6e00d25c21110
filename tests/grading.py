"""Blanks and how they are graded.

A `Blank` names one taught function, asks for it, and knows how to judge an answer:

    still blank   the body says `raise NotImplementedError`
    crashed       it raises something else; the learner's own line is shown
    wrong         it fails an example, what the chapter promises, or one of more inputs
    done

While one blank is judged, all other names mean the taught code, so an empty neighbour does no
harm, and no expectation ever comes from the learner's own module. An answer that fails is compared
with the known slips: if it behaves exactly like one, the grader says which.
"""

import ast
import contextlib
import copy
import ctypes
import functools
import importlib
import inspect
import math
import numbers
import pickle
import random
import re
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import numpy as np
import torch

from grade import PATIENCE, SECONDS
from nanogpt.chapter import folders, load, room_of
from nanogpt.exact.enumeration import outcomes
from nanogpt.exact.slips import Lost, replaced
from nanogpt.exact.toy_models import loop_bias
from nanogpt.sampling import Sampler

ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Blank:
    """One exercise.

    target: 'module:function' or 'module:Class.method'; question: what to write; hint: a nudge, or
    two, the second one stronger; lines, minutes: how long the taught body is, and how long a
    learner needs.
    examples: {"this input": (call, expected)}, hand-sized inputs and results worked out by hand;
    call: a tuple of arguments, or call(f) -> what to compare.
    promise(): raises Broken if what the chapter promises is broken; the answer stands in for the
    taught function meanwhile.
    more() -> {"this input": call}: further inputs, on which the taught function says what is right.
    chapter: its folder, see `blanks_of`.
    """

    target: str
    question: str
    hint: str | tuple
    lines: int
    minutes: int
    examples: dict
    promise: Callable | None = None
    more: Callable = dict
    chapter: Path | None = None

    @property
    def name(self):
        return self.target.split(":")[1].split(".")[-1]

    @property
    def example(self):
        """The first case with its result, to check on paper."""
        case, (_, result) = next(iter(self.examples.items()))
        return f"{case} -> {shown(plain(result))}"

    @cached_property
    def slips(self):
        """{sentence: f}, the wrong variants of the chapter; read only when an answer is wrong."""
        return wrong_variants(self.chapter)[self.name]

    def owner(self):
        """The module or class that holds the taught function."""
        module, path = self.target.split(":")
        place = importlib.import_module(module)
        for part in path.split(".")[:-1]:
            place = getattr(place, part)
        return place

    def taught(self):
        return getattr(self.owner(), self.name)


# ---------------------------------------------------------------- the tables


@cache
def chapters():
    """{'01': folder} of every chapter that has blanks."""
    return {folder.name[:2]: folder for folder in folders() if table_of(folder)}


def table_of(folder):
    """The file with a chapter's BLANKS: one of its own beside this one, or its room; or None."""
    own, room = ROOT / "tests" / f"blanks_{folder.name[3:]}.py", folder / f"{room_of(folder)}.py"
    if own.exists():
        return own
    return room if "\nBLANKS = " in room.read_text(encoding="utf-8") else None


def in_workshop(number):
    """Has a chapter a file tests/blanks_*.py? Then more is asked of its blanks, see WORKSHOP.md."""
    return table_of(chapters()[number]).parent.name == "tests"


@cache
def blanks_of(number):
    """A chapter's blanks, a list. No other chapter is loaded, unless this one builds on it."""
    folder = chapters()[number]
    blanks = [blank if isinstance(blank, Blank) else Blank(*blank)  # a room knows no grader
              for blank in importlib.import_module(table_of(folder).stem).BLANKS]
    for blank in blanks:
        blank.chapter = folder
    return blanks


def wrong_variants(folder):
    """{function: {sentence: f}} of a chapter."""
    return load(folder.name[:2]).wrong


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


# ---------------------------------------------------------------- a learner's file


class ExerciseFile:
    """An exercise file, run once, statement by statement.

    What fails at its top level, a try below an empty blank, say, is noted in `troubles` (sentences
    with the line) and the rest goes on. doing(text) is called before every statement.
    Raises what keeps the file from being read: a SyntaxError, say.
    """

    def __init__(self, path, blanks, doing=lambda *_: None):
        self.path, self.blanks = str(path), blanks
        # Bytes: Python knows about cookies and byte order marks.
        statements = ast.parse(Path(path).read_bytes(), self.path).body
        self.space, self.troubles = {"__name__": "exercise", "__file__": self.path}, []
        futures = [n for n in statements if getattr(n, "module", None) == "__future__"]
        for statement in statements:
            doing(f"line {statement.lineno}")
            try:
                code = ast.Module([*futures, statement], [])
                exec(compile(code, self.path, "exec", dont_inherit=True), self.space)
            except BaseException as error:  # SystemExit, too, or a class of the learner's own
                self.troubles.append(f"line {statement.lineno}: {told(error)}")

    def grade(self, blank, doing=lambda *_: None):
        """-> (status, message); meanwhile all other blanks mean the taught functions."""
        others = {b.name: b.taught() for b in self.blanks if b is not blank}
        mine = {name: self.space[name] for name in others if name in self.space}
        self.space.update(others)
        try:
            return grade_answer(blank, self.space.get(blank.name), self.path, doing)
        finally:
            self.space.update(mine)


    def answers(self, names):
        """{name: the file's function}; they call each other, and where one is not named, the taught
        one. Each has the taught one's name and module, and `taught`, the taught one itself."""
        for blank in self.blanks:
            own = taught = getattr(blank.taught(), "taught", blank.taught())
            if blank.name in names:
                own = self.space[blank.name]
                if not inspect.isfunction(own):  # a partial, or a built-in one: it may bear no name
                    own = (lambda f: lambda *args: f(*args))(own)
                functools.update_wrapper(own, taught, updated=()).taught = taught
            self.space[blank.name] = own
        return {name: self.space[name] for name in names}


def places(function):
    """Where this repository's modules, their classes and a notebook hold a function, by name:
    [(owner, name)]."""
    owners = [module for name, module in list(sys.modules.items())
              if name == "__main__" or str(getattr(module, "__file__", "")).startswith(str(ROOT))]
    owners += {value for module in owners for value in vars(module).values()
               if inspect.isclass(value) and value.__module__ == module.__name__}
    return [(owner, name) for owner in owners for name, value in list(vars(owner).items())
            if value is function]


@contextlib.contextmanager
def standing(where):
    """Inside `with`: each owner's name is this function. where: [(owner, name, function)]."""
    before = [(owner, name, vars(owner)[name]) for owner, name, _ in where]
    for owner, name, function in where:
        setattr(owner, name, function)
    try:
        yield
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)


def in_loop(loop, pairs):
    """The Loop with other functions for its rule and its decoder; pairs: (taught, own)."""
    return loop.but(**{part: own for part in ("rule", "decode") for taught, own in pairs
                       if getattr(loop, part) is taught})


# ---------------------------------------------------------------- results


MOST = 10_000  # numbers in a result: no right one has as many
LETTERS = 400  # of one value in a message
LONG = 100  # letters: of what is longer, the place is told
DRAWS = 100  # in one call: of more, a right answer has no need
ENTRIES = 5  # of a dictionary


def plain(value):
    """Results as nested lists of numbers, so that they can be compared and shown."""
    if hasattr(value, "parents") and hasattr(value, "tokens"):  # a Tree
        return {"tokens": plain(value.tokens), "parents": plain(value.parents)} | (
            {} if value.draft_probs is None else {"draft_probs": plain(value.draft_probs)})
    if math.prod(getattr(value, "shape", ())) > MOST:
        return f"an array of the shape {tuple(value.shape)}"
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, range)):
        if len(value) > MOST:
            return f"{len(value)} entries"
        return [plain(v) for v in value]
    if isinstance(value, (bool, str)) or value is None:
        return value
    if isinstance(value, numbers.Real):
        return int(value) if isinstance(value, numbers.Integral) else float(value)
    return f"a {type(value).__name__}"


def same(a, b):
    """Are two plain results equal? Numbers may differ by what float32 does to them."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return a == b or abs(a - b) <= 1e-6 or (a != a and b != b)
    return a == b


def shown(value, most=LETTERS):
    """A plain result as a text, of so many letters at most."""
    if isinstance(value, list):
        text = f"[{', '.join(shown(v, most) for v in value)}]"
    elif isinstance(value, dict):
        text = "{" + ", ".join(f"{k}: {shown(v, most)}" for k, v in value.items()) + "}"
    elif isinstance(value, float):
        text = f"{round(value, 6) + 0.0:.6g}" if abs(value) < 1e6 else f"{value:.6g}"
    else:
        text = repr(value)
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} letters)"


def is_grid(value):
    """A matrix of 0 and 1, or of False and True, with three rows or more?"""
    return (isinstance(value, list) and len(value) > 2
            and all(isinstance(row, list) and len(row) <= 20 for row in value)
            and all(isinstance(cell, int) and cell in (0, 1) for row in value for cell in row))


def difference(wanted, got):
    """What was expected and what came, in lines."""
    if isinstance(wanted, dict) and isinstance(got, dict):
        return entries(wanted, got)
    if is_grid(wanted) and is_grid(got) and len(wanted) == len(got):
        return grids(wanted, got)
    where = first_difference(wanted, got) if len(shown(wanted)) > LONG else ""
    return f"\n    expected {shown(wanted)}\n    got      {shown(got)}{where}"


def entries(wanted, got):
    """The entries in which two dictionaries differ."""
    keys = [key for key in {**wanted, **got}
            if key not in got or key not in wanted or not same(wanted[key], got[key])]
    lines = []
    for key in keys[:ENTRIES]:
        values = (shown(d[key]) if key in d else "none" for d in (wanted, got))
        lines.append("\n    {}: expected {}, got {}".format(key[:LETTERS], *values))
    return "".join(lines) + "\n    ..." * (len(keys) > ENTRIES)


def grids(wanted, got):
    """Two matrices of 0 and 1, drawn side by side."""
    drawn = [[" ".join("1" if cell else "." for cell in row) for row in grid]
             for grid in (wanted, got)]
    width = max(len("expected"), *map(len, drawn[0]))
    lines = [f"\n    row   {'expected':{width}}   got"]
    for i, (a, b) in enumerate(zip(*drawn, strict=True)):
        lines.append(f"\n    {i:3d}   {a:{width}}   {b}" + "   <-" * (a != b))
    return "".join(lines)


def first_difference(wanted, got, place=""):
    """Where two nested lists differ first, as '\\n    at [1][0]: expected .., got ..'."""
    if isinstance(wanted, list) and isinstance(got, list) and len(wanted) == len(got):
        for i, (a, b) in enumerate(zip(wanted, got, strict=True)):
            if not same(a, b):
                return first_difference(a, b, f"{place}[{i}]")
    if not place:
        return ""
    return f"\n    at {place}: expected {shown(wanted, LONG)}, got {shown(got, LONG)}"


# ---------------------------------------------------------------- calls


ARGUMENTS = (torch.Tensor, np.ndarray, list, tuple, dict)  # what an answer must leave as it is, ..
TREE = "tokens", "parents", "draft_probs", "mask", "depths", "children"  # .. and these of a tree


def is_data(value):
    return isinstance(value, ARGUMENTS) or hasattr(value, "parents")


def contents(value):
    """As `plain`, and of a tree also what it makes of its parents."""
    if hasattr(value, "parents"):
        value = {name: getattr(value, name) for name in TREE}
    if isinstance(value, dict):
        return {str(key): contents(part) for key, part in value.items()}
    return [*map(contents, value)] if isinstance(value, (list, tuple)) else plain(value)


def generators():
    """What everybody's generators of chance would draw next."""
    return {"torch": torch.get_rng_state().numpy().tobytes(), "random": random.getstate(),
            "numpy": pickle.dumps(np.random.get_state())}


class Misuse(Exception):
    """An answer breaks a rule that its values do not show. The text is the verdict's."""


class Broken(Exception):
    """What the chapter promises is broken. The text says how."""


class TooMany(Exception):
    """An answer that may be right asks the dice more often than can be followed."""


class Late(BaseException):
    """An answer has had its time."""


def require(right, sentence):
    """Raises Broken. (An assert would say nothing under `python -O`.)"""
    if not right:
        raise Broken(sentence)


class Calls:
    """An answer as the grader calls it: it gets copies of its arrays, lists, dictionaries and
    trees, and may not write into them, so no answer can spoil the examples for the next one.

    `last` holds the arguments of the call that is running; `noted` only notes them.
    """

    def __init__(self, blank, f):
        self.f, self.last = f, ()
        self.names = list(inspect.signature(blank.taught()).parameters)
        nodes = list(ast.walk(reference_source(blank)[0]))
        self.missing = (  # where nothing comes back
            "yield" if any(isinstance(n, ast.Yield) for n in nodes) else
            "return" if any(isinstance(n, ast.Return) and n.value for n in nodes) else "")

    def __call__(self, *args):
        self.last = args
        given = [copy.deepcopy(a) if is_data(a) else a for a in args]
        chance = generators() if "dice" in self.names else {}
        result = self.f(*given)
        if inspect.isgenerator(result):  # nothing has run yet
            return self.watched(result, args, given)
        self.look(args, given)
        if result is None and self.missing:
            raise Misuse(f"nothing comes back; is a `{self.missing}` missing?")
        after = generators() if chance else {}
        for name in chance:
            if after[name] != chance[name]:
                raise Misuse(f"your code asks {name} for chance; ask the dice, and nobody else")
        return result

    def look(self, args, given):
        """Raises Misuse if an argument is not what it was."""
        for name, before, after in zip(self.names, args, given, strict=False):
            if is_data(before) and not same(contents(before), contents(after)):
                raise Misuse(f"your code changes its argument {name}; work on a copy")

    def watched(self, values, args, given):
        """A generator's values; its arguments are looked at with each of them."""
        for value in values:
            self.look(args, given)
            yield value
        self.look(args, given)

    def noted(self):
        """The answer as a function: a method gets its `self`, which a Calls would not."""
        def call(*args):
            self.last = args
            return self.f(*args)

        return call

    def told(self):
        """'called with ...', the arguments that are numbers, arrays or trees, or ''."""
        said = [f"{name} = {shown(plain(value))}"
                for name, value in zip(self.names, self.last, strict=False)
                if is_data(value) or isinstance(value, (int, float))]
        return f"\n    called with {', '.join(said)}" if said else ""


def told(error):
    """An exception in a line, also one that cannot be printed."""
    try:
        text = " ".join(str(error).split())
    except BaseException:
        text = "(its text cannot be made)"
    if isinstance(error, MemoryError) or "allocate memory" in text:
        text = f"more than {MEMORY >> 30} GB of memory"
    return f"{type(error).__name__}: {text}"[:LETTERS].rstrip(": ")


LIFE = 5  # seconds from one sign of life to the next, in a lesson
MEMORY = 2 << 30  # bytes that an answer may take beyond what is loaded


def limit_memory():
    """On Linux: what is loaded, and MEMORY."""
    with contextlib.suppress(ImportError, OSError, TypeError, ValueError):
        import resource  # noqa: PLC0415 (there is none on Windows)
        used = re.search(r"VmData:\s+(\d+)", Path("/proc/self/status").read_text("ascii"))[1]
        resource.setrlimit(resource.RLIMIT_DATA, (1024 * int(used) + MEMORY,) * 2)


@contextlib.contextmanager
def limited():
    """Inside `with`, in this very process: a sign of life now and then; and behind SECONDS of the
    processor, or PATIENCE, Late is raised, again and again, for an answer may catch it."""
    over, thread = threading.Event(), ctypes.c_ulong(threading.get_ident())
    begun, used = time.monotonic(), time.process_time()

    def watch():
        while not over.wait(LIFE):
            waited = time.monotonic() - begun
            print(f"(at work for {waited:.0f} seconds)", flush=True)
            if waited > PATIENCE or min(waited, time.process_time() - used) > SECONDS:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(Late))

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        over.set()


def own_line(error, path):
    """The learner's line in which an error arose, as '\\n    line 12: code', or ''."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename == str(path):
            return f"\n    line {frame.lineno}: {frame.line}"
    return ""


def says_not_yet(error, path):
    """True if an error comes from the learner's own `raise NotImplementedError`."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return (isinstance(error, NotImplementedError) and last.filename == str(path)
            and last.line.startswith("raise"))


# ---------------------------------------------------------------- the verdict


def grade_answer(blank, answer, path="exercise.py", doing=lambda *_: None):
    """-> (status, message), see above. doing(text) is called before every trial."""
    status, message = judged(blank, answer, path, doing)
    return status, (rewritten(blank) if status in ("wrong", "crashed") else "") + message


def rewritten(blank):
    """A sentence, if taught functions up to this chapter's have been changed, or ''."""
    known = [b for number, folder in chapters().items()
             if blank.chapter and folder.name <= blank.chapter.name for b in blanks_of(number)]
    wrong = [f"{b.name} in {b.target.split(':')[0].replace('.', '/')}.py"
             for b in known or [blank] if not same(behaviour(b, b.taught(), b.examples), {
                 case: plain(result) for case, (_, result) in b.examples.items()})]
    return ("This verdict may be wrong, for taught code was changed and fails its own examples: "
            f"{', '.join(wrong)}. `git diff` shows the change.\n    " if wrong else "")


def judged(blank, answer, path, doing):
    """As grade_answer, whatever has become of the taught code."""
    if answer is None:
        return "still blank", f"there is no function {blank.name} in the file"
    if not callable(answer):
        return "wrong", f"{blank.name} is {shown(plain(answer))}, and no function"
    if answer is blank.taught():
        return "wrong", "this is the taught function itself, imported; write your own"
    calls = Calls(blank, answer)
    verdict = try_cases(blank, calls, blank.examples, path, doing)
    if verdict is None and blank.promise is not None:
        verdict = try_promise(blank, calls, path, doing)
        if verdict and verdict[0] == "wrong":
            last = calls.told()
            seen = try_more(blank, calls, path, doing, "one input: ")
            return "wrong", verdict[1] + (
                f"\n    {seen[1]}" if seen else last * (last not in verdict[1]))
    return verdict or try_more(blank, calls, path, doing,
                               "the examples are right, but ") or ("done", "")


def try_more(blank, calls, path, doing, but):
    """As `try_cases`, with further inputs."""
    return try_cases(blank, calls, {case: (call, observed(call, blank.taught()))
                                    for case, call in blank.more().items()}, path, doing, but)


def observed(call, f):
    """What f does there, comparable."""
    return plain(call(f) if callable(call) else f(*call))


# So begins a case that says only what it changes of the first one.
VARIES = "the same", "the first", "the second", "the target says", "the whole target"


def try_cases(blank, calls, cases, path, doing, but=""):
    """-> (status, message) of the first of the cases that fails, or None."""
    seen, failed = {}, None
    for case, (call, wanted) in cases.items():
        doing(f"for {case}", calls)
        try:
            seen[case], error = observed(call, calls), None
        except Late:
            raise
        except BaseException as caught:  # SystemExit, too, or a class of the learner's own
            traceback.clear_frames(caught.__traceback__)  # they may hold all the memory there is
            seen[case], error = told(caught), caught
            if says_not_yet(error, path):
                return "still blank", "its question is above it in exercise.py"
            if isinstance(error, Misuse):
                return "wrong", str(error)
            if "GB of memory" in seen[case]:  # the next case would take as long to fill it
                return crash(error, path, calls.told(), "", f"{but}for {case}: ")
        if failed is None and (error or not same(seen[case], plain(wanted))):
            failed = case, error, calls.told() if error or but else ""
    if failed is None:
        return None
    case, error, called = failed
    name = name_slip(blank, cases, seen, "" if but else case)
    if error:
        return crash(error, path, called, name, but)
    first = next(iter(cases))
    varies = f"\n        (of: {first})" if case != first and case.startswith(VARIES) else ""
    found = difference(plain(cases[case][1]), seen[case])
    return "wrong", f"{but}for {case}{varies}{found}{called}{name}"


def crash(error, path, called, name, but):
    """(status, message) for an exception, in the learner's lines or in what is made of a result."""
    if isinstance(error, TooMany):
        return "crashed", f"{but}{error}{own_line(error, path)}{called}"
    if line := own_line(error, path):
        return "crashed", f"{but}{told(error)}{line}{called}{name}"
    return "wrong", f"{but}the result cannot be used ({told(error)}){called}{name}"


def try_promise(blank, calls, path, doing):
    """-> (status, message), or None if the promise is kept with the answer in place."""
    but = "the examples are right, but "
    calls.last = ()
    doing("while the chapter's promise is tried", calls)
    try:
        with replaced(blank.owner(), **{blank.name: calls.noted()}):
            blank.promise()
    except (Broken, Misuse) as error:
        return "wrong", f"{but}{error}"
    except Late:
        raise
    except BaseException as error:
        traceback.clear_frames(error.__traceback__)
        return crash(error, path, calls.told(), "", but)
    return None


def name_slip(blank, cases, seen, failed):
    """'This is what you get when ...', if the answer behaves exactly like a known slip, on all of
    the cases, or like one alone on the case that is shown, if there is one and its result tells
    enough. (0 or True come of many mistakes.)"""
    try:
        slips = blank.slips
    except Exception as error:  # the chapter's code no longer loads
        return f"\n    (The known slips cannot be compared: {told(error)})"
    lost = [sentence for sentence, slip in slips.items() if isinstance(slip, Lost)]
    note = "".join(f"\n    (Not compared, for the taught {blank.name} was rewritten: "
                   f"{'; '.join(lost)}.)" for _ in lost[:1])
    alike = []
    for sentence, slip in slips.items():
        if sentence in lost:
            continue
        def same_on(case, slip=slip):
            return same(behaviour(blank, slip, {case: cases[case]})[case], seen[case])

        if all(map(same_on, cases)):  # most slips differ on the first or second
            return f"\n    This is what you get when {sentence}.{note}"
        if failed and seen[failed] not in (0, 1) and same_on(failed):
            alike.append(sentence)
    if len(alike) == 1:
        return f"\n    Here, this is what you get when {alike[0]}.{note}"
    return note


def behaviour(blank, f, cases):
    """What f does on the cases, comparable; an exception is a behaviour, too."""
    calls, does = Calls(blank, f), {}
    with warnings.catch_warnings(), np.errstate(all="ignore"):  # a slip's warnings tell nothing
        warnings.simplefilter("ignore")
        for case, (call, _) in cases.items():
            try:
                does[case] = observed(call, calls)
            except Exception as error:
                does[case] = told(error)
    return does


# ---------------------------------------------------------------- what the tables share


def law(probs):
    """What a dice is asked to draw from. Raises Misuse if it is no tensor, ValueError if all of it
    is 0 or nan."""
    if not isinstance(probs, torch.Tensor):
        raise Misuse(f"dice.draw gets a {type(probs).__name__}; it takes a tensor (V,)")
    if not probs.sum() > 0:
        raise ValueError("dice.draw gets no probability above 0: nothing is left to draw")
    return probs


class Script:
    """A Dice that follows a script and notes what it was asked; it normalises as the real one.

    Behind the script a draw is the most probable token, and a coin passes.
    """

    def __init__(self, draws=(), coins=()):
        self.draws, self.coins, self.asked = list(draws), list(coins), []

    def draw(self, probs):
        self.asked.append([round(float(p), 4) for p in law(probs) / probs.sum()])
        return self.draws.pop(0) if self.draws else int(probs.argmax())

    def flip(self, p):
        self.asked.append(round(float(p), 4))
        return self.coins.pop(0) if self.coins else True


def judgement(result):
    """What an accept rule returns: path, token. Raises Misuse if they are not ints."""
    if not isinstance(result, tuple) or len(result) != 2:
        raise Misuse(f"{shown(plain(result))} comes back; it must be two things: path, token")
    path, token = result
    for value in [*path, token]:
        if not isinstance(value, numbers.Integral):
            raise Misuse(f"path and token hold {shown(plain(value))} as a {type(value).__name__}; "
                         "rows and tokens are ints: int(...)")
    return list(path), token


def check_lossless(start, *samplers, **case):
    """A promise: start(target, sampler, dice) -> Steps must have the target's distribution.

    case: see loop_bias.
    """
    for sampler in samplers or [Sampler(1)]:
        bias = loop_bias(lambda target, dice, s=sampler: start(target, s, dice), sampler, **case)
        require(bias < 1e-6,  # an answer may compute in float32
                "the text no longer has the target's distribution at temperature "
                f"{sampler.temperature}: total variation {bias:.1e} instead of 0")


def chances(run, most=3000):
    """{result: probability} over every sequence of draws of run(dice), for comparison. Raises
    TooMany beyond `most`; right answers of the usual kind have 200."""
    def watched(dice):
        ask = dice.draw

        def draw(probs):
            if len(dice.taken) == DRAWS:
                raise TooMany(f"too many draws: more than {DRAWS} in one call; few are enough")
            return ask(law(probs))

        dice.draw = draw
        return run(dice)

    found = {}
    for number, (result, probability) in enumerate(outcomes(watched)):
        if number == most:
            raise TooMany(f"too many sequences of draws, more than {most:,}, so nobody "
                          "compares them all; draw when a token is needed, and not before")
        key = shown(plain(result))
        found[key] = found.get(key, 0.0) + probability
    return {key: p for key, p in sorted(found.items()) if p > 1e-9}
