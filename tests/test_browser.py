"""The step pages in a real browser, if there is one: they hold their size, and log no error."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BOOK = ROOT / ".github" / "book" / "_static"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
PAGES = sorted(ROOT.glob("0?_*/pictures/step.html"))

pytestmark = [pytest.mark.slow, pytest.mark.skipif(
    not any(map(shutil.which, BROWSERS)), reason="no Chromium on the path")]


def browse(address, *flags):
    """The page's document after its scripts ran, and what it logged."""
    browser = next(filter(None, map(shutil.which, BROWSERS)))
    done = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
         "--allow-file-access-from-files", "--enable-logging=stderr", *flags, "--dump-dom",
         address], capture_output=True, text=True, encoding="utf-8", timeout=120, check=True)
    return done.stdout, re.findall(r"CONSOLE.*", done.stderr)


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
                     "--virtual-time-budget=6000")
    first, later = ([int(height) for height in found.split(",")]
                    for found in re.search(r"<p>\[(.*)\] \[(.*)\]</p>", text).groups())
    assert first == later and len(first) == len(PAGES)
    assert min(later) > 200
