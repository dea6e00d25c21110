"""Any causal language model of Hugging Face transformers behind the contract of model.py.

    pip install -c constraints.txt -e ".[real]"

    target = TransformersModel(AutoModelForCausalLM.from_pretrained(folder))
    cache = target.new_cache()
    logits, hidden = target(tokens, positions, mask, cache)
    cache.commit(rows)

So a drafter, a rule and a decoding loop that know `GPT` decode Qwen3, Llama or GPT-2 unchanged.
What the loop expects of a model and transformers does not offer is added here: a cache that keeps
chosen rows, a mask by ancestors and distance, positions by depth, hidden states before the final
norm, a prefill that makes one row of logits only.
"""

import torch
import transformers
from torch import nn

from nanogpt.packing import precision_of

FULL, SLIDING = "full_attention", "sliding_attention"  # the kinds of layers that can branch


# ---------------------------------------------------------------- the cache


class BranchingCache:
    """A DynamicCache that keeps chosen rows: the contract of model.KVCache.

    length: how many rows are committed; setting it to less forgets the rest.
    positions (length,): of the committed rows, for layers that look at distances.
    """

    def __init__(self, device):
        # Without a config: given one, a sliding layer would throw away rows that a branch needs.
        self.kv = transformers.DynamicCache()
        self.length = 0
        self.positions = torch.zeros(0, dtype=torch.long, device=device)

    def cut(self):
        """Forget the rows that were never committed; the next forward writes in their place."""
        # Not through DynamicCache.crop, whose argument changed its meaning between versions.
        for layer in self.kv.layers:
            if layer.keys is not None:  # some models have layers that borrow another's keys
                layer.keys = layer.keys[..., :self.length, :]  # (1, nh, length, hd)
                layer.values = layer.values[..., :self.length, :]
        self.positions = self.positions[:self.length]

    @torch.inference_mode()
    def commit(self, rows):
        """Keep the new rows with these indices (0 = first row behind `length`), in this order."""
        start, n = self.length, len(rows)
        if rows != list(range(n)):  # a prefix already lies where it belongs
            index = torch.tensor(rows, device=self.positions.device) + start
            for layer in self.kv.layers:
                for x in (layer.keys, layer.values):
                    if x is not None:  # only the path moves; the context is not copied
                        x[..., start:start + n, :] = x.index_select(-2, index)
            # A draft model commits whole levels of a tree, so a row's place is not its position.
            self.positions[start:start + n] = self.positions[index]
        self.length += n


# ---------------------------------------------------------------- the model


class TransformersModel:
    """A causal language model of transformers, called like a GPT.

    model: from AutoModelForCausalLM, in the precision in which it shall decode.
    keep: indices of the hidden states to hand on (None: all); long prompts have large ones.
    Raises ValueError for an architecture that cannot verify a tree.
    """

    keep = None
    width = None  # of the logits: publishers fill up the matrices of one family differently

    def __init__(self, model):
        self.model = model.eval().requires_grad_(False)
        self.config = model.config.get_text_config()
        self.kinds, self.window = attention_kinds(model)
        # Hooks stay on the model for good. Outside of our forwards, in `generate` for one, they
        # find None and note nothing.
        self.heard = None  # {index: hidden state}
        blocks = layers_of(model)
        blocks[0].register_forward_pre_hook(  # what the first block reads: the embedding
            lambda block, args, kwargs: self.hear(0, args or kwargs["hidden_states"]),
            with_kwargs=True)
        for i, block in enumerate(blocks, 1):
            # From the blocks themselves: transformers' last hidden state is after the final norm.
            block.register_forward_hook(lambda *call, i=i: self.hear(i, call[-1]))

    def hear(self, index, x):
        """Note a hidden state, (1, N, C) or a tuple that starts with it."""
        if self.heard is not None and (self.keep is None or index in self.keep):
            self.heard[index] = x[0] if isinstance(x, tuple) else x

    @property
    def device(self):
        return self.model.device

    @property
    def block_size(self):
        return self.config.max_position_embeddings

    def new_cache(self):
        return BranchingCache(self.device)

    def embed(self, tokens):
        """tokens (1, N) -> (1, N, C), the input embeddings as they are stored."""
        return nn.functional.embedding(tokens, self.model.get_input_embeddings().weight)

    def lm_head(self, x):
        """x (..., C) -> logits (..., V)."""
        return self.model.get_output_embeddings()(x)

    @torch.inference_mode()
    def __call__(self, tokens, positions=None, mask=None, cache=None):
        """One pass over N new rows; arguments and results as GPT.forward, for one text.

        Positions come with a mask and a cache.

        Returns logits (1, N, V) and hidden, a list of n_layer + 1 tensors (1, N, C), None where
        `keep` left one out. A prefill (an empty cache, no positions, no mask) gives the logits of
        its last row only, (1, 1, V): of 2,000 rows and 150,000 tokens they would fill 1.2 GB.
        """
        tokens, given = tokens.to(self.device), {}
        if cache is not None:
            cache.cut()  # the last round's rejected drafts; a DynamicCache only ever appends
            given = {"past_key_values": cache.kv}
        if positions is not None:
            # A tree: siblings share a position, and which rows may be seen stands in the mask.
            rows = positions.to(self.device)  # (N,)
            given |= {"position_ids": rows[None],
                      "attention_mask": self.bias(rows, mask, cache.positions)}
        elif cache is not None:
            # Without a mask of ours the model is causal by itself, and fastest so: prefill, chains
            # and plain steps go this way.
            rows = torch.arange(tokens.shape[1], device=self.device) + cache.length
            given["logits_to_keep"] = int(cache.length == 0)  # 0: all
        self.heard = {}
        logits = self.model(tokens, use_cache=cache is not None, **given).logits
        logits = logits[..., :self.width]  # (1, N, V)
        heard, self.heard = self.heard, None
        if cache is not None:
            cache.positions = torch.cat([cache.positions, rows])
        return logits, [heard.get(i) for i in range(self.config.num_hidden_layers + 1)]

    def bias(self, rows, mask, seen):
        """What is added to the scores: 0 where a row may look, else the most negative number.

        rows (N,): the new rows' positions; mask (N, M) bool: see GPT.forward; seen
        (past,): the cached rows' positions. -> (1, 1, N, past + N), or a dict of one such tensor
        for each kind of layer.
        """
        N, past = len(rows), len(seen)
        allowed = torch.ones(N, past + N, dtype=torch.bool, device=rows.device)
        # The mask speaks of the last M rows; what is older is context, which everybody sees.
        allowed[:, past + N - mask.shape[1]:] = mask.to(rows.device)
        kinds = {FULL: allowed}
        if self.window is not None:
            # A mask of ours is taken as it is, so the window must stand in it. The distance is one
            # of positions: in a tree, neighbours in depth may lie many rows apart.
            distance = rows[:, None] - torch.cat([seen, rows])  # (N, past + N)
            kinds[SLIDING] = allowed & (distance < self.window)
        # subtle: numbers, not booleans. Eager attention ADDS the mask: True would add 1 and False
        # nothing, so that every row would see every other, without any error.
        zeros = torch.zeros(N, past + N, dtype=self.model.dtype, device=rows.device)
        lowest = torch.finfo(zeros.dtype).min  # -inf would make nan of a row that sees nothing
        biases = {kind: zeros.masked_fill(~kinds[kind], lowest)[None, None] for kind in self.kinds}
        return biases if len(biases) > 1 else biases[self.kinds[0]]


def layers_of(model):
    """The transformer blocks of a model, in order. Raises ValueError if they are not found."""
    n = model.config.get_text_config().num_hidden_layers
    for module in model.get_decoder().modules():
        if isinstance(module, nn.ModuleList) and len(module) == n:
            return module
    raise ValueError(f"the {n} layers of {type(model).__name__} were not found")


def attention_kinds(model):
    """The kinds of its layers, a list of FULL and SLIDING, and the window's width or None.

    Raises ValueError for a model that cannot verify a tree.
    """
    config = model.config.get_text_config()
    kinds = sorted(set(getattr(config, "layer_types", None) or []))
    width = getattr(config, "sliding_window", None)
    if not kinds:  # models without a list have one kind of layer
        kinds = [SLIDING if width and getattr(config, "use_sliding_window", True) else FULL]
    # A layer with a running state folds all rows before it into that state, siblings too: rows of
    # a tree cannot be kept apart, nor a rejected row taken out again.
    strange = set(kinds) - {FULL, SLIDING}
    if strange:
        raise ValueError(f"{type(model).__name__} cannot verify a tree: it has layers of the kind "
                         f"'{min(strange)}', whose state cannot branch; choose a model with "
                         "attention in every layer")
    return kinds, width if SLIDING in kinds else None


def check_branching(target):
    """Verify a small tree and compare its last path with a forward of its own.

    Raises ValueError if they differ: an architecture that treats a mask or positions in a way of
    its own would else decode a wrong text without a word.
    """
    tree, positions = torch.tensor([[4, 5, 6]]), torch.tensor([3, 4, 4])  # any tokens will do
    mask = torch.tensor([[1, 0, 0], [1, 1, 0], [1, 0, 1]]).bool()  # 5 and 6 are siblings
    cache = target.new_cache()
    target(torch.tensor([[1, 2, 3]]), cache=cache)
    cache.commit([0, 1, 2])
    for _ in range(2):  # the first pass is not committed: the second must not see it
        row = target(tree, positions, mask, cache)[0][0, -1]
    alone = target(torch.tensor([[1, 2, 3, 4, 6]]))[0][0, -1]
    gap = float((row - alone).abs().max() / alone.abs().max())
    # Rounding moves logits by 1e-6 in float32, by some percent in bfloat16; a wrong mask by 1.
    if not gap < (1e-3 if precision_of(target.model) == "float32" else 0.2):
        raise ValueError(f"{type(target.model).__name__} cannot verify a tree: its logits in a "
                         f"tree differ from those of a text by {gap:.0%}")


# ---------------------------------------------------------------- greedy decoding


class Greedy:
    """Sampler and Dice of temperature 0 in one: the argmax, taken on the model's device.

    `Sampler(0)` gives the same tokens as one-hot rows (N, V). With 150,000 tokens a tree of 64
    rows then takes 39 MB from the device to the CPU each round; here it is 64 numbers.
    """

    def __call__(self, logits):
        """logits (..., V) -> the most probable tokens (...)."""
        return logits.argmax(-1)

    def draw(self, token):
        return int(token)
