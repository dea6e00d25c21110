"""The live page: two real models in one HTML file, to watch them speculate in a browser.

    python .github/book/live.py    # -> nanogpt/pictures/live.html, which needs no network

live.html and live.js are the page, live_model.js the models' forward, live_rounds.js a round of
speculation, live_toys.js what one can turn without a model; the step page's round.js draws. The
file is they and the weights of data/weights, packed.
"""

import base64
import gzip
import json
from itertools import islice
from pathlib import Path

import torch
from matplotlib import font_manager
from PIL import Image, ImageDraw, ImageFont

import nanogpt  # noqa: F401 (it puts the chapters' folders on the path)
from chain_specdec import GPTDraft, speculate_chain
from nanogpt.checkpoint import WEIGHTS
from nanogpt.data import CharTokenizer, load_text
from nanogpt.model import GPT, GPTConfig
from nanogpt.sampling import Dice, Sampler

HERE = Path(__file__).resolve().parent
PICTURES = HERE.parents[1] / "nanogpt/pictures"
LETTERS = CharTokenizer(load_text()).chars  # what the models read, in the order of their numbers
MODELS = {"target": "small", "drafter": "draft"}
PROMPT, DRAFTS, LENGTH = "Good morrow, my lord", 4, 60  # of the race that every visitor sees
# A page with two packed texts in it: the page itself, which can be seen at once, and the models.
# subtle: document.write would end the parser, while the models may still be on their way.
SHELL = """<!DOCTYPE html>
<html lang="en">
<head>
{head}</head>
<body>
<h1>A small model guesses, a large one checks</h1>
<p>Two real models in this page of 1 MB.</p>
<noscript>It needs JavaScript, which is switched off.</noscript>
<!-- Made by .github/book/live.py -->
<script>
const inflate = async text => {{
  const data = atob(text.replace(/_/g, "+").replace(/\u00e9/g, "/"));
  const bytes = new Blob([Uint8Array.from(data, letter => letter.charCodeAt(0))]);
  return new Response(bytes.stream().pipeThrough(new DecompressionStream("gzip"))).text();
}};
const page = "{page}";
const shown = inflate(page).then(text => {{
  for (const old of document.querySelectorAll("h1, p")) old.remove();
  document.body.prepend(document.createRange().createContextualFragment(text));
}});
</script>
<script>
const models = "{models}";
shown.then(() => inflate(models)).then(text => {{
  Object.assign(data, JSON.parse(text));
  ready();
}});
</script>
</body>
</html>
"""


def quantised(size):
    """A model of data/weights -> its configuration and {name: (int8 (rows, columns), scales)}.

    One scale a row: half the file's size. The page computes with values * scales.
    """
    saved, parts = torch.load(WEIGHTS / f"{size}.pt", weights_only=True), {}
    for name, weight in saved["model"].items():
        weight = weight.float()
        scales = weight.abs().amax(1) / 127  # (rows,)
        parts[name] = (weight / scales[:, None]).round().to(torch.int8), scales
    return saved["config"]["model"], parts


def models():
    """Target and drafter with the weights that the page unpacks."""
    found = []
    for size in MODELS.values():
        config, parts = quantised(size)
        model = GPT(GPTConfig(**config)).eval()
        model.load_state_dict({name: values * scales[:, None]
                               for name, (values, scales) in parts.items()})
        found.append(model)
    return found


def race():
    """What the page shows while it loads: the tokens of each forward at temperature 0, a chain."""
    target, small = models()
    prompt = [LETTERS.index(letter) for letter in PROMPT]
    steps = speculate_chain(target, GPTDraft(small), prompt, DRAFTS, Sampler(0.0), Dice(0))
    found = []
    while sum(map(len, found)) < LENGTH:
        found += [step.tokens for step in islice(steps, 1)]
    return found


def weights():
    """Both models for JSON, the int8 values and the scales as base64."""
    def text(tensor):
        return base64.b64encode(tensor.numpy().tobytes()).decode()

    found = {}
    for role, size in MODELS.items():
        config, parts = quantised(size)
        found[role] = {"config": config, "weights": {
            name: [*values.shape, text(values), text(scales)]
            for name, (values, scales) in parts.items()}}
    return json.dumps(found)


def engine():
    """All scripts in their order, as one."""
    return "\n".join(path.read_text(encoding="utf-8") for path in (
        PICTURES / "round.js", *(HERE / f"live_{part}.js" for part in ("model", "rounds", "toys"))))


def page(home="../../README.md", lesson="../../01_chain_specdec/walkthrough.ipynb"):
    """The page without the models, for a reader of a clone or of the book -> HTML."""
    known = json.dumps({"letters": LETTERS, "race": race(), "prompt": PROMPT})
    body = (PICTURES / "step.html").read_text(encoding="utf-8")
    body = body.partition("<main>")[2].partition("</main>")[0]
    html = (HERE / "live.html").read_text(encoding="utf-8")
    for mark, text in {"/*STYLE*/": (PICTURES / "round.css").read_text(encoding="utf-8"),
                       "<!--ROUND-->": body, "HOME": home, "LESSON": lesson,
                       "/*SCRIPT*/": "\n".join((engine(), f"const data = {known};", (
                           HERE / "live.js").read_text(encoding="utf-8")))}.items():
        html = html.replace(mark, text)
    return html


def packed(text):
    """A text, compressed, in letters and digits alone: one word of a page."""
    data = gzip.compress(text.encode(), 9, mtime=0)
    return base64.b64encode(data).decode().replace("+", "_").replace("/", "\u00e9")


def file(**links):
    """The page with the models in one file -> HTML."""
    html = page(**links)
    head = html.partition("<head>\n")[2].partition("<style>")[0]
    return SHELL.format(head=head, page=packed(html), models=packed(weights()))


def card():
    """What other sites show of a link: the race's text, who wrote which letter -> an image."""
    picture = Image.new("RGB", (1200, 630), "#ffffff")
    draw = ImageDraw.Draw(picture)
    large, small = (ImageFont.truetype(font_manager.findfont(name), size) for name, size in (
        ("DejaVu Sans Mono", 42), ("DejaVu Sans", 38)))
    width, left, x, y = draw.textlength("m", large), 60, 60, 60
    rounds = race()
    tokens = [(token, place == len(step) - 1, number) for number, step in enumerate(rounds)
              for place, token in enumerate(step)]
    for letter, own, number in [*((letter, False, None) for letter in PROMPT),
                                *((LETTERS[token], own, number) for token, own, number in tokens)]:
        if letter == "\n" or x > 1100:
            x, y = left, y + 66
            if letter == "\n":
                continue
        if number is not None:
            draw.rectangle((x, y, x + width, y + 54), "#dbeaf5" if number % 2 else "#bcd8ec")
        if own:
            draw.rectangle((x, y + 50, x + width, y + 56), "#e69f00")
        draw.text((x, y), letter, "#69717b" if number is None else "#1d2126", large)
        x += width
    passes, letters = len(rounds), len(tokens)
    draw.text((left, 470), f"{letters - passes} of {letters} letters are a small model's guesses.\n"
              f"The text is the large model's own: {passes} passes instead of {letters}.",
              "#1d2126", small, spacing=14)
    return picture


if __name__ == "__main__":
    (PICTURES / "live.html").write_text(file(), encoding="utf-8", newline="\n")
    print(PICTURES / "live.html")
