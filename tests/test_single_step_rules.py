"""Chapter 06: single-step rules are flows, and their closed forms are exact."""

import importlib

import numpy as np
import pytest
from scipy.optimize import linprog

import single_step_rules
from global_resolution import GR, CappedGR, DistinctGR, smallest_cut
from nanogpt.exact.slips import replaced, wrong_variants
from nanogpt.exact.trees import KINDS, all_tuples, related
from single_step_rules import KSEQ, RRS, DistinctRRS, SpS, smallest_rho

WRONG = importlib.import_module("layers_room").WRONG
RULES = (KSEQ, RRS, CappedGR, GR)


def problems(kind, V, n=6, scale=1.0, seed=0):
    draft, target = KINDS[kind](np.random.default_rng(seed), n, V)
    return draft, scale * target


def enumerated(rule, draft_probs, k, replacement=True):
    """The expectation of `accept` over all tuples (n, V), and what every tuple sends in all."""
    out, most = np.zeros_like(draft_probs), 0.0
    possible = [dict(all_tuples(row, k, replacement)) for row in draft_probs]
    for X in set().union(*possible):
        probability = np.array([row.get(X, 0.0) for row in possible])  # (n,)
        accepted = rule.accept(np.tile(X, (len(draft_probs), 1)))[probability > 0]
        assert accepted.min() >= 0
        most = max(most, accepted.sum(-1).max())
        for i, token in enumerate(X):
            out[probability > 0, token] += (probability[probability > 0] * accepted[:, i])
    return out, most


def flow_error(step, draft, target, k, replacement=True):
    """How far `out` is from the expectation of `accept`, or by how much it exceeds a capacity."""
    rule = step(draft, target, k)
    out, most = enumerated(rule, draft, k, replacement)
    return max(abs(out - rule.out).max(), (out - target).max(), most - 1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", RULES)
def test_outgoing_flow_is_the_expectation_of_accept_and_fits(step, kind):
    for scale in (1.0, 0.6, 0.05, 0.0):
        draft, target = problems(kind, 4, scale=scale)
        for k in (1, 2, 3):
            assert flow_error(step, draft, target, k) < 1e-12, (scale, k)
    draft, target = problems(kind, 5)
    assert flow_error(step, draft, target, 4) < 1e-12


WRONG_FLOWS = wrong_variants(WRONG, "KSEQ", "CappedGR", "rejection_rounds", "smallest_rho", but=(
    "rho is always k: lossless, but far too careful",))


@pytest.mark.parametrize("name, sentence", WRONG_FLOWS, ids=str)
def test_wrong_flows_are_caught(name, sentence):
    wrong = WRONG[name][sentence]
    step = {"rejection_rounds": RRS, "smallest_rho": KSEQ}.get(name, wrong)
    draft, target = problems("related", 4, n=12)
    with replaced(single_step_rules, **{name: wrong} if step is not wrong else {}):
        errors = [flow_error(step, draft, scale * target, k)
                  for k in (2, 3) for scale in (1.0, 0.6)]
    assert max(errors) > 1e-3


def test_a_rho_that_is_too_large_is_lossless_and_shorter():
    draft, target = problems("related", 4, n=12)
    right = KSEQ(draft, target, 2).out.sum(-1)
    careful = WRONG["smallest_rho"]["rho is always k: lossless, but far too careful"]
    with replaced(single_step_rules, smallest_rho=careful):
        assert flow_error(KSEQ, draft, target, 2) < 1e-12
        assert (right - KSEQ(draft, target, 2).out.sum(-1)).mean() > 0.05


@pytest.mark.parametrize("V, k, scale", [(4, 1, 1.0), (4, 2, 0.6), (4, 2, 1.0), (5, 3, 0.9)])
def test_a_flow_for_draws_that_never_repeat(V, k, scale):
    """It serves all the sets that they make, near the optimum; one for independent draws is wrong
    there."""
    draft, target = problems("related", V, scale=scale)
    assert flow_error(DistinctGR, draft, target, k, replacement=False) < 1e-12
    assert k == 1 or flow_error(RRS, draft, target, k, replacement=False) > 1e-3
    best = [largest_flow(*row, k, False) for row in zip(draft, target, strict=True)]
    assert DistinctGR(draft, target, k).out.sum() > 0.98 * sum(best)
    if k < 3:
        assert flow_error(DistinctRRS, draft, target, k, replacement=False) < 1e-12
    else:
        with pytest.raises(ValueError, match="a node of this tree has 3"):
            DistinctRRS(draft, target, k)


def test_one_child_makes_every_rule_speculative_sampling():
    for kind in KINDS:
        draft, target = problems(kind, 5, scale=0.7)
        sps = SpS(draft, target)
        for step in RULES:
            rule = step(draft, target, 1)
            assert abs(rule.out - sps.out).max() < 1e-15
            for token in range(5):
                drawn = np.full((len(draft), 1), token)
                possible = draft[:, token] > 0
                assert abs(rule.accept(drawn) - sps.accept(drawn))[possible].max(initial=0) < 1e-14


def test_by_hand():
    draft, target = np.array([[0.5, 0.5]]), np.array([[0.9, 0.1]])
    assert SpS(draft, target).out[0] == pytest.approx([0.5, 0.1])
    assert GR(draft, target, 2).out[0] == pytest.approx([0.75, 0.1])
    # RRS: .5 and .1 first; of the .4 rejected, all from token 2, the residual (1, 0) takes half.
    assert RRS(draft, target, 2).out[0] == pytest.approx([0.7, 0.1])
    # K-SEQ: beta = .5 + .1 / rho and rho = 2 - beta, so rho^2 - 1.5 rho + .1 = 0.
    rho = (1.5 + (1.5 ** 2 - 0.4) ** 0.5) / 2
    assert smallest_rho(draft, target, 2)[0, 0] == pytest.approx(rho, abs=2e-6)
    assert KSEQ(draft, target, 2).out[0] == pytest.approx([0.5 * rho, 0.1], abs=2e-6)


# ---------------------------------------------------------------- the optimum


def largest_flow(draft, target, k, replacement=True):
    """The largest flow of one node as a linear program over all (tuple, token) edges."""
    tuples = list(all_tuples(draft, k, replacement))
    edges = [(i, z) for i, (X, _) in enumerate(tuples) for z in sorted(set(X))]
    limits = np.zeros((len(tuples) + len(draft), len(edges)))
    for e, (i, z) in enumerate(edges):
        limits[i, e] = limits[len(tuples) + z, e] = 1
    capacity = [probability for _, probability in tuples] + list(target)
    return -linprog(-np.ones(len(edges)), A_ub=limits, b_ub=capacity).fun


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_gr_reaches_the_smallest_cut_and_no_linear_program_does_better(kind, k):
    for V, scale in ((3, 1.0), (4, 0.7), (5, 1.0)):
        draft, target = problems(kind, V, n=3, scale=scale, seed=V)
        value, _ = smallest_cut(draft, target, k)
        assert GR(draft, target, k).out.sum(-1) == pytest.approx(value, abs=1e-10)
        best = [largest_flow(*row, k) for row in zip(draft, target, strict=True)]
        assert value == pytest.approx(best, abs=1e-9)


def test_gr_reaches_the_smallest_cut_at_the_papers_size():
    draft, target = related(np.random.default_rng(3), 400, 20)
    for k, scale in ((2, 1.0), (2, 0.5), (3, 0.9)):
        value, _ = smallest_cut(draft, scale * target, k)
        assert abs(GR(draft, scale * target, k).out.sum(-1) - value).max() < 1e-10
        for step in (KSEQ, RRS, CappedGR):
            assert (step(draft, scale * target, k).out.sum(-1) <= value + 1e-12).all()


def test_hard_pairs_take_newton_a_dozen_steps():
    draft, target = related(np.random.default_rng(5), 400, 8)
    value, _ = smallest_cut(draft, target, 3)
    assert abs(GR(draft, target, 3).out.sum(-1) - value).max() < 1e-10


@pytest.mark.parametrize("k, scale", [(2, 1.0), (2, 0.5), (3, 0.9)])
def test_eight_iterations_leave_less_than_a_thousandth_of_the_optimum(k, scale):
    draft, target = related(np.random.default_rng(3), 400, 20)
    rule = CappedGR(draft, scale * target, k)
    assert (1 - rule.out.sum(-1) / rule.value).mean() < 1e-3


@pytest.mark.parametrize("iterations", [0, 2])
def test_the_capped_rule_is_lossless_after_any_number_of_iterations(monkeypatch, iterations):
    monkeypatch.setattr(CappedGR, "iterations", iterations)
    assert flow_error(CappedGR, *problems("related", 4, scale=0.9), 2) < 1e-12


# ---------------------------------------------------------------- rounding


def test_rho_is_the_smallest_feasible_one_and_lies_on_its_feasible_side():
    draft, target = related(np.random.default_rng(1), 50, 6)
    for k in (2, 3):
        rho = smallest_rho(draft, target, k)

        def excess(rho, k=k):
            beta = np.minimum(draft, target / rho).sum(-1, keepdims=True)
            return 1 - (1 - beta) ** k - rho * beta

        assert (excess(rho) <= 1e-15).all() and (excess(rho - 4e-6) > 0).all()
        assert (KSEQ(draft, target, k).out - target).max() <= 1e-15


def test_where_draft_and_target_agree_rho_is_right_as_far_as_rounding_can_tell():
    """rho = 1 + d has d^k to spare there, so d may be as large as rounding^(1/k); but d^k is also
    all that K-SEQ then loses."""
    draft, _ = related(np.random.default_rng(1), 100, 30)
    for k in (2, 3, 4, 8):
        d = smallest_rho(draft, draft, k) - 1
        assert d.min() >= 0 and d.max() < 1e-6 * (k - 1) + 4e-15 ** (1 / k)
        rule = KSEQ(draft, draft, k)
        assert (rule.out - draft).max() < 1e-15 and rule.out.sum(-1).min() > 1 - 2e-12
    assert 1e-5 < smallest_rho(draft, draft, 4).max() - 1 < 1e-3  # the docstring's 1e-4


def hard_problems():
    """Nearly equal probabilities, and astronomically small ones, on either side. (n, 4) pairs."""
    rng = np.random.default_rng(0)
    distributions, _ = related(rng, 6, 4)
    for size in (1e-16, 1e-15, 1e-8):
        yield distributions, distributions * (1 + size * rng.normal(size=distributions.shape))
    for tiny in (1e-160, 1e-300, 1e-305, 5e-324):
        rare, other = distributions.copy(), np.roll(distributions, 1, axis=1)
        rare[:, 0] = tiny
        yield rare, other
        yield other, rare
        steep = np.maximum(rare ** 3, tiny)
        yield steep, steep * (1 + 1e-15 * rng.normal(size=distributions.shape))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("step", RULES)
def test_nothing_overflows_where_probabilities_are_nearly_equal_or_tiny(step):
    for draft, target in hard_problems():
        draft, target = (p / p.sum(-1, keepdims=True) for p in (draft, target))
        for k, scale in ((1, 1.0), (2, 1.0), (2, 0.5), (2, 1e-200), (2, 0.0), (3, 1.0), (4, 1.0)):
            rule = step(draft, scale * target, k)
            assert (rule.out >= 0).all() and (rule.out <= scale * target + 1e-12).all()
            for token in range(4):
                accepted = rule.accept(np.arange(token, token + k)[None].repeat(6, 0) % 4)
                assert (accepted >= 0).all() and (accepted.sum(-1) <= 1 + 1e-12).all()


def test_gr_refuses_a_table_that_would_not_fit():
    draft = np.full((1, 400), 1 / 400)
    with pytest.raises(ValueError, match="GR with 400 possible tokens and 2 children"):
        CappedGR(draft, draft, 2)
    draft, target = related(np.random.default_rng(0), 1, 150)
    CappedGR(draft, target, 2)
    with pytest.raises(ValueError, match="truncate the draft"):
        GR(draft, target, 2)
    draft = np.full((1, 20), 1 / 20)
    for k in (64, 70):  # beyond the largest machine numbers
        with pytest.raises(ValueError, match=f"20 possible tokens and {k} children"):
            CappedGR(draft, draft, k)
