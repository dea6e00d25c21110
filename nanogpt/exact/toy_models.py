"""Toy models for exact enumeration: random distributions for every prefix, without a network.

A ToyModel speaks through the interfaces that the decoding loops know: ToyTarget is called as a GPT
is, with a cache, positions and a mask; ToyDraft drafts chains and trees, ToyHead the trees of
chapter 03.
"""

from itertools import compress

import torch

from nanogpt.exact.enumeration import loop_distribution, target_distribution, total_variation
from nanogpt.model import GPT, GPTConfig


class ToyModel:
    """A language model without a network: independent random logits for every prefix.

    seed: the model; vocab: V; logits are float64, so enumeration is exact to about 1e-16.
    scale stretches the logits: a large scale gives peaked distributions.
    """

    def __init__(self, seed, vocab=4, scale=1.0):
        self.seed, self.vocab, self.scale, self.known = seed, vocab, scale, {}

    def logits(self, prefix):
        """prefix: tuple of tokens -> (V,) logits of the next token."""
        prefix = tuple(int(t) for t in prefix)
        if prefix not in self.known:
            number = self.seed
            for token in prefix:  # a hash that is the same in every process
                number = (number * 1_000_003 + token + 1) % (2**61 - 1)
            generator = torch.Generator().manual_seed(number)
            self.known[prefix] = self.scale * torch.randn(
                self.vocab, generator=generator, dtype=torch.float64
            )
        return self.known[prefix]


class ToyCache:
    """The KVCache contract on plain tokens: new rows behind the text, commit keeps some."""

    def __init__(self):
        self.text, self.rows = [], []

    @property
    def length(self):
        return len(self.text)

    @length.setter
    def length(self, n):
        self.text = self.text[:n]

    def commit(self, rows):
        self.text = self.text + [self.rows[row] for row in rows]


def prefix_of(slots):
    """What a row reads, from the (position, token) of all rows that it sees -> a tuple of tokens.

    A gap or a clash of positions makes a prefix that no plain decoding ever has.
    """
    slots = sorted(slots, key=lambda slot: slot[0])
    good = [position for position, _ in slots] == list(range(len(slots)))
    return tuple(token for _, token in slots) + (() if good else (-7,))


class ToyTarget:
    """A ToyModel behind GPT's interface, for running a whole decoding loop by enumeration.

    Each row's prefix is read off the cache, the mask and the positions, as attention would see
    it. A sibling that is visible, a wrong position or a wrongly gathered row changes the prefix,
    so it changes the distribution of the output.
    """

    device = torch.device("cpu")

    def __init__(self, model, block_size=64):
        self.model, self.block_size = model, block_size
        self.config = GPTConfig(model.vocab, block_size, 1, 1, 1)
        self.cos = self.sin = torch.arange(block_size)  # for `layers`: a row's "angle" is its place

    def new_cache(self, batch=1):
        return ToyCache()

    def __call__(self, tokens, positions=None, mask=None, cache=None):
        """tokens (1, N) -> logits (1, N, V), hidden: one layer (1, N, 1) that holds the tokens."""
        tokens, past = tokens[0].tolist(), cache.text
        n = len(tokens)
        if positions is None:
            positions = torch.arange(len(past), len(past) + n)
        if mask is None:
            mask = torch.ones(n, n, dtype=torch.bool).tril()
        slots = list(enumerate(past)) + list(zip(positions.tolist(), tokens, strict=True))
        logits = []
        for row in range(n):
            columns = torch.ones(len(slots), dtype=torch.bool)
            columns[len(slots) - mask.shape[1]:] = mask[row]
            logits.append(self.model.logits(prefix_of(
                [slot for slot, visible in zip(slots, columns.tolist(), strict=True) if visible])))
        cache.rows = tokens
        return torch.stack(logits)[None], [torch.tensor(tokens)[None, :, None]]

    def layers(self, tokens, cos, sin, bias, cache):
        """GPT.layers for the engine: a row's key is its token, its value its position.

        What its attention gives a row is the number of the prefix that it sees.
        """
        prefixes = []

        def attention(q, k, v, attn_mask):
            for keys, values, masks in zip(k[:, 0, :, 0].tolist(), v[:, 0, :, 0].tolist(),
                                           attn_mask[:, 0].tolist(), strict=True):
                prefixes.extend(prefix_of(compress(zip(values, keys, strict=True), seen))
                                for seen in masks)
            last = len(prefixes)
            return torch.arange(last - q.numel(), last).view(q.shape)

        qkv = torch.stack([tokens[0], tokens[0], cos])[:, None, None, :, None]  # (3, 1, 1, N, 1)
        numbers = cache.attend(0, qkv, bias, attention).flatten()  # (N,)
        return torch.stack([self.model.logits(prefixes[n]) for n in numbers])[None], []


class ToyDraft:
    """A ToyModel as a draft model, for chains (`logits`) and for trees (`level`)."""

    def __init__(self, model):
        self.model = model
        self.reset()

    def reset(self):
        self.text, self.new = [], []

    def observe(self, tokens, hidden=None, rows=None):
        self.text, self.new = self.text + tokens, []

    def logits(self, token):
        self.new = self.new + [token]
        return self.model.logits(tuple(self.text + self.new))

    def level(self, tokens, parents):
        if parents == [-1]:
            self.paths = []
        start = [self.paths[p] if p >= 0 else () for p in parents]
        paths = [path + (token,) for path, token in zip(start, tokens, strict=True)]
        self.paths = self.paths + paths
        return torch.stack([self.model.logits(tuple(self.text) + path) for path in paths])


class ToyHead:
    """A ToyModel as one of chapter 03's draft heads: its state is the text itself.

    It learns the text from the hidden rows of a ToyTarget, which are the tokens that were read.
    """

    def __init__(self, seed, vocab=3, scale=1.0):
        self.model = ToyModel(seed, vocab, scale)
        self.reset()

    def reset(self):
        self.state = torch.zeros(1, 0, dtype=torch.long)

    def observe(self, tokens, hidden, rows):
        self.state = torch.cat([self.state, hidden[0][:, rows, 0]], 1)

    def read(self, states, tokens):
        """states (n, T), the texts so far; n tokens -> log-probabilities (n, V), longer states."""
        states = torch.cat([states, torch.tensor(tokens)[:, None]], 1)
        logits = torch.stack([self.model.logits(row) for row in states.tolist()])
        return torch.log_softmax(logits, -1), states


# ---------------------------------------------------------------- small random networks


def random_gpt(seed, vocab=11, block_size=32, width=16):
    """A small GPT in float64 with weights large enough that its argmax is not constant."""
    torch.manual_seed(seed)
    model = GPT(GPTConfig(vocab, block_size, 2, 2, width)).double().eval()
    for parameter in model.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.4)
    return model


class GPTModel:
    """A real network with a ToyModel's interface: its logits for every prefix. Of a long one it
    reads what Context's window rule leaves."""

    def __init__(self, target):
        self.target, self.vocab, self.known = target, target.config.vocab_size, {}

    @torch.inference_mode()
    def logits(self, prefix):
        prefix = tuple(prefix)
        if prefix not in self.known:
            size, start = self.target.block_size, 0
            while len(prefix) - 1 - start >= size:  # the window was full before the last token
                start += size - size // 2
            self.known[prefix] = self.target(torch.tensor([prefix[start:]]))[0][0, -1]
        return self.known[prefix]


def random_nodes(seed, vocab=3, size=9):
    """-> tokens and parents of a random tree of `size` nodes, equal siblings included."""
    generator = torch.Generator().manual_seed(seed)
    parents = [-1] + [int(torch.randint(i, (1,), generator=generator)) for i in range(1, size)]
    tokens = torch.randint(vocab, (size,), generator=generator)
    tokens[0] = 0
    return tokens, parents


def loop_bias(start, sampler, rounds=1, length=4, model=None, prompt=(0, 1)):
    """Total variation between the text of a decoding loop and that of its target, exactly.

    start(target, dice) -> the loop's Steps, on the model's ToyTarget; see loop_distribution.
    """
    model = model or ToyModel(5, 3)
    emitted = loop_distribution(
        lambda dice: start(ToyTarget(model), dice), model, sampler, prompt, rounds, length)
    return total_variation(emitted, target_distribution(model, sampler, prompt, length))
