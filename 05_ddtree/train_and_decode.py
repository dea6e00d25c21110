"""Train a target and its block-diffusion drafter, decode with DDTree, print what it brings.

    python 05_ddtree/train_and_decode.py            # minutes; the second run takes seconds
    python 05_ddtree/train_and_decode.py --quick    # a smaller target
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = map(str, [ROOT, *ROOT.glob("0?_*")])  # so that a plain clone runs, too

from copy import copy
from dataclasses import dataclass, replace

from block_diffusion import BlockConfig
from chain_specdec import GPTDraft, speculate_chain
from ddtree import (
    BlockChainDrafter,
    BlockTopTreeDrafter,
    DDTreeDrafter,
    draft_temperature,
)
from experiments.drafter_cost import build_ms, pass_ms
from nanogpt import cli
from nanogpt.account import distinct_share, print_differences, print_results, why_not_faster
from nanogpt.clock import cost_curve
from nanogpt.contest import compare, predicted_speedup, speedup, summarize
from nanogpt.data import held_out_prompts
from nanogpt.decoding import collect, plain_decode
from nanogpt.device import device_name
from nanogpt.packing import for_decoding, precision_of
from nanogpt.pictures import plots
from nanogpt.printing import print_table, print_text
from nanogpt.sampling import Dice, Sampler
from nanogpt.sizes import SIZES
from nanogpt.train import get_gpt
from ngram import NGramDraft
from train_drafter import PROMPT, drafter_for_decoding, get_drafter
from tree_attention import TreeDrafter, speculate

CHAIN, PLAIN = "block chain, argmax", "plain"
TURN = 16  # tokens that a method decodes before the next one has its turn


@dataclass
class Models:
    """Everything that decodes, as decoding copies on one device."""

    target: object
    block: object  # the block-diffusion network
    small: object  # the small GPT of chapter 01
    ngram: NGramDraft


def load_models(args, dataset, device):
    """Train or load the target, the block-diffusion drafter and the rivals."""
    recipe = replace(SIZES[args.size].recipe, steps=600) if args.quick else None
    trained = get_gpt(args.size, dataset, device, args.retrain, recipe)
    block = get_drafter(trained, dataset, BlockConfig.reading(trained, args.block_size), device,
                        args.retrain, args.own_texts)
    small = get_gpt("draft", dataset, device, args.retrain)
    target = for_decoding(trained, args.precision)
    return Models(target, drafter_for_decoding(block, target), for_decoding(small, args.precision),
                  NGramDraft(dataset.train, dataset.vocab_size))


def ddtree(models, budget, sampler):
    """The chapter's drafter, for a target that decodes by `sampler`."""
    return DDTreeDrafter(models.block, budget, draft_temperature(sampler.temperature))


def decoders(models, sampler, budgets):
    """{name: start(prompt, seed)} for every method of the table.

    They take turns, so no two share a drafter: the copies of the 7-gram have its counts in common
    and nothing else.
    """
    def tree(make):
        return lambda prompt, seed: speculate(
            models.target, make(seed), prompt, sampler, Dice(seed))

    def chain(draft, k):
        return lambda prompt, seed: speculate_chain(
            models.target, draft(), prompt, k, sampler, Dice(seed))

    methods = {PLAIN: lambda p, seed: plain_decode(models.target, p, sampler, Dice(seed))}
    methods["small GPT chain, K=4"] = chain(lambda: GPTDraft(models.small), 4)
    methods["7-gram chain, K=4"] = chain(lambda: copy(models.ngram), 4)
    methods["7-gram top-W tree, 3x2x1"] = tree(
        lambda seed: TreeDrafter(copy(models.ngram), (3, 2, 1)))
    methods[CHAIN] = tree(lambda seed: BlockChainDrafter(models.block))
    if sampler.temperature > 0:
        methods["block chain, sampled"] = tree(
            lambda seed: BlockChainDrafter(models.block, sampler, Dice(seed + 1)))
    methods["block top-W tree, 2x2x2"] = tree(
        lambda seed: BlockTopTreeDrafter(models.block, (2, 2, 2)))
    for budget in budgets:
        methods[f"DDTree, B={budget}"] = tree(
            lambda seed, budget=budget: ddtree(models, budget, sampler))
    return methods


def costs(models, prompt):
    """The ideal's prices, measured by themselves -> c(N) as {N: ms}, ms of one drafter pass."""
    curve = cost_curve(models.target, rows=[1, 2, 4, 8, 16, 32, 64, 128], repeats=15)
    return curve, pass_ms(models.block, prompt)


def halfway(before, after):
    """The mean of two `costs`: around a table, for a shared machine does not keep its pace."""
    (curve, draft_ms), (late_curve, late_draft_ms) = before, after
    return {n: (ms + late_curve[n]) / 2 for n, ms in curve.items()}, (draft_ms + late_draft_ms) / 2


def time_table(results, curve, draft_ms, built):
    """Where a step's time goes, and how far the measured speed-up is from the ideal one.

    The ideal knows c(N) and the drafter's pass as measured by themselves; the sentence below the
    table accounts for the milliseconds of the rounds. built: {method: ms of building its tree}.
    """
    rows, speedups = [], {}
    for name, generations in results.items():
        if not name.startswith(("DDTree", "block")):
            continue
        line = summarize(generations)
        step_ms, spent, build = line["ms_per_step"], line["verb_ms"], built.get(name, 0.0)
        parts = [spent["draft"] - build, build, spent["verify"], spent["accept"], spent["commit"]]
        ideal = predicted_speedup(line["tau"], curve, 1 + line["drafted"], draft_ms)
        measured = speedups[name] = speedup(generations, results[PLAIN])
        rows.append([name, f"{step_ms:.2f}", *(f"{part / step_ms:.0%}" for part in parts),
                     f"{ideal:.2f}x", f"{measured:.2f}x", f"{measured / ideal:.2f}"])
    print_table(["method", "ms/step", "draft", "build", "verify", "accept", "commit", "ideal",
                 "measured", "ratio"], rows)
    print("\n" + why_not_faster(max(speedups, key=speedups.get), results, PLAIN))


def best_budget(results, budgets):
    """The budget of the fastest DDTree."""
    return max(budgets, key=lambda b: speedup(results[f"DDTree, B={b}"], results[PLAIN]))


def save_figures(args, all_results, models, dataset, prompt, budgets):
    """Budget against tau and speed-up, the acceptance histogram, one real tree with its walk."""
    curves = {}
    for temperature, results in all_results.items():
        names = [f"DDTree, B={b}" for b in budgets]
        curves[f"DDTree, T={temperature:g}"] = (
            budgets, [summarize(results[n])["tau"] for n in names],
            [speedup(results[n], results[PLAIN]) for n in names])
        curves[f"block chain, T={temperature:g}"] = (
            [args.block_size], [summarize(results[CHAIN])["tau"]],
            [speedup(results[CHAIN], results[PLAIN])])
    plots.save(plots.draw_sweep(curves, "draft tokens verified per round (budget B)", log2=True)[0],
               args.out / "budget.png")
    first = next(iter(all_results.values()))
    best = best_budget(first, budgets)
    lengths = {name: [n for g in first[name] for n in g.accepted]
               for name in (CHAIN, f"DDTree, B={best}")}
    plots.save(plots.draw_acceptance(lengths), args.out / "acceptance.png")
    steps = collect(speculate(models.target, ddtree(models, 15, Sampler()), prompt, Sampler(),
                              Dice(args.seed)), 60).steps
    longest = max(steps[:-1], key=lambda step: len(step.tokens))
    tree, path = longest.detail.tree, longest.detail.path
    plots.save(plots.draw_tree(tree, lambda t: dataset.tokenizer.decode([t]), path,
                               longest.detail.target_probs, next_token=longest.tokens[-1]),
               args.out / "tree.png")
    print(f"\nfigures: {args.out}")


def conclude(results, budgets, temperature):
    """The table in a sentence or two."""
    def of(name):
        return summarize(results[name])["tau"], speedup(results[name], results[PLAIN])

    best = best_budget(results, budgets)
    (tau, fast), (chain_tau, chain_fast) = of(f"DDTree, B={best}"), of(CHAIN)
    print(f"T={temperature:g}: DDTree with B={best} emits {tau:.2f} tokens a forward and runs at "
          f"{fast:.2f}x plain decoding; its own chain {chain_tau:.2f} and {chain_fast:.2f}x, so "
          f"the tree brings {tau / chain_tau:.2f} times the tokens and {fast / chain_fast:.2f} "
          "times the speed.")
    rival = max((n for n in results if "7-gram" in n or "GPT" in n), key=lambda n: of(n)[1])
    if of(rival)[1] > fast:
        print(f"  {rival} is faster still here: {of(rival)[1]:.2f}x. It drafts one token after the "
              "other, so it knows what it drafted before; a marginal does not.")


def main(argv=None):
    p = cli.parser(__doc__.splitlines()[0])
    cli.decoding_flags(p, Path(__file__).resolve().parent / "figures")
    p.add_argument("--block-size", type=int, default=5, help="L, masked positions of a block")
    p.add_argument("--budgets", type=int, nargs="+", default=[3, 7, 15, 31, 63],
                   help="draft nodes of the DDTrees")
    cli.temperatures_flag(p)
    p.add_argument("--own-texts", action="store_true",
                   help="train the drafter on the target's own greedy texts as well")
    p.add_argument("--quick", action="store_true",
                   help="a first look: --size small, trained for a shorter time, and --prompts 3")
    args = p.parse_args(argv)
    if args.quick:
        args.size, args.prompts = "small", 3
    samplers = [Sampler(t) for t in args.temperatures]
    longest = SIZES[args.size].block_size - PROMPT - 1  # a block behind a prompt, in training
    if min(args.budgets) < 1 or not 1 <= args.block_size <= longest:
        raise ValueError(f"budgets are {args.budgets} and block-size is {args.block_size}; each "
                         f"must be at least 1, and block-size at most {longest}")
    dataset, device = cli.setup(args)
    prompt = cli.check_decoding(args, dataset)
    models = load_models(args, dataset, device)

    print_text(f"\n{args.prompt}")
    collect(speculate(models.target, ddtree(models, 15, samplers[-1]), prompt, samplers[-1],
                      Dice(args.seed)), args.max_new_tokens,
            on_tokens=lambda tokens: print_text(dataset.tokenizer.decode(tokens)))

    prompts, all_results = held_out_prompts(dataset, args.prompts), {}
    built = {f"DDTree, B={b}": ms
             for b, ms in build_ms(models.block, prompts[0], args.budgets).items()}
    print(f"\n\n{args.size} target, decoding in {precision_of(models.target)} on "
          f"{device_name(device)}; {args.prompts} held-out prompts of 64 tokens, "
          f"{args.max_new_tokens} new tokens each; tau counts the bonus token")
    for sampler in samplers:
        before = costs(models, prompts[0])
        results = compare(decoders(models, sampler, args.budgets), prompts, args.max_new_tokens,
                          TURN)
        curve, draft_ms = halfway(before, costs(models, prompts[0]))
        all_results[sampler.temperature] = results
        print(f"\ntemperature {sampler.temperature:g}")
        print_results(results, PLAIN, greedy=sampler.temperature == 0)
        print("\nc(N), ms: " + ", ".join(f"{n}: {ms:.2f}" for n, ms in curve.items())
              + f"; one drafter pass {draft_ms:.2f}")
        time_table(results, curve, draft_ms, built)
        if sampler.temperature == 0:
            print_differences(results, PLAIN, prompts, models.target)
            share = sum(distinct_share(g.tokens) for g in results[PLAIN]) / len(prompts)
            print(f"share of distinct 6-grams in the greedy texts: {share:.2f}")
    print()
    for temperature, results in all_results.items():
        conclude(results, args.budgets, temperature)
    save_figures(args, all_results, models, dataset, prompt, args.budgets)


if __name__ == "__main__":
    cli.run(main)
