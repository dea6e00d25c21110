"""Chapter 03's heads: trained for a duty, decoded as trained."""

import pytest
import torch

from exact import random_gpt
from test_dual_draft_routing import random_heads
from train_heads import DEPTH, default_configs, head_loss, letters_of, on_duty

# ---------------------------------------------------------------- training


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
