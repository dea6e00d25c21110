"""A real step of a chain, to step through in a browser.

    python 01_chain_specdec/step_through.py
"""

import sys; from pathlib import Path; sys.path[:0] = map(str, [(root := Path(__file__).resolve().parents[1]), *root.glob("0?_*")])  # noqa: E401, E501, E702, I001

import torch

from chain_specdec import GPTDraft, residual, speculate_chain
from nanogpt import cli, stepper
from nanogpt.precision import for_decoding, precision_of
from nanogpt.recording import VisibleDice, instructive, watch
from nanogpt.sampling import Sampler
from nanogpt.trace import Story
from nanogpt.train import get_gpt


def read_chain(root, detail):
    """A chain is a tree of width 1 -> tokens, parents, path, target_probs, guesses; see watch."""
    drafted, draft_probs, target_probs, n = detail
    last = torch.full_like(target_probs[0], torch.nan)  # nothing was drafted after the last one
    guesses = torch.stack([*draft_probs, last])  # (K + 1, V)
    parents, path = list(range(-1, len(drafted))), list(range(n + 1))
    return [root, *drafted], parents, path, target_probs, guesses


def record(args, dataset, device, prompt):
    """-> the trace of an instructive step of speculate_chain, drafted by the small GPT."""
    target = for_decoding(get_gpt(args.size, dataset, device, args.retrain), args.precision)
    small = for_decoding(get_gpt("draft", dataset, device, args.retrain), args.precision)
    sampler, dice = Sampler(1.0), VisibleDice(args.seed)
    steps = watch(lambda target: speculate_chain(
        target, GPTDraft(small), prompt, 5, sampler, dice), target, prompt, dice, args.steps,
        read_chain)
    story = Story(instructive(steps, dataset.tokenizer.decode), dataset.tokenizer.decode)
    rolls = story.draft(sampled=True)
    story.verify("Here every row has one child, and the mask is the causal one.")
    story.coins(rolls, residual)
    story.commit()
    return story.trace("01", "Chain", f"{args.size} target in {precision_of(target)}, 5 drafts of "
                       "the small GPT, temperature 1")


if __name__ == "__main__":
    cli.run(lambda: stepper.main("01", record))
