"""How fast the engine is: tokens a second, and each reader's wait, by the number of requests.

    python -m nanogpt.engine_room                                            # six minutes
    python -m nanogpt.engine_room --save nanogpt/measured/engine/my-machine.json

All requests begin together; what is counted are the rounds in which all of them run, the first
one, which reads the prompts, left out. Of each cell the fastest lap counts. What
was saved in nanogpt/measured/engine stands in the lesson into_an_engine.ipynb.
"""

import gc
import json
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from nanogpt import chapter, cli
from nanogpt.bench import median_ms
from nanogpt.data import held_out_prompts
from nanogpt.device import device_name, synchronize
from nanogpt.drafting import ByLoad, GPTDrafter
from nanogpt.engine import Engine, Request
from nanogpt.packing import for_decoding, precision_of
from nanogpt.paging import PagedModel, Pages
from nanogpt.sampling import Sampler
from nanogpt.terminal import print_table
from nanogpt.train import get_gpt

MEASURED = Path(__file__).parent / "measured" / "engine"
REQUESTS = (1, 2, 4, 8, 16, 32, 64)
DRAFTS = (0, 1, 2, 4, 8)
BY_LOAD = "by load"
TEXTS = 16  # at least so many in each cell
READ = 96  # rows that a request has read when its next ones are priced

# ---------------------------------------------------------------- one round, to be looked at


@dataclass
class Seen:
    """What a request did in one round. length: rows read before it; table: its pages in it; read:
    its unread tokens; accepted: how many of the drafts; tokens: what it wrote; ended: see Request.
    """

    length: int
    table: list
    read: list
    drafted: list
    accepted: int
    tokens: list
    ended: str | None


def watched(engine):
    """One round of an engine -> {request: Seen}."""
    judged, tables, accept = [], {}, engine.accept
    before = {request: (request.length, request.unread)
              for request in engine.running + engine.waiting}

    def watching(drafted, draft_probs, target_probs, dice):
        # The first time nobody has ended yet, and all pages of the round are there.
        tables.update({request: list(request.table) for request in before if not judged})
        n, token = accept(drafted, draft_probs, target_probs, dice)
        judged.append((list(drafted), n))
        return n, token

    engine.accept = watching
    try:
        streamed = engine.round()
    finally:
        engine.accept = accept
    return {request: Seen(length, tables[request], read, drafted, n, tokens, request.ended)
            for (request, tokens), (drafted, n) in zip(streamed, judged, strict=True)
            for length, read in [before[request]]}


def new_engine(target, small, pages, share=None, size=16):
    """An Engine with a small GPT as its drafter (None: no drafts), and the rule of chapter 01."""
    pages = Pages(pages, size)
    return Engine(PagedModel(target, pages), small and GPTDrafter(small, pages),
                  chapter.load("01").room.accept, share)


def rounds_alone(target, small, request, most):
    """The first rounds of a request that is alone, at most so many -> a list of Seen."""
    engine, rounds = new_engine(target, small, 32), []
    engine.submit(request)
    while engine.busy and len(rounds) < most:
        rounds += watched(engine).values()
    return rounds


def four_requests(target, small, encode, number=5):
    """{name: Request}: in its round `number`, a has a draft rejected, b has all accepted, c stops
    in the middle of its accepted drafts; d is new.

    Seeds are tried alone: together each request does the same.
    """
    def find(new, wanted):
        for seed in range(500):
            rounds = rounds_alone(target, small, new(seed), number)
            if len(rounds) == number and wanted(rounds[-1]):
                return new(seed)
        raise ValueError("no seed below 500 does what the picture is to show")

    def new(prompt, temperature, **more):
        return lambda seed: Request(encode(prompt), Sampler(temperature), seed, 48, **more)

    return {
        "a": find(new("ROMEO:\n", 1), lambda seen: 0 < seen.accepted < 3),
        "b": find(new("First Citizen:\nWe ", 0.6), lambda seen: seen.accepted == 4),
        "c": find(new("JULIET:\n", 0.8, stops=(encode(" the"),)),
                  lambda seen: seen.ended == "stop" and 1 < len(seen.tokens) < seen.accepted),
        "d": new("KING HENRY:\n", 1)(0)}


def one_round(target, small, encode, number=5, pages=15, size=8):
    """Round `number` of the four -> {name: Seen}; the fourth has come just before it."""
    requests = four_requests(target, small, encode, number)
    engine = new_engine(target, small, pages, size=size)
    for name in "abc":
        engine.submit(requests[name])
    for _ in range(number - 1):
        engine.round()
    engine.submit(requests["d"])
    seen = watched(engine)
    return {name: seen[request] for name, request in requests.items()}


# ---------------------------------------------------------------- what a round costs


def round_prices(model, requests, rows, repeats=7):
    """{n: {rows: ms}}: one forward for n requests, so many new rows for each of them."""
    prices, read = {}, min(READ, model.block_size // 2)
    for n in requests:
        pages = Pages(n * (read + max(rows)) // 16 + n)
        paged, tables = PagedModel(model, pages), [[] for _ in range(n)]
        for table in tables:
            pages.grow(table, read + max(rows))
        prices[n] = {m: median_ms(
            lambda m=m, tables=tables, paged=paged: paged.read(
                [(table, read, [0] * m) for table in tables]),
            model.device, repeats, warmup=2) for m in rows}
    return prices


def load_rule(run, requests=REQUESTS, drafts=DRAFTS, laps=2):
    """-> share for the Engine. Its prices come from whole rounds, made here and now: judging a
    draft takes time, too, and so do the draws of a pass. run(n, k) -> see `run_together`."""
    prices, passes = {n: {} for n in requests}, {}
    for n in requests:
        for k in drafts:
            runs = [run(n, k) for _ in range(laps)]
            prices[n][k + 1] = min(1e3 * (found["seconds"] - found["drafting"]) / found["rounds"]
                                   for found in runs)
            if k:  # the longest chain: its first pass, which reads the root, too, weighs least
                passes[n] = min(1e3 * found["drafting"] / found["rounds"] / k for found in runs)
    return ByLoad(prices, passes)


# ---------------------------------------------------------------- what comes of it


def run_together(target, small, asked, k, sampler, max_new_tokens, share=None):
    """Serve requests that all begin now -> tokens, seconds, rounds while all of them run, drafting
    (seconds of these), and first_ms, of the first round, which reads the prompts.

    asked: a list of (seed, prompt).
    """
    pages = len(asked) * (-(-(len(asked[0][1]) + max_new_tokens + k) // 16))
    engine = new_engine(target, small if k else None, pages, share)
    requests = [Request(prompt, sampler, seed, max_new_tokens, k=k) for seed, prompt in asked]
    for request in requests:
        engine.submit(request)
    found, clock = {"tokens": 0, "seconds": 0.0, "rounds": 0, "drafting": 0.0}, [0.0]
    if k:
        draft = engine.drafter.draft

        def timed(requests, ks):
            begin = time.perf_counter()
            draft(requests, ks)
            clock[0] = time.perf_counter() - begin

        engine.drafter.draft = timed
    while True:
        clock[0] = 0.0
        synchronize(target.device)
        start = time.perf_counter()
        streamed = engine.round()
        synchronize(target.device)
        seconds = time.perf_counter() - start
        if "first_ms" not in found:
            found["first_ms"] = 1e3 * seconds
            continue
        if any(request.ended for request in requests):
            break
        found["tokens"] += sum(len(tokens) for _, tokens in streamed)
        found["seconds"] += seconds
        found["drafting"] += clock[0]
        found["rounds"] += 1
    return found


def sweep(target, small, prompts, sampler, requests=REQUESTS, drafts=DRAFTS, laps=5,
          max_new_tokens=64, texts=TEXTS):
    """{requests: {K or "by load": {..}}}: every number of requests with every K, in turn.

    So many texts in each cell, or as many as requests: fewer requests come in several batches, so
    that no cell hangs on one text. tokens_per_second: over all requests, a list, of each lap;
    round_ms, first_ms: of a round, of the one that reads the prompts.
    """
    def run(n, k, begin=0, share=None):
        return run_together(target, small, list(enumerate(prompts))[begin:begin + n], k, sampler,
                            max_new_tokens, share)

    share, names = load_rule(run, requests, drafts), [*drafts, BY_LOAD]
    runs = {n: {name: [] for name in names} for n in requests}
    gc.collect()
    gc.freeze()  # else a collection of everything hits some lap in the middle
    for lap in range(laps):  # outside: a slow minute of the machine hits a lap of every load
        for n in requests:
            for name in names[lap % len(names):] + names[:lap % len(names)]:
                k, rule = (max(drafts), share) if name == BY_LOAD else (name, None)
                runs[n][name].append([run(n, k, begin, rule)
                                      for begin in range(0, max(n, texts), n)])
    return {n: {name: summary(laps, n) for name, laps in row.items()} for n, row in runs.items()}


def summary(laps, n):
    """What several laps with n requests found; a lap is a list of runs."""
    def of(lap, name):
        return sum(run[name] for run in lap)

    return {"tokens_per_second": [of(lap, "tokens") / of(lap, "seconds") for lap in laps],
            "round_ms": min(1e3 * of(lap, "seconds") / of(lap, "rounds") for lap in laps),
            "tau": of(laps[0], "tokens") / of(laps[0], "rounds") / n,  # every lap writes the same
            "first_ms": min(run["first_ms"] for lap in laps for run in lap)}


def speeds(found):
    """{requests: {K: tokens a second}}: of the fastest lap, since others can only slow it down."""
    return {n: {name: max(line["tokens_per_second"]) for name, line in row.items()}
            for n, row in found.items()}


def spread(found):
    """How far the laps of a cell lie apart: (fastest - median) / fastest, the median cell."""
    laps = [line["tokens_per_second"] for row in found.values() for line in row.values()]
    return statistics.median(1 - statistics.median(lap) / max(lap) for lap in laps)


def best_drafts(found):
    """{requests: (K, tokens a second)}: the fastest fixed K that is not 0."""
    return {n: max(((k, speed) for k, speed in row.items() if k not in (0, BY_LOAD)),
                   key=lambda pair: pair[1]) for n, row in speeds(found).items()}


def headline(found):
    """Tokens a second over those of one reader without drafts -> of one reader with the best K, of
    the largest batch without drafts, of the largest batch with its best K."""
    fast, best, last = speeds(found), best_drafts(found), max(found)
    return [speed / fast[1][0] for speed in (best[1][1], fast[last][0], best[last][1])]


def load_measured(folder=MEASURED):
    """{name of the file: what was measured there}, as `sweep` has it."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        machine = json.loads(path.read_text(encoding="utf-8"))
        machine["table"] = {int(n): {int(k) if k != BY_LOAD else k: line for k, line in row.items()}
                            for n, row in machine["table"].items()}
        found[path.stem] = machine
    return found


def gain_table(found):
    """Head and rows: tokens a second without drafts, and how many times as many with them."""
    names = [name for name in next(iter(found.values())) if name != 0]
    return (["requests", "K = 0", *(name if name == BY_LOAD else f"K = {name}" for name in names)],
            [[n, f"{fast[0]:.0f}", *(f"{fast[name] / fast[0]:.2f}x" for name in names)]
             for n, fast in speeds(found).items()])


def print_sweep(found):
    """Tokens a second and the gains; what a round takes, and what it brings."""
    print("\ntokens a second, all requests together, and how many times as many with drafts\n")
    print_table(*gain_table(found))
    print("\nmilliseconds of a round / tokens of a request in it\n")
    print_table(["requests", *next(iter(found.values()))],
                [[n, *(f"{line['round_ms']:.1f} / {line['tau']:.2f}" for line in row.values())]
                 for n, row in found.items()])


def main(argv=None):
    p = cli.parser(__doc__)
    cli.target_flags(p)
    p.add_argument("--temperature", type=float, default=1.0, help="0 is greedy")
    p.add_argument("--laps", type=int, default=5, help="how often each cell has its turn")
    p.add_argument("--save", type=Path, help="write what was measured into this JSON file")
    args = p.parse_args(argv)
    if args.laps < 1:
        raise ValueError(f"laps is {args.laps}; it must be at least 1")
    sampler = Sampler(args.temperature)
    if args.save:
        cli.writable(args.save)
    dataset, device = cli.setup(args)
    target = for_decoding(get_gpt(args.size, dataset, device), args.precision)
    small = for_decoding(get_gpt("draft", dataset, device), args.precision)
    prompts = held_out_prompts(dataset, max(REQUESTS))
    begin = time.perf_counter()
    found = sweep(target, small, prompts, sampler, laps=args.laps)
    setting = {"machine": device_name(device), "precision": precision_of(target),
               "torch": torch.__version__, "temperature": args.temperature, "laps": args.laps,
               "prompt_tokens": len(prompts[0]), "seconds": round(time.perf_counter() - begin)}
    print(", ".join(f"{name} {value}" for name, value in setting.items()))
    print_sweep(found)
    if args.save:
        args.save.write_text(json.dumps({**setting, "table": found}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    cli.run(main)
