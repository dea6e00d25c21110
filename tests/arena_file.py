"""Judge one decoder in a process of its own, for arena.py: python tests/arena_file.py PATH

A line of standard output is a message, as grade_file.py has them, with these kinds:

    refused why                 the file is no entry
    stage                       the next part begins, and with it its time
    text pieces                 a text as [[letters, were they accepted drafts], ...]
    say line                    of the verdict
    end exact                   judged
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = map(str, [ROOT, ROOT / "tests", *ROOT.glob("0?_*")])

import contextlib
import copy
import io
import os
import time
import types

import torch

from grade_file import Post, Watch
from grading import generators, limit_memory, own_line, plain, shown, told
from merged_trees import accept_paths
from nanogpt.before import load_earlier
from nanogpt.bench import compare, cost_curve, interpolate, summarize, tau_uncertainty
from nanogpt.chapter import Loop, chapters, load
from nanogpt.data import load_dataset, untouched_prompts
from nanogpt.decoding import Context, collect, timed
from nanogpt.does_it_pay import load_contests, speedups, table_of
from nanogpt.exact import proofs
from nanogpt.exact.enumeration import EnumeratingDice, total_variation
from nanogpt.exact.slips import Lost, replaced
from nanogpt.exact.toy_models import GPTModel
from nanogpt.run import a_cast
from nanogpt.sampling import Dice, Sampler
from nanogpt.terminal import print_table
from nanogpt.three_numbers import DRAFT, gpu
from tree_attention import TreeDrafter, TreeGPT, multi_round, speculate, walk

MOST = 50_000  # sequences of draws of one case
NAMING = 40  # seconds of the processor for the search among the known slips
FAR = 6  # standard deviations: no right decoder is so far off, by chance, in a lifetime
# The same on the real models, where chance is known: of 40,000 times 1,536 letters that were drawn
# from the target's own p, with 33 statistics, one in 8,000 was so far off.
REAL = 5
ENOUGH = 5  # the variance of a count; of what is rarer, chance alone brings too many too often
NEAR = 0.2  # two logits; in bfloat16, one was up to .035 off between a long forward and short ones
PARTS = "rule", "drafter", "decode", "BUDGET", "PROOF"
LETTERS = "abcdefghijk"


CAPTION = """Tokens a round at T = 0 and 1; then the speed-up over plain decoding at T = 1, foretold
from c(N) and the price of a drafter's pass: measured now (here); recorded in nanogpt/measured, a
pass priced so that the chain of 4 there comes out; assumed (a large model, alone and with 32 users:
a bend of 300 rows, a pass for a tenth of a step). The repository's own are from the contest's file,
with the same drafter, each with its best budget there. The rule's own time is not in it."""


class Refused(Exception):
    """No entry. The text says why."""


class Failed(Exception):
    """It cannot be judged. The text says why."""


# ---------------------------------------------------------------- the entry


def drawn(m, budget, sampler, dice):
    """The taught drafter: children of the 57K GPT, drawn without replacement."""
    return TreeDrafter(TreeGPT(m.small), budget, sampler, dice)


def checked(rule):
    """The rule, its answers looked at: raises Failed unless they are a path and a token."""
    def judged(tree, target_probs, dice):
        result = rule(tree, target_probs, dice)
        if not isinstance(result, (tuple, list)) or len(result) != 2:
            raise Failed(f"the rule gave {shown(plain(result))}; it must give a path and a token")
        path, token = result
        parents, n = tree.parents.tolist(), target_probs.shape[-1]
        steps = zip(path[1:], path, strict=False)
        if not (path and path[0] == 0
                and all(0 < row < len(tree) and parents[row] == above for row, above in steps)):
            raise Failed(f"the rule gave the path {list(path)} in a tree with parents {parents}; "
                         "it must start with row 0 and go from a parent to its child")
        if not 0 <= token < n:
            raise Failed(f"the rule gave the token {token}; it must be in 0..{n - 1}")
        return path, token

    return judged


def read(path):
    """-> the Loop of a file, and which parts are its own. Raises Refused."""
    module = types.ModuleType(f"entry {path.stem}")  # random.py must not hide Python's own
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    try:
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), module.__dict__)
    except BaseException as error:
        raise Refused(f"it does not run: {told(error)}{own_line(error, path)}") from None
    own = {name: vars(module)[name] for name in PARTS if name in vars(module)}
    if not own:
        raise Refused(f"it has none of {', '.join(PARTS)}")
    for name in ("rule", "drafter", "decode"):
        if name in own and not callable(own[name]):
            raise Refused(f"{name} is {own[name]!r}; it must be a function")
    budget = own.get("BUDGET", (2, 2, 1, 1))
    proof = own.get("PROOF") or small_budgets(budget)
    if not isinstance(proof, (tuple, list)) or {*map(type, proof)} != {type(budget)}:
        raise Refused(f"PROOF is {proof!r}; it must hold budgets of BUDGET's kind, as ((2,), "
                      "(2, 1)) or (1, 2)")
    for given in (budget, *proof):
        numbers = given if isinstance(given, tuple) else (given,)
        if not (numbers and all(type(n) is int and 1 <= n <= 63 for n in numbers)):
            raise Refused(f"a budget is {given!r}; it must be a number in 1..63, or a tuple")
    if isinstance(budget, int) and "drafter" not in own:
        raise Refused(f"BUDGET is {budget}; the taught drafter takes a tuple, as (2, 2, 1, 1)")
    rule = checked(own["rule"]) if "rule" in own else walk if "drafter" in own else multi_round
    name = path.stem.replace("{", "{{").replace("}", "}}")
    return Loop(name + " {}", own.get("drafter", drawn), own.get("decode", speculate), rule,
                budgets=(budget,), proof=proof), own


def small_budgets(budget):
    """Of its kind, for the enumeration; the last one is as deep as it, from 3 to 6."""
    if isinstance(budget, int):
        return 1, 2, 3, 4
    return (2,), (3,), (2, 1), (1,) * min(max(len(budget), 3), 6)


# ---------------------------------------------------------------- does all chance come by the Dice?


def check_chance(loop, known=None):
    """Raises Failed if the same Dice gives two texts, or another generator was asked, or a Step
    is not one forward -> the texts.

    known: those of an earlier time.
    """
    m, (budget,) = proofs.random_cast(), loop.budgets

    def texts():
        return [one_forward_a_step(loop.steps(m, budget, [1, 2, 3], Sampler(1), Dice(seed)))
                for seed in range(4)]

    texts()  # the models are made
    before, first, after = generators(), texts(), generators()
    asked = [name for name in before if before[name] != after[name]]
    if asked or first != texts() or known not in (None, first):
        how = f"it asks {asked[0]} for chance" if asked else "the same Dice gave two texts"
        raise Failed(f"it draws past the Dice: {how}. The enumeration follows dice.draw(probs) and "
                     "dice.flip(p) alone, so nothing can be said of its text")
    return first


def one_forward_a_step(steps):
    """-> 40 tokens. Raises Failed unless each Step is one forward: tokens a round are those of a
    Step, and what lies before and behind its forward is the drafter's time."""
    forwards, verify = [], Context.verify

    def counted(*args, **more):
        forwards.append(1)
        return verify(*args, **more)

    with replaced(Context, verify=counted):
        text = collect(steps, 40)
    if len(forwards) != len(text.steps):
        raise Failed(f"its decode asked Context.verify {len(forwards)} times in {len(text.steps)} "
                     "Steps; it must yield a Step for each forward")
    return text.tokens


# ---------------------------------------------------------------- is it exact?


class Watched:
    """A loop for proofs.laws: how many tokens it wrote under every sequence of draws. Raises Failed
    if there are more than MOST."""

    def __init__(self, loop):
        self.loop, self.seen = loop, []

    def steps(self, m, budget, prompt, sampler, dice):
        found = [dice, 0]
        self.seen.append(found)
        if len(self.seen) > MOST:
            raise Failed(f"it has more than {MOST:,} sequences of draws on the smallest models; "
                         "PROOF = ((2,), (2, 1)), or smaller, says which budgets to enumerate")
        for step in self.loop.steps(m, budget, prompt, sampler, dice):
            found[1] += len(step.tokens)
            yield step

    def tokens(self):
        """On average."""
        return sum(dice.probability * n for dice, n in self.seen)


def laws(loop, budget, sampler, **facts):
    """proofs.laws -> the two distributions, and a Watched. Raises Failed."""
    watched = Watched(loop)
    try:
        written, wanted = proofs.laws(watched, budget, sampler, **facts)
    except AttributeError as error:
        if not isinstance(error.obj, EnumeratingDice):
            raise
        raise Failed(f"it asks dice.{error.name} for chance; only dice.draw(probs) and "
                     "dice.flip(p) can be enumerated") from None
    if abs(sum(written.values()) - 1) > 1e-9:
        raise Failed(f"its texts have {sum(written.values()):.3f} of probability in all: a coin "
                     "fell with more than 1 or less than 0, or a draw had negative weights")
    return written, wanted, watched


def shortest(written, wanted):
    """The shortest text that comes out wrong, and of these the worst -> text, share, share."""
    for n in range(1, len(next(iter(wanted))) + 1):
        shares = {}
        for column, law in enumerate((written, wanted)):
            for tokens, p in law.items():
                shares.setdefault(tokens[:n], [0.0, 0.0])[column] += p
        worst = max(shares, key=lambda text: abs(shares[text][0] - shares[text][1]))
        if abs(shares[worst][0] - shares[worst][1]) > 1e-12:
            return "".join(LETTERS[t] for t in worst), *shares[worst]
    raise AssertionError


class Tied(Sampler):
    """Rounds the logits, so that many probabilities are equal."""

    def __call__(self, logits):
        return super().__call__(logits.round())


def cases(loop):
    """What is enumerated -> a list of (budget, sampler, facts): what every loop must hold, and
    cases in which something went wrong that was right in those."""
    small, large = loop.proof[0], loop.proof[-1]
    depth = min(large if isinstance(large, int) else len(large), 6)
    return [*proofs.cases(loop),
            # The token behind the deepest draft; p and q have zeros.
            (large, Sampler(1, top_k=2), dict(vocab=3, length=depth + 2, seed=6)),
            (small, Sampler(1), dict(vocab=4, length=3)),
            (small, Tied(1), dict(vocab=3, seed=6)),
            (small, Sampler(1), dict(rounds=3, length=4, seed=4)),
            (small, Sampler(1), dict(rounds=2, prompt=(0, 1, 1, 0, 1, 0, 0), window=8))]


def listed(values):
    """2, 3, 4"""
    return ", ".join(f"{value:g}" for value in sorted(set(values)))


def exactness(loop, say, stage):
    """Print what the enumeration says -> the largest total variation, 1 if only a sample is off."""
    worst, wrong, count, visited = 0.0, None, 0, cases(loop)
    for budget, sampler, facts in visited:
        stage()
        written, wanted, watched = laws(loop, budget, sampler, **facts)
        count, found = count + len(watched.seen), total_variation(written, wanted)
        worst = max(worst, found)
        if found > 1e-12:
            text = shortest(written, wanted)
            if wrong is None or len(text[0]) < len(wrong[0]):
                wrong = *text, f"{loop.title(budget)}, T = {sampler.temperature:g}"
    if wrong is None:
        return worst if looks_right(loop, say, stage, worst, visited, count) else 1.0
    text, got, due, where = wrong
    say(f"NOT EXACT: total variation up to {worst:.1g}, in {len(visited)} cases with {count:,} "
        "sequences of draws")
    say(f"  the shortest wrong text: '{text}' comes out with {got:.3f}, the target has {due:.3f} "
        f"({where})")
    if worst < 1e-6:
        say("  That small, it may be rounding: compute in the numbers of target_probs (float64).")
    return worst


def looks_right(loop, say, stage, worst, visited, count):
    """Where nothing is wrong in the cases: look at longer texts, by the loop's own budget, and
    print the verdict -> is it right?"""
    (budget,) = loop.budgets
    begin = "NOT EXACT: right wherever all sequences of draws were visited; "
    stage()
    mine, plain = proofs.greedy_texts(loop, budget)
    if mine != plain:
        say(f"{begin}but of 45 tokens at temperature 0, over two windows, some are not plain "
            "decoding's")
        return False
    off, tokens = sample(loop, stage)
    if off > FAR:
        say(f"{begin}but with the budget {budget}, of {tokens:,} tokens that were drawn, some come "
            f"too often, by {off:.0f} standard deviations")
        return False
    facts = [facts for *_, facts in visited]
    say(f"EXACT: total variation {worst:.0e} at most, in {len(visited)} cases with {count:,} "
        "sequences of draws")
    say(f"  visited: budgets {', '.join(map(str, loop.proof))}; vocabularies of "
        f"{listed(case.get('vocab', 2) for case in facts)}; "
        f"{listed(case.get('rounds', 1) for case in facts)} rounds; T = "
        f"{listed(sampler.temperature for _, sampler, _ in visited)}; zeros, ties, a window that "
        "slides")
    say(f"  the budget {budget} itself: {tokens:,} tokens of 11 kinds were drawn, and none comes "
        f"too often ({off:.1f} standard deviations at most). A rare slip can hide there")
    return True


def nearly(model):
    """A drafter that is nearly the target, so that deep drafts are accepted."""
    near, chance = copy.deepcopy(model), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in near.parameters():
            weight += 0.03 * torch.randn(weight.shape, generator=chance, dtype=weight.dtype)
    return near


def deviations(seen):
    """How often did each token come, the target's favourite, the token before once more, one
    outside the 12 likeliest; and how probable were they?

    seen: (p (V,), the token before, the token), .. -> standard deviations from what the target
    says (V + 4,), in this order; 0 where the variance is not ENOUGH.
    """
    off = variance = 0.0
    for p, before, token in seen:
        unit, rank = torch.eye(len(p), dtype=p.dtype), p.argsort(descending=True).argsort()
        counted = torch.cat([unit, unit[[int(p.argmax()), before]], (rank >= 12)[None],
                             p.log()[None]])
        mean = counted @ p
        off += counted[:, token] - mean
        variance += counted**2 @ p - mean**2
    return torch.where(variance < ENOUGH, 0.0, off / variance.sqrt())


def sample(loop, stage, texts=16, length=48):
    """Texts with the real Dice, beside a poor and a good drafter -> the worst of `deviations`; how
    many tokens."""
    worst, (budget,) = 0.0, loop.budgets
    for good in (False, True):
        m, seen = proofs.random_cast(), []
        if good:
            m.small = nearly(m.target)
        model = GPTModel(m.target)
        for seed in range(texts):
            stage()
            text = [1, 2, 3]
            steps = loop.steps(m, budget, [*text], Sampler(1), Dice(seed))
            for token in collect(steps, length).tokens:
                seen.append((torch.softmax(model.logits(text), -1), text[-1], token))
                text.append(token)
        worst = max(worst, float(deviations(seen).abs().max()))
    return worst, 2 * texts * length


@torch.inference_mode()
def on_real_texts(m, prompts, warm, cold):
    """Are these the target's texts, as far as a sample can tell? warm, cold: a Generation for each
    prompt, T = 1 and 0 -> yes or no; a sentence."""
    def logits(prompt, tokens):  # one forward: (tokens, V)
        return m.target(torch.tensor([prompt + tokens]))[0][0, len(prompt) - 1:-1].double()

    seen, apart = [], 0
    for prompt, drawn, best in zip(prompts, warm, cold, strict=True):
        probs = torch.softmax(logits(prompt, drawn.tokens), -1)
        seen += zip(probs, [prompt[-1], *drawn.tokens[:-1]], drawn.tokens, strict=True)
        values = logits(prompt, best.tokens)
        chosen = values.gather(1, torch.tensor(best.tokens)[:, None])
        apart += int((values > chosen + NEAR).any(1).sum())
    off = deviations(seen)
    worst = int(off.abs().argmax())
    far = float(off[worst])
    letters = [repr(m.dataset.tokenizer.decode([token])) for token in range(len(off) - 4)]
    name = [*letters, "the target's favourite", "the letter before, again,",
            "a letter outside the 12 likeliest", "the log-probability"][worst]
    return abs(far) <= REAL and not apart, (
        f"of {len(seen):,} letters of the real models at T = 1, {name} is off the most, by "
        f"{far:+.1f} standard deviations; of as many at T = 0, {apart} are not plain decoding's")


# ---------------------------------------------------------------- is it a known slip?


@contextlib.contextmanager
def planted(loop, slips, sentence):
    """Inside `with`: the loop with this slip, which stands wherever the function was imported."""
    name, slip = slips.right.__name__, slips[sentence]
    with contextlib.ExitStack() as stack:
        stack.enter_context(slips.standing(sentence))
        for module in list(sys.modules.values()):
            if vars(module).get(name) is slips.right and module is not slips.owner():
                stack.enter_context(replaced(module, **{name: slip}))
        yield loop.but(**{part: slip for part in ("rule", "decode")
                          if getattr(loop, part) is slips.right})


def relatives(loop, own, k):
    """Taught decoders like this one, to plant slips in -> (where they are alike, Loop, its budget,
    the entry's budget)."""
    small = loop.proof[0]
    for rule in (multi_round, walk) if "rule" in own else [loop.rule]:
        yield "", loop.but(rule=rule, decode=speculate), small, small
    if {"drafter", "decode"} <= set(own) and isinstance(small, tuple):
        yield "", loop.but(drafter=drawn, rule=multi_round, decode=speculate), small, small
    for number in ("01", "06"):  # as a chain it stands beside chapter 01's, and under block rules
        chain = next(loop for loop in load(number).loops if loop.decode is not speculate)
        yield " on chains", chain, k, (1,) * k if isinstance(small, tuple) else k
    if {"rule", "drafter"} <= set(own):  # these want drafts of another kind
        for rule in (*load("06").room.RULES.values(), accept_paths):
            yield "", loop.but(rule=rule, decode=speculate), small, small


def candidates(base, own):
    """Known slips that can stand in a taught decoder -> (sentence, Slips)."""
    for chapter in chapters():
        for name, slips in chapter.wrong.items():
            if name in ("commit", "ancestor_mask") and "decode" not in own:
                continue
            if base.rule is slips.right or proofs.stands_in(slips.right, base):
                yield from ((sentence, slips) for sentence in slips
                            if not isinstance(slips[sentence], Lost))


def known_slip(loop, own, stage=lambda: None):
    """'.. : the slip', or '' if it behaves like no known one, as far as there was time to look."""
    end, known = time.process_time() + NAMING, {}

    def law(of, budget):
        """Of a decoder -> what it writes, what the target would."""
        stage()
        return laws(of, budget, **facts)[:2]

    def alike(base, at):
        return total_variation(mine, law(base, at)[0]) < 1e-9

    # Two rounds show what was committed.
    for k, facts in ((2, dict(sampler=Sampler(1), vocab=3)),
                     (1, dict(sampler=Sampler(0.9), rounds=2, seed=3))):
        for where, base, at, budget in relatives(loop, own, k):
            case = budget, *facts
            with contextlib.suppress(Exception):
                known[case] = mine, wanted = known.get(case) or law(loop, budget)
                if total_variation(mine, wanted) < 1e-9:
                    continue
                if total_variation(*law(base, at)) > 1e-9:  # such drafts are not this rule's
                    continue
                with contextlib.suppress(Exception):  # such trees are not this rule's
                    if not where and alike(base.but(rule=load("02").room.independent_coins), at):
                        return (": each node gets a coin of its own, and the longest path wins "
                                "(chapter 02)")
                for sentence, slips in candidates(base, own):
                    if time.process_time() > end:
                        return ""
                    with contextlib.suppress(Exception), planted(base, slips, sentence) as wrong:
                        if alike(wrong, at):
                            return f"{where}, in {slips.right.__name__}: {sentence}"
    return ""


# ---------------------------------------------------------------- does it pay?


def chain_price(curve, chain, k=4):
    """-> the price of a drafter's pass in plain steps with which a recorded chain of k costs what
    it did; c(N), in plain steps. curve: [[N, ms]]; chain: its round, in plain steps."""
    steps = {n: ms / curve[0][1] for n, ms in curve}
    return max((chain - interpolate(steps, k + 1)) / k, 0), lambda rows: interpolate(steps, rows)


def machines(m):
    """{name: (price of a pass of the 57K GPT in plain steps, c(rows) in plain steps)}."""
    curve, small = (cost_curve(model, repeats=15) for model in (m.target, m.small))
    found = {"here": (small[1] / curve[1], lambda rows: interpolate(curve, rows) / curve[1])}
    for name, contest in load_contests().items():
        if "1" in contest["tables"]:
            found[name] = chain_price(contest["tables"]["1"]["curve"],
                                      speedups(contest, 1)["01 chain of 4, 57K GPT"][1])
    for name, run in load_earlier().items():
        table = run["tables"]["T = 1"]
        if name not in ("cpu", *found):  # the contest has this CPU in its own file
            found[name] = chain_price(run["curve"], table["01 chain of 4, p/q"]["round_ms"]
                                      / table["plain"]["round_ms"])
    return found | {"7B": (DRAFT, gpu()), "7B, 32 users": (DRAFT, gpu(32))}


def foretold(line, prices):
    """Tokens a round over its price: drafter's passes, and one forward -> one for each machine."""
    return [line["tau"] / (line["passes"] * draft + c(1 + line["drafts"]))
            for draft, c in prices.values()]


def taught_ones(prices):
    """The repository's loops with the same drafter, from the contest's file, each with its best
    budget there -> {name: line}."""
    [(machine, found), *_] = [(name, found) for name, found in load_contests().items()
                              if {"0", "1"} <= set(found["tables"])]
    warm, cold, best = speedups(found, 1), speedups(found, 0), {}
    for name, line in table_of(found, 1).items():
        if line["family"] != "57K GPT":
            continue
        budget = line["budget"]
        mine = {"tau": warm[name][0], "cold": cold[name][0] if name in cold else None,
                "passes": len(budget) if isinstance(budget, list) else budget,
                "drafts": line["drafts"], "name": name}
        worth = foretold(mine, {machine: prices[machine]})
        best[line["loop"]] = max(best.get(line["loop"], ([0],)), (worth, mine), key=lambda x: x[0])
    return {mine["name"]: mine for _, mine in best.values()}


def pieces(tokenizer, text):
    """A Generation -> [[letters, were they accepted drafts], ..]"""
    found = [[text.tokens[:1], False]]  # the prefill's
    for step in text.steps:
        found += [[step.tokens[:-1], True], [step.tokens[-1:], False]]
    return [[tokenizer.decode(tokens), accepted] for tokens, accepted in found]


def passes_of(m, loop, decode):
    """How many passes of the 57K GPT a round costs: those that are made; or as many as take the
    drafter's time, less these, if that is more. decode(loop, prompt) -> Generation."""
    calls, prompt = [], m.dataset.val[:64].tolist()
    hook = m.small.register_forward_hook(lambda *_: calls.append(1))
    text = decode(loop, prompt)
    hook.remove()
    passes, chain = len(calls) / len(text.steps), load("01").loops[0].but(budgets=(4,))
    # In turn: a slow moment of the machine hits both. What a drafter does in observe is in commit.
    turns = [[decode(x, prompt) for x in (loop, chain)] for _ in range(3)]
    mine, theirs = (summarize(texts)["verb_ms"] for texts in zip(*turns, strict=True))
    taken = 4 * (mine["draft"] + mine["commit"]) / (theirs["draft"] + theirs["commit"])
    # Chapter 02's trees take 1.3 to 2 times their passes' time, in Python. What takes longer does
    # other work, and no pass that is made beside it makes that cheaper.
    return max(passes, taken - passes)


def on_real_models(loop, post, stage):
    """Send a text, and what the entry brings -> its line, the machines' prices, on_real_texts."""
    dataset, lines = load_dataset(), {}
    m, prompts = a_cast(dataset, torch.device("cpu")), untouched_prompts(dataset, 24)

    def steps(loop, prompt, T, seed):
        stage()  # each text has its time
        return loop.steps(m, *loop.budgets, prompt, Sampler(T), Dice(seed))

    begin = steps(loop, dataset.tokenizer.encode("ROMEO:\n"), 1, 1)
    post.send("text", [["ROMEO:\n", False], *pieces(dataset.tokenizer, collect(begin, 240))])
    for T in (0, 1):  # the contest's prompts and seeds
        [lines[T]] = compare({"": lambda prompt, seed, T=T: steps(loop, prompt, T, seed)},
                             prompts, 64).values()
    warm, cold = summarize(lines[1]), summarize(lines[0])
    post.send("say", f"tokens a round: {warm['tau']:.2f} +- {tau_uncertainty(lines[1]):.2f} at "
              f"T = 1, {cold['tau']:.2f} +- {tau_uncertainty(lines[0]):.2f} at T = 0, on 24 "
              f"prompts; the rule takes {warm['verb_ms']['accept']:.2f} ms a round")
    stage()
    right = on_real_texts(m, prompts, lines[1], lines[0])
    stage()
    passes = passes_of(m, loop, lambda loop, prompt: collect(timed(steps(loop, prompt, 1, 0)), 64))
    return {"tau": warm["tau"], "cold": cold["tau"], "drafts": warm["drafted"],
            "passes": passes}, machines(m), right


def ranking(name, mine, prices):
    """The table of everything exact -> its lines. The entry's begins with >."""
    lines = {**taught_ones(prices), f"> {name}": mine}
    ranked = sorted(lines, key=lambda n: -foretold(lines[n], prices)[1])
    with contextlib.redirect_stdout(io.StringIO()) as out:
        print_table(["exact, T = 1", "drafts", "T = 0", "T = 1", *prices], [
            [n, f"{lines[n]['drafts']:.0f}",
             f"{lines[n]['cold']:.2f}" if lines[n]["cold"] else "-", f"{lines[n]['tau']:.2f}",
             *(f"{x:.2f}x" for x in foretold(lines[n], prices))] for n in ranked])
    return out.getvalue().rstrip("\n").split("\n")


# ---------------------------------------------------------------- one after the other


def examine(loop, say, stage):
    """Is its chance all by the Dice, before and after; is it exact? -> see exactness."""
    chance = stage("asking whether all chance comes by the Dice")
    chance()
    texts = check_chance(loop)
    worst = exactness(loop, say, stage("visiting all sequences of draws"))
    chance()
    check_chance(loop, texts)
    return worst


def judge(path, post, watch):
    """Send all that is said of a file -> is it exact?"""
    def say(line):
        post.send("say", line)

    def stage(what):
        def begin():
            post.send("stage")
            watch.doing(what)

        return begin

    stage("running the file")()
    loop, own = read(path)
    say(f"its own: {', '.join(own)}; the rest is the taught one's")
    verdict = []  # where it is exact, it is said last: the real texts have a word in it
    exact = examine(loop, verdict.append, stage) < 1e-12
    if not exact:
        for line in verdict:
            say(line)
        if slip := known_slip(loop, own, stage("looking among the known slips")):
            say(f"  It behaves exactly like a known slip{slip}")
    mine, prices, (right, seen) = on_real_models(loop, post, stage("decoding with the real models"))
    if exact and not right:
        say(f"NOT EXACT: right wherever all sequences of draws were visited; but {seen}")
    elif exact:
        for line in [*verdict, f"  {seen}", "", *ranking(loop.title(*loop.budgets), mine, prices),
                     "", *CAPTION.split("\n")]:
            say(line)
    return exact and right


def main(path):
    post, path = Post(), Path(path)
    watch = Watch(post, path)
    post.send("stage")
    post.open_streams()
    watch.start()
    limit_memory()
    try:
        post.send("end", judge(path, post, watch))
    except Refused as why:
        post.send("refused", str(why))
    except BaseException as error:
        why = f"it crashes: {told(error)}{own_line(error, path)}"
        post.send("failed", str(error) if isinstance(error, Failed) else why)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
