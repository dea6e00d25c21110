"""On a GPU: every chapter's script from its first line to its last, and captured forwards.

Where no GPU is, chapter 05's script runs on a pretended one, its rounds as on a real one, and the
other scripts on the CPU. Pretended: tensors lie on the CPU and carry a tag that says 'cuda'. Else
nobody would notice a tensor that stayed behind when its model moved.
"""

import contextlib
import copy
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from nanogpt import checkpoint, train
from conditional_marginals import ConditionalTreeDrafter
from grading import places
from merged_trees import prefixes
from nanogpt.chapter import chapters as load_chapters
from nanogpt.decoding import collect, plain_decode
from nanogpt.exact.toy_models import random_gpt
from nanogpt.gpu import graphs
from nanogpt.model import GPT, GPTConfig
from nanogpt.sampling import Dice, Sampler
from test_cli import CHAPTERS, script_of, start
from test_ddtree import random_drafter
from tree_attention import speculate

HOST, AWAY = torch.device("cpu"), torch.device("cuda", 0)
ANYWHERE = {"to", "cpu", "copy_", "_has_compatible_shallow_copy_type"}  # take tensors of two places


def place(tensor):
    """Where a tensor pretends to lie."""
    return getattr(tensor, "pretended", HOST)


def asked_for(device):
    """'cuda', 'cuda:0', 'cpu' or a torch.device -> HOST or AWAY."""
    return AWAY if torch.device(device).type == "cuda" else HOST


def tensors_in(value):
    """Every tensor in a nest of lists, tuples and dicts."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return tensors_in(list(value.values()))
    # A corpus is a list of a million numbers; a list that begins with one holds nothing else.
    numbers = isinstance(value, list) and value and isinstance(value[0], (int, float))
    if numbers or not isinstance(value, (list, tuple)):
        return []
    return [tensor for part in value for tensor in tensors_in(part)]


def put(value, device):
    """Tag every tensor in a nest of lists, tuples and dicts -> the nest."""
    for tensor in tensors_in(value):
        tensor.pretended = device
    return value


def common_place(name, tensors):
    """Where all these tensors lie; a number (no axes) on the CPU goes with any of them."""
    places = {place(t) for t in tensors if t.ndim > 0 or place(t) == AWAY}
    if len(places) > 1:
        raise RuntimeError(f"{name}: " + ", ".join(f"{tuple(t.shape)} on {place(t)}"
                                                   for t in tensors))
    return places.pop() if places else HOST


class PretendedDevice(TorchFunctionMode):
    """Every result lies where its inputs lie; inputs in two places raise, as on the real device."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name, kwargs = func.__name__, dict(kwargs or {})
        if name == "__get__" and func.__self__ is torch.Tensor.device:
            return place(args[0])
        if name == "__set__":  # tensor.data = other, tensor.grad = other
            func(*args, **kwargs)
            return put(args[0], place(args[1])) if args[1] is not None else None
        if name == "numpy" and place(args[0]) == AWAY:
            raise TypeError("a tensor on cuda has no numpy array; call .cpu() first")

        inputs = tensors_in((args, kwargs))
        if name in ANYWHERE or name == "__getitem__" and place(args[0]) == AWAY:
            inputs = inputs[:1]  # indices may lie on the CPU
        goal = HOST if name == "cpu" else common_place(name, inputs)
        if name == "to":
            for value in args[1:]:
                if isinstance(value, (str, torch.device)):
                    goal = asked_for(value)
            args = [HOST if isinstance(value, (str, torch.device)) else value for value in args]
        if kwargs.get("device") is not None:
            goal, kwargs["device"] = asked_for(kwargs["device"]), HOST
        if kwargs.get("generator") is not None and goal == AWAY:
            raise RuntimeError(f"{name}: a generator of the CPU, a result on cuda")

        out = func(*args, **kwargs)
        if name in ("to", "cpu") and out is args[0] and goal != place(out):
            out = out.clone()  # what was moved stays where it was, too
        if name == "__iter__":
            return iter([put(part, goal) for part in out])
        return put(out, goal)


@contextlib.contextmanager
def pretended_cuda():
    """In here a machine without a GPU has one, as far as where tensors lie."""
    deepcopy, load = nn.Parameter.__deepcopy__, torch.load

    def copy_in_place(parameter, memo):
        return put(deepcopy(parameter, memo), place(parameter))

    def load_there(path, map_location="cpu", **more):
        return put(load(path, map_location="cpu", **more), asked_for(map_location))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nn.Parameter, "__deepcopy__", copy_in_place)
        patch.setattr(torch, "load", load_there)
        patch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())
        patch.setattr(graphs, "Graph", graphs.Played)  # nothing can be recorded here
        for name, answer in (("is_available", True), ("device_count", 1), ("synchronize", None),
                             ("get_device_name", "pretended"), ("is_bf16_supported", True)):
            patch.setattr(torch.cuda, name, lambda *_, answer=answer: answer)
        # An optimizer asks the driver whether a graph is being captured. A torch that was built for
        # CUDA has such a question, and no driver here to answer it. (The name varies by release.)
        for name in dir(torch.optim.Optimizer):
            if name.endswith("_graph_capture_health_check"):
                patch.setattr(torch.optim.Optimizer, name, lambda optimizer: None)
        with PretendedDevice():
            yield


# ---------------------------------------------------------------- the scripts


REAL = [name for name, there in (("cuda", torch.cuda.is_available()),
                                 ("mps", torch.backends.mps.is_available())) if there]
# What 01 and 03 load and decode with, 02 and 04 do, too; and 05 takes its time.
RUNS = [pytest.param(chapter, device, marks=[pytest.mark.slow] * (chapter[1] in "135"))
        for chapter in CHAPTERS
        for device in REAL or ["pretended" if chapter == "05_ddtree" else "cpu"]]


@pytest.fixture
def trained_in_no_time(monkeypatch, tmp_path):
    """Tiny models, three training steps each, and no weights that came along fit them."""
    for size, layers in (("draft", 1), ("small", 4), ("baby", 4)):
        monkeypatch.setitem(train.SIZES, size, replace(
            train.SIZES[size], n_layer=layers, n_head=2, n_embd=16))
    fit = train.fit

    def short_fit(model, batch_loss, recipe, *args, evaluate=None, **more):
        return fit(model, batch_loss, replace(recipe, steps=3), *args, **more)

    load_chapters()  # whatever trains, in any of their modules
    for module, name in places(fit):
        monkeypatch.setattr(module, name, short_fit)
    monkeypatch.setattr(checkpoint, "CHECKPOINTS", tmp_path)


@pytest.mark.filterwarnings("ignore:.*found in sys.modules after import of package")
@pytest.mark.parametrize("chapter, device", RUNS)
def test_a_chapters_script(trained_in_no_time, capsys, chapter, device):
    """Train, save, load, decode with every method, time, draw: no tensor strays."""
    away, (script, *flags) = device == "pretended", script_of(chapter)
    with pretended_cuda() if away else contextlib.nullcontext():
        start(script, *flags, "--prompts", "1", "--max-new-tokens", "8",
              "--device", "cuda" if away else device)
    assert ("pretended" if away else "tau") in capsys.readouterr().out


def left_behind(model, tokens):
    """A forward of a model one of whose buffers did not move along."""
    model.cos = model.cos.cpu()
    return model(tokens)


@pytest.mark.parametrize("stray", [
    left_behind,
    lambda model, tokens: model(tokens)[0] + torch.zeros(11),
    lambda model, tokens: model(tokens)[0].detach().numpy(),
], ids=["buffer", "sum", "numpy"])
def test_a_stray_tensor_is_noticed_on_the_pretended_device(stray):
    """And what does not stray has the same numbers there."""
    torch.manual_seed(0)
    model, tokens = GPT(GPTConfig(11, 16, 2, 2, 8)).eval(), torch.tensor([[1, 2, 3]])
    here = model(tokens)[0]
    stray(model, tokens)  # on one device nothing is wrong with it
    with pretended_cuda():
        model, tokens = model.to("cuda"), tokens.to("cuda")
        there = model(tokens)[0]
        assert there.device.type == "cuda"
        torch.testing.assert_close(there.cpu(), here)
        with pytest.raises((RuntimeError, TypeError)):
            stray(model, tokens)


# ---------------------------------------------------------------- captured forwards


@pytest.fixture
def captured():
    """-> (target, drafter network), eager and captured, with the same weights, in float64."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    pairs = []
    for _ in range(2):
        target = random_gpt(5, vocab=20, block_size=64).to(device)
        pairs.append((target, random_drafter(target, 5, transition=True).to(device)))
    pairs[1][0].forward = graphs.CapturedGPT(pairs[1][0])
    return pairs


def texts(target, network, sampler, n=150):
    """Plain decoding and DDTree twice in turn on one model, over the window's end; and what was
    drafted, for a wrong draft changes no text."""
    runs = []
    for seed, prompt in enumerate(([3, 1, 4], [2, 7])):
        runs += [plain_decode(target, prompt, sampler, Dice(seed)), speculate(
            target, ConditionalTreeDrafter(network, 9), prompt, sampler, Dice(seed))]
    tokens = [[] for _ in runs]
    drafted = []
    while min(map(len, tokens)) < n:
        for text, run in zip(tokens, runs, strict=True):
            step = next(run)
            text += step.tokens
            if step.drafted:
                drafted.append(prefixes(step.detail.tree))
    return [text[:n] for text in tokens], drafted


@pytest.mark.parametrize("sampler", [Sampler(0), Sampler(1)])
def test_texts_are_equal(captured, sampler):
    eager, fast = captured
    assert texts(*eager, sampler) == texts(*fast, sampler)


def test_a_forward_whose_padding_has_no_room_runs_without_a_graph(captured):
    """A drafter's levels lie behind the text, and further than any text."""
    logits = []
    for target, _ in captured:
        cache = target.new_cache()
        cache.length = 150  # of 64 + 128 rows; 33 rows would be padded to 64
        logits.append(target(torch.ones(1, 33, dtype=torch.long), torch.full((33,), 60),
                             torch.eye(33, dtype=torch.bool), cache)[0].cpu())
    torch.testing.assert_close(*logits)


@torch.inference_mode()
def test_padding_sees_itself(captured):
    """A row that sees nothing is nan on some devices, and nan stays in the cache. And the logits of
    a forward outlive the next one."""
    found = []
    for target, _ in captured:
        cache = target.new_cache()
        for n in (3, 5, 4):
            found.append(target(torch.ones(1, n, dtype=torch.long), cache=cache)[0].cpu())
            cache.commit(list(range(n)))
    for eager, fast in zip(found[:3], found[3:], strict=True):
        torch.testing.assert_close(fast, eager)
    graphs = captured[1][0].forward.graphs
    assert list(graphs) == [4, 8] and all(graph.put["mask"].any(1).all() for graph in
                                          graphs.values())


def test_a_window_that_is_full_is_refused(captured):
    target, _ = captured[1]
    cache = target.new_cache()
    cache.length = 60
    with pytest.raises(ValueError, match="65 rows do not fit into the context window of 64"):
        target(torch.zeros(1, 5, dtype=torch.long), cache=cache)


def test_a_copy_of_a_captured_model_has_graphs_of_its_own(captured):
    target, _ = captured[1]
    twin = copy.deepcopy(target)
    assert collect(plain_decode(twin, [1], Sampler(0), Dice(0)), 9).tokens == collect(
        plain_decode(target, [1], Sampler(0), Dice(0)), 9).tokens
    assert twin.forward.model is twin and twin.forward.storage is not target.forward.storage
