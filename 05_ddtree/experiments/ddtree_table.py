"""The tables of chapter 05: who takes part, what it costs, where the time goes, the figures."""

from copy import copy
from dataclasses import dataclass
from functools import partial

from chain_specdec import GPTDraft, speculate_chain  # chapter 01
from conditional_marginals import decode_conditional, decode_sampled
from ddtree import BlockChainDrafter, BlockTopTreeDrafter, decode_ddtree
from experiments.drafter_cost import build_ms, conditional_build_ms, pass_ms
from experiments.ngram import NGramDraft
from nanogpt.account import distinct_share, why_not_faster
from nanogpt.clock import cost_curve
from nanogpt.contest import compare, predicted_speedup, speedup, summarize
from nanogpt.decoding import collect, plain_decode
from nanogpt.packing import for_decoding
from nanogpt.pictures import plots
from nanogpt.printing import print_table
from nanogpt.sampling import Dice, Sampler
from nanogpt.train import get_gpt
from tree_attention import speculate  # chapter 02

CHAIN, PLAIN = "block chain, argmax", "plain"
# The fastest shapes of both rules, see sampled_shapes.py.
SAMPLED = {"sampled chain 3, p/q": (1, 1, 1), "sampled tree 2-1-1, multi-round": (2, 1, 1)}
TURN = 16  # tokens that a method decodes before the next one has its turn


def ddtree_name(budget):
    """How the tables call the paper's DDTree with this budget."""
    return f"DDTree, B={budget}"


def conditional_name(budget):
    """How the tables call DDTree on conditionals."""
    return f"conditional DDTree, B={budget}"


# ---------------------------------------------------------------- who takes part


@dataclass
class Models:
    """Everything that decodes, as decoding copies on one device."""

    target: object
    block: object  # the block-diffusion network
    small: object  # the small GPT of chapter 01
    ngram: NGramDraft


def get_rivals(args, dataset, device):
    """The drafters that are no block diffusion: the small GPT, trained or loaded; the 7-gram."""
    small = get_gpt("draft", dataset, device, args.retrain)
    return for_decoding(small, args.precision), NGramDraft(dataset.train, dataset.vocab_size)


def plain(target, sampler, prompt, seed):
    """Plain decoding: one forward, one token."""
    return plain_decode(target, prompt, sampler, Dice(seed))


def chain(target, draft, sampler, prompt, seed):
    """Chapter 01: four drafts in a row, judged by the p/q rule."""
    return speculate_chain(target, draft, prompt, 4, sampler, Dice(seed))


def tree(target, drafter, sampler, prompt, seed):
    """Chapter 02: any drafter of trees, judged by the walk."""
    return speculate(target, drafter, prompt, sampler, Dice(seed))


def ddtree(target, block, budget, sampler, prompt, seed):
    """The paper's algorithm, on marginals."""
    return decode_ddtree(target, block, budget, prompt, sampler, Dice(seed))


def conditional(target, block, budget, sampler, prompt, seed):
    """The same heap, on conditionals."""
    return decode_conditional(target, block, budget, prompt, sampler, Dice(seed))


def sampled(target, block, branching, sampler, prompt, seed):
    """A chain or a tree drawn from the conditionals, judged by the p/q rule, round after round."""
    return decode_sampled(target, block, branching, prompt, sampler, Dice(seed))


def methods(models, sampler, budgets):
    """{name: start(prompt, seed)} for every method of a table.

    They take turns, so no two share a drafter: the copies of the 7-gram have its counts in common
    and nothing else.
    """
    target, block = models.target, models.block
    small, ngram = GPTDraft(models.small), copy(models.ngram)
    top_tree = BlockTopTreeDrafter(block, (2, 2, 2))
    starts = {
        PLAIN: partial(plain, target, sampler),
        "57K GPT chain, K=4": partial(chain, target, small, sampler),
        "7-gram chain, K=4": partial(chain, target, ngram, sampler),
        CHAIN: partial(tree, target, BlockChainDrafter(block), sampler),
        "block top-W tree, 2x2x2": partial(tree, target, top_tree, sampler),
    }
    for budget in budgets:
        starts[ddtree_name(budget)] = partial(ddtree, target, block, budget, sampler)
    if block.transition is None:
        return starts
    for budget in budgets:
        starts[conditional_name(budget)] = partial(conditional, target, block, budget, sampler)
    if sampler.temperature > 0:  # at temperature 0 only one child can be drawn
        for name, branching in SAMPLED.items():
            starts[name] = partial(sampled, target, block, branching, sampler)
    return starts


# ---------------------------------------------------------------- what it costs


@dataclass
class Prices:
    """What the parts of a round cost when measured by themselves, in milliseconds."""

    curve: dict  # {N: c(N)}
    draft: float  # one drafter pass
    build: dict  # {method: building its tree}

    @classmethod
    def now(cls, models, prompt, budgets):
        """Measure them. prompt: a list of token ids to draft behind."""
        curve = cost_curve(models.target, rows=[1, 2, 4, 8, 16, 32, 64, 128], repeats=15)
        build = {ddtree_name(b): ms for b, ms in build_ms(models.block, prompt, budgets).items()}
        if models.block.transition is not None:
            times = conditional_build_ms(models.block, prompt, budgets)
            build |= {conditional_name(b): ms for b, ms in times.items()}
        return cls(curve, pass_ms(models.block, prompt), build)

    def halfway(self, later):
        """The mean of two measurements: before and after a table, for the load of a shared machine
        varies."""
        def mean(early, late):
            return {key: (ms + late[key]) / 2 for key, ms in early.items()}

        return Prices(mean(self.curve, later.curve), (self.draft + later.draft) / 2,
                      mean(self.build, later.build))


def contest(models, sampler, budgets, prompts, max_new_tokens):
    """Every method on every prompt -> results {name: list of Generation}, and the Prices."""
    before = Prices.now(models, prompts[0], budgets)
    results = compare(methods(models, sampler, budgets), prompts, max_new_tokens, TURN)
    return results, before.halfway(Prices.now(models, prompts[0], budgets))


# ---------------------------------------------------------------- what it says


def print_time_table(results, prices):
    """Where a step's time goes, and how far the measured speed-up is from the ideal one.

    The ideal knows c(N) and the drafter's pass as measured by themselves; the sentence below the
    table accounts for the milliseconds of the rounds.
    """
    print("\nc(N), ms: " + ", ".join(f"{n}: {ms:.2f}" for n, ms in prices.curve.items())
          + f"; one drafter pass {prices.draft:.2f}")
    rows, speedups = [], {}
    for name, generations in results.items():
        if not name.startswith(("DDTree", "block", "conditional", "sampled")):
            continue
        line = summarize(generations)
        step_ms, spent, build = line["ms_per_step"], line["verb_ms"], prices.build.get(name, 0.0)
        parts = [spent["draft"] - build, build, spent["verify"], spent["accept"], spent["commit"]]
        ideal = predicted_speedup(line["tau"], prices.curve, 1 + line["drafted"], prices.draft)
        measured = speedups[name] = speedup(generations, results[PLAIN])
        rows.append([name, f"{step_ms:.2f}", *(f"{part / step_ms:.0%}" for part in parts),
                     f"{ideal:.2f}x", f"{measured:.2f}x", f"{measured / ideal:.2f}"])
    print_table(["method", "ms/step", "draft", "build", "verify", "accept", "commit", "ideal",
                 "measured", "ratio"], rows)
    print("\n" + why_not_faster(max(speedups, key=speedups.get), results, PLAIN))


def print_repetition(results):
    """How often plain decoding's texts repeat themselves: a repetition is easy to draft."""
    shares = [distinct_share(generation.tokens) for generation in results[PLAIN]]
    print(f"share of distinct 6-grams in the greedy texts: {sum(shares) / len(shares):.2f}")


def tau_and_speedup(results, name):
    """-> tokens per forward, times plain decoding's speed."""
    return summarize(results[name])["tau"], speedup(results[name], results[PLAIN])


def fastest(results, *beginnings):
    """The name of the fastest method whose name begins so; None if there is no such method."""
    names = [name for name in results if name.startswith(beginnings)]
    return max(names, key=lambda name: speedup(results[name], results[PLAIN]), default=None)


def print_conclusions(tables):
    """Each table in a sentence a family of methods. tables: {temperature: results}."""
    families = {"the block drafter's chain": CHAIN, "the paper's tree": "DDTree",
                "on conditionals": "conditional", "drawn, and judged by the p/q rule": "sampled",
                "drafting one token after the other": ("57K GPT", "7-gram")}
    for temperature, results in tables.items():
        print(f"\nT={temperature:g}, the fastest of each kind:")
        for what, begins in families.items():
            name = fastest(results, *([begins] if isinstance(begins, str) else begins))
            if name is not None:
                tau, fast = tau_and_speedup(results, name)
                print(f"  {what}: {name}, {tau:.2f} tokens per forward, {fast:.2f}x")


# ---------------------------------------------------------------- the figures


def save_figures(args, tables, models, prompt, tokenizer):
    """Budget against tau and speed-up, the acceptance histogram, one real tree with its walk."""
    plots.save(draw_budgets(tables, args.budgets, args.block_size), args.out / "budget.png")
    first = next(iter(tables.values()))
    lengths = {name: [n for generation in first[name] for n in generation.accepted]
               for name in (CHAIN, fastest(first, "DDTree"))}
    plots.save(plots.draw_acceptance(lengths), args.out / "acceptance.png")
    plots.save(draw_longest_walk(models, prompt, tokenizer, args.seed), args.out / "tree.png")
    print(f"\nfigures: {args.out}")


def draw_budgets(tables, budgets, length):
    """DDTree over its budgets, a line a temperature, and its chain of `length` as a point."""
    curves = {}
    for temperature, results in tables.items():
        for kind, name in (("DDTree", ddtree_name), ("conditional", conditional_name)):
            points = [tau_and_speedup(results, name(b)) for b in budgets if name(b) in results]
            if points:
                taus, speedups = map(list, zip(*points, strict=True))
                curves[f"{kind}, T={temperature:g}"] = (budgets, taus, speedups)
        tau, fast = tau_and_speedup(results, CHAIN)
        curves[f"block chain, T={temperature:g}"] = ([length], [tau], [fast])
    return plots.draw_sweep(curves, "draft tokens verified per round (budget B)", log2=True)[0]


def draw_longest_walk(models, prompt, tokenizer, seed):
    """A tree of 15 nodes in which the walk at temperature 1 got furthest."""
    steps = ddtree(models.target, models.block, 15, Sampler(), prompt, seed)
    step = max(collect(steps, 60).steps[:-1], key=lambda step: len(step.tokens))
    return plots.draw_tree(step.detail.tree, lambda token: tokenizer.decode([token]),
                           step.detail.path, step.detail.target_probs, next_token=step.tokens[-1])
