"""The flags that all scripts share, and one way to say no to bad input."""

import argparse
import sys

import torch

from nanogpt.data import TOKENIZERS, load_dataset
from nanogpt.device import pick_device


def parser(description):
    """An ArgumentParser with the flags that every script takes."""
    p = argparse.ArgumentParser(
        description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    p.add_argument("--corpus", default="shakespeare",
                   help="'shakespeare' (shipped), 'tiny' (downloaded) or the path of a text file")
    p.add_argument("--tokenizer", default="char", choices=TOKENIZERS)
    p.add_argument("--device", default="auto", help="auto, cpu, cuda or mps")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--threads", type=int, help="CPU threads (default: torch's choice)")
    p.add_argument("--retrain", action="store_true", help="train again, even if a checkpoint fits")
    return p


def setup(args):
    """Apply the shared flags -> (dataset, device). Raises ValueError for a bad value."""
    if args.threads is not None:
        if args.threads < 1:
            raise ValueError(f"threads is {args.threads}; it must be at least 1")
        torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    return load_dataset(args.corpus, args.tokenizer), pick_device(args.device)


def run(main):
    """Call main(); a ValueError becomes one sentence on stderr and exit status 2."""
    try:
        main()
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
