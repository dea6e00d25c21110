"""The debugging kit: it convicts who is wrong, and nobody else."""

import pytest
import torch
from scipy import stats

from nanogpt.chapter import load
from nanogpt.exact.debugging import (
    Recorded,
    Replay,
    acceptance,
    cells,
    chi_square,
    draws,
    evidence,
    first_wrong_row,
    not_owed,
    record,
    replay,
    second_token_law,
    second_tokens,
    suspects,
)
from nanogpt.exact.slips import replaced
from nanogpt.exact.toy_models import random_gpt
from nanogpt.sampling import Dice, Sampler

PROMPT, SAMPLER = [1, 2, 3], Sampler(1)


@pytest.fixture(scope="module")
def models():
    return random_gpt(4, block_size=256), random_gpt(7, block_size=256)


@pytest.fixture(scope="module")
def cases(models):
    """{name: its rounds, their replays}, 6 texts of 16 rounds each."""
    found = {}
    for name, start in suspects(*models).items():
        texts = [record(start(PROMPT, seed), PROMPT, 16) for seed in range(6)]
        found[name] = sum(texts, []), sum((replay(made, *models, SAMPLER) for made in texts), [])
    return found


def test_replay_finds_a_wrong_p_and_where_it_begins(cases):
    first = {name: first_wrong_row(replays) for name, (_, replays) in cases.items()}
    assert [name for name, place in first.items() if place] == ["A", "F"]
    assert first["A"] == (0, 0)  # its page was another's since the prompt
    assert (8, 0) < first["F"] < (16, 0)  # the round in which it comes back


def test_replay_finds_another_q(cases):
    off = {name: max(max(found.q_off, default=0) for found in replays)
           for name, (_, replays) in cases.items()}
    # A page holds rows of both models, so where p is wrong, q is, too.
    assert [name for name, most in off.items() if most > 1e-6] == ["A", "E", "F"]


def test_draws_finds_who_does_not_draw_from_q(cases):
    assert {name for name, (rounds, _) in cases.items() if abs(draws(rounds)) > 3.5} == {"B", "D"}


def test_what_was_not_owed_finds_who_has_another_residual(models, cases):
    found = {name: not_owed(rounds) for name, (rounds, _) in cases.items()}
    assert not any(impossible for impossible, _ in found.values())
    with replaced(load("01").module("chain_specdec"), residual=lambda p, _: p):
        assert not_owed(record(suspects(*models)["C"](PROMPT, 0), PROMPT, 16))[0]
    # By hand: owed is token 1 alone; the third round has no rejection.
    p, q = torch.tensor([[0.2, 0.8, 0.0]] * 2), torch.tensor([1.0, 0.0, 0.0])
    rounds = [Recorded([1], [0], [q], p, tokens) for tokens in ([1], [0], [0, 0])]
    assert not_owed(rounds) == (1, 2)


def test_readers_with_one_seed_write_one_text(models):
    assert evidence(suspects(*models)["G"], PROMPT, *models, SAMPLER, 3, 4)[-1] == 1


def test_right_ones_accept_what_the_overlap_says(cases):
    accepted, error, overlap = acceptance(*cases["C"])
    assert abs(accepted - overlap) < 3 * error < 0.2
    # By hand: three coins, two of them heads; the last draft of the second round had none.
    rounds = [Recorded([1], [2], [], None, [2, 3]),
              Recorded([1, 2, 3], [2, 4, 5], [], None, [2, 6])]
    replays = [Replay([], [], [0.5]), Replay([], [], [0.5, 0.8, 0.1])]
    assert acceptance(rounds, replays) == pytest.approx((2 / 3, (2 / 27) ** 0.5, 0.6))


def test_counts_accuse_those_whose_text_is_wrong_and_no_other(models):
    law, starts = second_token_law(models[0], SAMPLER, PROMPT), suspects(*models)
    found = {name: second_tokens(starts[name], PROMPT, 500 if name in "BCD" else 100)
             for name in starts}
    chance = {name: chi_square(law, tokens) for name, tokens in found.items()}
    assert max(chance[name] for name in "ABDG") < 1e-3 < 0.01 < chance["C"]
    # Seed by seed E and F write what the right one writes: E has another q, and says so; F is
    # wrong, but not here: it was not sent back yet.
    assert found["E"] == found["F"] == found["C"][:100]


def test_chi_square_is_scipys():
    # In float64: for scipy both sums must be equal to eight digits.
    law, dice = torch.tensor([0.5, 0.25, 0.125, 0.1, 0.024, 0.001]).double(), Dice(0)
    law /= law.sum()
    for samples in (50, 400):
        tokens = [dice.draw(law) for _ in range(samples)]
        parts = cells(law, samples)
        assert sorted(sum(parts, [])) == list(range(6))
        seen = [sum(map(tokens.count, part)) for part in parts]
        expected = [samples * float(law[part].sum()) for part in parts]
        assert chi_square(law, tokens) == pytest.approx(
            stats.chisquare(seen, expected).pvalue, abs=0.01)
