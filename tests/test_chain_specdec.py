"""Chapter 01: chains of drafts lose nothing, exactly."""

import pytest
import torch

import chain_specdec
from chain_specdec import (
    BigramDraft,
    ChainRound,
    GPTDraft,
    acceptance_probability,
    acceptance_rate,
    expected_speedup,
    expected_tokens,
    residual,
    speculate_chain,
)
from exact import (
    ToyDraft,
    ToyModel,
    ToyTarget,
    grid,
    loop_distribution,
    outcomes,
    target_distribution,
    total_variation,
)
from experiments.k_sweep import Line, acceptance_by_position, measured_alpha
from nanogpt.decoding import Generation, Step, collect, plain_decode
from nanogpt.model import GPT, GPTConfig
from nanogpt.sampling import Dice, Sampler

PROMPT = [0, 1]
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
    model = ToyModel(5, vocab=3, allowed=allowed)
    drafter = ToyDraft(ToyModel(**{"vocab": 3, **DRAFTS[draft]}))
    length = length or k + 2
    emitted = loop_distribution(
        lambda dice: speculate_chain(ToyTarget(model), drafter, PROMPT, k, sampler, dice),
        model, sampler, PROMPT, rounds, length,
    )
    return total_variation(emitted, target_distribution(model, sampler, PROMPT, length))


@pytest.mark.parametrize("case", grid(k=(1, 2, 3), draft=DRAFTS), ids=str)
def test_output_distribution_is_the_targets_exactly(case):
    for sampler in SAMPLERS if case["k"] < 3 else SAMPLERS[::2]:
        assert bias(sampler, **case) < 1e-12, sampler


def test_disjoint_supports_and_several_rounds():
    """After the prefill every round emits at least one token: `length` shows the last round too."""
    assert bias(Sampler(1), 2, "disjoint", allowed=(0, 1)) < 1e-12
    assert bias(Sampler(1), 1, rounds=2, length=4) < 1e-12
    assert bias(Sampler(0.7, top_k=2), 1, "peaked", rounds=3, length=4) < 1e-12


def test_bigram_drafter_is_exact_too():
    model = ToyModel(5, vocab=3)
    drafter = BigramDraft(torch.tensor([0, 1, 2, 2, 1, 0, 0, 1]), 3)
    drafter.table = drafter.table.double()
    for sampler in SAMPLERS:
        emitted = loop_distribution(
            lambda dice, s=sampler: speculate_chain(ToyTarget(model), drafter, PROMPT, 2, s, dice),
            model, sampler, PROMPT, 1, 4,
        )
        assert total_variation(emitted, target_distribution(model, sampler, PROMPT, 4)) < 1e-12


def accept_variant(
    no_residual=False, unnormalised=False, bonus_row=0, upside_down=False, ignore_draft=False
):
    """`accept` with one thing wrong: the tests above must be able to see each."""

    def wrong(drafted, draft_probs, target_probs, dice):
        for i, token in enumerate(drafted):
            target, draft = target_probs[i], draft_probs[i]
            ratio = draft[token] / target[token] if upside_down else target[token] / draft[token]
            if ignore_draft:
                ratio = target[token]
            if not dice.flip(min(1.0, float(ratio))):
                left = (target - draft).clamp(min=0)
                if no_residual:
                    left = target
                if unnormalised:  # what is missing to 1 falls to the last token
                    left = torch.cat([left[:-1], 1 - left[:-1].sum()[None]])
                return i, dice.draw(left)
        return len(drafted), dice.draw(target_probs[len(drafted) + bonus_row])

    return wrong


MUTANTS = {
    "no residual": accept_variant(no_residual=True),
    "residual not normalised": accept_variant(unnormalised=True),
    "bonus from the row before": accept_variant(bonus_row=-1),
    "ratio upside down": accept_variant(upside_down=True),
    "draft probability left out": accept_variant(ignore_draft=True),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_wrong_rules_are_caught(monkeypatch, name):
    monkeypatch.setattr(chain_specdec, "accept", MUTANTS[name])
    assert bias(Sampler(1), 2) > 0.01


def test_a_drafter_that_ignores_the_temperature_is_caught(monkeypatch):
    real = chain_specdec.draft

    def wrong(drafter, root, k, sampler, dice):
        tokens, _ = real(drafter, root, k, Sampler(1), dice)
        path = [root, *tokens[:-1]]
        drafter.new = []
        return tokens, [sampler(drafter.logits(token)) for token in path]

    monkeypatch.setattr(chain_specdec, "draft", wrong)
    assert bias(Sampler(0.5), 2) > 0.01


def test_residual_by_hand():
    target, draft = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.6, 0.1, 0.3])
    assert residual(target, draft).tolist() == pytest.approx([0, 1, 0])
    assert residual(target, target).tolist() == target.tolist()
    assert acceptance_probability(target, draft, 0) == pytest.approx(5 / 6)
    assert acceptance_probability(target, draft, 1) == 1
    assert float(acceptance_rate(target, draft)) == pytest.approx(0.8)


def test_acceptance_rate_and_expected_tokens_against_enumeration():
    """With the same two distributions at every position, alpha and Equation 1 are exact."""
    target, draft = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.6, 0.1, 0.3])
    alpha = float(acceptance_rate(target.double(), draft.double()))

    class Same:
        def logits(self, token):
            return draft.double().log()

    for k in (1, 2, 3):
        def emitted(dice, k=k):
            drafted, probs = chain_specdec.draft(Same(), 0, k, Sampler(1), dice)
            rows = target.double().expand(k + 1, 3)
            return chain_specdec.accept(drafted, probs, rows, dice)[0] + 1

        mean = sum(tokens * p for tokens, p in outcomes(emitted))
        assert mean == pytest.approx(expected_tokens(alpha, k), abs=1e-6)
    assert expected_tokens(1.0, 4) == 5
    assert expected_speedup(3.0, 4, plain_ms=2.0, draft_ms=0.25, verify_ms=2.0) == pytest.approx(2)


def random_gpt(seed, vocab=11, block_size=32, width=16):
    """A small GPT in float64 with weights large enough that its argmax is not constant."""
    torch.manual_seed(seed)
    model = GPT(GPTConfig(vocab, block_size, 2, 2, width)).double().eval()
    for parameter in model.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.4)
    return model


@pytest.mark.parametrize("seed, length", list(enumerate((1, 15, 16, 40))))
def test_greedy_text_equals_plain_decoding(seed, length):
    """Random models, K and prompts; 40 tokens cross the window of 16 several times."""
    target = random_gpt(seed, block_size=16)
    generator = torch.Generator().manual_seed(seed)
    prompt = torch.randint(11, (length,), generator=generator).tolist()
    corpus = torch.randint(11, (500,), generator=generator)
    greedy = Sampler(0)
    plain = collect(plain_decode(target, prompt, greedy, Dice(0)), 40).tokens
    small = random_gpt(seed + 100, block_size=16)
    for drafter in (BigramDraft(corpus, 11), GPTDraft(small), GPTDraft(target)):
        for k in (1, 2, 5, 40):
            steps = speculate_chain(target, drafter, prompt, k, greedy, Dice(0))
            assert collect(steps, 40).tokens == plain


def test_chains_fill_the_window_to_its_last_row():
    """16 rows, all drafts stay: 2 + 5 + 5 + 4 rows; then from 8 on 5 + 3, again and again."""
    target = random_gpt(3, block_size=16)
    steps = speculate_chain(target, GPTDraft(target), [1, 2], 4, Sampler(0), Dice(0))
    drafted = [step.drafted for step in collect(steps, 30).steps]
    assert drafted[:7] == [4, 4, 3, 4, 2, 4, 2]


def test_a_drafter_equal_to_the_target_is_always_accepted():
    target = random_gpt(3, block_size=128)
    for sampler in (Sampler(0), Sampler(1)):
        steps = speculate_chain(target, GPTDraft(target), [1, 2, 3], 4, sampler, Dice(0))
        text = collect(steps, 51)
        assert text.tau == 5
        assert all(step.drafted == step.detail.accepted == 4 for step in text.steps)


# ---------------------------------------------------------------- the sweep, by hand


def generation(*rounds):
    """A Generation from rounds of (accepted, drafts); the target is (.5, .5), all drafts (1, 0)."""
    one, half = torch.tensor([1.0, 0.0]), torch.tensor([[0.5, 0.5]])
    return Generation([], [
        Step([0] * (n + 1), k, detail=ChainRound([0] * k, [one] * k, half.expand(k + 1, 2), n))
        for n, k in rounds], 1.0)


def test_acceptance_by_position_by_hand():
    """Of 4 full chains 3 keep the first draft, 2 of those the second; the third was tested twice
    and kept once. The chain of 1 stood at the window's end."""
    both = [generation((0, 3), (1, 3), (1, 1)), generation((2, 3), (3, 3))]
    assert acceptance_by_position(both, 3) == pytest.approx([3 / 4, 2 / 3, 1 / 2])
    assert str(acceptance_by_position([generation((0, 2))], 2)) == "[0.0, nan]"


def test_measured_alpha_looks_at_tested_drafts_only():
    assert measured_alpha([generation((0, 3), (3, 3), (0, 0))]) == 0.5
    wrong = generation((1, 3))
    wrong.steps[0].detail.draft_probs[2] = torch.tensor([0.5, 0.5])  # behind the rejected one
    assert measured_alpha([wrong]) == 0.5
    wrong.steps[0].detail.draft_probs[1] = torch.tensor([0.5, 0.5])  # the rejected one itself
    assert measured_alpha([wrong]) == 0.75


def test_a_line_of_the_sweep_by_hand():
    line = Line("bigram", 2, alpha=0.5, tau=2.0, plain_ms=3.0, draft_ms=0.5, verify_ms=5.0,
                measured=0.9)
    assert line.from_alpha == pytest.approx(1.75 * 3 / 6)
    assert line.from_tau == pytest.approx(2 * 3 / 6)


# ---------------------------------------------------------------- bad input, odd input


def test_bad_input():
    target = random_gpt(0)
    with pytest.raises(ValueError, match="prompt is empty"):
        next(speculate_chain(target, GPTDraft(target), [], 2, Sampler(1), Dice(0)))
    with pytest.raises(ValueError, match="k is 0"):
        next(speculate_chain(target, GPTDraft(target), [1], 0, Sampler(1), Dice(0)))
    tokens = torch.tensor([0, 1, 0])
    with pytest.raises(ValueError, match="table of 50257 x 50257 tokens does not fit"):
        BigramDraft(tokens, 50257)
    with pytest.raises(ValueError, match="smoothing is 0"):
        BigramDraft(tokens, 2, smoothing=0)


def test_a_token_that_neither_gives_a_chance_counts_as_kept():
    nothing, something = torch.tensor([0.0, 1.0]), torch.tensor([0.5, 0.5])
    assert acceptance_probability(nothing, nothing, 0) == 1
    assert acceptance_probability(something, nothing, 0) == 1
    assert acceptance_probability(nothing, something, 0) == 0
