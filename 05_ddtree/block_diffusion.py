"""The block-diffusion drafter: one pass, L marginals.

Input: a block [b, m, ..., m], the root's embedding and L mask vectors. Context: hidden
states of several target layers, fused by one linear layer and injected as keys and values into
every drafter layer. The target's embedding and output matrix are shared and frozen. Output: logits
(L, V), one distribution per future position.

    target features (T, F*C) --fuse--> context (T, C) --k, v--.
                                                              v
    [b, m, m, ..., m]  --embed--> block (L + 1, C) --> attention over (context, block) --> MLP
                                                              `--> target's lm_head --> (L, V)

BlockDrafter is the network; BlockDraft runs it beside the target and remembers the context.

Source: Chen, Liang, Liu, "DFlash: Block Diffusion for Flash Speculative Decoding" (2026).
"""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import nn

from nanogpt.model import KVCache, norm, rotate

# ---------------------------------------------------------------- the network


@dataclass(frozen=True)
class BlockConfig:
    """The shape of a drafter; with the target's it determines the weights."""

    length: int = 5  # L, the masked positions of a block
    n_layer: int = 1
    feature_layers: tuple = (2, 4, 6)  # of the target: indices into `hidden`, see GPT.forward
    mlp: int = 1  # width of the MLP, in multiples of C
    transition: bool = True  # with a table W, see conditional_marginals.py; False: DFlash's own

    @classmethod
    def reading(cls, target):
        """A config whose features are the target's layers at a third, two thirds and the end.

        target: a GPT. Six layers give (2, 4, 6), four (1, 2, 4), one layer (1,).
        """
        n = target.config.n_layer
        layers = tuple(sorted({max(1, n // 3), max(1, 2 * n // 3), n}))
        return cls(feature_layers=layers)


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

        visible (B, 1, R, T + R) bool: which rows a block row may see; None: all.
        """
        B, T, C = context.shape
        # Context and block share the matrices, so one product serves both. (While decoding, T is
        # only the handful of tokens that the last round committed.)
        rows = torch.cat([context, norm(x)], 1)  # (B, T + R, C)
        qkv = self.qkv(rows).view(B, -1, 3, self.n_head, C // self.n_head)
        qkv = rotate(qkv, cos, sin).permute(2, 0, 3, 1, 4)  # (3, B, nh, T + R, hd)
        q, k, v = qkv
        q = q[:, :, T:]  # the block asks; a context row has nothing left to predict
        if cache is not None:
            k, v = cache.write(layer, qkv[1:])  # (B, nh, past + T + R, hd)
        # No causal mask: a masked slot may look at the slots to its right as well. There is no
        # token to peek at, for every slot but the root's holds the same mask vector.
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=visible)  # (B, nh, R, hd)
        x = x + self.out(y.transpose(1, 2).reshape(x.shape))
        return x + self.down(F.relu(self.up(norm(x))).square())


class BlockDrafter(nn.Module):
    """The drafter's weights. The target's embedding and output matrix are borrowed, not owned."""

    home = "cpu"  # where its few logits are worked on

    def __init__(self, target, config):
        super().__init__()
        n_embd, n_head = target.config.n_embd, target.config.n_head
        self.config = config
        self.borrowed = [target]  # in a list, so that it is no submodule and gets no gradient
        self.width = len(config.feature_layers) * n_embd  # F*C, of the features
        self.fuse = nn.Linear(self.width, n_embd, bias=False)
        # "Not known yet", a vector of the drafter's own: 62 characters leave no token to spare.
        # Its entries start as large as those of the embeddings that it stands among.
        self.mask = nn.Parameter(torch.randn(n_embd) * target.embed.weight.std().item())
        self.blocks = nn.ModuleList(
            BlockLayer(n_embd, n_head, config.mlp) for _ in range(config.n_layer)
        )
        # W: what the token before slot k adds to the slot's logits. It starts at "nothing".
        vocab = target.config.vocab_size
        self.transition = (nn.Parameter(torch.zeros(config.length, vocab, vocab))
                           if config.transition else None)
        for block in self.blocks:  # each layer starts as the identity, as the target's do
            nn.init.zeros_(block.out.weight)
            nn.init.zeros_(block.down.weight)

    @property
    def target(self):
        return self.borrowed[0]

    def new_cache(self):
        """For the keys and values of the context and of one block."""
        # Heads and width are the target's, so the target's kind of cache serves, with fewer
        # layers. Behind a full window there is room for one block.
        shape = replace(self.target.config, n_layer=self.config.n_layer)
        rows = self.target.block_size + self.config.length + 1
        return KVCache(shape, 1, rows, self.target.device, self.mask.dtype)

    def features(self, hidden):
        """The target's list of (B, T, C) -> its feature layers side by side, (B, T, F*C)."""
        return torch.cat([hidden[i] for i in self.config.feature_layers], -1)

    def forward(self, features, roots, positions, cache=None, visible=None):
        """Blocks [root, mask x L] behind their context -> logits of the masked positions.

        features (B, T, F*C): of the context rows that the cache does not hold yet (without a
        cache: of all). roots (B, A): the first tokens of A blocks. positions: RoPE positions of
        the T context rows, then of the A(L+1) block rows: a slice, (rows,) or (B, rows).
        visible (B, 1, A(L+1), T + A(L+1)) bool: which rows a block row may see; None: all.
        -> (B, A, L, V); [:, a, k - 1] is q_k of block a, for the token k places after its root.
        """
        cos, sin = self.target.cos[positions], self.target.sin[positions]  # (..., rows, 3, 1, hd)
        (B, T, _), A = features.shape, roots.shape[1]
        R = (cos.shape[-4] - T) // A  # rows of a block, L + 1
        masks = self.mask.expand(B, A, R - 1, -1)
        roots = self.target.embed(roots.to(self.mask.device))
        x = torch.cat([roots[:, :, None], masks], 2)  # (B, A, R, C)
        x = x.view(B, A * R, -1)
        # The same context vector for every layer, and no layer changes it. So its keys and values
        # depend on its own token alone: once in the cache they are final, as the target's are.
        context = norm(self.fuse(norm(features)))  # (B, T, C)
        for layer, block in enumerate(self.blocks):
            x = block(x, context, cos, sin, visible, cache, layer)
        # The root is known already: its slot only tells the others what to continue.
        x = x.view(B, A, R, -1)[:, :, 1:]  # (B, A, L, C)
        return self.target.lm_head(norm(x))


# ---------------------------------------------------------------- beside the target


class BlockDraft:
    """Runs the network beside the target: its context cache and its marginals.

    network: a BlockDrafter, or a published one (dflash.py); temperature: > 0, divides the logits
    before they become marginals.
    """

    def __init__(self, network, temperature=1.0):
        self.network, self.temperature = network, temperature
        self.cache = network.new_cache()
        self.reset()

    def reset(self):
        self.cache.length = 0
        self.pieces = [self.cache.kv.new_zeros(1, 0, self.network.width)]  # each (1, n, F*C)

    @property
    def unread(self):
        """Features that no pass has read yet, (1, T, F*C)."""
        self.pieces = [torch.cat(self.pieces, 1)]
        return self.pieces[0]

    @torch.inference_mode()
    def observe(self, tokens, hidden, rows):
        """Take over the target's features of newly committed tokens: hidden[layer][:, rows]."""
        # The tokens themselves are not looked at: the target has read them, and what it made of
        # them stands in its hidden states. Rows of rejected nodes are left behind.
        new = self.network.features(hidden)  # (1, N, F*C)
        if len(rows) < new.shape[1]:
            index = torch.tensor(rows, device=new.device)
            new = new.index_select(1, index)  # (1, n, F*C)
        # Joined by the next pass: where rounds go by without one, each should cost little.
        self.pieces.append(new)

    @torch.inference_mode()
    def logits(self, root, room):
        """One drafter pass over the unread features and the block.

        -> (L, V) on the network's `home`, one row per slot; fewer rows if room < L.
        """
        length = min(self.network.config.length, room)
        if length < 1:
            return torch.zeros(0, self.network.target.config.vocab_size)
        start, unread = self.cache.length, self.unread
        T = unread.shape[1]
        roots = torch.tensor([[root]])
        # The block follows its context: the root, not read by the target yet, is at start + T.
        positions = slice(start, start + T + length + 1)
        logits = self.network(unread, roots, positions, self.cache)  # (1, 1, L, V)
        # Keep the context's T rows. The block's rows lie behind them and are overwritten by the
        # next pass: they held guesses, and the target's features of what was accepted replace them.
        self.cache.commit(list(range(T)))
        self.pieces = [unread[:, T:]]
        return logits[0, 0].float().to(self.network.home)

    @torch.inference_mode()
    def marginals(self, root, room):
        """One pass -> log q_1..q_L, (L, V); fewer rows if room < L."""
        logits, table = self.logits(root, room), self.network.transition
        if table is None:
            return torch.log_softmax(logits / self.temperature, -1)
        # With a table the block is a Markov chain (conditional_marginals.py), and a marginal is
        # what remains when the token before is summed out: q_k = sum over v of q_{k-1}(v) q_k(.|v)
        steps = logits[:, None] + table[:len(logits)].cpu()  # (L, V, V): row v follows token v
        q, marginals = F.one_hot(torch.tensor(root), logits.shape[1]).to(steps), [logits[:0]]
        for step in torch.softmax(steps / self.temperature, -1):
            q = q @ step  # (V,); before slot 1 stands the root, for certain
            marginals.append(q.log()[None])
        return torch.cat(marginals)
