"""Does it pay? Every chapter's decoders in one run, on the same prompts with the same seeds.

    python -m nanogpt.does_it_pay                                        # the tables
    python -m nanogpt.does_it_pay --save nanogpt/measured/my-machine.json

What was saved in nanogpt/measured stands in the closing lesson beside what it measures itself.
"""

import json
from importlib import import_module
from pathlib import Path

from nanogpt import cli
from nanogpt.bench import (
    PLAIN,
    cost_curve,
    ms_per_token,
    paired,
    print_tables,
    summarize,
)
from nanogpt.data import held_out_prompts
from nanogpt.device import device_name
from nanogpt.packing import for_decoding, precision_of
from nanogpt.sampling import Sampler
from nanogpt.train import get_gpt

MEASURED = Path(__file__).parent / "measured"

# ---------------------------------------------------------------- the decoders


def small_gpt(target, small, sampler):
    """{method and rule: start(prompt, seed)}: plain decoding, and chapter 01's chain of 4."""
    draft = import_module("chain_specdec").GPTDraft(small)
    chains = import_module("01_chain_specdec.bench").registry(target, {"57K": draft}, (4,), sampler)
    return {PLAIN: chains[PLAIN], "01 chain of 4, p/q": chains["57K, K=4"]}


def load_decoders(dataset, device, size="baby", precision="auto"):
    """-> the target and registry(sampler) -> {chapter, method and rule: start(prompt, seed)}, plain
    decoding first.

    What needs drafts that are drawn is left out at temperature 0: there it would be a chain.
    """
    # No chapter is imported before it is asked for: the stage stands without them.
    tree, routed, merged, ddtree, layers = (import_module(f"{name}.bench") for name in (
        "02_tree_attention", "03_dual_draft_routing", "04_merged_trees", "05_ddtree",
        "06_layer_verification"))
    trees, train_heads, train_drafter = (import_module(name) for name in (
        "tree_attention", "train_heads", "train_drafter"))
    config = import_module("block_diffusion").BlockConfig
    trained = get_gpt(size, dataset, device)
    pair = train_heads.get_heads(trained, dataset, device)
    drafter = train_drafter.get_drafter(trained, dataset, config.reading(trained), device)
    target = for_decoding(trained, precision)
    small = for_decoding(get_gpt("draft", dataset, device), precision)
    heads = train_heads.heads_for_decoding(pair, target)
    block = train_drafter.drafter_for_decoding(drafter, target)
    price = ddtree.measured_price(target, block, held_out_prompts(dataset, 1)[0])

    def registry(sampler):
        starts = small_gpt(target, small, sampler)
        starts["02 tree 2-2-1-1, walk or multi-round"] = tree.registry(
            target, {"57K": trees.TreeGPT(small)},  # its own: the methods take turns
            sampler, trees.multi_round if sampler.temperature > 0 else trees.walk,
            [(2, 2, 1, 1)])["57K, tree 2-2-1-1"]
        starts["03 routed heads, 8 nodes, walk"] = routed.registry(
            target, heads, sampler, 8)["routed"]
        starts["04 trie of both heads, 16 nodes, walk"] = merged.registry(
            target, heads, sampler, 8)["trie-merged, 16"]
        blocks = ddtree.registry(target, block, sampler, (), (15,), price)
        starts |= {f"05 {name}{rule}": blocks[name] for name, rule in (
            (ddtree.conditional_name(15), ", walk"), (ddtree.PRICED, ", walk"), (ddtree.DRAWN, ""))
            if name in blocks}
        if sampler.temperature > 0:
            starts["06 two drawn chains of 4, LV + K-SEQ"] = layers.registry(
                target, trees.TreeGPT(small), sampler,
                Sampler(sampler.temperature, top_k=20), "multi-chain", 2, 4)["LV + K-SEQ"]
        return starts

    return target, registry


# ---------------------------------------------------------------- numbers that can be kept


def measured(target, tables):
    """What a run found, ready for JSON: c(N), and for each method tau, the milliseconds a
    token of each text, and those of an average round, by verb.

    tables: {temperature: results of nanogpt.bench.compare}, two prompts or more.
    """
    return {"machine": device_name(target.device), "precision": precision_of(target),
            "curve": list(cost_curve(target).items()),  # [N, ms]
            "tables": {f"T = {T:g}": {name: {
                "tau": line["tau"], "round_ms": line["ms_per_step"], "verb_ms": line["verb_ms"],
                "ms_per_token": ms_per_token(runs),
            } for name, runs in results.items() for line in [summarize(runs)]}
                for T, results in tables.items()}}


def load_measured(folder=MEASURED):
    """{name of the file: what `measured` found on that machine}."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8"))
            for path in sorted(folder.glob("*.json"))}


def worth(table):
    """{method: its tau, the price of its round in plain steps, their quotient, the speed-up}.

    table: a temperature's, of `measured`. Example: 3 tokens a round at a price of 1.5: 2x.
    """
    step = table[PLAIN]["round_ms"]
    return {name: (line["tau"], line["round_ms"] / step, line["tau"] * step / line["round_ms"])
            for name, line in table.items()}


def behind(table, best):
    """{method: milliseconds a token more than `best`, text by text, and two standard errors}."""
    return {name: paired(line["ms_per_token"], table[best]["ms_per_token"])
            for name, line in table.items()}


def one_graph(table):
    """The methods whose round is one CUDA graph: their time of verify holds the drafting, too."""
    return [name for name, line in table.items() if name != PLAIN
            and 10 * line["verb_ms"]["draft"] < line["verb_ms"]["verify"]]


def fastest(table, among=()):
    """The fastest method, and those level with it: their difference, text by text, is within its
    two standard errors. among: names; default all methods and plain decoding."""
    fast = {name: line[2] for name, line in worth(table).items() if name in (among or table)}
    best = max(fast, key=fast.get)
    level = [name for name, (more, error) in behind(table, best).items()
             if name in fast and name != best and more <= error]
    return best, level


def markdown(columns, T):
    """A table at temperature T: tau, and for every machine the speed-up and how far a method is
    behind the best, which is bold. A star: one_graph, compared only with each other.

    columns: {machine: of `measured`}.
    """
    tables = {machine: found["tables"][f"T = {T:g}"] for machine, found in columns.items()}
    first = next(iter(tables.values()))
    lines = {name: [name.rsplit(", ", 1)[0], f"{first[name]['tau']:.2f}"] for name in first}
    head = ["method", "tau"]
    for machine, table in tables.items():
        fast, stars = worth(table), one_graph(table)
        head += [machine, "ms behind"]
        for kind, star in ((stars, "\\*"), (table.keys() - stars, "")):
            best = fastest(table, kind)[0]
            more = behind(table, best)
            for name in kind:
                said = f"{fast[name][2]:.2f}x"
                lines[name] += ([f"**{said}**{star}", ""] if name == best else
                                [said + star, "{:.2f} \u00b1 {:.2f}".format(*more[name])])
    return "\n".join(f"| {' | '.join(cells)} |"
                     for cells in (head, ["---"] * len(head), *lines.values()))


# ---------------------------------------------------------------- the command line


def main(argv=None):
    p = cli.parser(__doc__.splitlines()[0])
    cli.target_flags(p)
    p.add_argument("--max-new-tokens", type=int, default=128, help="per prompt")
    p.add_argument("--prompts", type=int, default=6, help="how many held-out prompts")
    p.add_argument("--save", type=Path, help="write what was measured into this JSON file")
    args = p.parse_args(argv)
    if min(args.prompts, args.max_new_tokens) < 2:
        raise ValueError(f"prompts is {args.prompts} and max_new_tokens {args.max_new_tokens}; "
                         "both must be at least 2, for an error needs two texts")
    if args.save:
        cli.make_folder(args.save.parent)
    dataset, device = cli.setup(args)
    target, registry = load_decoders(dataset, device, args.size, args.precision)
    tables = print_tables(args, target, held_out_prompts(dataset, args.prompts),
                          [Sampler(T) for T in (0, 1)], registry)
    if args.save:
        text = json.dumps(measured(target, tables), indent=1)
        args.save.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    cli.run(main)
