"""A page to step through one real verification step of a chapter, key by key, and a GIF of it.

    python 05_ddtree/experiments/step_through.py      # -> 05_ddtree/figures/step.html and step.gif

The page is one self-contained HTML file: no server and no network, open it from the disk. What
happens on it is a trace (see story.py), recorded from the chapter's own decoder by `record` in the
chapter's step_through.py; step_page.html is the page without it, gif.py draws the GIF.
"""

import json
from pathlib import Path

from nanogpt import cli
from nanogpt.data import held_out_prompts
from nanogpt.pictures.gif import save_gif

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = Path(__file__).with_suffix(".html")
PLACE = "/*TRACE*/"  # in the template, where the trace goes


def chapters():
    """{number: folder} of the chapters whose step can be recorded, '01' to '06'."""
    scripts = sorted(ROOT.glob("0?_*/experiments/step_through.py"))
    return {path.parents[1].name[:2]: path.parents[1] for path in scripts}


def page(trace):
    """The template with a trace in it -> HTML.

    subtle: '</script>' inside a string would end the script, so each '<' is written as \\u003c.
    """
    data = json.dumps(trace, allow_nan=False).replace("<", "\\u003c")
    template = TEMPLATE.read_text(encoding="utf-8")
    before, after = template.split(PLACE)
    return before + data + after


def main(number, record, argv=None):
    """What a chapter's step_through.py does: its page and its GIF.

    number: of the chapter, '01' to '06'; record(args, dataset, device, prompt) -> the trace.
    Raises ValueError for a bad value.
    """
    p = cli.parser(f"Chapter {number}: make a page and a GIF of a real verification step.")
    cli.target_flags(p)
    p.add_argument("--prompt", type=cli.text, help="text to continue (default: a held-out one)")
    p.add_argument("--steps", type=int, default=60,
                   help="how many steps to decode; the most instructive one is shown")
    p.add_argument("--out", type=Path, default=chapters()[number] / "figures",
                   help="folder for step.html and step.gif")
    args = p.parse_args(argv)
    if args.steps < 1:
        raise ValueError(f"steps is {args.steps}; it must be at least 1")
    dataset, device = cli.setup(args)
    if args.prompt is None:
        args.prompt = dataset.tokenizer.decode(held_out_prompts(dataset, 1)[0])
    trace = record(args, dataset, device, cli.check_decoding(args, dataset))
    path = args.out / "step.html"
    try:
        path.write_text(page(trace), encoding="utf-8", newline="\n")
    except OSError as error:
        raise ValueError(f"page {path} cannot be written: {error.strerror}") from None
    print(f"{path}  ({len(trace['frames'])} frames; open it in a browser)")
    print(save_gif(trace, args.out / "step.gif"))
