"""Decode with the functions of an exercise file, for grade.py --run:

    python tests/grade_run.py 01 PATH BLANK ...

The chapter's real loops on the trained models, with these functions in the place of the taught
ones. A loop is taken if it calls one of them that no loop before it has called.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = map(str, [ROOT, ROOT / "tests", *ROOT.glob("0?_*")])

import inspect

from nanogpt import cli
from grading import ExerciseFile, blanks_of, in_loop, own_line, places, standing, told
from nanogpt.bench import TURN, compare, plain, summarize
from nanogpt.chapter import load
from nanogpt.data import held_out_prompts, load_dataset
from nanogpt.decoding import collect
from nanogpt.device import device_name, pick_device
from nanogpt.exact import proofs
from nanogpt.run import a_cast
from nanogpt.sampling import Sampler

LETTERS, TOKENS, PROMPTS, TEMPERATURE = 240, 64, 4, 0.8
GUESSED, WRITTEN, END = "\033[44;97m", "\033[43;30m", "\033[0m"  # on blue, on orange


def covering(number, functions):
    """[(loop, the names of those of the functions that it is the first to call)] of a chapter.

    functions: {name: the taught function}.
    """
    loops, left, found = list(load(number).loops), set(functions), []
    while loops and left:
        called = [{name for name in left
                   if proofs.stands_in(inspect.unwrap(functions[name]), loop)} for loop in loops]
        # Of equal ones the loop whose rule, a function, calls them itself: that is the lesson's.
        most = max(range(len(loops)), key=lambda i: (len(called[i]), bool(called[i] & set(
            getattr(getattr(loops[i], "rule", 0), "__code__", covering.__code__).co_names))))
        if not called[most]:
            break
        found.append((loops.pop(most), called[most]))
        left -= called[most]
    return found


def starting(loop, m, budget, where):
    """start(prompt, seed) -> Steps, in each of which the places hold what they should.

    where: [(owner, name, function)], see places.
    """
    start = loop.start(m, budget, Sampler(TEMPERATURE))

    def steps(prompt, seed):
        with standing(where):  # what drafts is made here
            running = start(prompt, seed)
        while True:
            with standing(where):
                step = next(running)
            yield step

    return steps


def colored(text, decode, terminal):
    """A Generation, each letter in the colour of its author; where there are no colours, the
    target's own tokens stand in brackets."""
    def by(color, tokens):
        letters = decode(tokens)
        if not terminal:
            return f"[{letters}]" if color == WRITTEN else letters
        # The colour ends with the line, else it would run on to the right edge.
        return "\n".join(f"{color}{line}{END}" for line in letters.split("\n"))

    return by(WRITTEN, text.tokens[:1]) + "".join(
        (by(GUESSED, step.tokens[:-1]) if step.tokens[1:] else "") + by(WRITTEN, step.tokens[-1:])
        for step in text.steps)


def show(loop, names, mine, m, dataset):
    """The text that a loop writes with these functions, and its pace beside the taught ones'.

    mine: {name: (taught, own)}; names: which of them the loop is the first to call.
    """
    budget, decode = loop.budgets[-1], dataset.tokenizer.decode
    # Not in one launch on a GPU: that would be another program, with nobody's functions in it.
    loop = loop.but(form="eager")
    theirs, ours = ([(owner, held, pair[which]) for pair in mine.values()
                     for owner, held in places(pair[0])] for which in (0, 1))
    starts = {"plain": plain(m.target, Sampler(TEMPERATURE)),
              "the taught functions": starting(loop, m, budget, theirs),
              "with yours": starting(in_loop(loop, mine.values()), m, budget, ours)}
    print(f"\n{loop.title(budget)}, with your {', '.join(sorted(names))}; T = {TEMPERATURE:g}\n")
    text = collect(starts["with yours"](dataset.tokenizer.encode("ROMEO:\n"), 1), LETTERS)
    print(colored(text, decode, sys.stdout.isatty()))
    share = sum(text.accepted) / len(text.tokens)
    print(f"\n{share:.0%} of the tokens are the drafter's "
          f"({'blue' if sys.stdout.isatty() else 'not in brackets'}).\n")
    found = compare(starts, held_out_prompts(dataset, PROMPTS), TOKENS, TURN)
    lines = {name: summarize(texts) for name, texts in found.items()}
    cli.print_table(["", "tokens a round", "tokens a second"], [
        [name, f"{line['tau']:.2f}", f"{line['tokens_per_second']:.0f}"]
        for name, line in lines.items()])


def use(number, path, name, right):
    """Put a file's answer to a blank, or, if it is not right, the taught one, wherever the chapters
    and a notebook hold the other: a lesson goes on with it."""
    blanks = blanks_of(number)
    blank = next((blank for blank in blanks if blank.name == name), None)
    if blank is None:
        return
    now = blank.taught()
    new = ExerciseFile(path, blanks).answers([name])[name] if right else getattr(now, "taught", now)
    if right:
        print(f"From here on this lesson uses your {name}.")
    for owner, held in places(now):
        setattr(owner, held, new)
    loops = load(number).loops
    loops[:] = [in_loop(loop, [(now, new)]) for loop in loops]


def main(number, path, *names):
    file = ExerciseFile(path, blanks_of(number))
    own = file.answers(names)
    mine = {blank.name: (blank.taught(), own[blank.name]) for blank in blanks_of(number)
            if blank.name in names}
    chosen = covering(number, {name: taught for name, (taught, _) in mine.items()})
    unused = sorted(set(names).difference(*(called for _, called in chosen)))
    if unused:
        print(f"No loop of the chapter calls {', '.join(unused)}.")
    dataset, device = load_dataset(), pick_device()
    print(f"On {device_name(device)}. Loops: {len(chosen)}. Each writes a text of {LETTERS} "
          f"letters and, for its table, {3 * PROMPTS} texts of {TOKENS}. That takes a minute or "
          "two for each, and longer where the machine is busy.", flush=True)
    m = a_cast(dataset, device)
    for loop, called in chosen:
        try:
            show(loop, called, mine, m, dataset)
        except Exception as error:
            if not (line := own_line(error, path)):
                raise
            print(f"\nRight on the toy models, but here it breaks: {told(error)}{line}")
            raise SystemExit(1) from None


if __name__ == "__main__":
    cli.run(lambda: main(*sys.argv[1:]))
