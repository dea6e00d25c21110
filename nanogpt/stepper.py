"""A page to step through one real verification step of a chapter, key by key.

    python -m nanogpt.stepper --chapter 05      # without --chapter: all six

Writes one self-contained HTML file a chapter: no server and no network, open it from the disk.
What happens on the page is a trace (see trace.py), recorded from the chapter's own decoder by the
`step_through.py` in its folder; stepper.html is the page without it.
"""

import json
import runpy
import sys
from pathlib import Path

from nanogpt import cli
from nanogpt.data import held_out_prompts
from nanogpt.precision import PRECISIONS
from nanogpt.train import SIZES

ROOT = Path(__file__).resolve().parents[1]
TEMPLATE = Path(__file__).with_suffix(".html")
PLACE = "/*TRACE*/"  # in the template, where the trace goes


def chapters():
    """{number: folder} of the chapters whose step can be recorded, '01' to '06'."""
    return {path.parent.name[:2]: path.parent for path in sorted(ROOT.glob("0?_*/step_through.py"))}


def page(trace):
    """The template with a trace in it -> HTML.

    subtle: '</script>' inside a string would end the script, so each '<' is written as \\u003c.
    """
    data = json.dumps(trace, allow_nan=False).replace("<", "\\u003c")
    template = TEMPLATE.read_text(encoding="utf-8")
    before, after = template.split(PLACE)
    return before + data + after


def trace_flags(description, out):
    """The flags that stepper and animate share -> parser. out: the default folder."""
    p = cli.parser(description)
    p.add_argument("--chapter", choices=list(chapters()), help="default: all")
    p.add_argument("--size", default="baby", choices=SIZES, help="of the target")
    p.add_argument("--precision", default="auto", choices=PRECISIONS, help="of decoding")
    p.add_argument("--prompt", help="text to continue (default: a held-out one)")
    p.add_argument("--steps", type=int, default=150, help="decoded; one of them is chosen")
    p.add_argument("--out", type=Path, default=out, help="folder for the result")
    p.set_defaults(max_new_tokens=1, prompts=1)  # the flags of check_decoding that have no use here
    return p


def record(args):
    """Yield (number, folder, trace) for the chapters asked for, recorded one after the other.

    Raises ValueError for a bad value.
    """
    if args.steps < 1:
        raise ValueError(f"steps is {args.steps}; it must be at least 1")
    dataset, device = cli.setup(args)
    if args.prompt is None:
        args.prompt = dataset.tokenizer.decode(held_out_prompts(dataset, 1)[0])
    prompt = cli.check_decoding(args, dataset)
    for number, folder in chapters().items():
        if args.chapter in (None, number):
            chapter = runpy.run_path(str(folder / "step_through.py"))
            yield number, folder, chapter["record"](args, dataset, device, prompt)


def main(argv=None):
    p = trace_flags("Write a page to step through a real verification step.", ROOT / "figures")
    args = p.parse_args(argv)
    for number, _, trace in record(args):
        path = args.out / f"step-through-{number}.html"
        try:
            path.write_text(page(trace), encoding="utf-8", newline="\n")
        except OSError as error:
            raise ValueError(f"page {path} cannot be written: {error.strerror}") from None
        print(f"{path}  ({len(trace['frames'])} frames; open it in a browser)")


def run_chapter(number):
    """What a chapter's step_through.py does as a script: its page alone."""
    cli.run(lambda: main(["--chapter", number, *sys.argv[1:]]))


if __name__ == "__main__":
    cli.run(main)
