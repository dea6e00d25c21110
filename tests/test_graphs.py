"""Captured forwards give what the eager ones give. Where no GPU is, a graph is played by hand."""

import copy

import pytest
import torch

from nanogpt import graphs
from block_diffusion import BlockConfig, BlockDrafter
from conditional_marginals import decode_conditional
from merged_trees import prefixes
from nanogpt.decoding import collect, plain_decode
from nanogpt.model import GPT, GPTConfig
from nanogpt.sampling import Dice, Sampler


class PlayedGraph:
    """A Graph without CUDA: a replay runs the function again, on the same buffers."""

    def __init__(self, run, host, kept, kv):
        self.run, self.inputs, self.kept = run, {**host, **kept}, kept
        self.host = {name: x.numpy() for name, x in host.items()}
        run(**self.inputs)  # as recording does: the first inputs must harm nothing

    def replay(self):
        return self.run(**self.inputs)


@pytest.fixture
def captured(monkeypatch):
    """-> (target, drafter network), eager and captured, with the same weights, in float64."""
    if not torch.cuda.is_available():
        monkeypatch.setattr(graphs, "Graph", PlayedGraph)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    pairs = []
    for _ in range(2):
        torch.manual_seed(5)
        target = GPT(GPTConfig(20, 64, 4, 2, 16)).double()
        for parameter in target.parameters():
            torch.nn.init.normal_(parameter, std=0.5)
        network = BlockDrafter(target, BlockConfig.reading(target, 4)).double()
        for parameter in network.parameters():
            torch.nn.init.normal_(parameter, std=0.5)
        pairs.append((target.to(device).eval(), network.to(device).eval()))
    target, network = pairs[1]
    target.forward = graphs.CapturedGPT(target)
    network.forward = graphs.CapturedDrafter(network)
    return pairs


def texts(target, network, sampler, n=150):
    """Plain decoding and DDTree in turn on one model, over the window's end; and what was drafted,
    for a wrong draft changes no text."""
    runs = [plain_decode(target, [3, 1, 4], sampler, Dice(0)),
            decode_conditional(target, network, 9, [3, 1, 4], sampler, Dice(0)),
            plain_decode(target, [2, 7], sampler, Dice(1))]
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
    eager, fast = (texts(*pair, sampler) for pair in captured)
    assert eager == fast


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
    assert twin.forward.model is twin and twin.forward.kv is not target.forward.kv
