"""A real step of tree speculation, judged by multi-round rejection, to step through in a browser.

    python 02_tree_attention/experiments/step_through.py
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2]))  # so that a plain clone runs, too

from nanogpt import cli
from experiments.coin_frames import tell_coins  # chapter 01
from nanogpt.packing import for_decoding, precision_of
from nanogpt.pictures import step_page
from nanogpt.pictures.recording import VisibleDice, instructive, watch
from nanogpt.pictures.story import Story, listed, several
from nanogpt.sampling import Sampler
from nanogpt.sizes import SIZES
from nanogpt.train import get_gpt
from tree_attention import TreeDrafter, TreeGPT, multi_round, speculate

BRANCHING = (3, 2, 1)


def record(args, dataset, device, prompt):
    """-> the trace of an instructive step of speculate, the tree drawn from the small model."""
    target = for_decoding(get_gpt(args.size, dataset, device, args.retrain), args.precision)
    small = for_decoding(get_gpt("draft", dataset, device, args.retrain), args.precision)
    sampler, dice = Sampler(1.0), VisibleDice(args.seed)
    steps = watch(lambda target: speculate(
        target, TreeDrafter(TreeGPT(small), BRANCHING, sampler, dice), prompt, sampler, dice,
        multi_round), target, prompt, dice, args.steps)
    step = instructive(steps, dataset.tokenizer.decode)
    story = Story(step, dataset.tokenizer.decode)

    def say(rows):
        parents = list(dict.fromkeys(step.parents[row] for row in rows))
        each = len(rows) // len(parents)
        return (f"The drafter draws {several(each, 'token')} after "
                f"{listed(map(story.name, parents))}"
                f"{', no token twice after the same node' if each > 1 else ''}.")

    rolls = story.draft(say, sampled=True, gif=("Three guesses for the next token",
                                                "Each guess goes on: a tree of 15 drafts"))
    story.verify("Siblings do not see each other, and share a position.",
                 "One forward of the target reads the whole tree")
    tell_coins(story, rolls)
    story.commit()
    brought = several(len(step.emitted), "new token")
    return story.trace("02", "Draft trees", f"{SIZES[args.size].label} target in "
                       f"{precision_of(target)}, {SIZES['draft'].label} drafter, a 3-2-1 tree, "
                       "multi-round rejection, temperature 1",
                       f"A tree of guesses, checked by one forward of the target: {brought}")


if __name__ == "__main__":
    cli.run(lambda: step_page.main("02", record))
