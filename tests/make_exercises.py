"""Write the chapters' exercise.py: python tests/make_exercises.py [01 ...]

Each file holds the chapter's blanks: signature and docstring of the taught function, an empty
body, and just the imports that the taught bodies use. A file in which somebody has written
anything, a note or an import, is left alone: delete it to begin anew.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = map(str, [ROOT, ROOT / "tests", *ROOT.glob("0?_*")])

import ast
import hashlib
import importlib
import inspect
import textwrap
import types

from nanogpt import terminal
from grading import blanks_of, chapters, reference_source

HEADER = '''"""Chapter {number}: {count} blanks to fill. Grade them with

    python tests/grade.py {number}

ask for a hint with `--hint NAME`, for a stronger one with `--hint NAME --more`, and, when some are
done, see them decode beside the taught ones with `--run`. Replace each `raise NotImplementedError`
by your own lines; a blank that you leave empty disturbs no other.
{given}"""

'''
GIVEN = {  # what the arguments of this name can do, told once a file
    "dice": "dice.draw(probs) draws a token, an int, from probs (V,), which need not add up to 1; "
            "dice.flip(a) is True with probability a.",
    "sampler": "sampler(logits) makes of logits (.., V) the distribution after temperature.",
    "tree": "a tree has N rows, parents before children; row 0, the root, is a token of the text. "
            "tree.tokens, .parents (-1 for the root) and .depths are (N,); .mask (N, N) is True "
            "where the column is the row itself or an ancestor of it; .children[row] is the list "
            "of its children's rows; .draft_probs (N, V) may be None.",
    "law": "in d a - S r, the bias: d is how much more often a token is sent than the judge "
           "believes, among as many drafts; a, how often it is accepted; S, the sum of all d a; r, "
           "what is drawn from after a rejection.",
}


def imports_for(blanks):
    """The import lines that the taught bodies need, neighbours among the blanks left out."""
    needed = {}
    for blank in blanks:
        node, _ = reference_source(blank)
        module = importlib.import_module(blank.target.split(":")[0])
        for name in sorted({n.id for n in ast.walk(node) if isinstance(n, ast.Name)}):
            if hasattr(module, name):
                needed.setdefault(name, (getattr(module, name), module.__name__))
    lines, froms, own = ["import torch"], {}, {blank.name for blank in blanks}
    for name, (value, here) in needed.items():
        if name in own:
            continue
        if isinstance(value, types.ModuleType):
            module = value.__name__
            lines.append(f"import {module}" + (f" as {name}" if name != module else ""))
        else:
            # A constant does not know where it is defined; the module that uses it has it.
            froms.setdefault(getattr(value, "__module__", here), []).append(name)
    lines = sorted(set(lines))
    lines += [f"from {m} import {', '.join(sorted(n))}" for m, n in sorted(froms.items())]
    return "\n".join(lines)


def at_hand(blanks):
    """Of the taught functions that the bodies call: how they are called, and what they do."""
    own, space = {blank.name for blank in blanks}, {}
    exec(imports_for(blanks), space)
    for name, value in space.items():
        if inspect.isroutine(value) and name not in own and name[0] != "_":
            told = inspect.getdoc(value).split("Example:")[0]
            yield f"{name}{inspect.signature(value)}: {' '.join(told.split())}"


def stub(blank):
    """One blank as source: the question, the signature, the docstring, no body."""
    node, source = reference_source(blank)
    doc = node.body[0]
    first = min([node, *node.decorator_list], key=lambda part: part.lineno)
    head = textwrap.dedent("\n".join(source.splitlines()[first.lineno - 1:doc.end_lineno]))
    question = textwrap.fill(" ".join(blank.question.split()), 96, initial_indent="# ",
                             subsequent_indent="# ")
    example = textwrap.fill(f"Example: {blank.example}", 96, initial_indent="# ",
                            subsequent_indent="#   ", break_on_hyphens=False)
    lines = f"{blank.lines} line" + "s" * (blank.lines > 1)
    return (f"{question}\n# About {lines}, {blank.minutes} minutes.\n{example}\n\n\n"
            f'{head}\n    raise NotImplementedError("not yet: {blank.name}")\n')


MARK = "# make_exercises.py knows by this line whether you have written here: "


def exercise_source(number):
    """The whole exercise.py of a chapter. Its last line says what the others were."""
    blanks = blanks_of(number)
    body = "\n\n".join(stub(blank) for blank in blanks)
    names = {name for blank in blanks for name in inspect.signature(blank.taught()).parameters}
    texts = [text for name, text in GIVEN.items() if name in names] + [*at_hand(blanks)]
    given = "".join(textwrap.fill(text, 96, initial_indent="* ", subsequent_indent="  ") + "\n"
                    for text in texts)
    header = HEADER.format(number=number, count=len(blanks), given=given and f"\n{given}")
    source = f"{header}{imports_for(blanks)}\n\n{body}"
    return f"{source}\n\n{MARK}{checksum(source)}\n"


def checksum(source):
    return hashlib.sha256(source.strip().encode()).hexdigest()[:12]


def is_untouched(path):
    """Is a file what an earlier or this version of this script made, to the letter?

    An editor or git may have changed the ends of the lines.
    """
    source, mark, found = path.read_text(encoding="utf-8", errors="replace").rpartition(MARK)
    return bool(mark) and found.strip() == checksum(source)


def main(argv=None):
    parser = terminal.Parser(__doc__)
    parser.add_argument("chapter", nargs="*", help="01, 02, ...; default: all")
    args, known = parser.parse_args(argv), chapters()
    for number in args.chapter:
        if number not in known:
            raise ValueError(f"chapter is '{number}'; it must be one of {', '.join(known)}")
    for number in args.chapter or known:
        path = known[number] / "exercise.py"
        shown = f"{path.parent.name}/exercise.py"
        if path.exists() and not is_untouched(path):
            print(f"{shown} is not the empty one; left as it is. Delete it to begin anew")
            continue
        path.write_text(exercise_source(number), encoding="utf-8", newline="\n")
        print(f"wrote {shown}")


if __name__ == "__main__":
    terminal.run(main)
