"""Dual draft routing for real: train two heads, decode with each, with a coin, with the router.

    python 03_dual_draft_routing/train_and_decode.py
"""

import sys; from pathlib import Path; sys.path[:0] = map(str, [(root := Path(__file__).resolve().parents[1]), *root.glob("0?_*")])  # noqa: E401, E501, E702, I001

import statistics

from draft_heads import default_configs, get_heads, heads_for_decoding
from replay import (
    ORACLE,
    PAPER,
    calibration,
    complementarity,
    propose_everywhere,
    replay,
    routers,
    tau,
    texts_of,
)

from dual_draft_routing import HeadDrafter, RoutedDrafter, coin_flip
from nanogpt import cli, plots
from nanogpt.data import held_out_prompts
from nanogpt.device import device_name
from nanogpt.generate import collect, plain_decode
from nanogpt.precision import for_decoding, precision_of
from nanogpt.report import (
    print_bottlenecks,
    print_differences,
    print_table,
    print_text,
    results_table,
)
from nanogpt.sampling import Dice, Sampler
from nanogpt.timing import compare, cost_curve
from nanogpt.train import get_gpt
from tree_attention import speculate


def decoders(target, heads, sampler, budget):
    """{name: start(prompt, seed)} for every method that can really run."""
    def decoder(make):
        return lambda prompt, seed: speculate(
            target, make([HeadDrafter(head, budget=budget) for head in heads], Dice(seed + 1)),
            prompt, sampler, Dice(seed))

    return {
        "plain": lambda prompt, seed: plain_decode(target, prompt, sampler, Dice(seed)),
        "head 1 alone": decoder(lambda pair, dice: pair[0]),
        "head 2 alone": decoder(lambda pair, dice: pair[1]),
        "coin flip": decoder(lambda pair, dice: RoutedDrafter(pair, coin_flip(dice))),
        "routed": decoder(lambda pair, dice: RoutedDrafter(pair)),
    }


def replay_table(target, heads, texts, first, budget, seed):
    """Every router on the same known texts -> {name: list of lists of Proposal}, all Proposals."""
    pair = [HeadDrafter(head, budget=budget) for head in heads]
    known = [propose_everywhere(target, pair, text, first) for text in texts]
    runs = {name: [replay(proposals, choose) for proposals in known]
            for name, choose in routers(seed).items()}
    print_table([f"router, on {len(texts)} known texts", "steps", "tau"], [
        [name, sum(map(len, run)), f"{tau(run):.2f}"] for name, run in runs.items()])
    return runs, [step for proposals in known for step in proposals.values()]


def explain(runs, proposals):
    """The router's account in three sentences: what it brought, how often it was right, and how
    far the heads' confidence can be believed."""
    single, routed, best = (max(tau(runs[f"head {h} alone"]) for h in (1, 2)), tau(runs[PAPER]),
                            tau(runs[ORACLE]))
    print(f"routing brings {routed / single - 1:+.1%} over the better single head; a perfect "
          f"router would bring {best / single - 1:+.1%}")
    shares = complementarity(proposals)
    print(f"at every token: head 1 longer in {shares['head 1 longer']:.0%}, head 2 longer in "
          f"{shares['head 2 longer']:.0%}; where they differ, mu picks the longer one in "
          f"{shares['router right']:.0%}")
    for head in (0, 1):
        expected, accepted, correlation = calibration(proposals, head)
        print(f"head {head + 1} expects {expected:.2f} accepted drafts and gets {accepted:.2f}; "
              f"correlation {correlation:.2f}")


def draw_calibration(proposals, ax=None):
    """N mu, the accepted length that a head expects, against the length accepted."""
    ax = ax or plots.new_axes(5.6, 4)
    for head, color in ((0, plots.BLUE), (1, plots.ORANGE)):
        points = sorted((step.means[head] * step.nodes[head], step.lengths[head])
                        for step in proposals)
        size = max(len(points) // 8, 1)
        bins = [points[i:i + size] for i in range(0, len(points) - size + 1, size)]
        ax.plot([statistics.mean(s for s, _ in b) for b in bins],
                [statistics.mean(n for _, n in b) for b in bins],
                color=color, marker="o", label=f"head {head + 1}, eighths of the proposals")
    top = max(ax.get_xlim()[1], ax.get_ylim()[1])
    ax.plot([0, top], [0, top], color=plots.GREY, linestyle="--", linewidth=1, zorder=1)
    ax.legend(frameon=False, fontsize=9)
    return plots.plain_frame(ax, None, "expected: N times the mean confidence",
                             "accepted draft tokens")


def draw_choices(steps, text_of_token, text, ax=None):
    """Both confidences over the text; below, who was chosen and who would have been right."""
    ax = ax or plots.new_axes(11, 3.4)
    places = range(len(steps))
    for head, color in ((0, plots.BLUE), (1, plots.ORANGE)):
        ax.plot(places, [s.means[head] for s in steps], color=color, marker="o", markersize=4,
                label=f"mean confidence of head {head + 1}")
        ax.scatter([i for i in places if steps[i].chosen == head], [-0.06] * sum(
            s.chosen == head for s in steps), color=color, marker="s", s=26)
        better = [i for i in places if steps[i].lengths[head] > steps[i].lengths[1 - head]]
        ax.scatter(better, [-0.14] * len(better), color=color, marker="^", s=30)
    ax.set_xticks(places, [plots.visible(text_of_token(text[s.position])) for s in steps],
                  fontsize=8, family="DejaVu Sans Mono", parse_math=False)
    ax.legend(frameon=False, fontsize=9)
    return plots.plain_frame(
        ax, "squares: the head that was chosen; triangles: the head that would have been longer",
        "root token of each step", "mean confidence")


def main(argv=None):
    p = cli.parser(__doc__.splitlines()[0])
    cli.decoding_flags(p, Path(__file__).resolve().parent / "figures")
    p.add_argument("--budget", type=int, default=8, help="draft nodes of a tree")
    p.add_argument("--replayed", type=int, default=12, help="held-out texts behind the routers")
    p.add_argument("--generalists", action="store_true",
                   help="two heads that are on duty everywhere and differ only by chance")
    p.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 1.0])
    args = p.parse_args(argv)
    samplers = [Sampler(t) for t in args.temperatures]
    HeadDrafter(None, budget=args.budget)  # refuses a bad budget before anything is trained
    if args.replayed < 1:
        raise ValueError(f"replayed is {args.replayed}; it must be at least 1")
    dataset, device = cli.setup(args)
    prompt = cli.check_decoding(args, dataset)
    trained = get_gpt(args.size, dataset, device, args.retrain)
    duties = {"duties": ("everywhere",) * 2} if args.generalists else {}
    heads = get_heads(trained, dataset, device, args.retrain,
                      default_configs(trained.config.n_layer, **duties))
    target = for_decoding(trained, args.precision)
    fast = heads_for_decoding(heads, target)

    print_text(f"\n{args.prompt}")
    collect(speculate(target, RoutedDrafter([HeadDrafter(head, budget=args.budget)
                                             for head in fast]),
                      prompt, samplers[-1], Dice(args.seed)), args.max_new_tokens,
            on_tokens=lambda tokens: print_text(dataset.tokenizer.decode(tokens)))
    prompts, many = (held_out_prompts(dataset, n) for n in (args.prompts, args.replayed))
    curve = cost_curve(target, rows=[1, 2, 4, 8, 16, 32])
    print(f"\n\n{args.size} target in {precision_of(target)} on {device_name(device)}; duties: "
          + ", ".join(f"head {h} {head.config.duty}" for h, head in enumerate(heads, 1))
          + f"; {args.budget} draft nodes; {args.prompts} held-out prompts of {len(prompts[0])} "
          f"tokens, {args.max_new_tokens} new tokens each; tau counts the bonus token")
    for sampler in samplers:
        print(f"\ntemperature {sampler.temperature:g}\n")
        results = compare(decoders(target, fast, sampler, args.budget), prompts,
                          args.max_new_tokens)
        results_table(results, "plain", greedy=sampler.temperature == 0)
        if sampler.temperature == 0:
            print_differences(results, "plain", prompts, target)
        print("share of drafting: " + ", ".join(
            f"{name} {statistics.mean(g.share('draft') for g in runs):.0%}"
            for name, runs in results.items() if name != "plain") + "\n")
        print_bottlenecks(results, "plain", curve)
        # Replayed texts must fit into the window.
        length = min(args.max_new_tokens, target.block_size - len(prompts[0]))
        texts = texts_of(target, many, sampler, length)
        print()
        runs, proposals = replay_table(target, fast, texts, len(prompts[0]), args.budget, args.seed)
        explain(runs, proposals)
        plots.save(draw_calibration(proposals),
                   args.out / f"calibration_T{sampler.temperature:g}.png")
        plots.save(draw_choices(runs[PAPER][0][:40], lambda t: dataset.tokenizer.decode([t]),
                                texts[0]), args.out / f"choices_T{sampler.temperature:g}.png")
    print(f"\nfigures: {args.out}")


if __name__ == "__main__":
    cli.run(main)
