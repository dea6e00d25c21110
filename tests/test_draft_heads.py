"""Chapter 03's heads: trained for a duty, decoded as trained, and several of them read as one."""

import pytest
import torch

from draft_heads import DraftHead, HeadConfig, StackedHeads
from test_chain_specdec import random_gpt
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


# ---------------------------------------------------------------- several heads as one


def test_a_stack_observes_what_each_head_would():
    target = random_gpt(1)
    heads, alone = random_heads(target), random_heads(target)
    _, hidden = target(torch.tensor([[1, 2, 3, 4, 5, 6]]))
    stack = StackedHeads(heads)
    for rows in ([0, 1, 2, 3], [0, 2, 5], [4]):
        stack.observe(None, hidden, rows)
        for mine, other in zip(heads, alone, strict=True):
            other.observe(None, hidden, rows)
            torch.testing.assert_close(mine.state, other.state, rtol=0, atol=1e-12)
    stack.reset()
    assert all(head.state is None for head in heads)


def test_heads_of_two_widths_cannot_be_read_together():
    target = random_gpt(0)
    with pytest.raises(ValueError, match=r"widths are \[8, 16\]"):
        StackedHeads([DraftHead(target, HeadConfig((1,), width=width)) for width in (8, 16)])


@pytest.mark.parametrize("levels", [1, 3])
def test_a_stack_reads_what_each_head_would(levels):
    """Level after level, each head's rows beside the other's."""
    target = random_gpt(1)
    heads = random_heads(target)
    stack, states = StackedHeads(heads), torch.randn(2, 4, 128, dtype=torch.float64)
    alone = list(states)
    for _ in range(levels):
        tokens = torch.randint(11, (2, 4)).tolist()
        log_probs, states = stack.read(states, tokens)
        for h, head in enumerate(heads):
            expected, alone[h] = head.read(alone[h], tokens[h])
            torch.testing.assert_close(log_probs[h], expected)
            torch.testing.assert_close(states[h], alone[h], rtol=0, atol=1e-12)


def test_bad_input():
    target = random_gpt(0)
    with pytest.raises(ValueError, match="duty is 'x'"):
        DraftHead(target, HeadConfig((1,), "x"))
    for layers in ((99,), (-1,), ()):
        with pytest.raises(ValueError, match="layers are"):
            DraftHead(target, HeadConfig(layers))
