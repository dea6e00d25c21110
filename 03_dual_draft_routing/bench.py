"""Chapter 03 on the runner: its decoders, and what each head would have brought at every token.

The walk emits the target's own draws, so the text does not depend on who drafts. A tree accepts
exactly as many tokens as its deepest path agrees with that text. So one target forward over the
finished text is enough to know the heads' trees below every token of it, and to replay every
router on them, the oracle included, which in a real decoding would have to verify both trees.

    python 03_dual_draft_routing/bench.py    # a head for verse, one for code: tau of every router
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))  # so that a plain clone runs, too

from nanogpt import cli
from dual_draft_routing import (
    BothHeads,
    HeadDrafter,
    RoutedDrafter,
    mean_confidence,
    route,
)
from nanogpt.bench import (
    PLAIN,
    agreement,
    plain,
    print_gains,
    rounds_of,
    summarize,
    tau,
    trees_everywhere,
)
from nanogpt.data import held_out_prompts
from nanogpt.decoding import collect, plain_decode
from nanogpt.exact.toy_models import ToyHead, loop_bias
from nanogpt.sampling import Dice, Sampler
from train_heads import get_kinds
from tree_attention import speculate  # chapter 02


def drafters(heads, budget=8, **shape):
    """A HeadDrafter for each head."""
    return [HeadDrafter(head, budget=budget, **shape) for head in heads]


def registry(target, heads, sampler, budget):
    """{name: start(prompt, seed)} for every method that can really run."""
    def drafted_by(make):
        return lambda prompt, seed: speculate(target, make(drafters(heads, budget)), prompt,
                                              sampler, Dice(seed))

    return {
        PLAIN: plain(target, sampler),
        "head 1 alone": drafted_by(lambda pair: pair[0]),
        "head 2 alone": drafted_by(lambda pair: pair[1]),
        "routed": drafted_by(RoutedDrafter),
    }


# ---------------------------------------------------------------- all heads, at every token


@dataclass
class Proposal:
    """The heads' trees below one token of the text: for each head the accepted drafts (the target's
    own token not counted), and the mean confidence. kind: of the prompt."""

    lengths: list
    means: list
    kind: int = 0


def propose_everywhere(target, heads, text, first, kind=0):
    """trees_everywhere -> {position: Proposal}."""
    return {root: Proposal([agreement(tree, text[root + 1:]) for tree in trees],
                           [mean_confidence(s) for s in scores], kind)
            for root, trees, scores in trees_everywhere(
                target, BothHeads(heads), text, first)}


def tell(kinds, target, heads, sampler):
    """24 plain texts of each kind -> {kind: prompt + 128 tokens of each}, and known, {kind:
    propose_everywhere of each}. Prompt i is drawn from Dice(i)."""
    texts, known = {}, {}
    for number, kind in enumerate(("verse", "code")):
        prompts = held_out_prompts(kinds[kind], 24)
        texts[kind] = [prompt + collect(plain_decode(target, prompt, sampler, Dice(i)), 128).tokens
                       for i, prompt in enumerate(prompts)]
        known[kind] = [propose_everywhere(target, drafters(heads.values()), text, len(prompts[0]),
                                          number) for text in texts[kind]]
    return texts, known


# ---------------------------------------------------------------- every router on the same texts


def choices(step):
    """Which head does each router keep?"""
    return {"verse head": 0, "code head": 1,
            "the surer head": route(step.means[:2]),
            "each prompt's own head": step.kind,
            "one head for both": 2,
            "the oracle": route(step.lengths[:2])}


ROUTERS = list(choices(Proposal([0, 0], [0, 0])))


def replay(proposals, router):
    """The rounds of what propose_everywhere gave. router: a name in `choices`."""
    return rounds_of({root: step.lengths[choices(step)[router]]
                      for root, step in proposals.items()})


def print_taus(known):
    """tau of each router, and what is gained. known: of tell, with heads for verse, code, both."""
    parts = known | {"both": known["verse"] + known["code"]}
    found = {router: [[replay(text, router) for text in texts] for texts in parts.values()]
             for router in ROUTERS}
    cli.print_table(["tau", *parts], [[router, *(f"{tau(rounds):.2f}" for rounds in columns)]
                                      for router, columns in found.items()])
    print()
    both = {router: columns[-1] for router, columns in found.items()}
    print_gains(both, "code head", *ROUTERS[2:4], "the oracle")
    print_gains(both, "the surer head", *ROUTERS[3:5])


def print_opinions(known):
    """What each head expects of itself at a position, and what the target would have accepted; how
    often the router takes it where it reaches further (right), and where the other does (wrong).
    known: of tell."""
    rows = []
    for kind, texts in known.items():
        steps = [step for text in texts for step in text.values()]
        for head, name in enumerate(known):
            expects = mean(8 * step.means[head] for step in steps)
            accepted = mean(step.lengths[head] for step in steps)
            ahead = [(step.lengths[head] - step.lengths[1 - head]) * (route(step.means[:2]) == head)
                     for step in steps]
            rows.append([f"{name}/{kind}", f"{expects:.2f}", f"{accepted:.2f}",
                         f"{accepted / expects:.2f}", f"{mean(a > 0 for a in ahead):.0%}",
                         f"{mean(a < 0 for a in ahead):.0%}"])
    cli.print_table(["head/where", "says", "gets", "ratio", "right", "wrong"], rows)


def bias_and_tau(target, heads, prompts, router, accept, rounds=2):
    """Is a changed loop's text right on toys, for so many rounds, and which tau has it here?

    router: makes a drafter of two; accept: see speculate -> total variation, tau, as texts.
    """
    sampler, toys = Sampler(1), drafters([ToyHead(8), ToyHead(9)], 3, depth=2, top_k=2)

    def loop(target, pair, prompt, dice):
        return speculate(target, router(pair), prompt, sampler, dice, accept)

    bias = loop_bias(lambda toy, dice: loop(toy, toys, [0, 1], dice), sampler, rounds)
    runs = [collect(loop(target, drafters(heads), prompt, Dice(i)), 80)
            for i, prompt in enumerate(prompts)]
    return f"{bias:.3f}", f"{summarize(runs)['tau']:.2f}"


def main(argv=None):
    args = cli.parser("A head for verse, a head for code: what does routing gain?").parse_args(argv)
    _, device = cli.setup(args)
    kinds, target, heads = get_kinds(device, args.retrain)
    for temperature in (0.5, 1.0):  # greedy text of so small a target repeats itself
        known = tell(kinds, target, heads, Sampler(temperature))[1]
        print("\ntemperature", temperature)
        print_taus(known)
        print_opinions(known)


if __name__ == "__main__":
    cli.run(main)
