"""The chapter's pictures: the paper's worked example, and a step of a real decoding."""

from dual_draft_routing import HeadDrafter  # chapter 03
from merged_trees import MergedDrafter, accept_paths, block_mask, merge
from nanogpt.decoding import collect
from nanogpt.pictures import plots
from nanogpt.sampling import Dice, Sampler
from tree_attention import Tree, speculate  # chapter 02

FIRST = Tree([0, 1, 2, 3], [-1, 0, 1, 1])  # the paper's figure, n_1 = 3
SECOND = Tree([0, 1, 4, 5], [-1, 0, 1, 0])
NAMES = ["s", "a", "b", "c", "d", "e"]


def head_colors(tree, n_first):
    """A colour for each row: the root's, n_first of head 1, the rest of head 2."""
    return [plots.INK] + [plots.HEADS[row > n_first] for row in range(1, len(tree))]


def save_figures(target, heads, prompt, tokenizer, out):
    """Tree and mask of the worked example; a real step."""
    union = merge(FIRST, SECOND)
    plots.save(plots.draw_tree(union, NAMES.__getitem__, colors=head_colors(union, 3)),
               out / "example.png")
    labels = [f"{row}:{NAMES[int(token)]}" for row, token in enumerate(union.tokens)]
    plots.save(plots.draw_mask(block_mask(FIRST, SECOND), labels, title="M of the union"),
               out / "mask.png")
    plots.save(draw_real_step(target, heads, prompt, tokenizer), out / "tree.png")


def draw_real_step(target, heads, prompt, tokenizer):
    """The step of a real decoding that accepted most, one colour a head."""
    drafter = MergedDrafter([HeadDrafter(head, budget=6) for head in heads])
    steps = collect(speculate(target, drafter, prompt, Sampler(), Dice(1), accept_paths), 60).steps
    step = max(steps[:-1], key=lambda step: len(step.tokens))
    tree, path, target_probs = step.detail.tree, step.detail.path, step.detail.target_probs
    colors = head_colors(tree, (len(tree) - 1) // 2)  # both trees hold equally many nodes
    return plots.draw_tree(tree, lambda token: tokenizer.decode([token]), path, target_probs,
                           colors=colors, next_token=step.tokens[-1])
