"""Does it pay? All methods of all chapters in one contest: one target, the same held-out prompts,
in turns, each method with its whole curve of budgets.

    python -m nanogpt.does_it_pay --save mine.json
    python -m nanogpt.does_it_pay --temperatures 0 --save FILE   # in pieces, into one file
    python -m nanogpt.does_it_pay --only "one head" --prompts 6  # a look at some of them
    python -m nanogpt.does_it_pay --show FILE FILE               # what was stored; the range

Who stands in it, and with which budgets, each chapter's LOOPS say (`contest`). Nothing was tuned on
its prompts, but the best budgets are read off them: a winner leads by a little too much. One
formula for speed-up, here and in every lesson:

    speed-up = tokens a round / price of the round in plain steps

A plain step is that of the fastest plain decoding on this machine, in whichever precision.
"""

import json
import platform
import re
from collections import defaultdict
from pathlib import Path
from statistics import mean, median

import torch

from nanogpt import cli
from nanogpt.bench import (
    TURN,
    VERBS,
    compare,
    cost_curve,
    paired,
    plain,
    plains,
    ratio_error,
    summarize,
)
from nanogpt.chapter import chapters, written
from nanogpt.checkpoint import write_whole
from nanogpt.data import untouched_prompts
from nanogpt.device import device_name
from nanogpt.packing import for_decoding, precision_of
from nanogpt.run import trained_cast
from nanogpt.sampling import Sampler
from nanogpt.sizes import SIZES

# epyc.json: all methods on two cores of an AMD EPYC; xeon.json: on two of an Intel Xeon, on which
# plain decoding is fastest in float32. again/: the same in another hour; on the EPYC, which was
# twice as fast then, without the 4-gram and some others, on the Xeon at T = 0 and 1. Prompts and
# seeds are the same, but rounding is not, so at the first near tie a text parts from the other
# machine's. one_loop/: on 72 prompts, on the EPYC chains and trees of all drafters in chapter 02's
# loop (epyc.json), and chapter 01's loop beside it, with a few shapes (loops.json, and in a quiet
# hour loops_faster.json), and with picked chains in both, at T = 0, too (one_hour.json), there
# again with deeper trees (zero.json); what chapters 03 to 05 end on, on an EPYC (chapters.json)
# and, without the bare slots, on the Xeon (xeon.json). trained/: chapter 01's loop on the Xeon,
# with the weights that come along (usual.json), and with target and drafters trained four times as
# long (longer.json; greedy.json: chains and trees at T = 0, in chapter 02's loop).
# lengths.json in one_loop/: chapter 01's chains of its three drafters, eight lengths, at T = 1;
# heap_or_chain.json: at T = 0 the heap's trees and chains that the heap's own code drafts.
MEASURED = Path(__file__).parent / "measured"
TEMPERATURES = (0.0, 0.6, 1.0)
PLAINLY = "plain"  # the family of plain decoding
HOPELESS = 3.0  # a precision this many times slower than another takes no part (an emulated one)

# ---------------------------------------------------------------- who takes part


def contestants(only=""):
    """Every loop of every chapter at every budget of its contest -> {name: (Loop, budget, facts)}.

    facts: what a file keeps of it; only: a regular expression that a name must match.
    Raises ValueError if none does.
    """
    found = {f"{chapter.number} {loop.title(budget)}": (loop, budget, {
        "chapter": chapter.number, "loop": loop.name, "budget": budget,
        "family": loop.family, "drawn": loop.drawn})
        for chapter in chapters() for loop in chapter.loops for budget in loop.contest}
    try:
        kept = {name: entry for name, entry in found.items() if re.search(only, name)}
    except re.error as error:
        raise ValueError(f"only is '{only}'; it must be a regular expression: {error}") from None
    if not kept:
        raise ValueError(f"only is '{only}', which matches no method; there are: "
                         + "; ".join(found))
    return kept


def plain_targets(m, prompts):
    """The target in each precision that can win here -> {name: GPT}, and what their steps take,
    {name: ms}. m: see Cast, with m.trained in float32."""
    targets = {}
    for precision in ("float32", "bfloat16"):
        try:
            same = precision == precision_of(m.target)
            targets[f"plain, {precision}"] = (
                m.target if same else for_decoding(m.trained, precision))
        except ValueError:  # it cannot be had here
            continue
    runs = compare({name: plain(target, Sampler()) for name, target in targets.items()},
                   prompts[:2], 32, TURN)
    ms = {name: summarize(texts)["ms_per_step"] for name, texts in runs.items()}
    return {name: target for name, target in targets.items()
            if ms[name] < HOPELESS * min(ms.values())}, ms


def forgetful(steps):
    """The same Steps without their records: those of a hundred methods would fill the memory."""
    for step in steps:
        step.detail = None
        yield step


def decoder(m, loop, budget, sampler):
    """-> start(prompt, seed), see nanogpt.bench.compare."""
    start = loop.start(m, budget, sampler)
    return lambda prompt, seed: forgetful(start(prompt, seed))


# ---------------------------------------------------------------- what is kept of it


def to_store(runs):
    """A method's Generations -> rounds and milliseconds of each text; a round's drafts, and its
    milliseconds by verb; in which form the rounds ran, as they say themselves."""
    line, forms = summarize(runs), {step.form for text in runs for step in text.steps}
    return {"rounds": [len(text.steps) for text in runs],
            "ms": [round(1e3 * text.seconds, 2) for text in runs],
            "drafts": round(line["drafted"], 2),
            "verbs": [round(line["verb_ms"][verb], 4) for verb in VERBS],
            "form": ", ".join(sorted(forms))}


def held_up(texts):
    """Which of a method's Generations took half as long again a round as their median, or more."""
    ms = [text.seconds / max(len(text.steps), 1) for text in texts]
    return [i for i, one in enumerate(ms) if one >= 1.5 * median(ms)]


def measure(m, targets, entries, prompts, max_new_tokens, temperature):
    """One contest -> the table of a temperature, ready for JSON.

    targets: of plain_targets; entries: of contestants.
    """
    sampler, curve = Sampler(temperature), cost_curve(m.target, repeats=15)
    entries = {name: entry for name, entry in entries.items() if entry[0].runs_at(temperature)}
    starts = {}
    for name, target in targets.items():
        starts |= plains(target, sampler, name)
    facts = {name: {"family": PLAINLY} for name in starts} | {
        name: facts for name, (*_, facts) in entries.items()}
    starts |= {name: decoder(m, loop, budget, sampler)
               for name, (loop, budget, _) in entries.items()}
    runs = compare(starts, prompts, max_new_tokens, TURN, progress=f"temperature {temperature:g}")
    for name, texts in runs.items():  # what something else on the machine held up: once more
        for i in held_up(texts):
            again = {name: lambda prompt, _, i=i, name=name: starts[name](prompt, i)}
            texts[i] = compare(again, prompts[i:i + 1], max_new_tokens)[name][0]
    return {"curve": [[n, round(ms, 4)] for n, ms in curve.items()],
            "methods": {name: facts[name] | to_store(texts) for name, texts in runs.items()}}


def machine(device):
    """A name for a file: device and, of a CPU, its model."""
    name = device_name(device)
    if device.type != "cpu":
        return name
    try:
        model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    except OSError:  # not on Linux
        model = None
    found = model[1].strip() if model else platform.processor() or platform.machine()
    return f"{name}, " + re.sub(r"\((R|TM)\)| Processor$", "", found)


def load_contest(path):
    """What a contest has stored. Raises ValueError if the file is none of its."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
        lines = [line for table in found["tables"].values() for line in table["methods"].values()]
        if all({"family", "rounds", "ms"} <= line.keys() for line in lines):
            return found
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        pass
    raise ValueError(f"'{path}' cannot be read as a contest; it must be a file that "
                     "nanogpt.does_it_pay has saved")


def load_contests(folder=MEASURED):
    """{name of the file: what it holds}, all contests of a folder."""
    return {path.stem: load_contest(path) for path in sorted(folder.glob("*.json"))}


def save(path, found):
    """Write what a contest has found, a line a method."""
    text = json.dumps(found, separators=(",", ":")).replace('},"', '},\n"')
    write_whole(path, f"{text}\n".encode())


def begin(path, setting):
    """The file that a run goes on with, {setting and tables}; a new one if there is none.

    Raises ValueError if it was measured in another setting.
    """
    if not (path and path.exists() and path.stat().st_size):
        return setting | {"tables": {}}
    found = load_contest(path)
    for name, value in setting.items():
        if found.get(name) != value:
            raise ValueError(f"'{path}' was measured with {name} {found.get(name)!r}, this run has "
                             f"{value!r}; save it in another file")
    return found


# ---------------------------------------------------------------- what it says


def table_of(found, T):
    """{method: its line} at temperature T. Raises ValueError if it was not measured."""
    name = f"{T:g}"
    if name not in found["tables"]:
        raise ValueError(f"temperature is {name}; measured were {', '.join(found['tables'])}")
    return found["tables"][name]["methods"]


def baseline(methods):
    """The name of the fastest plain decoding."""
    return min((name for name, line in methods.items() if line["family"] == PLAINLY),
               key=lambda name: sum(methods[name]["ms"]))


def plain_step(found, T):
    """Milliseconds of a step of the fastest plain decoding."""
    line = table_of(found, T)[baseline(table_of(found, T))]
    return sum(line["ms"]) / sum(line["rounds"])


def speedups(found, T):
    """{method: (tokens a round, price of a round in plain steps, speed-up: their quotient)}.

    All texts together: a text of many rounds counts more. Example: 3 tokens at a price of 1.5: 2x.
    """
    methods, lines, step = table_of(found, T), {}, plain_step(found, T)
    for name, line in methods.items():
        rounds = sum(line["rounds"])
        tokens = found["tokens"] * len(line["rounds"]) / rounds
        price = sum(line["ms"]) / rounds / step
        lines[name] = tokens, price, tokens / price
    return lines


def length_of(line):
    """The length of a stored chain, of one that is written as a tree, too: [1, 1] is 2; None: the
    line is a tree's shape."""
    shape = line["budget"]
    if isinstance(shape, list):
        return len(shape) if max(shape) == 1 else None
    return shape


def divided(found, few):
    """A contest in two -> with these texts alone, and with all others. few: their places.

    To choose on the ones and judge on the others: who is picked as the best on some texts owes them
    a part to luck.
    """
    few = {*few}

    def part(inside):
        tables = {T: table | {"methods": {name: line | {
            key: [value for i, value in enumerate(line[key]) if (i in few) == inside]
            for key in ("rounds", "ms")} for name, line in table["methods"].items()}}
            for T, table in found["tables"].items()}
        return found | {"tables": tables}

    return part(True), part(False)


def divisions(found, times):
    """Random divisions of a contest, always the same ones -> so many pairs: with two thirds of its
    texts, to choose on; with the others, to judge on. See divided."""
    texts = found["prompts"]
    for seed in range(times):
        order = torch.randperm(texts, generator=torch.Generator().manual_seed(seed)).tolist()
        judge, choose = divided(found, order[:texts // 3])
        yield choose, judge


def taus(found, T, chapter, loop):
    """{budget: tokens a round} of a loop of a chapter whose budgets are numbers, not shapes."""
    fast = speedups(found, T)
    return {line["budget"]: fast[name][0] for name, line in table_of(found, T).items()
            if line["family"] != PLAINLY and (line["chapter"], line["loop"]) == (chapter, loop)}


def lengths(found, T, name):
    """{drafts: (tokens, price, speed-up)} of those chains that ran; name: as "chain of {}"."""
    fast = speedups(found, T)
    return {k: fast[name.format(k)] for k in range(1, 17) if name.format(k) in fast}


def tau_error(found, T, name):
    """Two standard errors of a method's tokens a round, see bench.ratio_error."""
    rounds = table_of(found, T)[name]["rounds"]
    return ratio_error([found["tokens"]] * len(rounds), rounds)


def behind(found, T, best):
    """{method: milliseconds a token more than `best`, text by text, and two standard errors}."""
    ms = {name: [text / found["tokens"] for text in line["ms"]]
          for name, line in table_of(found, T).items()}
    return {name: paired(values, ms[best]) for name, values in ms.items()}


def gap(found, T, one, other):
    """By how much a token of one method takes longer than the other's, text by text, and two
    standard errors: in percent of a plain step."""
    return [100 * ms / plain_step(found, T) for ms in behind(found, T, other)[one]]


def leaders(found, T, among):
    """-> the fastest of some methods, and a list of those that are level with it: what they take
    more, text by text, is within its two standard errors."""
    fast = speedups(found, T)
    best = max(among, key=lambda name: fast[name][2])
    more = behind(found, T, best)
    return best, [name for name in among if name != best and more[name][0] <= more[name][1]]


def groups(found, T):
    """Which methods are compared with each other: {group: names}. All; those whose drafts are
    picked, and drawn (at temperature 0 nothing is drawn); and those with one kind of drafter."""
    methods = table_of(found, T)
    parts = defaultdict(list, {"all": list(methods), "picked": [], "drawn": []})
    for name, line in methods.items():
        if line["family"] != PLAINLY:
            if T:
                parts["drawn" if line["drawn"] else "picked"].append(name)
            parts[line["family"]].append(name)
    return {group: names for group, names in parts.items() if names}


def decide(files, T):
    """Who should be taken? -> {group: {file: (best, level, lowest and highest speed-up of the best
    over all files)}}. files: {name: of load_contest}, those with this temperature count."""
    files = {name: found for name, found in files.items() if f"{T:g}" in found["tables"]}
    decided = defaultdict(dict)
    for file, found in files.items():
        for group, names in groups(found, T).items():
            best, level = leaders(found, T, names)
            decided[group][file] = best, level, span(files, T, best)
    return dict(decided)


def span(files, T, method):
    """The lowest and the highest speed-up of a method over the files that have it."""
    fast = [speedups(found, T)[method][2] for found in files.values()
            if method in found["tables"].get(f"{T:g}", {"methods": ()})["methods"]]
    return min(fast), max(fast)


def best_of_all(files, T, kind_of=lambda line: line["family"]):
    """Over several contests: which method of each kind came nearest to the fastest of all, on
    average of those that it ran in? -> {kind: (its name, {file: its speed-up}, whether it was the
    fastest, or level with it, in each)}.

    files: {name: of load_contest}, those with this temperature count; kind_of: of a stored line.
    """
    # In parts of the fastest one's: who ran on a good machine only has nothing from that.
    seen = defaultdict(lambda: defaultdict(dict))  # of each contest: share, speed-up, in front?
    for file, found in files.items():
        if f"{T:g}" not in found["tables"]:
            continue
        methods, fast = table_of(found, T), speedups(found, T)
        winner, level = leaders(found, T, list(methods))
        for name, line in methods.items():
            if line["family"] != PLAINLY:
                seen[kind_of(line)][name][file] = (
                    fast[name][2] / fast[winner][2], fast[name][2], name in (winner, *level))
    nearest = {}
    for kind, ran in seen.items():
        best = max(ran, key=lambda name, ran=ran: mean(share for share, *_ in ran[name].values()))
        speed = {file: fast for file, (_, fast, _) in ran[best].items()}
        nearest[kind] = best, speed, all(front for *_, front in ran[best].values())
    return nearest


def together(names, methods):
    """A list of methods in few words: the budgets of one loop stand together.

    Example: '01 chain of 4, 57K GPT' and the same of 6: '01 chain of 4 / 6, 57K GPT'.
    """
    loops = defaultdict(list)
    for name in names:
        line = methods[name]
        loops[(line["chapter"], line["loop"]) if "loop" in line else (name, "")].append(
            line.get("budget"))
    return [f"{chapter} {loop}".strip().format(" / ".join(map(written, budgets)))
            for (chapter, loop), budgets in loops.items()]


def briefly(name, family):
    """A method behind the name of its family.

    Example: '06 chain of 4, bigram, block verification' is 'bigram: chain of 4, BV'.
    """
    rest = name[3:].replace("block verification", "BV")
    for known in ("routed heads", "block", "n-gram lookup", family):
        rest = rest.replace(f"{known}, ", "").replace(f", {known}", "")
    return f"{family}: {rest}"


# ---------------------------------------------------------------- printed


def print_methods(found, T):
    """Every method: tokens a round, the round's price, their quotient, how far it is behind."""
    fast = speedups(found, T)
    best = max(fast, key=lambda name: fast[name][2])
    more = behind(found, T, best)
    cli.print_table(["method", "tokens", "+-", "price", "speed-up", "ms behind", "+-"], [
        [name, f"{tokens:.2f}", f"{tau_error(found, T, name):.2f}", f"{price:.2f}",
         f"{quotient:.2f}x", *(f"{ms:.2f}" for ms in more[name])]
        for name, (tokens, price, quotient) in fast.items()])


def print_decision(files, T):
    """The best of every group on every machine, and all that are level with it."""
    for group, machines in decide(files, T).items():
        for file, (best, level, (low, high)) in machines.items():
            ranged = f", {low:.2f}x to {high:.2f}x over the files" if len(files) > 1 else ""
            fast = speedups(files[file], T)[best][2]
            print(f"  {group}, {file}: {best}, {fast:.2f}x{ranged}")
            if level:
                names = together(level, table_of(files[file], T))
                print("      level: " + "; ".join(names))


def show(files):
    """Print all that stored contests say."""
    for name, found in files.items():
        print(f"\n{name}: {SIZES[found['size']].label} target in {found['precision']} on "
              f"{found['machine']}; {found['prompts']} prompts, {found['tokens'] + 1} tokens each; "
              "price in plain steps, +- is two standard errors over the prompts")
        for T, table in found["tables"].items():
            plains = {method: line for method, line in table["methods"].items()
                      if line["family"] == PLAINLY}
            print(f"\ntemperature {T}; the baseline is {baseline(plains)}; c(N), ms: "
                  + ", ".join(f"{n}: {ms:.2f}" for n, ms in table["curve"]) + "\n")
            print_methods(found, float(T))
    for T in sorted({float(T) for found in files.values() for T in found["tables"]}):
        print(f"\nWhat to take at temperature {T:g}")
        print_decision(files, T)


# ---------------------------------------------------------------- the command line


def read_flags(argv):
    """Raises ValueError for a bad flag."""
    p = cli.parser(__doc__)
    cli.target_flags(p)
    p.add_argument("--max-new-tokens", type=int, default=64, help="per prompt")
    p.add_argument("--prompts", type=int, default=24, help="how many held-out prompts")
    p.add_argument("--temperatures", type=float, nargs="+", default=TEMPERATURES,
                   help="a contest for each; 0 is greedy")
    p.add_argument("--only", default="", help="methods whose name matches this pattern")
    p.add_argument("--save", type=Path, help="a JSON file for what was measured; what it has from "
                   "other temperatures stays")
    p.add_argument("--show", type=Path, nargs="+", help="print such files, and measure nothing")
    args = p.parse_args(argv)
    if min(args.prompts, args.max_new_tokens) < 2:
        raise ValueError(f"prompts is {args.prompts} and max_new_tokens {args.max_new_tokens}; "
                         "both must be at least 2, for an error needs two texts")
    for T in args.temperatures:
        Sampler(T)  # raises ValueError for a negative one
    return args


def main(argv=None):
    args = read_flags(argv)
    if args.show:
        show({path.stem: load_contest(path) for path in args.show})
        return
    entries = contestants(args.only)
    if args.save:
        cli.writable(args.save)
    dataset, device = cli.setup(args)
    prompts = untouched_prompts(dataset, args.prompts)
    m = trained_cast(args, dataset, device)
    found = begin(args.save, {
        "machine": machine(device), "torch": torch.__version__, "size": args.size,
        "precision": precision_of(m.target), "prompts": args.prompts,
        "tokens": args.max_new_tokens - 1})  # the first is the prefill's
    plains, ms = plain_targets(m, prompts)
    print("a plain step: " + "; ".join(f"{name.removeprefix('plain, ')} {value:.2f} ms"
                                       for name, value in ms.items()))
    for T in args.temperatures:  # a table is measured whole, in turns
        kept = found["tables"].get(f"{T:g}", {"methods": {}})["methods"]
        if lost := {name for name in kept if kept[name]["family"] != PLAINLY} - entries.keys():
            raise ValueError(f"'{args.save}' has other methods at temperature {T:g}, as "
                             f"'{min(lost)}', which this run would drop; save it in another file")
    try:
        for T in args.temperatures:
            found["tables"][f"{T:g}"] = measure(
                m, plains, entries, prompts, args.max_new_tokens, T)
            if args.save:
                save(args.save, found)  # after each, so that a run may be stopped between them
    finally:  # so what is measured is shown, also where the disk is full
        if found["tables"]:
            show({args.save.stem if args.save else "here": found})


if __name__ == "__main__":
    cli.run(main)
