"""Chapter 05's tables: rivals that do not disturb each other, prices, conclusions."""

import pytest
import torch

from experiments.ddtree_table import Models, Prices, methods
from experiments.drafter_cost import build_ms, pass_ms
from experiments.ngram import NGramDraft
from nanogpt.contest import compare
from nanogpt.sampling import Sampler
from test_chain_specdec import random_gpt
from test_ddtree import random_drafter


@pytest.mark.parametrize("temperature", [0, 1])
def test_the_rivals_share_no_drafter(temperature):
    """A drafter that two methods share would lose its place whenever the turn changes."""
    target, ngram = random_gpt(1), NGramDraft(torch.arange(300) * 7 % 11, 11)
    models = Models(target, random_drafter(target, 1), random_gpt(2), ngram)
    starts = methods(models, Sampler(temperature), [3])
    whole, turns = (compare(starts, [[1, 8, 4, 0, 7]], 24, turn) for turn in (None, 2))
    for name in starts:
        steps = [[(s.tokens, s.drafted) for s in run[name][0].steps] for run in (whole, turns)]
        assert steps[0] == steps[1], name


@pytest.mark.parametrize("prompt", [[1], [1, 8, 4, 0, 7]])
def test_what_drafting_costs(prompt):
    network = random_drafter(random_gpt(1), 1)
    assert pass_ms(network, prompt) > 0
    costs = build_ms(network, prompt, (1, 4, 200))
    assert list(costs) == [1, 4, 200] and 0 < costs[1] < costs[200]


def test_the_ideal_takes_the_mean_of_the_prices_before_and_after():
    before = Prices({1: 2.0, 8: 3.0}, 1.0, {"DDTree, B=3": 0.25})
    after = Prices({1: 4.0, 8: 3.5}, 1.5, {"DDTree, B=3": 0.75})
    assert before.halfway(after) == Prices({1: 3.0, 8: 3.25}, 1.25, {"DDTree, B=3": 0.5})


def test_an_n_gram_counts_contexts_of_n_minus_1_tokens():
    text = torch.tensor([0, 1, 2, 0, 1, 3, 4, 1, 2])
    trigram = NGramDraft(text, 5, n=3)
    assert max(map(len, trigram.counts)) == 2
    assert trigram.counts[0, 1] == {2: 1, 3: 1} and trigram.counts[1,] == {2: 2, 3: 1}
    longest, shorter, none = [1 / 2, 1 / 2], [2 / 3, 1 / 3], [2 / 9, 1 / 9]
    wanted = [a + 0.2 * (b + 0.2 * c) for a, b, c in zip(longest, shorter, none, strict=True)]
    assert trigram.scores([4, 0, 1]).exp()[2:4].tolist() == pytest.approx(wanted, abs=1e-5)
    with pytest.raises(ValueError, match="n is 1"):
        NGramDraft(text, 5, n=1)


def test_an_n_gram_reads_the_end_of_the_text():
    """Eight tokens in two pieces, then a path; after a reset it has read nothing."""
    draft = NGramDraft(torch.randint(5, (900,), generator=torch.Generator().manual_seed(0)), 5, 4)
    draft.observe([4, 4, 0])
    draft.observe([2, 2, 3, 1, 0])
    assert torch.equal(draft.logits(3), draft.scores([1, 0, 3]))
    assert torch.equal(draft.logits(2), draft.scores([0, 3, 2]))
    assert torch.equal(draft.level([3], [-1])[0], draft.scores([1, 0, 3]))
    assert torch.equal(draft.level([1, 2], [0, 0])[1], draft.scores([0, 3, 2]))
    draft.observe([3])  # the 2 was rejected
    assert torch.equal(draft.logits(1), draft.scores([0, 3, 1]))
    draft.reset()
    assert torch.equal(draft.logits(3), draft.scores([3]))
