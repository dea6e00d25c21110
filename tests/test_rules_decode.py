"""Chapter 06: every rule decodes greedy text as plain decoding does, and refuses bad input."""

import pytest
import torch

from block_rules import BlockVerification, GreedyBlockVerification
from iid_trees import SHAPES, complete, shape_of, shape_parents
from layer_verification import LayerVerification, decode_layered
from nanogpt.decoding import collect, plain_decode
from nanogpt.sampling import Dice, Sampler
from single_step_rules import SpS
from test_chain_specdec import random_gpt
from test_layer_verification import RULES, given_tree, random_tree
from tree_attention import Tree, TreeGPT


@pytest.mark.parametrize("name", RULES)
def test_greedy_text_equals_plain_decoding_across_the_window(name):
    target, small = random_gpt(3, block_size=16), random_gpt(103, block_size=16)
    plain = collect(plain_decode(target, [1, 2, 3], Sampler(0), Dice(0)), 30).tokens
    shape, b = ("complete", 1) if name == "BV" else ("multi-chain", 2)
    for draft in (small, target):
        steps = decode_layered(target, TreeGPT(draft), RULES[name],
                               shape_parents(SHAPES[shape], b, 4), [1, 2, 3], Sampler(0), Dice(2))
        assert collect(steps, 30).tokens == plain  # the window of 16 slides twice


@pytest.mark.parametrize("name", [name for name in RULES if name != "GBV"])
def test_a_drafter_equal_to_the_target_is_accepted_in_full(name):
    target = random_gpt(3, block_size=128)
    b = 1 if name == "BV" else 2
    parents = shape_parents(SHAPES["multi-chain"], b, 3)
    steps = decode_layered(target, TreeGPT(target), RULES[name], parents, [1, 2, 3], Sampler(1),
                           Dice(2))
    # K-SEQ's rho ends 1e-6 above 1; everything else is rounding.
    assert collect(steps, 61).tau == pytest.approx(4, abs=0.01)


def test_bad_input():
    tree, target = random_tree(0)
    for rule in RULES.values():
        with pytest.raises(ValueError, match="has no draft_probs"):
            rule(Tree(tree.tokens, tree.parents), target, Dice(0))
    with pytest.raises(ValueError, match="BV judges chains"):
        BlockVerification()(tree, target, Dice(0))
    with pytest.raises(ValueError, match="parts below it"):
        GreedyBlockVerification()(tree, target, Dice(0))
    with pytest.raises(ValueError, match="of one length"):
        GreedyBlockVerification().judge(shape_of((-1, 0, 0, 1)), None, None, None)
    with pytest.raises(ValueError, match="SpS judges 1 child"):
        LayerVerification(SpS)(tree, target, Dice(0))
    for b, depth in ((0, 1), (1, 0)):
        with pytest.raises(ValueError, match="must be at least 1"):
            shape_parents(complete, b, depth)


def test_a_tree_of_the_root_alone_emits_the_targets_token():
    for rule in RULES.values():
        emitted = given_tree(rule, Tree([1], [-1]), torch.tensor([[0.25, 0.75, 0.0]]))
        assert emitted == {((0,), 0): pytest.approx(0.25), ((0,), 1): pytest.approx(0.75)}
