"""A real step of merged trees, a colour for each head, to step through in a browser.

    python 04_merged_trees/experiments/step_through.py
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2]))  # so that a plain clone runs, too

from nanogpt import cli
from dual_draft_routing import HeadDrafter  # chapter 03
from experiments.walk_frames import tell_walk  # chapter 02
from merged_trees import MergedDrafter, accept_paths
from nanogpt.packing import precision_of
from nanogpt.pictures import step_page
from nanogpt.pictures.recording import VisibleDice, guesses_of, instructive, remember, watch
from nanogpt.pictures.story import Story, several
from nanogpt.sampling import Sampler
from nanogpt.sizes import SIZES
from train_heads import get_target_and_heads  # chapter 03
from tree_attention import speculate  # chapter 02


def twins(step, n_first):
    """In how many accepted drafts both trees held the same prefix."""
    def prefix(row):
        return () if row == 0 else (*prefix(step.parents[row]), step.tokens[row])

    second = {prefix(row) for row in range(n_first + 1, len(step.tokens))}
    return sum(prefix(row) in second for row in step.path[1:] if row <= n_first)


def record(args, dataset, device, prompt):
    """-> the trace of an instructive step: the union of both heads' trees, verified at once."""
    target, heads = get_target_and_heads(args, dataset, device)
    decode, dice = dataset.tokenizer.decode, VisibleDice(args.seed)
    drafter = MergedDrafter([HeadDrafter(head, budget=6) for head in heads])
    proposals = remember(drafter, "propose_both")
    steps = watch(
        lambda target: speculate(target, drafter, prompt, Sampler(1.0), dice, accept_paths),
        target, prompt, dice, args.steps, note=lambda: proposals[-1][1])  # both trees' scores
    # First both trees hold the accepted prefix, then only one of them does.
    parting = [s for s in steps if 0 < twins(s, len(s.extra[0]) - 1) < len(s.path) - 1]
    step = instructive(parting or steps, decode)
    first, second = step.extra
    step.guesses = guesses_of(step.tokens, step.parents, first + second[1:], dataset.vocab_size)
    groups = [0] + [1 + (row >= len(first)) for row in range(1, len(step.tokens))]
    story = Story(step, decode, groups=groups, names=("head 1", "head 2"),
                  scores=first + second[1:], guess_name="the larger q")
    rolls = story.draft(
        lambda rows: f"Head {groups[rows[0]]} drafts {several(len(rows), 'node')}. At each edge "
        "stands its q.", groups=[range(1, len(first)), range(len(first), len(step.tokens))],
        gif=("Head 1 drafts a tree", "Head 2 hangs its own tree below the same root"))
    story.verify("Between the two heads' blocks the mask is empty.",
                 "One forward of the target reads both trees")
    tell_walk(story, rolls)
    story.commit()
    brought = several(len(step.emitted), "new token")
    return story.trace("04", "Merged trees", f"{SIZES[args.size].label} target in "
                       f"{precision_of(target)}, two heads with 6 draft nodes each, temperature 1",
                       f"Two heads' trees below one root, read together: {brought}")


if __name__ == "__main__":
    cli.run(lambda: step_page.main("04", record))
