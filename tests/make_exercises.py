"""Write the chapters' exercise.py: python tests/make_exercises.py [01 ...]

Each file holds the chapter's blanks: signature and docstring of the taught function, an empty
body, and just the imports that the taught bodies use. A file in which somebody has worked is left
alone: delete it to begin anew.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = map(str, [ROOT, ROOT / "tests", *ROOT.glob("0?_*")])

import ast
import importlib
import textwrap
import types

from grading import chapters, is_untouched, reference_source
from nanogpt.cli import Parser, run

HEADER = '''"""Chapter {number}: {count} blanks to fill. Grade them with

    python tests/grade.py {number}

and ask for a hint with `python tests/grade.py {number} --hint NAME`. Replace each
`raise NotImplementedError` by your own lines; a blank that you leave empty disturbs no other.
"""

'''


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


def stub(blank):
    """One blank as source: the question, the signature, the docstring, no body."""
    node, source = reference_source(blank)
    doc = node.body[0]
    head = textwrap.dedent("\n".join(
        source.splitlines()[node.lineno - 1:doc.end_lineno]
    ))
    question = textwrap.fill(" ".join(blank.question.split()), 96, initial_indent="# ",
                             subsequent_indent="# ")
    example = textwrap.fill(f"Example: {blank.example}", 96, initial_indent="# ",
                            subsequent_indent="#   ", break_on_hyphens=False)
    lines = f"{blank.lines} line" + "s" * (blank.lines > 1)
    return (f"{question}\n# About {lines}, {blank.minutes} minutes.\n{example}\n\n\n"
            f'{head}\n    raise NotImplementedError("not yet: {blank.name}")\n')


def exercise_source(number, blanks):
    """The whole exercise.py of a chapter."""
    body = "\n\n".join(stub(blank) for blank in blanks)
    imports = imports_for(blanks)
    return HEADER.format(number=number, count=len(blanks)) + (f"{imports}\n\n" if imports else "") \
        + body


def main(argv=None):
    parser = Parser(__doc__.splitlines()[0])
    parser.add_argument("chapter", nargs="*", help="01, 02, ...; default: all")
    args, known = parser.parse_args(argv), chapters()
    for number in args.chapter:
        if number not in known:
            raise ValueError(f"chapter is '{number}'; it must be one of {', '.join(known)}")
    for number in args.chapter or known:
        folder, blanks = known[number]
        path, source = folder / "exercise.py", exercise_source(number, blanks)
        if not path.exists() or is_untouched(path.read_text(encoding="utf-8")):
            path.write_text(source, encoding="utf-8", newline="\n")
            print(f"wrote {folder.name}/exercise.py")
        else:
            print(f"{folder.name}/exercise.py is not the empty one; left as it is. "
                  "Delete it to begin anew")


if __name__ == "__main__":
    run(main)
