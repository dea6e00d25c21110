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

    length: int = 8
    n_layer: int = 1
    feature_layers: tuple = (2, 4, 6)
    mlp: int = 2  # width of the MLP, in multiples of C


class BlockLayer(nn.Module):
    """One drafter layer: attention from the block to (context, block), then an MLP."""

    def __init__(self, n_embd, n_head, mlp):
        super().__init__()
        self.n_head = n_head
        self.qkv = nn.Linear(n_embd, 3 * n_embd, bias=False)
        self.out = nn.Linear(n_embd, n_embd, bias=False)
        self.up = nn.Linear(n_embd, mlp * n_embd, bias=False)
        self.down = nn.Linear(mlp * n_embd, n_embd, bias=False)

    def project(self, x, cos, sin):
        """x (B, R, C), normalised -> q, k (both rotated) and v, each (B, n_head, R, head_dim).

        The same projection serves the context and the block's own states; the context's queries
        are not used.
        """
        B, R, C = x.shape
        qkv = self.qkv(x).view(B, R, 3, self.n_head, C // self.n_head)
        qk = rotate(qkv[:, :, :2], cos, sin)
        return (t.transpose(1, 2) for t in (qk[:, :, 0], qk[:, :, 1], qkv[:, :, 2]))

    def forward(self, x, cos, sin, context, layer, blocked):
        """x (B, R, C) block rows; context: what `write(layer, k, v)` joins to the block's keys;
        blocked (B, 1, R, T + R) bool or None: which keys a row may not see."""
        q, k, v = self.project(norm(x), cos, sin)
        k, v = context.write(layer, k, v)  # (B, nh, T + R, hd)
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
        if blocked is not None:
            scores = scores.masked_fill(blocked, -torch.inf)
        y = torch.softmax(scores, -1) @ v.to(q.dtype)
        x = x + self.out(y.transpose(1, 2).reshape(x.shape))
        return x + self.down(F.relu(self.up(norm(x))).square())


class FreshContext:
    """A context for training: computed with the batch, joined without writing in place.

    When decoding, a KVCache stands here: same `write`, but nothing is copied or computed again.
    """

    def __init__(self, keys_values):
        self.keys_values = keys_values  # for each layer (k, v), each (B, n_head, T, head_dim)

    def write(self, layer, k, v):
        """-> the context's keys and values with the block's behind them."""
        old_k, old_v = self.keys_values[layer]
        return torch.cat([old_k, k], 2), torch.cat([old_v, v], 2)


class BlockDrafter(nn.Module):
    """The drafter's weights. The target's embedding and output matrix are borrowed, not owned."""

    def __init__(self, target, config):
        super().__init__()
        n_embd, n_head = target.config.n_embd, target.config.n_head
        if max(config.feature_layers) > target.config.n_layer or config.length < 1:
            raise ValueError(
                f"feature layers {config.feature_layers} and length {config.length} do not fit a "
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

    def tables(self, positions):
        """RoPE tables for rows at these positions, shaped for (..., R, 2, n_head, head_dim)."""
        cos, sin = self.target.cos[positions], self.target.sin[positions]  # (..., R, hd)
        return cos[..., None, None, :], sin[..., None, None, :]

    def context(self, hidden, positions):
        """hidden: the target's list of (B, T, C) -> for each layer keys and values of the rows.

        positions (T,): where the rows stand. Each row depends on nothing but itself, so the
        context is cached and extended by newly committed rows, never computed again.
        """
        features = torch.cat([hidden[i] for i in self.config.feature_layers], -1)  # (B, T, F*C)
        x = norm(self.fuse(norm(features)))
        cos, sin = self.tables(positions)
        return [tuple(block.project(x, cos, sin))[1:] for block in self.blocks]

    def forward(self, roots, positions, context, blocked=None):
        """Blocks [root, mask x L] -> logits of the masked positions.

        roots (B, A): the bonus tokens of A blocks; positions (B, A, L + 1) or (L + 1,);
        context: a FreshContext, or a KVCache that holds the committed rows;
        blocked (B, 1, A(L+1), T + A(L+1)) bool or None.
        -> (B, A, L, V); block a, slot i is the distribution of the token i + 1 places after the
        root.
        """
        (B, A), rows = roots.shape, positions.shape[-1]
        masks = self.mask.expand(B, A, rows - 1, -1)
        x = torch.cat([self.target.embed(roots)[:, :, None], masks], 2)  # (B, A, L + 1, C)
        x = x.view(B, A * rows, -1)
        cos, sin = self.tables(positions if positions.ndim == 1 else positions.view(B, A * rows))
        for layer, block in enumerate(self.blocks):
            x = block(x, cos, sin, context, layer, blocked)
        x = x.view(B, A, rows, -1)[:, :, 1:]  # the root's own slot predicts nothing
        return self.target.lm_head(norm(x))
