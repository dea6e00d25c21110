"""LV beside TV in numbers: on random tables, on recorded trees, and on this machine's clock."""

import statistics

import numpy as np

from experiments.rule_cost import microseconds
from experiments.rule_table import gain
from iid_trees import SHAPES
from nanogpt.contest import summarize
from nanogpt.printing import print_table
from toy_experiment import Setting, mean_lengths

STEPS = ("K-SEQ", "RRS", "GR")
TITLES = {"multi-chain": "two chains", "tapered": "tapered trees", "complete": "complete trees"}


def toy_lengths(seeds, trees, depth=4):
    """Kept drafts on random tables, that many trees a seed -> {shape: {rule: array, by seed}}."""
    setting = Setting(depth=depth)
    found = {s: [mean_lengths(setting, s, seed, trees) for seed in seeds] for s in SHAPES}
    return {s: {rule: np.array([one[rule] for one in by_seed]) for rule in by_seed[0]}
            for s, by_seed in found.items()}


def as_panels(lengths):
    """toy_lengths' answer -> means, as draw_lengths wants them."""
    panels = {}
    for s, found in lengths.items():
        panels[TITLES[s]] = {step: {lift: found[f"{lift} + {step}"].mean() for lift in ("TV", "LV")}
                             for step in STEPS}
        panels[TITLES[s]] |= {rule: {"": found[rule].mean()} for rule in ("TRV", "GBV")
                              if rule in found}
    return panels


def percent_more(lengths):
    """{(shape, step): tokens a round that LV writes more than TV, in percent}."""
    return {(s, step): 100 * (found[f"LV + {step}"] - found[f"TV + {step}"]).mean()
            / (1 + found[f"TV + {step}"].mean()) for s, found in lengths.items() for step in STEPS}


def print_toy_gains(lengths):
    """Where LV is ahead of TV, by how much, and where it gains least, in words."""
    more = {(s, step): found[f"LV + {step}"] - found[f"TV + {step}"]
            for s, found in lengths.items() for step in STEPS}
    errors = [x.mean() / (x.std(ddof=1) / len(x) ** 0.5) for x in more.values()]
    percent = percent_more(lengths).values()
    shape, step = min(more, key=lambda case: more[case].mean())
    print(f"LV is ahead of TV in {sum(x.mean() > 0 for x in more.values())} of {len(more)} pairs; "
          f"the smallest difference is {min(errors):+.0f} standard errors")
    print(f"LV writes {min(percent):.1f} to {max(percent):.1f} percent more tokens per round, the "
          "target's own included")
    print(f"it gains least with {step} on {TITLES[shape]}; most drafts kept there: "
          f"{max(lengths[shape], key=lambda rule: lengths[shape][rule].mean())}")


def print_deeper(lengths, shallow, depth):
    """toy_lengths' answers for deep trees, and for shallow ones of that depth, in words."""
    deep, flat = percent_more(lengths), percent_more(shallow)
    print(f"on trees of depth {depth} LV writes {min(flat.values()):.1f} to "
          f"{max(flat.values()):.1f} percent more; deeper trees gain more in "
          f"{sum(deep[case] > flat[case] for case in deep)} of {len(deep)} pairs")


def print_lifts(tau, title):
    """TV and LV of each single-step rule on the same trees, rules without a lift, and the best.

    tau: {rule: (n,)}, expected tokens of a step on each of n trees.
    """
    rows = []
    for step in STEPS:
        tv, lv = tau[f"TV + {step}"], tau[f"LV + {step}"]
        rows.append([step, f"{tv.mean():.3f}", f"{lv.mean():.3f}",
                     "{:+.1f}% ({:.1f})".format(*gain(lv, tv))])
    count = len(next(iter(tau.values())))
    print_table([f"{count} trees, {title}", "tau, TV", "tau, LV", "LV over TV"], rows)
    rest = [f"{name} {tau[name].mean():.3f}" for name in ("TRV", "GBV") if name in tau]
    first, second = sorted(tau, key=lambda name: -tau[name].mean())[:2]
    ahead, error = gain(tau[first], tau[second])
    sure = "" if ahead > 2 * error else ", too little to tell from noise"
    print(f"without a lift: {', '.join(rest)}; most: {first} {tau[first].mean():.3f}, ahead of "
          f"{second} by {ahead:.1f}% ({error:.1f}){sure}\n")


def print_price(runs, tau, rules):
    """The tokens that LV adds to TV beside the time that it adds, in percent of a round.

    runs: {shape: {name: list of Generation}}, one decoder each, whose rounds count; tau: {shape:
    {rule: (n,)}}; rules: {name: rule}.
    """
    rows, pays = [], 0
    for s, results in runs.items():
        generations, = results.values()
        details = [step.detail for g in generations for step in g.steps if step.detail]
        trees = [(d.tree, d.target_probs) for d in details[:40]]
        round_us = 1000 * summarize(generations)["ms_per_step"]
        for step in STEPS:
            tv, lv = (microseconds(rules[f"{lift} + {step}"], trees) for lift in ("TV", "LV"))
            tokens = 100 * (tau[s][f"LV + {step}"].mean() / tau[s][f"TV + {step}"].mean() - 1)
            time = 100 * (lv - tv) / round_us
            pays += tokens > time
            rows.append([f"{TITLES[s]}, {step}", f"{tokens:+.1f}%", f"{tv:.0f}", f"{lv:.0f}",
                         f"{time:+.1f}%"])
    print_table(["LV instead of TV", "tokens", "TV, us", "LV, us", "time of a round"], rows)
    print(f"in {pays} of {len(rows)} lines LV adds a larger share of tokens than of time")


def print_worth(results, baseline, tau):
    """What each rule's tau is worth on this machine: all columns from the same times.

    results: {name: list of Generation}, all but the baseline with the same drafter, shape and
    target; tau {rule: (n,)}: on the same trees, so free of luck.
    """
    plain_ms = summarize(results[baseline])["ms_per_step"]
    lines = {name: summarize(runs) for name, runs in results.items() if name != baseline}
    # Drafting and the forward are the same work for every rule: one mean for all of them.
    verbs = {verb: statistics.mean(line["verb_ms"][verb] for line in lines.values()) / plain_ms
             for verb in ("draft", "verify")}
    shared = statistics.mean(line["ms_per_step"] - line["verb_ms"]["accept"]
                             for line in lines.values()) / plain_ms
    print(f"a plain step takes {plain_ms:.2f} ms; without its rule a round costs {shared:.2f} "
          f"plain steps: drafting {verbs['draft']:.2f}, the target's forward "
          f"{verbs['verify']:.2f}, the rest {round(shared - sum(verbs.values()), 2) + 0.0:.2f}")
    rows, speed = [], {}
    for name, line in lines.items():
        rule = line["verb_ms"]["accept"] / plain_ms
        speed[name] = tau[name].mean() / (shared + rule)
        rows.append([name, f"{tau[name].mean():.3f}", f"{shared:.2f} + {rule:.2f}",
                     f"{speed[name]:.2f}x"])
    print_table(["rule", "tau", "a round, in plain steps", "speed-up"], rows)
    best = max(speed, key=speed.get)
    print(f"fastest on this machine: {best}, {speed[best]:.2f} times as fast as plain decoding")
