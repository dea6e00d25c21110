"""Every script runs on every device that is here, and on a pretended GPU where there is none."""

import contextlib
import functools
from dataclasses import replace

import pytest
import torch

import train_drafter
import train_heads
from nanogpt import checkpoint, cli, clock, train
from nanogpt.data import load_dataset
from nanogpt.model import GPT, GPTConfig
from nanogpt.pictures import plots
from pretended_device import pretended_cuda
from test_cli import SCRIPTS, load_script

CHAPTERS = [name for name in SCRIPTS if name != "toy"]
HERE = {"pretended": True, "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available()}
DEVICES = [name for name, there in HERE.items() if there]


@contextlib.contextmanager
def on(device):
    """Yields the name for --device, and what counts the tensors made there (or None)."""
    if device != "pretended":
        yield device, None
    else:
        with pretended_cuda() as pretended:
            yield "cuda", pretended


@pytest.fixture
def trained_in_no_time(monkeypatch, tmp_path_factory, device):
    """Tiny models, three training steps each; what one chapter trained, the next ones load."""
    for size, layers in (("draft", 1), ("baby", 4)):
        monkeypatch.setitem(train.SIZES, size, replace(
            train.SIZES[size], n_layer=layers, n_head=2, n_embd=16))
    fit = train.fit

    def short_fit(model, batch_loss, recipe, *args, evaluate=None, **more):
        return fit(model, batch_loss, replace(recipe, steps=3), *args, **more)

    for module in (train, train_heads, train_drafter):
        monkeypatch.setattr(module, "fit", short_fit)
    monkeypatch.setattr(checkpoint, "CHECKPOINTS", tmp_path_factory.getbasetemp() / device)


dataset = functools.cache(load_dataset)


@pytest.fixture
def few_laps(monkeypatch):
    """What is timed is timed twice, pictures are coarse, and the corpus is read once."""
    monkeypatch.setattr(clock.median_ms, "__defaults__", (1, 1, None))
    monkeypatch.setattr(clock.cost_curve.__wrapped__, "__defaults__", ((1, 2, 8, 64), 16, 1))
    monkeypatch.setattr(plots.save, "__defaults__", (20,))
    monkeypatch.setattr(cli, "load_dataset", dataset)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_chapters_script(trained_in_no_time, few_laps, tmp_path, capsys, chapter, device):
    """Train, save, load, decode with every method, time, draw: no tensor strays."""
    flags = ["--prompts", "1", "--max-new-tokens", "8", "--out", str(tmp_path / "figures")]
    script = load_script(chapter)
    if chapter == "02":  # exact distributions, of models without a device: minutes under the watch
        script.print_bias_of_the_rules = lambda out: None
    with on(device) as (name, pretended):
        script.main([*flags, "--device", name])
    assert "tau" in capsys.readouterr().out
    assert pretended is None or pretended.results > 3_000


def small_gpt():
    torch.manual_seed(0)
    return GPT(GPTConfig(11, 16, 2, 2, 8))


def forgotten(model, tokens, name):
    """A forward of a model one of whose buffers did not move along."""
    setattr(model, name, getattr(model, name).cpu())
    return model(tokens)


STRAYS = {
    "positions": lambda m, t: forgotten(m, t, "cos"),
    "mask": lambda m, t: m(t)[0].masked_fill(torch.ones(3, 11, dtype=torch.bool), 0.0),
    "sum": lambda m, t: m(t)[0] + torch.zeros(11),
    "cat": lambda m, t: torch.cat([m(t)[0], torch.zeros(1, 1, 11)], 1),
    "index": lambda m, t: torch.zeros(11)[t],
    "numpy": lambda m, t: m(t)[0].detach().numpy(),
    "generator": lambda m, t: torch.multinomial(torch.softmax(m(t)[0][0], -1), 1,
                                                generator=torch.Generator()),
}


@pytest.mark.parametrize("stray", STRAYS)
def test_the_pretended_device_notices(stray):
    STRAYS[stray](small_gpt(), torch.tensor([[1, 2, 3]]))  # on one device nothing is wrong with it
    with pretended_cuda():
        model = small_gpt().to("cuda")
        tokens = torch.tensor([[1, 2, 3]], device="cuda")
        assert model(tokens)[0].device.type == "cuda"
        with pytest.raises((RuntimeError, TypeError)):
            STRAYS[stray](model, tokens)


def test_the_pretended_device_changes_no_number():
    tokens = torch.tensor([[1, 2, 3]])
    here = small_gpt()(tokens)[0]
    with pretended_cuda():
        there = small_gpt().to("cuda")(tokens.to("cuda"))[0]
        assert there.device.type == "cuda" and there.cpu().device.type == "cpu"
        assert torch.equal(there.cpu(), here)


def cuda_build_without_a_driver(patch):
    """Make this torch answer as the one that an unpinned install brings to a Linux machine."""
    def no_driver(*args, **kwargs):
        raise RuntimeError("Found no NVIDIA driver on your system")

    patch.setattr(torch.backends.cuda, "is_built", lambda: True)
    patch.setattr(torch.cuda, "_lazy_init", no_driver)
    for module in (torch.cuda, torch.cuda.graphs):
        patch.setattr(module, "is_current_stream_capturing", no_driver)
    if hasattr(torch, "accelerator"):
        patch.setattr(torch.accelerator, "current_stream", no_driver)
        patch.setattr(torch.accelerator, "current_accelerator",
                      lambda check_available=False: torch.device("cuda"))


def test_the_pretended_device_asks_no_driver(monkeypatch):
    """A step of both optimizers, with a torch that was built for CUDA and finds none."""
    cuda_build_without_a_driver(monkeypatch)
    adam = torch.optim.AdamW(small_gpt().parameters())
    with pytest.raises(RuntimeError, match="no NVIDIA driver"), monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: True)
        adam.step()  # else this test would show nothing
    with pretended_cuda():
        model = small_gpt().to("cuda")
        optimizer = train.Optimizer(model, train.SIZES["draft"].recipe)
        before = model.embed.weight.clone()
        model(torch.tensor([[1, 2, 3]], device="cuda"))[0].square().mean().backward()
        optimizer.step(1.0)
        assert not torch.equal(model.embed.weight, before)
