"""What no user's test should ask of the sources: how large each part is, how long a function, how
long a lesson; that a console can print every source.

    python .ci/size.py

Python counts in tokens, without comments, docstrings and layout, so that shorter names or fuller
lines gain nothing; pages (HTML, JavaScript, CSS) in words and signs, without recorded numbers.
"""

import ast
import io
import json
import re
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
AIR = 1.05  # a limit that is reached at once makes lines dense; up to here nobody is asked
LIMITS = {"concept": 19_200, "rooms": 31_300, "real": 5_300, "nanogpt": 24_500, "gpu": 10_400,
          "studio": 7_300, "exact": 9_000, "tests": 98_000, "graders": 22_300, "book": 3_700,
          "ci": 1_200, "pages": 28_300, "files": 142}
A_CHAPTER = {"concept": 3_000, "rooms": 4_500, "files": 4}  # what a seventh may add, an eighth, ..
LONGEST = 40  # lines of a function, without docstring and signature
ROOMS = "train_and_decode", "_room", "_pictures"

LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
          tokenize.ENDMARKER}
# From Python 3.12 on an f-string comes in parts, and counts as one token all the same.
STARTS, ENDS = ({getattr(tokenize, f"{kind}STRING_{end}", None) for kind in "FT"}
                for end in ("START", "END"))


def sources(*endings):
    """The files with these endings, without what tools have put there."""
    strange = ("venv", ".venv", "build", "_build", ".git", "node_modules")
    return [path for path in sorted(ROOT.rglob("*")) if path.suffix in endings
            and not set(strange) & set(path.relative_to(ROOT).parts)]


def docstrings(tree):
    """The nodes that are docstrings."""
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [node.body[0] for node in ast.walk(tree)
            if isinstance(node, owners) and ast.get_docstring(node, clean=False) is not None]


def code_tokens(text):
    """How many tokens a Python source has, the same on every Python."""
    docs = {line for doc in docstrings(ast.parse(text))
            for line in range(doc.lineno, doc.end_lineno + 1)}
    count = inside = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        inside -= token.type in ENDS
        skipped = token.type in LAYOUT or token.type == tokenize.STRING and token.start[0] in docs
        count += not skipped and not inside and token.type not in ENDS
        inside += token.type in STARTS
    return count


def page_words(text):
    """Words and signs of a page, without arrays of numbers: a recorded round is data."""
    return len(re.findall(r"\w+|[^\w\s]", re.sub(r"[\[{][-\d.,\s\[\]]{400,}[\]}]", "", text)))


def group(path):
    """Which part of the house a source belongs to."""
    folder, *inner = path.relative_to(ROOT).parts
    if path.suffix != ".py":
        return "pages"
    if folder[0] == "0" and path.stem.endswith("_grow"):  # a drafter once more, for a GPU
        return "gpu"
    if folder[0] == "0":  # real: published models; and entries of the arena
        room = path.stem in ROOMS or path.stem.endswith(("_room", "_pictures"))
        return "real" if len(inner) > 1 else "rooms" if room else "concept"
    if folder == "nanogpt":
        return {"pictures": "studio", "exact": "exact", "gpu": "gpu"}.get(inner[0], "nanogpt")
    if folder == "tests":
        return "graders" if path.stem.startswith(("grad", "blanks", "make_")) else "tests"
    return {".github": "book", ".ci": "ci"}[folder]


def too_large(used):
    """Sentences; and the table, which is printed."""
    more = max(len(list(ROOT.glob("0?_*"))) - 6, 0)
    for name, limit in LIMITS.items():
        limit += more * A_CHAPTER.get(name, 0)
        print(f"{name:8} {used[name]:8,} of {limit:8,}")
        if used[name] > AIR * limit:
            yield f"{name}: {used[name]:,}; the limit is {limit:,} and 5 % of air"


def long_functions(path, tree):
    """Sentences."""
    docs = docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            first = node.body[min(node.body[0] in docs, len(node.body) - 1)]
            lines = node.end_lineno - first.lineno + 1
            if lines > LONGEST:
                yield f"{path}: {node.name} has {lines} lines"


def wrong_minutes(path):
    """A sentence, if a lesson takes longer or less than it says: 150 words or 12 visible lines of
    code a minute, and 1.5 for each picture and table."""
    prose, code, shown, folded = "", [], 0, 0
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        lines = [line for line in source.splitlines() if line]
        if cell["cell_type"] == "markdown":
            text = re.sub(r"<details>.*?</details>", "", source, flags=re.S)
            shown += len(re.findall(r"^(?:!\[|\|[-: |]+$)", text, re.M))
            text = re.sub(r"\]\([^)]*\)|^\|.*", "", text, flags=re.M)
            prose += re.sub(r"\$\$?[^$]+\$\$?", " x ", text)  # a formula is a word
        elif cell["metadata"].get("jupyter", {}).get("source_hidden"):
            folded += len(lines)
        else:
            code += lines
        shown += sum("---" in "".join(output.get("text", ""))
                     or "image/png" in output.get("data", {}) for output in cell.get("outputs", []))
    minutes = len(prose.split()) / 150 + len(code) / 12 + 1.5 * shown
    said = re.search(r"Reading takes (?:about )?(\d+) minutes", prose)
    if not said or abs(int(said[1]) - minutes) > 2:
        yield f"{path}: {minutes:.1f} minutes, and it says {said[1] if said else 'none'}"
    imports = sum(line.startswith(("import ", "from ")) for line in code)
    if path.parent.name != "book" and (folded > 66 or imports > 6):
        yield f"{path}: {folded} folded lines and {imports} imports; 66 and 6 are the limits"


def main():
    used, wrong = dict.fromkeys(LIMITS, 0), []
    for path in sources(".py", ".html", ".js", ".css"):
        if path.name == "exercise.py":  # generated
            continue
        text, python = path.read_text(encoding="utf-8"), path.suffix == ".py"
        used[group(path)] += code_tokens(text) if python else page_words(text)
        used["files"] += python
        if python and path.parent.name != "tests":
            wrong += long_functions(path, ast.parse(text))
            wrong += [] if text.isascii() else [f"{path} is not ASCII; a console may know no more"]
    for lesson in sorted([*ROOT.glob("*/*.ipynb"), *ROOT.glob(".github/*/*.ipynb")]):
        wrong += wrong_minutes(lesson)
    sys.exit("\n".join([*wrong, *too_large(used)]) or 0)


if __name__ == "__main__":
    main()
