"""The article's tree by hand, and a tree of real decoding: tables and pictures of both."""

import torch

from nanogpt.cli import print_table
from nanogpt.decoding import collect
from nanogpt.pictures import plots
from nanogpt.sampling import Dice, Sampler
from tree_attention import Tree, TreeDrafter, multi_round, speculate, walk

NAMES = ["root", "c0", "c2", "c3", "c1", "c4", "c5"]  # the article's tree, depth first
EXAMPLE = Tree(range(7), [-1, 0, 1, 1, 0, 4, 4])


def print_worked_example(out):
    """Print the article's tree: mask, positions, the rows kept for the path c1, c4; draw them."""
    print("\nThe worked example: root -> c0 -> c2, c3 and root -> c1 -> c4, c5\n")
    mask = EXAMPLE.mask.int().tolist()
    print_table(["row", "node", "parent", "position", *NAMES], [
        [row, NAMES[row], int(EXAMPLE.parents[row]), f"L+{EXAMPLE.depths[row]}", *mask[row]]
        for row in range(7)
    ])
    wants = torch.eye(7)[[4, 0, 0, 0, 5, 6, 0]]  # a target that follows root by c1, c1 by c4
    path, _ = walk(EXAMPLE, wants, Dice(0))
    print(f"\naccepted: {' '.join(NAMES[row] for row in path)}; cache rows kept: {path}")
    plots.save(plots.draw_mask_beside_causal(EXAMPLE.mask, NAMES)[0], out / "mask.png")
    plots.save(plots.draw_cache(["..."] * 3, NAMES, path), out / "cache.png")


def save_real_step(target, draft_model, prompt, tokenizer, out):
    """A step of real decoding with many accepted tokens, as tree.png and cache_of_the_step.png."""
    sampler, dice = Sampler(1), Dice(3)
    drafter = TreeDrafter(draft_model, (3, 2, 1), sampler, dice)
    steps = collect(speculate(target, drafter, prompt, sampler, dice, multi_round), 100).steps
    step = max(steps, key=lambda step: len(step.tokens))
    tree, path, target_probs = step.detail.tree, step.detail.path, step.detail.target_probs

    def text(token):
        return tokenizer.decode([token])

    plots.save(plots.draw_tree(tree, text, path, target_probs, next_token=step.tokens[-1]),
               out / "tree.png")
    plots.save(plots.draw_cache(["..."] * 2, [text(int(t)) for t in tree.tokens], path),
               out / "cache_of_the_step.png")
