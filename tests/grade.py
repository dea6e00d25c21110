"""Grade the exercises: python tests/grade.py [01] [--blank NAME] [--hint NAME [--more]]

and decode with them, beside the taught ones: python tests/grade.py --run 01

Without a chapter: all of them. In a chapter's notebook:
`!python ../tests/grade.py 01`. A class folder holds one folder a learner, each with the chapters'
folders in it: python tests/grade.py [01] --class-folder FOLDER
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = map(str, [ROOT, ROOT / "tests"])

import ast
import json
import os
import queue
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from nanogpt.terminal import Parser, run

SECONDS = 30  # an answer that takes longer is taken for an endless loop
PATIENCE = 300  # seconds more, where the machine is so busy that it has not had its own
START = 120  # seconds to load torch
IDLE = 50  # so often a process is found at rest, behind its time, and it is taken to sleep
LAST = 2  # seconds for the last words of a process that has ended
AT_ONCE = 2  # files of a class that are graded at the same time
LINES, LETTERS = 30, 200  # of what an answer prints are shown, and of each line
MARKS = {"done": "+", "wrong": "w", "crashed": "!", "still blank": "."}


def tables():
    """{'01': (folder, {blank's name: its hints})}, read as text: importing would load torch."""
    found = {}
    for folder in sorted(ROOT.glob("0?_*")):
        tables = ROOT / "tests" / f"blanks_{folder.name[3:]}.py", *folder.glob("*_room.py")
        hints = {target.value.split(":")[1].split(".")[-1]: rungs(ast.literal_eval(hint))
                 for table in tables if table.exists() for target, _, hint, *_ in blanks_in(table)}
        if hints:
            found[folder.name[:2]] = folder, hints
    return found


def rungs(hint):
    """A hint, or two of them, each in one line -> a list."""
    return [" ".join(text.split()) for text in ([hint] if isinstance(hint, str) else hint)]


def blanks_in(table):
    """The fields of each entry of a file's BLANKS, as syntax trees; [] if it has none."""
    for node in ast.parse(table.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "BLANKS":
            return [getattr(entry, "args", None) or entry.elts for entry in node.value.elts]
    return []


# ---------------------------------------------------------------- one file


def at_work(pid):
    """Does a process compute, or would if it could, and for how many seconds has it? (Linux)"""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
        return state == "R", (int(fields[10]) + int(fields[11])) / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError):
        return False, float("inf")  # nobody knows


class Judge:
    """grade_file.py at work on a file: its messages, each by a deadline."""

    def __init__(self, number, path, names):
        command = [sys.executable, str(ROOT / "tests" / "grade_file.py"), number, str(path), *names]
        # A session of its own: it and all that it starts can be ended together.
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        encoding="ascii", errors="replace", start_new_session=True)
        self.listen()

    def listen(self):
        self.lines, self.deadline = queue.Queue(maxsize=1000), None
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        while line := self.process.stdout.readline(1_000_000):
            self.lines.put(line)
        self.lines.put("")

    def message(self, deadline):
        """-> [kind, text, ..]. Raises EOFError if the process has ended, TimeoutError."""
        if deadline != self.deadline:  # a new one
            self.deadline, self.idle = deadline, 0
            _, self.before = at_work(self.process.pid)
        while True:
            if time.monotonic() > deadline and not self.starved():
                raise TimeoutError
            try:
                line = self.lines.get(timeout=0.2)
            except queue.Empty:
                if self.process.poll() is None:
                    continue
                try:  # what it said last may still be on its way
                    line = self.lines.get(timeout=LAST)
                except queue.Empty:
                    line = ""  # it has ended, although something that it started holds the pipe
            if not line:
                raise EOFError
            try:
                return json.loads(line)
            except ValueError:  # not a message of ours
                continue

    def starved(self):
        """Does it compute, on a machine so busy that it has not had its SECONDS? (Any process is
        found at rest now and then.)"""
        works, used = at_work(self.process.pid)
        self.idle += not works
        return (self.idle < IDLE and used - self.before < SECONDS
                and time.monotonic() - self.deadline < PATIENCE)

    def stop(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except (AttributeError, OSError):  # Windows; or it has ended
            self.process.kill()
        self.process.wait()

    def events(self, left):
        """-> ('print', text), ('trouble', text), (name, status, message). What is graded leaves
        the list `left`. Raises ValueError if the file or the chapter does not run."""
        stage, doing, deadline = "start", "", time.monotonic() + START
        while left:
            try:
                kind, *parts = self.message(deadline)
            except (TimeoutError, EOFError) as ended:
                why = (f"TimeoutError: no answer after {SECONDS} seconds; an endless loop?"
                       if isinstance(ended, TimeoutError) else
                       f"it ends Python (exit status {self.process.wait()})")
                if stage == "start":
                    raise ValueError("the grader's own process does not start") from None
                if stage == "ready":
                    raise ValueError(f"does not run: {doing}: {why}") from None
                yield left.pop(0), "crashed", f"{why}\n    {doing}"
                return
            if kind == "doing":
                doing = parts[0]
            elif kind == "print":
                yield kind, parts[0]
            elif kind == "unready":
                raise ValueError(f"cannot be graded: the chapter's own code does not load: "
                                 f"{parts[0]}")
            elif kind == "broken":
                raise ValueError(f"does not run: {parts[0]}")
            else:
                stage, deadline = kind, time.monotonic() + SECONDS
                if kind == "ran":
                    yield from (("trouble", text) for text in parts[0])
                elif kind == "verdict" and parts[0] == left[0] and parts[1] in MARKS:
                    yield left.pop(0), *parts[1:]


def graded(number, path, names):
    """Grade a file -> events, see Judge. A process for it, and a new one behind each answer that
    ends it, so nothing that an answer does reaches another learner's marks.

    Raises ValueError if there is no such file, or it does not run.
    """
    if not path.exists():
        raise ValueError("is missing; python tests/make_exercises.py writes it")
    left, again = list(names), False
    while left:
        judge, answers = Judge(number, path, left), len(left)
        try:
            for event in judge.events(left):
                # The file is run again: what its top level says is known.
                if not (again and len(left) == answers and event[0] in ("print", "trouble")):
                    yield event
        finally:
            judge.stop()
        again = True


# ---------------------------------------------------------------- what is shown


def clean(text):
    """A line that moves no cursor and clears no screen."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def indented(message):
    """A verdict's lines, of which none but the first can begin at the left."""
    first, *more = (clean(line) for line in message.split("\n"))
    return "\n".join([first, *(line if line[:4] == "    " else f"    {line}" for line in more)])


class Echo:
    """Shows what an answer prints, each line behind a bar; not all of it, if it is much."""

    def __init__(self):
        self.shown, self.rest = 0, ""

    def add(self, text):
        *lines, self.rest = (self.rest + text).split("\n")
        for line in lines:
            self.show(line)

    def show(self, line):
        self.shown += 1
        if self.shown <= LINES:
            print(f"    | {clean(line[:LETTERS])}", flush=True)
        elif self.shown == LINES + 1:
            print("    | ... (more is printed than is shown)", flush=True)

    def end(self):
        """The answer is judged; the next one begins anew."""
        if self.rest:
            self.show(self.rest)
        self.__init__()


def grade(number, path, names):
    """Print the verdicts on a file -> how many are done."""
    echo, done = Echo(), 0
    try:
        for what, *parts in graded(number, path, names):
            if what == "print":
                echo.add(parts[0])
                continue
            echo.end()
            if what == "trouble":
                print(f"{number}  {clean(parts[0])} (the rest of the file is graded)")
            else:
                status, message = parts
                more = f": {indented(message)}" if message else ""
                print(f"{number}  {what:24s} {status}{more}", flush=True)
                done += status == "done"
    except ValueError as error:
        echo.end()
        print(f"{number}  {path} {indented(str(error))}")
    return done


def decode_with(number, path, names):
    """Decode with those of the file's answers that are right; the verdicts on the others."""
    verdicts = {}
    try:
        for what, *parts in graded(number, path, names):
            if what not in ("print", "trouble"):
                verdicts[what] = parts[0]
    except ValueError as error:
        print(f"{number}  {path} {indented(str(error))}")
        return
    done = [name for name in names if verdicts.get(name) == "done"]
    for name in names:
        if name not in done:
            print(f"{number}  {name:24s} {verdicts.get(name, 'crashed')}: the taught one decodes")
    sys.stdout.flush()
    if done:
        ended = subprocess.run([sys.executable, str(ROOT / "tests" / "grade_run.py"), number,
                                str(path), *done], check=False)
        raise SystemExit(ended.returncode)


def print_events(number, path, names):
    """The verdicts for print_class: one in a line, as JSON."""
    try:
        for event in graded(number, path, names):
            if event[0] not in ("print", "trouble"):
                print(json.dumps(event), flush=True)
    except ValueError as error:
        print(json.dumps(["", "broken", str(error)]), flush=True)


# ---------------------------------------------------------------- a class


def learners_in(folder):
    """The names of a class folder's learners. Raises ValueError if it is none."""
    if not folder.is_dir():
        raise ValueError(f"class folder '{folder}' is no folder")
    own = sorted(path.name for path in folder.glob("0?_*"))
    if own:
        raise ValueError(f"class folder '{folder}' holds {own[0]} itself; it must hold one folder "
                         "a learner, with the chapters' folders in each")
    names = sorted(p.name for p in folder.iterdir() if p.is_dir() and p.name[0] not in "._")
    if not names:
        raise ValueError(f"class folder '{folder}' holds no folder of a learner")
    return names


def graded_apart(number, path, names):
    """-> {name: (status, message)}, and why the file does not run, or ''.

    By a grader of its own, so that an answer that ends its grader ends no other. What it leaves
    open is graded blank by blank.
    """
    if not path.exists():
        return None, ""
    command = [sys.executable, str(ROOT / "tests" / "grade.py"), number, "--file", str(path),
               "--events", *(["--blank", names[0]] if len(names) == 1 else [])]
    grader = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              encoding="utf-8", errors="replace", start_new_session=True)
    try:
        out, _ = grader.communicate(timeout=START + SECONDS * (2 * len(names) + 2))
    except subprocess.TimeoutExpired:
        grader.kill()
        out, _ = grader.communicate()
    found = {name: (status, text) for name, status, text in map(json.loads, out.splitlines())}
    _, why = found.pop("", ("", ""))
    for name in names if not why else ():
        if name not in found:
            found[name] = (graded_apart(number, path, [name])[0][name] if len(names) > 1 else
                           ("crashed", "it ends its grader"))
    return found, why


def print_class(folder, chosen):
    """A row a learner, a column a blank, as they are graded. Runs everybody's code.

    folder/NAME/01_chain_specdec/exercise.py is NAME's chapter 01; chosen: {number: (folder, names)}
    """
    learners = learners_in(folder)
    for number, (_, names) in chosen.items():
        print(f"{number}  " + ", ".join(f"{i} {name}" for i, name in enumerate(names, 1)))
    print("+ done   w wrong   ! crashed   . still blank   x the file does not run   - no file\n")
    width = min(20, max(map(len, ["learner", *learners])))
    head = "  ".join(f"{number} {' '.join(str(i + 1) for i in range(len(names)))}"
                     for number, (_, names) in chosen.items())
    print(f"{'learner':{width}}  {head}  done", flush=True)
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        rows = {learner: {number: pool.submit(
            graded_apart, number, folder / learner / chapter.name / "exercise.py", names)
            for number, (chapter, names) in chosen.items()} for learner in learners}
        for learner, row in rows.items():
            print_learner(clean(learner)[:width].ljust(width), chosen,
                          {number: future.result() for number, future in row.items()})
    finally:  # after Ctrl-C, or behind `| head`, no more is begun
        pool.shutdown(cancel_futures=True)


def print_learner(learner, chosen, row):
    """row: {number: what graded_apart gives}."""
    cells, remarks, done, single = [], [], 0, sum(len(names) for _, names in chosen.values()) == 1
    for number, (verdicts, why) in row.items():
        names = chosen[number][1]
        marks = ["-" if verdicts is None else "x" if why else MARKS[verdicts[name][0]]
                 for name in names]
        done += marks.count("+")
        cells.append(f"{'':{len(number)}} {' '.join(marks)}")
        if why:
            remarks.append(f"{number} {why}")
        elif single and verdicts:
            remarks += [": ".join(filter(None, verdict)) for verdict in verdicts.values()]
    print(f"{learner}  {'  '.join(cells)}  {done:4d}")
    for remark in remarks:
        print(f"    {indented(remark)}")
    sys.stdout.flush()


def main(argv=None):
    known = tables()
    parser = Parser(__doc__)
    parser.add_argument("chapter", nargs="?", type=lambda text: text.zfill(2), choices=known,
                        help="01, 02, ...; default: all")
    parser.add_argument("--blank", metavar="NAME", help="grade this blank alone")
    parser.add_argument("--hint", metavar="NAME", help="print the hint for a blank")
    parser.add_argument("--more", action="store_true", help="with --hint: the second, stronger one")
    parser.add_argument("--run", metavar="NN", type=lambda text: text.zfill(2), choices=known,
                        help="decode with what is right in this chapter's exercise.py")
    parser.add_argument("--file", type=Path, metavar="PATH",
                        help="grade this file as the chapter's exercise.py")
    parser.add_argument("--class-folder", metavar="FOLDER",
                        help="grade a class: FOLDER/NAME/01_chain_specdec/exercise.py, ...")
    parser.add_argument("--events", action="store_true", help="print the verdicts as JSON")
    args = parser.parse_args(argv)
    args.chapter = args.run or args.chapter
    chosen = {number: known[number] for number in ([args.chapter] if args.chapter else known)}
    hints = {name: hint for _, blanks in chosen.values() for name, hint in blanks.items()}
    for name in (args.blank, args.hint):
        if name is not None and name not in hints:
            raise ValueError(f"blank is '{name}'; it must be one of {', '.join(hints)}")
    if args.file and not args.chapter:
        raise ValueError(f"file is '{args.file}'; its chapter must be given, 01 for instance")
    if args.hint is not None:
        first, *second = hints[args.hint]
        print((second or ["There is no second hint; the first one was:", first])[0]
              if args.more else first)
        if second and not args.more:
            print(f"(One more: python tests/grade.py --hint {args.hint} --more)")
        return
    chosen = {number: (folder, [name for name in blanks if args.blank in (None, name)])
              for number, (folder, blanks) in chosen.items()
              if args.blank is None or args.blank in blanks}
    if args.class_folder is not None:
        if not args.class_folder:
            raise ValueError("class folder is ''; it must be the name of a folder")
        print_class(Path(args.class_folder), chosen)
        return
    if args.run:
        folder, names = chosen[args.run]
        decode_with(args.run, args.file or folder / "exercise.py", names)
        return
    done = total = 0
    for number, (folder, names) in chosen.items():
        path = args.file or folder / "exercise.py"
        if args.events:
            print_events(number, path, names)
            continue
        total += len(names)
        done += grade(number, path, names)
    if args.events:
        return
    if args.blank is None:
        print(f"{done} of {total} done")
    if args.chapter and done < total:
        raise SystemExit(1)


if __name__ == "__main__":
    run(main)
