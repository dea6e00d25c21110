"""The book on the web builds without a warning, and its links lead somewhere; in a real browser, if
there is one: step pages and the book on a phone's 390 pixels, and the live page's engine against
Python on the same weights."""

import importlib
import importlib.util
import json
import re
from html import unescape
from html.parser import HTMLParser
from itertools import islice
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest
import torch

from chain_specdec import GPTDraft, speculate_chain
from nanogpt.model import GPT, GPTConfig
from nanogpt.pictures.step import browse
from nanogpt.sampling import Dice, Sampler
from tree_attention import Tree, TreeDrafter, TreeGPT, multi_round, speculate, walk

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(ROOT.glob("0?_*/pictures/step.html"))

pytestmark = pytest.mark.slow


def opened(html, *flags):
    """A page's text after its scripts have run; they log nothing."""
    answer = browse(html.as_uri(), "--dump-dom", *flags)
    if answer is None:
        pytest.skip("no Chromium on the path")
    assert "CONSOLE" not in answer[1], answer[1]
    return answer[0]


# ---------------------------------------------------------------- the book and the step pages

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
    text = opened(harness, "--virtual-time-budget=20000")
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
        # A warning, such as a link to nowhere, fails the build.
        assert importlib.import_module("build").build(out) == 0
    return out / "html"


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


def test_the_book_is_whole(book):
    pages = {path: Page(path) for path in sorted(book.rglob("*.html"))}
    for chapter in ROOT.glob("0?_*"):
        for room in ("index", "walkthrough", "RESULTS", "pictures/step"):
            assert book / chapter.name / f"{room}.html" in pages
    for name in ("index", "live", "404", "glossary", "CONTRIBUTING", "CHANGELOG", "tests/WORKSHOP"):
        assert book / f"{name}.html" in pages
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if not parts.scheme and not parts.netloc:
                to = (path.parent / unquote(parts.path)).resolve() if parts.path else path
                assert to.is_file() and book.resolve() in to.parents, f"{path}: {link}"
                assert to not in pages or unquote(parts.fragment) in pages[to].anchors, link
    assert sum(len(page.links) for page in pages.values()) > 500  # it did look


@pytest.mark.parametrize("name", ["index", "02_tree_attention/index", "05_ddtree/RESULTS", *(
    f"{page.parts[-3]}/walkthrough" for page in PAGES)])
def test_nothing_is_cut_in_silence_on_a_phone(book, tmp_path, name):
    """What is wider than the page scrolls and says so; pictures keep their size; frames hold."""
    found = ask(book / f"{name}.html", """
      const heights = () => [...doc.querySelectorAll("iframe.step")].map(one => one.clientHeight);
      const first = heights();
      await wait(10000);
      const silent = [...doc.querySelectorAll("article *")].filter(box =>
        box.scrollWidth > box.clientWidth + 1 && box.clientWidth &&
        !box.closest("math, .cut, details:not([open])") &&
        page.getComputedStyle(box).overflowX !== "visible").map(box => box.outerHTML.slice(0, 80));
      const cues = [...doc.querySelectorAll(".cut")].every(
        box => box.nextElementSibling.matches(".more"));
      const small = [...doc.querySelectorAll("article img")].filter(picture =>  // text of 16 px
        16 * picture.clientWidth / parseFloat(picture.style.width || picture.width) < 10.9);
      const next = doc.querySelector("a.next-page");
      return { silent, cues, width: doc.documentElement.scrollWidth, first, last: heights(),
               small: small.map(picture => picture.alt), next: next && next.getAttribute("href") };
    """, tmp_path)
    assert found["silent"] == [] and found["cues"] and found["width"] <= 390
    assert found["first"] == found["last"] and all(height > 300 for height in found["first"])
    assert found["small"] == []
    if name[:2] in ("01", "02", "03"):
        assert name.endswith("index") or found["next"].endswith("/walkthrough.html")


# ---------------------------------------------------------------- the live page


PROMPT = "KING HENRY:\nWhat say you, my lord"
CHAIN, TREE = [1] * 5, [3, 2, 1]
RUNS = [(temperature, *shape) for temperature in (0, 1) for shape in (
    ("multiRound", CHAIN), ("walk", TREE), ("multiRound", TREE))]
TALL = Tree([20, 36, 40, 41, 50, 36], [-1, 0, 1, 1, 0, 4])  # two levels, path after path
UNIFORMS = np.random.default_rng(5).random(3000).tolist()
ROUNDS = 100  # from 33 tokens on, the window of 256 slides in every run

ASK = """
const { GPT, Drafter, Speculation, walk, multiRound } = engine;
const asked = %s, target = new GPT(data.target), drafter = new Drafter(new GPT(data.drafter));
const prompt = [...asked.prompt].map(letter => data.letters.indexOf(letter));
const cache = target.newCache(), found = {};
found.prompt = target.forward(prompt, cache).map(row => [...row]);
cache.commit([...prompt.keys()]);
found.tree = target.forward(asked.tree, cache, asked.positions, asked.mask).map(row => [...row]);
cache.commit(asked.path);
found.after = target.forward([1], cache).map(row => [...row]);
found.runs = asked.runs.map(([temperature, rule, branching]) => {
  let at = 0;
  const one = new Speculation(target, drafter, prompt, temperature, () => asked.uniforms[at++]);
  const how = { branching, temperature, rule: { walk, multiRound }[rule] };
  return [...Array(asked.rounds)].map(() => {
    const { tokens, parents, kept, emitted, draws } = one.round(how);
    return { tokens, parents, kept, emitted, draws: draws.map(draw => draw.value) };
  });
});
document.title = JSON.stringify(found);
"""


@pytest.fixture(scope="module")
def live():
    spec = importlib.util.spec_from_file_location("live", ROOT / ".github" / "book" / "live.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def models(live):
    """Target and drafter with the weights that the page unpacks."""
    found = []
    for size in live.MODELS.values():
        config, parts = live.quantised(size)
        model = GPT(GPTConfig(**config)).eval()
        model.load_state_dict({name: values * scales[:, None]
                               for name, (values, scales) in parts.items()})
        found.append(model)
    return found


@pytest.fixture(scope="module")
def prompt(live):
    return [live.LETTERS.index(letter) for letter in PROMPT]


@pytest.fixture(scope="module")
def page(live, prompt, tmp_path_factory):
    """What the engine answers in the browser."""
    asked = {"prompt": PROMPT, "tree": TALL.tokens.tolist(), "mask": TALL.mask.tolist(),
             "positions": (len(prompt) + TALL.depths).tolist(), "path": [0, 4, 5], "runs": RUNS,
             "rounds": ROUNDS, "uniforms": UNIFORMS}
    html = tmp_path_factory.mktemp("live") / "engine.html"
    html.write_text(f"<meta charset=utf-8><script>{live.engine()}{live.data()}</script>"
                    f"<script>{ASK % json.dumps(asked)}</script>", encoding="utf-8")
    return json.loads(re.search(r"<title>(.*)</title>", opened(html))[1])


def test_the_page_computes_the_logits_of_the_model(page, models, prompt):
    """A prompt, a tree behind it, and one row behind the tree's path, whose rows were gathered."""
    target, _ = models
    cache = target.new_cache()
    with torch.inference_mode():
        expected = [target(torch.tensor([prompt]), cache=cache)[0]]
        cache.commit(list(range(len(prompt))))
        expected.append(target(TALL.tokens[None], len(prompt) + TALL.depths, TALL.mask, cache)[0])
        cache.commit([0, 4, 5])
        expected.append(target(torch.tensor([[1]]), cache=cache)[0])
    for key, logits in zip(("prompt", "tree", "after"), expected, strict=True):
        assert (torch.tensor(page[key]) - logits[0]).abs().max() < 1e-3, key


class ListDice(Dice):
    """Plays a list of numbers in [0, 1) instead of a generator's; notes what they fell on."""

    def __init__(self, uniforms):
        self.generator, self.left, self.values = self, iter(uniforms), []

    def random(self):
        return next(self.left)

    def draw(self, probs):
        self.values.append(super().draw(probs))
        return self.values[-1]


@pytest.mark.parametrize("run", range(len(RUNS)), ids=lambda run: "-".join(
    map(str, RUNS[run][:2])) + f"-{len(RUNS[run][2])}")
def test_the_page_decides_as_the_decoders_do(page, models, prompt, run):
    """The same drafts, draws, paths and texts round after round, for the same random numbers."""
    temperature, rule, branching = RUNS[run]
    target, small = models
    dice, sampler = ListDice(UNIFORMS), Sampler(temperature)
    if branching == CHAIN:
        steps = speculate_chain(target, GPTDraft(small), prompt, len(CHAIN), sampler, dice)
    else:
        drawn = sampler, dice if rule == "multiRound" else None
        drafter = TreeDrafter(TreeGPT(small), branching, *drawn)
        steps = speculate(target, drafter, prompt, sampler, dice,
                          {"walk": walk, "multiRound": multi_round}[rule])
    next(steps)  # the prefill
    for number, (step, found) in enumerate(zip(islice(steps, ROUNDS), page["runs"][run],
                                               strict=True)):
        ends = len(dice.values)
        assert found["draws"] == dice.values[ends - len(found["draws"]):], number
        assert found["emitted"] == step.tokens, number
        if branching != CHAIN:
            assert found["kept"] == step.detail.path, number
            assert found["tokens"] == step.detail.tree.tokens.tolist(), number
            assert found["parents"] == step.detail.tree.parents.tolist(), number


USE = """
const most = chart => Math.max(...chart.rows.map(row => row.target));
const said = [], text = () => $("story").textContent;
for (const kind of ["chain", "walk", "multi"])
  for (const temperature of [0.7, 0]) {
    document.querySelector(`[value=${kind}]`).checked = true;
    $("temperature").value = temperature;
    $("form").requestSubmit();
    for (let press = 0; press < 80; press++) {
      $(press % 9 ? "next" : "finish").click();
      said.push(`${temperature}: ${$("text").textContent}`);
      const [before, after] = trace.frames.slice(now, now + 2).map(f => f.bars[f.bars.length - 1]);
      if (before && before.title === "residual")  // against the renderer's own
        said.push(`residual: ${Math.abs(most(before) - most(after)) < 1e-9}`);
    }
    const letters = text().length - $("prompt").value.length;
    const alone = +$("alone").textContent, spent = +$("spent").textContent;
    said.push(`${kind}: ${letters === alone}, ${spent < letters}`);
  }
for (const presses of [3, 30]) {  // a setting is changed within a round, and after some
  for (let press = 0; press < presses; press++) $("next").click();
  const before = text();
  $("settings").dispatchEvent(new Event("change"));
  const step = $("count").textContent.split(" ")[0];
  said.push(`again: ${before === text()}, ${$("spent").textContent}, ${step}`);
}
$("prompt").value = "7 men";
$("form").requestSubmit();
document.title = JSON.stringify([...said, $("note").textContent]);
"""


def test_a_reader_can_step_through_every_kind_of_round(live, tmp_path):
    """Every caption is complete and its sums are right, the text and the two counts agree, a new
    setting starts from the same text, unknown letters are named."""
    live.write(tmp_path)
    html = tmp_path / "live.html"
    html.write_text(html.read_text(encoding="utf-8").replace(
        "</body>", f"<script>{USE}</script></body>"), encoding="utf-8")
    text = opened(html, "--force-prefers-reduced-motion")
    *said, note = json.loads(re.search(r"<title>(.*)</title>", text)[1])
    assert said.count("chain: true, true") == said.count("multi: true, true") == 2
    assert said.count("walk: true, true") == 2 and note.endswith("left out: 7")
    assert said.count("again: true, 1, 1") == 2
    assert not any(word in " ".join(said) for word in ("undefined", "NaN", "null", "target"))
    assert not any("dice" in caption for caption in said if caption.startswith("0: "))
    sums = [[float(number) for number in re.findall(r"\.\d+", caption.split(": ", 1)[1])]
            for caption in said if "of all that is missing" in caption]
    assert sums and "residual: true" in said and "residual: false" not in said
    for p, q, missing, total, share in sums:
        assert abs(p - q - missing) < 0.002 and abs(missing / total - share) < 0.01
