"""Chapter 01: chains of drafts lose nothing, exactly."""

import importlib

import pytest
import torch

import chain_specdec
from chain_specdec import (
    BigramDraft,
    GPTDraft,
    acceptance_probability,
    acceptance_rate,
    draft,
    expected_speedup,
    expected_tokens,
    speculate_chain,
)
from exact import (
    ToyDraft,
    ToyModel,
    check_greedy,
    loop_bias,
    outcomes,
    random_gpt,
    wrong_variants,
)
from nanogpt.decoding import Generation, Step, collect
from nanogpt.exact.slips import replaced
from nanogpt.sampling import Dice, Sampler

bench = importlib.import_module("01_chain_specdec.bench")
WRONG = importlib.import_module("01_chain_specdec.wrong").WRONG
SAMPLERS = [
    Sampler(0), Sampler(0.7), Sampler(1), Sampler(1.5), Sampler(1, top_k=2), Sampler(1, top_p=0.7),
]
DRAFTS = {
    "random": dict(seed=99),
    "equal to the target": dict(seed=5),
    "disjoint": dict(seed=99, allowed=(2,)),
    "peaked": dict(seed=98, scale=4.0),
}


def bias(sampler, k, draft="random", rounds=1, length=None, allowed=None):
    """Total variation between the output of chain speculation and the target's distribution."""
    drafter = ToyDraft(ToyModel(**{"vocab": 3, **DRAFTS[draft]}))
    return loop_bias(
        lambda target, dice: speculate_chain(target, drafter, [0, 1], k, sampler, dice),
        sampler, rounds, length or k + 2, ToyModel(5, 3, allowed=allowed))


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("drafts", DRAFTS)
def test_output_distribution_is_the_targets_exactly(drafts, k):
    for sampler in SAMPLERS if k < 3 else SAMPLERS[::2]:
        assert bias(sampler, k, drafts) < 1e-12, sampler


def test_disjoint_supports_and_several_rounds():
    """After the prefill every round emits at least one token: `length` shows the last round too."""
    assert bias(Sampler(1), 2, "disjoint", allowed=(0, 1)) < 1e-12
    assert bias(Sampler(1), 1, rounds=2, length=4) < 1e-12
    assert bias(Sampler(0.7, top_k=2), 1, "peaked", rounds=3, length=4) < 1e-12


@pytest.mark.parametrize("name, sentence", wrong_variants(
    WRONG, "draft", "acceptance_probability", "residual", "accept", but=(
        "every token is drafted from the root",  # a worse drafter, but an honest one
        "the residual is not normalised", "equal distributions are divided by zero")), ids=str)
def test_wrong_variants_are_caught(name, sentence):
    with replaced(chain_specdec, **{name: WRONG[name][sentence]}):
        assert bias(Sampler(0.5), 2) > 0.01


def test_acceptance_rate_and_expected_tokens_against_enumeration():
    """With the same two distributions at every position, alpha and Equation 1 are exact."""
    target, probs = torch.tensor([[0.5, 0.3, 0.2], [0.6, 0.1, 0.3]]).double()
    alpha = float(acceptance_rate(target, probs))
    assert alpha == pytest.approx(0.8)

    class Same:
        def logits(self, token):
            return probs.log()

    for k in (1, 2, 3):
        def emitted(dice, k=k):
            drafted, rows = draft(Same(), 0, k, Sampler(1), dice)
            return chain_specdec.accept(drafted, rows, target.expand(k + 1, 3), dice)[0] + 1

        mean = sum(tokens * p for tokens, p in outcomes(emitted))
        assert mean == pytest.approx(expected_tokens(alpha, k), abs=1e-6)
    assert expected_speedup(3.0, 4, plain_ms=2.0, draft_ms=0.25, verify_ms=2.0) == pytest.approx(2)


@pytest.mark.parametrize("seed, length", list(enumerate((1, 15, 16, 40))))
def test_greedy_text_equals_plain_decoding(seed, length):
    """Random models, K and prompts; 40 tokens cross the window of 16 several times."""
    target, small = (random_gpt(seed + more, block_size=16) for more in (0, 100))
    generator = torch.Generator().manual_seed(seed)
    prompt = torch.randint(11, (length,), generator=generator).tolist()
    corpus = torch.randint(11, (500,), generator=generator)
    drafters = BigramDraft(corpus, 11), GPTDraft(small), GPTDraft(target)
    check_greedy(target, prompt, *(
        lambda sampler, dice, d=d, k=k: speculate_chain(target, d, prompt, k, sampler, dice)
        for d in drafters for k in (1, 2, 5, 40)))


def test_chains_fill_the_window_to_its_last_row():
    """16 rows, all drafts stay: 2 + 5 + 5 + 4 rows; then from 8 on 5 + 3, again and again."""
    target = random_gpt(3, block_size=16)
    steps = speculate_chain(target, GPTDraft(target), [1, 2], 4, Sampler(0), Dice(0))
    drafted = [step.drafted for step in collect(steps, 30).steps]
    assert drafted[:7] == [4, 4, 3, 4, 2, 4, 2]


# ---------------------------------------------------------------- the lesson's numbers, by hand


def test_round_in_steps_by_hand():
    """Three tokens for 7 ms, 1 of them drafting, 5 the forward; a plain step takes 4 ms."""
    found = bench.round_in_steps({  # the first token is the prefill's
        "plain": [Generation([0] * 2, [Step([0])], 0.004)],
        "GPT, K=2": [Generation(
            [0] * 4, [Step([0] * 3, 2, {"draft": 0.001, "verify": 0.005})], 0.007)]}, "GPT, K=2")
    assert found == [3, 0.25, 1.25, 1.75]


def test_the_lessons_five_changes():
    right, *broken, useless_drafter = bench.broken_loops().values()
    assert max(right, useless_drafter) < 1e-12 and len(broken) == 4 and min(broken) > 0.05


# ---------------------------------------------------------------- bad input, odd input

def test_bad_input():
    target = random_gpt(0)
    with pytest.raises(ValueError, match="prompt is empty"):
        next(speculate_chain(target, GPTDraft(target), [], 2, Sampler(1), Dice(0)))
    with pytest.raises(ValueError, match="k is 0"):
        next(speculate_chain(target, GPTDraft(target), [1], 0, Sampler(1), Dice(0)))


def test_a_token_that_neither_gives_a_chance_counts_as_kept():
    nothing, something = torch.tensor([0.0, 1.0]), torch.tensor([0.5, 0.5])
    assert acceptance_probability(nothing, nothing, 0) == 1
    assert acceptance_probability(something, nothing, 0) == 1
    assert acceptance_probability(nothing, something, 0) == 0
