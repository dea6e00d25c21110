"""The steps that the tests look at: of small random models, and those that the repository ships."""

import contextlib
import copy
import functools
import json
import runpy

import pytest
import torch

import train_drafter
import train_heads
from nanogpt import cli, train
from block_diffusion import BlockDrafter
from draft_heads import DraftHead
from nanogpt.model import GPT, GPTConfig
from nanogpt.pictures import step_page
from train_heads import default_configs

CHAPTERS = list(step_page.chapters())


class Characters:
    """A tokenizer whose texts would break a careless page."""

    texts = ["</script>", "<b>", "&amp;", "\n", " ", "\u2028", "'", '"', "\\", "a", "b", "c"]
    vocab_size = len(texts)

    def encode(self, text):
        return [self.texts.index(letter) for letter in text]

    def decode(self, tokens):
        return "".join(self.texts[token] for token in tokens)


class Stand:
    """As much of a data set as a step-through needs."""

    tokenizer, vocab_size = Characters(), Characters.vocab_size


class Flags:
    """As many flags as a step-through needs."""

    size, precision, seed, steps, retrain = "baby", "float32", 1, 30, False


def random_weights(model, seed):
    """The model, its weights drawn anew, the same ones for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(0.3 * torch.randn(weight.shape, generator=generator))
    return model.eval()


def small_gpt(size, dataset, device, retrain=False):
    config = GPTConfig(dataset.vocab_size, 48, 2, 2, 16)
    return random_weights(GPT(config), 1 if size == "baby" else 2)


def small_heads(target, dataset, device, retrain=False, configs=None):
    return [random_weights(DraftHead(copy.deepcopy(target), config), seed)
            for seed, config in enumerate(default_configs(2), 5)]


def small_drafter(target, dataset, config, device, retrain=False):
    drafter = BlockDrafter(target, config)
    keep = {name: value.clone() for name, value in target.state_dict().items()}
    random_weights(drafter, 4)
    target.load_state_dict(keep)
    return drafter


@contextlib.contextmanager
def small_models():
    """In here every step_through.py that is run finds small random models and Stand's texts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "get_gpt", small_gpt)
        patch.setattr(train_heads, "get_heads", small_heads)
        patch.setattr(train_drafter, "get_drafter", small_drafter)
        patch.setattr(cli, "setup", lambda args: (Stand, torch.device("cpu")))
        yield patch


def shipped(chapter):
    """The trace inside the page that the repository ships."""
    html = (step_page.chapters()[chapter] / "pictures" / "step.html").read_text(encoding="utf-8")
    start = html.index("const trace = ") + len("const trace = ")
    return json.JSONDecoder().raw_decode(html[start:])[0]


@functools.cache
def all_traces():
    """{chapter: the trace of small random models, 'chapter shipped': that of the real ones}."""
    with small_models():
        small = {number: runpy.run_path(str(folder / "experiments" / "step_through.py"))["record"](
                     Flags, Stand, "cpu", [9, 10, 11])
                 for number, folder in step_page.chapters().items()}
    return small | {f"{number} shipped": shipped(number) for number in small}


CASES = [*CHAPTERS, *(f"{number} shipped" for number in CHAPTERS)]  # the keys of all_traces
