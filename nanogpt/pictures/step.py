"""One real round of a chapter, to step through in a browser, and a GIF of it.

    python -m nanogpt.pictures.step 05_ddtree    # -> 05_ddtree/figures/step.jsonp, .html and .gif

A chapter's file of pictures says which round to show: step_round(args, dataset, device, prompt)
runs its own decoder and hands back a trace, plain data. A chapter ships its step.jsonp, data in a
function call: no page opened from a disk may read a JSON. step.html, one page for all, shows it:
open step.html#05_ddtree. round.js tells the frames from the trace and draws them; figures/step.html
is all of it in one file, and the GIF is its screenshots (Chromium, if it is there).
"""

import json
import re
import shutil
import subprocess
import tempfile
from itertools import islice
from pathlib import Path

import numpy as np
from PIL import Image, ImageChops

from nanogpt import cli
from nanogpt.chapter import load
from nanogpt.data import held_out_prompts
from nanogpt.sampling import Dice

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
         "--hide-scrollbars", "--enable-logging=stderr", "--allow-file-access-from-files")
WIDTH, SECONDS = 360, 3.5  # of the GIF: as wide as a phone; for a picture

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

    more: chapter, title, subtitle, rule (coins, walk, layers), drafted (drawn, top, best, heads);
    what else a rule's frames need, see tell() in round.js.
    """
    letters = [decode([token]) for token in range(vocab_size)]
    found = {"letters": "".join(letters) if max(map(len, letters)) == 1 else letters,
             "context": decode(one["text"][-60:]), "committed": len(one["text"]),
             **{key: one[key] for key in ("tokens", "parents", "kept", "emitted", "draws", "p",
                                          "q")}, **more}
    return json.loads(json.dumps(found), parse_float=lambda number: round(float(number), 6))


# ---------------------------------------------------------------- the page and the GIF


def script(found):
    """A trace as the script that step.html loads: a line a key.

    subtle: '</script>' inside a string would end a script in a page, so each '<' is written as
    \\u003c. No number is written with an exponent.
    """
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value, allow_nan=False)}"
                       for key, value in found.items()).replace("<", "\\u003c")
    plain = re.sub(r"\d(\.\d+)?e-\d+", lambda number: f"{float(number[0]):.6f}", lines)
    return f"recorded({{\n{plain}\n}});\n"


def page(data, title=None, head="", home="../README.md"):
    """step.html, its style, its scripts and a round in one file -> HTML.

    data: of `script`; head: more lines for the page's <head>; home: where its first link leads.
    """
    def text(name):
        return (HERE / name).read_text(encoding="utf-8")

    start, _, _ = text("step.html").rpartition("<script>")  # the last one looks for a step.jsonp
    parts = {'<link rel="stylesheet" href="round.css">': f"<style>\n{text('round.css')}</style>",
             '<script src="round.js"></script>': f"<script>\n{text('round.js')}</script>",
             "../../README.md": home, "</head>": f"{head}</head>",
             "<title>One round": f"<title>{title or 'One round'}"}
    for mark, part in parts.items():
        start = start.replace(mark, part)
    return f"{start}<script>\n{data}</script>\n</body>\n</html>\n"


def browse(address, *flags):
    """Open a page in Chromium -> its output and what it logged; None if there is no Chromium."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        return None
    done = subprocess.run([browser, *FLAGS, *flags, address], capture_output=True, text=True,
                          encoding="utf-8", timeout=300, check=True)
    return done.stdout, done.stderr


def save_gif(html, gif):
    """Screenshots of the end of each verb -> the GIF's path, or why there is none."""
    shots, address = [], html.as_uri() + "#embed&still&theme=light"
    with tempfile.TemporaryDirectory() as folder:
        opened = browse(address, "--dump-dom")
        if opened is None:
            return f"no {gif.name}: it needs one of {', '.join(BROWSERS)}"
        for frame in range(1, int(re.search(r'id="count">1 / (\d+)', opened[0])[1]) + 1):
            shot = Path(folder) / f"{frame}.png"
            browse(f"{address}&frame={frame}", f"--window-size={WIDTH},1200",
                   "--force-device-scale-factor=1.5", f"--screenshot={shot}")
            shots.append(Image.open(shot).convert("RGB"))
    drawn = [ImageChops.difference(shot, Image.new("RGB", shot.size, shot.getpixel((0, 0))))
             .getbbox()[3] for shot in shots]  # below that a page is empty
    shots = [shot.crop((0, 0, shot.width, max(drawn) + 9)) for shot in shots]
    colors = Image.fromarray(np.hstack(shots)).quantize(64)  # one palette for all
    shots = [shot.quantize(palette=colors, dither=Image.Dither.NONE) for shot in shots]
    times = [int(1000 * SECONDS)] * len(shots)
    times[-2] *= 2  # the verdict has the most to read
    shots[0].save(gif, save_all=True, append_images=shots[1:], optimize=True,
                  duration=times, loop=0)
    return gif


def own_target(args):
    """For a round of a lesson's own target. Raises ValueError if a flag asks for another."""
    for flag, usual in (("size", "baby"), ("precision", "auto"), ("corpus", "shakespeare"),
                        ("tokenizer", "char")):
        if getattr(args, flag) != usual:
            raise ValueError(f"{flag} is '{getattr(args, flag)}'; the target of this chapter's "
                             f"round is its lesson's own, so it takes no --{flag}")


def pictures_of(chapter):
    """A chapter's file of pictures."""
    found, = (ROOT / chapter).glob("*_pictures.py")
    return load(chapter[:2]).module(found.stem)


def main(argv=None):
    chapters = sorted(path.parent.name for path in ROOT.glob("0?_*/*_pictures.py"))
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
    data = script(pictures_of(args.chapter).step_round(args, dataset, device, prompt))
    html = args.out / "step.html"
    for path, text in ((args.out / "step.jsonp", data), (html, page(data))):
        path.write_text(text, encoding="utf-8", newline="\n")
        print(path)
    print(save_gif(html, args.out / "step.gif"))


if __name__ == "__main__":
    cli.run(main)
