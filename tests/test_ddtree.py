"""Chapter 05: the heap's tree is the best one; its drafters by hand.

Exactness, greedy text and drafters as good as new: tests/test_loops.py.
"""

import importlib
import itertools
import json
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import merged_trees
from ddtree import (
    BlockChainDrafter,
    DDTreeDrafter,
    best_first_tree,
    marginal_children,
    surrogate,
)
from nanogpt.decoding import Step
from nanogpt.exact.enumeration import outcomes
from nanogpt.exact.toy_models import GPTModel, random_gpt
from nanogpt.exact.trees import best_mass
from ngram import NgramTreeDrafter
from text_table import TextTable
from train_drafter import random_drafter
from tree_attention import Tree

wrong = importlib.import_module("ddtree_room")


def random_marginals(seed, length, vocab, ties=False):
    """log q_1..q_L; with ties, probabilities are multiples of 1/8, so many prefixes are equal."""
    generator = torch.Generator().manual_seed(seed)
    if not ties:
        logits = torch.randn(length, vocab, generator=generator, dtype=torch.float64)
        return torch.log_softmax(logits, -1)
    counts = torch.ones(length, vocab)
    counts += torch.bincount(
        torch.randint(length * vocab, (8 * length,), generator=generator),
        minlength=length * vocab,
    ).view(length, vocab)
    return (counts / counts.sum(-1, keepdim=True)).double().log()


def prefixes(tree):
    """The nodes of a tree as token tuples, the root left out, in row order."""
    return merged_trees.prefixes(tree)[1:]


def surrogate_and_best(log_probs, budget):
    """The surrogate of the heap's tree, and the largest of any tree, by trying all."""
    tree = best_first_tree(0, marginal_children(log_probs), budget)
    best = best_mass(lambda u: float(sum(log_probs[i, t] for i, t in enumerate(u)).exp()),
                     *log_probs.shape, budget)
    return surrogate(tree, log_probs), best


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("length, vocab", [(2, 2), (2, 3), (3, 2)])
def test_the_heap_is_optimal_by_brute_force(length, vocab, ties):
    for seed, budget in itertools.product(range(4), (1, 2, 3, 4, 5)):
        log_probs = random_marginals(seed, length, vocab, ties)
        found, best = surrogate_and_best(log_probs, budget)
        assert found == pytest.approx(best, abs=1e-12)


def test_zero_probabilities_do_not_disturb_the_order():
    log_probs = torch.tensor([[1.0, 0, 0], [0.5, 0.5, 0]]).log()
    assert prefixes(best_first_tree(0, marginal_children(log_probs), 3)) == [(0,), (0, 0), (0, 1)]
    assert len(prefixes(best_first_tree(0, marginal_children(log_probs), 12))) == 12


def test_surrogate_is_the_expected_acceptance_length():
    """E[alpha_T] by summing over every continuation (Proposition 1)."""
    for seed in range(5):
        log_probs = random_marginals(seed, 3, 3)
        tree = best_first_tree(0, marginal_children(log_probs), 3 + 2 * seed)
        nodes = set(prefixes(tree))
        expected = 0.0
        for y in itertools.product(range(3), repeat=3):
            probability = float(sum(log_probs[i, t] for i, t in enumerate(y)).exp())
            expected += probability * sum(y[:d] in nodes for d in (1, 2, 3))
        assert surrogate(tree, log_probs) == pytest.approx(expected, abs=1e-12)


# ---------------------------------------------------------------- the drafters


MARGINALS = torch.tensor([[0.1, 0.6, 0.3], [0.5, 0.1, 0.4], [0.2, 0.3, 0.5]]).log()


def test_what_is_drafted_from_marginals_by_hand(monkeypatch):
    """The best prefixes have .6, .6 * .5 or .3, and .6 * .4; a chain takes each slot's best."""
    network = random_drafter(random_gpt(0), 0)

    def drafted(drafter, room=3):
        monkeypatch.setattr(drafter, "marginals", lambda root, room: MARGINALS[:room])
        return prefixes(drafter.propose(7, room))

    for budget in (1, 3, 4):
        best = [(1,), (1, 0), (2,), (1, 2)][:budget]
        assert set(drafted(DDTreeDrafter(network, budget))) == set(best)
    # The B-th child may be needed, too: B children of the root.
    assert drafted(DDTreeDrafter(network, 3), room=1) == [(1,), (2,), (0,)]
    for room in (0, 1, 3):
        assert drafted(BlockChainDrafter(network), room) == [(1,), (1, 0), (1, 0, 2)][:room]
    assert drafted(BlockChainDrafter(network, 2)) == [(1,), (1, 0)]
    assert drafted(BlockChainDrafter(network, 99)) == [(1,), (1, 0), (1, 0, 2)]
    # Ranks are counted, not tokens: 201 and, mirrored, 021 are both (1, 0, 1). What is too near the
    # end is left out.
    passes = [MARGINALS, MARGINALS[:, [2, 1, 0]], MARGINALS, MARGINALS]
    shape = wrong.accepted_shape(passes, [[2, 0, 1], [0, 2, 1], [1, 0, 2], [1, 0]], 4)
    assert shape == [(1,), (1, 0), (1, 0, 1), (0,)]
    assert drafted(wrong.FixedTree(network, shape, 1.0)) == [(2,), (2, 0), (2, 0, 1), (1,)]


def test_a_shape_is_the_best_of_four_each_counted_in_the_rounds_of_the_last(monkeypatch):
    """Rounds of 2, 1 and 2 tokens behind the prefill's: their roots are tokens 0, 2 and 3."""
    tried, counted, rounds = iter("abcd"), [], {"a": 5, "b": 3, "c": 4}
    for name, stub in {
            "accepted_shape": lambda passes, texts, n: counted.append(texts) or next(tried),
            "Watched": lambda network, shape, T: SimpleNamespace(
                seen=[0] * rounds.get(shape[0], 9)), "speculate": lambda *_: None,
            "collect": lambda *_: SimpleNamespace(
                tokens=[*range(6)], steps=[Step([0] * n) for n in (2, 1, 2)])}.items():
        monkeypatch.setattr(wrong, name, stub)
    network = SimpleNamespace(target=None, config=SimpleNamespace(length=2))
    assert wrong.shapes(network, [[1]])(2, 1.0) == ("b",)
    assert counted[0] == [[1, 2], [3, 4], [4, 5]]


def test_a_4_gram_at_half_the_temperature():
    """Its probabilities, 2 / 3 and 1 / 3, are squared, and sum to 1."""
    table = TextTable(2)
    table.read([0, 1, 0, 1, 0, 2])
    scores, tokens = NgramTreeDrafter(4, table, 0.5).ranked((0,))
    assert tokens == [1, 2] and [*map(math.exp, scores)] == pytest.approx([.8, .2])


def test_the_best_tree_there_is_has_the_heaviest_prefixes_of_the_target():
    target, text = random_gpt(1), [1, 2, 3, 4]
    probs = [GPTModel(target).logits((*text, *u)).softmax(-1)
             for u in [(), *((first,) for first in range(target.config.vocab_size))]]
    masses = [probs[0], *(p * after for p, after in zip(probs[0], probs[1:], strict=True))]
    best = float(torch.cat(masses).sort().values[-6:].sum())  # of one or two tokens
    tree = wrong.oracle_tree(target, text, 6, depth=2)
    assert float(wrong.target_masses(target, text, tree).sum()) == pytest.approx(best)

    # A perfect pass says of the second token what it is whatever the first one will be.
    perfect = wrong.perfect_pass(target, text, 2, samples=2000).exp().to(probs[0])
    torch.testing.assert_close(perfect[0], probs[0])
    torch.testing.assert_close(perfect[1], probs[0] @ torch.stack(probs[1:]), atol=0.02, rtol=0)

    network = random_drafter(target, 1, transition=True)
    found = wrong.worths(network, text, 6, shape=[(0,)])
    assert found["shape"] == [pytest.approx(values[:2]) for values in found["heap"]]
    drafter = DDTreeDrafter(network, 6)
    drafter.observe(text[:-1], target(torch.tensor([text[:-1]]))[1], [0, 1, 2])
    log_probs = drafter.marginals(4, 9)
    for n in range(7):  # the first n nodes are the tree of n
        heap = best_first_tree(4, marginal_children(log_probs), n)
        assert [values[n] for values in found["heap"]] == pytest.approx(
            [surrogate(heap, log_probs), float(wrong.target_masses(target, text, heap).sum())])
        assert found["best"][1][n] >= found["heap"][1][n] - 1e-9
    by_letter = wrong.picked_by_slot(network, text, 6)
    assert by_letter.sum(-1) == pytest.approx(torch.tensor(
        [[6, found[tree][1][6]] for tree in ("heap", "best")]))
    assert by_letter[0, 0, :2].tolist() == [(heap.depths == depth).sum() for depth in (1, 2)]
    first, second = (torch.minimum(torch.stack(probs), q) for q in log_probs[:2].exp())
    kept = [float(first[0].sum()), float(first[0] @ second[1:].sum(-1))]  # by p/q, all draws
    reader = SimpleNamespace(after=lambda context: torch.zeros(target.config.vocab_size))
    drawn = wrong.reading_on(network, reader, [text], draws=600)["the pass"][0]
    assert drawn.cumsum(0)[:2].tolist() == pytest.approx([kept[0], sum(kept)], abs=0.03)
    # With all others picked beside a draw its letter is sure; the next one comes behind a draw.
    q, V = log_probs.exp(), target.config.vocab_size
    drawn = wrong.accepted_of_drawn(target, text, lambda chain: q[len(chain)], 2, 600, V - 1)
    assert drawn.tolist() == pytest.approx([1, kept[0]], abs=0.03)


def test_picks_around_a_drawn_path_lose_nothing(capsys):
    """The lesson's own cells: two draws, a pick beside each, and what three letters become."""
    lesson = Path(wrong.__file__).with_name("walkthrough.ipynb").read_text(encoding="utf-8")
    cells = {cell["id"]: "".join(cell["source"]) for cell in json.loads(lesson)["cells"]}
    names = {"torch": torch, "math": math, "Tree": Tree, "outcomes": outcomes,
             "Dice": print}
    for cell in ("e5drawn0", "h4around", "h4check1"):
        exec(cells[cell], names)
    p, law = names["p"], torch.zeros(3, 3, 3, dtype=torch.float64)
    for letters, chance in outcomes(lambda dice: names["three_letters"](dice, names["coins"])):
        law[letters] += chance
    torch.testing.assert_close(law, p[0, :, None, None] * p[:, :, None] * p)
    right, broken = (line.split()[-1] for line in capsys.readouterr().out.splitlines()[-2:])
    assert float(right) == 0 < float(broken)


def test_the_heap_on_a_drafter_that_reads_on():
    """Told the target's own rows, it finds the best tree there is."""
    target, text = random_gpt(1), [1, 2, 3, 4]
    reader = SimpleNamespace(after=lambda context: GPTModel(target).logits((*text[:-3], *context)))
    found = wrong.picked_reading(target, reader, text, 6, length=1)
    best = wrong.target_masses(target, text, wrong.oracle_tree(target, text, 6, depth=1))
    assert found == pytest.approx([0.0, *best.cumsum(0).tolist()])
    # For one place there is nothing to read; for two it is the heap on the blind rows.
    assert wrong.picked_reading(target, reader, text, 6, 1, reads=False) == pytest.approx(found)
    rows = wrong.blind(wrong.row_of(reader), text, 2).log()
    tree = best_first_tree(4, marginal_children(rows), 6)
    assert wrong.picked_reading(target, reader, text, 6, 2, reads=False) == pytest.approx(
        [0.0, *wrong.target_masses(target, text, tree).cumsum(0).tolist()])


def test_a_blind_drafter_says_what_a_marginal_is():
    """The next letter depends on the last one only: after k letters it is row 2 times P^k."""
    P = torch.tensor([[0.1, 0.6, 0.3], [0.5, 0.2, 0.3], [0.0, 0.7, 0.3]])
    found = wrong.blind(lambda context: P[context[-1]], [0, 1, 1, 2], 4, least=0)
    for k, row in enumerate(found):
        torch.testing.assert_close(row, P[2] @ torch.linalg.matrix_power(P, k))
    # What is rare is left out, and the rest sums to 1.
    cut = wrong.blind(lambda context: P[context[-1]], [2, 2, 2], 2, least=0.5)[1]
    torch.testing.assert_close(cut, P[1])


def test_the_damage_by_hand():
    """p = q = (.8, .2), so the bias is d: the favourite, (1, 0) less q; hidden below one half, .8
    of the rounds; a blind coin."""
    p = torch.tensor([[0.8, 0.2]], dtype=torch.float64)
    for law, found in ([1, 0], 0.2), ([0.8, 0], 0.16), ([0.4, 0.1], 0):
        law = torch.tensor([law], dtype=torch.float64)
        assert wrong.damage(p, p, law) == pytest.approx(found)
        # Two places, a mean; at the second the law is q.
        both = [torch.cat([rows, torch.full((1, 2), 0.5)]) for rows in (p, p, law)]
        assert wrong.damage(*both) == pytest.approx(found / 2)
