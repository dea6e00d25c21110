"""How fast the engine is: tokens a second, and each reader's wait, by the number of requests.

    python -m nanogpt.engine_room                                            # five minutes
    python -m nanogpt.engine_room --threads 1 --save nanogpt/measured/engine/my-machine.json

All requests begin together; what is counted are the rounds in which all of them run, the first
one, which reads the prompts, left out. Alone and in each crowd the same texts are written, in each
lap again; so of each round the fastest lap counts. What was saved in nanogpt/measured/engine stands
in the lesson into_an_engine.ipynb.
"""

import gc
import json
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from nanogpt import chapter, cli
from nanogpt.checkpoint import write_whole
from nanogpt.data import held_out_prompts
from nanogpt.decoding import plain_decode
from nanogpt.device import synchronize
from nanogpt.does_it_pay import machine
from nanogpt.drafting import ByLoad, GPTDrafter, TextDrafter
from nanogpt.engine import Engine, Request
from nanogpt.packing import for_decoding, precision_of
from nanogpt.paging import PagedModel, Pages
from nanogpt.sampling import Dice, Sampler
from nanogpt.terminal import print_table
from nanogpt.train import get_gpt

MEASURED = Path(__file__).parent / "measured" / "engine"
REQUESTS = (1, 8, 32)
DRAFTS = (0, 1, 2, 4, 8, 12)
# Chapter 01's counted table with k drafts, and with as many as `ByLoad` gives.
COUNTED = {k: f"4-gram {k}" if k else 0 for k in DRAFTS}
BY_LOAD, IN_PLACE = "4-gram by load", "{}, in place"
TEXTS = 32  # at least so many in each cell

# ---------------------------------------------------------------- one round, to be looked at


@dataclass
class Seen:
    """What a request did in one round. past: the tokens read before it; table: its pages in it;
    read: its unread tokens; accepted: how many of the drafts; tokens: what it wrote; ended: see
    Request.
    """

    past: list
    table: list
    read: list
    drafted: list
    accepted: int
    tokens: list
    ended: str | None


def watched(engine):
    """One round of an engine -> {request: Seen}."""
    judged, tables, accept = [], {}, engine.accept
    before = {request: (request.text[request.start:][:request.length], request.unread)
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
    return {request: Seen(past, tables[request], read, drafted, n, tokens, request.ended)
            for (request, tokens), (drafted, n) in zip(streamed, judged, strict=True)
            for past, read in [before[request]]}


def new_engine(target, small, pages, share=None, size=16):
    """An Engine with the rule of chapter 01. small: its drafter, a GPT or a function of a text, see
    TextDrafter; None: no drafts."""
    pages = Pages(pages, size)
    drafter = small and (GPTDrafter(small, pages) if hasattr(small, "block_size")
                         else TextDrafter(small))
    return Engine(PagedModel(target, pages), drafter,
                  chapter.load("01").module("chain_specdec").accept, share)


def counted(dataset):
    """Chapter 01's 4-gram of a data set's training text, as a function of a text."""
    one = chapter.load("01")
    table = one.module("text_table").NgramDraft(one.room.table_of_text(dataset.train),
                                                dataset.vocab_size)
    return lambda text: table.after(tuple(text[-table.table.longest:]))


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


def clock(device):
    """The clock of a measurement. With one thread on a CPU it is the process's own time: whatever
    else runs on the machine meanwhile does not count."""
    own = device.type == "cpu" and torch.get_num_threads() == 1
    return time.process_time if own else time.perf_counter


def load_rule(found):
    """-> share for the Engine. found: as `sweep` has it, of fixed numbers of drafts.

    Its prices are whole rounds', made here and now: judging a draft takes time, too, and so do the
    draws of a pass.
    """
    prices, passes, lines = {}, {}, [line for row in found.values() for line in row.values()]
    for n, row in found.items():
        longest = max(row)
        passes[n] = row[longest]["drafting_ms"] / longest
        # So a round in which all have k drafts costs what it took.
        prices[n] = {k + 1: line["round_ms"] - k * passes[n] for k, line in row.items()}
    accepted, tested = (sum(line[name] for line in lines) for name in ("accepted", "tested"))
    return ByLoad(prices, passes, accepted / tested)


# ---------------------------------------------------------------- what comes of it


# Of a round; the caches are a part of the forward, and copying a part of the caches.
PARTS = "drafting", "forward", "caches", "copying"


class InPlace(PagedModel):
    """Each request has its pages one behind the other, in the order of the requests, so attention
    can read them where they lie: the rival of a copy. All must have equally many new rows."""

    def fetch(self, kv, tables):
        n, pages = tables.shape
        seen = kv.unflatten(1, (n, -1))[:, :, :pages]  # of each request the first pages, a view
        return seen.flatten(2, 3).transpose(2, 3)


def run_together(target, small, asked, k, sampler, max_new_tokens, share=None, in_place=False):
    """Serve requests that all begin now -> tokens; seconds, of each round while all of them run,
    but for the first one; seconds of each of its PARTS; accepted, tested drafts of all rounds.

    asked: a list of (seed, prompt); in_place: see InPlace.
    """
    pages = -(-(len(asked[0][1]) + max_new_tokens + k) // 16)
    engine = new_engine(target, small if k else None, pages * len(asked), share)
    requests = [Request(prompt, sampler, seed, max_new_tokens, k=k) for seed, prompt in asked]
    for i, request in enumerate(requests):
        if in_place:
            engine.target = InPlace(target, engine.pages)
            request.table = list(range(i * pages, (i + 1) * pages))
        engine.submit(request)
    spent, now = dict.fromkeys(PARTS, 0.0), clock(target.device)
    found = {"tokens": 0, "seconds": [], **{part: [] for part in PARTS}}

    def watch(part, owner, name):
        run = getattr(owner, name)

        def timed(*args):
            begin = now()
            result = run(*args)
            spent[part] += now() - begin
            return result

        setattr(owner, name, timed)

    for part, name in ("forward", "read"), ("caches", "attend"), ("copying", "fetch"):
        watch(part, engine.target, name)
    if k:
        watch("drafting", engine.drafter, "draft")
    engine.round()  # reads the prompts
    while True:
        spent.update(dict.fromkeys(PARTS, 0.0))
        synchronize(target.device)
        start = now()
        streamed = engine.round()
        synchronize(target.device)
        spent["seconds"] = now() - start
        if any(request.ended for request in requests):
            return found | {name: sum(getattr(request, name) for request in requests)
                            for name in ("accepted", "tested")}
        found["tokens"] += sum(len(tokens) for _, tokens in streamed)
        for name, part in spent.items():
            found[name].append(part)


def sweep(target, table, prompts, sampler, requests=REQUESTS, drafts=DRAFTS, laps=3,
          max_new_tokens=64, texts=TEXTS):
    """{requests: {0, "4-gram K", "4-gram by load" or one of these "in place": {..}}}: every number
    of requests with every K, in turn. table: the drafter.

    So many texts in each cell, or as many as requests: fewer requests come in several batches.
    What `load_rule` asks for is measured first, on prompts of its own: the second half. See
    `summary`.
    """
    half = len(prompts) // 2

    def in_turn(cells, asked, laps):
        """cells: {name: what run_together is told}."""
        names = list(cells)
        runs = {n: {} for n in requests}
        for lap in range(laps):  # outside: a slow minute of the machine hits a lap of all
            for n in requests:
                for name in names[lap % len(names):] + names[:lap % len(names)]:
                    k, *how = cells[name]
                    if n == 1 and how == [None, True]:
                        continue  # one reader has little to copy
                    runs[n].setdefault(name, []).append([
                        run_together(target, table, asked[begin:begin + n], k, sampler,
                                     max_new_tokens, *how) for begin in range(0, max(n, texts), n)])
        return {n: {name: summary(laps, n) for name, laps in row.items()}
                for n, row in runs.items()}

    gc.collect()
    gc.freeze()  # else a collection of everything hits some lap in the middle
    asked, cells = list(enumerate(prompts)), {COUNTED[k]: (k,) for k in drafts}
    before = in_turn(cells, asked[half:], 1)
    cells[BY_LOAD] = max(drafts), load_rule({n: dict(zip(drafts, row.values(), strict=True))
                                             for n, row in before.items()})
    cells |= {IN_PLACE.format(COUNTED[k]): (k, None, True) for k in drafts if k < 8}
    return in_turn(cells, asked[:half], laps)


def plain_loop_ms(target, prompts, sampler, laps, max_new_tokens=64):
    """Milliseconds of a step of plain decoding without an engine, each in its fastest lap."""
    now, runs = clock(target.device), []
    for seed, prompt in list(enumerate(prompts[:TEXTS])) * laps:
        steps, times = plain_decode(target, prompt, sampler, Dice(seed)), []
        next(steps)  # reads the prompt
        for _ in range(1, max_new_tokens):
            start = now()
            next(steps)
            times.append(now() - start)
        runs.append(times)
    fastest = [min(times) for i in range(TEXTS)
               for times in zip(*runs[i::TEXTS], strict=True)]
    return 1e3 * sum(fastest) / len(fastest)


def summary(laps, n):
    """What several laps with n requests found; a lap is a list of runs.

    tokens_per_second: over all requests; laps: the same, of each lap by itself; round_ms,
    drafting_ms, forward_ms, caches_ms, copying_ms: of a round, of its PARTS; tau: tokens of a
    request in a round; accepted, tested: drafts.
    """
    def of(name):
        return sum(run[name] for run in laps[0])

    def fastest(name):
        """Of all rounds, each in its fastest lap: others can only slow it down."""
        return sum(min(times) for runs in zip(*laps, strict=True)
                   for times in zip(*(run[name] for run in runs), strict=True))

    rounds = sum(len(run["seconds"]) for run in laps[0])
    return {"tokens_per_second": of("tokens") / fastest("seconds"),
            "laps": [of("tokens") / sum(sum(run["seconds"]) for run in lap) for lap in laps],
            "round_ms": 1e3 * fastest("seconds") / rounds,
            **{f"{part}_ms": 1e3 * fastest(part) / rounds for part in PARTS},
            "tau": of("tokens") / rounds / n,
            "accepted": of("accepted"), "tested": of("tested")}


def gains(found, ks=DRAFTS):
    """What drafts are worth: {readers: (times as many tokens as without, at how many drafts)}, at
    the best of these numbers that was timed. Every crowd writes the texts of the largest, so tau is
    of those.
    """
    return {n: max((found[max(found)][name]["tau"] * row[0]["round_ms"] / row[name]["round_ms"], k)
                   for k in ks if (name := COUNTED[k]) in row)
            for n, row in found.items()}


def load_sweeps(folder=MEASURED):
    """{name of the file: what was measured there}, as `sweep` has it."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        machine = json.loads(path.read_text(encoding="utf-8"))
        machine["table"] = {int(n): {int(k) if k.isdigit() else k: line for k, line in row.items()}
                            for n, row in machine["table"].items()}
        found[path.stem] = machine
    return found


def three_prices(found):
    """What a round costs: the milliseconds that are paid once, for each reader, for each of the
    table's drafts. Fitted to all crowds and K, each error as a part of its round."""
    cells = [([1, n, n * k], row[name]["round_ms"]) for n, row in found.items()
             for k, name in COUNTED.items() if name in row]
    parts, rounds = map(np.array, zip(*cells, strict=True))
    return np.linalg.lstsq(parts / rounds[:, None], np.ones(len(rounds)))[0].tolist()


def print_sweep(found):
    """A line for each cell."""
    print_table(["requests", "drafts", "tokens a second", "ms of a round", "tokens of a request"],
                [[n, name, f"{line['tokens_per_second']:.0f}", f"{line['round_ms']:.2f}",
                  f"{line['tau']:.2f}"] for n, row in found.items() for name, line in row.items()])
    print("the gain of drafts, and the best number of them:", gains(found))


def main(argv=None):
    p = cli.parser(__doc__, retrain=False)
    cli.target_flags(p)
    p.add_argument("--temperature", type=float, default=1.0, help="0 is greedy")
    p.add_argument("--laps", type=int, default=3, help="how often each cell has its turn")
    p.add_argument("--save", type=Path, help="write what was measured into this JSON file")
    args = p.parse_args(argv)
    if args.laps < 1:
        raise ValueError(f"laps is {args.laps}; it must be at least 1")
    sampler = Sampler(args.temperature)
    if args.save:
        cli.writable(args.save)
    dataset, device = cli.setup(args)
    target = for_decoding(get_gpt(args.size, dataset, device), args.precision)
    prompts = held_out_prompts(dataset, 2 * max(REQUESTS))
    begin = time.perf_counter()
    plain_ms = plain_loop_ms(target, prompts, sampler, args.laps)
    found = sweep(target, counted(dataset), prompts, sampler, laps=args.laps)
    setting = {"machine": machine(device), "precision": precision_of(target),
               "torch": torch.__version__, "temperature": args.temperature, "laps": args.laps,
               "plain_loop_ms": plain_ms,
               "prompt_tokens": len(prompts[0]), "seconds": round(time.perf_counter() - begin)}
    print(", ".join(f"{name} {value}" for name, value in setting.items()))
    print_sweep(found)
    if args.save:
        text = json.dumps({**setting, "table": found}, indent=1)
        write_whole(args.save, f"{text}\n".encode())


if __name__ == "__main__":
    cli.run(main)
