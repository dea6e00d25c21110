"""Published DFlash drafters: read a folder of weights, draft for a real model.

The architecture is that of block_diffusion.py with the parts of Qwen3: RMS norms with weights, an
MLP with a gate, grouped heads, a norm on queries and keys, and a mask that is a token of the
target's vocabulary. Only weights and config.json are read; no code that a repository ships is run.

Publishers differ, so a folder's config is put into one spelling first, and what is not known here
is refused by its name:

    convention             z-lab                           DeepSpec
    architectures          DFlashDraftModel                Qwen3DSparkModel
    target_layer_ids, i    after block i: hidden[i + 1]    the same; -1 is the embedding
    root's slot            its output is dropped           predicts the first token
    block_size             slots; L = block_size - 1       L = block_size
    where these stand      dflash_config, or beside it     beside the sizes
    embedding, lm_head     the target's                    its own

Source: Chen, Liang, Liu, "DFlash: Block Diffusion for Flash Speculative Decoding" (2026), and the
public code of both publishers.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import nn

from block_diffusion import BlockDrafter
from nanogpt.model import KVCache

try:  # the extra [real]; nanogpt.transformers_model.need_transformers says so if it is missing
    import transformers
    from huggingface_hub.errors import StrictDataclassError
    from safetensors.torch import load_file
except ImportError:
    transformers = StrictDataclassError = load_file = None

ROOT_PREDICTS = {"DFlashDraftModel": False, "Qwen3DSparkModel": True}  # by architecture
FULL = "full_attention"
SPARE = 256  # rows by which a full cache grows: each growth copies it

# ---------------------------------------------------------------- the config, in one spelling


@dataclass(frozen=True)
class DFlashConfig:
    """What a published config.json says, in one spelling."""

    length: int  # L, the marginals of a pass
    feature_layers: tuple  # of the target: indices into `hidden`, see GPT.forward
    mask_token: int  # its embedding stands for "not known yet"
    root_predicts: bool  # slot 0 predicts the first token, else slot 1 does
    sizes: object  # a Qwen3Config: widths, heads, rotary positions


def read_config(published):
    """config.json as a dict -> DFlashConfig. Raises ValueError for what is not known here."""
    architecture = (published.get("architectures") or ["none"])[0]
    if architecture not in ROOT_PREDICTS:
        raise ValueError(f"the drafter's architecture is '{architecture}'; known here are "
                         f"{', '.join(ROOT_PREDICTS)}")
    inner = published.get("dflash_config") or {}
    # Early checkpoints have the block's size beside the widths, later ones inside.
    names = ("block_size", "mask_token_id", "target_layer_ids")
    block, mask_token, layers = (inner.get(name, published.get(name)) for name in names)
    missing = [name for name, value in zip(names, (block, mask_token, layers), strict=True)
               if value is None]
    if missing:
        raise ValueError(f"the drafter's config names no {missing[0]}")
    # Anything else that a config may switch on changes what the weights mean.
    switches = {f"dflash_config.{name}": inner[name] for name in inner if name not in names}
    others = ("is_causal", "markov_rank", "attention_bias", "draft_vocab_size")
    switches |= {name: published.get(name) for name in others}
    switches["layer_types"] = [k for k in published.get("layer_types") or [] if k != FULL]
    on = next((name for name, value in switches.items() if value), None)
    if on:
        raise ValueError(f"the drafter's config sets {on} to {switches[on]}, which is not known "
                         "here")
    try:
        sizes = transformers.Qwen3Config.from_dict(published)
    except StrictDataclassError as error:
        raise ValueError("the drafter's config contradicts itself: "
                         f"{str(error).splitlines()[-1].strip()}") from None
    root_predicts = ROOT_PREDICTS[architecture]
    # Layer i of theirs is "after block i", and hidden[0] of ours is the embedding: hence + 1.
    return DFlashConfig(block if root_predicts else block - 1, tuple(i + 1 for i in layers),
                        mask_token, root_predicts, sizes)


# ---------------------------------------------------------------- the network


def qwen3():
    """transformers' own parts of Qwen3: the same norm, gate and rotary angles to the last bit."""
    return transformers.models.qwen3.modeling_qwen3  # imported at the first use: it takes seconds


class DFlashAttention(nn.Module):
    """Attention from the block to (context, block), as in block_diffusion.BlockLayer."""

    def __init__(self, sizes):
        super().__init__()
        C, hd = sizes.hidden_size, sizes.head_dim
        self.head_dim = hd
        self.q_proj = nn.Linear(C, sizes.num_attention_heads * hd, bias=False)
        self.k_proj = nn.Linear(C, sizes.num_key_value_heads * hd, bias=False)
        self.v_proj = nn.Linear(C, sizes.num_key_value_heads * hd, bias=False)
        self.o_proj = nn.Linear(sizes.num_attention_heads * hd, C, bias=False)
        self.q_norm = qwen3().Qwen3RMSNorm(hd, sizes.rms_norm_eps)
        self.k_norm = qwen3().Qwen3RMSNorm(hd, sizes.rms_norm_eps)

    def heads(self, x):
        """x (1, N, H * hd) -> (1, N, H, hd)."""
        return x.view(*x.shape[:2], -1, self.head_dim)

    def forward(self, x, context, cos, sin, cache, layer):
        """x (1, R, C): block rows; context (1, T, C): new rows before them -> (1, R, C)."""
        R = x.shape[1]
        # Keys and values from both, through the same matrices; queries from the block alone.
        rows = torch.cat([context, x], 1)  # (1, T + R, C)
        # A norm on each head's key and query, before the rotation: Qwen3's way.
        k = turn(self.k_norm(self.heads(self.k_proj(rows))), cos, sin)
        q = turn(self.q_norm(self.heads(self.q_proj(x))), cos[:, -R:], sin[:, -R:])
        v = self.heads(self.v_proj(rows))
        k, v = cache.write(layer, torch.stack([k, v]).transpose(2, 3))  # (1, KV, past + T + R, hd)
        # No mask: a masked slot sees the whole context and the whole block. Several heads of q
        # share one of k and v, hence gqa.
        y = F.scaled_dot_product_attention(q.transpose(1, 2), k, v, enable_gqa=True)
        return self.o_proj(y.transpose(1, 2).flatten(2))


def turn(x, cos, sin):
    """RoPE. x (1, N, H, hd), cos and sin (1, N, hd) -> as x."""
    a, b = x.chunk(2, -1)  # pairs (x[i], x[i + hd/2]), as in nanogpt.model.rotate
    return x * cos[:, :, None] + torch.cat([-b, a], -1) * sin[:, :, None]


class DFlashLayer(nn.Module):
    """One layer; the names are those of the published weights."""

    def __init__(self, sizes):
        super().__init__()
        self.self_attn = DFlashAttention(sizes)
        self.mlp = qwen3().Qwen3MLP(sizes)
        self.input_layernorm = qwen3().Qwen3RMSNorm(sizes.hidden_size, sizes.rms_norm_eps)
        self.post_attention_layernorm = qwen3().Qwen3RMSNorm(sizes.hidden_size, sizes.rms_norm_eps)

    def forward(self, x, context, cos, sin, cache, layer):
        x = x + self.self_attn(self.input_layernorm(x), context, cos, sin, cache, layer)
        return x + self.mlp(self.post_attention_layernorm(x))


class DFlash(nn.Module):
    """The drafter's weights beside a TransformersModel. Raises ValueError if they do not fit."""

    transition = None  # the slots of a block do not see each other's tokens

    def __init__(self, target, config):
        super().__init__()
        sizes, theirs = config.sizes, target.config
        check_fit(config, theirs)
        self.config, self.borrowed = config, [target]  # in a list, so that it is no submodule
        C = sizes.hidden_size
        self.width = len(config.feature_layers) * C
        self.fc = nn.Linear(self.width, C, bias=False)
        self.hidden_norm = qwen3().Qwen3RMSNorm(C, sizes.rms_norm_eps)
        self.layers = nn.ModuleList(DFlashLayer(sizes) for _ in range(sizes.num_hidden_layers))
        self.norm = qwen3().Qwen3RMSNorm(C, sizes.rms_norm_eps)
        self.rotary_emb = qwen3().Qwen3RotaryEmbedding(sizes)
        if config.root_predicts:  # DeepSpec ships copies of the target's two matrices
            self.embed_tokens = nn.Embedding(sizes.vocab_size, C)
            self.lm_head = nn.Linear(C, sizes.vocab_size, bias=False)

    target, features = BlockDrafter.target, BlockDrafter.features  # as in our own drafter

    @property
    def home(self):
        return self.fc.weight.device  # (L, V) is large here; of each row the heap wants the best

    def new_cache(self):
        sizes, weight = self.config.sizes, self.fc.weight
        shape = SimpleNamespace(
            n_layer=sizes.num_hidden_layers, n_head=sizes.num_key_value_heads,
            n_embd=sizes.num_key_value_heads * sizes.head_dim)  # fewer heads than the queries'
        # Not a whole window at once: 40,000 rows of a 4B model's drafter would take 0.8 GB.
        return KVCache(shape, 1, SPARE, weight.device, weight.dtype)

    def embed(self, tokens):
        return self.embed_tokens(tokens)

    def forward(self, features, roots, positions, cache):
        """One block [root, mask x L] behind its context -> logits (1, 1, L, V).

        Arguments as of BlockDrafter.forward, for one block; positions: a slice.
        """
        # z-lab's root only tells the other slots what to continue; DeepSpec's predicts as well, so
        # that its block needs one slot less.
        T, skipped = features.shape[1], 0 if self.config.root_predicts else 1
        owner = self if self.config.root_predicts else self.target
        R = positions.stop - positions.start - T - (1 - skipped)
        tokens = torch.full((1, R), self.config.mask_token, device=features.device)
        tokens[:, 0] = roots[0, 0]
        x = owner.embed(tokens)  # (1, R, C)
        if cache.length + T + R > cache.kv.shape[-2]:
            cache.reserve(T + R + SPARE)
        # The context's new rows, then the root, which the target has not read, then the masks.
        rows = torch.arange(positions.start, positions.start + T + R, device=features.device)
        cos, sin = self.rotary_emb(x, rows[None])  # (1, T + R, hd)
        # The same vector for every layer, and no layer changes it: its keys and values are final.
        context = self.hidden_norm(self.fc(features))  # (1, T, C)
        for layer, block in enumerate(self.layers):
            x = block(x, context, cos, sin, cache, layer)
        return owner.lm_head(self.norm(x))[:, None, skipped:]


def check_fit(config, theirs):
    """Raises ValueError if a drafter was not made for a target with the config `theirs`."""
    for name in ("hidden_size", "vocab_size"):
        ours, wanted = getattr(theirs, name), getattr(config.sizes, name)
        if ours != wanted:
            raise ValueError(f"the drafter does not fit its target: it wants a {name} of {wanted}, "
                             f"the target has {ours}")
    # After the last block publishers differ: some take the state before the final norm.
    deepest = max(config.feature_layers)
    if min(config.feature_layers) < 0 or deepest >= theirs.num_hidden_layers:
        raise ValueError(f"the drafter does not fit its target: it reads the target after block "
                         f"{deepest}, and the target has {theirs.num_hidden_layers} blocks")
    if config.length < 1 or not 0 <= config.mask_token < theirs.vocab_size:
        raise ValueError(f"the drafter does not fit its target: length {config.length}, mask token "
                         f"{config.mask_token} of {theirs.vocab_size}")


def load_dflash(folder, target):
    """A folder with config.json and *.safetensors -> DFlash on the target's device and precision.

    Raises ValueError if files are missing, or do not fit the target or each other.
    """
    folder = Path(folder)
    files = sorted(folder.glob("*.safetensors"))
    try:
        published = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        published = None
    if not isinstance(published, dict) or not files:
        raise ValueError(f"'{folder}' is no drafter: it must hold config.json and *.safetensors")
    network = DFlash(target, read_config(published))
    # safetensors holds numbers only: reading it runs nothing, unlike a pickle.
    weights = {name: tensor for file in files for name, tensor in load_file(file).items()
               if not name.startswith("confidence_head.")}  # it weighs drafts; ours are in a heap
    # Names and shapes must match one for one, or a part of the drafter would stay random.
    wanted = {name: tensor.shape for name, tensor in network.state_dict().items()}
    wrong = sorted(set(wanted) ^ set(weights)) or [
        name for name, shape in wanted.items() if weights[name].shape != shape]
    if wrong:
        raise ValueError(f"the weights in '{folder}' are not those of its config: look at "
                         f"{wrong[0]}")
    network.load_state_dict(weights)
    return network.to(target.device, target.model.dtype).eval().requires_grad_(False)
