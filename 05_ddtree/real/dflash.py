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
import math
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import torch
import transformers
from safetensors.torch import load_file
from torch import nn
from transformers.models.qwen3 import modeling_qwen3 as qwen3

from block_diffusion import BlockDrafter
from nanogpt.model import KVCache

ROOT_PREDICTS = {"DFlashDraftModel": False, "Qwen3DSparkModel": True}  # by architecture
LONGEST = 256  # block; far beyond what has been published
ROWS = 4096  # that a new cache holds; a longer text makes it grow

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
    # Early checkpoints have the block's size beside the widths, later ones inside.
    inner = published.get("dflash_config") or {}
    told, known = published | inner, ("block_size", "mask_token_id", "target_layer_ids")
    missing = [name for name in known if told.get(name) is None]
    if missing:
        raise ValueError(f"the drafter's config names no {missing[0]}")
    # Anything else that a config may switch on changes what the weights mean.
    told["layer_types"] = sorted({*(told.get("layer_types") or ())} - {"full_attention"})
    others = {*inner, "layer_types", "is_causal", "markov_rank", "attention_bias",
              "draft_vocab_size"}.difference(known)
    for name in sorted(others):
        if told.get(name):
            raise ValueError(f"the drafter's config sets {name} to {told[name]}, which is not "
                             "known here")
    block, mask_token, layers = map(told.get, known)
    sizes = transformers.Qwen3Config.from_dict(published, attn_implementation="sdpa")
    root_predicts = ROOT_PREDICTS[architecture]
    for name, numbers, least, most in (("block_size", [block], 2 - root_predicts, LONGEST),
                                       ("mask_token_id", [mask_token], 0, sizes.vocab_size - 1),
                                       ("target_layer_ids", layers, -1, math.inf)):
        if not numbers or any(type(n) is not int or not least <= n <= most for n in numbers):
            raise ValueError(f"the drafter's config sets {name} to {told[name]}; it must be whole "
                             f"and in [{least}, {most}]")
    # Layer i of theirs is "after block i", and hidden[0] of ours is the embedding: hence + 1.
    return DFlashConfig(block if root_predicts else block - 1, tuple(i + 1 for i in layers),
                        mask_token, root_predicts, sizes)


# ---------------------------------------------------------------- the network


class DFlash(nn.Module):
    """The drafter's weights beside a TransformersModel; their names are the published ones.

    The layers are transformers' own of Qwen3: the same norm, gate and rotary angles to the last
    bit. Raises ValueError if they do not fit the target.
    """

    transition = None  # the slots of a block do not see each other's tokens

    def __init__(self, target, config):
        super().__init__()
        sizes = config.sizes
        check_fit(config, target.config)
        self.config, self.borrowed = config, [target]  # in a list, so that it is no submodule
        C = sizes.hidden_size
        self.width = len(config.feature_layers) * C
        self.fc = nn.Linear(self.width, C, bias=False)
        self.hidden_norm = qwen3.Qwen3RMSNorm(C, sizes.rms_norm_eps)
        self.layers = nn.ModuleList(qwen3.Qwen3DecoderLayer(sizes, layer)
                                    for layer in range(sizes.num_hidden_layers))
        for layer in self.layers:  # a masked slot sees the whole context and the whole block
            layer.self_attn.is_causal = False
        self.norm = qwen3.Qwen3RMSNorm(C, sizes.rms_norm_eps)
        self.rotary_emb = qwen3.Qwen3RotaryEmbedding(sizes)
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
        return KVCache(shape, 1, ROWS, weight.device, weight.dtype)

    def forward(self, features, roots, positions, cache):
        """One block [root, mask x L] behind its context -> logits (1, 1, L, V).

        Arguments as of BlockDrafter.forward, for one block; positions: a slice.
        """
        # z-lab's root only tells the other slots what to continue; DeepSpec's predicts as well, so
        # that its block needs one slot less.
        if self.config.root_predicts:
            skipped, embed, lm_head = 0, self.embed_tokens, self.lm_head
        else:
            skipped, embed, lm_head = 1, self.target.embed, self.target.lm_head
        T = features.shape[1]
        # The context's new rows, then the root, which the target has not read, then the masks.
        rows = torch.arange(positions.start, positions.stop - 1 + skipped, device=features.device)
        tokens = torch.full_like(rows[None, T:], self.config.mask_token)  # (1, R)
        tokens[:, 0] = roots[0, 0]
        x = embed(tokens)  # (1, R, C)
        cos_sin = self.rotary_emb(x, rows[None])  # each (1, T + R, hd)
        cache.reserve(len(rows))
        into = SimpleNamespace(  # what transformers' attention asks of a cache
            update=lambda k, v, layer, *_: cache.write(layer, torch.stack([k, v])))
        # The same vector for every layer, and no layer changes it: its keys and values are final.
        context = self.hidden_norm(self.fc(features))  # (1, T, C)
        for layer in self.layers:
            # Keys and values from both, through the same matrices; of the answers the block's.
            both = torch.cat([context, layer.input_layernorm(x)], 1)  # (1, T + R, C)
            x = x + layer.self_attn(both, cos_sin, None, into)[0][:, T:]
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        return lm_head(self.norm(x))[:, None, skipped:]


def check_fit(config, theirs):
    """Raises ValueError if a drafter was not made for a target with the config `theirs`."""
    for name in ("hidden_size", "vocab_size"):
        ours, wanted = getattr(theirs, name), getattr(config.sizes, name)
        if ours != wanted:
            raise ValueError(f"the drafter does not fit its target: it wants a {name} of {wanted}, "
                             f"the target has {ours}")
    # After the last block publishers differ: some take the state before the final norm.
    deepest = max(config.feature_layers)
    if deepest >= theirs.num_hidden_layers:
        raise ValueError(f"the drafter does not fit its target: it reads the target after block "
                         f"{deepest}, and the target has {theirs.num_hidden_layers} blocks")


def load_dflash(folder, target):
    """A folder with config.json and *.safetensors -> DFlash on the target's device and precision.

    Raises ValueError if files are missing, or do not fit the target or each other.
    """
    folder = Path(folder)
    files = list(folder.glob("*.safetensors"))
    try:
        published = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        published = None
    if not isinstance(published, dict) or not files:
        raise ValueError(f"'{folder}' is no drafter: it must hold config.json and *.safetensors")
    try:
        network = DFlash(target, read_config(published))
        # safetensors holds numbers only: reading it runs nothing, unlike a pickle.
        weights = {name: tensor for file in files for name, tensor in load_file(file).items()
                   if not name.startswith("confidence_head.")}  # it weighs drafts; ours: the heap
    except ValueError:
        raise
    except Exception as error:  # numbers that make no network, files that were cut
        raise ValueError(f"'{folder}' cannot be read: {str(error).partition(chr(10))[0]}") from None
    try:
        # Names and shapes must match one for one, or a part of the drafter would stay random.
        network.load_state_dict(weights)
    except RuntimeError as error:
        what = str(error).splitlines()[1].strip()
        raise ValueError(f"the weights in '{folder}' are not those of its config: {what}") from None
    return network.to(target.device, target.model.dtype).eval().requires_grad_(False)
