"""One real round of a chapter, to step through in a browser, and a GIF of it.

    python -m nanogpt.pictures.step 05_ddtree       # -> 05_ddtree/figures/step.html and step.gif

A chapter's pictures.py says which round to show: step_round(args, dataset, device, prompt) runs its
own decoder and hands back a trace, plain data. step.html is the page and the one renderer: it tells
the frames from the trace, and the GIF is its screenshots (Chromium, if it is there).
"""

import importlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from itertools import islice
from pathlib import Path

import numpy as np
from PIL import Image

from nanogpt import cli
from nanogpt.data import held_out_prompts
from nanogpt.pictures.plots import visible
from nanogpt.sampling import Dice

ROOT = Path(__file__).resolve().parents[2]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
         "--hide-scrollbars", "--enable-logging=stderr", "--allow-file-access-from-files")
WIDTH, SECONDS = 360, 18  # of the GIF: as wide as a phone; in all

# ---------------------------------------------------------------- watching a decoder


class VisibleDice(Dice):
    """A Dice that notes each draw: u in [0, 1), what it fell on, a coin's chance of success."""

    def __init__(self, seed=0):
        super().__init__(seed)
        self.draws = []

    def draw(self, probs):
        before = self.generator.bit_generator.state
        u = self.generator.random()
        self.generator.bit_generator.state = before  # the same number again, for the draw itself
        value = super().draw(probs)
        self.draws.append({"u": u, "value": value})
        return value

    def flip(self, p):
        kept = super().flip(p)
        self.draws[-1]["coin"] = float(p)
        return kept


def remember(thing, method):
    """Let an object's method keep what it returns, and change nothing else -> the growing list."""
    results, original = [], getattr(thing, method)

    def remembering(*args, **kwargs):
        results.append(original(*args, **kwargs))
        return results[-1]

    setattr(thing, method, remembering)
    return results


def watch(steps, dice, prompt, count, window, note=lambda: None):
    """Run a decoder whose dice is `dice` -> up to `count` rounds, dictionaries.

    steps: what the decoder yields, whose details hold a tree or a chain; window: of the target;
    note: called after each round, its `note`. It ends before the window slides.
    """
    rounds, text = [], list(prompt)
    text += next(steps).tokens
    for step in islice(steps, count):
        detail, first = step.detail, sum(len(r["draws"]) for r in rounds) + 1  # 1: the prefill's
        if hasattr(detail, "tree"):
            tree, kept = detail.tree, list(detail.path)
            tokens, parents, q = tree.tokens.tolist(), tree.parents.tolist(), tree.draft_probs
        else:  # a chain is a tree of width 1
            tokens, kept = [text[-1], *detail.drafted], list(range(detail.accepted + 1))
            parents, q = list(range(-1, len(tokens) - 1)), detail.draft_probs
        rounds.append({"tokens": tokens, "parents": parents, "kept": kept, "text": text[:-1],
                       "emitted": list(step.tokens), "p": detail.target_probs.tolist(),
                       "q": None if q is None else [row.tolist() for row in q],
                       "draws": dice.draws[first:], "note": note()})
        text += step.tokens
        if len(text) + len(tokens) > window:
            break
    return rounds


def instructive(rounds, decode):
    """The round to show: two drafts accepted, then one refused, and letters rather than blanks."""
    def value(one):
        kept, refused = one["kept"], one["kept"][-1] in one["parents"]
        second = any(one["parents"].index(a) != b for a, b in zip(kept, kept[1:], strict=False))
        letter = decode(one["tokens"][:1]).isalpha()
        return refused and min(len(kept) - 1, 2), second, letter, len(kept)

    return max(rounds, key=value)


def trace(one, decode, vocab_size, **more):
    """A round as the page wants it -> a dictionary that json.dumps takes.

    more: chapter, title, subtitle, rule (coins, walk, layers), drafted (drawn, best, heads),
    say_draft, say_verify; what else the rule's frames need, see tell() in step.html.
    """
    def known(row):  # the drafter's q of a draft, at its parent
        return one["q"][one["parents"][row]][one["tokens"][row]] if row and one["q"] else None

    found = {"letters": [visible(decode([token])) for token in range(vocab_size)],
             "context": [visible(decode([token])) for token in one["text"][-60:]],
             "committed": len(one["text"]), "groups": [0] * len(one["tokens"]), "names": [],
             "guesses": [known(row) for row in range(len(one["tokens"]))], "say_draft": "",
             "say_verify": "",
             **{key: one[key] for key in ("tokens", "parents", "p", "q", "draws", "kept",
                                          "emitted")}, **more}
    return json.loads(json.dumps(found), parse_float=lambda text: float(f"{float(text):.6g}"))


# ---------------------------------------------------------------- the page and the GIF


def page(found):
    """The template with a trace in it -> HTML.

    subtle: '</script>' inside a string would end the script, so each '<' is written as \\u003c.
    """
    data = json.dumps(found, allow_nan=False).replace("<", "\\u003c")
    return Path(__file__).with_suffix(".html").read_text(encoding="utf-8").replace(
        "/*TRACE*/", data)


def browse(address, *flags):
    """Open a page in Chromium -> its output and what it logged; None if there is no Chromium."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        return None
    done = subprocess.run([browser, *FLAGS, *flags, address], capture_output=True, text=True,
                          encoding="utf-8", timeout=120, check=True)
    return done.stdout, done.stderr


def save_gif(html, gif):
    """Screenshots of the end of each verb -> the GIF's path, or why there is none."""
    shots, address = [], html.as_uri() + "#embed&still&theme=light"
    with tempfile.TemporaryDirectory() as folder:
        opened = browse(address, f"--window-size={WIDTH},800", "--dump-dom")
        if opened is None:
            return f"no {gif.name}: it needs one of {', '.join(BROWSERS)}"
        count, height = re.search(r'data-still="(\d+) (\d+)"', opened[0]).groups()
        for frame in range(1, int(count) + 1):
            shot = Path(folder) / f"{frame}.png"
            browse(f"{address}&frame={frame}", f"--window-size={WIDTH},{height}",
                   "--force-device-scale-factor=1.5", f"--screenshot={shot}")
            shots.append(Image.open(shot).convert("RGB"))
    colors = Image.fromarray(np.hstack(shots)).quantize(200)  # one palette for all
    shots = [shot.quantize(palette=colors, dither=Image.Dither.NONE) for shot in shots]
    times = [1000 * SECONDS // (len(shots) + 1)] * len(shots)
    times[-2] *= 2  # the verdict has the most to read
    shots[0].save(gif, save_all=True, append_images=shots[1:], optimize=True,
                  duration=times, loop=1)  # twice, then it stands still
    return gif


def pictures_of(chapter):
    """A chapter's pictures.py, imported as from its own folder, with its own bench.py first."""
    sys.path.insert(0, str(ROOT / chapter))
    return importlib.import_module(f"{chapter}.pictures")


def main(argv=None):
    chapters = sorted(path.parent.name for path in ROOT.glob("0?_*/pictures.py"))
    p = cli.parser("Make a page and a GIF of a real round.")
    p.add_argument("chapter", choices=chapters, help="whose round")
    cli.target_flags(p)
    p.add_argument("--prompt", help="text to continue (default: a held-out one)")
    p.add_argument("--steps", type=int, default=60, help="how many rounds to choose from")
    p.add_argument("--out", type=Path, help="folder (default: the chapter's figures)")
    args = p.parse_args(argv)
    if args.steps < 1:
        raise ValueError(f"steps is {args.steps}; it must be at least 1")
    args.out = (args.out or ROOT / args.chapter / "figures").resolve()
    dataset, device = cli.setup(args)
    if args.prompt is None:
        args.prompt = dataset.tokenizer.decode(held_out_prompts(dataset, 1)[0])
    prompt = cli.check_decoding(args, dataset)
    html = args.out / "step.html"
    html.write_text(page(pictures_of(args.chapter).step_round(args, dataset, device, prompt)),
                    encoding="utf-8", newline="\n")
    print(html)
    print(save_gif(html, args.out / "step.gif"))


if __name__ == "__main__":
    cli.run(main)
