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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parts[-3])
def test_a_page_shows_every_frame_without_an_error(tmp_path, page):
    """Each frame has a caption, the last one the cache's rows; the console stays empty."""
    html = page.read_text(encoding="utf-8").replace("address());\n</script>", """address());
        const said = trace.frames.map((f, i) => { go(i); return $("text").textContent; });
        document.title = JSON.stringify(said); </script>""")
    (tmp_path / "page.html").write_text(html, encoding="utf-8")
    text, log = browse((tmp_path / "page.html").as_uri(), "--dump-dom")
    assert "CONSOLE" not in log, log
    said = re.search(r"<title>(\[.*\])</title>", text)[1]
    assert said.count('","') + 1 >= 8 and "undefined" not in said and "NaN" not in said
    assert said.endswith('The last one is the next root."]')
