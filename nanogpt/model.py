"""GPT with a preallocated KV cache: the target of every chapter (and the small draft model).

A decoder-only transformer with rotary positions (RoPE), squared ReLU, layer norms without
parameters and linear layers without biases.
The contract that speculative decoding leans on:

    cache = target.new_cache()
    logits, hidden = target(tokens, positions, mask, cache)   # new rows behind cache.length
    cache.commit(rows)                                        # keep these new rows, in this order

`forward` never moves `cache.length`, so a rejected draft costs nothing to undo.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class GPTConfig:
    """The sizes of a GPT; rows of a batch may be of any length up to block_size."""

    vocab_size: int
    block_size: int = 256  # longest context, in tokens; also the number of RoPE positions
    n_layer: int = 4
    n_head: int = 4
    n_embd: int = 128


class KVCache:
    """Keys and values of one batch of sequences, all of the same length.

    kv: (n_layer, 2, B, n_head, rows, head_dim); rows 0..length-1 are committed.
    """

    def __init__(self, config, batch, rows, device, dtype):
        head_dim = config.n_embd // config.n_head
        # One tensor for all layers, made once: no torch.cat a token, and a gather is one call.
        shape = (config.n_layer, 2, batch, config.n_head, rows, head_dim)
        self.kv = torch.zeros(shape, device=device, dtype=dtype)
        self.length = 0  # committed rows; what lies behind them is scratch

    def reserve(self, n):
        """Make room for n rows behind the committed ones (a no-op on all but huge trees)."""
        missing = self.length + n - self.kv.shape[-2]
        if missing > 0:  # what is committed keeps its place; zeros come behind it
            self.kv = F.pad(self.kv, (0, 0, 0, missing))

    def write(self, layer, new):
        """new (2, B, n_head, N, head_dim): keys and values of N rows, placed behind `length`.

        -> all keys and values of the layer, committed and new, (2, B, n_head, length + N, head_dim)
        """
        end = self.length + new.shape[-2]
        # `length` stays: what `commit` does not keep, the next forward overwrites.
        self.kv[layer, ..., self.length:end, :] = new
        return self.kv[layer, ..., :end, :]

    def attend(self, layer, qkv, bias):
        """Attention of the new rows to all that is in the cache, themselves included.

        qkv (3, B, n_head, N, head_dim) -> (B, n_head, N, head_dim)
        """
        k, v = self.write(layer, qkv[1:])  # only the new rows were computed; the old ones are read
        return F.scaled_dot_product_attention(qkv[0], k, v, attn_mask=bias)

    def commit(self, rows):
        """Keep the new rows with these indices (0 = first row behind `length`), in this order.

        rows: a list of ints; everything else is forgotten.
        """
        n = len(rows)
        if rows != list(range(n)):  # a chain keeps a prefix, which already lies where it belongs
            index = torch.tensor([self.length + row for row in rows], device=self.kv.device)
            # A tree keeps a path. index_select copies first, so no row is lost under another.
            self.kv[..., self.length:self.length + n, :] = self.kv.index_select(-2, index)
        self.length += n


def norm(x):
    """Layer norm over the last axis, without parameters: (..., C) -> (..., C)."""
    return F.layer_norm(x, x.shape[-1:])


def rotate(qkv, cos, sin):
    """RoPE: turn each pair (x[i], x[i + head_dim/2]) of q and k by its position's angle.

    qkv (..., 3, n_head, head_dim); cos, sin (..., 3, 1, head_dim): see rope_tables.
    """
    cos, sin = cos.to(qkv.dtype), sin.to(qkv.dtype)  # a product of two dtypes is slow
    # (a, b) -> (a cos - b sin, b cos + a sin): roll swaps the halves, sin holds the minus.
    return torch.addcmul(qkv * cos, qkv.roll(qkv.shape[-1] // 2, -1), sin)


def rope_tables(block_size, head_dim):
    """cos and sin of each position's angles for q, k and v: (block_size, 3, 1, head_dim) each."""
    # The first pair turns by 1 a position, the last by about 1 / 10 000: near and far.
    frequency = 10_000.0 ** (-torch.arange(0, head_dim, 2) / head_dim)  # (hd/2,)
    angle = torch.arange(block_size)[:, None] * frequency  # (block_size, hd/2)
    cos, sin = angle.cos().repeat(1, 2), torch.cat([-angle.sin(), angle.sin()], 1)
    # v keeps its direction, as if turned by the angle 0: so one product serves all three.
    cos, sin = [cos, cos, torch.ones_like(cos)], [sin, sin, torch.zeros_like(sin)]
    return torch.stack(cos, 1)[:, :, None], torch.stack(sin, 1)[:, :, None]


class Attention(nn.Module):
    """Multi-head attention of new rows to the cached ones and to each other."""

    def __init__(self, config):
        super().__init__()
        self.n_head = config.n_head
        self.qkv = nn.Linear(config.n_embd, 3 * config.n_embd, bias=False)
        self.out = nn.Linear(config.n_embd, config.n_embd, bias=False)

    def forward(self, x, cos, sin, bias, cache, layer):
        """x (B, N, C); bias (N, past + N) or None is added to the scores: 0 or -inf."""
        B, N, C = x.shape
        qkv = self.qkv(x).view(B, N, 3, self.n_head, C // self.n_head)
        qkv = rotate(qkv, cos, sin).permute(2, 0, 3, 1, 4)  # (3, B, nh, N, hd)
        y = (cache.attend(layer, qkv, bias) if cache is not None else
             F.scaled_dot_product_attention(*qkv, attn_mask=bias))  # (B, nh, N, hd)
        return self.out(y.transpose(1, 2).reshape(B, N, C))


class Block(nn.Module):
    """One layer: attention, then an MLP, each added to the residual stream (B, N, C)."""

    def __init__(self, config):
        super().__init__()
        self.attention = Attention(config)
        self.up = nn.Linear(config.n_embd, 4 * config.n_embd, bias=False)
        self.down = nn.Linear(4 * config.n_embd, config.n_embd, bias=False)

    def forward(self, x, cos, sin, bias, cache, layer):
        x = x + self.attention(norm(x), cos, sin, bias, cache, layer)  # rows look at each other
        return x + self.down(F.relu(self.up(norm(x))).square())


class GPT(nn.Module):
    """tokens (B, N) -> logits (B, N, V) and the hidden states of every layer."""

    def __init__(self, config):
        super().__init__()
        if config.n_embd % config.n_head:
            raise ValueError(
                f"n_embd is {config.n_embd}; it must be a multiple of n_head = {config.n_head}"
            )
        self.config = config
        self.embed = nn.Embedding(config.vocab_size, config.n_embd)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)

        cos, sin = rope_tables(config.block_size, config.n_embd // config.n_head)
        # Buffers move with the model; they can be computed again, so no file holds them.
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                # The embedding is larger, or what the blocks add soon drowns it.
                nn.init.normal_(parameter, std=0.2 if name == "embed.weight" else 0.02)
            if name.endswith(("out.weight", "down.weight")):
                nn.init.zeros_(parameter)  # each block starts as the identity

    @property
    def block_size(self):
        return self.config.block_size

    @property
    def device(self):
        return self.embed.weight.device

    def new_cache(self, batch=1):
        """An empty cache."""
        rows = self.block_size + 128  # a full context and a tree of 128 rows behind it
        return KVCache(self.config, batch, rows, self.device, self.embed.weight.dtype)

    def check_window(self, rows):
        """Raises ValueError if so many rows do not fit into the context window."""
        if rows > self.block_size:
            raise ValueError(
                f"{rows} rows do not fit into the context window of {self.block_size}"
            )

    def forward(self, tokens, positions=None, mask=None, cache=None):
        """One pass over N new rows.

        tokens: (B, N) token ids, here or on the model's device, as positions and mask.
        positions: (N,) RoPE positions; default cache.length, cache.length + 1, ...
        mask: (N, M) with M >= N, over the LAST M rows (the N new ones are the last of them):
            bool, True = may attend; rows before those M are visible to all. Default: causal.
        cache: KVCache, or None to attend among the N rows only.
        Returns logits (B, N, V) and hidden, a list of n_layer + 1 tensors (B, N, C): hidden[i]
        is the residual stream after i blocks, hidden[0] the embedding.
        Raises ValueError if the N rows do not fit into the context window.
        """
        N, past = tokens.shape[1], cache.length if cache is not None else 0
        # Positions that are given are the caller's to check: looking would wait for the device.
        if positions is None:
            self.check_window(past + N)
            positions = slice(past, past + N)
        else:
            positions = positions.to(self.device)
        if cache is not None:
            cache.reserve(N)
        bias = None  # a single new row sees everything before it
        if mask is None and N > 1:
            mask = torch.ones(N, N, dtype=torch.bool, device=self.device).tril()
        if mask is not None:
            bias = self.embed.weight.new_zeros(N, past + N)  # 0: all that is cached is visible
            bias[:, -mask.shape[1]:].masked_fill_(~mask.to(self.device), -torch.inf)
        cos, sin = self.cos[positions], self.sin[positions]  # (N, 3, 1, hd)
        return self.layers(tokens.to(self.device), cos, sin, bias, cache)

    def layers(self, tokens, cos, sin, bias, cache):
        """The forward itself, with everything prepared on the device; see `forward`."""
        x = self.embed(tokens)  # (B, N, C)
        hidden = [x]  # draft heads and block drafters read what lies between the layers
        for layer, block in enumerate(self.blocks):
            x = block(x, cos, sin, bias, cache, layer)
            hidden.append(x)
        return self.lm_head(norm(x)), hidden  # (B, N, V)
