"""The weights that come along: each is what the index says, and is used where it fits alone."""

import json
import shutil
from dataclasses import replace

import pytest
import torch

from nanogpt import checkpoint, train, weights
from block_diffusion import BlockConfig
from nanogpt.checkpoint import WEIGHTS, fingerprint
from nanogpt.data import load_dataset
from nanogpt.sizes import SIZES, Recipe, Size
from train_drafter import RECIPE, drafter_validation_loss, get_drafter
from train_heads import get_heads, heads_validation_loss

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def dataset():
    return load_dataset()


def never(*args, **kwargs):
    pytest.fail("trained")


# ---------------------------------------------------------------- those of the repository


def shipped_sizes():
    there = json.loads((WEIGHTS / "index.json").read_text()) if WEIGHTS.exists() else {}
    return [pytest.param(size, marks=[pytest.mark.slow] * (size == "baby")) for size in SIZES
            if f"{size}.pt" in there]


@pytest.mark.parametrize("size", shipped_sizes())
def test_shipped_weights_have_the_loss_of_the_index(dataset, size, tmp_path, monkeypatch, caplog):
    """Found by the default settings, loaded without a step, and each as good as the index says."""
    monkeypatch.setattr(train, "prepare", never)
    caplog.set_level("INFO", "nanogpt")
    index = json.loads((WEIGHTS / "index.json").read_text())
    target = train.get_gpt(size, dataset, CPU, folder=tmp_path)
    losses = {f"{size}.pt": train.validation_loss(target, dataset.val)}
    if size != "draft":
        drafter = get_drafter(target, dataset, BlockConfig.reading(target), CPU, folder=tmp_path)
        losses[f"{size}-block-drafter.pt"] = drafter_validation_loss(drafter, dataset)
        heads = get_heads(target, dataset, CPU, folder=tmp_path)
        losses[f"{size}-draft-heads.pt"] = heads_validation_loss(heads, dataset)
    for name, loss in losses.items():
        assert loss == pytest.approx(index[name]["validation_loss"], abs=0.01)
        assert f"weights: data/weights/{name}, trained by this script in" in caplog.text
    assert all(parameter.dtype == torch.float32 for parameter in target.parameters())


# ---------------------------------------------------------------- small ones, made here


TINY = Size("tiny", 2, 1, 16, Recipe(2, 2), block_size=64)
SMALL = {"draft": replace(TINY, n_embd=8), "tiny": TINY}
RECIPES = {"drafter": replace(RECIPE, steps=2), "heads": Recipe(2, 2)}


@pytest.fixture(scope="module")
def made(dataset, tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "weights"
    with pytest.MonkeyPatch.context() as patch:
        for module in (train, weights):
            patch.setattr(module, "SIZES", SMALL)
        weights.make(folder, dataset, CPU, RECIPES)
    return folder


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    """A copy of the small weights, in the place of those of the repository."""
    folder = tmp_path / "weights"
    shutil.copytree(made, folder)
    monkeypatch.setattr(checkpoint, "WEIGHTS", folder)
    monkeypatch.setattr(checkpoint, "CHECKPOINTS", tmp_path / "checkpoints")
    monkeypatch.setattr(train, "SIZES", SMALL)
    return folder


def test_weights_are_stored_in_half_and_used_without_training(
        dataset, folder, monkeypatch, caplog):
    caplog.set_level("INFO", "nanogpt")
    names = ["draft.pt", "tiny.pt", "tiny-block-drafter.pt", "tiny-draft-heads.pt"]
    index = json.loads((folder / "index.json").read_text())
    assert list(index) == names
    state = torch.load(folder / "tiny.pt", weights_only=True)["model"]
    assert all(tensor.dtype == torch.float16 for tensor in state.values())
    with monkeypatch.context() as patch:
        patch.setattr(train, "prepare", never)
        target = train.get_gpt("tiny", dataset, CPU)
        drafter = get_drafter(target, dataset, BlockConfig.reading(target), CPU,
                              recipe=RECIPES["drafter"])
        heads = get_heads(target, dataset, CPU, recipe=RECIPES["heads"])
    assert caplog.text.count("--retrain trains anew") == 3
    losses = (train.validation_loss(target, dataset.val), drafter_validation_loss(drafter, dataset),
              heads_validation_loss(heads, dataset))
    assert losses == pytest.approx([index[n]["validation_loss"] for n in names[1:]], abs=1e-3)
    assert index["tiny-block-drafter.pt"]["config"]["target"] == fingerprint(target)


def test_a_drafter_is_for_its_target_alone(dataset, folder, capsys):
    target = train.get_gpt("tiny", dataset, CPU)
    with torch.no_grad():
        target.embed.weight[0, 0] += 1
    get_drafter(target, dataset, BlockConfig.reading(target), CPU, recipe=RECIPES["drafter"])
    get_heads(target, dataset, CPU, recipe=RECIPES["heads"])
    said = capsys.readouterr().out
    assert said.count("trained block-diffusion drafter") == said.count("trained 2 draft heads") == 1


def test_what_is_trained_here_comes_first(dataset, folder, capsys):
    came = train.get_gpt("tiny", dataset, CPU)
    trained = train.get_gpt("tiny", dataset, CPU, retrain=True)
    assert "trained tiny GPT" in capsys.readouterr().out
    again = train.get_gpt("tiny", dataset, CPU)
    assert capsys.readouterr().out == ""
    assert fingerprint(again) == fingerprint(trained) != fingerprint(came)
    train.get_gpt("tiny", dataset, CPU, recipe=Recipe(1, 2))  # other settings: not these weights
    assert "trained tiny GPT" in capsys.readouterr().out


@pytest.mark.parametrize("name, content, sentence", [
    ("index.json", b"{", "index.json is damaged"), ("index.json", b"[1]", "index.json is damaged"),
    ("tiny.pt", b"PK", "tiny.pt is damaged"),
    ("tiny.pt", "draft.pt", "tiny.pt belongs to other settings"),
])
def test_damaged_and_foreign_weights(dataset, folder, monkeypatch, name, content, sentence):
    monkeypatch.setattr(train, "prepare", never)
    if content == "draft.pt":
        other = torch.load(folder / "draft.pt", weights_only=True)
        other["config"]["corpus"] = "another"
        torch.save(other, folder / name)
    else:
        (folder / name).write_bytes(content)
    with pytest.raises(ValueError, match=sentence):
        train.get_gpt("tiny", dataset, CPU)


def test_without_the_folder_it_is_trained(dataset, folder, capsys, caplog):
    shutil.rmtree(folder)
    train.get_gpt("tiny", dataset, CPU)
    assert "weights: data/weights is missing" in caplog.text
    assert "trained tiny GPT" in capsys.readouterr().out


