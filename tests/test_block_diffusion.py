"""The block-diffusion drafter: what it learns is what it meets while decoding."""

import math

import pytest
import torch

from block_diffusion import BlockConfig, BlockDraft, BlockDrafter
from exact import random_gpt
from nanogpt.model import norm
from nanogpt.sampling import Sampler
from test_ddtree import random_drafter
from train_drafter import block_mask, drafter_loss


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
