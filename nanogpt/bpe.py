"""Make the small byte-pair vocabulary in data/: `python -m nanogpt.bpe`.

The trainer is tiktoken's own; it takes some minutes, once. The result is committed.
"""

import base64
from pathlib import Path

from tiktoken._educational import bpe_train

from nanogpt import cli
from nanogpt.data import SPLIT, VOCABULARY, load_text


def train_vocabulary(text, size):
    """The `size` byte-pair tokens of a text -> {bytes: rank}; the first 256 are the bytes."""
    return bpe_train(text, size, SPLIT, visualise=None)


def write_ranks(ranks, path: Path):
    """{bytes: rank} -> a file in tiktoken's format, one 'base64 rank' a line."""
    lines = [f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items()]
    path.write_text("".join(lines), encoding="ascii", newline="\n")


def main(argv=None):
    p = cli.Parser("Make the small byte-pair vocabulary anew (some minutes).")
    p.add_argument("--out", type=Path, default=VOCABULARY, help="file to write")
    args = p.parse_args(argv)
    if not args.out.parent.is_dir():
        raise ValueError(f"out is '{args.out}'; there is no folder '{args.out.parent}'")
    write_ranks(train_vocabulary(load_text(), 768), args.out)
    print(f"wrote {args.out}")


if __name__ == "__main__":
    cli.run(main)
