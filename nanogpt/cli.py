"""The terminal: the flags that all scripts share, one way to say no, tables and text."""

import argparse
import logging
import sys
import textwrap

import torch

from nanogpt.data import TOKENIZERS, load_dataset
from nanogpt.decoding import collect
from nanogpt.device import pick_device
from nanogpt.packing import PRECISIONS
from nanogpt.sampling import Sampler
from nanogpt.sizes import SIZES


class HelpFormatter(argparse.ArgumentDefaultsHelpFormatter):
    """Prints a flag's default, unless there is none or the help text names it."""

    def _get_help_string(self, action):
        if action.default is None or action.default is False or "default" in action.help:
            return action.help
        return super()._get_help_string(action)


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that says what is wrong in one sentence, without the usage before it."""

    def __init__(self, description):
        # No abbreviations: --temperature is not --temperatures.
        super().__init__(description=description, formatter_class=HelpFormatter,
                         allow_abbrev=False)

    def error(self, message):
        """Raises ValueError, which `run` prints."""
        raise ValueError(f"{message}; --help lists the flags")


def parser(description):
    """A Parser with the flags that every script takes."""
    p = Parser(description)
    p.add_argument("--corpus", default="shakespeare",
                   help="'shakespeare' (shipped) or the path of a text file")
    p.add_argument("--tokenizer", default="char", choices=TOKENIZERS, help="what a token is")
    p.add_argument("--device", default="auto", help="auto, cpu, cuda or mps")
    p.add_argument("--seed", type=int, default=1,
                   help="random seed (in tables, prompt i always uses seed i)")
    p.add_argument("--threads", type=int, help="CPU threads (default: torch's choice)")
    p.add_argument("--retrain", action="store_true", help="train again, even if a checkpoint fits")
    return p


def setup(args):
    """Apply the shared flags -> (dataset, device). Raises ValueError for a bad value."""
    if args.threads is not None:
        if args.threads < 1:
            raise ValueError(f"threads is {args.threads}; it must be at least 1")
        torch.set_num_threads(args.threads)
    if not 0 <= args.seed < 2**32:
        raise ValueError(f"seed is {args.seed}; it must be in [0, {2**32})")
    torch.manual_seed(args.seed)
    return load_dataset(args.corpus, args.tokenizer), pick_device(args.device)


def text(value):
    """The type of a flag that takes a text: a shell's \\n is a line break."""
    return value.replace("\\n", "\n")


def target_flags(p, precision="auto"):
    """Add --size and --precision, of the target and all that decodes beside it."""
    p.add_argument("--size", default="baby", choices=SIZES, help="which target")
    p.add_argument("--precision", default=precision, choices=PRECISIONS,
                   help="of the weights while decoding")


def decoding_flags(p):
    """Add the flags of every script that decodes."""
    target_flags(p)
    p.add_argument("--prompt", type=text, default="ROMEO:\n", help="text to continue")
    p.add_argument("--max-new-tokens", type=int, default=128,
                   help="how many tokens to write per prompt")
    p.add_argument("--prompts", type=int, default=6,
                   help="how many held-out prompts the table is measured on")


def sampler_flags(p, temperature=0.0):
    """Add --temperature, --top-k and --top-p."""
    p.add_argument("--temperature", type=float, default=temperature, help="0 is greedy")
    p.add_argument("--top-k", type=int, help="draw from the k most probable tokens only")
    p.add_argument("--top-p", type=float, default=1.0,
                   help="draw from the fewest tokens with this probability in all")


def temperatures_flag(p):
    """Add --temperatures, of the scripts that print a table for each."""
    p.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 1.0],
                   help="one table for each; 0 is greedy")


def make_sampler(args):
    """The Sampler that sampler_flags describe. Raises ValueError for a bad value."""
    return Sampler(args.temperature, args.top_k, args.top_p)


def check_decoding(args, dataset):
    """Refuse bad decoding flags before anything is trained -> the prompt's tokens.

    Raises ValueError for an empty prompt, an unknown character, too small a count, or a bad folder.
    A script need not have the flags of the counts.
    """
    # The first token belongs to the prefill: a rate takes a second one.
    for name, least in (("max_new_tokens", 2), ("prompts", 1)):
        if getattr(args, name, least) < least:
            raise ValueError(f"{name} is {getattr(args, name)}; it must be at least {least}")
    prompt = dataset.tokenizer.encode(args.prompt)
    if not prompt:
        raise ValueError("the prompt is empty; it must hold at least one token")
    if "out" in args:
        make_folder(args.out)
    return prompt


def make_folder(folder):
    """Make a folder, if it is not there. Raises ValueError if it cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"folder '{folder}' cannot be made: {error.strerror}") from None


def run(main):
    """Call main(); a ValueError becomes one sentence on stderr and exit status 2, Ctrl-C 130."""
    sys.stdout.reconfigure(errors="replace")  # a console may not know every character
    logging.basicConfig(format="%(message)s", stream=sys.stdout)
    logging.getLogger("nanogpt").setLevel(logging.INFO)
    try:
        main()
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        raise SystemExit(130) from None


# ---------------------------------------------------------------- tables and text, in plain ASCII

WIDTH = 100  # columns of a terminal; what is longer would be broken anywhere


def print_table(header, rows):
    """Print rows of cells under a header; the first column to the left, the others to the right.

    A long cell of the first column goes on in the next line, where the table would be too wide.
    """
    cells = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    room = WIDTH - sum(widths[1:]) - 2 * (len(widths) - 1)
    widths[0] = min(widths[0], max(room, 20))
    for number, row in enumerate(cells):
        first, *more = textwrap.wrap(row[0], widths[0], subsequent_indent="  ",
                                     break_on_hyphens=False) or [""]
        line = [first.ljust(widths[0])]
        line += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        print("  ".join(line).rstrip())
        for rest in more:
            print(rest)
        if number == 0:
            print("  ".join("-" * width for width in widths))


def print_stream(steps, prompt, max_new_tokens, tokenizer):
    """Print a prompt, and its continuation as it is decoded -> Generation.

    steps: a generator of Steps; prompt: a text.
    """
    print(f"\n{prompt}", end="", flush=True)
    text = collect(steps, max_new_tokens,
                   on_tokens=lambda tokens: print(tokenizer.decode(tokens), end="", flush=True))
    print(f"\n\n{len(text.tokens)} tokens, {text.tau:.2f} per target forward")
    return text
