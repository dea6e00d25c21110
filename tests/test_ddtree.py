"""Chapter 05: the heap's tree is the best one, and nothing is lost."""

import itertools

import pytest
import torch

from block_diffusion import BlockConfig, BlockDrafter
from ddtree import (
    BlockChainDrafter,
    BlockDraft,
    BlockTopTreeDrafter,
    DDTreeDrafter,
    best_first_tree,
    draft_temperature,
    node_masses,
    surrogate,
)
from exact import ToyModel, ToyTarget, grid, loop_law, target_law, total_variation
from experiments.ngram import NGramDraft
from nanogpt.decoding import collect, plain_decode
from nanogpt.model import GPT, GPTConfig
from nanogpt.sampling import Dice, Sampler
from test_chain_specdec import random_gpt
from train_drafter import block_mask, drafter_loss
from tree_attention import TreeDrafter, speculate


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
    paths = [()]
    for row in range(1, len(tree)):
        paths.append(paths[int(tree.parents[row])] + (int(tree.tokens[row]),))
    return paths[1:]


def best_value(log_probs, budget):
    """The largest surrogate value of any valid tree, by trying every prefix-closed set."""
    length, vocab = log_probs.shape
    nodes = [u for d in range(1, length + 1) for u in itertools.product(range(vocab), repeat=d)]
    mass = {u: float(sum(log_probs[i, t] for i, t in enumerate(u)).exp()) for u in nodes}
    best = 0.0
    for chosen in itertools.combinations(nodes, min(budget, len(nodes))):
        members = set(chosen)
        if all(len(u) == 1 or u[:-1] in members for u in chosen):
            best = max(best, sum(mass[u] for u in chosen))
    return best


@pytest.mark.parametrize("case", grid(shape=((2, 2), (2, 3), (3, 2)), ties=(False, True)), ids=str)
def test_the_heap_is_optimal_by_brute_force(case):
    length, vocab = case["shape"]
    for seed, budget in itertools.product(range(4), (1, 2, 3, 4, 5)):
        log_probs = random_marginals(seed, length, vocab, case["ties"])
        tree = best_first_tree(0, log_probs, budget)
        assert surrogate(tree, log_probs) == pytest.approx(best_value(log_probs, budget), abs=1e-12)


@pytest.mark.parametrize("ties", [False, True])
def test_pops_fall_and_the_tree_is_prefix_closed(ties):
    for seed in range(6):
        log_probs = random_marginals(seed, 4, 5, ties)
        for budget in (0, 1, 7, 60, 10_000):
            tree = best_first_tree(3, log_probs, budget)
            nodes = prefixes(tree)
            assert len(nodes) == min(budget, 5 + 25 + 125 + 625) == len(set(nodes))
            masses = node_masses(tree, log_probs)
            assert bool((masses[:-1] >= masses[1:] - 1e-12).all())
            assert all(len(u) == 1 or u[:-1] in nodes[:i] for i, u in enumerate(nodes))


def test_zero_probabilities_do_not_disturb_the_order():
    log_probs = torch.tensor([[1.0, 0, 0], [0.5, 0.5, 0]]).log()
    assert prefixes(best_first_tree(0, log_probs, 3)) == [(0,), (0, 0), (0, 1)]
    assert len(prefixes(best_first_tree(0, log_probs, 12))) == 12


def test_worked_example_by_hand():
    log_probs = torch.tensor([[0.6, 0.4], [0.9, 0.1]], dtype=torch.float64).log()
    tree = best_first_tree(0, log_probs, 3)
    assert prefixes(tree) == [(0,), (0, 0), (1,)]
    assert node_masses(tree, log_probs).tolist() == pytest.approx([0.6, 0.54, 0.4])
    assert surrogate(tree, log_probs) == pytest.approx(1.54)


def test_a_prefix_that_cannot_be_has_mass_zero():
    log_probs = torch.tensor([[0.6, 0.4, 0.0], [1.0, 0.0, 0.0]]).double().log()
    tree = best_first_tree(0, log_probs, 6)
    masses = node_masses(tree, log_probs).tolist()
    assert masses == pytest.approx([0.6, 0.6, 0.4, 0.4, 0, 0])
    assert surrogate(tree, log_probs) == pytest.approx(2)


def test_surrogate_is_the_expected_acceptance_length():
    """E[alpha_T] by summing over every continuation (Proposition 1)."""
    for seed in range(5):
        log_probs = random_marginals(seed, 3, 3)
        tree = best_first_tree(0, log_probs, 3 + 2 * seed)
        nodes = set(prefixes(tree))
        expected = 0.0
        for y in itertools.product(range(3), repeat=3):
            probability = float(sum(log_probs[i, t] for i, t in enumerate(y)).exp())
            expected += probability * sum(y[:d] in nodes for d in (1, 2, 3))
        assert surrogate(tree, log_probs) == pytest.approx(expected, abs=1e-12)


# ---------------------------------------------------------------- losslessness


class ToyBlock:
    """Random marginals for every text, as the block-diffusion network would give them."""

    def __init__(self, budget):
        self.budget = budget

    def reset(self):
        self.text = []

    def observe(self, tokens, hidden, rows):
        self.text = self.text + tokens

    def propose(self, root, room):
        seed = sum((i + 1) * t for i, t in enumerate([*self.text, root]))
        return best_first_tree(root, random_marginals(seed, min(3, room), 3), self.budget)


@pytest.mark.parametrize("temperature", [0, 0.7, 1])
@pytest.mark.parametrize("budget", [1, 4, 9])
def test_output_law_is_the_targets_exactly(temperature, budget):
    model = ToyModel(11, 3)
    for sampler in (Sampler(temperature), Sampler(temperature, top_p=0.8)):
        law = loop_law(
            lambda dice, s=sampler: speculate(
                ToyTarget(model), ToyBlock(budget), [0, 1], s, dice),
            model, sampler, [0, 1], 2, 4,
        )
        assert total_variation(law, target_law(model, sampler, [0, 1], 4)) < 1e-12


def random_drafter(target, seed, length=4, n_layer=2, transition=False):
    torch.manual_seed(seed)
    config = BlockConfig(length, n_layer, (0, 1, 2), transition=transition)
    drafter = BlockDrafter(target, config).double().eval()
    for parameter in drafter.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return drafter


@pytest.mark.parametrize("seed", range(4))
def test_greedy_text_equals_plain_decoding(seed):
    """Random models; 70 tokens cross the window of 32 several times."""
    target, greedy = random_gpt(seed), Sampler(0)
    network = random_drafter(target, seed)
    prompt = [token % 11 for token in range(1 + 13 * seed)]
    plain = collect(plain_decode(target, prompt, greedy, Dice(0)), 70).tokens
    drafters = [DDTreeDrafter(network, budget, temperature)
                for budget, temperature in ((1, 1.0), (5, 0.5), (40, 1.0), (40, 0.3))]
    drafters += [BlockChainDrafter(network), BlockChainDrafter(network, Sampler(1), Dice(1))]
    drafters += [BlockTopTreeDrafter(network, (2, 2, 1))]
    drafters += [TreeDrafter(NGramDraft(torch.arange(300) * 7 % 11, 11), (2, 2, 1))]
    for drafter in drafters:
        steps = speculate(target, drafter, prompt, greedy, Dice(0))
        assert collect(steps, 70).tokens == plain


def test_an_n_gram_counts_contexts_of_n_minus_1_tokens():
    text = torch.tensor([0, 1, 2, 0, 1, 3, 4, 1, 2])
    trigram = NGramDraft(text, 5, n=3)
    assert max(map(len, trigram.counts)) == 2
    assert trigram.counts[0, 1] == {2: 1, 3: 1} and trigram.counts[1,] == {2: 2, 3: 1}
    longest, shorter, none = [1 / 2, 1 / 2], [2 / 3, 1 / 3], [2 / 9, 1 / 9]
    wanted = [a + 0.2 * (b + 0.2 * c) for a, b, c in zip(longest, shorter, none, strict=True)]
    assert trigram.scores([4, 0, 1]).exp()[2:4].tolist() == pytest.approx(wanted, abs=1e-5)
    with pytest.raises(ValueError, match="n is 1"):
        NGramDraft(text, 5, n=1)


def test_sampled_text_has_the_targets_statistics():
    """One end-to-end check on a real network: the law of the second token, 4000 samples.

    With 11 tokens the total variation of an exact sampler is about 0.02; 0.06 is never reached
    by chance (less than one in a million), and a biased rule is far beyond.
    """
    target, sampler = random_gpt(1), Sampler(1)
    drafter = DDTreeDrafter(random_drafter(target, 1), 6)
    target.requires_grad_(False)
    logits, _ = target(torch.tensor([[1, 2, 3]]))
    first = sampler(logits[0, -1])
    law = torch.zeros(11, dtype=torch.float64)
    for token in range(11):
        following, _ = target(torch.tensor([[1, 2, 3, token]]))
        law += first[token] * sampler(following[0, -1])
    counts = torch.zeros(11, dtype=torch.float64)
    for seed in range(4000):
        steps = speculate(target, drafter, [1, 2, 3], sampler, Dice(seed))
        counts[collect(steps, 2).tokens[1]] += 1
    assert float((counts / 4000 - law).abs().sum() / 2) < 0.06


# ---------------------------------------------------------------- the drafter


def test_cached_context_equals_a_fresh_pass():
    """Features arrive in pieces, some read by earlier passes; the marginals do not care."""
    target = random_gpt(2, block_size=64)
    network = random_drafter(target, 5)
    text = [1, 5, 2, 7, 7, 3, 9, 4]
    _, hidden = target(torch.tensor([text]))
    whole, pieces = BlockDraft(network), BlockDraft(network)
    whole.observe(text, hidden, list(range(8)))
    for rows in ([0, 1, 2], [3], [4, 5, 6, 7]):
        pieces.observe([text[i] for i in rows], hidden, rows)
        pieces.marginals(text[rows[-1] + 1] if rows[-1] < 7 else 6, 30)
    torch.testing.assert_close(whole.marginals(6, 30), pieces.marginals(6, 30), rtol=0, atol=1e-9)
    whole.observe([6], hidden, [0])
    assert whole.marginals(6, 2).shape == (2, 11)
    assert whole.marginals(6, 0).shape == (0, 11)


def test_a_cold_drafter_sharpens_its_marginals_and_deepens_its_tree():
    target = random_gpt(2, block_size=64)
    network, text = random_drafter(target, 5), [1, 5, 2, 7, 7]
    _, hidden = target(torch.tensor([text]))

    def draft(drafter):
        drafter.observe(text, hidden, list(range(5)))
        return drafter

    warm = draft(BlockDraft(network)).marginals(3, 30)
    cold = draft(BlockDraft(network, 0.25)).marginals(3, 30)
    torch.testing.assert_close(cold, torch.log_softmax(warm / 0.25, -1), rtol=0, atol=1e-5)
    depths = [int(draft(DDTreeDrafter(network, 12, temperature)).propose(3, 30).depths.sum())
              for temperature in (0.25, 1.0, 4.0)]
    assert depths[0] > depths[1] > depths[2]
    assert [draft_temperature(t) for t in (0, 0.5, 1)] == [0.5, 0.75, 1]


def test_training_sees_what_decoding_sees():
    """A block in the training pass, among other anchors, gives decoding's marginals: no leak
    from the tokens it must predict, none from other blocks."""
    target = random_gpt(3, block_size=64)
    network = random_drafter(target, 7)
    tokens = torch.randint(11, (2, 40), generator=torch.Generator().manual_seed(0))
    anchors = torch.tensor([[5, 20, 30], [1, 7, 35]])
    _, hidden = target(tokens)
    positions = (anchors[:, :, None] + torch.arange(5)).flatten(1)
    positions = torch.cat([torch.arange(40).expand(2, -1), positions], 1)
    logits = network(network.features(hidden), tokens.gather(1, anchors), positions,
                     visible=block_mask(anchors, 40, 5))
    for b in range(2):
        for a, anchor in enumerate(anchors[b].tolist()):
            prefix = tokens[b:b + 1, :anchor]
            _, seen = target(prefix)
            draft = BlockDraft(network)
            draft.observe(prefix[0].tolist(), seen, list(range(anchor)))
            expected = draft.marginals(int(tokens[b, anchor]), 30)
            torch.testing.assert_close(
                torch.log_softmax(logits[b, a].float(), -1), expected, rtol=0, atol=1e-5)


def test_the_loss_asks_for_the_right_tokens():
    """A target that repeats a fixed cycle: the drafter's loss at slot k must ask for the token k
    places after the root. Labels shifted by one would ask for another token of the cycle."""
    target = random_gpt(0, block_size=64)

    class Cycle:
        config, lm_head, embed = target.config, target.lm_head, target.embed

        def __call__(self, tokens):
            wanted = torch.nn.functional.one_hot((tokens + 1) % 11, 11) * 50.0
            return wanted, [torch.zeros(*tokens.shape, 16)] * 3

    class Guess(torch.nn.Module):
        config, target, transition = BlockConfig(4, 1, (0,), transition=False), Cycle(), None

        def features(self, hidden):
            return hidden[0]

        def forward(self, features, roots, positions, visible):
            ahead = torch.arange(1, 5)
            return torch.nn.functional.one_hot((roots[..., None] + ahead) % 11, 11) * 50.0

    tokens = (torch.arange(30)[None] + torch.tensor([[0], [4]])) % 11
    anchors = torch.tensor([[3, 9], [1, 20]])
    assert float(drafter_loss(Guess(), tokens, anchors, Sampler(1))) < 1e-6


def test_bad_input():
    target = random_gpt(0)
    with pytest.raises(ValueError, match="budget is 0"):
        DDTreeDrafter(random_drafter(target, 0), 0)
    with pytest.raises(ValueError, match="temperature is 0"):
        DDTreeDrafter(random_drafter(target, 0), 4, temperature=0)
    for length, layers in [(4, (9,)), (4, (-1,)), (4, ()), (0, (1,))]:
        with pytest.raises(ValueError, match="do not fit"):
            BlockDrafter(target, BlockConfig(length, 1, layers))


@pytest.mark.parametrize(
    "layers, features", [(6, (2, 4, 6)), (4, (1, 2, 4)), (2, (1, 2)), (1, (1,))])
def test_which_layers_the_drafter_reads(layers, features):
    target = GPT(GPTConfig(5, 8, layers, 1, 4))
    assert BlockConfig.reading(target, 3) == BlockConfig(3, feature_layers=features)
