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
    for folder in sorted(path.name for path in ROOT.glob("0?_*")):
        found[f"{folder}/README.md"] = f"{folder}/index"
        found[f"{folder}/walkthrough.ipynb"] = f"{folder}/walkthrough"
        found[f"{folder}/RESULTS.md"] = f"{folder}/results"
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
    """Copy the pages and their pictures into the folder `source`, and nothing else into it."""
    wanted = {}
    for path, name in pages().items():
        wanted[source / (name + Path(path).suffix)] = ROOT / path
    for path in sorted(ROOT.glob("0?_*/pictures/*")):
        if path.suffix in PICTURES:
            wanted[source / path.relative_to(ROOT)] = path
    steps = {source / path.parent.parent.name / "step.md": step_page(path.parent.parent.name)
             for path in sorted(ROOT.glob("0?_*/pictures/step.html"))}
    for path in sorted(source.rglob("*")):
        if path.is_file() and path not in wanted and path not in steps:
            path.unlink()
    for to, path in wanted.items():
        if not to.exists() or to.read_bytes() != path.read_bytes():  # else Sphinx reads it anew
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, to)
    for to, text in steps.items():
        if not to.exists() or to.read_text(encoding="utf-8") != text:
            to.write_text(text, encoding="utf-8", newline="\n")
    (source / "pages.json").write_text(json.dumps(pages()), encoding="utf-8")


def main(argv=None):
    """Collect the pages, run Sphinx, say where the book is."""
    p = argparse.ArgumentParser(description="Build the book from the repository as it is.")
    p.add_argument("--out", type=Path, default=HERE / "_build", help="folder for html/ and caches")
    p.add_argument("--lenient", action="store_true", help="warnings do not fail the build")
    args = p.parse_args(argv)
    out, start = args.out.resolve(), time.perf_counter()
    source = out / "source"
    source.mkdir(parents=True, exist_ok=True)
    collect(source)
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", "-c", str(HERE),
               "-d", str(out / "doctrees"), str(source), str(out / "html")]
    # the notebooks' outputs name no widgets of the machine that builds
    done = subprocess.run(command + [] if args.lenient else command + ["--fail-on-warning"],
                          env=os.environ | {"PYTHONUTF8": "1"}, check=False)
    if done.returncode:
        return done.returncode
    print(f"{out / 'html' / 'index.html'}  ({time.perf_counter() - start:.0f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
