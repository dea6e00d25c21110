"""Step pages and the book in a real browser, if there is one, on a phone's 390 pixels."""

import importlib
import json
import re
import shutil
from html import unescape
from pathlib import Path

import pytest

from nanogpt.pictures.step import BROWSERS, browse

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(ROOT.glob("0?_*/pictures/step.html"))

pytestmark = [pytest.mark.slow, pytest.mark.skipif(
    not any(map(shutil.which, BROWSERS)), reason="no Chromium on the path")]

PHONE = """<!DOCTYPE html><iframe src="ADDRESS" style="width: 390px; height: 844px"></iframe>
<script>
const wait = ms => new Promise(done => setTimeout(done, ms));
const frame = document.querySelector("iframe");
frame.onload = async () => {
  const page = frame.contentWindow, doc = page.document;
  let answer;
  try { await wait(1500); answer = await (async () => { CHECK })(); }
  catch (error) { answer = `${error}`; }
  document.title = JSON.stringify(answer);
};</script>"""


def ask(page, check, folder):
    """Open a page in a window 390 wide, run `check` (page, doc; it returns) -> its answer."""
    harness = folder / "phone.html"
    harness.write_text(PHONE.replace("ADDRESS", page.as_uri()).replace("CHECK", check),
                       encoding="utf-8")
    text, log = browse(harness.as_uri(), "--dump-dom", "--virtual-time-budget=20000")
    assert "CONSOLE" not in log, log
    return json.loads(unescape(re.search(r"<title>(.*?)</title>", text, re.S)[1]))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parts[-3])
def test_a_round_can_be_followed_on_a_phone(tmp_path, page):
    """Each frame has a caption and no text below 11 px; what is cut says so; keys do their work."""
    found = ask(page, """
      const press = at => at.dispatchEvent(new page.KeyboardEvent("keydown",
        { key: " ", bubbles: true, cancelable: true }));  // false: the page took the key
      const captions = [], sizes = [], silent = [];
      for (let i = 0; i < page.eval("trace.frames.length"); i++) {
        page.go(i);
        captions.push(doc.getElementById("text").textContent);
        for (const text of doc.querySelectorAll("svg text")) {
          const svg = text.ownerSVGElement, width = svg.getBoundingClientRect().width;
          if (width) sizes.push(text.getAttribute("font-size") * width / svg.viewBox.baseVal.width);
        }
        silent.push(...[...doc.querySelectorAll(".scroll")].filter(box => box.clientWidth &&
          box.scrollWidth > box.clientWidth + 1 && !box.nextElementSibling.matches(".more")));
      }
      page.go(1);
      const button = press(doc.getElementById("play")), body = press(doc.body);
      return { captions, smallest: Math.min(...sizes), silent: silent.length, button, body,
               count: doc.getElementById("count").textContent.split(" ")[0],
               width: doc.documentElement.scrollWidth };""", tmp_path)
    assert len(found["captions"]) >= 7 and all(found["captions"])
    assert not re.search("undefined|NaN", " ".join(found["captions"]))
    assert found["captions"][-1].endswith("The last one is the next root.")
    assert found["smallest"] > 10.9 and found["silent"] == 0 and found["width"] <= 390
    assert found["button"] and not found["body"] and found["count"] == "3"


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    for name in ("sphinx", "myst_nb", "furo", "sphinx_copybutton", "latex2mathml"):
        pytest.importorskip(name, reason="the book extra is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / ".github" / "book")
        out = tmp_path_factory.mktemp("book")
        assert importlib.import_module("build").build(out) == 0
    return out / "html"


@pytest.mark.parametrize("name", ["index", "02_tree_attention/index", "05_ddtree/RESULTS", *(
    f"{page.parts[-3]}/walkthrough" for page in PAGES)])
def test_nothing_is_cut_in_silence_on_a_phone(book, tmp_path, name):
    """What is wider than the page scrolls and says so; pictures keep their size; frames hold."""
    found = ask(book / f"{name}.html", """
      const silent = [...doc.querySelectorAll("article *")].filter(box =>
        box.scrollWidth > box.clientWidth + 1 && box.clientWidth &&
        !box.closest("math, .cut, details:not([open])") &&
        page.getComputedStyle(box).overflowX !== "visible").map(box => box.outerHTML.slice(0, 80));
      const cues = [...doc.querySelectorAll(".cut")].every(
        box => box.nextElementSibling.matches(".more"));
      const small = [...doc.querySelectorAll("article img")].filter(picture =>  // text of 16 px
        16 * picture.clientWidth / parseFloat(picture.style.width || picture.width) < 10.9);
      const heights = () => [...doc.querySelectorAll("iframe.step")].map(one => one.clientHeight);
      const first = heights();
      await wait(10000);
      const next = doc.querySelector("a.next-page");
      return { silent, cues, width: doc.documentElement.scrollWidth, first, last: heights(),
               small: small.map(picture => picture.alt), next: next && next.getAttribute("href") };
    """, tmp_path)
    assert found["silent"] == [] and found["cues"] and found["width"] <= 390
    assert found["first"] == found["last"] and all(height > 300 for height in found["first"])
    assert found["small"] == []
    if name[:2] in ("01", "02", "03"):
        assert name.endswith("index") or found["next"].endswith("/walkthrough.html")
