"""Chapter 03: two heads, one tree verified; exact, and both heads always up to date."""

import itertools
import math

import pytest
import torch

from draft_heads import (
    DEPTH,
    DraftHead,
    HeadConfig,
    default_configs,
    head_loss,
    letters_of,
    on_duty,
)
from dual_draft_routing import (
    HeadDrafter,
    RoutedDrafter,
    best_nodes,
    coin_flip,
    expected_length,
    grow_tree,
    mean_confidence,
    route,
)
from exact import ToyModel, ToyTarget, loop_law, target_law, total_variation
from experiments.toy_head import ToyHead
from nanogpt.decoding import collect, plain_decode
from nanogpt.sampling import Dice, Sampler
from test_chain_specdec import random_gpt
from tree_attention import speculate

PROMPT = [0, 1]


def started(head, text):
    head.reset()
    head.state = torch.tensor([text])
    return head


def toy_pair(budget=3, depth=2, seeds=(8, 9)):
    return [HeadDrafter(ToyHead(seed), depth, 2, budget) for seed in seeds]


def exact_bias(make_drafter, sampler, rounds=2, length=4, **speculation):
    """Total variation between the law of a decoding loop and the target's law."""
    model = ToyModel(5, 3)
    law = loop_law(
        lambda dice: speculate(
            ToyTarget(model), make_drafter(dice), PROMPT, sampler, dice, **speculation),
        model, sampler, PROMPT, rounds, length)
    return total_variation(law, target_law(model, sampler, PROMPT, length))


SAMPLERS = [Sampler(0), Sampler(0.7, top_p=0.9), Sampler(1, top_p=0.7), Sampler(1)]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_routing_is_exactly_lossless(sampler):
    for budget in (1, 3, 5):
        assert exact_bias(lambda dice, b=budget: RoutedDrafter(toy_pair(b)), sampler) < 1e-12
    assert exact_bias(lambda dice: toy_pair()[0], sampler) < 1e-12
    # The drafters' own coin is a draw like any other.
    coin = exact_bias(lambda dice: RoutedDrafter(toy_pair(), coin_flip(dice)), sampler)
    assert coin < 1e-12


def test_a_router_that_looks_at_the_targets_token_is_caught():
    """Keeping the tree whose walk turned out longer, each with its own draws, is not lossless."""
    from tree_attention import walk

    pair = toy_pair()

    def accept(tree, target_probs, dice):
        return max((walk(tree, target_probs, dice) for _ in range(2)), key=lambda r: len(r[0]))

    assert exact_bias(lambda dice: RoutedDrafter(pair), Sampler(1), accept=accept) > 0.02


# ---------------------------------------------------------------- the tree


def full_tree(head, root, depth, top_k):
    """Every node of the top-k expansion as {path: score}, by brute force."""
    scores, level = {(): 0.0}, [()]
    for _ in range(depth):
        longer = []
        for path in level:
            states = torch.tensor([head.state[0].tolist() + [root, *path[:-1]]]) if path \
                else head.state
            log_probs, _ = head.read(states, [path[-1] if path else root])
            best = log_probs[0].topk(min(top_k, log_probs.shape[-1]))
            for value, token in zip(best.values.tolist(), best.indices.tolist(), strict=True):
                longer.append(path + (token,))
                scores[longer[-1]] = scores[path] + value
        level = longer
    return scores


def paths_of(tree):
    paths = [()]
    for token, parent in list(zip(tree.tokens.tolist(), tree.parents.tolist(), strict=True))[1:]:
        paths.append(paths[parent] + (token,))
    return paths


@pytest.mark.parametrize("seed", range(6))
def test_pruned_expansion_keeps_the_best_nodes_of_the_full_one(seed):
    head = started(ToyHead(seed, vocab=5, scale=1.5), [1, 2])
    for depth, top_k, budget in itertools.product((1, 3, 4), (1, 2, 9), (1, 4, 13)):
        tree, scores = grow_tree(head, 3, depth, top_k, budget)
        everything = full_tree(head, 3, depth, top_k)
        wanted = sorted((s for path, s in everything.items() if path), reverse=True)[:budget]
        assert sorted(scores[1:], reverse=True) == pytest.approx(wanted, abs=1e-12)
        assert len(set(paths_of(tree))) == len(tree) == min(budget, len(everything) - 1) + 1
        for path, score in zip(paths_of(tree), scores, strict=True):
            assert everything[path] == pytest.approx(score, abs=1e-12)


def test_only_surviving_nodes_are_expanded():
    head = started(ToyHead(3, vocab=5), [1])
    asked, read = [], head.read
    head.read = lambda states, tokens: asked.append(len(tokens)) or read(states, tokens)
    grow_tree(head, 2, depth=4, top_k=5, budget=6)
    assert asked[0] == 1 and max(asked) <= 6


class FlatHead(ToyHead):
    """Equal scores everywhere: every comparison is a tie, and certainty adds nothing."""

    def read(self, states, tokens):
        log_probs = torch.full((len(tokens), 2), -math.inf)
        log_probs[:, 0] = 0.0  # probability 1: the child scores exactly what its parent does
        return log_probs, torch.cat([states, torch.tensor(tokens)[:, None]], 1)


def test_ties_keep_parents():
    assert best_nodes([0, -1, -2, -1.5, -2], 3) == [0, 1, 2, 3]
    assert best_nodes([0, -1, -1, -1], 2) == [0, 1, 2]
    for budget in (1, 2, 3):
        tree, scores = grow_tree(started(FlatHead(0), [1]), 1, 4, 2, budget)
        assert tree.parents.tolist() == list(range(-1, budget))  # Tree itself refuses orphans
        assert scores == [0.0] * (budget + 1)


# ---------------------------------------------------------------- the router


def test_routing_rule_by_hand():
    logs = [0.0, math.log(0.8), math.log(0.6), math.log(0.1)]
    assert mean_confidence(logs) == pytest.approx(0.5)
    assert expected_length(logs) == pytest.approx(1.5)
    assert mean_confidence([0.0]) == 0
    assert [route(mu) for mu in ([0.5, 0.4], [0.4, 0.5], [0.5, 0.5], [0.1, 0.2, 0.3])] \
        == [0, 1, 0, 2]


def test_the_more_confident_tree_is_the_one_proposed():
    sharp, vague = toy_pair()
    sharp.head.model = ToyModel(8, 3, scale=9.0)
    vague.head.model = ToyModel(9, 3, scale=0.1)
    for pair, index in (([sharp, vague], 0), ([vague, sharp], 1)):
        routed = RoutedDrafter(pair)
        for drafter in pair:
            started(drafter.head, PROMPT)
        tree = routed.propose(2, room=9)
        assert routed.choices == [index]
        assert routed.means[0][index] == max(routed.means[0])
        assert paths_of(tree) == paths_of(sharp.propose(2, room=9))


def test_after_every_commit_either_head_is_as_good_as_new():
    """Interchangeability: at each step both heads propose what a fresh head would that was fed the
    whole text, whichever of them drafted before."""
    target = random_gpt(1, block_size=64)
    heads = random_heads(target)
    routed = RoutedDrafter([HeadDrafter(head, 4, 3, 7) for head in heads])
    text, seen = [1, 2, 3], set()
    steps = speculate(target, routed, text, Sampler(1), Dice(4))
    written, root = list(text), next(steps).tokens[-1]
    for _ in range(12):
        _, hidden = target(torch.tensor([written]))
        for head, drafter in zip(heads, routed.drafters, strict=True):
            fresh = DraftHead(target, head.config)
            fresh.load_state_dict(head.state_dict())
            fresh.double().observe(written, hidden, list(range(len(written))))
            torch.testing.assert_close(head.state, fresh.state, rtol=0, atol=1e-9)
            assert paths_of(HeadDrafter(fresh, 4, 3, 7).propose(root, 9)) \
                == paths_of(drafter.propose(root, 9))
        step = next(steps)
        seen.add(routed.choices[-1])
        written += [root, *step.tokens[:-1]]
        root = step.tokens[-1]
    assert seen == {0, 1}  # both were chosen


# ---------------------------------------------------------------- the heads


def random_heads(target, seed=0):
    torch.manual_seed(seed)
    n = target.config.n_layer
    heads = [DraftHead(target, HeadConfig((n,))), DraftHead(target, HeadConfig((1, n)))]
    for head in heads:
        torch.nn.init.normal_(head.down.weight, std=0.3)
    return [head.double().requires_grad_(False) for head in heads]


@pytest.mark.parametrize("which", [0, 1])
def test_training_and_decoding_read_the_same(which):
    """The loss at one position equals what `read` says there, level after level."""
    target = random_gpt(2, block_size=64)
    head = random_heads(target)[which]
    tokens = torch.arange(DEPTH + 1)[None] * 3 % 11  # one position, hidden[0], is a proposal
    _, hidden = target(tokens)
    labels = torch.softmax(torch.randn(1, DEPTH + 1, 11, dtype=torch.float64), -1)
    head.observe(None, hidden, [0])
    states, total = head.state, 0.0
    for d in range(1, DEPTH + 1):
        log_probs, states = head.read(states, [int(tokens[0, d])])
        total -= float((labels[0, d] * log_probs[0]).sum())
    present = torch.ones(1, 1, dtype=torch.bool)
    assert head_loss(head, tokens, hidden, labels, present).item() == pytest.approx(
        total / DEPTH, abs=1e-5)


def test_off_duty_a_head_learns_little_and_to_be_unsure():
    """A head that says everywhere what the target says pays off duty, where half of the label is
    uniform, and not on duty; a place off duty weighs less."""
    target = random_gpt(2, block_size=64)
    head = random_heads(target)[0]
    tokens = torch.arange(DEPTH + 1)[None] * 3 % 11
    _, hidden = target(tokens)
    uniform = torch.full((1, DEPTH + 1, 11), 1 / 11, dtype=torch.float64)
    off, on = (head_loss(head, tokens, hidden, uniform, torch.tensor([[there]])).item()
               for there in (False, True))
    assert off == pytest.approx(0.2 * on)
    sure = torch.eye(11, dtype=torch.float64)[[4] * (DEPTH + 1)][None]
    mixed = head_loss(head, tokens, hidden, sure, torch.tensor([[False]])).item()
    known = head_loss(head, tokens, hidden, sure, torch.tensor([[True]])).item()
    assert mixed == pytest.approx(0.2 * (0.5 * known + 0.5 * on), rel=1e-5)


def test_the_duties_divide_the_text():
    """'to be, or': a root is inside a word if it and the token before it are letters."""
    text = "to be, or not"

    class Letters:
        vocab_size = 128

        @staticmethod
        def decode(tokens):
            return chr(tokens[0])

    letters, tokens = letters_of(Letters), torch.tensor([[ord(c) for c in text]])
    inside, edges = (on_duty(config.duty, tokens, letters)[0] for config in default_configs(4))
    roots = text[1:len(text) - DEPTH + 1]
    assert [c for c, there in zip(roots, inside, strict=True) if there] == ["o", "e"]
    assert torch.equal(edges, ~inside)
    assert on_duty("everywhere", tokens, letters).all()


@pytest.mark.parametrize("seed", range(3))
def test_greedy_text_equals_plain_decoding(seed):
    """Random target and heads, across the window of 32."""
    target = random_gpt(seed)
    plain = collect(plain_decode(target, [1, 2], Sampler(0), Dice(0)), 70).tokens
    for budget in (1, 8):
        pair = [HeadDrafter(head, 4, 3, budget) for head in random_heads(target, seed)]
        for drafter in (*pair, RoutedDrafter(pair)):
            steps = speculate(target, drafter, [1, 2], Sampler(0), Dice(0))
            assert collect(steps, 70).tokens == plain


def test_bad_input():
    target = random_gpt(0)
    with pytest.raises(ValueError, match="duty is 'x'"):
        DraftHead(target, HeadConfig((1,), "x"))
    for layers in ((99,), (-1,), ()):
        with pytest.raises(ValueError, match="layers are"):
            DraftHead(target, HeadConfig(layers))
    with pytest.raises(ValueError, match="budget is 0"):
        HeadDrafter(None, budget=0)
