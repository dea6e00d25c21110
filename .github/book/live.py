"""The live page: two real models in one HTML file, to watch them speculate in a browser.

live.html is the page, live_model.js the models' forward, live_rounds.js a round of speculation.
`write` puts them and the weights of data/weights into one file that needs no network.
"""

import base64
import json
import re
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
DATA = HERE.parents[1] / "data"
MODELS = {"target": "small", "drafter": "draft"}
# The renderer's labels, in the live page's words.
WORDS = {"the target's own token": "the large model's own letter", "p, target": "p, large model",
         "q, drafter": "q, small model", '" of the target, "': '" of the large model, "',
         '" of the drafter"': '" of the small model"', '["accepted", "': '["kept", "',
         '["rejected", "': '["refused", "', '"the root"': '"the last letter"'}


def quantised(weights):
    """{name: (rows, columns)} -> {name: (int8, scales)}, one scale a row: half the file's size."""
    found = {}
    for name, weight in weights.items():
        weight = weight.float()
        scales = weight.abs().amax(1) / 127  # (rows,)
        found[name] = (weight / scales[:, None]).round().to(torch.int8), scales
    return found


def packed(size):
    """A model of data/weights as the page reads it -> a dictionary for JSON."""
    saved = torch.load(DATA / "weights" / f"{size}.pt", weights_only=True)
    parts = quantised(saved["model"])

    def text(tensors):
        return base64.b64encode(b"".join(t.numpy().tobytes() for t in tensors)).decode()

    return {"config": saved["config"]["model"],
            "shapes": {name: list(values.shape) for name, (values, _) in parts.items()},
            "values": text(values for values, _ in parts.values()),
            "scales": text(scales for _, scales in parts.values())}


def unpacked(size):
    """What the page computes with -> {name: float32 (rows, columns)}."""
    saved = torch.load(DATA / "weights" / f"{size}.pt", weights_only=True)
    return {name: values * scales[:, None]
            for name, (values, scales) in quantised(saved["model"]).items()}


def letters():
    """The models' vocabulary: the characters of the corpus, in the order of their numbers."""
    return sorted(set((DATA / "shakespeare.txt").read_text(encoding="utf-8")))


def engine():
    """The two files of the engine as one script."""
    parts = [(HERE / f"live_{part}.js").read_text(encoding="utf-8") for part in ("model", "rounds")]
    # In a function of its own: the page's drawing code has names of its own.
    return "\n".join(["const engine = (() => {", '"use strict";', *parts,
                      "return { GPT, Drafter, Speculation, walk, multiRound, trace };", "})();"])


def data():
    """Letters and weights as a script."""
    found = {"letters": letters(), **{name: packed(size) for name, size in MODELS.items()}}
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
        page = page.replace(mark, text)
    (folder / "live.html").write_text(page, encoding="utf-8", newline="\n")
