"""Checkpoints, training that is interrupted, Muon, the weights that come along."""

import json
import math
import os
import shutil
import sys
from argparse import Namespace
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from nanogpt import checkpoint, train, weights
from block_diffusion import BlockConfig
from nanogpt.checkpoint import (
    WEIGHTS,
    checkpoint_path,
    fingerprint,
    restore,
    save_checkpoint,
    updates_in,
)
from nanogpt.data import load_dataset
from nanogpt.model import GPT, GPTConfig
from nanogpt.run import trained_cast
from nanogpt.sizes import SIZES, Recipe, Size
from nanogpt.train import Muon, fit, orthogonalize
from train_drafter import RECIPE as DRAFTER_RECIPE
from train_drafter import drafter_validation_loss, get_drafter
from train_heads import (
    get_heads,
    get_kind_head,
    get_one_head,
    get_taught_heads,
    heads_validation_loss,
    in_turn,
    kinds_of_text,
)

# ---------------------------------------------------------------- checkpoints

CONFIG = {"width": 1}


def tiny(seed=0):
    torch.manual_seed(seed)
    return GPT(GPTConfig(5, 8, 1, 1, 8))


def store(path, step, model, config=CONFIG, **more):
    save_checkpoint(path, config, {"model": model.state_dict(), "step": step, **more})


def test_checkpoints_are_keyed_and_checked(tmp_path):
    path, model = checkpoint_path("m", CONFIG, tmp_path), tiny()
    assert path != checkpoint_path("m", {"width": 2}, tmp_path)
    assert updates_in(path) == 0
    store(path, 3, model)
    assert updates_in(path) == restore(tiny(1), path, CONFIG, [3]) == 3
    with pytest.raises(ValueError, match="belongs to other settings; delete it"):
        restore(model, path, {"width": 2}, [3])
    with pytest.raises(ValueError, match="cannot be read"):
        restore(model, tmp_path, CONFIG, [3])


def test_a_write_leaves_what_was_there_until_it_is_whole(tmp_path, monkeypatch):
    path, other, write = tmp_path / "new" / "m.pt", tmp_path / "other.pt", Path.write_bytes
    store(path, 3, tiny())
    os.link(path, other)  # the same bytes under another name

    def full(path, content):
        write(path, content[:100])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(ValueError, match="m.pt cannot be written: No space left on device"):
            store(path, 4, tiny())
    assert updates_in(path) == 3 and len(list(path.parent.iterdir())) == 1
    store(path, 4, tiny())
    assert (updates_in(path), updates_in(other)) == (4, 3)  # a new file, not the old one's bytes


def test_damaged_checkpoints_are_refused(tmp_path):
    """Other bytes, other content; and of a flipped bit the weights are right, or it is refused."""
    path, model = tmp_path / "m.pt", tiny()
    store(path, 3, model)
    whole = path.read_bytes()
    contents = [b"", whole[:100], *(bytes([i]) * 8 for i in range(128))]
    state, nan = model.state_dict(), {k: v * math.nan for k, v in model.state_dict().items()}
    for saved in (["config"], {"config": CONFIG}, {"config": CONFIG, "model": {}, "step": 3},
                  *({"config": CONFIG, "model": found, "step": step} for found, step in (
                      (state, 2), (state, None), (nan, 3), (GPT(GPTConfig(6)).state_dict(), 3)))):
        torch.save(saved, path)
        contents.append(path.read_bytes())
    for content in contents:
        path.write_bytes(content)
        with pytest.raises(ValueError, match="m.pt is damaged or no checkpoint of this project"):
            restore(tiny(1), path, CONFIG, [3])
    refused = 0
    for place in range(0, len(whole), 97):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1:])
        found = tiny(1)
        try:
            restore(found, path, CONFIG, [3])
            assert fingerprint(found) == fingerprint(model), place
        except ValueError:
            refused += 1
    assert refused > 20


# ---------------------------------------------------------------- Ctrl-C


RECIPE = Recipe(12, 2)


def train_tiny(path, press=lambda step: None, **more):
    """12 steps of a tiny model; press(step) is called in each, before the update."""
    model = tiny()

    def batch_loss(step):
        press(step)
        generator = train.step_generator(RECIPE, step)
        tokens = torch.randint(5, (2, 8), generator=generator)
        return torch.nn.functional.cross_entropy(
            model(tokens)[0].flatten(0, 1).float(), tokens.flatten())

    fit(model, batch_loss, RECIPE, path, CONFIG, "tiny", **more)
    return fingerprint(model)


def pressed_at(last):
    """-> press(step), which is Ctrl-C in this step."""
    def press(step):
        if step == last:
            raise KeyboardInterrupt

    return press


def trained_again(step):
    pytest.fail("trained once more")


@pytest.mark.parametrize("place", ["in the batch", "between the two optimizers"])
def test_an_interrupted_training_ends_on_the_same_weights(tmp_path, monkeypatch, place):
    """Ctrl-C in step 7; AdamW has made its update when Muon's begins. Bit for bit."""
    whole, muon, path = train_tiny(tmp_path / "whole.pt"), Muon.step, tmp_path / "tiny.pt"
    steps = iter(range(99))

    def press(optimizer):
        pressed_at(7)(next(steps))
        return muon(optimizer)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt) as stopped:
        if place == "in the batch":
            train_tiny(path, pressed_at(7), save_every=-1)  # each step is saved
        patch.setattr(Muon, "step", press)
        train_tiny(path, save_every=-1)
    assert str(stopped.value) == ("stopped at step 7 of 12; the same command goes on from step 7, "
                                  "which was saved last")
    begun = iter(range(7, 99))
    assert train_tiny(path, lambda step: step == next(begun) or pytest.fail("begun anew")) == whole
    assert train_tiny(path, trained_again) == whole
    assert sorted(file.name for file in tmp_path.iterdir()) == ["tiny.pt", "whole.pt"]


def test_an_interrupted_retraining_leaves_the_finished_weights(tmp_path):
    path = tmp_path / "tiny.pt"
    whole, before = train_tiny(path), path.read_bytes()
    for save_every, kept in ((99, "nothing is kept, the state is saved every 99 s"),
                             (-1, "the same command goes on from step 7, which was saved last")):
        with pytest.raises(KeyboardInterrupt, match=f"stopped at step 7 of 12; {kept}"):
            train_tiny(path, pressed_at(7), save_every=save_every, retrain=True)
        assert path.read_bytes() == before and train_tiny(path, trained_again) == whole
    begun = iter(range(7, 99))
    assert train_tiny(path, lambda step: step == next(begun) or pytest.fail("begun anew"),
                      retrain=True) == whole
    assert updates_in(path) == 12 and len(list(tmp_path.iterdir())) == 1


def test_ctrl_c_behind_the_last_step_costs_nothing(tmp_path, monkeypatch):
    """While the finished weights are written, or while their loss is computed."""
    path, save = tmp_path / "tiny.pt", train.save_checkpoint
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(train, "save_checkpoint", lambda into, *args: (
            pressed_at(path)(into), save(into, *args)))
        train_tiny(path, save_every=-1)
    assert not path.exists() and updates_in(tmp_path / "tiny.unfinished.pt") == 12
    with pytest.raises(KeyboardInterrupt):
        train_tiny(path, trained_again, evaluate=lambda: pressed_at(0)(0))
    assert updates_in(path) == 12
    assert [file.name for file in tmp_path.iterdir()] == ["tiny.pt"]


def test_what_cannot_be_kept_is_not_trained(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="folder '.*file' cannot be made"):
        train_tiny(tmp_path / "file" / "tiny.pt", trained_again)


def test_a_process_that_is_behind_overwrites_nothing(tmp_path):
    """Two trainings with the same settings: the other one saves step 9 while this is in step 3."""
    begun = tmp_path / "tiny.unfinished.pt"

    def other(step):
        if step == 3:
            store(begun, 9, tiny())
        pressed_at(7)(step)

    with pytest.raises(KeyboardInterrupt, match="goes on from step 9"):
        train_tiny(tmp_path / "tiny.pt", other, save_every=-1)
    assert updates_in(begun) == 9


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


def test_muon_moves_what_lies_between_hidden_spaces_and_nothing_else():
    model = tiny()
    adam, muon = train.Optimizer(model, RECIPE).parts
    assert isinstance(adam, torch.optim.AdamW) and isinstance(muon, Muon)
    names = {parameter: name for name, parameter in model.named_parameters()}
    assert [names[weight] for weight in adam.param_groups[0]["params"]] == [
        "embed.weight", "lm_head.weight"]
    assert len(muon.param_groups[0]["params"]) == len(names) - 2


def test_without_a_gradient_nothing_moves():
    model = tiny()
    before = fingerprint(model)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    train.Optimizer(model, RECIPE).step(1.0)
    assert fingerprint(model) == before  # no weight decays


def test_the_validation_loss_is_per_token():
    """Of a model that finds all tokens alike it is log V, whatever is left over at the end."""
    model = tiny()
    torch.nn.init.zeros_(model.lm_head.weight)
    for n in (9, 100, 400):
        assert train.validation_loss(model, torch.arange(n) % 5) == pytest.approx(math.log(5))
    with torch.no_grad():  # and asks for the next one: here it is the same again
        model.embed.weight[:] = model.lm_head.weight[:] = 9 * torch.eye(5, 8)
    right, wrong = (train.validation_loss(model, torch.arange(100) // n % 5) for n in (100, 1))
    assert right < 0.1 < wrong


CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def dataset():
    return load_dataset()


def never(*args, **kwargs):
    pytest.fail("trained")


# ---------------------------------------------------------------- weights that come along


@pytest.mark.parametrize("size", [pytest.param(size, marks=[pytest.mark.slow] * (size == "baby"))
                                  for size in SIZES if SIZES[size].shipped])
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
        one = get_one_head(target, dataset, CPU, folder=tmp_path)
        losses[f"{size}-one-head.pt"] = heads_validation_loss(one, dataset)
    for name, loss in losses.items():
        assert loss == pytest.approx(index[name]["validation_loss"], abs=0.01)
        assert f"weights: data/weights/{name}, trained by this script in" in caplog.text
    assert all(parameter.dtype == torch.float32 for parameter in target.parameters())


def test_shipped_heads_for_verse_and_code(monkeypatch):
    monkeypatch.setattr(train, "tqdm", never)
    index = json.loads((WEIGHTS / "index.json").read_text())
    kinds = kinds_of_text()
    target = train.get_gpt("small", kinds["both"], CPU)
    turns = in_turn(kinds)
    found = {"taught-heads": (get_taught_heads(turns, target, CPU), turns)} | {
        f"head-for-{kind}": (get_kind_head(kind, dataset, target, CPU), dataset)
        for kind, dataset in kinds.items()}
    for name, heads in found.items():
        assert heads_validation_loss(*heads) == pytest.approx(
            index[f"small-{name}.pt"]["validation_loss"], abs=0.01)


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
        "draft", "small", "small-block-drafter", "small-draft-heads", "small-one-head",
        "small-verse-and-code", "small-head-for-verse", "small-head-for-code",
        "small-head-for-both", "small-taught-heads")]
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
    ("index.json", b'{"small.pt": {"config": 1}}', "index.json is damaged"),
    ("small.pt", b"PK", "small.pt is damaged; `git checkout data/weights` or a new download"),
    ("small.pt", 99, "small.pt is damaged"),
])
def test_damaged_weights(dataset, folder, monkeypatch, name, content, sentence):
    """A number: of the byte with a flipped bit."""
    monkeypatch.setattr(train, "tqdm", never)
    file = bytearray((folder / name).read_bytes())
    if isinstance(content, int):
        file[content] ^= 1
    (folder / name).write_bytes(file if isinstance(content, int) else content)
    with pytest.raises(ValueError, match=sentence):
        train.get_gpt("small", dataset, CPU)


@pytest.mark.parametrize("name", ["", "small.pt"])
def test_what_did_not_come_along_is_trained(dataset, folder, capsys, name):
    if name:
        (folder / name).unlink()
    else:
        shutil.rmtree(folder)
    train.get_gpt("small", dataset, CPU)
    assert "trained small GPT" in capsys.readouterr().out


def test_weights_that_are_not_made_to_the_end_replace_nothing(dataset, folder, monkeypatch):
    before = sorted((file.name, file.read_bytes()) for file in folder.iterdir())

    def press(step, recipe):
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "schedule", press)
    with pytest.raises(KeyboardInterrupt, match="stopped; .*weights is as it was"):
        weights.make(folder, dataset, CPU, RECIPES)
    assert sorted((file.name, file.read_bytes()) for file in folder.iterdir()) == before
    assert [path.name for path in folder.parent.iterdir()] == ["weights"]


# ---------------------------------------------------------------- what decodes


def test_what_decodes_is_what_was_trained(dataset, folder, monkeypatch):
    """The copies of a target, its heads and its block drafter hold the weights of the files."""
    m = trained_cast(Namespace(size="small", retrain=False, precision="float32"), dataset, CPU)
    monkeypatch.setattr(train, "tqdm", never)
    monkeypatch.setattr("ddtree_room.get_drafter", partial(get_drafter, recipe=RECIPES["drafter"]))
    monkeypatch.setattr("routing_room.get_heads", partial(get_heads, recipe=RECIPES["heads"]))
    for copy, name in ((m.target, "small"), (m.small, "draft"), (m.block, "small-block-drafter"),
                       (torch.nn.ModuleDict({"heads": torch.nn.ModuleList(m.heads)}),
                        "small-draft-heads")):
        stored = torch.load(folder / f"{name}.pt", weights_only=True)["model"]
        assert stored.keys() == copy.state_dict().keys()
        for key, tensor in copy.state_dict().items():
            assert torch.equal(tensor, stored[key].float()), (name, key)


def test_a_step_is_a_schedules(tmp_path, monkeypatch):
    """Each once, from the first; and gradients do not add up over the steps."""
    steps, gradients = [], []
    monkeypatch.setattr(train, "schedule", lambda step, recipe: steps.append(step) or 0.0)
    monkeypatch.setattr(train, "step_generator", lambda *_: torch.Generator().manual_seed(0))
    monkeypatch.setattr(Muon, "step", lambda optimizer: gradients.append(
        float(optimizer.param_groups[0]["params"][1].grad.norm())))
    train_tiny(tmp_path / "tiny.pt")
    assert steps == list(range(12)) and gradients == [gradients[0]] * 12 != [0] * 12


def test_the_first_weights_are_those_of_the_seed(dataset, monkeypatch):
    """Whatever was drawn before; and the batches are the training text's."""
    first, seen = [], []
    monkeypatch.setattr(train, "SIZES", SMALL)
    batch = dataset.batch
    monkeypatch.setattr(dataset, "batch", lambda split, *args: (
        seen.append(split is dataset.train), batch(split, *args))[1])
    for module in ("nanogpt.train", "train_heads", "train_drafter"):
        monkeypatch.setattr(sys.modules[module], "fit",
                            lambda model, batch_loss, *args, **more: (
                                first.append(fingerprint(model)), batch_loss(0)))
    for seed in (1, 2):
        torch.manual_seed(seed)
        target = train.get_gpt("small", dataset, CPU)
        get_heads(target, dataset, CPU)
        get_drafter(target, dataset, BlockConfig.reading(target), CPU)
    assert first[:3] == first[3:] and len(set(first)) == 3 and seen == [True] * 6


def test_the_flags_of_a_training(monkeypatch):
    seen = []
    monkeypatch.setattr(train, "get_gpt", lambda *args: seen.append(args[-1]) or tiny())
    monkeypatch.setattr(train, "validation_loss", lambda *_: 0.0)
    train.main(["--size", "draft", "--seed", "7", "--steps", "5"])
    assert seen == [replace(SIZES["draft"].recipe, seed=7, steps=5)]
