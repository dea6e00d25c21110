"""Every loop of every chapter, from its one declaration: exact, greedy, as good as new, in turn.

And every wrong variant of every chapter, put in its function's place, turns one of these proofs
red, or its room says why it cannot.
"""

import pytest

from nanogpt.chapter import chapters
from nanogpt.exact import proofs
from nanogpt.exact.slips import Slips, slips
from nanogpt.exact.toy_models import random_gpt
from text_table import NgramDraft, TextTable

LOOPS = [pytest.param(loop, id=f"{chapter.number} {loop.name}")
         for chapter in chapters() for loop in chapter.loops]


def why_harmless(chapter, name, sentence):
    """The room's reason; None: some proof of some loop must see this wrong variant."""
    return chapter.harmless.get(sentence, chapter.harmless.get(name))


# To be harmless in every loop takes long.
VARIANTS = [pytest.param(chapter, name, sentence, id=f"{chapter.number} {name}: {sentence}",
                         marks=[pytest.mark.slow] * bool(why_harmless(chapter, name, sentence)))
            for chapter in chapters()
            for name, slips in chapter.wrong.items() for sentence in slips]


@pytest.mark.parametrize("loop", LOOPS)
def test_the_text_has_the_targets_distribution_exactly(loop):
    for case, found in proofs.biases(loop):
        assert found < 1e-12, case


@pytest.mark.parametrize("loop", LOOPS)
def test_greedy_text_is_plain_decodings(loop):
    """45 tokens cross the window of 32, with prompts of one token and of more than a window."""
    for seed, n in enumerate((1, 15, 32, 40)):
        budget = loop.budgets[seed % len(loop.budgets)]
        mine, plain = proofs.greedy_texts(loop, budget, seed, prompt=[t % 11 for t in range(n)])
        assert mine == plain and len(mine) == 45, budget


@pytest.mark.parametrize("loop", LOOPS)
def test_a_drafter_is_as_good_as_new_after_every_commit(loop):
    if loop.learns:
        pytest.skip("it drafts by what it has seen of past rounds")
    for budget in (loop.proof[0], loop.budgets[-1]):
        assert proofs.as_good_as_new(loop, budget) > 5


@pytest.mark.parametrize("told", [[1, 9, 3], [3]])
def test_a_drafter_that_is_told_another_text_or_too_little_is_caught(told):
    watched = proofs.AsGoodAsNew(lambda: NgramDraft(TextTable(2), 11), random_gpt(0), [1, 2, 3, 4])
    watched.reset()
    watched.observe(told, None, None)
    with pytest.raises(AssertionError):
        watched.fresh()


@pytest.mark.parametrize("loop", LOOPS)
def test_decoders_that_take_turns_do_not_disturb_each_other(loop):
    budget = loop.budgets[-1]
    assert proofs.drafts_in_turn(loop, budget, 1) == proofs.drafts_in_turn(loop, budget, 99)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # some divide by 0
@pytest.mark.parametrize("chapter, name, sentence", VARIANTS)
def test_a_wrong_variant_is_seen_or_harmless_for_a_reason(chapter, name, sentence):
    slips, worst = chapter.wrong[name], 0.0
    why = why_harmless(chapter, name, sentence)
    for loop in chapter.loops:
        if worst < 1e-3 and proofs.stands_in(slips.right, loop):
            worst = max(worst, proofs.damage(loop, slips, sentence))
    assert worst < 1e-12 if why else worst > 1e-3, why


def test_what_is_said_to_be_harmless_is_a_wrong_variant():
    for chapter in chapters():
        known = set(chapter.wrong).union(*chapter.wrong.values())
        assert set(chapter.harmless) <= known, chapter.number


@pytest.mark.parametrize("error", [NameError, AttributeError])
def test_a_misspelt_wrong_variant_proves_nothing(error):
    def misspelt(*_):
        raise error

    loop = chapters()[0].loops[0]
    made = Slips(loop.decode)
    made["a typo"] = misspelt
    with pytest.raises(error):
        proofs.damage(loop, made, "a typo")


@pytest.mark.parametrize("old, new", [(" + 1.0", ""), ("a = 1; b = 2", "0"), ("seed", "0 +"),
                                      ("seed", "")])
def test_what_is_no_code_is_named_in_one_sentence(old, new):
    made = slips(proofs.random_cast, {"a slip": (old, new)})
    assert made["a slip"].why == (f"random_cast: '{old}' must be an expression or one statement, "
                                  f"and '{new}' an expression or statements")
