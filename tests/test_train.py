"""Checkpoints, training that is interrupted, training in several processes, Muon."""

import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from nanogpt import muon, train
from nanogpt.checkpoint import checkpoint_path, load_checkpoint, prepare, save_checkpoint
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
    with pytest.raises(ValueError, match="other settings"):
        load_checkpoint(path, {"width": 2})

    def full(*args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ValueError, match="cannot be written: No space left on device"):
        save_checkpoint(path, config, {"step": 4})
    monkeypatch.undo()
    with pytest.raises(ValueError, match="has had 3 steps by now, more than 2 here"):
        save_checkpoint(path, config, {"step": 2})
    assert load_checkpoint(path, config)["step"] == 3  # what was there is still there
    assert len(list(tmp_path.iterdir())) == 1
    whole = path.read_bytes()
    garbage = [bytes([i]) * 8 for i in range(128)]
    for content in (b"", whole[:100], *garbage, torch.zeros(3), ["config"], {}):
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            torch.save(content, path)
        with pytest.raises(ValueError, match="damaged or no checkpoint of this project"):
            load_checkpoint(path, config)


def test_a_place_that_cannot_be_written_is_refused_before_training(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "folder.pt").mkdir()
    for path, reason in ((tmp_path / "file" / "m.pt", "Not a directory|File exists"),
                         (tmp_path / "folder.pt", "Is a directory|not permitted")):
        with pytest.raises(ValueError, match=f"m?.pt cannot be written: .*({reason})"):
            train_tiny(path, press=lambda step: pytest.fail("trained"), retrain=True)


def test_what_killed_runs_left_behind_goes(tmp_path):
    old, new = tmp_path / "a.pt.7.tmp", tmp_path / "b.pt.8.tmp"
    for path in (old, new):
        path.touch()
    os.utime(old, (0, 0))
    prepare(tmp_path / "m.pt")
    assert list(tmp_path.iterdir()) == [new]  # another process may be writing it


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
    """Press Ctrl-C in step 7, at this place -> the keywords for train_tiny."""
    press = once(ctrl_c, 7)
    if place == "in the batch":
        return {"press": lambda step: press()}
    owner, name = {"between the two optimizers": (Muon, "step"),  # AdamW has made its update
                   "behind the update": (train.Optimizer, "step"),
                   "while saving": (train, "save_checkpoint"),
                   "twice": (train, "save_checkpoint")}[place]
    method, second = getattr(owner, name), once(ctrl_c, 7)

    def pressed(*args):
        if place != "behind the update":
            press()
        if place == "twice":  # again while what the first has brought about is saved
            second()
        method(*args)
        if place == "behind the update":
            press()

    monkeypatch.setattr(owner, name, pressed)
    return {"save_every": -1.0} if owner is train else {}  # each step is saved


@pytest.mark.parametrize("place", ["in the batch", "between the two optimizers",
                                   "behind the update", "while saving", "twice"])
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


def test_a_second_process_never_undoes_what_a_first_has_finished(tmp_path):
    path = tmp_path / "tiny.pt"
    finish = once(lambda: train_tiny(path), 5)  # in the middle of another training
    with pytest.raises(ValueError, match="has had 12 steps by now, more than 6 here"):
        train_tiny(path, press=lambda step: finish(), save_every=-1.0)
    assert torch.load(path)["step"] == 12


def test_ctrl_c_during_imports():
    answer = subprocess.run([sys.executable, "-c", "import nanogpt; raise KeyboardInterrupt"],
                            cwd=ROOT, capture_output=True, text=True)
    assert answer.returncode != 0 and answer.stderr == "\nstopped\n"


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


def test_a_batch_that_does_not_fit_the_processes_is_refused(monkeypatch, tmp_path):
    as_process(monkeypatch, 0, 3)
    monkeypatch.setattr(train, "fit", lambda *a, **k: pytest.fail("trained before checking"))
    with pytest.raises(ValueError, match="batch_size is 8; it must be a multiple of the number "
                                         "of processes, 3"):
        train.get_gpt("draft", text_of_numbers(), "cpu", recipe=Recipe(2, 8), folder=tmp_path)


def test_processes_share_the_batch_and_see_different_sequences(monkeypatch, tmp_path):
    seen, batch = [], Dataset.batch
    monkeypatch.setattr(Dataset, "batch", lambda *args: seen.append(batch(*args)) or seen[-1])
    for rank in (0, 1):
        as_process(monkeypatch, rank, 2)
        train.get_gpt("draft", text_of_numbers(), "cpu", recipe=Recipe(1, 6),
                      folder=tmp_path / str(rank))
    (first, _), (second, _) = seen
    assert len(first) == len(second) == 3 and not torch.equal(first, second)
    # the first process alone writes
    assert [path.parent.name for path in tmp_path.glob("*/*")] == ["0"]


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
    monkeypatch.setattr(muon, "orthogonalize", lambda update: seen.append(update) or update.sign())
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


