"""The book on the web: it holds every page, its links lead somewhere, and its words can be found.

The tests that build it need the `book` extra and are skipped without it.
"""

import importlib.util
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).resolve().parent.parent
GITHUB = ROOT / ".github"
CHAPTERS = sorted(path.name for path in ROOT.glob("0?_*"))
NEEDED = ["sphinx", "myst_nb", "furo", "sphinx_copybutton", "sphinxext", "latex2mathml", "PIL"]


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


# ---------------------------------------------------------------- what stands in the repository


def test_the_version_is_said_once_everywhere():
    version = re.search(r'^version = "(.*)"', read("pyproject.toml"), re.M)[1]
    assert f'\nversion: "{version}"\n' in read("CITATION.cff")
    assert re.search(r"^## (\S+)", read(".github/CHANGELOG.md"), re.M)[1] == version


def test_workflows_run_the_commands_that_a_reader_is_told():
    told = read("README.md") + read(".github/CONTRIBUTING.md")
    lines = [line for path in sorted(GITHUB.glob("workflows/*.yml"))
             for line in re.findall(r"- run: (.*)", path.read_text(encoding="utf-8"))]
    assert len(lines) >= 4
    for line in lines:
        assert line == "bash .ci/run" or f"\n    {line}\n" in told, line


def test_workflows_and_templates_are_valid_yaml():
    yaml = pytest.importorskip("yaml")
    for path in sorted(GITHUB.rglob("*.yml")):
        assert yaml.safe_load(path.read_text(encoding="utf-8")), path
    assert yaml.safe_load(read("CITATION.cff"))["cff-version"] == "1.2.0"


def test_the_glossary_leads_to_every_chapter_and_defines_each_word_once():
    text = read(".github/book/glossary.md")
    links = re.findall(r"\]\((\.\.[^)]*)\)", text)
    assert all((GITHUB / "book" / link).exists() for link in links)
    assert {link.split("/")[2] for link in links} >= set(CHAPTERS)
    words = re.findall(r"^### (.*)", text, re.M)
    assert len(words) == len(set(words)) > 40


# ---------------------------------------------------------------- what is built


class Page(HTMLParser):
    """The anchors of a page, and where it leads: [(kind of tag, address)]."""

    def __init__(self, path):
        super().__init__()
        self.anchors, self.links, self.meta = {"", "top"}, [], {}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.anchors.update(found[name] for name in ("id", "name") if found.get(name))
        self.links += [(tag, found[name]) for name in ("href", "src") if found.get(name)]
        if tag == "meta":
            self.meta[found.get("property") or found.get("name")] = found.get("content")


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """The folder of the built book. A warning, such as a link to nowhere, fails the build."""
    lacking = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if lacking:
        pytest.skip(f"not installed: {', '.join(lacking)} (the book extra)")
    out = tmp_path_factory.mktemp("book")
    done = subprocess.run([sys.executable, str(GITHUB / "book" / "build.py"), "--out", str(out)],
                          capture_output=True, text=True, encoding="utf-8", timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    return out / "html"


@pytest.fixture(scope="module")
def pages(book):
    return {path: Page(path) for path in sorted(book.rglob("*.html"))}


def test_every_chapter_has_its_rooms(book):
    for folder in CHAPTERS:
        rooms = {"README.md": "index", "walkthrough.ipynb": "walkthrough", "RESULTS.md": "results",
                 "pictures/step.html": "step"}
        for file, room in rooms.items():
            assert (book / folder / f"{room}.html").exists() == (ROOT / folder / file).exists()
    for page in ("index", "glossary", "contributing", "changelog", "tests/workshop"):
        assert (book / f"{page}.html").exists(), page


def test_no_link_and_no_picture_is_broken(book, pages):
    broken = []
    for path, page in pages.items():
        for tag, link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            to = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            to = to / "index.html" if to.is_dir() else to
            anchor = unquote(parts.fragment)
            missing = not to.is_file() or book.resolve() not in to.parents
            nowhere = to in pages and anchor not in pages[to].anchors | {"embed"}
            unbuilt = tag == "a" and to.suffix in (".md", ".ipynb", ".py")
            if missing or nowhere or unbuilt:
                broken.append(f"{path.relative_to(book)}: {link}")
    assert not broken, broken
    assert sum(len(page.links) for page in pages.values()) > 500  # it did look


def test_links_to_code_lead_to_files_that_exist(pages):
    address = re.search(r'^repository-code: "(.*)"', read("CITATION.cff"), re.M)[1]
    found = {link.split("#")[0] for page in pages.values() for _, link in page.links
             if link.startswith((f"{address}/blob/main/", f"{address}/tree/main/"))}
    assert len(found) > 10
    for link in found:
        assert (ROOT / link.removeprefix(address).split("/", 3)[3]).exists(), link


def test_step_pages_are_embedded_and_stand_alone(book, pages):
    for path in sorted(ROOT.glob("0?_*/pictures/step.html")):
        alone = book / path.relative_to(ROOT)
        assert alone.read_bytes() == path.read_bytes()
        around = pages[alone.parents[1] / "step.html"]
        assert ("iframe", "pictures/step.html") in around.links


def test_pages_of_a_plain_server_need_no_other(pages):
    """No script, style, font or picture comes from elsewhere."""
    for path, page in pages.items():
        for tag, link in page.links:
            assert tag == "a" or tag == "link" or not urlsplit(link).netloc, f"{path}: {link}"


def test_previews_have_a_picture_and_a_sentence(book, pages):
    for folder in CHAPTERS:
        meta = pages[book / folder / "index.html"].meta
        assert len(meta["og:description"]) > 20 and meta["og:title"]
        picture = meta["og:image"].partition("/_static/")[2]
        assert folder in picture and (book / "_static" / picture).exists()


def test_the_anchors_of_the_code_host_work(book, pages):
    built = {"README.md": "index.html", ".github/book/glossary.md": "glossary.html"}
    for source, page in built.items():
        for title in re.findall(r"^## +(.*)", read(source), re.M):
            if "`" not in title and "[" not in title:
                slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
                assert slug in pages[book / page].anchors, slug


def test_the_search_finds_residual(book):
    index = (book / "searchindex.js").read_text(encoding="utf-8")
    assert re.search(r'"?residu"?:', index)  # words are kept by their stem
