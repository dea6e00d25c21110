"""Side by side with Hugging Face transformers: the same weights, prompts, threads and precision.

    pip install -c constraints.txt -e ".[compare]"
    python 05_ddtree/experiments/compare_transformers.py

Our models are handed over as they are (see nanogpt/huggingface.py), in memory. Everything decodes
greedily, in turn, in one process. A time is that of a whole call, reading the prompt included:
`generate` cannot be stopped in between. Hence tau here is tokens per target forward with the
prompt's own forward counted.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2]))  # so that a plain clone runs, too

import time
from dataclasses import dataclass

import torch

from nanogpt import cli
from block_diffusion import BlockConfig
from chain_specdec import GPTDraft, speculate_chain  # chapter 01
from ddtree import decode_ddtree
from nanogpt.account import print_differences, texts_agree
from nanogpt.contest import compare, speedup
from nanogpt.data import held_out_prompts
from nanogpt.decoding import Step, plain_decode, tokens_on
from nanogpt.device import device_name
from nanogpt.huggingface import need_transformers, to_transformers
from nanogpt.packing import for_decoding, precision_of
from nanogpt.printing import print_table
from nanogpt.sampling import Dice, Sampler
from nanogpt.sizes import SIZES
from nanogpt.train import get_gpt
from train_drafter import drafter_for_decoding, get_drafter

THEIRS, PLAIN = "transformers greedy", "plain"
CALL = "since the call"  # the key of Step.seconds in this script
PROMPT, SHORTEST = 64, 32  # tokens of a prompt; a first assisted forward may emit 21 at once


@dataclass
class Call:
    """A finished call: its tokens, target forwards (the prompt's included), drafts and seconds."""

    tokens: list
    forwards: int
    drafted: int
    seconds: float

    @property
    def tokens_per_second(self):
        return len(self.tokens) / self.seconds


def clocked(start):
    """A decoder of ours -> the same, each Step marked with the seconds since the call."""
    def decode(prompt, seed):
        begin = time.perf_counter()
        for step in start(prompt, seed):
            step.seconds = {CALL: time.perf_counter() - begin}
            yield step
    return decode


class Recorder:
    """A streamer for `generate`: notes the tokens that each target forward brings, and when."""

    def __init__(self):
        self.begin, self.steps = time.perf_counter(), []

    def put(self, tokens):
        """Called by `generate` with the prompt, then with each forward's tokens (1, n)."""
        now = time.perf_counter() - self.begin
        self.steps.append(Step(tokens.flatten().tolist(), seconds={CALL: now}))

    def end(self):
        """All was put."""


def generate(model, max_new_tokens, **how):
    """A decoder on a model of transformers: start(prompt, seed) -> Steps.

    how: what turns `generate` from greedy into assisted or prompt lookup. A hook on the model
    counts the rows whose logits a forward returns: one, and one for each draft token.
    """
    def decode(prompt, seed):
        rows = []
        hook = model.register_forward_hook(lambda *call: rows.append(call[-1].logits.shape[1]))
        try:
            recorder = Recorder()
            model.generate(tokens_on(model, prompt), do_sample=False, streamer=recorder,
                           max_new_tokens=max_new_tokens, **how)
        finally:
            hook.remove()
        for step, n in zip(recorder.steps[1:], rows, strict=True):  # the first put is the prompt
            step.drafted = n - 1
            yield step
    return decode


def assistant(small, drafts):
    """A small GPT of ours -> a model for assisted generation that always drafts so many tokens."""
    model = to_transformers(small)
    model.generation_config.update(
        num_assistant_tokens=drafts, num_assistant_tokens_schedule="constant",
        assistant_confidence_threshold=0.0)
    return model


def decoders(target, small, block, args):
    """{name: start(prompt, seed)}: transformers first, then ours on decoding copies.

    target, small: float32 GPTs; block: the trained BlockDrafter of the target.
    """
    n, k, greedy = args.max_new_tokens, args.k, Sampler(0.0)
    ours, our_small, their, their_small, their_constant = (
        for_decoding(model, args.precision) for model in
        (target, small, to_transformers(target), to_transformers(small), assistant(small, k)))
    our_block = drafter_for_decoding(block, ours)

    def plain(prompt, seed):
        return plain_decode(ours, prompt, greedy, Dice(seed))

    def chain(prompt, seed):
        return speculate_chain(ours, GPTDraft(our_small), prompt, k, greedy, Dice(seed))

    def ddtree(prompt, seed):
        return decode_ddtree(ours, our_block, args.budget, prompt, greedy, Dice(seed))

    return {
        THEIRS: generate(their, n),
        "transformers assisted, default": generate(their, n, assistant_model=their_small),
        f"transformers assisted, K={k}": generate(their, n, assistant_model=their_constant),
        "transformers prompt lookup, 10": generate(their, n, prompt_lookup_num_tokens=10),
        PLAIN: clocked(plain),
        f"57K GPT chain, K={k}": clocked(chain),
        f"DDTree, B={args.budget}": clocked(ddtree),
    }


def as_calls(generations):
    """Generations whose Steps carry the seconds since the call -> Calls."""
    return [Call(g.tokens, 1 + len(g.steps), sum(s.drafted for s in g.steps),
                 g.steps[-1].seconds[CALL]) for g in generations]


def print_comparison(results):
    """results: {name: list of Call}, one per prompt. Speed-ups are medians over the prompts."""
    rows = []
    for name, calls in results.items():
        tokens, forwards = sum(len(c.tokens) for c in calls), sum(c.forwards for c in calls)
        rows.append([
            name, f"{sum(c.drafted for c in calls) / forwards:.1f}", f"{tokens / forwards:.2f}",
            f"{tokens / sum(c.seconds for c in calls):.0f}",
            *(f"{speedup(calls, results[base]):.2f}x" for base in (THEIRS, PLAIN)),
            texts_agree(calls, results[PLAIN]),
        ])
    print_table(["method", "drafted", "tau", "tokens/s", "over theirs", "over plain", "same text"],
                rows)


def read_flags(argv):
    """-> args. Raises ValueError for a bad value."""
    p = cli.parser(__doc__.splitlines()[0])
    cli.target_flags(p, precision="float32")
    p.add_argument("--max-new-tokens", type=int, default=128, help="per prompt")
    p.add_argument("--prompts", type=int, default=6, help="held-out prompts")
    p.add_argument("--k", type=int, default=4, help="draft tokens of a chain")
    p.add_argument("--budget", type=int, default=15, help="draft tokens of a DDTree")
    args = p.parse_args(argv)
    for name in ("prompts", "k", "budget"):
        if getattr(args, name) < 1:
            raise ValueError(f"{name} is {getattr(args, name)}; it must be at least 1")
    longest = SIZES[args.size].block_size - PROMPT  # transformers has no window that slides
    if not SHORTEST <= args.max_new_tokens <= longest:
        raise ValueError(f"max_new_tokens is {args.max_new_tokens}; "
                         f"it must be in [{SHORTEST}, {longest}]")
    return args


def main(argv=None):
    args = read_flags(argv)
    transformers = need_transformers()
    transformers.logging.set_verbosity_error()
    dataset, device = cli.setup(args)
    target = get_gpt(args.size, dataset, device, args.retrain)
    small = get_gpt("draft", dataset, device, args.retrain)
    block = get_drafter(target, dataset, BlockConfig.reading(target), device, args.retrain)

    prompts = held_out_prompts(dataset, args.prompts, PROMPT)
    results = compare(decoders(target, small, block, args), prompts, args.max_new_tokens)
    results = {name: as_calls(generations) for name, generations in results.items()}
    copy_of_target = for_decoding(target, args.precision)
    print(f"\n{args.size} target, greedy, {precision_of(copy_of_target)} on "
          f"{device_name(device)}; torch {torch.__version__}, transformers "
          f"{transformers.__version__}; {args.prompts} held-out prompts of {PROMPT} tokens, "
          f"{args.max_new_tokens} new tokens each")
    print_comparison(results)
    print_differences(results, PLAIN, prompts, copy_of_target)


if __name__ == "__main__":
    cli.run(main)
