"""A real step of tree speculation, judged by multi-round rejection, to step through in a browser.

    python 02_tree_attention/experiments/step_through.py
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = map(str, [ROOT, *ROOT.glob("0?_*")])  # so that a plain clone runs, too

from experiments.coin_frames import tell_coins  # chapter 01
from nanogpt import cli
from nanogpt.packing import for_decoding, precision_of
from nanogpt.pictures import step_page
from nanogpt.pictures.recording import VisibleDice, instructive, watch
from nanogpt.pictures.story import Story
from nanogpt.sampling import Sampler
from nanogpt.train import get_gpt
from tree_attention import TreeDrafter, TreeGPT, multi_round, speculate

BRANCHING = (3, 2, 1)


def record(args, dataset, device, prompt):
    """-> the trace of an instructive step of speculate, the tree drawn from the small GPT."""
    target = for_decoding(get_gpt(args.size, dataset, device, args.retrain), args.precision)
    small = for_decoding(get_gpt("draft", dataset, device, args.retrain), args.precision)
    sampler, dice = Sampler(1.0), VisibleDice(args.seed)
    steps = watch(lambda target: speculate(
        target, TreeDrafter(TreeGPT(small), BRANCHING, sampler, dice), prompt, sampler, dice,
        multi_round), target, prompt, dice, args.steps)
    step = instructive(steps, dataset.tokenizer.decode)
    story = Story(step, dataset.tokenizer.decode)

    def say(row):
        older = [story.name(i) for i in step.below(step.parents[row]) if i < row]
        return f"Without replacement: {' and '.join(older)} cannot come again." if older else ""

    rolls = story.draft(say, sampled=True)
    story.verify("Siblings do not see each other, and share a position.")
    tell_coins(story, rolls)
    story.commit()
    return story.trace("02", "Tree", f"{args.size} target in {precision_of(target)}, a 3-2-1 tree "
                       "drawn from the small GPT, multi-round rejection, temperature 1")


if __name__ == "__main__":
    cli.run(lambda: step_page.main("02", record))
