"""Build the book: the READMEs, the lessons, the results and the step pages as one web site.

    python .github/book/build.py             # -> .github/book/_build/html/index.html
    python -m http.server -d .github/book/_build/html

Every text stands once in the repository. A build copies what it finds into `_build/source` (never
committed), with the links as the book needs them; Sphinx makes the pages of it.
"""

import json
import os
import re
import shutil
import sys
from pathlib import Path
from posixpath import dirname, normpath, relpath

import live
from sphinx.cmd.build import main

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
OTHERS = ["nanogpt/does_it_pay.ipynb", "tests/WORKSHOP.md", ".github/book/glossary.md",
          ".github/book/practice.md", "data/README.md", ".github/CONTRIBUTING.md",
          ".github/CHANGELOG.md"]
# The order of "Next": lesson after lesson; what the chapters keep beside them comes behind.
LESSONS = "0[1-5]*/walkthrough\n0*/beyond*\n06*/walkthrough\nnanogpt/does_it_pay"
CONTENTS = "\n\n```{{toctree}}\n:hidden:\n:glob:\n:caption: {}\n\n{}\n```\n"
# A link, but no picture; its text may hold a picture. Addresses of the web have a colon.
LINK = re.compile(r"(?<!!)\[((?:!\[[^\]]*\]\([^)]*\)|[^\[\]])*)\]\(([^)#:\s]+)(#[^)\s]*)?\)")
# In place of a GIF stands the page on which one can step.
STEP = re.compile(r"^!\[([^\]]*)\]\((.*)pictures/step\.gif\)$", re.M)
FRAME = (r'<iframe class="step" src="\2pictures/step.html#embed" title="\1"></iframe>' '\n'
         r'<p class="step-link"><a href="\2pictures/step.html">With every number</a>, or '
         r'<a href="\2../live.html">live, with your own words</a></p>')
# What a reader of the book meets in another way than a reader of a clone.
START = re.compile(r"^\*\*\[Start reading.*", re.M)
BUTTONS = ('<p class="start"><a href="01_chain_specdec/walkthrough.html">Start reading</a>\n'
           '<a href="live.html">Watch it work on your words</a>\n'
           '<a href="02_tree_attention/pictures/step.html">Step through one round</a></p>')
GRADE = ("*In the notebook, a cell here grades your code. In the book: think, or write on paper, "
         "then open the solution. In a terminal: `python tests/grade.py {}`.*")

LOST = "---\norphan: true\n---\n# Not found\n\nThere is no such page. [The front page](index.md)\n"


def pages():
    """{file of the repository: file that Sphinx reads}, relative paths with slashes."""
    files = [ROOT / "README.md", *sorted(ROOT.glob("0?_*/*.md")),
             *sorted(ROOT.glob("0?_*/*.ipynb")), *(ROOT / path for path in OTHERS)]
    paths = [path.relative_to(ROOT).as_posix() for path in files if path.exists()]
    return {path: re.sub(r"^\.github/(book/)?", "", path).replace("README.md", "index.md")
            for path in paths}


def code_host():
    """Where the host shows the files, such as https://host/owner/name; None in another place."""
    if "GITHUB_REPOSITORY" in os.environ:
        return f"{os.environ['GITHUB_SERVER_URL']}/{os.environ['GITHUB_REPOSITORY']}"
    return None


def lead(text, path, known, host):
    """Links of a file of the repository -> to pages of the book, to the host's file, or no link."""
    def led(match):
        label, link, anchor = match[1], match[2], match[3] or ""
        target = normpath(f"{dirname(path)}/{link}".lstrip("/"))
        here = dirname(known[path]) or "."
        for file in (target, f"{target}/README.md"):
            if file in known:
                return f"[{label}]({relpath(known[file], here)}{anchor})"
        if target.endswith(".html"):  # a step page, copied as it is
            return f'<a href="{relpath(target, here)}">{label}</a>'
        if not (ROOT / target).exists():
            return match[0]  # Sphinx will warn
        return f"[{label}]({host}/blob/HEAD/{target}{anchor})" if host else label

    return LINK.sub(led, text)


def page(path, *where):
    """The text of a page as Sphinx shall read it."""
    text = (ROOT / path).read_text(encoding="utf-8")
    if not path.endswith(".ipynb"):
        return STEP.sub(FRAME, lead(text, path, *where))
    notebook = json.loads(text)
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if source.startswith("grade("):
            cell.update(cell_type="markdown", source=GRADE.format(path[:2]))
            del cell["outputs"], cell["execution_count"]
        elif cell["cell_type"] == "markdown":
            cell["source"] = STEP.sub(FRAME, lead(source, path, *where))
    return json.dumps(notebook)


def build(out):
    """Collect the pages in out/source, let Sphinx write out/html -> its exit status."""
    known, host, source = pages(), code_host(), out / "source"
    texts = {to: page(path, known, host) for path, to in known.items()}
    more = [known[path][:-3] for path in OTHERS if path in known and path.endswith(".md")]
    start, hits = START.subn(BUTTONS, texts["index.md"])
    if hits != 1:
        raise ValueError("README.md needs one line that begins with **[Start reading")
    texts["index.md"] = start + "".join(
        CONTENTS.format(*part) for part in (("Lessons", LESSONS),
                                            ("Chapters in short", "0*/index"),
                                            ("More", "\n".join(more))))
    texts["404.md"] = LOST
    for pictures in ROOT.glob("0?_*/pictures"):
        chapter = pictures.parent.name
        texts[f"{chapter}/index.md"] += CONTENTS.format("This chapter", "R*")
        for to in (source, out / "html"):  # Sphinx copies no step pages
            shutil.copytree(pictures, to / chapter / "pictures")
        step = out / "html" / chapter / "pictures" / "step.html"
        step.write_text(step.read_text(encoding="utf-8").replace(
            "../README.md", "../walkthrough.html"), encoding="utf-8")
    live.write(out / "html")
    for path, text in texts.items():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        (source / path).write_text(text, encoding="utf-8")
    return main(["-q", "-E", "-W", "--keep-going", "-c", str(HERE), "-d", str(out / "doctrees"),
                 str(source), str(out / "html")])


if __name__ == "__main__":
    shutil.rmtree(HERE / "_build", ignore_errors=True)
    sys.exit(build(HERE / "_build"))
