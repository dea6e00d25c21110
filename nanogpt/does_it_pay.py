"""Does it pay? Every chapter's decoders in one run, on the same prompts with the same seeds.

    python -m nanogpt.does_it_pay                                        # the tables
    python -m nanogpt.does_it_pay --save nanogpt/measured/my-machine.json
    python -m nanogpt.does_it_pay --markdown      # the tables of what was saved

What was saved in nanogpt/measured stands in the closing lesson beside what it measures itself.
"""

import json
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from nanogpt import cli
from nanogpt.bench import (
    PLAIN,
    print_tables,
    speedup,
    speedups,
    summarize,
    tau_uncertainty,
    two_standard_errors,
)
from nanogpt.clock import cost_curve
from nanogpt.data import held_out_prompts
from nanogpt.device import device_name
from nanogpt.packing import for_decoding, precision_of
from nanogpt.sampling import Sampler
from nanogpt.train import get_gpt

MEASURED = Path(__file__).parent / "measured"
TEMPERATURES = (0, 1)

# ---------------------------------------------------------------- the decoders


@dataclass
class Models:
    """The 10.7M target and all that drafts for it, as copies for decoding."""

    target: object
    small: object  # the 57K GPT
    heads: list  # of chapter 03
    block: object  # the block drafter of chapter 05
    price: tuple  # of a round on this machine, for DDTree by price


def load_models(dataset, device, size="baby", precision="auto", eager=False):
    """-> Models. eager: on a GPU, without graphs.py: each kernel is launched by itself."""
    # No chapter is imported before it is asked for: the stage stands without them.
    heads, blocks = import_module("train_heads"), import_module("train_drafter")
    config = import_module("block_diffusion").BlockConfig
    trained = get_gpt(size, dataset, device)
    pair = heads.get_heads(trained, dataset, device)
    drafter = blocks.get_drafter(trained, dataset, config.reading(trained), device)
    target = for_decoding(trained, precision)
    small = for_decoding(get_gpt("draft", dataset, device), precision)
    block = blocks.drafter_for_decoding(drafter, target)
    if eager:
        for model in (target, small, block):
            vars(model).pop("forward", None)  # a captured model's own; its class's is eager
    ddtree, prompt = import_module("05_ddtree.bench"), held_out_prompts(dataset, 1)[0]
    price = ddtree.measured_price(target, block, prompt)
    return Models(target, small, heads.heads_for_decoding(pair, target), block, price)


def small_gpt(target, small, sampler, shapes, ks=(4,)):
    """{chapter, method and rule: start(prompt, seed)}, plain decoding first; the small GPT drafts.

    shapes: branchings of chapter 02's trees; ks: lengths of chapter 01's chains.
    """
    chain, tree = (import_module(f"{name}.bench")
                   for name in ("01_chain_specdec", "02_tree_attention"))
    trees, draft = import_module("tree_attention"), import_module("chain_specdec").GPTDraft(small)
    chains = chain.registry(target, {"57K": draft}, ks, sampler)
    starts = {PLAIN: chains[PLAIN]} | {
        f"01 chain of {k}, p/q": chains[f"57K, K={k}"] for k in ks}
    for shape in shapes:
        name = tree.shape_name(shape)
        starts[f"02 {name}, walk or multi-round"] = tree.registry(
            target, trees.TreeGPT(small),  # one for each decoder, for they take turns
            sampler, trees.multi_round if sampler.temperature > 0 else trees.walk, [shape])[name]
    return starts


def registry(models, sampler):
    """{chapter, method and rule: start(prompt, seed)}, plain decoding first.

    What needs drafts that are drawn is left out at temperature 0: there it would be a chain.
    """
    routed, merged, ddtree, layers = (import_module(f"{name}.bench") for name in (
        "03_dual_draft_routing", "04_merged_trees", "05_ddtree", "06_layer_verification"))
    target, drawn, trees = models.target, sampler.temperature > 0, import_module("tree_attention")

    # 02: its fastest tree, and the one with most tokens
    starts = small_gpt(target, models.small, sampler, ((2, 1), (2, 2, 1, 1)))
    starts["03 routed heads, 8 nodes, walk"] = routed.registry(
        target, models.heads, sampler, 8)["routed"]
    starts["04 trie of both heads, 16 nodes, walk"] = merged.registry(
        target, models.heads, sampler, 8)["trie-merged, 16"]
    block = ddtree.registry(target, models.block, sampler, (7, 15), (15,), models.price)
    rules = {ddtree.DRAWN: "", ddtree.PRICED_CHAIN: ", p/q"}
    starts |= {f"05 {name}{rules.get(name, ', walk')}": start
               for name, start in block.items() if name != PLAIN}
    if drawn:
        starts["06 two drawn chains of 4, LV + K-SEQ"] = layers.registry(
            target, trees.TreeGPT(models.small), sampler, Sampler(sampler.temperature, top_k=20),
            "multi-chain", 2, 4)["LV + K-SEQ"]
    return starts


# ---------------------------------------------------------------- numbers that can be kept


def measured(target, tables):
    """What a run found, ready for JSON: a method's tau and speed-up, each with two standard errors,
    and a round's milliseconds, by verb.

    tables: {temperature: results of nanogpt.bench.compare}, two prompts or more.
    """
    found = {"machine": device_name(target.device), "precision": precision_of(target),
             "curve": list(cost_curve(target).items()),  # [N, ms]
             "plain_ms": {}, "tables": {}}
    for T, results in ((f"T = {T:g}", results) for T, results in tables.items()):
        baseline = results[PLAIN]
        found["plain_ms"][T] = summarize(baseline)["ms_per_step"]
        found["tables"][T] = {name: {
            "tau": summarize(runs)["tau"], "tau_error": tau_uncertainty(runs),
            "speedup": speedup(runs, baseline),
            "speedup_error": two_standard_errors(speedups(runs, baseline)),
            "round_ms": summarize(runs)["ms_per_step"], "verb_ms": summarize(runs)["verb_ms"],
        } for name, runs in results.items() if name != PLAIN}
    return found


def load_measured(folder=MEASURED):
    """{name of the file: what `measured` found on that machine}."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8"))
            for path in sorted(folder.glob("*.json"))}


def markdown(columns, temperatures=TEMPERATURES, errors=False):
    """A table: for each temperature tau (of the first machine) and every machine's speed-up. The
    best of each column is bold, where it beats plain decoding by more than two standard errors.

    columns: {machine: of `measured`}; errors: two decimals, and two standard errors behind them.
    """
    first, fast = next(iter(columns.values())), "{:.2f}x" if errors else "{:.1f}x"
    wanted = [part for T in (f"T = {t:g}" for t in temperatures) for part in [
        (f"{T}: tau", first["tables"][T], "tau", "{:.2f}"),
        *((machine, found["tables"][T], "speedup", fast) for machine, found in columns.items())]]
    names = list(max((table for _, table, *_ in wanted), key=len))  # that which has them all
    lines = [["method", "rule"], ["---"] * (len(wanted) + 2),
             *(name.rsplit(", ", 1) for name in names)]
    for title, table, key, form in wanted:
        lines[0].append(title)
        best = form.format(max(entry[key] for entry in table.values()))
        for row, name in zip(lines[2:], names, strict=True):
            cell = "not run"
            if name in table:
                cell, error = form.format(table[name][key]), table[name][f"{key}_error"]
                wins = cell == best and table[name][key] - error > 1
                cell = f"**{cell}**" if wins else cell
                cell += f" \u00b1 {error:.2f}" if errors else ""
            row.append(cell)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


# ---------------------------------------------------------------- the command line


def main(argv=None):
    p = cli.parser(__doc__.splitlines()[0])
    cli.target_flags(p)
    p.add_argument("--max-new-tokens", type=int, default=128, help="per prompt")
    p.add_argument("--prompts", type=int, default=6, help="how many held-out prompts")
    p.add_argument("--eager", action="store_true", help="on a GPU: no recorded launches")
    p.add_argument("--save", type=Path, help="write what was measured into this JSON file")
    p.add_argument("--markdown", action="store_true",
                   help="measure nothing, print the tables of what was saved")
    args = p.parse_args(argv)
    if args.markdown:
        print(markdown(load_measured()), markdown(load_measured(), errors=True), sep="\n\n")
        return
    if min(args.prompts, args.max_new_tokens) < 2:
        raise ValueError(f"prompts is {args.prompts} and max_new_tokens {args.max_new_tokens}; "
                         "both must be at least 2, for an error needs two texts")
    if args.save:
        cli.make_folder(args.save.parent)
    dataset, device = cli.setup(args)
    models = load_models(dataset, device, args.size, args.precision, args.eager)
    tables = print_tables(args, models.target, held_out_prompts(dataset, args.prompts),
                          [Sampler(T) for T in TEMPERATURES],
                          lambda sampler: registry(models, sampler))
    if args.save:
        text = json.dumps(measured(models.target, tables), indent=1)
        args.save.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    cli.run(main)
