"""Chapter 04's room: its loops; and all ways to use two heads row for row, on chapter 03's target
that has read verse and code, with a head for each of them and one for both.

    python 04_merged_trees/merging_room.py      # the tables of RESULTS.md, at two temperatures
    python 04_merged_trees/merging_room.py --taught     # with heads that were taught to doubt

The walk emits the target's own draws, so one plain text serves all methods: it is decoded again
with each, see nanogpt/bench.py. No clock is read.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))  # so that a plain clone runs, too

import math
from collections import defaultdict
from dataclasses import dataclass
from importlib import import_module

import torch

from nanogpt import cli
from chain_specdec import acceptance_probability, residual  # chapter 01
from dual_draft_routing import (  # chapter 03
    BothHeads,
    HeadDrafter,
    by_letters,
    by_record,
    colder,
    confidence,
    drafters,
    mean_confidence,
    odds_of,
    route,
    votes,
)
from merged_trees import (
    MergedDrafter,
    TrieDrafter,
    accept_paths,
    draw_in_both_keep_longer,
    path_matrix,
    prefixes,
    trie_merge,
)
from merging_grow import grow_merged, grow_trie
from nanogpt.bench import (
    Proposal,
    agreement,
    gain,
    in_pieces,
    plain_texts,
    rounds_of,
    tau,
    trees_everywhere,
)
from nanogpt.chapter import Loop
from nanogpt.data import held_out_prompts
from nanogpt.exact.slips import replaced, slips
from nanogpt.exact.toy_models import ToyHead, loop_bias
from nanogpt.sampling import Sampler
from train_heads import get_kinds  # chapter 03
from tree_attention import speculate, walk  # chapter 02

# A row for each prefix (the trie), or the second tree behind the first (side by side).
LOOPS = [
    Loop("trie of both heads, {} nodes", lambda m, n, sampler, dice:
         TrieDrafter(drafters(m.heads, n), n), speculate, walk,
         budgets=(8, 16), contest=(4, 8, 16, 32), family="two heads", proof=(2, 4),
         grow=grow_trie),
    Loop("trie of both heads, deep, {} nodes", lambda m, n, sampler, dice: TrieDrafter(
        drafters([colder(head, sampler.temperature) for head in m.heads], n, depth=12), n),
         speculate, walk, budgets=(8,), contest=(4, 8, 12, 16, 20, 24, 32), family="two heads",
         proof=(2, 4)),
    Loop("both heads side by side, {} nodes", lambda m, n, sampler, dice:
         MergedDrafter(drafters(m.heads, n // 2)), speculate, accept_paths,
         budgets=(8, 16), contest=(4, 8, 16, 32), family="two heads", proof=(6,),
         grow=grow_merged),
]


# ---------------------------------------------------------------- row for row, on verse and code


def in_turn(scores):
    """Scores of which only their order is left: 0 for the best node, -1 for the next, and so on."""
    order = sorted(scores, reverse=True)
    return [-order.index(score) for score in scores]


def accepted(trees, scores, future, kind, n):
    """{method: accepted drafts, mean confidence} of n draft rows, if `future` comes next.

    trees, scores: of a head for verse, one for code, one for both; kind: 0 in verse, 1 in code.
    """
    def best(scores, *heads, budget=n):
        tree, logs = trie_merge([trees[h] for h in heads], [scores[h] for h in heads], budget)
        return agreement(tree, future), mean_confidence(logs)

    alone = [best(scores, head) for head in range(3)]
    surest = sorted((-score, head) for head in (0, 1) for score in scores[head][1:])[:n]
    return {"verse head": alone[0],  # the two first, for by_record
            "code head": alone[1],
            "prompt's own head": alone[kind],
            "one head for both": alone[2],
            # Every path lies in one of the trees: the union reaches as far as the better one. A
            # guess of both heads has two rows here, and in the surest of both.
            "side by side": max(best(scores, head, budget=n // 2) for head in (0, 1)),
            "surest of both": max(best(scores, head, budget=[h for _, h in surest].count(head))
                                  for head in (0, 1)),
            "the surer head": alone[route([mean for _, mean in alone[:2]])],
            "trie in turns": best([in_turn(logs) for logs in scores], 0, 1),
            "trie": best(scores, 0, 1),
            "the oracle": max(alone[:2])}


WIDTH = 6  # children a node in these experiments


def positions(target, kinds, heads, sampler, most, count=24):
    """`count` plain texts of each kind, 128 tokens behind their prompts, and what each head would
    draft below each token: yields kind, number of the text, root, trees, scores, the text, the two
    first heads' votes of it.

    kinds, heads: see get_kinds; most: draft rows of a tree.
    """
    # With three children a node, 32 rows are too many for one head's tree, and the union would win
    # by its width alone.
    drafter = BothHeads([HeadDrafter(head, top_k=WIDTH, budget=most) for head in heads.values()])
    for kind, name in enumerate(("verse", "code")):
        prompts = held_out_prompts(kinds[name], count)
        for i, text in enumerate(plain_texts(target, prompts, sampler)):
            vote = votes(target, list(heads.values())[:2], text)
            for root, trees, scores in trees_everywhere(target, drafter, text, len(prompts[0])):
                yield kind, i, root, trees, scores, text, vote


@dataclass
class Drafted(Proposal):
    """A Proposal that keeps the two heads' trees and scores."""

    trees: list = ()
    scores: list = ()


def everywhere(budgets, places):
    """-> the methods' names, and what each accepts below every token: {n: {(kind, number of the
    text): {position: Drafted}}}, its entries in the order of the names. places: of `positions`."""
    known = {n: defaultdict(dict) for n in budgets}
    for kind, i, root, trees, scores, text, vote in places:
        for n in budgets:
            found = accepted(trees, scores, text[root + 1:], kind, n)
            known[n][kind, i][root] = Drafted(
                *zip(*found.values(), strict=True), kind, future=text[root + 1:],
                vote=vote[root], before=vote[:root], trees=trees[:2], scores=scores[:2])
    return list(found), known


def weigh(trees, scores, weights):
    """Scores of the weighted mean of two heads' confidences; who did not guess a prefix gives it 0.

    weights: one for each head, that sum to 1 -> a list for each tree, as `scores`.
    """
    paths, mixed = [prefixes(tree) for tree in trees], defaultdict(float)
    for own, logs, weight in zip(paths, scores, weights, strict=True):
        for path, c in zip(own[1:], confidence(logs), strict=True):
            mixed[path] += weight * c
    # Not above the root's, whatever rounding does: a child's score is never above its parent's.
    return [[0.0, *(min(0.0, math.log(mixed[path])) for path in own[1:])] for own in paths]


def by_weight(steps, n, odds):
    """Decode a text again -> the accepted drafts of every round, with tries of n rows in which a
    head weighs as much as the chance that the text is of its kind. steps: {position: Drafted};
    odds: {position: log odds of the first head's kind}."""
    lengths = {}
    for root, step in steps.items():
        verse = 1 / (1 + math.exp(-odds[root]))
        scores = weigh(step.trees, step.scores, (verse, 1 - verse))
        lengths[root] = agreement(trie_merge(step.trees, scores, n)[0], step.future)
    return rounds_of(lengths)


def written(names, texts, n):
    """Each text, written with each method of n rows -> {method: rounds of every text}. texts: a
    list of {position: Drafted}."""
    return {name: [rounds_of({root: step.lengths[i] for root, step in text.items()})
                   for text in texts] for i, name in enumerate(names)} | {
        "its record": [by_record(text) for text in texts],
        "the letters": [by_letters(text) for text in texts],
        "trie by letters": [by_weight(text, n, odds_of(text)) for text in texts]}


PIECE = 32  # tokens of one kind, in a text that changes between both
KEPT, CHANGING = "The kind stays", f"The kind changes every {PIECE} tokens"


def row_for_row(target, kinds, heads, sampler, budgets, count=24):
    """`count` texts of each kind -> {KEPT or CHANGING: {n: {method: rounds of every text}}}."""
    names, known = everywhere(budgets, positions(target, kinds, heads, sampler, max(budgets),
                                                 count))
    found = {KEPT: {}, CHANGING: {}}
    for n, texts in known.items():
        found[KEPT][n] = written(names, list(texts.values()), n)
        found[CHANGING][n] = written(names, [in_pieces([texts[0, i], texts[1, i]], PIECE)
                                             for i in range(count)], n)
    return found


# With what the trie is compared.
RIVALS = ("the surer head", "its record", "the letters", "side by side", "trie in turns",
          "trie by letters", "prompt's own head", "one head for both")


def print_rows(found, budgets):
    """How far the trie is ahead of each rival. found: of row_for_row."""
    cli.print_table(
        ["the trie writes more than", *(f"{n} rows" + (kind == CHANGING) * ", changing"
                                        for kind in found for n in budgets)],
        [[name, *("{:+.1%} \u00b1 {:.1%}".format(*gain(tables[n]["trie"], tables[n][name],
                                                     1 + (kind == KEPT)))
                  for kind, tables in found.items() for n in budgets)] for name in RIVALS])


def main(argv=None):
    p = cli.parser("Two heads that differ: who drafts best, row for row?", corpus=False)
    p.add_argument("--budgets", type=int, nargs="+", default=[4, 8, 16, 32], help="draft rows")
    p.add_argument("--prompts", type=int, default=24, help="texts of each kind, at least 2")
    p.add_argument("--taught", action="store_true", help="heads that were taught to doubt")
    args = p.parse_args(argv)
    if args.prompts < 2 or min(args.budgets) < 2:
        raise ValueError(f"prompts is {args.prompts} and budgets {args.budgets}; each must be at "
                         "least 2")
    _, device = cli.setup(args)
    kinds, target, heads = get_kinds(device, args.retrain, args.taught)
    for T in (0.5, 1.0):
        found = row_for_row(target, kinds, heads, Sampler(T), args.budgets, args.prompts)
        for kind, tables in found.items():
            print(f"\ntemperature {T}, {kind}")
            cli.print_table(["tokens a round", *(f"{n} rows" for n in tables)], [
                [name, *(f"{tau(methods[name]):.2f}" for methods in tables.values())]
                for name in next(iter(tables.values()))])
        print()
        print_rows(found, args.budgets)


# ---------------------------------------------------------------- what goes wrong

def each_path_draws(tree, target_probs, dice):
    """The trap of the chapter, path by path: the longest is kept."""
    results = []
    for path in path_matrix(tree):
        alone = path[path >= 0][None]
        with replaced(import_module("merged_trees"), path_matrix=lambda _, alone=alone: alone):
            results.append(accept_paths(tree, target_probs, dice))
    return max(results, key=lambda result: len(result[0]))


WRONG = {
    "trie_merge": slips(trie_merge, {
        "the root takes a place of the budget": ("1 + budget", "budget"),
        "of two equal prefixes the first head's score is kept": (
            "max(score, best.get(prefix, score))", "best.get(prefix, score)"),
        "of two equal prefixes the last head's score is kept": (
            "max(score, best.get(prefix, score))", "score"),
        "the scores of two equal prefixes are added": (
            "max(score, best.get(prefix, score))", "score + best.get(prefix, 0.0)"),
    }),
    "accept_paths": slips(accept_paths, {
        "only the first matching child is followed": walk,
        "each subtree draws for itself, and the longer path is kept": draw_in_both_keep_longer(3),
        "each path draws for itself, and the longest is kept: a guess in both trees gets a second "
        "chance (section 1 of the lesson)": each_path_draws,
        "-1 is taken for a row, so a path that has ended goes on in the last one": (
            "(alive >= 0) & (tree.tokens[alive.clamp(min=0)] == token)",
            "(tree.tokens[alive] == token) & (depth < paths.shape[1])"),
        "the path does not start with the root": ("paths[0, :depth]", "paths[0, 1:depth]"),
    }),
}
HARMLESS = {  # the proofs cannot see them, and here is why
    "the root takes a place of the budget": "a smaller tree",
    "only the first matching child is followed": "the walk: a shorter path, from the same draws",
}


def judge(make, accept, temperature):
    """-> total variation to plain decoding, exact.

    make(pair) -> a drafter of two toy heads with 3 draft nodes each.
    """
    sampler = Sampler(temperature)
    drafter = make([HeadDrafter(ToyHead(seed), depth=2, top_k=2, budget=3) for seed in (8, 9)])
    return loop_bias(lambda target, dice: speculate(target, drafter, [0, 1], sampler, dice, accept),
                     sampler)


def waste(tree, target_probs, dice):
    """The walk, and as right: one die a round is thrown, and nobody looks at it."""
    dice.draw(target_probs[0])
    return walk(tree, target_probs, dice)


VERSIONS = {
    "the trie": (lambda pair: TrieDrafter(pair, 6), walk),
    "one draw": (MergedDrafter, accept_paths),
    "two draws": (MergedDrafter, draw_in_both_keep_longer(3)),
    "the trie, a die wasted": (lambda pair: TrieDrafter(pair, 6), waste),
}


def judged(p, q, heads=1, forget=False):
    """A sampler for the lesson's test: each head draws a guess from q, and chapter 01's rule judges
    one after the other. forget: a rejected token leaves q, as in chapter 02; but head 2 drew
    without knowing of it."""
    def sampler(dice, *_):
        owed, told = p, q
        for guess in [dice.draw(q) for _ in range(heads)]:
            if told[guess] and dice.flip(acceptance_probability(owed, told, guess)):
                return guess
            owed = residual(owed, told)
            if forget:
                told = told.index_fill(0, torch.tensor(guess), 0)
                told = told / told.sum()
        return dice.draw(owed)

    return sampler


def print_versions():
    """Right loops and the trap: how far off."""
    for name, version in VERSIONS.items():
        off = (judge(*version, T) for T in (0, 1))
        print(name.ljust(22), "   ".join(f"T = {T}: off by {bias if bias > 1e-9 else 0:.2g}"
                                         for T, bias in enumerate(off)))


if __name__ == "__main__":
    cli.run(main)
