"""The live page: two real models in one HTML file, to watch them speculate in a browser.

live.html is the page, live_model.js the models' forward, live_rounds.js a round of speculation.
`write` puts them and the weights of data/weights into one file that needs no network.
"""

import base64
import json
import re
from pathlib import Path

import torch

from nanogpt.checkpoint import WEIGHTS
from nanogpt.data import CharTokenizer, load_text

HERE = Path(__file__).resolve().parent
LETTERS = CharTokenizer(load_text()).chars  # what the models read, in the order of their numbers
MODELS = {"target": "small", "drafter": "draft"}
# The renderer's labels, in the live page's words.
WORDS = {"the target's own token": "the large model's own letter", "p, target": "p, large model",
         "q, drafter": "q, small model", '" of the target, "': '" of the large model, "',
         '" of the drafter"': '" of the small model"', '["accepted", ': '["kept", ',
         '["rejected", "': '["refused", "', '"the root"': '"the last letter"'}


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


def packed(size):
    """A model as the page reads it -> a dictionary for JSON."""
    config, parts = quantised(size)

    def text(tensors):
        return base64.b64encode(b"".join(t.numpy().tobytes() for t in tensors)).decode()

    return {"config": config,
            "shapes": {name: list(values.shape) for name, (values, _) in parts.items()},
            "values": text(values for values, _ in parts.values()),
            "scales": text(scales for _, scales in parts.values())}


def engine():
    """The two files of the engine as one script."""
    parts = [(HERE / f"live_{part}.js").read_text(encoding="utf-8") for part in ("model", "rounds")]
    # In a function of its own: the page's drawing code has names of its own.
    return "\n".join(["const engine = (() => {", '"use strict";', *parts,
                      "return { GPT, Drafter, Speculation, walk, multiRound, trace };", "})();"])


def data():
    """Letters and weights as a script."""
    found = {"letters": LETTERS, **{name: packed(size) for name, size in MODELS.items()}}
    return f"const data = {json.dumps(found)};"


def write(folder):
    """Write live.html into a folder. A round is drawn by the step page's own code."""
    step = (HERE.parents[1] / "nanogpt/pictures/step.html").read_text(encoding="utf-8")
    style, body, script = re.search(
        r"<style>(.*)</style>.*<body>(.*)<script>(.*)\nconst keys =", step, re.S).groups()
    page = (HERE / "live.html").read_text(encoding="utf-8")
    for mark, text in {"/*STYLE*/": style, "<!--ROUND-->": body, "/*RENDERER*/": script,
                       "/*ENGINE*/": engine(), "/*DATA*/": data(),
                       "../README.md": "index.html", **WORDS}.items():
        if mark not in page:
            raise ValueError(f"{mark} is neither in live.html nor in the step page")
        page = page.replace(mark, text)
    (folder / "live.html").write_text(page, encoding="utf-8", newline="\n")
