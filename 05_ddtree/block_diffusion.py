"""The block-diffusion drafter: one pass, L marginals.

Input: a block [b, m, ..., m] of the bonus token's embedding and L mask vectors. Context: hidden
states of several target layers, fused by one linear layer and injected as keys and values into
every drafter layer. Inside the block attention is bidirectional. The target's own embedding and
output matrix are shared and frozen. Output: logits (L, V), one distribution per future position.

    target features (T, F*C) --fuse--> context (T, C) --k, v--.
                                                              v
    [b, m, m, ..., m]  --embed--> block (L + 1, C) --> attention over (context, block) --> MLP
                                                              `--> target's lm_head --> (L, V)

The bonus token b has been chosen but not read by the target, so features exist only strictly
before it. A mask vector of the drafter's own stands for "not known yet": with 62 characters there
is no token to spare for it.

Source: Chen, Liang, Liu, "DFlash: Block Diffusion for Flash Speculative Decoding" (2026).
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from nanogpt.model import norm, rotate


@dataclass(frozen=True)
class BlockConfig:
    """length: L, the masked positions of a block. feature_layers: which hidden states of the
    target are fused (an index into the list that GPT.forward returns)."""

    length: int = 5
    n_layer: int = 1
    feature_layers: tuple = (2, 4, 6)
    mlp: int = 1  # width of the MLP, in multiples of C

    @classmethod
    def reading(cls, target, length=5):
        """A config whose features are the target's layers at a third, two thirds and the end.

        target: a GPT. Six layers give (2, 4, 6), four (1, 2, 4), one layer (1,).
        """
        n = target.config.n_layer
        return cls(length, feature_layers=tuple(sorted({max(1, n // 3), max(1, 2 * n // 3), n})))


class BlockLayer(nn.Module):
    """One drafter layer: attention from the block to (context, block), then an MLP."""

    def __init__(self, n_embd, n_head, mlp):
        super().__init__()
        self.n_head = n_head
        self.qkv = nn.Linear(n_embd, 3 * n_embd, bias=False)
        self.out = nn.Linear(n_embd, n_embd, bias=False)
        self.up = nn.Linear(n_embd, mlp * n_embd, bias=False)
        self.down = nn.Linear(mlp * n_embd, n_embd, bias=False)

    def forward(self, x, context, cos, sin, visible, cache, layer):
        """x (B, R, C): block rows; context (B, T, C): the rows before them, already normalised.

        Keys and values come from both, through the same matrices in one product; queries from the
        block alone. visible (B, 1, R, T + R) bool or None (all): which keys a row may see.
        """
        B, T, C = context.shape
        rows = torch.cat([context, norm(x)], 1)  # (B, T + R, C)
        qkv = self.qkv(rows).view(B, -1, 3, self.n_head, C // self.n_head)
        qkv = rotate(qkv, cos, sin).permute(2, 0, 3, 1, 4)  # (3, B, nh, T + R, hd)
        q, k, v = qkv
        if cache is not None:
            k, v = cache.write(layer, qkv[1:])  # (B, nh, past + T + R, hd)
        q = q[:, :, T:]  # the block asks, context and block answer
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=visible)  # (B, nh, R, hd)
        x = x + self.out(y.transpose(1, 2).reshape(x.shape))
        return x + self.down(F.relu(self.up(norm(x))).square())


class BlockDrafter(nn.Module):
    """The drafter's weights. The target's embedding and output matrix are borrowed, not owned."""

    def __init__(self, target, config):
        super().__init__()
        n_embd, n_head = target.config.n_embd, target.config.n_head
        layers, there = config.feature_layers, range(target.config.n_layer + 1)
        if not layers or not set(layers) <= set(there) or config.length < 1:
            raise ValueError(
                f"feature layers {layers} and length {config.length} do not fit a "
                f"target of {target.config.n_layer} layers"
            )
        self.config = config
        self.borrowed = [target]  # in a list, so that it is no submodule and gets no gradient
        self.fuse = nn.Linear(len(config.feature_layers) * n_embd, n_embd, bias=False)
        self.mask = nn.Parameter(torch.randn(n_embd) * target.embed.weight.std().item())
        self.blocks = nn.ModuleList(
            BlockLayer(n_embd, n_head, config.mlp) for _ in range(config.n_layer)
        )
        for block in self.blocks:
            nn.init.zeros_(block.out.weight)
            nn.init.zeros_(block.down.weight)

    @property
    def target(self):
        return self.borrowed[0]

    def features(self, hidden):
        """The target's list of (B, T, C) -> its feature layers side by side, (B, T, F*C)."""
        return torch.cat([hidden[i] for i in self.config.feature_layers], -1)

    def forward(self, features, roots, positions, cache=None, visible=None):
        """Blocks [root, mask x L] behind their context -> logits of the masked positions.

        features (B, T, F*C): of the context rows that the cache does not hold yet (without a
        cache: of all). A context row depends on nothing but itself, so its keys and values are
        written once and never computed again; the caller commits them.
        roots (B, A): the bonus tokens of A blocks; positions: RoPE positions of the T context
        rows, then of the A(L+1) block rows: a slice, (rows,) or (B, rows).
        visible (B, 1, A(L+1), T + A(L+1)) bool: which rows a block row may see; None: all.
        -> (B, A, L, V); [:, a, k - 1] is q_k of block a, for the token k places after its root.
        """
        cos, sin = self.target.cos[positions], self.target.sin[positions]  # (..., rows, 3, 1, hd)
        (B, T, _), A = features.shape, roots.shape[1]
        R = (cos.shape[-4] - T) // A  # rows of a block, L + 1
        masks = self.mask.expand(B, A, R - 1, -1)
        x = torch.cat([self.target.embed(roots)[:, :, None], masks], 2)  # (B, A, R, C)
        x = x.view(B, A * R, -1)
        context = norm(self.fuse(norm(features)))  # (B, T, C)
        for layer, block in enumerate(self.blocks):
            x = block(x, context, cos, sin, visible, cache, layer)
        x = x.view(B, A, R, -1)[:, :, 1:]  # the root's own slot predicts nothing
        return self.target.lm_head(norm(x))
