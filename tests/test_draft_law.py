"""The theorem of chapter 05's second lesson, and the six toys."""

import pytest
import torch

import ddtree_room
from chain_specdec import acceptance_probability, residual
from draft_law import bias, mend
from nanogpt.exact.enumeration import token_law


def random_laws(seed, vocab=4):
    """p, q and a law; zeros in every second of them, and in every third the law hides drafts."""
    generator = torch.Generator().manual_seed(seed)
    laws = torch.rand(3, vocab, generator=generator, dtype=torch.float64)
    if seed % 2:
        laws[torch.rand(3, vocab, generator=generator) < 0.3] = 0
        laws[:, seed % vocab] += 0.1
    p, q, law = laws / laws.sum(-1, keepdim=True)
    return p, q, law if seed % 3 else law * torch.rand(1, generator=generator).double()


@pytest.mark.parametrize("seed", range(40))
def test_what_comes_out_is_p_and_the_bias_of_the_theorem(seed):
    """By enumeration of chapter 01's own rule: draft from the law, or hide it; told q."""
    p, q, law = random_laws(seed)
    for told in (q, 0.6 * q, q * (q >= q.mean())):  # it may sum to less than 1
        found = ddtree_room.round_by_round(p, told, law)
        torch.testing.assert_close(p + bias(p, told, law), found, rtol=0, atol=1e-14)
    assert bias(p, q, q).abs().max() < 1e-15
    if seed % 2 == 0:  # p is nowhere 0: only the law itself is right
        assert bias(p, q, law).abs().max() > 1e-3


def test_what_is_hidden_counts_and_hiding_blindly_is_harmless():
    """The opening of the lesson with p unlike q; and h by itself, whatever was drawn."""
    p, q = torch.tensor([[0.5, 0.5], [0.8, 0.2]], dtype=torch.float64)
    found = token_law(lambda dice: ddtree_room.hidden_if_rare(p, q, dice)[0], 2).tolist()
    assert found == pytest.approx([0.6, 0.4])
    assert (p + bias(p, q, q * (q >= 0.5))).tolist() == pytest.approx(found)
    assert bias(p, q, 0.7 * q).abs().max() < 1e-15


@pytest.mark.parametrize("seed", range(12))
def test_two_honest_pairs(seed):
    """The law with its hole, and silence is a rejection; or scaled up, and it is a draw from p.
    What is shown is shown always, or half of the time."""
    p, q, _ = random_laws(seed)
    shown = (q >= q.mean()) / (1 + seed % 2)
    told, silent = mend(p, q, shown)

    def first_way(dice):
        draft = dice.draw(q)
        if not dice.flip(float(shown[draft])):
            return dice.draw(silent)
        rejected = not dice.flip(acceptance_probability(p, told, draft))
        return dice.draw(residual(p, told)) if rejected else draft

    torch.testing.assert_close(torch.as_tensor(token_law(first_way, len(p))).to(p), p)
    second_way = ddtree_room.round_by_round(p, told / told.sum(), told)
    torch.testing.assert_close(torch.as_tensor(second_way).to(p), p)


@pytest.mark.parametrize("judged", [0, 1, 2])
def test_of_all_drawn_drafts_only_the_last_can_do_without_its_row(judged):
    """A perfect drafter stops behind an s, token 1. A chain of less than three is cut to so many
    drafts, the last of them without a row: one that was drawn behind it is hidden."""
    p = torch.tensor([0.8, 0.2], dtype=torch.float64)

    def first_two(dice):
        text = []
        while len(text) < 2:
            chain = [dice.draw(p)]
            while chain[-1] == 0 and len(chain) < 3:
                chain.append(dice.draw(p))
            text += chain if len(chain) == 3 else chain[:judged] or [dice.draw(p)]
        return 2 * text[0] + text[1]

    off = (token_law(first_two, 4).view(2, 2) - torch.outer(p, p)).abs()
    assert (off.max() < 1e-15) == (judged == 2)
    first = token_law(first_two, 4).view(2, 2).sum(1)
    assert (float((first - p).abs().max()) < 1e-15) == (judged > 0)


@pytest.mark.parametrize(("p", "q", "law"), [
    # p has no token 2: what q drew there may as well be sent as a draw from r, (.5, .5, 0)
    ([0.7, 0.3, 0.0], [0.5, 0.1, 0.4], [0.7, 0.3, 0.0]),
    # told chances below 1: what is sent beyond them is (.1, .4), and so is r, less often drawn
    ([0.5, 0.5], [0.4, 0.1], [0.5, 0.5])])
def test_where_another_law_is_right(p, q, law):
    assert bias(*torch.tensor([p, q, law], dtype=torch.float64)).abs().max() < 1e-15


def test_the_six_toys():
    found = [[round(share, 2) for share in (*shares, p[0])]
             for _, *shares, p in ddtree_room.toys().values()]
    assert found == [[1, 1, 0.8], [0.96, 1, 0.8], [0.75, 0.75, 0.5], [0.83, 0.83, 0.5],
                     [0.55, 0.95, 0.4], [0.96, 0.8, 0.8]]


def test_told_how_the_drafts_came_all_six_are_right():
    found = [(written, p[0]) for _, written, _, p in ddtree_room.toys(told=True).values()]
    assert [written for written, _ in found] == pytest.approx([p for _, p in found], abs=1e-14)


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("token", [0, 1, -1])
def test_at_temperature_0_all_six_are_right(token, told):
    """The target has one token to write."""
    found = ddtree_room.toys(told, lambda p: torch.eye(len(p), dtype=p.dtype)[token])
    assert [written for _, written, *_ in found.values()] == pytest.approx(
        [float(token == 0)] * 6)
