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

import inspect

import torch
from torch import nn

from nanogpt.packing import packed_dtype

try:  # the extra [real]
    import transformers
except ImportError:
    transformers = None

FULL, SLIDING = "full_attention", "sliding_attention"  # the kinds of layers that can branch


def need_transformers():
    """The transformers module. Raises ValueError with the pip command if it is not there."""
    if transformers is None:
        raise ValueError("this needs the package 'transformers', which is not installed; run: "
                         'pip install -c constraints.txt -e ".[real]"')
    return transformers


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

    def __init__(self, model, keep=None):
        self.model = model.eval().requires_grad_(False)
        self.config = model.config.get_text_config()
        self.kinds, self.window = attention_kinds(model)
        # Hooks stay on the model for good. Outside of our forwards, in `generate` for one, they
        # find None and note nothing.
        self.keep, self.heard = keep, None  # {index: hidden state}
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

    @property
    def precision(self):
        """'bfloat16' or 'float32', ...: what the blocks multiply in."""
        return str(packed_dtype(self.model) or self.model.dtype).removeprefix("torch.")

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

        Returns logits (1, N, V) and hidden, a list of n_layer + 1 tensors (1, N, C), None where
        `keep` left one out. A prefill (an empty cache, no positions, no mask) gives the logits of
        its last row only, (1, 1, V): of 2,000 rows and 150,000 tokens they would fill 1.2 GB.
        Raises ValueError if the N rows do not fit into the context window.
        """
        tokens = tokens.to(self.device)
        N, past = tokens.shape[1], cache.length if cache is not None else 0
        given = {}
        if cache is not None:
            cache.cut()  # the last round's rejected drafts; a DynamicCache only ever appends
            given |= {"past_key_values": cache.kv}
        if positions is None:
            if past + N > self.block_size:
                raise ValueError(
                    f"{past + N} rows do not fit into the context window of {self.block_size}")
            rows = torch.arange(past, past + N, device=tokens.device)  # (N,) positions
        else:
            rows = positions.to(tokens.device)
        if positions is not None or mask is not None:
            # A tree: siblings share a position, and which rows may be seen stands in the mask.
            seen = cache.positions if cache is not None else rows[:0]
            given |= {"position_ids": rows[None], "attention_mask": self.bias(rows, mask, seen)}
        elif cache is not None and past == 0:
            given["logits_to_keep"] = 1
        # Without a mask of ours the model is causal by itself, and fastest so: prefill, chains and
        # plain steps go this way.
        self.heard = {}
        try:
            logits = self.model(tokens, use_cache=cache is not None, **given).logits  # (1, N, V)
        finally:
            heard, self.heard = self.heard, None
        if cache is not None:
            cache.positions = torch.cat([cache.positions, rows])
        return logits, [heard.get(i) for i in range(self.config.num_hidden_layers + 1)]

    def bias(self, rows, mask, seen):
        """What is added to the scores: 0 where a row may look, else the most negative number.

        rows (N,): the new rows' positions; mask (N, M) bool or None: see GPT.forward; seen
        (past,): the cached rows' positions. -> (1, 1, N, past + N), or a dict of one such tensor
        for each kind of layer.
        """
        N, past = len(rows), len(seen)
        allowed = torch.ones(N, past + N, dtype=torch.bool, device=rows.device)
        if mask is None:
            mask = allowed[:, past:].tril()
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
    name, config = type(model).__name__, model.config.get_text_config()
    takes = inspect.signature(model.forward).parameters
    kinds = sorted(set(getattr(config, "layer_types", None) or []))
    width = getattr(config, "sliding_window", None)
    if not kinds:  # models without a list have one kind of layer
        kinds = [SLIDING if width and getattr(config, "use_sliding_window", True) else FULL]
    # A layer with a running state folds all rows before it into that state, siblings too: rows of
    # a tree cannot be kept apart, nor a rejected row taken out again.
    strange = [kind for kind in kinds if kind not in (FULL, SLIDING)]
    if strange or getattr(model, "_is_stateful", False):
        kind = strange[0] if strange else "recurrent"
        raise ValueError(f"{name} cannot verify a tree: it has layers of the kind '{kind}', whose "
                         "state cannot branch; choose a model with attention in every layer")
    missing = {"position_ids", "past_key_values", "attention_mask", "logits_to_keep"} - set(takes)
    if missing:
        raise ValueError(f"{name} cannot verify a tree: its forward takes no {min(missing)}")
    attention = model.config._attn_implementation
    # Flash attention 2 knows "causal" and "all", and no mask in between.
    if attention not in ("sdpa", "eager"):
        raise ValueError(f"attention '{attention}' takes no tree mask; load {name} with "
                         "attn_implementation='sdpa'")
    return kinds, width if SLIDING in kinds else None


def check_branching(target):
    """Verify a small tree and compare each path with a forward of its own.

    Raises ValueError if they differ: an architecture that treats a mask or positions in a way of
    its own would else decode a wrong text without a word.
    """
    V = target.config.vocab_size  # any tokens will do
    text, tree = [1 % V, 2 % V, 3 % V], [4 % V, 5 % V, 6 % V, 7 % V]
    paths = [[0], [0, 1], [0, 2], [0, 1, 3]]  # rows: 1 and 2 are siblings, 3 a child of 1
    mask = torch.tensor([[j in path for j in range(4)] for path in paths])
    positions = torch.tensor([len(text) - 1 + len(path) for path in paths])
    cache = target.new_cache()
    target(torch.tensor([text], device=target.device), cache=cache)
    cache.commit([0, 1, 2])
    for _ in range(2):  # the first pass is not committed: the second must not see it
        rows = target(torch.tensor([tree], device=target.device), positions, mask, cache)[0][0]
    alone = torch.stack([
        target(torch.tensor([text + [tree[i] for i in path]], device=target.device))[0][0, -1]
        for path in paths])
    gap = float((rows - alone).abs().max() / alone.abs().max())
    # Rounding moves logits by 1e-6 in float32, by some percent in bfloat16; a wrong mask by 1.
    if not gap < (1e-3 if target.precision == "float32" else 0.2):
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
