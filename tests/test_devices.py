"""Every chapter's script from the first line to the last, with tiny models that train in no time.

On the GPU that is here; else on the CPU, and chapter 05's on a pretended GPU.
"""

import contextlib
from dataclasses import replace

import pytest
import torch

import train_drafter
import train_heads
from nanogpt import checkpoint, train
from nanogpt.exact import enumeration
from nanogpt.model import GPT, GPTConfig
from pretended_device import pretended_cuda
from test_cli import CHAPTERS, start

REAL = [name for name, there in (("cuda", torch.cuda.is_available()),
                                 ("mps", torch.backends.mps.is_available())) if there]
RUNS = [(chapter, device) for chapter in CHAPTERS
        for device in REAL or ["pretended" if chapter == "05_ddtree" else "cpu"]]


@pytest.fixture
def trained_in_no_time(monkeypatch, tmp_path):
    """Tiny models, three training steps each, and no weights that came along fit them."""
    for size, layers in (("draft", 1), ("baby", 4)):
        monkeypatch.setitem(train.SIZES, size, replace(
            train.SIZES[size], n_layer=layers, n_head=2, n_embd=16))
    fit = train.fit

    def short_fit(model, batch_loss, recipe, *args, evaluate=None, **more):
        return fit(model, batch_loss, replace(recipe, steps=3), *args, **more)

    for module in (train, train_heads, train_drafter):
        monkeypatch.setattr(module, "fit", short_fit)
    monkeypatch.setattr(checkpoint, "CHECKPOINTS", tmp_path)
    monkeypatch.setattr(enumeration, "output_distribution", lambda *a: {})  # 02 counts for 20 s


@pytest.mark.parametrize("chapter, device", RUNS)
def test_a_chapters_script(trained_in_no_time, tmp_path, capsys, chapter, device):
    """Train, save, load, decode with every method, time, draw: no tensor strays."""
    away = device == "pretended"
    with pretended_cuda() if away else contextlib.nullcontext():
        start(f"{chapter}/train_and_decode.py", "--prompts", "1", "--max-new-tokens", "8",
              "--device", "cuda" if away else device, "--out", str(tmp_path / "figures"))
    assert ("pretended" if away else "tau") in capsys.readouterr().out


def left_behind(model, tokens):
    """A forward of a model one of whose buffers did not move along."""
    model.cos = model.cos.cpu()
    return model(tokens)


STRAYS = {
    "buffer": left_behind,
    "sum": lambda m, t: m(t)[0] + torch.zeros(11),
    "numpy": lambda m, t: m(t)[0].detach().numpy(),
}


@pytest.mark.parametrize("device", REAL or ["pretended"])
@pytest.mark.parametrize("stray", STRAYS.values(), ids=STRAYS)
def test_a_stray_tensor_is_noticed(stray, device):
    """And what does not stray has the same numbers there."""
    torch.manual_seed(0)
    model, tokens = GPT(GPTConfig(11, 16, 2, 2, 8)).eval(), torch.tensor([[1, 2, 3]])
    here = model(tokens)[0]
    stray(model, tokens)  # on one device nothing is wrong with it
    with pretended_cuda() if device == "pretended" else contextlib.nullcontext():
        device = "cuda" if device == "pretended" else device
        model, tokens = model.to(device), tokens.to(device)
        there = model(tokens)[0]
        assert there.device.type == device
        torch.testing.assert_close(there.cpu(), here)
        with pytest.raises((RuntimeError, TypeError)):
            stray(model, tokens)
