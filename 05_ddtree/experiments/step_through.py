"""A real step of DDTree, the tree growing best first, to step through in a browser.

    python 05_ddtree/experiments/step_through.py
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2]))  # so that a plain clone runs, too

from nanogpt import cli
from block_diffusion import BlockConfig
from ddtree import DDTreeDrafter, node_masses
from experiments.walk_frames import tell_walk  # chapter 02
from nanogpt.packing import for_decoding, precision_of
from nanogpt.pictures import step_page
from nanogpt.pictures.recording import VisibleDice, instructive, read_tree, remember, watch
from nanogpt.pictures.story import Story, depths, several
from nanogpt.sampling import Sampler
from nanogpt.sizes import SIZES
from nanogpt.train import get_gpt
from train_drafter import drafter_for_decoding, get_drafter
from tree_attention import Tree, speculate  # chapter 02

BUDGET, HANDFUL = 12, 4


def record(args, dataset, device, prompt):
    """-> the trace of an instructive step: marginals, the heap's tree, the walk."""
    trained, decode = get_gpt(args.size, dataset, device, args.retrain), dataset.tokenizer.decode
    block = get_drafter(trained, dataset, BlockConfig.reading(trained), device, args.retrain)
    target, dice = for_decoding(trained, args.precision), VisibleDice(args.seed)
    drafter = DDTreeDrafter(drafter_for_decoding(block, target), BUDGET)
    marginals = remember(drafter, "marginals")

    def read(root, detail):
        """What the drafter gave below a node depends on its depth alone; see watch."""
        tokens, parents, path, target_probs, guesses = read_tree(root, detail)
        for row, depth in enumerate(detail.tree.depths.tolist()):
            if depth < len(marginals[-1]):
                guesses[row] = marginals[-1][depth].exp()
        return tokens, parents, path, target_probs, guesses

    step = instructive(watch(lambda target: speculate(
        target, drafter, prompt, Sampler(1.0), dice), target, prompt, dice, args.steps, read,
        lambda: marginals[-1]), decode)
    story = Story(step, decode)
    masses = node_masses(Tree(step.tokens, step.parents), step.extra)  # (N - 1,)
    deep, n = depths(step.parents), len(step.tokens)
    rolls = story.draft(
        lambda rows: f"Rows {rows[0]} to {rows[-1]} are the {'next ' * (rows[0] > 1)}best "
        "prefixes, whatever their depth. The number at a node is the mass that the drafter gives "
        "its whole prefix.",
        groups=[range(i, min(i + HANDFUL, n)) for i in range(1, n, HANDFUL)],
        place=lambda row: f"position {deep[row]}",
        gif=("The most probable continuations come first",
             f"Best first, until the budget of {BUDGET} is spent"),
        scores=[1.0, *masses.tolist()])
    story.state = {**story.state, "scores": None}
    story.verify(f"The {len(masses)} masses add up to {float(masses.sum()):.2f}: so many "
                 "accepted drafts the drafter itself expects.",
                 "One forward of the target reads the whole tree")
    tell_walk(story, rolls)
    story.commit()
    brought = several(len(step.emitted), "new token")
    return story.trace("05", "DDTree", f"{SIZES[args.size].label} target in "
                       f"{precision_of(target)}, one block-diffusion pass, B = {BUDGET}, "
                       "temperature 1", "One pass of the drafter, a best-first tree, one forward: "
                       f"{brought}", "the mass of the whole prefix")


if __name__ == "__main__":
    cli.run(lambda: step_page.main("05", record))
