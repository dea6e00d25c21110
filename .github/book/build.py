"""Build the book: the READMEs, the lessons, the results and the step pages as one web site.

    python .github/book/build.py             # -> .github/book/_build/html/index.html
    python -m http.server -d .github/book/_build/html

Every text stands once in the repository. A build copies what it finds into `_build/source` (never
committed), where Sphinx reads it; conf.py adds the table of contents and leads the links.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PICTURES = {".png", ".gif", ".svg", ".html"}


def pages():
    """{file of the repository: its name in the book without suffix}, both relative and posix."""
    found = {"README.md": "index"}
    for path in sorted([*ROOT.glob("0?_*/*.md"), *ROOT.glob("0?_*/*.ipynb")]):
        name = "index" if path.name == "README.md" else path.stem.lower()
        found[path.relative_to(ROOT).as_posix()] = f"{path.parent.name}/{name}"
    found |= {
        "tests/WORKSHOP.md": "tests/workshop",
        "data/README.md": "data/index",
        ".github/book/glossary.md": "glossary",
        ".github/CONTRIBUTING.md": "contributing",
        ".github/CHANGELOG.md": "changelog",
    }
    return {source: name for source, name in found.items() if (ROOT / source).exists()}


def step_page(folder):
    """The book's page around a chapter's step page -> Markdown. It holds no text of its own."""
    return (f"# Step by step: chapter {folder[:2]}\n\n"
            f'<iframe class="step whole" src="pictures/step.html" '
            f'title="One real verification step of chapter {folder[:2]}"></iframe>\n\n'
            '<p class="step-link"><a href="pictures/step.html">The page alone</a>. Arrow keys or '
            "the space bar: frame by frame. p: play. t: light or dark.</p>\n")


def collect(source):
    """Copy the pages and their pictures into the empty folder `source`."""
    for path, name in pages().items():
        copy(ROOT / path, source / (name + Path(path).suffix))
    for path in sorted(ROOT.glob("0?_*/pictures/*")):
        if path.suffix in PICTURES:
            copy(path, source / path.relative_to(ROOT))
        if path.name == "step.html":
            folder = path.parent.parent.name
            (source / folder / "step.md").write_text(step_page(folder), encoding="utf-8")
    (source / "pages.json").write_text(json.dumps(pages()), encoding="utf-8")


def copy(path, to):
    """A file into a folder that need not exist yet."""
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, to)


def main(argv=None):
    """Collect the pages, run Sphinx, say where the book is."""
    p = argparse.ArgumentParser(description="Build the book from the repository as it is.")
    p.add_argument("--out", type=Path, default=HERE / "_build", help="folder for html/ and source/")
    p.add_argument("--lenient", action="store_true", help="warnings do not fail the build")
    args = p.parse_args(argv)
    start, source, html = time.perf_counter(), args.out / "source", args.out / "html"
    if (source / "pages.json").exists():  # what an earlier build left, and nobody else's
        shutil.rmtree(source)
        shutil.rmtree(html, ignore_errors=True)
    collect(source)
    strict = [] if args.lenient else ["--fail-on-warning", "--keep-going"]
    done = subprocess.run([sys.executable, "-m", "sphinx", "-q", "-E", "-b", "html", *strict,
                           "-c", str(HERE), "-d", str(args.out / "doctrees"), str(source),
                           str(html)], env=os.environ | {"PYTHONUTF8": "1"}, check=False)
    if done.returncode == 0:
        print(f"{html / 'index.html'}  ({time.perf_counter() - start:.0f} s)")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
