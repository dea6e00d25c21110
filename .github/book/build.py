"""Build the book: the READMEs, the lessons, the results and the step pages as one web site.

    python .github/book/build.py             # -> .github/book/_build/html/index.html
    python -m http.server -d .github/book/_build/html

Every text stands once in the repository. A build copies what it finds into `_build/source` (never
committed), with the links as the book needs them; Sphinx makes the pages of it.
"""

import json
import re
import shutil
import sys
from pathlib import Path
from posixpath import dirname, normpath, relpath

import live
from conf import code_host, html_baseurl, metatags
from sphinx.cmd.build import main

from nanogpt.pictures.step import page as page_of_round

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
OTHERS = ["nanogpt/into_an_engine.ipynb", "nanogpt/does_it_pay.ipynb",
          ".github/book/who_is_right.ipynb", "tests/WORKSHOP.md", ".github/book/glossary.md",
          ".github/book/practice.md", "data/README.md", ".github/CONTRIBUTING.md",
          ".github/CHANGELOG.md"]
CLOSING = "nanogpt/into_an_engine\nnanogpt/does_it_pay\nwho_is_right"  # behind the chapters'
CONTENTS = "\n\n```{{toctree}}\n:hidden:\n:glob:\n:caption: {}\n\n{}\n```\n"
# A link, but no picture; its text may hold a picture. Addresses of the web have a colon.
LINK = re.compile(r"(?<!!)\[((?:!\[[^\]]*\]\([^)]*\)|[^\[\]])*)\]\(([^)#:\s]+)(#[^)\s]*)?\)")
# In place of a GIF stands the page on which one can step, and on paper the GIF.
STEP = re.compile(r"^!\[([^\]]*)\]\((.*)pictures/step\.gif\)$", re.M)
FRAME = (r'<iframe class="step" src="\2pictures/step.html#embed" title="\1"></iframe>'
         r'<noscript><img src="\2pictures/step.gif" alt="\1"></noscript>' '\n'
         r'<p class="step-link"><a href="\2pictures/step.html">With every number</a>, or '
         r'<a href="\2../live.html">live, with your own words</a></p>')
# Behind a lesson's picture stands an experiment, or in its place: then the picture is for paper and
# for a browser without scripts. {lesson: (what the last cell with the picture calls, page, name)}
INSTEAD = ("01", "02")  # of the chapters whose words fit the experiment as well
EXPERIMENTS = {
    "01_chain_specdec/walkthrough.ipynb": (
        "draw_repair(", "experiments.html#embed=letter", "Move p and q, and draw 2,000 times"),
    "02_tree_attention/walkthrough.ipynb": (
        "draw_mask_beside_causal(", "live.html#embed=pass&rule=walk&shape=2-2&t=1&seed=2&"
        "p=If+they+do+see+thee%2C+they+w", "Touch a node: what does its row read?"),
    "05_ddtree/walkthrough.ipynb": (
        "draw_pop(", "experiments.html#embed=heap", "Pop the heap by hand"),
    "nanogpt/does_it_pay.ipynb": (
        "best(yours(", "experiments.html#embed=numbers", "Your three numbers on the map")}
TRY = ('<iframe class="step try" data-src="{}" title="{}"></iframe>\n'
       '<p class="step-link"><a href="{}">More to try: the live page</a></p>')
# What a reader of the book meets in another way than a reader of a clone.
START = re.compile(r"^\*\*Watch it first:.*?\)\.\*\* (.*?)(?=\n\n)", re.M | re.S)
BUTTONS = ('<p class="start"><a href="01_chain_specdec/walkthrough.html">Start reading</a>\n'
           '<a href="live.html">Watch it work on your words</a>\n'
           '<a href="02_tree_attention/pictures/step.html">Step through one round</a>{}</p>\n\n\\1')
GRADE = ("*In the notebook, a cell here grades your code. In the book: think, or write on paper, "
         "then open the solution. In a terminal: `python tests/grade.py {}`.*")
NAMES = {"RESULTS.md": "results", "walkthrough.ipynb": "lesson", "step.html": "step page",
         "README.md": "chapter page"}
STEP_PAGE, LIVE_PAGE = "nanogpt/pictures/step.html", "nanogpt/pictures/live.html"
LIVE = ("Live: try it on your words", "Two real models in your browser. A small one guesses the "
        "next letters, a large one checks them in one pass. The text stays the large model's own.")
ICON = '<link rel="icon" href="{}/_static/favicon.svg">\n'
LOST = "---\norphan: true\n---\n# Not found\n\nThere is no such page. [The front page](index.md)\n"


def pages():
    """{file of the repository: file that Sphinx reads}, relative paths with slashes."""
    files = [ROOT / "README.md", *sorted(ROOT.glob("0?_*/*.md")),
             *sorted(ROOT.glob("0?_*/real/*.md")), *sorted(ROOT.glob("0?_*/*.ipynb")),
             *(ROOT / path for path in OTHERS)]
    paths = [path.relative_to(ROOT).as_posix() for path in files if path.exists()]
    return {path: re.sub(r"^\.github/(book/)?", "", path).replace("README.md", "index.md")
            for path in paths}


def lessons():
    """The order of "Next": chapter after chapter, in each of them its walkthrough first."""
    found = sorted(ROOT.glob("0?_*/*.ipynb"),
                   key=lambda path: (path.parent.name, path.stem != "walkthrough", path.stem))
    return "\n".join([*(f"{path.parent.name}/{path.stem}" for path in found), CLOSING])


def lead(text, path, known, host):
    """Links of a file of the repository -> to pages of the book, to the host's file, or no link."""
    def led(match):
        label, link, anchor = match[1], match[2], match[3] or ""
        label = NAMES.get(label.strip("`"), label)
        target = normpath(f"{dirname(path)}/{link}".lstrip("/"))
        here = dirname(known[path]) or "."
        for file in (target, f"{target}/README.md"):
            if file in known:
                return f"[{label}]({relpath(known[file], here)}{anchor})"
        if target == STEP_PAGE:  # in the book each chapter has its own, with the round in it
            round_page = f"{anchor[1:]}/pictures/step.html"
            return f'<a href="{relpath(round_page, here)}">{label}</a>'
        if target == LIVE_PAGE:
            return f'<a href="{relpath("live.html", here)}">{label}</a>'
        if not (ROOT / target).exists():
            return match[0]  # Sphinx will warn
        return f"[{label}]({host}/blob/HEAD/{target}{anchor})" if host else label

    return LINK.sub(led, text)


def seen(source):
    """What a cell's picture shows, in the words of its title, or of the function that draws it."""
    for drawn in re.findall(r"\b(draw_\w+)\(", source):
        for path in sorted(ROOT.glob("[0n]*/**/*.py")):
            found = re.search(rf'def {drawn}\([^)]*\):\n    """([^\n]*?)(?: ->.*|\.)?\n',
                              path.read_text(encoding="utf-8"))
            if found:
                return found[1].replace('"', "")
    return ""


def page(path, *where):
    """The text of a page as Sphinx shall read it."""
    text = (ROOT / path).read_text(encoding="utf-8")
    if not path.endswith(".ipynb"):
        return STEP.sub(FRAME, lead(text, path, *where))
    notebook = json.loads(text)
    cells, (mark, address, name) = [], EXPERIMENTS.get(path, ("no picture", "", ""))
    calls = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    replaced = next((source for source in reversed(calls) if mark in source), None)
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        cells.append(cell)
        if source.startswith("grade("):
            cell.update(cell_type="markdown", source=GRADE.format(path[:2]))
            del cell["outputs"], cell["execution_count"]
        elif cell["cell_type"] == "markdown":
            source = source.replace("`exercise.py` in this folder", "the chapter's `exercise.py`")
            cell["source"] = STEP.sub(FRAME, lead(source, path, *where))
        else:
            tags = cell["metadata"].setdefault("tags", [])
            if all(line.startswith("show(") for line in source.splitlines()):
                tags.append("remove-input")  # the answer alone; what shows it is no news
            if "image/png" in json.dumps(cell["outputs"]) and seen(source):
                cell["metadata"]["mystnb"] = {"image": {"alt": seen(source)}}
            if source == replaced:
                up = relpath(".", dirname(path))
                tags += ["experiment"] * path.startswith(INSTEAD)
                cells.append({"cell_type": "markdown", "id": "try", "metadata": {},
                              "source": TRY.format(f"{up}/{address}", name, f"{up}/live.html")})
    return json.dumps({**notebook, "cells": cells})


def write_step_page(recorded, html):
    """A chapter's round as a page that needs no other file."""
    data = recorded.read_text(encoding="utf-8")
    round_ = json.loads(data.partition("(")[2].rpartition(")")[0])
    title = f"{round_['chapter']} {round_['title']}, one round step by step"
    head = metatags(title, f"A real round of speculative decoding: {round_['subtitle']}.",
                    f"{html.parts[-3]}/pictures/step.html") + ICON.format("../..")
    html.write_text(page_of_round(data, title, head, "../walkthrough.html"),
                    encoding="utf-8", newline="\n")


def write_live_pages(folder):
    """The page with both models, and the same without them, for the experiments in lessons."""
    links = {"home": "index.html", "lesson": "01_chain_specdec/walkthrough.html"}
    for name, made in (("live", live.file), ("experiments", live.page)):
        text = made(**links).replace("</head>", f"{metatags(*LIVE, 'live.html')}</head>", 1)
        text = text.replace('<link rel="icon" href="data:,">\n', ICON.format("."))
        (folder / f"{name}.html").write_text(text, encoding="utf-8", newline="\n")


def build(out):
    """Collect the pages in out/source, let Sphinx write out/html -> its exit status."""
    known, host, source = pages(), code_host(), out / "source"
    texts = {to: page(path, known, host) for path, to in known.items()}
    more = [known[path][:-3] for path in OTHERS if path in known and path.endswith(".md")]
    start, hits = START.subn(BUTTONS.format(f'\n<a href="{host}">The code</a>' if host else ""),
                             texts["index.md"])
    if hits != 1:
        raise ValueError("README.md needs a paragraph that begins with **Watch it first:")
    texts["index.md"] = start + "".join(
        CONTENTS.format(*part) for part in (("Try it", "live"), ("Lessons", lessons()),
                                            ("Chapters in short", "0*/index"),
                                            ("More", "\n".join(more))))
    texts["live.md"] = "# {}\n\n{}\n".format(*LIVE)  # for the sidebar and the search
    texts["404.md"] = LOST
    for pictures in ROOT.glob("0?_*/pictures"):
        chapter = pictures.parent.name
        texts[f"{chapter}/index.md"] += CONTENTS.format(
            "This chapter", "R*" + "\nreal/*" * (pictures.parent / "real").is_dir())
        for to in (source, out / "html"):  # Sphinx copies no step pages
            shutil.copytree(pictures, to / chapter / "pictures")
        write_step_page(pictures / "step.jsonp", out / "html" / chapter / "pictures" / "step.html")
    (source / "nanogpt/pictures").mkdir(parents=True)
    for picture in ROOT.glob("nanogpt/pictures/*.png"):
        shutil.copy(picture, source / "nanogpt/pictures")
    for path, text in texts.items():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        (source / path).write_text(text, encoding="utf-8")
    status = main(["-q", "-E", "-W", "--keep-going", "-c", str(HERE), "-d", str(out / "doctrees"),
                   str(source), str(out / "html")])
    write_live_pages(out / "html")
    live.card().save(out / "html" / "card.png")
    if html_baseurl:
        found = sorted((out / "html").rglob("*.html"))
        (out / "html" / "sitemap.txt").write_text("".join(
            f"{html_baseurl}{html.relative_to(out / 'html').as_posix()}\n" for html in found),
            encoding="utf-8")
    return status


if __name__ == "__main__":
    shutil.rmtree(HERE / "_build", ignore_errors=True)
    sys.exit(build(HERE / "_build"))
