"""The step pages in a real browser, if there is one: they hold their size, and log no error."""

import re
import shutil
from pathlib import Path

import pytest

from nanogpt.pictures.step import BROWSERS, browse

ROOT = Path(__file__).resolve().parent.parent
BOOK = ROOT / ".github" / "book" / "_static"
PAGES = sorted(ROOT.glob("0?_*/pictures/step.html"))

pytestmark = [pytest.mark.slow, pytest.mark.skipif(
    not any(map(shutil.which, BROWSERS)), reason="no Chromium on the path")]


@pytest.mark.parametrize("width", [390, 780, 1100])
def test_an_embedded_page_keeps_its_height(tmp_path, width):
    """As in the book: every chapter's page in a frame, measured at once and after three seconds."""
    frames = "".join(f'<iframe class="step" src="{page.as_uri()}#embed"></iframe>'
                     for page in PAGES)
    look, script = ((BOOK / name).as_uri() for name in ("book.css", "book.js"))
    (tmp_path / "book.html").write_text(f"""<!DOCTYPE html><link rel="stylesheet" href="{look}">
        <body style="width: {width}px">{frames}<p></p><script src="{script}"></script><script>
        const heights = () => [...document.querySelectorAll("iframe")].map(f => f.clientHeight);
        addEventListener("load", () => setTimeout(() => {{
          const first = heights();
          setTimeout(() => document.querySelector("p").append(
            `[${{first}}] [${{heights()}}]`), 3000); }}, 300));
        </script>""", encoding="utf-8")
    text, _ = browse((tmp_path / "book.html").as_uri(), "--timeout=6000",
                     "--virtual-time-budget=6000", "--dump-dom")
    first, later = ([int(height) for height in found.split(",")]
                    for found in re.search(r"<p>\[(.*)\] \[(.*)\]</p>", text).groups())
    assert first == later and len(first) == len(PAGES)
    assert min(later) > 200


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parts[-3])
def test_a_page_shows_every_frame_without_an_error(tmp_path, page):
    """Each frame has a caption, the last one the cache's rows; the console stays empty."""
    html = page.read_text(encoding="utf-8").replace("fromAddress();\n</script>", """fromAddress();
        const said = trace.frames.map((f, i) => { show(i); return $("text").textContent; });
        document.title = JSON.stringify(said); </script>""")
    (tmp_path / "page.html").write_text(html, encoding="utf-8")
    text, log = browse((tmp_path / "page.html").as_uri(), "--dump-dom")
    assert "CONSOLE" not in log, log
    said = re.search(r"<title>(\[.*\])</title>", text)[1]
    assert said.count('","') + 1 >= 8 and "undefined" not in said and "NaN" not in said
    assert said.endswith('The last one is the next root."]')
