"""The flags that all scripts share, and a text that is printed as it is decoded."""

import argparse
import os

import torch

from nanogpt.data import TOKENIZERS, load_dataset
from nanogpt.decoding import collect
from nanogpt.device import pick_device
from nanogpt.packing import PRECISIONS
from nanogpt.sizes import SIZES
from nanogpt.terminal import Parser, print_table, run  # noqa: F401 (scripts say cli.run)


def parser(doc, corpus=True, retrain=True):
    """A Parser with the flags that scripts share.

    corpus: also --corpus and --tokenizer; retrain: also --retrain. A script that has no use for
    them does not take them.
    """
    p = Parser(doc)
    if corpus:
        p.add_argument("--corpus", default="shakespeare",
                       help="'shakespeare' (shipped) or the path of a text file")
        p.add_argument("--tokenizer", default="char", choices=TOKENIZERS, help="what a token is")
    p.add_argument("--device", default="auto", help="auto, cpu, cuda or mps")
    p.add_argument("--seed", type=int, default=1,
                   help="random seed (in tables, prompt i always uses seed i)")
    p.add_argument("--threads", type=int,
                   help="CPU threads (default: torch's choice; beside a GPU always one)")
    if retrain:
        p.add_argument("--retrain", action="store_true",
                       help="train again, even if a checkpoint fits")
    return p


def setup(args):
    """Apply the shared flags -> (dataset, device); the dataset is None for a script that takes no
    --corpus. Raises ValueError for a bad value."""
    if args.threads is not None:
        cores = os.cpu_count() or 1
        if not 1 <= args.threads <= cores:  # for far more, the system has no memory: a crash
            raise ValueError(f"threads is {args.threads}; it must be at least 1, and at most "
                             f"{cores}, the cores of this machine")
        torch.set_num_threads(args.threads)
    if not 0 <= args.seed < 2**32:
        raise ValueError(f"seed is {args.seed}; it must be in [0, {2**32})")
    torch.manual_seed(args.seed)
    dataset = load_dataset(args.corpus, args.tokenizer) if "corpus" in args else None
    return dataset, pick_device(args.device)


def text(value):
    """The type of a flag that takes a text: a shell's \\n is a line break."""
    try:
        value.encode()
    except UnicodeEncodeError:  # Python hands on what it cannot decode
        raise argparse.ArgumentTypeError(f"{value!a} is no text in UTF-8") from None
    return value.replace("\\n", "\n")


def target_flags(p):
    """Add --size and --precision, of the target and all that decodes beside it."""
    p.add_argument("--size", default="baby", choices=SIZES, help="which target")
    p.add_argument("--precision", default="auto", choices=PRECISIONS,
                   help="of the weights while decoding")


def decoding_flags(p):
    """Add the flags of every script that decodes."""
    target_flags(p)
    p.add_argument("--prompt", type=text, default="ROMEO:\n", help="text to continue")
    p.add_argument("--max-new-tokens", type=int, default=128,
                   help="how many tokens to write per prompt")
    p.add_argument("--prompts", type=int, default=6,
                   help="how many held-out prompts the table is measured on")


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


def writable(path):
    """See that a file can be written, and make its folder: before the work whose result it holds.

    Raises ValueError if it cannot.
    """
    make_folder(path.parent)
    try:
        there = path.exists()
        path.open("ab").close()
        if not path.is_file():  # a device: what is renamed into its place would end it
            raise OSError(0, "it is no file")
        if not there:
            path.unlink()
    except OSError as error:
        raise ValueError(f"'{path}' cannot be written: {error.strerror}") from None


def print_stream(steps, prompt, max_new_tokens, tokenizer):
    """Print a prompt, and its continuation as it is decoded -> Generation.

    steps: a generator of Steps; prompt: a text.
    """
    print(f"\n{prompt}", end="", flush=True)
    text = collect(steps, max_new_tokens,
                   on_tokens=lambda tokens: print(tokenizer.decode(tokens), end="", flush=True))
    print(f"\n\n{len(text.tokens)} tokens, {text.tau:.2f} per target forward")
    return text
