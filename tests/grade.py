"""Grade the exercises: python tests/grade.py [01] [--hint NAME]

Without a chapter: the progress over all of them. In a notebook: `from grade import grade`, then
`grade("01")`.
"""

import sys; from pathlib import Path; sys.path[:0] = map(str, [(root := Path(__file__).resolve().parents[1]), root / "tests", *root.glob("0?_*")])  # noqa: E401, E501, E702, I001

import argparse
import threading

from grading import chapters, grade_answer, load_answers

SECONDS = 60  # an answer that takes longer is taken for an endless loop


def with_time_limit(call):
    """call() in a thread of its own -> its result, or None when the time is up."""
    result = []
    thread = threading.Thread(target=lambda: result.append(call()), daemon=True)
    thread.start()
    thread.join(SECONDS)
    return result[0] if result else None


def results(number):
    """-> a list of (blank, status, message) for a chapter's exercise.py."""
    folder, blanks = chapters()[number]
    path = folder / "exercise.py"
    try:
        answers = load_answers(path.read_text(encoding="utf-8"), path, blanks)
    except FileNotFoundError:
        return [(b, "still blank", "exercise.py is missing; python tests/make_exercises.py")
                for b in blanks]
    except Exception as error:
        text = f"exercise.py does not run: {type(error).__name__}: {error}"
        return [(b, "crashed", text) for b in blanks]
    graded = []
    for blank in blanks:
        answer = answers.get(blank.name)
        verdict = with_time_limit(lambda b=blank, a=answer: grade_answer(b, a, path))
        graded.append((blank, *(verdict or ("crashed", f"no answer after {SECONDS} seconds"))))
    return graded


def grade(number):
    """Print a chapter's verdicts -> True if everything is done."""
    graded = results(number)
    for blank, status, message in graded:
        print(f"{number}  {blank.name:24s} {status}" + (f": {message}" if message else ""))
    return all(status == "done" for _, status, _ in graded)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("chapter", nargs="?", help="01, 02, ...; default: the progress of all")
    parser.add_argument("--hint", metavar="NAME", help="print the hint for a blank")
    args = parser.parse_args()
    known = chapters()
    if args.chapter is not None and args.chapter not in known:
        print(f"error: chapter is '{args.chapter}'; it must be one of {', '.join(known)}",
              file=sys.stderr)
        raise SystemExit(2)
    chosen = [args.chapter] if args.chapter else list(known)
    if args.hint:
        hints = {b.name: b.hint for number in chosen for b in known[number][1]}
        if args.hint not in hints:
            print(f"error: blank is '{args.hint}'; it must be one of {', '.join(hints)}",
                  file=sys.stderr)
            raise SystemExit(2)
        print(hints[args.hint])
    elif args.chapter:
        raise SystemExit(0 if grade(args.chapter) else 1)
    else:
        for number in chosen:
            statuses = [status for _, status, _ in results(number)]
            done, blank = statuses.count("done"), statuses.count("still blank")
            print(f"{known[number][0].name:26s} {done} done, {blank} still blank, "
                  f"{len(statuses) - done - blank} failing")


if __name__ == "__main__":
    main()
