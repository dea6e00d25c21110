"""The block-diffusion drafter: what it learns is what it meets while decoding.

Its conditionals: sums are marginals; a drawn draft is judged by p / q.
"""

import itertools
import math

import pytest
import torch

from block_diffusion import BlockConfig, BlockDraft, BlockDrafter
from conditional_marginals import BlockLevels, SlotLevels
from ddtree_room import LOOPS
from nanogpt.exact.enumeration import outcomes
from nanogpt.exact.proofs import random_cast
from nanogpt.exact.toy_models import random_gpt
from nanogpt.model import norm
from nanogpt.sampling import Sampler
from train_drafter import block_mask, drafter_loss, random_drafter


@pytest.mark.parametrize("pieces", [
    [(3, True), (1, True), (4, True)], [(3, False), (4, False), (1, True)],
    [(1, True), (2, False), (1, False), (4, True)]], ids=str)
def test_cached_context_equals_a_fresh_pass(pieces):
    """Features arrive in pieces, with a pass behind some of them; the marginals do not care."""
    target = random_gpt(2, block_size=64)
    network, text, start = random_drafter(target, 5), [1, 5, 2, 7, 7, 3, 9, 4, 6], 0
    _, hidden = target(torch.tensor([text]))
    whole, draft = BlockDraft(network), BlockDraft(network)
    whole.observe(text[:8], hidden, list(range(8)))
    for size, drafts in pieces:
        draft.observe(text[start:start + size], hidden, list(range(start, start + size)))
        start += size
        if drafts:
            marginals = draft.marginals(text[start], 30)
    torch.testing.assert_close(marginals, whole.marginals(6, 30), rtol=0, atol=1e-9)


def test_a_block_ends_with_the_window():
    draft = BlockDraft(random_drafter(random_gpt(2, block_size=64), 5))
    assert [draft.marginals(6, room).shape for room in (9, 4, 2, 0)] == [
        (4, 11), (4, 11), (2, 11), (0, 11)]


def test_a_slot_speaks_for_the_token_at_its_own_place():
    """Layers of a new drafter change nothing yet: every masked slot says what the mask vector says,
    and the root's own slot, which would speak of the root, is left out."""
    target = random_gpt(2)
    network = BlockDrafter(target, BlockConfig(4, 2, (0, 1, 2), transition=False)).double()
    draft = BlockDraft(network)
    for root in (3, 7):
        expected = torch.log_softmax(target.lm_head(norm(network.mask)), -1).expand(4, -1)
        torch.testing.assert_close(draft.marginals(root, 9).double(), expected.detach(),
                                   rtol=0, atol=1e-5)


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


def sure(tokens):
    """Logits (..., 11) that leave no doubt."""
    return torch.nn.functional.one_hot(tokens % 11, 11) * 50.0


class Cycle:
    """A target that counts: after token t comes t + 1, modulo 11."""

    def __call__(self, tokens):
        return sure(tokens + 1), [torch.zeros(*tokens.shape, 16)]


class Guess:
    """A drafter that counts on from the root, except in the slots of which it knows nothing."""

    config, target = BlockConfig(4, 1, (0,)), Cycle()

    def __init__(self, blank=(), transition=None):
        self.blank, self.transition = list(blank), transition

    def features(self, hidden):
        return hidden[0]

    def __call__(self, features, roots, positions, visible):
        logits = sure(roots[..., None] + torch.arange(1, 5))  # (B, A, 4, 11)
        logits[:, :, self.blank] = 0
        return logits


TOKENS = (torch.arange(30)[None] + torch.tensor([[0], [4]])) % 11
ANCHORS = torch.tensor([[3, 9], [1, 20]])


def loss_of(guess):
    return float(drafter_loss(guess, TOKENS, ANCHORS, Sampler(1)))


def test_the_loss_asks_for_the_token_k_places_after_the_root():
    """Labels shifted by one would ask for another token of the cycle."""
    assert loss_of(Guess()) < 1e-6


@pytest.mark.parametrize("slot", range(4))
def test_early_slots_weigh_more(slot):
    """A slot that knows nothing costs log 11, times its share of 1, e^-1/2, e^-1, e^-3/2."""
    share = math.exp(-slot / 2) / sum(math.exp(-k / 2) for k in range(4))
    assert loss_of(Guess([slot])) == pytest.approx(share * math.log(11), rel=1e-5)


@pytest.mark.parametrize("slot", range(4))
def test_the_table_of_a_slot_is_asked_about_the_token_before_it(slot):
    """In the text: what a table knows of a slot stands for what its logits do not know."""
    table = torch.zeros(4, 11, 11)
    table[slot] = sure(torch.arange(11) + 1)
    assert loss_of(Guess([slot], table)) < 1e-6


def probability(h, W, root, prefix, temperature=1.0):
    """q(u_1 .. u_d) by the definition, one factor after the other."""
    total, before = 1.0, root
    for slot, token in enumerate(prefix):
        total *= float(torch.softmax((h[slot] + W[slot, before]) / temperature, -1)[token])
        before = token
    return total


# ---------------------------------------------------------------- losslessness


def test_a_drawn_draft_is_judged_by_p_over_q():
    """It is kept with the sum of min(p, q), exactly; the walk would keep it with the sum of p q."""
    m, loops = random_cast(vocab=3), {loop.name: loop for loop in LOOPS}

    def first_round(dice):
        steps = loops["block, drawn chain of {}"].steps(m, 1, [1, 2, 0], Sampler(1), dice)
        return [next(steps) for _ in range(2)][1].detail

    kept = by_ratio = by_walk = 0.0
    for drawn, probability in outcomes(first_round):
        p, q = drawn.target_probs[0], drawn.tree.draft_probs[0]
        kept += probability * (len(drawn.path) - 1)
        by_ratio += probability * float(torch.minimum(p, q).sum())
        by_walk += probability * float(p @ q.double())
    assert kept == pytest.approx(by_ratio, abs=1e-6) and by_walk < 0.9 * kept


# ---------------------------------------------------------------- on the network


def observed(draft, text, pieces):
    """The draft after reading the text in pieces, a pass behind each but the last."""
    _, hidden = draft.network.target(torch.tensor([text]))
    start = 0
    for size in pieces:
        rows = list(range(start, start + size))
        draft.observe([text[i] for i in rows], hidden, rows)
        start += size
        if start < len(text):
            draft.logits(text[start], 30)
    return draft


@pytest.mark.parametrize("read, passed", [(20, 4), (20, 8), (27, 1)])
def test_a_pass_of_drawn_drafts_ends_with_the_window(read, passed):
    """The window has 32 positions: behind what was read stand the root and its slots."""
    target, ends = random_gpt(1), []
    network = random_drafter(target, 1, length=4, transition=True)
    network.register_forward_pre_hook(lambda _, given: ends.append(given[2].stop))
    levels = BlockLevels(network)
    levels.cache.length = read
    levels.observe([0] * passed, target(torch.tensor([[1] * passed]))[1], list(range(passed)))
    levels.level([3], [-1])
    assert ends == [min(32, read + passed + 1 + 4)] and len(levels.h) == min(4, 31 - read - passed)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_marginals_are_the_conditionals_summed(temperature):
    target = random_gpt(2, block_size=64)
    network, text = random_drafter(target, 5, length=3, transition=True), [1, 5, 2, 7]
    h, W = observed(BlockDraft(network), text, [4]).logits(6, 30), network.transition.detach()
    marginals = observed(BlockDraft(network, temperature), text, [4]).marginals(6, 30).exp()
    for slot in range(3):
        summed = torch.zeros(11, dtype=torch.float64)
        for prefix in itertools.product(range(11), repeat=slot):
            before = prefix[-1] if prefix else 6
            step = torch.softmax((h[slot] + W[slot, before]) / temperature, -1)
            summed += probability(h, W, 6, prefix, temperature) * step
        torch.testing.assert_close(marginals[slot], summed, rtol=0, atol=1e-6)
    if temperature == 1:  # a drawn slot knows nothing of the draws before it
        slots = observed(SlotLevels(network), text, [4])
        found = torch.cat([slots.level([6], [-1]), slots.level([3, 9], [0, 0])]).exp()
        torch.testing.assert_close(found, marginals[[0, 1, 1]], rtol=0, atol=0)


def test_bad_input():
    target = random_gpt(0)
    levels = observed(BlockLevels(random_drafter(target, 0, 2, transition=True)), [1, 5], [2])
    for tokens in ([3], [4]):
        levels.level(tokens, [-1] if tokens == [3] else [0])
    with pytest.raises(ValueError, match="deeper than the 2 slots"):
        levels.level([5], [1])
