"""Corpora and tokenizers: text -> token ids.

Corpora: 'shakespeare' is shipped in data/; anything else is the path of a text file.
Tokenizers: 'char' (one token a character), 'bpe' (a small byte-pair vocabulary shipped in
data/, run by tiktoken).
"""

import base64
import hashlib
from dataclasses import dataclass
from pathlib import Path

import tiktoken
import torch

DATA = Path(__file__).resolve().parent.parent / "data"
TOKENIZERS = ("char", "bpe")
VOCABULARY = DATA / "shakespeare-bpe-768.tiktoken"  # made by nanogpt/weights.py
# Words with their leading space, runs of punctuation, line breaks: no token crosses a line end.
SPLIT = r"""'?[A-Za-z]+| [A-Za-z]+|[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?=\S)|\s+"""


def load_text(corpus="shakespeare"):
    """Name or path of a corpus -> its text. Raises ValueError if it is missing or empty."""
    path = DATA / "shakespeare.txt" if corpus == "shakespeare" else Path(corpus)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(
            f"corpus '{corpus}' cannot be read ({error.strerror}); it must be 'shakespeare' "
            "or the path of a text file"
        ) from None
    except UnicodeDecodeError:
        raise ValueError(f"corpus '{corpus}' is not a UTF-8 text file") from None
    if not text.strip():
        raise ValueError(f"corpus '{corpus}' is empty; it must hold some text")
    return text


class CharTokenizer:
    """One token a character; the vocabulary is the sorted set of the corpus' characters."""

    def __init__(self, text):
        self.chars = sorted(set(text))
        self.ids = {char: i for i, char in enumerate(self.chars)}
        self.vocab_size = len(self.chars)

    def encode(self, text):
        """Raises ValueError naming the first character that is not in the vocabulary."""
        try:
            return [self.ids[char] for char in text]
        except KeyError as error:
            raise ValueError(
                f"character {error.args[0]!r} at position {text.index(error.args[0])} is not in "
                f"the vocabulary; the {self.vocab_size} known ones are {''.join(self.chars)!r}"
            ) from None

    def decode(self, tokens):
        return "".join(self.chars[token] for token in tokens)


class BPETokenizer:
    """The shipped byte pairs; decoding never fails (a broken UTF-8 sequence shows as U+FFFD).

    Raises ValueError if the file does not hold `size` tokens.
    """

    def __init__(self, path=VOCABULARY, size=768):
        try:  # lines of 'base64 rank', as tiktoken has it
            lines = path.read_text(encoding="ascii").splitlines()
            ranks = {base64.b64decode(token): int(rank) for token, rank in map(str.split, lines)}
        except ValueError:
            ranks = {}
        if sorted(ranks.values()) != list(range(size)):
            raise ValueError(f"vocabulary {path} is damaged; `git checkout data` or a new download "
                             "brings it back")
        self.encoding = tiktoken.Encoding(
            "shakespeare-bpe", pat_str=SPLIT, mergeable_ranks=ranks, special_tokens={})
        self.vocab_size = len(ranks)

    def encode(self, text):
        return self.encoding.encode(text)

    def decode(self, tokens):
        return self.encoding.decode([int(t) for t in tokens])


def load_tokenizer(name, text):
    """'char' or 'bpe' -> tokenizer. Raises ValueError for anything else."""
    if name not in TOKENIZERS:
        raise ValueError(f"tokenizer is '{name}'; it must be one of {', '.join(TOKENIZERS)}")
    return CharTokenizer(text) if name == "char" else BPETokenizer()


@dataclass
class Dataset:
    """A tokenized corpus: train and val are 1-D long tensors."""

    tokenizer_name: str
    tokenizer: object
    train: torch.Tensor
    val: torch.Tensor
    sha256: str  # of the text: part of every checkpoint's key

    @property
    def vocab_size(self):
        return self.tokenizer.vocab_size

    def batch(self, split, size, length, generator):
        """Random crops: tokens (size, length) and their successors (size, length)."""
        starts = torch.randint(len(split) - length, (size, 1), generator=generator)
        rows = split[starts + torch.arange(length + 1)]  # (size, length + 1)
        return rows[:, :-1], rows[:, 1:]


def hold_out(text, stretches):
    """Cut the text into equal stretches; the last tenth of each is held out -> (train, val).

    One stretch is the usual 90/10 split. The shipped corpus is cut into ten, so that every work
    is seen in training and in validation (its last tenth is all sonnets).
    """
    size = -(-len(text) // stretches)
    parts = [text[i:i + size] for i in range(0, len(text), size)]
    cuts = [int(0.9 * len(part)) for part in parts]
    train = "".join(part[:cut] for part, cut in zip(parts, cuts, strict=True))
    return train, "".join(part[cut:] for part, cut in zip(parts, cuts, strict=True))


def load_dataset(corpus="shakespeare", tokenizer="char"):
    """-> Dataset. Raises ValueError for a missing, empty or too short corpus."""
    text = load_text(corpus)
    coder = load_tokenizer(tokenizer, text)
    train, val = hold_out(text, stretches=10 if corpus == "shakespeare" else 1)
    train, val = torch.tensor(coder.encode(train)), torch.tensor(coder.encode(val))
    if len(train) + len(val) < 6000:
        raise ValueError(
            f"corpus '{corpus}' has {len(train) + len(val)} tokens; at least 6000 are needed"
        )
    digest = hashlib.sha256(text.encode("utf-8")).hexdigest()
    return Dataset(tokenizer, coder, train, val, digest)


def spread_starts(dataset, count, length):
    """Where `count` stretches of `length` tokens begin that lie evenly over the validation text."""
    last = max(len(dataset.val) - length - 1, 0)
    return [round(i * last / max(count - 1, 1)) for i in range(count)]


def held_out_prompts(dataset, count, length=64):
    """`count` prompts of `length` tokens, spread evenly over the validation text -> lists."""
    return [dataset.val[start:start + length].tolist()
            for start in spread_starts(dataset, count, length)]


def untouched_prompts(dataset, count, length=64, but=24):
    """`count` prompts of the validation text that share no token with any of held_out_prompts, up
    to `but` of them: with those shapes and budgets were chosen, and whoever is compared on these
    was chosen on other text.

    Raises ValueError if there are not so many.
    """
    taken = torch.zeros(len(dataset.val), dtype=torch.bool)
    for n in range(1, but + 1):
        for start in spread_starts(dataset, n, length):
            taken[start:start + length] = True
    free, start = [], 0
    while start + length < len(dataset.val):
        here = taken[start:start + length]
        if here.any():
            start += 1 + int(here.nonzero()[-1])  # behind the last token that is taken
        else:
            free.append(start)
            start += length
    if count > len(free):
        raise ValueError(f"prompts is {count}; the validation text has {len(free)} on which "
                         "nothing was chosen")
    starts = [free[i * len(free) // count] for i in range(count)]  # evenly
    return [dataset.val[start:start + length].tolist() for start in starts]
