"""Grade the exercises: python tests/grade.py [01] [--hint NAME] [--class-folder FOLDER]

Without a chapter: all of them. In a chapter's notebook:
`!python ../tests/grade.py 01`. A class folder holds one folder a learner, each with the chapters'
folders in it.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = map(str, [ROOT, ROOT / "tests", *ROOT.glob("0?_*")])

import multiprocessing
import signal

from grading import chapters, grade_answer, load_answers, told
from nanogpt.cli import Parser, print_table, run

SECONDS = 30  # an answer that takes longer is taken for an endless loop
SPAWN = multiprocessing.get_context("spawn")  # the same on Linux, macOS and Windows


def work(connection, number, path, names):
    """A learner's process: send None when ready, what keeps the file from running (or ''), then
    (status, message) for each of these blanks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is answered by the process that waits
    blanks = chapters()[number][1]
    connection.send(None)
    try:
        answers, broken = load_answers(path.read_text(encoding="utf-8-sig"), path, blanks), ""
    except BaseException as error:
        broken = told(error)
    connection.send(broken)
    for blank in (b for b in blanks if b.name in names and not broken):
        verdict = grade_answer(blank, answers.get(blank.name), path)
        sys.stdout.flush()  # what the answer printed
        connection.send(verdict)


def received(connection, process):
    """-> the next message, and what ended the process instead, or ''."""
    try:
        if connection.poll(SECONDS):
            return connection.recv(), ""
        return None, f"TimeoutError: no answer after {SECONDS} seconds; an endless loop?"
    except (EOFError, OSError):
        process.join()
        return None, f"it ends Python (exit status {process.exitcode})"


def verdicts(number, path, names):
    """-> {name: (status, message)}. A process for the file, and a new one behind each answer that
    ends it, so nothing an answer does reaches another learner's marks.

    Raises ValueError if the file does not run, RuntimeError if the grader does not.
    """
    graded = {}
    while len(graded) < len(names):
        left = names[len(graded):]
        here, there = SPAWN.Pipe(duplex=False)
        process = SPAWN.Process(target=work, args=(there, number, path, left), daemon=True)
        process.start()
        there.close()
        try:
            here.recv()  # importing may take longer than an answer
            broken, ended = received(here, process)
            if broken or ended:
                raise ValueError(f"{path} does not run: {broken or ended}")
            for name in left:
                verdict, ended = received(here, process)
                graded[name] = ("crashed", ended) if ended else verdict
                if ended:
                    break
        except EOFError:
            raise RuntimeError("the grader's own process did not start") from None
        finally:
            process.kill()
            process.join()
    return graded


def results(number, path=None, only=None):
    """-> a list of (blank, status, message) for a chapter's exercise.py, or the one at `path`.

    only: the name of one blank, to grade no other.
    Raises ValueError if there is no such file, or it does not run.
    """
    folder, blanks = chapters()[number]
    path = path or folder / "exercise.py"
    if not path.exists():
        raise ValueError(f"{path} is missing; python tests/make_exercises.py writes it")
    chosen = [b for b in blanks if only in (None, b.name)]
    graded = verdicts(number, path, [b.name for b in chosen])
    return [(b, *graded[b.name]) for b in chosen]


def grade(numbers, only=None):
    """Print the verdicts on these chapters, or on one blank -> True if everything is done."""
    done = total = 0
    for number in numbers:
        total += sum(only in (None, b.name) for b in chapters()[number][1])
        try:
            graded = results(number, only=only)
        except ValueError as error:
            print(f"{number}  {error}")
            continue
        for blank, status, message in graded:
            print(f"{number}  {blank.name:24s} {status}" + (f": {message}" if message else ""))
            done += status == "done"
    if only is None:
        print(f"{done} of {total} done")
    return done == total


def print_class(folder, numbers):
    """A row per learner: blanks done in each chapter; '-' no file, 'broken' it does not run.

    folder/NAME/01_chain_specdec/exercise.py is NAME's chapter 01. Runs everybody's code.
    Raises ValueError if there is nobody.
    """
    names = sorted(p.name for p in folder.iterdir() if p.is_dir()) if folder.is_dir() else []
    if not names:
        raise ValueError(f"class folder '{folder}' holds no folder of a learner")
    rows = []
    for name in names:
        row = [name]
        for number in numbers:
            chapter, blanks = chapters()[number]
            path = folder / name / chapter.name / "exercise.py"
            try:
                done = [status for _, status, _ in results(number, path)].count("done")
                row.append(f"{done}/{len(blanks)}")
            except ValueError:
                row.append("broken" if path.exists() else "-")
        rows.append(row)
    print_table(["learner", *numbers], rows)


def main(argv=None):
    known = chapters()
    parser = Parser(__doc__.splitlines()[0])
    parser.add_argument("chapter", nargs="?", type=lambda text: text.zfill(2), choices=known,
                        help="01, 02, ...; default: all")
    parser.add_argument("--blank", metavar="NAME", help="grade this blank alone")
    parser.add_argument("--hint", metavar="NAME", help="print the hint for a blank")
    parser.add_argument("--class-folder", type=Path, metavar="FOLDER",
                        help="grade a class: FOLDER/NAME/01_chain_specdec/exercise.py, ...")
    args = parser.parse_args(argv)
    chosen = [args.chapter] if args.chapter else list(known)
    hints = {b.name: b.hint for number in chosen for b in known[number][1]}
    name = args.blank or args.hint
    if name is not None and name not in hints:
        raise ValueError(f"blank is '{name}'; it must be one of {', '.join(hints)}")
    if args.hint is not None:
        print(" ".join(hints[name].split()))
    elif args.class_folder is not None:
        print_class(args.class_folder, chosen)
    elif not grade(chosen, args.blank) and args.chapter:
        raise SystemExit(1)


if __name__ == "__main__":
    run(main)
