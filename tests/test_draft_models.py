"""The drafters of chapters 01 and 02: hand-sized values, and a state that is the text alone.

A drafter that remembers wrongly costs tokens, not exactness: no test of the output can see it.
"""

import pytest
import torch

from chain_specdec import BigramDraft, GPTDraft, draft
from grading import Script
from nanogpt.sampling import Dice, Sampler
from test_chain_specdec import random_gpt
from test_tree_attention import root_path
from tree_attention import Tree, TreeBigram, TreeDrafter, TreeGPT, draw_without_replacement, top

SMALL = random_gpt(7, block_size=64)
CORPUS = torch.arange(400) ** 2 % 11
FOLLOWERS = torch.tensor([0, 3, 0, 3, 0, 3, 0, 2, 0, 2, 0, 1, 0])  # 0 -> 3 (3x), 2 (2x), 1 (1x)


def test_the_bigrams_table_by_hand():
    """The text 0 1 2 2 1 0 0 1: after 0 came 0 once and 1 twice, ..."""
    drafter = TreeBigram(torch.tensor([0, 1, 2, 2, 1, 0, 0, 1]), 3, smoothing=0.5)
    counts = torch.tensor([[1, 2, 0], [1, 0, 1], [0, 1, 1]])
    for token in range(3):
        torch.testing.assert_close(drafter.logits(token).exp(), counts[token] + 0.5)
    torch.testing.assert_close(drafter.level([1, 0], [0, 0]).exp(), counts[[1, 0]] + 0.5)


def test_picking_and_drawing_by_hand():
    probs = torch.tensor([0.1, 0.4, 0.2, 0.3])
    assert top(probs, 2) == [1, 3] and top(probs, 9) == [1, 3, 2, 0]
    dice = Script([1, 3, 0, 2])
    assert draw_without_replacement(probs, 9, dice) == [1, 3, 0, 2]
    assert dice.asked == [[0.1, 0.4, 0.2, 0.3], [0.1667, 0, 0.3333, 0.5], [0.3333, 0, 0.6667, 0],
                          [0, 0, 1, 0]]
    assert probs.sum() == 1  # the caller's own stays whole


@pytest.mark.parametrize("temperature", [0, 0.1, 1])
def test_the_top_children_are_the_same_at_any_temperature(temperature):
    """At 0 the sampler's one-hot would know the first of them only."""
    drafter = TreeDrafter(TreeBigram(FOLLOWERS, 5), (3, 1), Sampler(temperature))
    tree = drafter.propose(0, room=9)
    assert tree.tokens.tolist() == [0, 3, 2, 1, 0, 0, 0]
    assert tree.parents.tolist() == [-1, 0, 0, 0, 1, 2, 3]
    assert tree.draft_probs[0].tolist() == pytest.approx([x / 6.5 for x in (.1, 1.1, 2.1, 3.1, .1)])


def test_drawn_children_come_through_the_sampler():
    model = TreeBigram(FOLLOWERS, 5)
    tree = TreeDrafter(model, (3, 1), Sampler(0), Dice(0)).propose(0, room=9)
    assert tree.tokens.tolist() == [0, 3, 0]  # at temperature 0 there is one child to draw
    assert tree.draft_probs.tolist() == [[0, 0, 0, 1, 0], [1, 0, 0, 0, 0], [0] * 5]
    tree = TreeDrafter(model, (5,), Sampler(1, top_k=3), Dice(0)).propose(0, room=9)
    assert sorted(tree.tokens.tolist()) == [0, 1, 2, 3]
    assert tree.draft_probs[0].tolist() == pytest.approx([x / 6.3 for x in (0, 1.1, 2.1, 3.1, 0)])


def test_a_tree_stops_where_the_window_ends():
    drafter = TreeDrafter(TreeBigram(FOLLOWERS, 5), (2, 1, 1))
    assert [int(drafter.propose(0, room).depths.max()) for room in (0, 1, 2, 3, 9)] == [
        0, 1, 2, 3, 3]
    assert drafter.propose(0, 0).draft_probs is None


# ---------------------------------------------------------------- against plain forwards


def test_the_small_gpt_drafts_by_a_plain_forward_over_the_text():
    drafter, text = GPTDraft(SMALL), [1, 2, 3]
    drafter.observe(text)
    drafted, draft_probs = draft(drafter, 4, 4, Sampler(1), Dice(3))
    logits, _ = SMALL(torch.tensor([[*text, 4, *drafted[:3]]]))
    torch.testing.assert_close(
        torch.stack(draft_probs), Sampler(1)(logits[0, 3:]), rtol=0, atol=1e-12)


def test_tree_drafting_gpt_sees_only_its_own_branch():
    """TreeGPT's draft distributions equal those of plain forwards over each path."""
    drafter, text = TreeDrafter(TreeGPT(SMALL), (3, 2, 1)), [4, 5, 6]
    drafter.observe(text, None, None)
    for root in (7, 2):
        tree = drafter.propose(root, room=20)
        assert tree.depths.tolist() == [0] + 3 * [1] + 6 * [2] + 6 * [3]
        for row in range(10):  # all that were asked: the root, its 3 children, their 6
            tokens = text + tree.tokens[root_path(tree, row)].tolist()
            plain, _ = SMALL(torch.tensor([tokens]))
            torch.testing.assert_close(
                tree.draft_probs[row], Sampler()(plain[0, -1]), rtol=0, atol=1e-9)
        assert not tree.draft_probs[10:].any()
        accepted = tree.tokens[root_path(tree, 5)].tolist()
        drafter.observe(accepted, None, None)
        text = text + accepted


# ---------------------------------------------------------------- after any commit

MODELS = {"bigram": (lambda: BigramDraft(CORPUS, 11), lambda: TreeBigram(CORPUS, 11)),
          "57K GPT": (lambda: GPTDraft(SMALL), lambda: TreeGPT(SMALL))}




class Chain:
    """Chapter 01's drafting behind the contract of chapter 02: a tree of width 1."""

    def __init__(self, model, dice):
        self.model, self.dice = model, dice
        self.reset, self.observe = model.reset, model.observe

    def propose(self, root, room):
        drafted, rows = draft(self.model, root, min(4, room), Sampler(0.9), self.dice)
        rows = torch.stack([*rows, torch.zeros_like(rows[0])])
        return Tree([root, *drafted], range(-1, len(drafted)), rows)


SHAPES = {
    "chain": lambda model: Chain(MODELS[model][0](), Dice(3)),
    "top tree": lambda model: TreeDrafter(MODELS[model][1](), (2, 2, 1)),
    "drawn tree": lambda model: TreeDrafter(MODELS[model][1](), (2, 2, 1), Sampler(0.9), Dice(3)),
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("shape", SHAPES)
def test_after_any_commit_a_drafter_proposes_what_a_fresh_one_does(model, shape):
    """A fresh one has read the whole text at once."""
    def same(used, text, root, room=9):
        fresh = SHAPES[shape](model)
        fresh.observe(text, None, list(range(len(text))))
        used.dice = Dice(3) if fresh.dice else None
        tree, wanted = used.propose(root, room), fresh.propose(root, room)
        assert tree.tokens.tolist() == wanted.tokens.tolist()
        assert tree.parents.tolist() == wanted.parents.tolist()
        torch.testing.assert_close(tree.draft_probs, wanted.draft_probs, rtol=0, atol=1e-12)
        return tree

    text, used = [1, 2, 3], SHAPES[shape](model)
    used.observe(text, None, [0, 1, 2])
    # kept: how many drafts stay, at most. None: at the window's end none is drafted.
    for root, kept in ((4, 0), (7, 4), (0, 1), (4, 3), (5, None), (9, 2), (2, 1), (2, 0), (3, 4)):
        path, tokens = [0], [root]
        if kept is not None:
            tree = same(used, text, root)
            path = root_path(tree, len(tree) - 1)[:kept + 1]  # of a tree the last branch
            tokens = tree.tokens[path].tolist()
        used.observe(tokens, None, path)
        text = text + tokens
    used.reset()
    same(used, [], 6)  # nothing is left of the text, nor of what was drafted behind it
    used.reset()
    used.observe(text[-5:], None, list(range(5)))  # as where the window slides
    same(used, text[-5:], 6, room=2)
