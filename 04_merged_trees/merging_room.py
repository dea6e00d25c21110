"""Chapter 04's room; and the contest of chapters 03 and 04 where two heads do differ: a target that
has read verse and code, a head for each of them, one for both.

    python 04_merged_trees/merging_room.py --save nanogpt/measured/second/verse_and_code.json

All methods have equally many draft rows. The walk emits the target's own draws, so one plain text
serves all of them: it is decoded again with each, see nanogpt/bench.py. No clock is read.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))  # so that a plain clone runs, too

import json
from collections import defaultdict
from importlib import import_module

from nanogpt import cli
from dual_draft_routing import (  # chapter 03
    BothHeads,
    HeadDrafter,
    HeadLevels,
    RecordLevels,
    RoutedLevels,
    colder,
    confidence,
    drafters,
    mean_confidence,
    route,
)
from merged_trees import (
    MergedDrafter,
    TrieDrafter,
    accept_paths,
    draw_in_both_keep_longer,
    path_matrix,
    trie_merge,
)
from merging_grow import grow_merged, grow_trie
from nanogpt.bench import (
    Proposal,
    agreement,
    by_record,
    calibration,
    gain,
    in_pieces,
    ratio_error,
    rounds_of,
    tau,
    trees_everywhere,
)
from nanogpt.chapter import Loop
from nanogpt.checkpoint import write_whole
from nanogpt.data import held_out_prompts, untouched_prompts
from nanogpt.decoding import collect, plain_decode
from nanogpt.exact.enumeration import (
    loop_distribution,
    outcomes,
    target_distribution,
    total_variation,
)
from nanogpt.exact.slips import replaced, slips
from nanogpt.exact.toy_models import ToyHead, ToyModel, ToyTarget
from nanogpt.sampling import Dice, Sampler
from train_heads import get_kinds  # chapter 03
from tree_attention import TreeDrafter, multi_round, speculate, walk  # chapter 02

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


def accepted(trees, scores, future, kind, n, honest=None):
    """{method: accepted drafts, mean confidence} of n draft rows, if `future` comes next.

    trees, scores: of a head for verse, one for code, one for both; kind: 0 in verse, 1 in code;
    honest: of `honesty`; with them, what a head says is first multiplied by what it gets for it on
    other texts, of all kinds or of this one.
    """
    def best(scores, *heads, budget=n):
        tree, logs = trie_merge([trees[h] for h in heads], [scores[h] for h in heads], budget)
        return agreement(tree, future), mean_confidence(logs)

    def routed(ratios):
        return alone[route([mean * x for (_, mean), x in zip(alone[:2], ratios, strict=True)])]

    alone = [best(scores, head) for head in range(3)]
    found = {"verse head": alone[0],  # the two first, for by_record
             "code head": alone[1],
             "prompt's own head": alone[kind],
             "the other head": alone[1 - kind],
             "trained on both": alone[2],
             # Every path lies in one of the trees: the union reaches as far as the better one.
             "side by side": max(best(scores, head, budget=n // 2) for head in (0, 1)),
             "routed": routed([1, 1]),
             "trie in turns": best([in_turn(logs) for logs in scores], 0, 1),
             "trie": best(scores, 0, 1),
             "oracle": max(alone[:2])}
    if honest:
        found["routed, honest"] = routed(honest[None])
        found["routed, honest in its kind"] = routed(honest[kind])
    return found


def positions(target, kinds, heads, sampler, most, prompts_of, count=24):
    """`count` plain texts of each kind, 128 tokens behind their prompts, and what each head would
    draft below each token: yields kind, number of the text, root, trees, scores, what comes next.

    kinds, heads: see get_kinds; most: draft rows of a tree; prompts_of: see nanogpt/data.py.
    """
    drafter = BothHeads([HeadDrafter(head, budget=most) for head in heads.values()])
    for kind, name in enumerate(("verse", "code")):
        for i, prompt in enumerate(prompts_of(kinds[name], count)):
            text = prompt + collect(plain_decode(target, prompt, sampler, Dice(i)), 128).tokens
            for root, trees, scores in trees_everywhere(target, drafter, text, len(prompt)):
                yield kind, i, root, trees, scores, text[root + 1:]


def honesty(budgets, places):
    """{n: gets over says}, see bench.calibration. places: of `positions`, on other prompts."""
    opinions = {n: [] for n in budgets}
    for kind, _, _, trees, scores, future in places:
        for n in budgets:
            cut = [trie_merge([trees[h]], [scores[h]], n) for h in (0, 1)]
            opinions[n].append((kind, [(agreement(tree, future), sum(confidence(logs)))
                                       for tree, logs in cut]))
    return {n: calibration(seen) for n, seen in opinions.items()}


RECORDS = {"its record": None, "its last 8 rounds": 8, "its last 2 rounds": 2}  # see by_record


def everywhere(budgets, places, honest=None):
    """-> the methods' names, and what each accepts below every token: {n: {(kind, number of the
    text): {position: Proposal}}}, its entries in the order of the names. places: of `positions`."""
    known = {n: defaultdict(dict) for n in budgets}
    for kind, i, root, trees, scores, future in places:
        for n in budgets:
            found = accepted(trees, scores, future, kind, n, honest and honest[n])
            known[n][kind, i][root] = Proposal(*zip(*found.values(), strict=True), kind)
    return list(found), known


def written(names, texts):
    """Each text, written with each method -> {method: rounds of every text}. texts: a list of
    {position: Proposal}."""
    return {name: [rounds_of({root: step.lengths[i] for root, step in text.items()})
                   for text in texts] for i, name in enumerate(names)} | {
        name: [by_record(text, last) for text in texts] for name, last in RECORDS.items()}


def replayed(budgets, places, honest=None):
    """The same texts, written with each method -> {n: {method: rounds of every text}}."""
    names, known = everywhere(budgets, places, honest)
    return {n: written(names, list(texts.values())) for n, texts in known.items()}


SHOWN = {  # the lesson's table: {row: its method}
    "the surer head": "routed", **{name: name for name in (
        *RECORDS, "side by side", "trie in turns", "trie")},
    "prompt's own head": "prompt's own head", "one head for both": "trained on both",
    "the oracle": "oracle"}
PIECE = 32  # tokens of one kind, in a text that changes between both


def row_for_row(target, kinds, heads, sampler, budgets):
    """24 texts of each kind -> {column: {method: rounds of every text}}: a column for each budget,
    and one for the largest on texts whose kind changes."""
    names, known = everywhere(budgets, positions(target, kinds, heads, sampler, max(budgets),
                                                 held_out_prompts))
    found = {f"{n} rows": written(names, list(texts.values())) for n, texts in known.items()}
    texts = known[max(budgets)]
    return found | {f"{max(budgets)} rows, changing": written(names, [
        in_pieces([texts[0, i], texts[1, i]], PIECE) for i in range(len(texts) // 2)])}


def print_rows(found):
    """The lesson's table: tau of each method, and how far it is ahead of the trie. found: of
    row_for_row."""
    def cells(methods, name):
        ahead = gain(methods[name], methods["trie"])
        return (f"{tau(methods[name]):.2f}",
                "" if name == "trie" else "{:+.1%} \u00b1 {:.1%}".format(*ahead))

    cli.print_table(
        ["tokens a round", *(title for column in found for title in (column, "over the trie"))],
        [[row, *(cell for methods in found.values() for cell in cells(methods, name))]
         for row, name in SHOWN.items()])


# ---------------------------------------------------------------- the contest of 03 and 04


def drawn(target, kinds, heads, sampler, count, k=4):
    """Chains of k that are drawn, of one head: no replay, for here drafts make the text -> {method:
    rounds of every text}."""
    verse, code, both = heads.values()
    found = defaultdict(list)
    for kind, name in enumerate(("verse", "code")):
        methods = {"prompt's own head": lambda kind=kind: HeadLevels((verse, code)[kind]),
                   "the other head": lambda kind=kind: HeadLevels((code, verse)[kind]),
                   "trained on both": lambda: HeadLevels(both),
                   "routed before the draws": lambda: RoutedLevels([verse, code]),
                   "its record before the draws": lambda: RecordLevels([verse, code])}
        for i, prompt in enumerate(untouched_prompts(kinds[name], count)):
            for method in methods:
                dice = Dice(i)
                drafter = TreeDrafter(methods[method](), (1,) * k, sampler, dice)
                steps = speculate(target, drafter, prompt, sampler, dice, multi_round)
                found[method].append(collect(steps, 128).accepted)
    return found


def second_contest(target, kinds, heads, temperatures, budgets, count):
    """Everything about two heads that differ, ready for JSON -> {temperature: {rows or "drawn":
    {method: [accepted drafts, rounds] of every text}, "ratios": ..}}."""
    found = {}
    for T in temperatures:
        sampler, most = Sampler(T), max(budgets)
        # Ratios from prompts on which budgets were chosen; methods on those that nobody has seen.
        honest = honesty(budgets, positions(target, kinds, heads, sampler, most, held_out_prompts,
                                            count))
        rows = replayed(budgets, positions(target, kinds, heads, sampler, most, untouched_prompts,
                                           count), honest)
        rows["drawn"] = drawn(target, kinds, heads, sampler, count)
        found[f"{T:g}"] = {str(n): {method: [[sum(text), len(text)] for text in texts]
                                    for method, texts in methods.items()}
                           for n, methods in rows.items()} | {
            "ratios": {str(n): {("verse", "code", "all")[2 if kind is None else kind]: ratio
                                for kind, ratio in kinds_of.items()}
                       for n, kinds_of in honest.items()}}
    return found


def rounds_again(texts):
    """[accepted drafts, rounds] of each text -> rounds for bench.tau and bench.gain, which ask for
    their sum and their number only."""
    return [[total] + [0] * (n - 1) for total, n in texts]


def print_second(found):
    """A table for each temperature: tau of every method, and how much more than routing it has.

    found: of second_contest.
    """
    for T, tables in found.items():
        for rows, methods in tables.items():
            if rows == "ratios":
                continue
            taus = {name: rounds_again(texts) for name, texts in methods.items()}
            routed = "routed before the draws" if rows == "drawn" else "routed"
            print(f"\ntemperature {T}, " + ("drawn chains of 4" if rows == "drawn" else
                                            f"{rows} draft rows"))
            cli.print_table(["method", "tau", "+-", f"over {routed}"], [
                [name, f"{tau(rounds):.2f}",
                 f"{ratio_error(*zip(*methods[name], strict=True)):.2f}",
                 "" if name == routed else "{:+.1%} +- {:.1%}".format(*gain(rounds, taus[routed]))]
                for name, rounds in sorted(taus.items(), key=lambda item: -tau(item[1]))])
        for rows, ratios in tables["ratios"].items():
            print(f"\n{rows} rows, gets over says: " + "; ".join(
                f"{kind}: verse head {verse:.2f}, code head {code:.2f}"
                for kind, (verse, code) in ratios.items()))


def main(argv=None):
    p = cli.parser("Two heads that differ: who drafts best, row for row?")
    p.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.5, 1.0])
    p.add_argument("--budgets", type=int, nargs="+", default=[8, 16], help="draft rows")
    p.add_argument("--prompts", type=int, default=24, help="texts of each kind")
    p.add_argument("--save", type=Path, help="a JSON file for what was found")
    args = p.parse_args(argv)
    if args.prompts < 2 or min(args.budgets) < 2:
        raise ValueError(f"prompts is {args.prompts} and budgets {args.budgets}; each must be at "
                         "least 2")
    for T in args.temperatures:
        Sampler(T)  # raises ValueError for a negative one
    if args.save:
        cli.writable(args.save)
    _, device = cli.setup(args)
    kinds, target, heads = get_kinds(device, args.retrain)
    found = second_contest(target, kinds, heads, args.temperatures, args.budgets, args.prompts)
    print_second(found)
    if args.save:
        text = json.dumps(found, separators=(",", ":")).replace(']],"', ']],\n"')
        write_whole(args.save, f"{text}\n".encode())


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
    """-> total variation to plain decoding; the mean tokens and rows of a round; all exact.

    make(pair) -> a drafter of two toy heads with 3 draft nodes each.
    """
    model, sampler, start = ToyModel(5, vocab=3), Sampler(temperature), [0, 1]
    drafter = make([HeadDrafter(ToyHead(seed), depth=2, top_k=2, budget=3) for seed in (8, 9)])

    def loop(dice):
        return speculate(ToyTarget(model), drafter, start, sampler, dice, accept)

    def one_round(dice):
        steps = loop(dice)
        next(steps)  # the prefill
        step = next(steps)
        return len(step.tokens), len(step.detail.tree)

    emitted = loop_distribution(loop, model, sampler, start, rounds=1, length=4)
    return (total_variation(emitted, target_distribution(model, sampler, start, 4)),
            *(sum(probability * found[i] for found, probability in outcomes(one_round))
              for i in range(2)))


VERSIONS = {
    "the trie": (lambda pair: TrieDrafter(pair, 6), walk),
    "one draw": (MergedDrafter, accept_paths),
    "first copy": (MergedDrafter, walk),
    "two draws": (MergedDrafter, draw_in_both_keep_longer(3)),
}


def print_versions(*names):
    """Right loops and the trap: how far off, how many rows and tokens a round. names: of VERSIONS,
    default all."""
    table = []
    for name in names or VERSIONS:
        version = VERSIONS[name]
        (greedy, *_), (sampled, tokens, rows) = judge(*version, 0), judge(*version, 1)
        table.append([name, *(f"{bias:.2f}" if bias > 1e-9 else "0" for bias in (greedy, sampled)),
                      f"{rows:.2f}", f"{tokens:.2f}"])
    cli.print_table(["version", "variation, T=0", "T=1", "rows", "tokens"], table)


if __name__ == "__main__":
    cli.run(main)
