"""Your own decoder, judged: python tests/arena.py mine.py; a bug to find: --hunt 1

`mine.py` holds any of these; what is missing is the taught one. The names are those of a chapter's
Loop (nanogpt/chapter.py), and a function of 20 lines is a whole entry:

    rule(tree, target_probs, dice)         -> path (rows, from 0), next token: as chapter 02's walk
    drafter(m, budget, sampler, dice)      -> reset, observe, propose: see `speculate`; m.small is
                                           the 57K GPT, m.heads chapter 03's heads
    decode(target, drafter, prompt, sampler, dice, rule)   a loop: yields a Step for each forward,
                                           as `speculate`
    BUDGET = (2, 2, 1, 1)                  what the drafter gets: children for each level
    PROOF = (2,), (3,), (2, 1)             the budgets that are enumerated

Taught are: trees that are drawn without replacement, judged by multi-round rejection; for a drafter
of your own the walk, which is right for any tree.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = map(str, [ROOT, ROOT / "tests"])

import os
import subprocess
import time

import grade
from nanogpt.terminal import Parser, run

SECONDS = 30  # for one case, one text; START: until torch is loaded
START = 120
ASK = "enumeration", "lengths", "replay", "counts"
COLOUR, PLAIN = "\x1b[34;1m", "\x1b[0m"
LIMITS = """Chance is followed through dice.draw and dice.flip alone, on random networks of two
to four tokens, with the budgets, rounds and temperatures that the verdict names, at most 50,000
sequences of draws a case. BUDGET itself, eleven tokens and longer texts are only sampled: a slip
that changes less than one token in ten there is not seen. The real models' texts are only counted:
1,536 letters at temperature 1, limit five standard deviations. Whoever cuts p to its 12 likeliest
letters is seen there, whoever cuts it to 20 is not. At temperature 0, logits that are .2 apart
count as a tie. Nor is a decoder seen that becomes another one after it was judged. A drafter that
seeds its own generator is judged with these seeds.
Each step has 30 seconds, and on Linux 2 GB of memory. Foretold speed-ups count forwards only, not
the rule's own time or Python's; a drafter is priced by its passes of the 57K GPT, or by its time
here, in such passes and less these, if that is more. Refused: a file without any of these names, or
one that does not run. It runs with your rights, and can forge its verdict: this is no exam."""


class Judge(grade.Judge):
    """arena_file.py at work on a file."""

    def __init__(self, path):
        self.process = subprocess.Popen(
            [sys.executable, str(ROOT / "tests" / "arena_file.py"), str(path)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, encoding="ascii", errors="replace",
            start_new_session=True)
        self.listen()

    def events(self):
        """-> the messages, up to the last one."""
        doing, deadline = "loading torch", time.monotonic() + START
        while True:
            try:
                kind, *parts = self.message(deadline)
            except TimeoutError:
                yield "failed", f"no answer after {SECONDS} seconds; an endless loop?\n    {doing}"
                return
            except EOFError:
                status = self.process.wait()
                yield "failed", f"it ends Python (exit status {status})\n    {doing}"
                return
            if kind == "stage":
                deadline = time.monotonic() + SECONDS
            elif kind == "doing":
                doing = parts[0]
            else:
                yield kind, *parts
                if kind in ("end", "failed", "refused"):
                    return


def coloured(pieces, colours):
    """A text; accepted drafts are blue, or the target's own letters stand in brackets."""
    if colours:
        return "".join(f"{COLOUR}{text}{PLAIN}" if accepted else text for text, accepted in pieces)
    return "".join(text if accepted or i == 0 or text == "\n" else f"[{text}]"
                   for i, (text, accepted) in enumerate(pieces))


def show_text(pieces):
    colours = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    lines = coloured([(text, accepted) for text, accepted in pieces], colours).split("\n")
    marked = "accepted drafts are blue" if colours else "the target's own letters in brackets"
    print(f"\n{marked}:\n")
    for line in lines:
        print(line if colours else grade.clean(line))
    print()


def judge(path):
    """Print the verdict. Raises SystemExit unless the decoder is exact."""
    if not path.is_file():
        raise ValueError(f"'{path}' is no file")
    judge, echo, begun = Judge(path), grade.Echo(), time.monotonic()
    try:
        for kind, *parts in judge.events():
            if kind == "print":
                echo.add(parts[0])
                continue
            echo.end()
            if kind == "say":
                print(grade.clean(parts[0]), flush=True)
            elif kind == "text":
                show_text(parts[0])
            elif kind == "refused":
                raise ValueError(f"{path}: {grade.indented(parts[0])}")
            elif kind == "failed":
                print(f"{path} cannot be judged: {grade.indented(parts[0])}")
                raise SystemExit(1)
            else:
                print(f"\njudged in {time.monotonic() - begun:.0f} seconds")
                if not parts[0]:
                    print("Not exact, so it is not ranked.")
                    raise SystemExit(1)
    finally:
        judge.stop()


def read_flags(argv=None):
    """Raises ValueError for a bad flag."""
    parser = Parser(__doc__)
    parser.epilog = LIMITS
    parser.add_argument("file", nargs="?", type=Path, help="a decoder, or a part of one")
    parser.add_argument("--hunt", type=int, choices=(1, 2, 3), metavar="LEVEL",
                        help="find a planted bug. 1: enumeration sees it; 2: only lengths see it; "
                        "3: nobody sees it at T = 0")
    parser.add_argument("--seed", type=int, default=1, help="of the hunt: which bug")
    parser.add_argument("--ask", nargs="+", default=[], metavar="TEST", choices=ASK,
                        help=f"of the hunt: what to show, of {', '.join(ASK)}")
    parser.add_argument("--answer", type=int, help="of the hunt: your answer")
    args = parser.parse_args(argv)
    if (args.file is None) == (args.hunt is None):
        raise ValueError("a file, or --hunt with a level; --help says more")
    if not 0 <= args.seed < 2**32:
        raise ValueError(f"seed is {args.seed}; it must be in [0, {2**32})")
    return args


def main():
    args = read_flags()
    if args.file:
        judge(args.file.resolve())
    else:
        raise SystemExit(subprocess.call([sys.executable, ROOT / "tests" / "hunt.py",
                                          *sys.argv[1:]]))


if __name__ == "__main__":
    run(main)
