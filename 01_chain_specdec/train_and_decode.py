"""Train a GPT on Shakespeare, let a cheap model draft for it, print what that brings.

    python 01_chain_specdec/train_and_decode.py --prompt "JULIET:" --temperature 0.8
"""

import sys; from pathlib import Path; sys.path[:0] = map(str, [(root := Path(__file__).resolve().parents[1]), *root.glob("0?_*")])  # noqa: E401, E501, E702, I001

import torch

from chain_specdec import (
    BigramDraft,
    GPTDraft,
    acceptance_rate,
    expected_speedup,
    expected_tokens,
    speculate_chain,
)
from nanogpt import cli, plots
from nanogpt.data import held_out_prompts
from nanogpt.device import device_name
from nanogpt.generate import collect, plain_decode
from nanogpt.precision import for_decoding, precision_of
from nanogpt.report import print_differences, print_table, print_text, results_table
from nanogpt.sampling import Dice
from nanogpt.timing import compare, cost_curve, interpolate, median_ms, speedup, summarize
from nanogpt.train import get_gpt

PLAIN, SWEEP = "plain", (1, 2, 4, 8)


def load_models(args, dataset, device):
    """-> the target, {name: draft model}; all trained or loaded, as decoding copies."""
    target = for_decoding(get_gpt(args.size, dataset, device, args.retrain), args.precision)
    small = for_decoding(get_gpt("draft", dataset, device, args.retrain), args.precision)
    return target, {"bigram": BigramDraft(dataset.train, dataset.vocab_size),
                    "small GPT": GPTDraft(small)}


def measured_alpha(generations):
    """Mean acceptance rate over the positions that were judged, and the share accepted at each.

    A position is judged if all drafts before it were accepted.
    -> alpha; a list over draft positions of (accepted, judged).
    """
    rates, counts = [], {}
    for step in (s for g in generations for s in g.steps):
        drafted, draft_probs, target_probs, n = step.detail
        for i in range(min(n + 1, len(drafted))):
            rates.append(float(acceptance_rate(target_probs[i], draft_probs[i])))
            accepted, judged = counts.get(i, (0, 0))
            counts[i] = accepted + (i < n), judged + 1
    return sum(rates) / max(len(rates), 1), [counts[i] for i in sorted(counts)]


def draft_cost(draft, prompt):
    """Median milliseconds of one drafted token."""
    draft.reset()
    draft.observe(prompt[:-1])
    return median_ms(lambda: draft.logits(prompt[-1]), torch.device("cpu"), repeats=20)


def predictions(results, methods, curve, costs):
    """Print predicted against measured; -> {name: (predicted, measured speed-up)}."""
    rows, points = [], {}
    for name, (draft, k) in methods.items():
        alpha, _ = measured_alpha(results[name])
        tau, verify_ms = summarize(results[name])["tau"], interpolate(curve, k + 1)
        guess = expected_tokens(alpha, k)
        from_alpha = expected_speedup(guess, k, curve[1], costs[draft], verify_ms)
        from_tau = expected_speedup(tau, k, curve[1], costs[draft], verify_ms)
        measured = speedup(results[name], results[PLAIN])
        points[name] = from_tau, measured
        rows.append([name, f"{alpha:.2f}", f"{guess:.2f}", f"{tau:.2f}", f"{from_alpha:.2f}x",
                     f"{from_tau:.2f}x", f"{measured:.2f}x"])
    print_table(["method", "alpha", "tau from alpha", "tau", "speed-up from alpha", "from tau",
                 "measured"], rows)
    return points


def explain(results, methods, curve, costs):
    """Why it is not faster, in a sentence."""
    best = max(methods, key=lambda name: speedup(results[name], results[PLAIN]))
    draft, k = methods[best]
    tau, verify_ms = summarize(results[best])["tau"], interpolate(curve, k + 1)
    parts = {
        f"drafting {k} tokens one by one": k * costs[draft],
        f"verifying {k + 1} rows instead of 1": verify_ms - curve[1],
    }
    worst = max(parts, key=parts.get)
    print(f"\nBest here: {best}, {tau:.2f} tokens a forward, "
          f"{speedup(results[best], results[PLAIN]):.2f}x. Why not {tau:.2f}x? A round costs "
          f"{curve[1] + sum(parts.values()):.2f} ms where a plain step costs {curve[1]:.2f}; "
          f"most of the difference is {worst} ({parts[worst]:.2f} ms).")


def save_figures(args, results, methods, points):
    """tau and speed-up over K; predicted against measured; acceptance by draft position."""
    curves, positions = {}, {}
    for draft in dict.fromkeys(draft for draft, _ in methods.values()):
        names = [name for name, (d, _) in methods.items() if d == draft]
        curves[draft] = ([methods[n][1] for n in names],
                         [summarize(results[n])["tau"] for n in names],
                         [speedup(results[n], results[PLAIN]) for n in names])
        positions[draft] = measured_alpha(results[names[-1]])[1]
    plots.save(plots.draw_sweep(curves, "drafted tokens K", log2=True)[0], args.out / "sweep.png")
    plots.save(plots.draw_predicted(points), args.out / "predicted.png")
    ax = plots.new_axes(6, 3.4)
    for draft, counts in positions.items():
        ax.plot(range(1, len(counts) + 1), [a / n for a, n in counts], marker="o", label=draft)
    ax.set_ylim(0, 1)
    ax.legend(frameon=False)
    plots.plain_frame(ax, None, "draft position", "share accepted, if it was judged")
    plots.save(ax, args.out / "positions.png")
    print(f"figures: {args.out}")


def main(argv=None):
    p = cli.parser(__doc__.splitlines()[0])
    cli.decoding_flags(p, Path(__file__).resolve().parent / "figures")
    cli.sampler_flags(p)
    p.add_argument("--draft", choices=("bigram", "gpt"), default="gpt",
                   help="who drafts for --prompt; the table shows both")
    p.add_argument("--k", type=int, default=4, help="drafted tokens a round for --prompt")
    p.add_argument("--stop", help="end the text of --prompt after this string")
    args = p.parse_args(argv)
    sampler = cli.make_sampler(args)
    if args.k < 1:
        raise ValueError(f"k is {args.k}; a chain holds at least 1 draft token")
    dataset, device = cli.setup(args)
    prompt = cli.check_decoding(args, dataset)
    target, drafts = load_models(args, dataset, device)

    print_text(f"\n{args.prompt}")
    steps = speculate_chain(target, drafts["bigram" if args.draft == "bigram" else "small GPT"],
                            prompt, args.k, sampler, Dice(args.seed))
    text = collect(steps, args.max_new_tokens, args.stop, dataset.tokenizer.decode,
                   lambda tokens: print_text(dataset.tokenizer.decode(tokens)))
    print(f"\n\n{len(text.tokens)} tokens, {text.tau:.2f} per target forward")

    methods = {f"{draft}, K={k}": (draft, k) for draft in drafts for k in SWEEP}
    decoders = {PLAIN: lambda p, seed: plain_decode(target, p, sampler, Dice(seed))}
    for name, (draft, k) in methods.items():
        decoders[name] = lambda p, seed, draft=draft, k=k: speculate_chain(
            target, drafts[draft], p, k, sampler, Dice(seed))
    prompts = held_out_prompts(dataset, args.prompts)
    curve = cost_curve(target, rows=[1, 2, 4, 8, 16])
    costs = {name: draft_cost(draft, prompts[0]) for name, draft in drafts.items()}
    results = compare(decoders, prompts, args.max_new_tokens)

    print(f"\n{args.size} target in {precision_of(target)} on {device_name(device)}; "
          f"{args.prompts} held-out prompts of 64 tokens, {args.max_new_tokens} new tokens each, "
          f"temperature {sampler.temperature:g}; tau counts the bonus token")
    print("c(N), ms: " + ", ".join(f"{n}: {ms:.2f}" for n, ms in curve.items())
          + "; one drafted token: " + ", ".join(f"{n} {ms:.2f}" for n, ms in costs.items()) + "\n")
    results_table(results, PLAIN, greedy=sampler.temperature == 0)
    if sampler.temperature == 0:
        print_differences(results, PLAIN, prompts, target)
    print()
    points = predictions(results, methods, curve, costs)
    explain(results, methods, curve, costs)
    save_figures(args, results, methods, points)


if __name__ == "__main__":
    cli.run(main)
