"""The book on the web builds without a warning, and its links lead somewhere; in a real browser, if
there is one: step pages and the book on a phone's 390 pixels, and the live page's engine against
Python on the same weights."""

import base64
import gzip
import importlib
import importlib.util
import json
import re
from html import unescape
from html.parser import HTMLParser
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest
import torch

from chain_specdec import GPTDraft, acceptance_probability, residual, speculate_chain
from ddtree_room import toys
from nanogpt.exact.enumeration import outcomes
from nanogpt.pictures.step import browse
from nanogpt.sampling import Dice, Sampler
from tree_attention import Tree, TreeDrafter, TreeGPT, multi_round, speculate, walk

ROOT = Path(__file__).resolve().parent.parent
CHAPTERS = [path.parts[-3] for path in sorted(ROOT.glob("0?_*/pictures/step.jsonp"))]
STEP_PAGE = (ROOT / "nanogpt/pictures/step.html").as_uri()

pytestmark = pytest.mark.slow


def opened(html, *flags):
    """A page's text after its scripts have run; they log nothing."""
    answer = browse(html.as_uri(), "--dump-dom", *flags)
    if answer is None:
        pytest.skip("no Chromium on the path")
    assert not [line for line in answer[1].splitlines() if "CONSOLE" in line]
    return answer[0]


# ---------------------------------------------------------------- the book and the step pages

HARNESS = """<!DOCTYPE html><iframe src="ADDRESS" style="width: WIDTHpx; height: 844px"></iframe>
<script>
const wait = ms => new Promise(done => setTimeout(done, ms));
const until = async state => { for (let i = 0; i < 300 && !state(); i++) await wait(100); };
const frame = document.querySelector("iframe");
frame.onload = async () => {
  const page = frame.contentWindow, doc = page.document;
  let answer;
  try { await wait(1500); answer = await (async () => { CHECK })(); }
  catch (error) { answer = `${error}`; }
  document.title = JSON.stringify(answer);
};</script>"""


def ask(address, check, folder, width=390):
    """Open a page in a frame as wide as a phone, run `check` (page, doc; it returns) -> its answer.
    """
    harness = folder / "harness.html"
    harness.write_text(HARNESS.replace("ADDRESS", address).replace("WIDTH", f"{width}")
                       .replace("CHECK", check), encoding="utf-8")
    text = opened(harness, "--virtual-time-budget=50000")
    return json.loads(unescape(re.search(r"<title>(.*?)</title>", text, re.S)[1]))


# All frames of a round: its captions, texts that lie on others or are cut, boxes cut in silence.
FRAMES = """
  const captions = [], sizes = [], bad = [], svg = doc.getElementById("tree");
  for (let i = 0; i < page.eval("trace.frames.length"); i++) {
    page.go(i);
    captions.push(doc.getElementById("text").textContent);
    const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
    const whole = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll("text")].filter(text => text.getClientRects().length);
    const boxes = texts.map(text => [text.textContent, text.getBoundingClientRect()]);
    sizes.push(...texts.map(text => scale * parseFloat(page.getComputedStyle(text).fontSize)));
    boxes.forEach(([one, a], n) => {
      if (a.left < whole.left || a.right > whole.right || a.top < whole.top
          || a.bottom > whole.bottom)
        bad.push(`frame ${i + 1}: ${one} is cut`);
      for (const [other, b] of boxes.slice(n + 1))
        if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > .5
            && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > .5)
          bad.push(`frame ${i + 1}: ${one} lies on ${other}`);
    });
    for (const box of doc.querySelectorAll(".scroll"))
      if (box.scrollWidth > box.clientWidth + 1 && !box.classList.contains("cut"))
        bad.push(`frame ${i + 1}: ${box.firstElementChild.id} is cut in silence`);
  }
"""


@pytest.mark.parametrize("width", [1280, 820, 390])
@pytest.mark.parametrize("chapter", CHAPTERS)
def test_no_number_lies_on_another(tmp_path, chapter, width):
    """In the page, a lesson's frame, a GIF; each frame has a caption, no text is below 11 px."""
    for more, frames, ends in (("", 7, "The last one is the next root."), ("&embed", 7, "root."),
                               ("&embed&still", 4, r"forgets \d+.")):
        found = ask(f"{STEP_PAGE}#{chapter}{more}", FRAMES + """
          return { captions, bad, smallest: Math.min(...sizes), title: doc.title,
                   width: doc.documentElement.scrollWidth };""", tmp_path, width)
        assert found["bad"] == [] and found["smallest"] > 10.9 and found["width"] <= width
        assert len(found["captions"]) >= frames and all(found["captions"])
        assert not re.search("undefined|NaN", " ".join(found["captions"]))
        assert re.search(f"{ends}$", found["captions"][-1])
        assert found["title"].startswith(chapter[:2])


def test_keys_do_their_work(tmp_path):
    found = ask(f"{STEP_PAGE}#05_ddtree", """
      const press = (at, key) => at.dispatchEvent(new page.KeyboardEvent("keydown",
        { key, bubbles: true, cancelable: true }));  // false: the page took the key
      const count = () => doc.getElementById("count").textContent.split(" ")[0];
      press(doc.body, "ArrowRight");
      const button = press(doc.getElementById("play"), " "), body = press(doc.body, " ");
      const third = [count(), page.location.hash], tree = doc.querySelector(".scroll");
      tree.classList.add("cut");
      const cut = press(tree, "ArrowRight");  // scrolls the box
      press(doc.body, "Home");
      return { button, body, cut, third, home: count() };""", tmp_path)
    assert found == {"button": True, "body": False, "cut": True, "home": "1",
                     "third": ["3", "#05_ddtree&frame=3"]}


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
    for name in ("index", "live", "experiments", "404", "glossary", "CONTRIBUTING", "CHANGELOG",
                 "tests/WORKSHOP"):
        assert book / f"{name}.html" in pages
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if not parts.scheme and not parts.netloc:
                to = (path.parent / unquote(parts.path)).resolve() if parts.path else path
                assert to.is_file() and book.resolve() in to.parents, f"{path}: {link}"
                assert to not in pages or unquote(parts.fragment) in pages[to].anchors, link
    assert sum(len(page.links) for page in pages.values()) > 500  # it did look
    for path in pages:  # what other sites show of a link; the sidebar begins with the live page
        text = path.read_text(encoding="utf-8")
        if path.name not in ("404.html", "search.html"):
            for name in ('name="description"', 'name="twitter:card"', 'property="og:title"'):
                assert name in text, path
        sidebar = text.partition('class="sidebar-tree"')[2]
        if sidebar:
            assert re.search(r'href="[^"]*"', sidebar)[0].endswith(('live.html"', '"#"')), path
    assert (book / "card.png").stat().st_size > 10_000


@pytest.mark.parametrize("remote, host", [
    ("https://github.com/someone/specdec.git", "https://github.com/someone/specdec"),
    ("git@gitlab.example.org:team/deep/specdec.git", "https://gitlab.example.org/team/deep/specdec"),
    ("/home/me/specdec", None), ("", None)])
def test_the_book_names_its_repository(remote, host, monkeypatch):
    pytest.importorskip("latex2mathml")
    monkeypatch.syspath_prepend(ROOT / ".github" / "book")
    conf = importlib.import_module("conf")
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    monkeypatch.setattr(conf.subprocess, "run", lambda *a, **k: SimpleNamespace(stdout=remote))
    assert conf.code_host() == host


def test_an_experiment_takes_its_pictures_place(book, tmp_path):
    """And answers; the picture is on the page all the same, for paper."""
    found = ask((book / "01_chain_specdec/walkthrough.html").as_uri(), """
      const frame = doc.querySelector("iframe.try");
      const picture = doc.querySelector(".tag_experiment img");
      frame.loading = "eager";
      const read = id => frame.contentDocument.getElementById(id)?.textContent;
      await until(() => read("exact")
                  && Math.abs(frame.clientHeight - frame.contentDocument.body.scrollHeight) < 4);
      const inside = frame.contentWindow;
      const exact = read("exact");
      inside.eval("ui.way.value = Object.keys(WAYS)[1]; renew();");
      const wrong = read("exact");
      inside.eval("ui.told.checked = true; draw2000();");
      return { shown: picture.clientHeight, exact, wrong, told: read("exact"),
               height: frame.clientHeight, body: inside.document.body.scrollHeight };""",
                tmp_path, 900)
    assert found["shown"] == 0 and abs(found["height"] - found["body"]) < 4
    assert found["exact"].startswith("Exactly p") and found["told"].endswith(found["exact"])
    assert "'B' comes out with .16 for .30" in found["wrong"]  # the lesson's number


@pytest.mark.parametrize("name", ["index", "02_tree_attention/index", "05_ddtree/RESULTS", *(
    f"{chapter}/walkthrough" for chapter in CHAPTERS)])
def test_nothing_is_cut_in_silence_on_a_phone(book, tmp_path, name):
    """What is wider than the page scrolls and says so; pictures keep their size; frames hold."""
    found = ask((book / f"{name}.html").as_uri(), """
      const frames = [...doc.querySelectorAll("iframe.step")];
      const heights = () => frames.map(one => one.clientHeight);
      const inside = one => one.contentDocument.body.scrollHeight;  // 0: not loaded, far below
      const silent = () => [...doc.querySelectorAll("article *")].filter(box =>
        box.scrollWidth > box.clientWidth + 1 && box.clientWidth &&
        !box.closest("math, .cut, details:not([open])") &&
        page.getComputedStyle(box).overflowX !== "visible").map(box => box.outerHTML.slice(0, 80));
      await until(() => !silent().length && frames.every(one =>
        !inside(one) || Math.abs(one.clientHeight - inside(one)) < 4));
      const first = heights();
      await wait(10000);
      const cues = [...doc.querySelectorAll(".cut")].every(
        box => box.nextElementSibling.matches(".more"));
      const small = [...doc.querySelectorAll("article img")].filter(picture =>  // text of 16 px
        picture.clientWidth &&  // an experiment may stand in its place
        16 * picture.clientWidth / parseFloat(picture.style.width || picture.width) < 10.9);
      const next = doc.querySelector("a.next-page");
      return { silent: silent(), cues, width: doc.documentElement.scrollWidth,
               first, last: heights(),
               small: small.map(picture => picture.alt), next: next && next.getAttribute("href") };
    """, tmp_path)
    assert found["silent"] == [] and found["cues"] and found["width"] <= 390
    assert found["first"] == found["last"] and all(height > 150 for height in found["first"])
    assert found["small"] == []
    if name[:2] in ("01", "02", "03"):
        assert name.endswith("index") or found["next"].endswith("/walkthrough.html")


# ---------------------------------------------------------------- the live page: its engine


PROMPT = "KING HENRY:\nWhat say you, my lord?\n\n" * 5
CHAIN, TREE = [1] * 5, [3, 2, 1]
RUNS = [(temperature, *shape) for temperature in (0, 1) for shape in (
    ("multiRound", CHAIN), ("walk", TREE), ("multiRound", TREE))]
TALL = Tree([20, 36, 40, 41, 50, 36], [-1, 0, 1, 1, 0, 4])  # two levels, path after path
UNIFORMS = np.random.default_rng(5).random(3000).tolist()
ROUNDS = 60  # from 180 tokens on, the window of 256 slides in every run
TABLES = [([0.5, 0.3, 0.15, 0.05], [0.2, 0.45, 0.3, 0.05]),  # p and q; the others: the six toys
          ([0.8, 0.2], [0.8, 0.2]), ([0.5, 0.5], [0.5, 0.5]), ([0.5, 0.5], [0.6, 0.4]),
          ([0.4, 0.2, 0.4], [0.3, 0.6, 0.1])]

ASK = """
const asked = %s, random = seeded(1);
const target = new GPT(data.target), drafter = new GPT(data.drafter);
const prompt = [...asked.prompt].map(letter => data.letters.indexOf(letter));
const cache = target.newCache(), found = {};
found.prompt = target.forward(prompt, cache).map(row => [...row]);
cache.commit([...prompt.keys()]);
found.tree = target.forward(asked.tree, cache, asked.positions, asked.mask).map(row => [...row]);
cache.commit(asked.path);
found.after = target.forward([1], cache).map(row => [...row]);
found.runs = asked.runs.map(([temperature, rule, branching]) => {
  let at = 0;
  const uniform = () => asked.uniforms[at++];
  const one = new Speculation(target, drafter, prompt, temperature, uniform);
  const how = { branching, temperature, rule: { walk, multiRound }[rule] };
  return [...Array(asked.rounds)].map(() => {
    const { tokens, parents, kept, emitted, draws } = one.round(how);
    return { tokens, parents, kept, emitted, draws: draws.map(draw => draw.value) };
  });
});
found.ways = Object.entries(WAYS).map(([name, way]) => [name, ...[false, true].map(told =>
  asked.tables.map(([p, q]) => {
    const counts = Array(2 * p.length).fill(0), dice = playing(new Dice(random));
    for (let i = 0; i < 5000; i++) counts[way(dice, p, q, told)] += 1 / 5000;
    return { law: way(follow, p, q, told), counts };
  }))]);
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
    return live.models()


@pytest.fixture(scope="module")
def prompt(live):
    return [live.LETTERS.index(letter) for letter in PROMPT]


@pytest.fixture(scope="module")
def page(live, prompt, tmp_path_factory):
    """What the engine answers in the browser."""
    asked = {"prompt": PROMPT, "tree": TALL.tokens.tolist(), "mask": TALL.mask.tolist(),
             "positions": (len(prompt) + TALL.depths).tolist(), "path": [0, 4, 5], "runs": RUNS,
             "rounds": ROUNDS, "uniforms": UNIFORMS, "tables": TABLES}
    data = f"const data = {live.weights()}; data.letters = {json.dumps(live.LETTERS)};"
    html = tmp_path_factory.mktemp("live") / "engine.html"
    html.write_text(f"<meta charset=utf-8><script>{live.engine()}{data}</script>"
                    f"<script>{{{ASK % json.dumps(asked)}}}</script>", encoding="utf-8")
    return json.loads(unescape(re.search(r"<title>(.*)</title>", opened(html))[1]))


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


# ---------------------------------------------------------------- how a draft came


def judge(dice, p, q, x, lost=None):
    """Chapter 01's rule on one draft x, told that it came from q."""
    if dice.flip(acceptance_probability(p, q, x)):
        return x
    return lost() if lost else dice.draw(residual(p, q))


def only(x, q):
    return torch.eye(len(q), dtype=q.dtype)[x]


def without(q, x):
    left = q * (1 - only(x, q))
    return left / left.sum()


def surer_of_two(q):
    """The law of the surer of two draws, by enumeration."""
    law = torch.zeros_like(q)
    for x, probability in outcomes(lambda dice: surer(q, dice.draw(q), dice.draw(q))):
        law[x] += probability
    return law


def surer(q, x, y):
    return y if q[y] > q[x] else x


def two_picked(dice, p, q, told):
    first = int(q.argmax())
    second = int(without(q, first).argmax())
    after = residual(p, only(first, q) if told else q)
    return judge(dice, p, only(first, q) if told else q, first, lambda: judge(
        dice, after, only(second, q) if told else without(q, first), second))


def hidden(dice, p, q, told):
    x = dice.draw(q)
    if x != int(q.argmax()):
        return dice.draw(p)
    return judge(dice, p, only(x, q) if told else q, x)


def never_the_same_twice(dice, p, q, told):
    x = dice.draw(q)
    return judge(dice, p, q, x, lambda: judge(
        dice, residual(p, q), without(q, x) if told else q, dice.draw(without(q, x))))


def two_walks(dice, p, q, told):
    x = dice.draw(p)
    return x if told or x == int(q.argmax()) else dice.draw(p)


BY_HAND = [
    lambda dice, p, q, told: judge(dice, p, q, dice.draw(q)),
    lambda dice, p, q, told: judge(dice, p, q, dice.draw(q),
                                   None if told else lambda: dice.draw(p)),
    lambda dice, p, q, told: judge(dice, p, only(q.argmax(), q) if told else q, int(q.argmax())),
    never_the_same_twice,
    lambda dice, p, q, told: judge(dice, p, surer_of_two(q) if told else q,
                                   surer(q, dice.draw(q), dice.draw(q))),
    two_walks, two_picked, hidden]


@pytest.mark.parametrize("way", range(len(BY_HAND)))
@pytest.mark.parametrize("told", [False, True])
def test_the_exact_number_beside_the_draws_is_exact(page, way, told):
    """The page's number is the enumeration's, its draws lie around it, and it is p if the judge is
    told; a way that needs no telling is p at once, every other one misses it somewhere."""
    name, *found = page["ways"][way]
    missed = 0
    for (p, q), answer in zip(TABLES, found[told], strict=True):
        p, q = torch.tensor(p, dtype=torch.float64), torch.tensor(q, dtype=torch.float64)
        exact = torch.zeros_like(p)
        for x, probability in outcomes(lambda dice, p=p, q=q: BY_HAND[way](dice, p, q, told)):
            exact[x] += probability
        law = torch.tensor(answer["law"], dtype=torch.float64)
        counts = torch.tensor(answer["counts"], dtype=torch.float64)
        assert (law.view(2, -1).sum(0) - exact).abs().max() < 1e-12, name
        assert ((counts - law).abs() <= 5 * (law * (1 - law) / 5000).sqrt() + 1e-9).all(), name
        missed = max(missed, float((exact - p).abs().sum() / 2))
    assert missed < 1e-12 if told or way == 0 else missed > 0.03, name


def test_a_way_names_the_chapter_of_its_toy(page):
    """The lesson's table says it too; its own toy is chapter 05's."""
    lesson = [chapter.replace("here", "05") for chapter, *_ in toys().values()]
    found = re.findall(r"\((\d\d)\)", " ".join(name for name, *_ in page["ways"]))
    assert found == sorted(["01", *lesson])


# ---------------------------------------------------------------- the live page: as it is used

READY = "Object.assign(data, models); ready();"


def plain_page(live, folder, script=READY):
    """The live page with its models in plain sight, and a script behind them -> its file."""
    html = folder / "live.html"
    html.write_text(live.page().replace(
        "</body>", f"<script>const models = {live.weights()};</script>"
        f"<script>{{{script}}}</script></body>"), encoding="utf-8")
    return html


def test_no_number_lies_on_another_in_any_round_of_the_live_page(live, tmp_path):
    html = plain_page(live, tmp_path)
    shapes = [("chain", "1"), ("chain", "8"), *((rule, shape) for rule in ("walk", "multi")
                                                for shape in ("3-2-1", "4-1-1", "2-1-1-1-1"))]
    for width in (1280, 820, 390):
        found = ask(html.as_uri(), f"const shapes = {json.dumps(shapes)}, all = [];" + """
          for (const [rule, shape] of shapes) {
            page.eval(`form.rule.value = "${rule}"; form.t.value = 1;
                       form[isNaN("${shape}") ? "shape" : "k"].value = "${shape}"; begin(true)`);
            for (const round of [1, 2, 3]) {
              page.eval(`look(${round})`);
              const bad = (() => {""" + FRAMES + """ return bad; })();
              all.push(...bad.map(one => `${rule} ${shape}: ${one}`));
              if (shape === "3-2-1" && doc.querySelector(".cut")) all.push("a small tree is cut");
            }
          }
          return { all, width: doc.documentElement.scrollWidth };""", tmp_path, width)
        assert found["all"] == [] and found["width"] <= width


def unpacked(word):
    return gzip.decompress(base64.b64decode(
        word.replace("_", "+").replace("\u00e9", "/"))).decode()


def test_the_file_in_the_clone_is_that_of_today(live):
    """`python .github/book/live.py` writes it."""
    html = (live.PICTURES / "live.html").read_text(encoding="utf-8")
    page, models = (unpacked(word) for word in re.findall(r'"([\w\u00e9=]{9999,})"', html))
    assert page == live.page() and models == live.weights()
    assert html == live.SHELL.format(head=html.partition("<head>\n")[2].partition("</head>")[0],
                                     page=re.search(r'page = "(.*)"', html)[1],
                                     models=re.search(r'models = "(.*)"', html)[1])
    assert len(html.encode()) < 2e6


USE = r"""
const text = () => ui.story.textContent, read = [], said = [];
const write = (rule, t, more = {}) => {
  for (const [name, value] of Object.entries({ rule, t, spoil: 0, k: 4, shape: "3-2-1", ...more }))
    form[name].value = value;
  ui.form.requestSubmit();
  finish();
  for (let i = 1; i < rounds.length; i++) {
    look(i);
    for (let frame = 0; frame < trace.frames.length; frame++) {
      go(frame);
      read.push(ui.text.textContent);
    }
  }
  const count = kind => ui.story.querySelectorAll(kind).length;
  return { text: text(), alone: ui.alone.textContent, passes: count("a"), own: count("b"),
           spent: parseInt(ui.spent.textContent), letters: letters(), sum: ui.sum.textContent };
};
const greedy = [["chain", 0], ["walk", 0], ["multi", 0], ["chain", 0, { spoil: .5, k: 7 }]]
  .map(one => write(...one));
const drawn = [["chain", 1], ["walk", .7], ["multi", 1.2, { shape: "2-1-1-1-1" }]]
  .map(one => write(...one));
const address = location.hash;
look(1);
ui.causal.checked = true;
reads(3);
said.push(ui.reads.textContent);
reads(1);
said.push(ui.reads.textContent);
ui.measure.click();
said.push(ui.note.textContent);
const lucky = [[.6, .1, .3], [.7, .2, .1]].map(q => {  // one letter has more p than q, then two
  [toy.p, toy.q] = [[.5, .3, .2], q];
  ui.way.selectedIndex = 3;
  renew();
  return ui.exact.textContent;
});
form.p.value = "What\u2019s here?\n7 men";
ui.form.requestSubmit();
finish();
const strange = [ui.note.textContent, before];
form.p.value = "Good morrow, my lord";
duel();
form.t.value = 0;
ui.form.requestSubmit();
finish();
const greedily = before + spell(rounds.flatMap(one => one.emitted));
for (let turn = 0; turn < 10; turn++) {
  ui.guess.value = greedily.slice(game.text.length + 1).slice(0, 4).replace(/\n/g, "/");
  ui.guessing.requestSubmit();
}
document.title = JSON.stringify({ greedy, drawn, address, said, strange, lucky,
  captions: [...new Set(read)],
  score: ui.score.textContent, kept: spell([...game.text, game.root]), greedily,
  rows: ui.runs.querySelectorAll("tr").length });
"""


@pytest.fixture
def used(live, tmp_path):
    """What a script on the live page, its models loaded, makes of the page's title."""
    def run(script, *flags):
        html = plain_page(live, tmp_path, READY + script)
        text = opened(html, "--force-prefers-reduced-motion", *flags)
        return json.loads(unescape(re.search(r"<title>(.*)</title>", text, re.S)[1]))

    return run


def test_a_reader_can_try_everything(used):
    found = used(USE)
    for one in (*found["greedy"], *found["drawn"]):
        assert one["passes"] == one["spent"] == one["own"] < one["letters"] >= 60
        assert one["text"] == one["alone"]
        assert one["sum"].startswith(f"{one['letters'] - one['passes']} of {one['letters']} ")
    first = found["greedy"][0]
    for one in found["greedy"]:  # whoever guesses, and however badly
        assert one["text"][:70] == first["text"][:70]
    assert found["greedy"][3]["passes"] > first["passes"]
    captions = " ".join([*found["captions"], *found["said"]])
    assert not re.search("undefined|NaN|null|the target|Infinity", captions)
    assert len(found["captions"]) > 100
    assert "rule=multi" in found["address"] and "shape=2-1-1-1-1" in found["address"]
    assert "other branches" in found["said"][0] and "other branches" not in found["said"][1]
    assert "On this device" in found["said"][2]
    assert "by luck" in found["lucky"][0] and found["lucky"][1].startswith("Not p")
    note, before = found["strange"]
    assert note.endswith("left out: 7") and before == "What's here?\n men"
    tiles, letters = found["score"].split(" I drafted ")
    assert tiles.count("\U0001f7e7") == 10 and tiles.count("\U0001f7e6") == 40
    assert float(letters.split()[0]) == len(tiles.replace(" ", "")) / 10
    assert found["greedily"].startswith(found["kept"][:70])
    assert found["rows"] > 5


EDGES = r"""
const size = target.config.block_size, lines = "Good morrow, my lord, how fares the king today? ";
const duels = [6, 4, 3, 1].map(room => {  // every guess is right, and the window ends
  form.p.value = lines.repeat(6).slice(0, size - room);
  duel();
  const plain = [rival.root], lengths = [];
  const wrote = () => [...game.text, game.root].slice(size - room);
  while (plain.length < 50)
    plain.push(...rival.round({ branching: [], rule: multiRound, temperature: 0 }).emitted);
  for (let turn = 0; turn < 9; turn++) {
    ui.guess.value = spell(plain.slice(wrote().length).slice(0, 4)).replace(/\n/g, "/");
    ui.guessing.requestSubmit();
    lengths.push(game.cache.length);
  }
  return { wrote: spell(wrote()), plain: spell(plain), size, longest: Math.max(...lengths) };
});
form.t.value = 1;
form.p.value = lines;
const seeds = ["3", "1e300", "-1e308", ""].map(seed => {
  form.seed.value = seed;
  begin(true);
  return [rounds.flatMap(one => one.emitted), spell(rounds.flatMap(one => one.emitted))];
});
duel();
const blanks = [" ", "\n", "7", ""].map(text => {
  const was = ui.game.textContent + ui.story.textContent;
  form.p.value = text;
  ui.form.requestSubmit();
  return [ui.note.textContent, was === ui.game.textContent + ui.story.textContent];
});
document.title = JSON.stringify({ duels, seeds, blanks });
"""


def test_a_reader_can_go_to_the_edge(used):
    """A duel up to the window's end writes what plain decoding writes; any seed gives letters; a
    text without a letter changes nothing."""
    found = used(EDGES)
    for duel in found["duels"]:
        assert duel["plain"].startswith(duel["wrote"]) and len(duel["wrote"]) > 30
        assert duel["longest"] <= duel["size"]
    for tokens, text in found["seeds"]:
        assert len(text) == len(tokens) >= 60 and min(tokens) >= 0
    assert found["seeds"][0] != found["seeds"][1]
    assert found["blanks"] == [["Type at least one letter.", True]] * 4


def test_the_page_is_usable_before_its_models_are_there(live, tmp_path):
    """The race that every visitor sees can be run again and stopped; then the models come."""
    found = ask(plain_page(live, tmp_path, "").as_uri(), """
      const read = id => doc.getElementById(id).textContent;
      const press = async id => { doc.getElementById(id).click(); await wait(500); };
      const ended = async () => {
        await until(() => read("sum"));
        return read("sum") + read("story");
      };
      const known = await ended();
      await press("pause");  // "go on", but nobody can write yet
      const more = await ended();
      await press("again");
      const start = read("ticks"), note = read("note"), again = await ended();
      page.eval(READY);
      return { start, note, stories: [known, more, again, await ended()] };
    """.replace("READY", json.dumps(READY)), tmp_path)
    assert int(found["start"].split()[0]) < 9 and found["note"] == "The models are loading."
    assert len(set(found["stories"])) == 1 and "of 60 letters" in found["stories"][0]


def test_a_link_that_asks_for_what_is_not_there_gets_the_usual(live, tmp_path):
    html = plain_page(live, tmp_path)
    for link, usual in {"rule=multi&shape=zzz": "multi 3-2-1", "rule=foo&k=3": "chain 1-1-1",
                        "p=%20": "chain 1-1-1-1", "p=7&length=5": "chain 1-1-1-1"}.items():
        found = ask(f"{html.as_uri()}#{link}", """
          const read = id => doc.getElementById(id).textContent;
          await until(() => read("sum"));
          doc.getElementById("measure").click();
          return { asked: page.eval("form.rule.value + ' ' + chosen().branching.join('-')"),
            sum: read("sum"), note: read("note"), story: read("story").length,
            duel: read("game") };""", tmp_path)
        assert found["asked"] == usual and found["story"] >= 80 and found["duel"], link
        assert int(found["sum"].split()[0]) > 15 and "On this device" in found["note"], link
