"""Checkpoints, training that is interrupted, Muon, the weights that come along."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from nanogpt import checkpoint, train, weights
from block_diffusion import BlockConfig
from nanogpt.checkpoint import (
    WEIGHTS,
    checkpoint_path,
    fingerprint,
    load_checkpoint,
    save_checkpoint,
)
from nanogpt.data import load_dataset
from nanogpt.model import GPT, GPTConfig
from nanogpt.sizes import SIZES, Recipe, Size
from nanogpt.train import Muon, fit, orthogonalize
from train_drafter import RECIPE as DRAFTER_RECIPE
from train_drafter import drafter_validation_loss, get_drafter
from train_heads import get_heads, get_kind_head, heads_validation_loss, kinds_of_text

# ---------------------------------------------------------------- checkpoints


def test_checkpoints_are_keyed_and_checked(tmp_path, monkeypatch):
    config = {"width": 1}
    path = checkpoint_path("m", config, tmp_path)
    assert path != checkpoint_path("m", {"width": 2}, tmp_path)
    assert load_checkpoint(path, config) is None
    save_checkpoint(path, config, {"step": 3})
    with pytest.raises(ValueError, match="other settings"):
        load_checkpoint(path, {"width": 2})

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ValueError, match="cannot be written: No space left on device"):
        save_checkpoint(path, config, {"step": 4})
    monkeypatch.undo()
    assert load_checkpoint(path, config)["step"] == 3  # what was there is still there
    assert len(list(tmp_path.iterdir())) == 1
    whole = path.read_bytes()
    torch.save(["config"], tmp_path / "list.pt")
    garbage = [bytes([i]) * 8 for i in range(128)]
    for content in (b"", whole[:100], (tmp_path / "list.pt").read_bytes(), *garbage):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="damaged or no checkpoint of this project"):
            load_checkpoint(path, config)


# ---------------------------------------------------------------- Ctrl-C


RECIPE = Recipe(12, 2)


def train_tiny(path, press=lambda step: None, **more):
    """12 steps of a tiny model; press(step) is called in each, before the update."""
    torch.manual_seed(0)
    model = GPT(GPTConfig(5, 8, 1, 1, 8))

    def batch_loss(step):
        press(step)
        generator = train.step_generator(RECIPE, step)
        tokens = torch.randint(5, (2, 8), generator=generator)
        return torch.nn.functional.cross_entropy(
            model(tokens)[0].flatten(0, 1).float(), tokens.flatten())

    fit(model, batch_loss, RECIPE, path, {"tiny": 1}, "tiny", **more)
    return model.state_dict()


@pytest.mark.parametrize("place", ["in the batch", "between the two optimizers"])
def test_an_interrupted_training_ends_on_the_same_weights(tmp_path, monkeypatch, capsys, place):
    """Ctrl-C in step 7; AdamW has made its update when Muon's begins. Bit for bit."""
    whole, muon, path = train_tiny(tmp_path / "whole.pt"), Muon.step, tmp_path / "tiny.pt"
    steps = iter(range(99))

    def press(*args):
        if next(steps) == 7:
            raise KeyboardInterrupt
        return muon(*args) if isinstance(args[0], Muon) else None

    with monkeypatch.context() as patch, pytest.raises(SystemExit) as stopped:
        if place == "in the batch":
            train_tiny(path, press, save_every=-1)  # each step is saved
        patch.setattr(Muon, "step", press)
        train_tiny(path, save_every=-1)
    assert stopped.value.code == 130
    assert "stopped at step 7 of 12; the next run goes on" in capsys.readouterr().out
    assert torch.load(path)["step"] == 7
    resumed = train_tiny(path)
    for name in whole:
        torch.testing.assert_close(resumed[name], whole[name], rtol=0, atol=0)
    train_tiny(path, press=lambda step: pytest.fail("trained once more"))


# ---------------------------------------------------------------- Muon


@pytest.fixture(params=[True, False], ids=["bfloat16", "float32"])
def precision(request, monkeypatch):
    """Both precisions in turn, whatever is faster here -> True for bfloat16."""
    monkeypatch.setattr(train, "bf16_is_faster", lambda device: request.param)
    return request.param


SHAPES = [(24, 24), (16, 48), (48, 16)]


@pytest.mark.parametrize("shape", SHAPES)
def test_an_update_becomes_orthogonal(precision, shape):
    """The directions stay, and every singular value goes five times through the quintic."""
    torch.manual_seed(1)
    u, _, v = torch.linalg.svd(torch.randn(shape).double(), full_matrices=False)
    values = torch.logspace(-2, 0, min(shape)).double()
    found, s = orthogonalize((u * values @ v).float()), values / values.norm()
    for _ in range(5):
        s = 3.4445 * s - 4.7750 * s ** 3 + 2.0315 * s ** 5
    assert s.min() > 0.6 and s.max() < 1.25
    expected = (u * s @ v).to(found.dtype)
    assert found.dtype == (torch.bfloat16 if precision else torch.float32)
    torch.testing.assert_close(found, expected, rtol=0, atol=0.1 if precision else 1e-4)
    assert not orthogonalize(torch.zeros(shape)).any()


def test_a_step_by_hand(monkeypatch):
    """lr 0.1, momentum 1/2. Gradient 3: average 1.5, ahead 2.25; then -2: average -.25, -1.125."""
    seen = []
    monkeypatch.setattr(train, "orthogonalize", lambda update: seen.append(update) or update.sign())
    still = torch.nn.Parameter(torch.ones(2, 2))  # no gradient: stays
    for shape, factor in (((4, 2), 2 ** 0.5), ((2, 4), 1)):  # tall matrices take larger steps
        weight = torch.nn.Parameter(torch.zeros(shape))
        optimizer = Muon([weight, still], lr=0.1, momentum=0.5)
        for gradient, ahead, place in ((3.0, 2.25, -1), (-2.0, -1.125, 0)):
            weight.grad = torch.full(shape, gradient)
            optimizer.step()
            assert (seen[-1] == ahead).all()
            torch.testing.assert_close(weight.data, torch.full(shape, place * 0.1 * factor))
    assert torch.equal(still, torch.ones(2, 2))


def test_the_learning_rate_rises_and_falls():
    """Warm-up over 4 steps, decay to zero over all 10: the lower of the two lines."""
    recipe = Recipe(10, 2, lr=0.5, muon_lr=0.25, warmup=4)
    scales = [train.schedule(step, recipe) for step in range(10)]
    assert scales == pytest.approx([.25, .5, .75, .7, .6, .5, .4, .3, .2, .1])
    optimizer = train.Optimizer(GPT(GPTConfig(5, 8, 1, 1, 8)), recipe)
    for scale in (0.5, 0.1):  # of the peak, not of the last step
        optimizer.step(scale)
        assert [part.param_groups[0]["lr"] for part in optimizer.parts] == pytest.approx(
            [0.5 * scale, 0.25 * scale])


CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def dataset():
    return load_dataset()


def never(*args, **kwargs):
    pytest.fail("trained")


# ---------------------------------------------------------------- weights that come along


@pytest.mark.parametrize("size", [pytest.param(size, marks=[pytest.mark.slow] * (size == "baby"))
                                  for size in SIZES])
def test_shipped_weights_have_the_loss_of_the_index(dataset, size, tmp_path, monkeypatch, caplog):
    """Found by the default settings, loaded without a step, and each as good as the index says."""
    monkeypatch.setattr(train, "tqdm", never)
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


def test_shipped_heads_for_verse_and_code(monkeypatch):
    monkeypatch.setattr(train, "tqdm", never)
    index = json.loads((WEIGHTS / "index.json").read_text())
    kinds = kinds_of_text()
    target = train.get_gpt("small", kinds["both"], CPU)
    for kind, dataset in kinds.items():
        loss = heads_validation_loss(get_kind_head(kind, dataset, target, CPU), dataset)
        assert loss == pytest.approx(
            index[f"small-head-for-{kind}.pt"]["validation_loss"], abs=0.01)


# Small ones, made here.
TINY = Size("small", 2, 1, 16, Recipe(2, 2), block_size=64)
SMALL = {"draft": replace(TINY, n_embd=8), "small": TINY}
RECIPES = {"drafter": replace(DRAFTER_RECIPE, steps=2), "heads": Recipe(2, 2)}


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


def test_weights_are_stored_in_half_and_used_without_training(dataset, folder, monkeypatch):
    index = json.loads((folder / "index.json").read_text())
    assert list(index) == [f"{name}.pt" for name in (
        "draft", "small", "small-block-drafter", "small-draft-heads", "small-verse-and-code",
        "small-head-for-verse", "small-head-for-code", "small-head-for-both")]
    state = torch.load(folder / "small.pt", weights_only=True)["model"]
    assert all(tensor.dtype == torch.float16 for tensor in state.values())
    monkeypatch.setattr(train, "tqdm", never)
    target = train.get_gpt("small", dataset, CPU)
    get_drafter(target, dataset, BlockConfig.reading(target), CPU, recipe=RECIPES["drafter"])
    get_heads(target, dataset, CPU, recipe=RECIPES["heads"])
    assert train.validation_loss(target, dataset.val) == pytest.approx(
        index["small.pt"]["validation_loss"], abs=1e-3)
    assert index["small-block-drafter.pt"]["config"]["target"] == fingerprint(target)


def test_a_drafter_is_for_its_target_alone(dataset, folder, capsys):
    target = train.get_gpt("small", dataset, CPU)
    with torch.no_grad():
        target.embed.weight[0, 0] += 1
    get_drafter(target, dataset, BlockConfig.reading(target), CPU, recipe=RECIPES["drafter"])
    get_heads(target, dataset, CPU, recipe=RECIPES["heads"])
    said = capsys.readouterr().out
    assert said.count("trained block-diffusion drafter") == said.count("trained 2 draft heads") == 1


def test_what_is_trained_here_comes_first(dataset, folder, capsys):
    came = train.get_gpt("small", dataset, CPU)
    trained = train.get_gpt("small", dataset, CPU, retrain=True)
    assert "trained small GPT" in capsys.readouterr().out
    again = train.get_gpt("small", dataset, CPU)
    assert capsys.readouterr().out == ""
    assert fingerprint(again) == fingerprint(trained) != fingerprint(came)
    train.get_gpt("small", dataset, CPU, recipe=Recipe(1, 2))  # other settings: not these weights
    assert "trained small GPT" in capsys.readouterr().out


@pytest.mark.parametrize("name, content, sentence", [
    ("index.json", b"{", "index.json is damaged"), ("index.json", b"[1]", "index.json is damaged"),
    ("small.pt", b"PK", "small.pt is damaged"),
])
def test_damaged_weights(dataset, folder, monkeypatch, name, content, sentence):
    monkeypatch.setattr(train, "tqdm", never)
    (folder / name).write_bytes(content)
    with pytest.raises(ValueError, match=sentence):
        train.get_gpt("small", dataset, CPU)


def test_without_the_folder_it_is_trained(dataset, folder, capsys):
    shutil.rmtree(folder)
    train.get_gpt("small", dataset, CPU)
    assert "trained small GPT" in capsys.readouterr().out
