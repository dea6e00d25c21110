"""A real step of layer verification, scores down and one draw up, to step through in a browser.

    python 06_layer_verification/experiments/step_through.py
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2]))  # so that a plain clone runs, too

from nanogpt import cli
from experiments.layer_frames import tell_layers
from iid_trees import SHAPES, shape_parents
from layer_verification import LayerVerification, decode_layered
from nanogpt.packing import for_decoding, precision_of
from nanogpt.pictures import step_page
from nanogpt.pictures.recording import VisibleDice, instructive, remember, watch
from nanogpt.pictures.story import Story, several
from nanogpt.sampling import Sampler
from nanogpt.sizes import SIZES
from nanogpt.train import get_gpt
from single_step_rules import KSEQ
from tree_attention import TreeGPT  # chapter 02


def record(args, dataset, device, prompt):
    """-> the trace of an instructive step: K-SEQ under the layer lift on a complete tree."""
    target = for_decoding(get_gpt(args.size, dataset, device, args.retrain), args.precision)
    small = TreeGPT(for_decoding(get_gpt("draft", dataset, device, args.retrain), args.precision))
    dice, rule = VisibleDice(args.seed), LayerVerification(KSEQ)
    parents = shape_parents(SHAPES["complete"], 2, 3)
    scored, judged = remember(rule, "scores"), remember(rule, "judge")
    step = instructive(watch(lambda target: decode_layered(
        target, small, rule, parents, prompt, Sampler(1.0), dice, Sampler(1.0, top_k=20)),
        target, prompt, dice, args.steps,
        note=lambda: (scored[-1][0][0].tolist(), judged[-1][0][0].tolist())),
        dataset.tokenizer.decode)
    story = Story(step, dataset.tokenizer.decode)
    rolls = story.draft(lambda rows: f"The drafter draws {several(len(rows), 'token')}, two after "
                        "each node; the same token may come twice.", sampled=True,
                        gif=(None, "The drafter draws a tree, two guesses after each node"))
    story.verify("Now p and q are known at every node, and the rule can begin.",
                 "One forward of the target reads the whole tree")
    tell_layers(story, rolls, *step.extra)
    story.commit()
    brought = several(len(step.emitted), "new token")
    return story.trace("06", "Layer verification", f"{SIZES[args.size].label} target in "
                       f"{precision_of(target)}, {SIZES['draft'].label} drafter, a complete tree "
                       "of depth 3, LV + K-SEQ, temperature 1",
                       f"All paths are scored together, then one draw picks one: {brought}",
                       "a_v, the chance that the path goes through")


if __name__ == "__main__":
    cli.run(lambda: step_page.main("06", record))
