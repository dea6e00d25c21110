"""The book on the web: it builds without a warning, holds every page, and its links lead somewhere.

The test that builds it needs the `book` extra and is skipped without it.
"""

import importlib
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).resolve().parent.parent


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


def test_the_version_is_said_once_everywhere():
    version = re.search(r'^version = "(.*)"', read("pyproject.toml"), re.M)[1]
    assert f'\nversion: "{version}"\n' in read("CITATION.cff")
    assert re.search(r"^## (\S+)", read(".github/CHANGELOG.md"), re.M)[1] == version


def test_workflows_run_the_commands_that_a_reader_is_told():
    told = read("README.md") + read(".github/CONTRIBUTING.md")
    lines = [line for path in sorted(ROOT.glob(".github/workflows/*.yml"))
             for line in re.findall(r"- run: (.*)", path.read_text(encoding="utf-8"))]
    assert len(lines) >= 4
    for line in lines:
        assert line == "bash .ci/run" or f"\n    {line}\n" in told, line


@pytest.fixture
def build(monkeypatch):
    """build.py as a module."""
    pytest.importorskip("sphinx")
    for name in ("myst_nb", "furo", "sphinx_copybutton", "latex2mathml"):
        pytest.importorskip(name, reason="the book extra is not installed")
    monkeypatch.syspath_prepend(ROOT / ".github" / "book")
    return importlib.import_module("build")


class Page(HTMLParser):
    """The anchors of a page, and its addresses."""

    def __init__(self, path):
        super().__init__()
        self.anchors, self.links = {"", "top", "embed"}, []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.anchors.update(found[name] for name in ("id", "name") if found.get(name))
        self.links += [found[name] for name in ("href", "src") if found.get(name)]
        assert tag in ("a", "link") or not urlsplit(found.get("src") or "").netloc, found


def test_the_book_is_whole(build, tmp_path):
    assert build.build(tmp_path) == 0  # a warning, such as a link to nowhere, fails the build
    book = tmp_path / "html"
    pages = {path: Page(path) for path in sorted(book.rglob("*.html"))}
    for chapter in ROOT.glob("0?_*"):
        for room in ("index", "walkthrough", "RESULTS", "pictures/step"):
            assert book / chapter.name / f"{room}.html" in pages
    for name in ("index", "live", "glossary", "CONTRIBUTING", "CHANGELOG", "tests/WORKSHOP"):
        assert book / f"{name}.html" in pages
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if not parts.scheme and not parts.netloc:
                to = (path.parent / unquote(parts.path)).resolve() if parts.path else path
                assert to.is_file() and book.resolve() in to.parents, f"{path}: {link}"
                assert to not in pages or unquote(parts.fragment) in pages[to].anchors, link
    assert sum(len(page.links) for page in pages.values()) > 500  # it did look
