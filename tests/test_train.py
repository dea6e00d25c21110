"""Checkpoints, training that is interrupted, training in several processes, Muon."""

import copy
import errno
import hashlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from nanogpt import checkpoint, muon, train
from nanogpt.checkpoint import checkpoint_path, load_checkpoint, save_checkpoint
from nanogpt.data import Dataset
from nanogpt.model import GPT, GPTConfig
from nanogpt.muon import Muon, orthogonalize
from nanogpt.sizes import Recipe
from nanogpt.train import fit

ROOT = Path(__file__).resolve().parent.parent

# ---------------------------------------------------------------- checkpoints


def test_checkpoints_are_keyed_and_checked(tmp_path, monkeypatch):
    config = {"width": 1}
    path = checkpoint_path("m", config, tmp_path)
    assert path != checkpoint_path("m", {"width": 2}, tmp_path)
    assert load_checkpoint(path, config) is None
    save_checkpoint(path, config, {"step": 3})
    assert load_checkpoint(path, config)["step"] == 3
    with pytest.raises(ValueError, match="other settings"):
        load_checkpoint(path, {"width": 2})

    def full(*args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ValueError, match="cannot be written: No space left on device"):
        save_checkpoint(path, config, {"step": 4})
    monkeypatch.undo()
    assert load_checkpoint(path, config)["step"] == 3  # what was there is still there
    assert len(list(tmp_path.iterdir())) == 1
    whole = path.read_bytes()
    garbage = [hashlib.sha256(bytes([i])).digest()[:8] for i in range(256)]
    for content in (b"", b"not a checkpoint", whole[:100], *garbage):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="damaged"):
            load_checkpoint(path, config)
    for content in (torch.zeros(3), ["config"], {}):
        torch.save(content, path)
        with pytest.raises(ValueError, match="no checkpoint of this project"):
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


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The weights after 12 steps that nobody interrupts."""
    return train_tiny(tmp_path_factory.mktemp("whole") / "whole.pt")


def once(call, turn):
    """-> a function that runs call() when it is called for the turn-th time, and at no other."""
    count = iter(range(1000))
    return lambda: call() if next(count) == turn else None


def ctrl_c():
    signal.raise_signal(signal.SIGINT)


def interrupted(monkeypatch, place):
    """Press Ctrl-C once, in step 7, at this place -> the keywords for train_tiny."""
    press = once(ctrl_c, 7)
    if place == "in the batch":
        return {"press": lambda step: press()}
    if place == "while saving":  # each step is saved
        save = checkpoint.save_checkpoint

        def save_and_press(*args):
            press()
            save(*args)

        monkeypatch.setattr(train, "save_checkpoint", save_and_press)
        return {"save_every": -1.0}
    owner, name = {"between the two optimizers": (Muon, "step"),
                   "at the end of the update": (Muon, "step"),
                   "behind the update": (train.Optimizer, "step")}[place]
    step = getattr(owner, name)

    def step_and_press(*args):
        if place == "between the two optimizers":  # AdamW has made its update
            press()
        step(*args)
        if place != "between the two optimizers":
            press()

    monkeypatch.setattr(owner, name, step_and_press)
    return {}


@pytest.mark.parametrize("place", [
    "in the batch", "between the two optimizers", "at the end of the update", "behind the update",
    "while saving"])
def test_an_interrupted_training_makes_every_update_once(
        tmp_path, monkeypatch, capsys, whole, place):
    """Wherever Ctrl-C arrives, the resumed training ends on the same weights, bit for bit."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
    try:
        with monkeypatch.context() as patch, pytest.raises(SystemExit) as stopped:
            train_tiny(tmp_path / "tiny.pt", **interrupted(patch, place))
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    done = 7 if place == "in the batch" else 8
    assert stopped.value.code == 130
    assert f"stopped at step {done} of 12; the next run goes on there" in capsys.readouterr().out
    assert torch.load(tmp_path / "tiny.pt")["step"] == done
    resumed = train_tiny(tmp_path / "tiny.pt")
    for name in whole:
        torch.testing.assert_close(resumed[name], whole[name], rtol=0, atol=0)
    again = train_tiny(tmp_path / "tiny.pt", press=lambda step: pytest.fail("trained once more"))
    assert torch.equal(again["embed.weight"], whole["embed.weight"])


def test_ctrl_c_that_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with train.ctrl_c_waits():
            ctrl_c()
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_training_in_another_thread(tmp_path, whole):
    """Only the main thread may set a signal's handler."""
    results = []
    thread = threading.Thread(target=lambda: results.append(train_tiny(tmp_path / "tiny.pt")))
    thread.start()
    thread.join()
    assert torch.equal(results[0]["embed.weight"], whole["embed.weight"])


# ---------------------------------------------------------------- several processes


class Nothing:
    vocab_size = 11


def text_of_numbers():
    numbers = torch.arange(4000) % 11
    return Dataset("numbers", "char", Nothing(), numbers, numbers, "0" * 64)


def as_process(monkeypatch, rank, world):
    """This process takes itself for one of `world`."""
    monkeypatch.setattr(train.dist, "is_initialized", lambda: True)
    monkeypatch.setattr(train.dist, "get_rank", lambda: rank)
    monkeypatch.setattr(train.dist, "get_world_size", lambda: world)
    monkeypatch.setattr(torch.nn.parallel, "DistributedDataParallel", lambda network: network)


@pytest.mark.parametrize("batch_size, world", [(8, 3), (2, 4), (9, 2)])
def test_a_batch_that_does_not_fit_the_processes_is_refused(
        monkeypatch, tmp_path, batch_size, world):
    as_process(monkeypatch, 0, world)
    monkeypatch.setattr(train, "fit", lambda *a, **k: pytest.fail("trained before checking"))
    with pytest.raises(ValueError, match=f"batch_size is {batch_size}; it must be a multiple of "
                                         f"the number of processes, {world}"):
        train.get_gpt("draft", text_of_numbers(), "cpu", recipe=Recipe(2, batch_size),
                      folder=tmp_path)


def test_processes_share_the_batch_and_see_different_sequences(monkeypatch, tmp_path):
    seen, batch = [], Dataset.batch

    def noted(*args):
        seen.append(batch(*args)[0])
        return [part[:, :16] for part in batch(*args)]  # enough for a loss

    monkeypatch.setattr(Dataset, "batch", noted)
    for rank in (0, 1):
        as_process(monkeypatch, rank, 2)
        train.get_gpt("draft", text_of_numbers(), "cpu", recipe=Recipe(1, 6),
                      folder=tmp_path / str(rank))
    assert [len(tokens) for tokens in seen] == [3, 3]
    assert not torch.equal(*seen)
    assert [len(list((tmp_path / str(rank)).glob("*"))) if (tmp_path / str(rank)).exists() else 0
            for rank in (0, 1)] == [1, 0]  # the first process alone writes


@pytest.mark.slow
def test_two_processes_train_together(tmp_path):
    """torchrun with gloo: both see their share of the batch, one writes the checkpoint."""
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("to be or not to be, that is the question.\n" * 300)
    driver = tmp_path / "driver.py"
    driver.write_text(
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from pathlib import Path\n"
        "from nanogpt import checkpoint, train\n"
        f"checkpoint.CHECKPOINTS = Path({str(tmp_path)!r})\n"
        f"train.main(['--size', 'draft', '--steps', '2', '--corpus', {str(corpus)!r},"
        " '--threads', '1'])\n")
    answer = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2",
         str(driver)],
        capture_output=True, text=True, timeout=240, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert answer.returncode == 0, answer.stderr[-2000:]
    assert answer.stdout.count("validation loss") == 2  # from one process: trained, summary
    assert len(list(tmp_path.glob("draft-*.pt"))) == 1


# ---------------------------------------------------------------- Muon


@pytest.fixture(params=[True, False], ids=["bfloat16", "float32"])
def precision(request, monkeypatch):
    """Both precisions in turn, whatever is faster here -> True for bfloat16."""
    monkeypatch.setattr(muon, "bf16_is_faster", lambda device: request.param)
    return request.param


SHAPES = [(24, 24), (16, 48), (48, 16)]


@pytest.mark.parametrize("shape", SHAPES)
def test_an_update_becomes_orthogonal(precision, shape):
    """Singular values from 0.001 to 1 all come near 1; the directions stay."""
    torch.manual_seed(1)
    u, _, v = torch.linalg.svd(torch.randn(shape), full_matrices=False)
    values = torch.logspace(-2, 0, min(shape))
    found = orthogonalize(u * values @ v)
    assert found.shape == shape
    assert found.dtype == (torch.bfloat16 if precision else torch.float32)
    singular = torch.linalg.svdvals(found.float())
    assert singular.min() > 0.6 and singular.max() < 1.25
    alike = torch.nn.functional.cosine_similarity(found.float().flatten(), (u @ v).flatten(), 0)
    assert alike > 0.97
    assert not orthogonalize(torch.zeros(shape)).any()
    scaled = orthogonalize(1e-3 * (u * values @ v))  # only the direction counts
    torch.testing.assert_close(scaled, found, rtol=0, atol=0.1 if precision else 1e-4)


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this torch has no Muon of its own")
@pytest.mark.parametrize("shape", SHAPES)
def test_muon_is_torchs(precision, shape, monkeypatch):
    """Three steps with the same gradients; torch would always multiply in bfloat16."""
    if not precision:
        monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.float)
    torch.manual_seed(2)
    ours = torch.nn.Parameter(torch.randn(shape))
    theirs = torch.nn.Parameter(ours.detach().clone())
    start = ours.detach().clone()
    parts = (Muon([ours], 0.02, 0.9),
             torch.optim.Muon([theirs], lr=0.02, momentum=0.9, weight_decay=0.0,
                              adjust_lr_fn="original"))
    for _ in range(3):
        gradient = torch.randn(shape)
        for weight, part in zip((ours, theirs), parts, strict=True):
            weight.grad = gradient.clone()
            part.step()
    error = (ours - theirs).norm() / (theirs - start).norm()
    assert error < (0.05 if precision else 1e-5)
    buffers = [part.state_dict()["state"][0]["momentum_buffer"] for part in parts]
    torch.testing.assert_close(*buffers)


def test_a_step_by_hand(monkeypatch):
    """One gradient diag(3, 4) on a 4 x 2 matrix: a step of lr sqrt(4 / 2) along both directions."""
    monkeypatch.setattr(muon, "orthogonalize", lambda update: update.sign())
    weight = torch.nn.Parameter(torch.zeros(4, 2))
    still = torch.nn.Parameter(torch.ones(2, 2))  # no gradient: stays
    optimizer = Muon([weight, still], lr=0.1, momentum=0.5)
    weight.grad = torch.tensor([[3.0, 0], [0, -4], [0, 0], [0, 0]])
    optimizer.step()
    step = 0.1 * 2 ** 0.5
    assert weight.tolist() == [[pytest.approx(-step), 0], [0, pytest.approx(step)], [0, 0], [0, 0]]
    assert torch.equal(still, torch.ones(2, 2))
    # momentum: the average is now (1.5, -2); a small gradient against it does not turn it round
    weight.grad = torch.tensor([[-0.3, 0], [0, 0.4], [0, 0], [0, 0]])
    optimizer.step()
    assert weight[0, 0].item() == pytest.approx(-2 * step)
    wide = torch.nn.Parameter(torch.zeros(2, 4))
    wide.grad = torch.ones(2, 4)
    Muon([wide], lr=0.1).step()
    assert wide[0, 0].item() == pytest.approx(-0.1)  # a wide matrix takes the rate as it is


def test_nesterov_looks_ahead(monkeypatch):
    """momentum .5: average .5 g, look-ahead .75 g; then average .25 g + .5 h, ahead .125 g + .75 h.
    """
    seen = []
    monkeypatch.setattr(muon, "orthogonalize", lambda update: seen.append(update) or update)
    weight = torch.nn.Parameter(torch.zeros(1, 2))
    optimizer = Muon([weight], lr=1.0, momentum=0.5)
    for gradient in ([[1.0, 0.0]], [[0.0, 1.0]]):
        weight.grad = torch.tensor(gradient)
        optimizer.step()
    assert [update.tolist() for update in seen] == [[[0.75, 0.0]], [[0.125, 0.75]]]


def test_muon_resumes_where_it_was_saved():
    torch.manual_seed(3)
    gradients = torch.randn(6, 8, 4)

    def run(weight, optimizer, some):
        for gradient in some:
            weight.grad = gradient.clone()
            optimizer.step()

    straight = torch.nn.Parameter(torch.ones(8, 4))
    optimizer = Muon([straight], 0.02)
    run(straight, optimizer, gradients[:3])
    saved, weight = copy.deepcopy(optimizer.state_dict()), straight.detach().clone()
    run(straight, optimizer, gradients[3:])
    resumed = torch.nn.Parameter(weight)
    fresh = Muon([resumed], 0.5, 0.1)  # rate and momentum come back with the state
    fresh.load_state_dict(saved)
    run(resumed, fresh, gradients[3:])
    assert torch.equal(resumed, straight)


def test_which_parameters_muon_moves():
    model = GPT(GPTConfig(11, 8, 2, 2, 8))
    adam, moved = train.Optimizer(model, Recipe(2, 2)).parts
    names = {id(p): name for name, p in model.named_parameters()}
    assert sorted(names[id(p)] for p in adam.param_groups[0]["params"]) == [
        "embed.weight", "lm_head.weight"]
    assert len(moved.param_groups[0]["params"]) == 2 * 4 and isinstance(moved, Muon)
