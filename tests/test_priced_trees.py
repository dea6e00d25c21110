"""Trees by price: the best size for a price, nothing lost, and the price is learned from rounds."""

from itertools import islice

import numpy as np
import pytest
import torch

import ddtree_room
from conditional_marginals import ConditionalTreeDrafter
from ddtree import DDTreeDrafter, best_first, marginal_children
from nanogpt.bench import agreement
from nanogpt.decoding import collect
from nanogpt.exact import proofs
from nanogpt.exact.slips import replaced, wrong_variants
from nanogpt.exact.toy_models import ToyDraft, ToyModel, loop_bias
from nanogpt.sampling import Dice, Sampler
from priced_trees import (
    Ledger,
    PricedChainDrafter,
    PricedTreeDrafter,
    prices,
    slopes,
    worth_verifying,
)
from test_ddtree import prefixes
from tree_attention import TreeDrafter, multi_round, speculate

WRONG = ddtree_room.WRONG

# ---------------------------------------------------------------- how many nodes


def check_best(worth):
    """On small cases, ties and steps among them, the choice is the maximum of the objective."""
    for seed in range(300):
        random = np.random.default_rng(seed)
        masses = sorted(random.integers(0, 9, random.integers(0, 6)) / 8, reverse=True)
        price = random.integers(1, 9, random.integers(2, 7)) / 4  # eighths and quarters are exact
        price = price if seed % 3 else np.sort(price)
        rate, trust = random.choice([0.25, 0.5, 1.0]), random.choice([0.5, 1.0, 2.0])
        nodes = [(token, token - 1, mass) for token, mass in enumerate(masses)]
        gains = [trust * sum(masses[:n]) - rate * price[n]
                 for n in range(min(len(masses), len(price) - 1) + 1)]
        assert worth(iter(nodes), price, slopes(price), rate, trust) == nodes[:np.argmax(gains)]


def test_the_choice_is_the_best_by_brute_force():
    check_best(worth_verifying)


@pytest.mark.parametrize("name, sentence", wrong_variants(WRONG, "worth_verifying"))
def test_wrong_choices_are_caught(name, sentence):
    with pytest.raises(AssertionError):
        check_best(WRONG[name][sentence])


@pytest.mark.parametrize("curve, log_probs, chosen", [
    ({1: 2.0, 64: 2.0}, [[0.5, 0.5]] * 4, 30),  # rows are free: up to the heap's end
    ({1: 2.0, 8: 2.0, 9: 99.0}, [[0.5, 0.5]] * 4, 7),  # and up to the wall
    ({1: 2.0, 41: 74.0}, [[0.95, 0.05]] * 4, 2),  # steep: a chain, ...
    ({1: 2.0, 41: 86.0}, [[0.95, 0.05]] * 4, 0),  # ... or nothing
    ({1: 2.0, 41: 22.0}, [[0.6, 0.4]], 2), ({1: 2.0, 41: 22.0}, [], 0)])  # one slot; no slot
def test_the_price_of_a_row_decides(curve, log_probs, chosen):
    nodes = best_first(0, marginal_children(torch.tensor(log_probs).reshape(-1, 2).log()))
    price = prices(curve, 40)
    assert len(worth_verifying(nodes, price, slopes(price), rate=0.5)) == chosen


def test_prices_never_fall():
    assert prices({1: 3.0, 2: 2.0, 4: 6.0, 5: 5.0}, 5) == [2, 2, 4, 5, 5, 5]


# ---------------------------------------------------------------- losslessness


def bias_and_lengths(draft, sampler):
    """The bias of two rounds of drawn chains, and the lengths that they had."""
    lengths = set()

    def start(target, dice):
        chain = TreeDrafter(ToyDraft(ToyModel(4, 2)), (1, 1), sampler, dice)
        # At these prices the second round has one draft or two, by the luck of the first.
        drafter = PricedChainDrafter(chain, Ledger([1, 1.15, 1.4], 0, trust=0.6, clock=None))
        for step in speculate(target, drafter, [0, 1], sampler, dice, multi_round):
            if step.detail is not None:  # not the prefill
                lengths.add(step.drafted)
            yield step

    with replaced(PricedChainDrafter, draft=draft):
        return loop_bias(start, sampler, rounds=2, model=ToyModel(5, 2)), lengths


@pytest.mark.parametrize("sampler", [Sampler(1), Sampler(0.6)], ids=str)
def test_drawn_chains_by_price_lose_nothing(sampler):
    bias, lengths = bias_and_lengths(PricedChainDrafter.draft, sampler)
    assert bias < 1e-12 and len(lengths) > 1  # the second's length depends on the first's luck


@pytest.mark.parametrize("name, sentence", wrong_variants(WRONG, "draft"))
def test_a_chain_cut_before_a_draft_is_biased_and_behind_it_is_not(name, sentence):
    assert bias_and_lengths(WRONG[name][sentence], Sampler(1))[0] > 0.05
    assert bias_and_lengths(ddtree_room.cut_chain(1), Sampler(1))[0] < 1e-12


# ---------------------------------------------------------------- a made-up machine


SIZES = (1, 3, 7, 15, 31, 63)


class Machine:
    """Guesses at a text that does not exist, and a clock on which only rounds take time.

    plain_ms: of a round without drafts; ms(nodes): of one with a pass. noise: the spread of their
    logarithms; with it one round in 200 waits for 20 ms. slow(ms so far): a factor.
    """

    def __init__(self, plain_ms, ms, noise=0.0, slow=lambda now: 1.0, sure=3.0, seed=1):
        self.plain_ms, self.ms, self.noise, self.slow, self.sure = plain_ms, ms, noise, slow, sure
        self.random, self.now, self.passes = np.random.default_rng(seed), 0.0, 0

    def clock(self):
        return self.now / 1e3

    def reset(self):
        pass

    def observe(self, tokens, hidden, rows):
        pass

    def guess(self):
        """-> five marginals, (5, 12), of which some are surer than others."""
        logits = self.random.normal(size=(5, 12)) * self.random.exponential(self.sure)
        return torch.tensor(logits).log_softmax(-1)

    def children(self, root, room):
        self.passes += 1
        marginals = self.guess()
        self.text = [int(self.random.choice(12, p=q)) for q in marginals.exp().numpy()]
        return marginal_children(marginals, 63)

    def best_fixed(self):
        """Tokens per millisecond of plain decoding or the best tree of one size, on average."""
        nodes = [list(islice(best_first(0, marginal_children(self.guess(), 63)), 63))
                 for _ in range(300)]
        worth = {n: 1 + np.mean([sum(mass for _, _, mass in tree[:n]) for tree in nodes])
                 for n in SIZES}
        return max(1 / self.plain_ms, *(worth[n] / self.ms(n) for n in SIZES))

    def play(self, ledger, tokens=1000):
        """-> tokens per millisecond, and the share of rounds with a pass."""
        drafter = PricedTreeDrafter(self, ledger)
        drafter.reset()
        drafter.observe([0], None, [0])  # the prefill
        worth, ms, rounds = 0.0, 0.0, 0
        while worth < tokens:
            tree = drafter.propose(0, 9)
            drafting, nodes, expected = drafter.round
            took = self.ms(nodes) if drafting else self.plain_ms
            ms, rounds = ms + took, rounds + 1
            hiccup = 20 * (self.random.random() < 0.005) if self.noise else 0
            self.now += (took * np.exp(self.random.normal(scale=self.noise)) + hiccup) * self.slow(
                self.now)
            rows = [0] * (1 + (agreement(tree, self.text) if drafting else 0))
            worth += 1 + expected  # as the masses promise it: luck would only blur the result
            drafter.observe(rows, None, rows)
            self.now += 9  # the others' turn
        return worth / ms, self.passes / rounds


def line(first, slope):
    """Prices of 0..63 nodes."""
    return [first + slope * n for n in range(64)]


CPU = prices({1: 2.2, 2: 2.6, 4: 2.8, 8: 3.4, 16: 4.2, 32: 6.2, 64: 10.2}, 63)
JUMP = prices({1: 2.2, 2: 4.0, 4: 4.1, 8: 4.4, 16: 5.5, 64: 14.0}, 63)  # one row is special
# name: milliseconds without drafts, with n nodes, and what was guessed: prices, a pass
MACHINES = {
    "CPU": (2.2, lambda n: 1.2 + CPU[n], CPU, 0.9),
    "CPU, its first row measured badly": (2.2, lambda n: 1.2 + CPU[n], [2.8, *line(2.2, 0.1)], 0.6),
    "c(2) jumps": (2.2, lambda n: 1.0 + JUMP[n], JUMP, 0.7),
    "c(2) jumps, unknown": (2.2, lambda n: 1.8 + JUMP[n], line(2.2, 0.12), 0.6),
    "all twice as slow as guessed": (4.4, lambda n: 2.4 + 2 * CPU[n], CPU, 0.9),
    "rows are nearly free": (0.6, lambda n: 1.2 + 0.005 * n, line(0.6, 0.004), 0.5),
    "rows are nearly free, a pass is dear": (0.6, lambda n: 4 + 0.005 * n, line(0.6, 0.004), 0.5),
    "rows are dear": (2.2, lambda n: 3.7 + 1.2 * n, line(2.2, 1.2), 1.0),
}


def played(name, **how):
    """Speed over that of the best fixed size, plain decoding among them; share of passes."""
    plain_ms, ms, guess, draft_ms = MACHINES[name]
    machine = Machine(plain_ms, ms, **how)
    speed, passes = machine.play(Ledger(guess, draft_ms, clock=machine.clock))
    return speed / machine.best_fixed(), passes


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("sure", [3.0, 1.0])
def test_the_best_fixed_size_is_found_on_any_machine(name, sure):
    """Or passed, for each round has its own size. On average over two texts, on a quiet machine,
    a noisy one, and one that is slower for three seconds, then faster."""
    ways = {}, {"noise": 0.15}, {"slow": lambda now: 1.6 if now // 3000 % 2 else 1.0}
    found = [played(name, sure=sure, seed=seed, **how)[0] for how in ways for seed in range(2)]
    assert np.mean(found) > 0.97


@pytest.mark.parametrize("name", ["rows are nearly free, a pass is dear", "rows are dear"])
def test_it_ends_at_plain_decoding_where_drafts_lose(name):
    speed, passes = played(name, sure=1.0)
    assert speed > 0.975 and 0 < passes < 0.02


# ---------------------------------------------------------------- what a ledger learns, by hand


class Clock:
    """Seconds, as they are set."""

    now = 0.0

    def __call__(self):
        return self.now


def noted(ledger, clock, rounds):
    """The ledger after these rounds: drafting, nodes, expected, tokens, milliseconds."""
    for *kind, ms in rounds:
        ledger.begin()
        clock.now += ms / 1e3
        ledger.note(*kind)
        clock.now += 1
    return ledger


def new_ledger(price=(1, 2, 3, 4), draft_ms=1.0, **how):
    clock = Clock()
    return Ledger(list(price), draft_ms, clock=clock, **how), clock


def test_what_a_round_takes_is_learned_from_rounds():
    """Guessed 1 + price; true 2 + 1.5 * price, and 3 ms without drafts."""
    ledger = noted(*new_ledger(), 99 * [(True, n, 1.0, 2, 3.5 + 1.5 * n) for n in (0, 1, 3)])
    noted(ledger, ledger.clock, 99 * [(False, 0, 0.0, 1, 3)])
    for n in range(4):
        assert ledger.expected_ms(True, n) == pytest.approx(3.5 + 1.5 * n, rel=0.05)
    assert ledger.expected_ms(False, 0) == pytest.approx(3, rel=0.02)
    assert ledger.rate == pytest.approx(2 / (3.5 + 2), rel=0.02)
    # More rows are never cheaper, and no round with a pass is cheaper than one without.
    assert noted(*new_ledger(), 99 * [(True, n, 1.0, 2, 2 - n / 2) for n in (0, 3)]).scale == 0
    assert noted(*new_ledger(), 99 * [(True, 1, 1.0, 2, 0.5)]).expected_ms(True, 1) == 1
    assert noted(*new_ledger(), 99 * [(True, 1, 1.0, 2, 9)]).rate == 1  # plain decoding's
    # One size alone tells the level; what a row costs stays a guess.
    ledger = noted(*new_ledger(), 3000 * [(True, 2, 1.0, 2, 6)])
    assert ledger.expected_ms(True, 2) == pytest.approx(6, rel=0.02) and 1 < ledger.scale < 1.7


def test_half_of_what_is_remembered_is_34_rounds_old():
    ledger = noted(*new_ledger(), 400 * [(True, 1, 1.0, 2, 4), (False, 0, 0.0, 1, 2)])
    assert ledger.trust == pytest.approx(1) and ledger.plain_ms == pytest.approx(2, rel=0.01)
    noted(ledger, ledger.clock, 34 * [(True, 1, 1.0, 1, 6), (False, 0, 0.0, 1, 3)])
    assert ledger.trust == pytest.approx(0.5, abs=0.02)
    assert ledger.plain_ms == pytest.approx(2.5, rel=0.02)
    assert ledger.expected_ms(True, 1) == pytest.approx(5, rel=0.04)
    before = ledger.trust  # rounds with nothing to offer say nothing of it
    noted(ledger, ledger.clock, 99 * [(True, 0, 0.0, 1, 6)] + [(True, 1, 1.0, 2, 6)])
    assert ledger.trust - before == pytest.approx(0.01, abs=0.005)


def test_a_hiccup_counts_as_twice_the_usual():
    ledger = noted(*new_ledger(), 100 * [(True, 1, 1.0, 2, 4), (False, 0, 0.0, 1, 2)])
    noted(ledger, ledger.clock, [(True, 1, 1.0, 2, 4000), (False, 0, 0.0, 1, 2000)])
    assert ledger.plain_ms == pytest.approx(2 + 2 / 44, rel=0.01)  # of 1 + .98 + .98^2 ..
    assert ledger.expected_ms(True, 1) == pytest.approx(4 + 4 / 44, rel=0.01)


@pytest.mark.parametrize("ms, tokens, run", [(4, 1.5, 100), (1.5, 1.5, 100), (4, 1.9, 20)])
def test_half_a_percent_of_the_tokens_pays_for_what_seems_slower(ms, tokens, run):
    """A plain round takes 2 ms. Drafts that bring 1.5 tokens in 4 ms lose .5 tokens, to be earned
    in 100; with 1.5 tokens in 1.5 ms they are the faster way, and a plain round loses 1."""
    ledger, _ = new_ledger([2, 2])
    ledger.past[:3] = 10, 10 * tokens, 10 * ms
    better = tokens / ms > 1 / 2
    run *= 2 if better else 1
    for ledger.drafting, ledger.run, drafts in (
            (better, run * 0.98, better), (better, run * 1.02, not better),
            (not better, run * 1.02, better)):  # the other way has just had its turn
        assert ledger.drafts() == drafts


def test_tokens_are_counted_from_the_last_change():
    ledger = noted(*new_ledger(), [(True, 1, 1.0, 3, 4), (True, 0, 0.0, 2, 4)])
    assert (ledger.drafting, ledger.run) == (True, 5)
    noted(ledger, ledger.clock, [(False, 0, 0.0, 1, 2)])
    assert (ledger.drafting, ledger.run) == (False, 1)


def test_without_a_clock_a_round_takes_what_was_guessed():
    ledger = Ledger([2, 3, 5], 1.0, clock=None)
    noted(ledger, Clock(), 100 * [(True, 2, 1.0, 2, 99), (False, 0, 0.0, 1, 99)])
    assert [ledger.expected_ms(True, n) for n in (0, 1, 2)] == pytest.approx([3, 4, 6])
    assert ledger.plain_ms == 2


# ---------------------------------------------------------------- what a drafter tells its ledger


class Noting(Ledger):
    """Remembers what it is told."""

    def note(self, *round_):
        self.told = round_
        super().note(*round_)


def test_what_is_told_of_a_round():
    """Two nodes of mass .6 and .4, one is accepted; then a round without a pass."""
    class Two(Machine):
        def guess(self):
            return torch.tensor([[0.6, 0.4]]).log()

        def children(self, root, room):
            return marginal_children(self.guess())

    ledger = Noting([1, 1, 1], 0.0, clock=None)
    drafter = PricedTreeDrafter(Two(1, None), ledger)
    drafter.reset()
    drafter.observe([1, 2], None, [0, 1])  # the prefill is no round
    assert ledger.run == 0
    assert len(drafter.propose(0, 9)) == 3
    drafter.observe([0, 0], None, [0, 2])
    assert ledger.told == (True, 2, pytest.approx(1.0), 2)
    ledger.plain_ms = 0.01  # nothing can be faster
    assert drafter.propose(0, 9).tokens.tolist() == [0]
    drafter.observe([0], None, [0])
    assert ledger.told == (False, 0, 0.0, 1)
    drafter.reset()  # the window slides
    drafter.observe([1, 2], None, [0, 1])
    assert ledger.run == 1


def chain_drafter(price, **how):
    longest = (1,) * (len(price) - 1)
    return PricedChainDrafter(TreeDrafter(ToyDraft(ToyModel(1, 3)), longest, Sampler(1), Dice(0)),
                              Noting(price, 0.0, clock=None, **how))


def test_a_chain_ends_where_it_is_too_seldom_reached():
    """A row costs .2 tokens; .5, .25 and .125 is how often it is reached."""
    drafter = chain_drafter(line(1, 0.2))
    drafter.reset()
    assert drafter.draft(0, 9, 1.0, 0.5)[1] == 2
    assert drafter.draft(0, 9, 0.1, 0.8)[1] == 9  # there is no more room
    assert chain_drafter(line(1, 0.2)[:4]).draft(0, 9, 0.1, 0.8)[1] == 3  # no more prices
    drafter = chain_drafter(line(1, 0.2), trust=0.6)
    drafter.reset()
    drafter.ledger.scale = 9  # a row costs more here than was guessed
    assert len(drafter.propose(0, 9)) == 1


@pytest.mark.parametrize("accepted, judged", [(0, 1), (1, 2), (3, 4), (4, 4)])
def test_behind_a_rejected_draft_nobody_judges(accepted, judged):
    drafter = chain_drafter([1, 1, 1, 1, 1], trust=0.6)
    drafter.reset()
    assert len(drafter.propose(0, 9)) == 5
    drafter.observe([0] * (1 + accepted), None, list(range(1 + accepted)))
    assert drafter.ledger.told == (True, 4, judged, 1 + accepted)


def test_luck_makes_longer_chains():
    sizes = {}
    for luck in (0, 9):
        drafter = chain_drafter([1, 1.2, 1.4, 1.6, 1.8], trust=0.6)
        drafter.reset()
        for _ in range(60):
            sizes[luck] = len(drafter.propose(0, 9)) - 1
            rows = list(range(1 + min(luck, sizes[luck])))
            drafter.observe([0] * len(rows), None, rows)
    assert sizes == {0: 0, 9: 4}


# ---------------------------------------------------------------- the loops of the chapter


def free_rows(n):
    """A Cast whose rows cost nothing: everything pays."""
    m = proofs.random_cast()
    m.ledger = lambda whose, budget, sampler, **how: Ledger([1.0] * (n + 1), 0.0, clock=None, **how)
    return m


@pytest.mark.parametrize("name, make", [
    ("DDTree, {} nodes", DDTreeDrafter), ("DDTree by price, up to {}", DDTreeDrafter),
    ("conditional DDTree, {} nodes", ConditionalTreeDrafter),
    ("conditional DDTree by price, up to {}", ConditionalTreeDrafter)])
@pytest.mark.parametrize("temperature", [0, 1.5])
def test_the_drafters_temperature_follows_the_targets(name, make, temperature):
    """Where rows are free, trees by price are those of the largest budget."""
    m, sampler = free_rows(9), Sampler(temperature)
    loop, = (loop for loop in ddtree_room.LOOPS if loop.name == name)

    def trees(drafter):
        steps = speculate(m.target, drafter, [1, 2, 3], sampler, Dice(0))
        return [prefixes(step.detail.tree) for step in collect(steps, 12).steps]

    ours = trees(loop.drafter(m, 9, sampler, Dice(0)))
    assert ours == trees(make(m.block, 9, {0: 0.5, 1.5: 1.25}[temperature]))
    assert ours != trees(make(m.block, 9, 1.0))


def test_a_drawn_chain_by_price_is_as_long_as_the_pass():
    m = free_rows(9)
    drafter = ddtree_room.chain_by_price(m, 9, Sampler(1), Dice(0))
    steps = collect(speculate(m.target, drafter, [1, 2], Sampler(1), Dice(0), multi_round), 12)
    assert {step.drafted for step in steps.steps} == {4}
    assert all(step.detail.tree.draft_probs is not None for step in steps.steps)


def test_one_ledger_for_all_texts_of_a_method():
    ledger = ddtree_room.shared_ledgers([1.0, 1.5, 2.5], 0.5)
    mine = ledger(DDTreeDrafter, 1, Sampler(1))
    assert mine is ledger(DDTreeDrafter, 1, Sampler(1)) and mine.price == [1.0, 1.5]
    others = [ledger(DDTreeDrafter, 1, Sampler(0)), ledger(DDTreeDrafter, 2, Sampler(1)),
              ledger(ConditionalTreeDrafter, 1, Sampler(1))]
    assert mine not in others and len(set(map(id, others))) == 3


def test_no_tree_has_a_number_of_rows_that_was_not_measured(monkeypatch):
    """A guess of one price between two of ROWS: whatever pays, pays up to the next of them. To pop
    a node takes its time, too."""
    price, draft_ms = ddtree_room.guessed_price(proofs.random_cast(block_size=256))
    assert len(price) == 128 and sorted(price) == price and price[0] > 0 < draft_ms
    for worth in range(1, 100):
        nodes = [(0, 0, 1 / (n + worth)) for n in range(127)]
        rows = 1 + len(worth_verifying(iter(nodes), price, slopes(price), 0.1 / price[0]))
        assert rows in ddtree_room.ROWS
    monkeypatch.setattr(ddtree_room, "build_ms", lambda drafter: 127e3)
    assert ddtree_room.guessed_price(proofs.random_cast())[0][-1] > 127e3
    # Where N rows take N ms, n nodes and their root cost what the next of ROWS does.
    monkeypatch.setattr(ddtree_room, "build_ms", lambda drafter: 0.0)
    monkeypatch.setattr(ddtree_room, "cost_curve", lambda *_, **__: {
        n: float(n) for n in ddtree_room.ROWS})
    price, draft_ms = ddtree_room.guessed_price(proofs.random_cast())
    assert price[:8] == [1, 2, 3, 4, 6, 6, 8, 8] and price[-1] == 128 and draft_ms == 0.5
