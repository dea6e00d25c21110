"""A real step of a chain, to step through in a browser.

    python 01_chain_specdec/experiments/step_through.py
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2]))  # so that a plain clone runs, too

import torch

from nanogpt import cli
from chain_specdec import GPTDraft, speculate_chain
from experiments.coin_frames import tell_coins
from nanogpt.packing import for_decoding, precision_of
from nanogpt.pictures import step_page
from nanogpt.pictures.recording import VisibleDice, instructive, watch
from nanogpt.pictures.story import Story, listed, several
from nanogpt.sampling import Sampler
from nanogpt.sizes import SIZES
from nanogpt.train import get_gpt


def read_chain(root, detail):
    """A chain is a tree of width 1 -> tokens, parents, path, target_probs, guesses; see watch."""
    drafted, target_probs = detail.drafted, detail.target_probs
    last = torch.full_like(target_probs[0], torch.nan)  # nothing was drafted after the last one
    guesses = torch.stack([*detail.draft_probs, last])  # (K + 1, V)
    parents, path = list(range(-1, len(drafted))), list(range(detail.accepted + 1))
    return [root, *drafted], parents, path, target_probs, guesses


def record(args, dataset, device, prompt):
    """-> the trace of an instructive step of speculate_chain, drafted by the small model."""
    target = for_decoding(get_gpt(args.size, dataset, device, args.retrain), args.precision)
    small = for_decoding(get_gpt("draft", dataset, device, args.retrain), args.precision)
    sampler, dice = Sampler(1.0), VisibleDice(args.seed)
    steps = watch(lambda target: speculate_chain(
        target, GPTDraft(small), prompt, 5, sampler, dice), target, prompt, dice, args.steps,
        read_chain)
    story = Story(instructive(steps, dataset.tokenizer.decode), dataset.tokenizer.decode)
    rolls = story.draft(lambda rows: f"The drafter draws {listed(map(story.name, rows))}, one "
                        "after another.", sampled=True,
                        gif=(None, "A small drafter guesses 5 tokens, one after another"))
    story.verify("Here every row has one child, and the mask is the causal one.",
                 "One forward of the target reads all 5 guesses")
    tell_coins(story, rolls)
    story.commit()
    brought = several(len(story.step.emitted), "new token")
    return story.trace("01", "Speculative decoding", f"{SIZES[args.size].label} target in "
                       f"{precision_of(target)}, {SIZES['draft'].label} drafter, 5 drafts, "
                       "temperature 1", "A small model guesses, one forward of the target checks: "
                       f"{brought}")


if __name__ == "__main__":
    cli.run(lambda: step_page.main("01", record))
