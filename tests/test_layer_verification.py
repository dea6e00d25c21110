"""Chapter 06: every rule on every shape loses nothing, exactly, and the bugs do."""

import numpy as np
import pytest
import torch

from block_rules import BlockVerification, GreedyBlockVerification, TraversalVerification
from exact import (
    KINDS,
    Tables,
    ToyDraft,
    ToyModel,
    ToyTarget,
    all_trees,
    bias_and_length,
    grid,
    loop_distribution,
    outcomes,
    tables,
    target_distribution,
    total_variation,
)
from global_resolution import GR, CappedGR
from iid_trees import (
    SHAPES,
    as_arrays,
    complete,
    multi_chain,
    sample_tree,
    shape_of,
    shape_parents,
)
from layer_verification import LayerVerification, TokenVerification, decode_layered
from nanogpt.decoding import collect
from nanogpt.sampling import Dice, Sampler
from single_step_rules import KSEQ, RRS, SpS
from tree_attention import Tree, TreeDrafter, multi_round, speculate

STEPS = {"K-SEQ": KSEQ, "RRS": RRS, "CappedGR": CappedGR, "GR": GR}
RULES = {f"{lift.__name__[0]}V + {name}": lift(step)
         for lift in (TokenVerification, LayerVerification) for name, step in STEPS.items()}
RULES |= {"TRV": TraversalVerification(), "GBV": GreedyBlockVerification(),
          "BV": BlockVerification()}


def judges(name, shape, b):
    return (name != "BV" or b == 1) and (name != "GBV" or b == 1 or shape == "multi-chain")


# ---------------------------------------------------------------- exactly lossless

# (b, H, V), as far as all trees can be listed: b = 3, H = 3 on the narrow shape alone.
SIZES = [(1, 1, 5), (1, 2, 4), (1, 3, 3), (2, 1, 4), (2, 2, 3), (3, 1, 4), (3, 2, 2)]
DEEP = [("multi-chain", 2, 3, 3), ("tapered", 2, 3, 2), ("multi-chain", 3, 2, 3),
        ("multi-chain", 3, 3, 2)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", RULES)
def test_output_distribution_is_the_targets_exactly(name, kind):
    for shape, children_of in SHAPES.items():
        for b, H, V in SIZES:
            if judges(name, shape, b):
                parents = shape_parents(children_of, b, H)
                bias, length = bias_and_length(RULES[name], parents, tables(kind, V, H))
                assert bias < 1e-12, (shape, b, H)
                if kind == "equal" and (name != "GBV" or b == 1):  # GBV judges the best of b draws
                    assert length == pytest.approx(H, abs=0.01 if "Capped" in name else 1e-5)
                assert length == 0 or kind != "disjoint"


@pytest.mark.parametrize("case", DEEP, ids=str)
def test_output_distribution_on_deeper_and_wider_trees(case):
    shape, b, H, V = case
    parents = shape_parents(SHAPES[shape], b, H)
    for name, rule in RULES.items():
        if judges(name, shape, b):
            for kind in ("related", "truncated") if V > 2 else ("related", "equal"):
                assert bias_and_length(rule, parents, tables(kind, V, H, seed=1))[0] < 1e-12, name


@pytest.mark.parametrize("name", ["TV + RRS", "LV + K-SEQ", "LV + RRS", "LV + CappedGR", "TRV"])
def test_output_distribution_on_all_16384_full_trees_of_depth_3(name):
    parents = shape_parents(complete, 2, 3)
    assert bias_and_length(RULES[name], parents, tables("related", 2, 3, seed=1))[0] < 1e-12


UNEVEN = [-1, 0, 0, 0, 2, 2, 3, 4, 4, 6]  # leaves at depth 1, 2 and 3; 3, 2 and 1 children


@pytest.mark.parametrize("name", [name for name in RULES if name not in ("BV", "GBV")])
def test_trees_with_leaves_above_the_deepest_layer(name):
    for kind in ("related", "equal"):
        assert bias_and_length(RULES[name], UNEVEN, tables(kind, 2, 3))[0] < 1e-12


def test_the_layer_lift_is_not_ahead_on_every_pair_of_models():
    """Both are exact; but LV moves mass to the second child, below which nothing was drafted."""
    draft, target = ([np.tile([x, 1 - x], (2**t, 1)) for t, x in enumerate(first_tokens)]
                     for first_tokens in ((0.9, 0.5, 0.2, 0.4), (0.7, 0.5, 0.2, 0.0)))
    lengths = {}
    for lift in (LayerVerification, TokenVerification):
        bias, lengths[lift] = bias_and_length(lift(KSEQ), [-1, 0, 1, 1, 2], Tables(draft, target))
        assert bias < 1e-12
    assert lengths[LayerVerification] == pytest.approx(2.176, abs=1e-3)
    assert lengths[TokenVerification] == pytest.approx(2.400, abs=1e-3)


@pytest.mark.parametrize("name", RULES)
def test_the_whole_loop_of_chapter_02_by_the_generic_enumerator(name):
    """The accept entry point, the drafter, and a second round that starts from the first's end."""
    def bias(shape, b, H, rounds=1, sampler=Sampler(1), vocab=3, **draft):  # noqa: B008
        model, drafter = ToyModel(5, vocab), ToyDraft(ToyModel(99, vocab, **draft))
        emitted = loop_distribution(
            lambda dice: decode_layered(
                ToyTarget(model), drafter, RULES[name], shape_parents(SHAPES[shape], b, H), [0, 1],
                sampler, dice),
            model, sampler, [0, 1], rounds, H + 2,
        )
        return total_variation(emitted, target_distribution(model, sampler, [0, 1], H + 2))

    assert bias("multi-chain", 1, 1, rounds=2, vocab=2, scale=2.0) < 1e-12
    if name == "BV":
        assert bias("complete", 1, 2) < 1e-12
    else:
        assert bias("multi-chain", 2, 1, allowed=(1, 2)) < 1e-12
    if name in ("TV + RRS", "LV + K-SEQ", "TRV", "GBV"):  # one of each way to be called
        assert bias("multi-chain", 2, 2, sampler=Sampler(0.7, top_k=2)) < 1e-12
        if name != "GBV":
            assert bias("tapered", 2, 2, sampler=Sampler(1, top_k=2)) < 1e-12


def test_a_text_that_is_cut_inside_an_accepted_block_has_the_targets_distribution():
    """Three tokens of rounds that bring one to three: so no rule's texts are likelier than plain's,
    and the perplexities of a table differ by chance."""
    model, drafter, sampler = ToyModel(5, 2), ToyDraft(ToyModel(99, 2)), Sampler(1)

    def run(dice):
        return collect(decode_layered(ToyTarget(model), drafter, LayerVerification(KSEQ),
                                      [-1, 0, 1], [0, 1], sampler, dice), 3)

    emitted, cut = {}, 0
    for text, probability in outcomes(run):
        cut += len(text.steps[-1].detail.path) > len(text.steps[-1].tokens)
        emitted[tuple(text.tokens)] = emitted.get(tuple(text.tokens), 0.0) + probability
    assert cut and total_variation(emitted, target_distribution(model, sampler, [0, 1], 3)) < 1e-12


# ---------------------------------------------------------------- one tree, several ways


def random_tree(seed, children_of=complete, b=2, H=2, V=9, top_k=4):
    """A tree drawn from truncated distributions; target_probs (N, V), float32 as in real use."""
    draft_model, target_model = ToyDraft(ToyModel(seed, V)), ToyModel(seed + 50, V)
    sampler = Sampler(1, top_k=top_k)

    def level(tokens, parents):
        return sampler(draft_model.level(tokens, parents).float())

    parents = shape_parents(children_of, b, H)
    tree, shape = sample_tree(0, parents, level, Dice(seed)), shape_of(tuple(parents))
    prefixes = [tree.tokens[shape.path(v)].tolist() for v in range(len(tree))]
    return tree, Sampler(1)(torch.stack([target_model.logits(p) for p in prefixes]).float())


def given_tree(rule, tree, target_probs):
    """{(path, token): probability} of the accept stage alone."""
    emitted = {}
    for (path, token), probability in outcomes(lambda dice: rule(tree, target_probs, dice)):
        key = (tuple(int(v) for v in path), int(token))
        emitted[key] = emitted.get(key, 0.0) + probability
    return emitted


def round_of(rule, tree, target_probs):
    """The same from `judge` on the full vocabulary, no slots, no dice."""
    shape = shape_of(tuple(tree.parents.tolist()))
    draft, target = (p.double().numpy() / p.double().numpy().sum(-1, keepdims=True).clip(1e-300)
                     for p in (tree.draft_probs, target_probs))
    arrays = (shape, tree.tokens.numpy()[None], draft[None], target[None])
    ends, residual = rule.judge(*arrays)
    emitted = {}
    for row, end in enumerate(ends[0]):
        for token, mass in enumerate(residual[0, row] / max(residual[0, row].sum(), 1e-300)):
            emitted[tuple(shape.path(row)), token] = end * mass
    return emitted


@pytest.mark.parametrize("name", RULES)
def test_the_call_on_one_tree_equals_judge_on_the_full_vocabulary(name):
    for seed in range(2):
        b = 1 if name == "BV" else 2
        for children_of in (multi_chain,) if name in ("BV", "GBV") else (complete, multi_chain):
            tree, target = random_tree(seed, children_of, b)
            emitted = given_tree(RULES[name], tree, target)
            assert total_variation(emitted, round_of(RULES[name], tree, target)) < 1e-12


def test_trees_without_replacement_are_not_for_these_rules():
    """Chapter 02 draws children without replacement, for its multi_round alone."""
    def bias(rule, branching, vocab=3):
        model, draft = ToyModel(5, vocab), ToyDraft(ToyModel(99, vocab))

        def start(dice):
            drafter = TreeDrafter(draft, branching, Sampler(1), dice)
            return speculate(ToyTarget(model), drafter, [0], Sampler(1), dice, rule)

        emitted = loop_distribution(start, model, Sampler(1), [0], 1, len(branching) + 2)
        plain = target_distribution(model, Sampler(1), [0], len(branching) + 2)
        return total_variation(emitted, plain)

    assert bias(multi_round, (2,), vocab=4) < 1e-12
    assert bias(LayerVerification(RRS), (2,), vocab=4) > 1e-3


# ---------------------------------------------------------------- identities


def judged(rule, parents, models):
    shape, arrays, *_ = all_trees(parents, models)
    return rule.judge(shape, *arrays)


@pytest.mark.parametrize("kind", KINDS)
def test_on_a_chain_every_lifted_rule_is_block_verification(kind):
    for H, V in ((1, 5), (2, 4), (4, 3)):
        parents, models = shape_parents(complete, 1, H), tables(kind, V, H)
        ends, residual = judged(BlockVerification(), parents, models)
        others = [LayerVerification(step) for step in (SpS, *STEPS.values())]
        for rule in (*others, TraversalVerification(), GreedyBlockVerification()):
            their_ends, their_residual = judged(rule, parents, models)
            assert abs(their_ends - ends).max() < 1e-13
            # Residuals need not agree where the path cannot end.
            distributions = [ends[:, :, None] * r / np.maximum(r.sum(-1, keepdims=True), 1e-300)
                    for r in (residual, their_residual)]
            assert abs(distributions[0] - distributions[1]).max() < 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_with_one_layer_lv_is_tv(kind):
    for b in (1, 2, 3):
        parents, models = shape_parents(complete, b, 1), tables(kind, 4, 1)
        for step in STEPS.values():
            tv, lv = (judged(lift(step), parents, models)
                      for lift in (TokenVerification, LayerVerification))
            assert abs(tv[0] - lv[0]).max() < 1e-15 and abs(tv[1] - lv[1]).max() < 1e-15


@pytest.mark.parametrize("case", grid(lift=(TokenVerification, LayerVerification), step=STEPS),
                         ids=str)
def test_flow_is_conserved(case):
    """What v sends on is what its children receive on average, and never more than a_v target."""
    rule = case["lift"](STEPS[case["step"]])
    for parents in (shape_parents(SHAPES["tapered"], 2, 2), [-1, 0, 0, 1, 1]):
        models = tables("related", 3, 2)
        trees = all_trees(parents, models)
        shape, arrays, prefixes, probability = trees
        scores, flow = rule.scores(shape, *arrays)
        assert (flow <= scores[:, :, None] * arrays[2] + 1e-13).all()
        for layer in shape.layers:
            assert (scores[:, layer.rows].sum(-1) <= 1 + 1e-13).all()
        # Given everything above, the mean over the last layer's draws.
        above = np.isin(np.arange(len(parents)), np.unique(parents))
        _, group = np.unique(arrays[0][:, above], axis=0, return_inverse=True)
        for v in shape.layers[-2].inner:
            received = np.zeros((group.max() + 1, models.V))
            for child in shape.children[v]:
                np.add.at(received, (group, arrays[0][:, child]), probability * scores[:, child])
            sent = np.zeros_like(received)
            np.add.at(sent, group, probability[:, None] * flow[:, v])
            assert abs(received - sent).max() < 1e-13


def test_expected_length_is_the_mean_over_the_ends():
    parents, models = shape_parents(complete, 2, 2), tables("related", 3, 2)
    shape, arrays, _, probability = all_trees(parents, models)
    for name, rule in RULES.items():
        if judges(name, "complete", 2):
            mean = probability @ rule.expected_length(shape, *arrays)
            assert mean == pytest.approx(bias_and_length(rule, parents, models)[1], abs=1e-12)


def test_layers_beat_tokens_and_the_optimum_beats_the_others():
    """On average: for a single pair of models the last need not hold."""
    for shape, V in (("multi-chain", 4), ("tapered", 3), ("complete", 3)):
        parents = shape_parents(SHAPES[shape], 2, 2)
        models = [tables("related", V, 2, seed) for seed in range(4)]
        length = {name: np.mean([bias_and_length(RULES[name], parents, m)[1] for m in models])
                  for name in RULES if judges(name, shape, 2) and name != "GBV"}
        for step in STEPS:
            assert length[f"LV + {step}"] > length[f"TV + {step}"] + 0.001
        assert length["LV + GR"] == max(length.values())


def test_by_hand_a_chain_of_two():
    """The example at the top of layer_verification.py."""
    draft, target = torch.tensor([[0.5, 0.5]] * 3), torch.tensor([[0.9, 0.1]] * 3)
    arrays = as_arrays(Tree([0, 1, 0], [-1, 0, 1], draft), target)
    for lift, second in ((TokenVerification, 0.12), (LayerVerification, 0.2)):
        scores, flow = lift(SpS).scores(*arrays)
        assert scores[0, 1] == pytest.approx(0.2, abs=1e-7)
        assert flow[0, 1].sum() == pytest.approx(second, abs=1e-7)
