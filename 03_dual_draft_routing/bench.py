"""Chapter 03 on the runner: its decoders, and what each head would have brought at every token.

The walk emits the target's own draws, so the text does not depend on who drafts. A tree accepts
exactly as many tokens as its deepest path agrees with that text. So one target forward over the
finished text is enough to know both heads' trees below every token of it, and to replay every
router on them, the oracle included, which in a real decoding would have to verify both trees.

    python 03_dual_draft_routing/bench.py    # a head for verse, one for code; trains six minutes
"""

import sys
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from statistics import mean

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))  # so that a plain clone runs, too

import torch

from nanogpt import cli
from dual_draft_routing import (
    BothHeads,
    HeadDrafter,
    RoutedDrafter,
    coin_flip,
    mean_confidence,
    route,
)
from nanogpt.bench import PLAIN, plain
from nanogpt.data import CharTokenizer, Dataset, held_out_prompts, hold_out, load_text
from nanogpt.decoding import collect, plain_decode, tokens_on
from nanogpt.packing import for_decoding
from nanogpt.sampling import Dice, Sampler
from nanogpt.train import get_gpt
from train_heads import RECIPE, default_configs, get_heads, heads_for_decoding
from tree_attention import speculate  # chapter 02

ROOT = Path(__file__).resolve().parents[1]


def drafters(heads, budget=8, **shape):
    """A HeadDrafter for each head."""
    return [HeadDrafter(head, budget=budget, **shape) for head in heads]


def registry(target, heads, sampler, budget):
    """{name: start(prompt, seed)} for every method that can really run."""
    def drafted_by(make):
        return lambda prompt, seed: speculate(target, make(drafters(heads, budget), seed), prompt,
                                              sampler, Dice(seed))

    return {
        PLAIN: plain(target, sampler),
        "head 1 alone": drafted_by(lambda pair, seed: pair[0]),
        "head 2 alone": drafted_by(lambda pair, seed: pair[1]),
        # The coin has chance of its own.
        "a coin chooses": drafted_by(
            lambda pair, seed: RoutedDrafter(pair, coin_flip(Dice(seed + 1)))),
        "routed": drafted_by(lambda pair, seed: RoutedDrafter(pair)),
    }


# ---------------------------------------------------------------- both heads, at every token


@dataclass
class Proposal:
    """Both heads' trees below one token of the text: for each head the accepted drafts (the
    target's own token not counted), and the mean confidence. newest: the root, and before it the
    newest token that the target has read."""

    lengths: list
    means: list
    newest: list = ()


def agreement(tree, future):
    """Accepted length of a tree without equal siblings if the text goes on with `future`."""
    row, length = 0, 0
    for token in future:
        below = [c for c in tree.children[row] if int(tree.tokens[c]) == token]
        if not below:
            break
        row, length = below[0], length + 1
    return length


@torch.inference_mode()
def propose_everywhere(target, pair, text, first):
    """Both heads' trees below every token from text[first] on -> {position: Proposal}.

    pair: two HeadDrafters. The text must fit into the window.
    """
    _, hidden = target(tokens_on(target, text[:-1]))
    both, proposals = BothHeads(pair), {}
    for root in range(first, len(text) - 1):
        both.observe(text[root - 1:root], hidden, [root - 1])  # what was read before the root
        trees, scores = both.propose_both(text[root], len(text) - 1 - root)
        proposals[root] = Proposal([agreement(tree, text[root + 1:]) for tree in trees],
                                   [mean_confidence(s) for s in scores],
                                   text[root - 1:root + 1])
    return proposals


def replay(proposals, choose):
    """Decode a text again with a router -> the accepted drafts of every round, a list.

    proposals: what propose_everywhere gave. choose(proposal) -> which head is kept; it may look at
    the accepted lengths, as an oracle does.
    """
    accepted, root = [], min(proposals)
    while root in proposals:
        accepted.append(proposals[root].lengths[choose(proposals[root])])
        root += 1 + accepted[-1]
    return accepted


def texts_of(target, prompts, sampler, length):
    """Plain continuations: a list of prompt + tokens; prompt i is drawn from Dice(i).

    length: new tokens, but never more than the window holds, nor fewer than a few steps need.
    """
    length = min(max(length, 16), target.block_size - len(prompts[0]))
    return [prompt + collect(plain_decode(target, prompt, sampler, Dice(i)), length).tokens
            for i, prompt in enumerate(prompts)]


# Which head is kept? Only the oracle looks at the accepted lengths.
ROUTERS = {"head 1 alone": lambda step: 0, "head 2 alone": lambda step: 1,
           "the surer head": lambda step: route(step.means),
           "the oracle": lambda step: route(step.lengths)}


def taus(known, choices=ROUTERS):
    """{router: tau}, the target's own token included. known: {position: Proposal} of each text."""
    return {name: 1 + mean([n for proposals in known for n in replay(proposals, choose)])
            for name, choose in choices.items()}


def print_routers(columns, choices=ROUTERS):
    """Every router's tau on the same texts, and the gain over the better head alone.

    columns: {title: known}; choices: see taus.
    """
    found = [taus(known, choices) for known in columns.values()]
    rows = [[name, *(f"{line[name]:.2f}" for line in found)] for name in found[0]]
    for name in ("the surer head", "the oracle"):
        gains = (line[name] / max(line["head 1 alone"], line["head 2 alone"]) for line in found)
        rows.append([f"{name}, gain", *(f"{gain - 1:+.1%}" for gain in gains)])
    cli.print_table(["tau", *columns], rows)


# ---------------------------------------------------------------- two kinds of text


def kinds_of_text():
    """{kind: Dataset} of characters: Shakespeare, this repository's own code, and both."""
    files = sorted([*ROOT.glob("nanogpt/**/*.py"), *ROOT.glob("0?_*/*.py")])
    texts = [load_text(), "\n".join(file.read_text("utf-8") for file in files)]
    tokenizer, digest = CharTokenizer("".join(texts)), sha256("".join(texts).encode())
    verse, code = (hold_out(text, 10) for text in texts)  # training text, validation text
    parts = {"verse": verse, "code": code, "both": map(str.__add__, verse, code)}
    return {kind: Dataset(kind, "char", tokenizer,
                          *(torch.tensor(tokenizer.encode(part)) for part in halves),
                          f"{kind} of {digest.hexdigest()}") for kind, halves in parts.items()}


def main(argv=None):
    args = cli.parser("A head for verse, a head for code: what does routing gain?").parse_args(argv)
    _, device = cli.setup(args)
    kinds = kinds_of_text()
    trained = get_gpt("small", kinds["both"], device, args.retrain)
    target = for_decoding(trained)

    def head_for(kind, steps):
        configs = default_configs(trained.config.n_layer, ("everywhere",))
        heads = get_heads(trained, kinds[kind], device, args.retrain, configs,
                          replace(RECIPE, steps=steps))
        return heads_for_decoding(heads, target)[0]

    pair = [head_for(kind, RECIPE.steps) for kind in ("verse", "code")]
    rival = head_for("both", 2 * RECIPE.steps)
    for temperature in (0.5, 1.0):  # greedy text of so small a target repeats itself
        by_pair, by_rival = {}, {}
        for kind in ("verse", "code"):
            prompts = held_out_prompts(kinds[kind], 24)
            texts = texts_of(target, prompts, Sampler(temperature), 128)
            for known, heads in ((by_pair, pair), (by_rival, [rival, rival])):
                known[kind] = [propose_everywhere(target, drafters(heads), text, len(prompts[0]))
                               for text in texts]
        by_pair["mixed"], by_rival["mixed"] = (sum(k.values(), []) for k in (by_pair, by_rival))
        print(f"\ntemperature {temperature:g}; head 1 has learned verse, head 2 code\n")
        print_routers(by_pair)
        print("one head that has learned both, in as many steps as the two together: " + ", ".join(
            f"{kind} {taus(known)['head 1 alone']:.2f}" for kind, known in by_rival.items()))


if __name__ == "__main__":
    cli.run(main)
