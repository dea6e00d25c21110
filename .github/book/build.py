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
import subprocess
import sys
from pathlib import Path
from posixpath import dirname, normpath, relpath

from sphinx.cmd.build import main

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
OTHERS = ["nanogpt/does_it_pay.ipynb", "tests/WORKSHOP.md", ".github/book/glossary.md",
          ".github/book/practice.md", "data/README.md", ".github/CONTRIBUTING.md",
          ".github/CHANGELOG.md"]
CONTENTS = "\n\n```{{toctree}}\n:hidden:\n:glob:\n:caption: {}\n\n{}\n```\n"
ROOMS = "Lesson <walkthrough>\nStep by step <step>\n[bR]*"
# A link, but no picture; its text may hold a picture. Addresses of the web have a colon.
LINK = re.compile(r"(?<!!)\[((?:!\[[^\]]*\]\([^)]*\)|[^\[\]])*)\]\(([^)#:\s]+)(#[^)\s]*)?\)")
STEP = re.compile(r"^!\[([^\]]*)\]\(pictures/step\.gif\)$", re.M)
FRAME = ('<iframe class="step{}" src="pictures/step.html{}" title="{}" loading="lazy"></iframe>\n'
         '<p class="step-link"><a href="pictures/step.html">As a page of its own</a></p>\n')


def pages():
    """{file of the repository: file that Sphinx reads}, relative paths with slashes."""
    files = [ROOT / "README.md", *sorted(ROOT.glob("0?_*/*.md")),
             *sorted(ROOT.glob("0?_*/*.ipynb")), *(ROOT / path for path in OTHERS)]
    paths = [path.relative_to(ROOT).as_posix() for path in files if path.exists()]
    return {path: re.sub(r"^\.github/(book/)?", "", path).replace("README.md", "index.md")
            for path in paths}


def code_host():
    """Where the files of this clone can be read, such as https://host/owner/name, or None."""
    if "GITHUB_REPOSITORY" in os.environ:
        return f"{os.environ['GITHUB_SERVER_URL']}/{os.environ['GITHUB_REPOSITORY']}"
    remote = subprocess.run(["git", "--git-dir", ROOT / ".git", "remote", "get-url", "origin"],
                            capture_output=True, text=True, check=False).stdout
    found = re.match(r"(?:https://|ssh://)?(?:[^@/\s]+@)?([\w.-]+\.\w+)[:/]([\w./~-]+?)(\.git)?$",
                     remote)
    return f"https://{found[1]}/{found[2]}" if found else None


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
        # in place of a chapter's GIF, the page on which one can step
        return STEP.sub(FRAME.format("", "#embed", r"\1"), lead(text, path, *where))
    notebook = json.loads(text)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = lead("".join(cell["source"]), path, *where)
    return json.dumps(notebook)


def build(out):
    """Collect the pages in out/source, let Sphinx write out/html -> its exit status."""
    known, host, source = pages(), code_host(), out / "source"
    texts = {to: page(path, known, host) for path, to in known.items()}
    more = [known[path].rpartition(".")[0] for path in OTHERS if path in known]
    texts["index.md"] += CONTENTS.format("Chapters", f"0*/index\n{more[0]}") + CONTENTS.format(
        "More", "\n".join(more[1:]))
    for pictures in ROOT.glob("0?_*/pictures"):
        chapter = pictures.parent.name
        texts[f"{chapter}/index.md"] += CONTENTS.format("This chapter", ROOMS)
        texts[f"{chapter}/step.md"] = "# Step by step\n\n" + FRAME.format(" whole", "", "")
        for to in (source, out / "html"):  # Sphinx copies no step pages
            shutil.copytree(pictures, to / chapter / "pictures")
    for path, text in texts.items():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        (source / path).write_text(text, encoding="utf-8")
    return main(["-q", "-E", "-W", "--keep-going", "-c", str(HERE), "-d", str(out / "doctrees"),
                 str(source), str(out / "html")])


if __name__ == "__main__":
    shutil.rmtree(HERE / "_build", ignore_errors=True)
    sys.exit(build(HERE / "_build"))
