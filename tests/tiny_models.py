"""Tiny random models of transformers, and a random DFlash drafter: no network, no weights.

The weights are large (initializer_range 0.3): with the default 0.02 all rows are alike, and a wrong
mask would pass.
"""

import json
from copy import deepcopy

import torch

from dflash import DFlash, read_config

try:  # the tests that import this file are skipped without it
    import tokenizers
    import transformers
    from safetensors.torch import save_file
except ImportError:
    tokenizers = transformers = save_file = None

V, WINDOW = 61, 8
TOKENS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
WIDTHS = {"vocab_size": V, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4,
          "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
          "initializer_range": 0.3, **TOKENS}
MIXED = ["full_attention", "sliding_attention"] * 2


def character_tokenizer(tokenizer, block_size):
    """Our CharTokenizer -> a fast tokenizer of transformers: the same ids, the same text back."""
    characters = tokenizers.Tokenizer(tokenizers.models.WordLevel(tokenizer.ids))
    characters.pre_tokenizer = tokenizers.pre_tokenizers.Split(
        tokenizers.Regex(r"[\s\S]"), "isolated")
    characters.decoder = tokenizers.decoders.Fuse()  # else the words are joined with spaces
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=characters, model_max_length=block_size,
        clean_up_tokenization_spaces=False)


def config(kind):
    """The config of a tiny model. kind: one of NAMES."""
    t = transformers
    return {
        "qwen3": lambda: t.Qwen3Config(**WIDTHS, head_dim=16),
        "llama": lambda: t.LlamaConfig(**WIDTHS),
        "gpt2": lambda: t.GPT2Config(vocab_size=V, n_embd=32, n_layer=4, n_head=4, n_positions=128,
                                     initializer_range=0.3, **TOKENS),
        "qwen3, two sliding layers": lambda: t.Qwen3Config(
            **WIDTHS, head_dim=16, use_sliding_window=True, sliding_window=WINDOW,
            layer_types=MIXED),
        "mistral": lambda: t.MistralConfig(**WIDTHS, sliding_window=WINDOW),
    }[kind]()


NAMES = ["qwen3", "llama", "gpt2", "qwen3, two sliding layers", "mistral"]


def tiny(kind, attention="sdpa", seed=0):
    """A tiny random model of transformers."""
    torch.manual_seed(seed)
    return transformers.AutoModelForCausalLM.from_config(
        config(kind), attn_implementation=attention).eval()


def text(n, seed=1):
    """n random tokens, a list."""
    return torch.randint(0, V, (n,), generator=torch.Generator().manual_seed(seed)).tolist()


CONTEXT = text(30)


def close(a, b, tolerance=2e-4):
    """Whether two tensors differ by little beside the larger one's largest number."""
    return float((a - b).abs().max()) <= tolerance * float(b.abs().max())


def noisy(model, noise=0.05):
    """A copy that mostly agrees with the model: a draft model whose drafts pass."""
    torch.manual_seed(3)
    copy = deepcopy(model)
    for parameter in copy.parameters():
        parameter.data += noise * torch.randn_like(parameter) * parameter.std()
    return copy


# ---------------------------------------------------------------- a published drafter


def published(**changes):
    """A config.json in z-lab's spelling, made for tiny('qwen3')."""
    return {"architectures": ["DFlashDraftModel"], "model_type": "qwen3", "hidden_size": 32,
            "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "head_dim": 8, "vocab_size": V, "rms_norm_eps": 1e-6,
            "rope_theta": 1e6, "rope_scaling": None, "max_position_embeddings": 128,
            "attention_bias": False, "hidden_act": "silu", "block_size": 5,
            "layer_types": ["full_attention"] * 2,
            "dflash_config": {"mask_token_id": 60, "target_layer_ids": [0, 2]}} | changes


DEEPSPEC = {"architectures": ["Qwen3DSparkModel"], "dflash_config": None, "mask_token_id": 60,
            "target_layer_ids": [-1, 2], "markov_rank": 0}


def random_dflash(target, **changes):
    """A DFlash network with random weights in which every matrix matters."""
    torch.manual_seed(7)
    network = DFlash(target, read_config(published(**changes))).eval().requires_grad_(False)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return network


def save(network, folder, **changes):
    """A network's files as a publisher would lay them out."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(published(**changes)))
    save_file(network.state_dict(), folder / "model.safetensors")
    return folder


