"""Chapter 06: wrong lifts, wrong block rules and wrong trees; every one must show."""

import numpy as np
import pytest
import torch

from block_rules import BlockVerification, GreedyBlockVerification, TraversalVerification
from exact import (
    ToyDraft,
    ToyModel,
    ToyTarget,
    all_trees,
    bias_and_length,
    loop_distribution,
    tables,
    target_distribution,
    total_variation,
)
from iid_trees import SHAPES, SampledTreeDrafter, complete, multi_chain, shape_parents
from layer_verification import LayerVerification, TokenVerification
from nanogpt.sampling import Sampler
from single_step_rules import KSEQ, RRS
from test_layer_verification import STEPS
from tree_attention import Tree, TreeDrafter, speculate, walk


class PlainLV(LayerVerification):
    """Algorithms 1 and 4 once more, node by node, and with one bug at will."""

    def __init__(self, rule, bug=None):
        self.rule, self.bug = rule, bug

    def judge(self, shape, tokens, draft_probs, target_probs):
        each = [self.judge_one(shape, *tree)
                for tree in zip(tokens, draft_probs, target_probs, strict=True)]
        return tuple(np.stack(part) for part in zip(*each, strict=True))

    def forward(self, shape, tokens, draft, target):
        N, bug = len(tokens), self.bug
        a, flow = np.zeros(N), np.zeros_like(target)
        a[0] = 1
        for layer in shape.layers:
            inner = [v for v in layer.rows if shape.children[v]]
            A = a[layer.rows if bug == "leaves in A" else inner].sum()
            for v in inner:
                if a[v] <= 0:
                    continue
                capacity, share = A, a[v] / A
                if bug in ("a_v for A", "a_v for A, share 1"):
                    capacity = a[v]
                if bug == "a_v for A, share 1":
                    share = 1.0
                if bug == "no scaling":  # or: the target normalised before the rule sees it
                    capacity = 1.0
                kids = shape.children[v]
                local = self.rule(draft[[v]], capacity * target[[v]], len(kids))
                flow[v] = share * local.out[0]
                a[kids] = share * local.accept(tokens[None, kids])[0]
                if bug == "copies counted twice":
                    drawn = tokens[kids]
                    a[kids] = [a[kids][drawn == x].sum() for x in drawn]
        return a, flow

    def judge_one(self, shape, tokens, draft, target):
        bug, N = self.bug, len(tokens)
        a, flow = self.forward(shape, tokens, draft, target)
        ends, alive = np.zeros(N), 1.0
        for layer in reversed(shape.layers):
            sent = flow[layer.rows].sum(-1)
            below = 1.0 if bug == "h without its denominator" else 1 - sent.sum()
            h = (a[layer.rows] - sent) / below if below > 1e-14 else np.zeros(len(sent))
            h = np.clip(h if layer.rows[0] else np.ones(1), 0, 1)
            h = h / max(h.sum(), 1)
            ends[layer.rows] = alive * h
            alive *= max(1 - h.sum(), 0)
        scale = 1.0 if bug == "residual without a_v" else a[:, None]
        return ends, np.maximum(scale * target - flow, 0)


def test_the_plain_reading_of_the_algorithms_agrees():
    for parents in (shape_parents(SHAPES["tapered"], 2, 2), [-1, 0, 0, 0, 2, 2, 3]):
        shape, arrays, *_ = all_trees(parents, tables("related", 3, 2))
        some = [array[::13] for array in arrays]  # of all trees, evenly spread
        for step in STEPS.values():
            plain, ours = (rule.judge(shape, *some)
                           for rule in (PlainLV(step), LayerVerification(step)))
            assert abs(plain[0] - ours[0]).max() < 1e-13 and abs(plain[1] - ours[1]).max() < 1e-13


LOSSY = ("no scaling", "a_v for A, share 1", "residual without a_v", "h without its denominator",
         "copies counted twice")


@pytest.mark.parametrize("bug", LOSSY)
@pytest.mark.parametrize("step", ["K-SEQ", "RRS", "CappedGR"])
def test_wrong_lifts_are_caught(bug, step):
    parents, models = shape_parents(SHAPES["tapered"], 2, 2), tables("related", 2, 2)
    assert bias_and_length(PlainLV(STEPS[step]), parents, models)[0] < 1e-12
    assert bias_and_length(PlainLV(STEPS[step], bug), parents, models)[0] > 1e-3


def test_a_root_that_divides_zero_by_zero_is_caught():
    """h of the root is 1; where draft and target agree, Equation 1 would say 0 / 0 there."""
    class Divides(PlainLV):
        def judge_one(self, shape, tokens, draft, target):
            ends, residual = super().judge_one(shape, tokens, draft, target)
            scores, flow = self.forward(shape, tokens, draft, target)
            with np.errstate(invalid="ignore", divide="ignore"):
                ends[0] *= (scores[0] - flow[0].sum()) / (1 - flow[0].sum())
            return ends, residual

    with pytest.raises(AssertionError):
        bias_and_length(Divides(RRS), shape_parents(complete, 2, 1), tables("equal", 2, 1, 1))


@pytest.mark.parametrize("step", ["K-SEQ", "RRS", "CappedGR"])
def test_lifts_that_stay_lossless_but_accept_less_are_caught(step):
    """Scaling by a_v instead of A_t, or by all of the layer: only the length shows it."""
    models = tables("related", 2, 3)
    for bug, parents, loss in (("a_v for A", [-1, 0, 0, 1, 1, 2, 3, 5], 0.02),
                               ("leaves in A", [-1, 0, 0, 1, 3], 0.005)):
        right = bias_and_length(PlainLV(STEPS[step]), parents, models)
        wrong = bias_and_length(PlainLV(STEPS[step], bug), parents, models)
        assert right[0] < 1e-12 and wrong[0] < 1e-12, bug
        assert wrong[1] < right[1] - loss, bug
        assert bias_and_length(LayerVerification(STEPS[step]), parents, models)[1] == pytest.approx(
            right[1], abs=1e-12)


class WrongBlock(BlockVerification):
    """BV from its definition, with one bug at will."""

    def __init__(self, bug=None):
        self.bug = bug

    def judge(self, shape, tokens, draft_probs, target_probs):
        B, N = tokens.shape
        w, h, residual = np.ones((B, N)), np.ones((B, N)), target_probs.copy()
        for i in range(1, N):
            x, b = tokens[:, i], np.arange(B)
            before = 1 if self.bug == "weights not joint" else w[:, i - 1]
            w[:, i] = np.minimum(1, before * target_probs[b, i - 1, x] / draft_probs[b, i - 1, x])
        for i in range(N - 1):
            weight = 1 if self.bug == "residual without the weight" else w[:, i, None]
            residual[:, i] = np.maximum(weight * target_probs[:, i] - draft_probs[:, i], 0)
            owed = residual[:, i].sum(-1)
            h[:, i] = owed / np.maximum(owed + (1 - w[:, i]), 1e-300)
        h[:, N - 1], h[:, 0] = w[:, N - 1], 1
        ends = np.zeros((B, N))
        if self.bug == "stops at the first failure":
            passed = np.cumprod(h, axis=1)
            ends[:, :-1], ends[:, -1] = passed[:, :-1] - passed[:, 1:], passed[:, -1]
            return ends, residual
        alive = np.ones(B)
        for i in reversed(range(N)):
            ends[:, i], alive = alive * h[:, i], alive * (1 - h[:, i])
        return ends, residual


@pytest.mark.parametrize("bug", [None, "stops at the first failure", "weights not joint",
                                 "residual without the weight"])
def test_wrong_block_verification_is_caught(bug):
    parents, models = shape_parents(complete, 1, 3), tables("random", 3, 3)
    bias, _ = bias_and_length(WrongBlock(bug), parents, models)
    assert bias < 1e-12 if bug is None else bias > 1e-3


class RatioTies(GreedyBlockVerification):
    """Tokens of equal ratio share a rank, the first chain wins, but cdf breaks ties by id."""

    @staticmethod
    def best(chains, tokens, draft_probs, target_probs):
        paths, skewed = GreedyBlockVerification.best(chains, tokens, draft_probs, target_probs)
        ratio = np.round(target_probs / np.maximum(draft_probs, 1e-300), 9)
        every, first = np.arange(len(tokens)), tokens[:, chains[:, 1]]
        best = ratio[every[:, None], 0, first].argmax(1)
        return chains[best], skewed


class UnskewedLaw(GreedyBlockVerification):
    """Takes the best chain, and judges it as if it were a plain draw."""

    @staticmethod
    def best(chains, tokens, draft_probs, target_probs):
        paths, _ = GreedyBlockVerification.best(chains, tokens, draft_probs, target_probs)
        return paths, draft_probs[np.arange(len(tokens))[:, None], paths]


def test_wrong_greedy_block_verification_is_caught():
    parents = shape_parents(multi_chain, 2, 1)
    assert bias_and_length(RatioTies(), parents, tables("equal", 4, 1))[0] > 1e-3
    assert bias_and_length(UnskewedLaw(), parents, tables("related", 4, 1))[0] > 1e-3


def test_gbv_keeps_its_digits_for_a_rare_prefix():
    """hi^K - lo^K would have lost most digits where the prefix has probability 1e-12."""
    V, rare, K = 3, 1e-12, 2
    draft = np.array([[[rare, 0.5, 0.5 - rare], [0.2, 0.5, 0.3], [0, 0, 0]]])
    target = np.array([[[0.3, 0.3, 0.4], [0.3, 0.3, 0.4], [1, 0, 0]]])
    # Two equal chains: token 0 has by far the best ratio, so below = 1 - rare, joint = rare.
    draft, target = (np.concatenate([p, p[:, 1:]], axis=1) for p in (draft, target))
    chains, tokens = np.array([[0, 1, 2], [0, 3, 4]]), np.array([[0, 0, 1, 0, 1]])
    _, emitted = GreedyBlockVerification.best(chains, tokens, draft, target)
    # Below the rare prefix the maximum of two is, to 1e-12, a single draw.
    assert emitted[0, 1] == pytest.approx(draft[0, 1], abs=2e-12)
    assert emitted.shape == (1, 3, V) and K == 2


class ForgetfulTraversal(TraversalVerification):
    """TRV whose nodes keep their first weight when a child was rejected."""

    def judge(self, shape, tokens, draft_probs, target_probs):
        every, alive = np.arange(len(tokens)), np.ones(len(tokens))
        ends, residual = np.zeros(tokens.shape), target_probs.copy()
        weights = np.ones(tokens.shape)
        for v in range(1, len(shape.parents)):
            parent, x = shape.parents[v], tokens[:, v]
            ratio = target_probs[every, parent, x] / draft_probs[every, parent, x]
            weights[:, v] = np.minimum(1, weights[:, parent] * ratio)
        for v in reversed(range(len(shape.parents))):
            ends[:, v], alive = alive * weights[:, v], alive * (1 - weights[:, v])
        return ends, residual


def test_wrong_traversal_is_caught():
    parents = shape_parents(complete, 2, 2)
    assert bias_and_length(ForgetfulTraversal(), parents, tables("related", 3, 2))[0] > 1e-3


# ---------------------------------------------------------------- trees that were not drawn so


def test_a_draft_distribution_other_than_the_one_drawn_from_is_caught():
    """draft_probs before top-k instead of after it."""
    model, drafter = ToyModel(5, 3), ToyDraft(ToyModel(99, 3))

    class Wrong(SampledTreeDrafter):
        def propose(self, root, room):
            tree = super().propose(root, room)
            untruncated = self.model.level([root], [-1]).softmax(-1)
            return Tree(tree.tokens, tree.parents,
                        torch.cat([untruncated, torch.zeros(len(tree) - 1, 3)]))

    for make, wrong in ((SampledTreeDrafter, False), (Wrong, True)):
        # one that walks, one that judges the whole tree, one that judges it from its leaves up
        for rule in (TokenVerification(RRS), LayerVerification(KSEQ), TraversalVerification()):
            emitted = loop_distribution(
                lambda dice, make=make, rule=rule: speculate(
                    ToyTarget(model), make(drafter, [-1, 0, 0], Sampler(1, top_k=2), dice),
                    [0], Sampler(1), dice, rule),
                model, Sampler(1), [0], 1, 2)
            bias = total_variation(emitted, target_distribution(model, Sampler(1), [0], 2))
            assert bias > 1e-3 if wrong else bias < 1e-12


def test_deterministic_children_are_no_samples():
    """The top-W tree of chapter 02, with the drafter's q attached: no ratio test is valid."""
    model, draft_model = ToyModel(5, 4), ToyModel(99, 4)

    def distribution_of(accept):
        def start(dice):
            drafter = TreeDrafter(ToyDraft(draft_model), (2,))
            return speculate(ToyTarget(model), drafter, [0], Sampler(1), dice, accept)
        return loop_distribution(start, model, Sampler(1), [0], 1, 2)

    target = target_distribution(model, Sampler(1), [0], 2)
    assert total_variation(distribution_of(walk), target) < 1e-12
    for rule in (TokenVerification(RRS), LayerVerification(KSEQ), TraversalVerification()):
        assert total_variation(distribution_of(rule), target) > 0.05
