"""A real step of dual draft routing, two trees and the choice, to step through in a browser.

    python 03_dual_draft_routing/experiments/step_through.py
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2]))  # so that a plain clone runs, too

from nanogpt import cli
from dual_draft_routing import HeadDrafter, RoutedDrafter, mean_confidence
from experiments.walk_frames import tell_walk  # chapter 02
from nanogpt.packing import precision_of
from nanogpt.pictures import step_page
from nanogpt.pictures.recording import VisibleDice, guesses_of, instructive, remember, watch
from nanogpt.pictures.story import Story, several
from nanogpt.sampling import Sampler
from nanogpt.sizes import SIZES
from train_heads import get_target_and_heads
from tree_attention import speculate  # chapter 02


def record(args, dataset, device, prompt):
    """-> the trace of an instructive step: both heads' trees, the more confident one verified."""
    target, heads = get_target_and_heads(args, dataset, device)
    drafter = RoutedDrafter([HeadDrafter(head, budget=6) for head in heads])
    proposals, dice = remember(drafter, "propose_both"), VisibleDice(args.seed)
    steps = watch(lambda target: speculate(target, drafter, prompt, Sampler(1.0), dice), target,
                  prompt, dice, args.steps, note=lambda: (drafter.choices[-1], proposals[-1]))
    step = instructive(steps, dataset.tokenizer.decode)
    chosen, (trees, both_scores) = step.extra
    scores, other, other_scores = both_scores[chosen], trees[1 - chosen], both_scores[1 - chosen]
    n = len(scores)  # the tree that was not verified is drawn behind the one that was
    step.guesses = guesses_of(step.tokens, step.parents, scores, dataset.vocab_size)
    step.tokens += other.tokens.tolist()[1:]
    step.parents += [p and p + n - 1 for p in other.parents.tolist()[1:]]
    scores = scores + other_scores[1:]
    groups = [0] + [1 + (chosen if row < n else 1 - chosen) for row in range(1, len(step.tokens))]
    story = Story(step, dataset.tokenizer.decode, n, groups, ("head 1", "head 2"), scores,
                  guess_name=f"q, head {chosen + 1}")
    rolls = story.draft(
        lambda rows: f"Head {groups[rows[0]]} drafts {several(len(rows), 'node')}. At each edge "
        "stands its q.", groups=[range(1, n), range(n, len(step.tokens))],
        gif=(f"Head {chosen + 1} drafts a tree", f"Head {2 - chosen} drafts another one"))
    means = [mean_confidence(s) for s in both_scores]
    story.frame("route", "Each tree gets one number, its confidence: "
                f"{means[0]:.3f} for head 1, {means[1]:.3f} for head 2. Head {chosen + 1} is more "
                "confident; the other tree is never verified.", range(n),
                story.plain_bars("confidence in the tree", [
                    ("head 1", means[0]), ("head 2", means[1])], chosen),
                gif=f"Head {chosen + 1} is more confident: its tree is taken",
                gone=list(range(n, len(step.tokens))))
    story.verify("The other head's tree is not among them.",
                 "One forward of the target reads this tree alone")
    tell_walk(story, rolls)
    story.commit()
    brought = several(len(step.emitted), "new token")
    return story.trace("03", "Routing", f"{SIZES[args.size].label} target in "
                       f"{precision_of(target)}, two heads with 6 draft nodes each, temperature 1",
                       f"Two heads draft, the more confident tree is read: {brought}")


if __name__ == "__main__":
    cli.run(lambda: step_page.main("03", record))
