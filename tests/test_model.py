"""The target and plain decoding: cache, rotary positions, hidden states, window, stop strings."""

import pytest
import torch

from nanogpt.decoding import Context, Generation, Step, collect
from nanogpt.model import norm, rope_tables, rotate
from test_chain_specdec import random_gpt

# ---------------------------------------------------------------- rotary positions


def test_a_rotation_by_hand():
    """head_dim 4: pairs (x0, x2) and (x1, x3) of q and k turn by 1 and 1 / 100 a position; v stays.
    """
    cos, sin = rope_tables(8, 4)  # (8, 3, 1, 4)
    q, k, v = torch.randn(3, 1, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for position in (0, 1, 7):
        turn = torch.polar(torch.ones(2), position * torch.tensor([1.0, 0.01])).to(torch.complex128)
        found = rotate(torch.stack([q, k, v]), cos[position], sin[position])
        for new, old in zip(found[:2], (q, k), strict=True):
            pairs = torch.complex(*old.split(2, -1)) * turn
            expected = torch.cat([pairs.real, pairs.imag], -1)
            torch.testing.assert_close(new, expected, rtol=0, atol=1e-6)
        assert torch.equal(found[2], v)


def test_a_model_sees_distances_and_no_places():
    model, tokens = random_gpt(3), torch.randint(11, (1, 8))
    logits = model(tokens)[0]
    shifted = model(tokens, positions=torch.arange(9, 17))[0]
    torch.testing.assert_close(shifted, logits, rtol=0, atol=1e-6)
    stretched = model(tokens, positions=2 * torch.arange(8))[0]
    assert (stretched - logits)[0, 1:].abs().amax(-1).min() > 1e-3


# ---------------------------------------------------------------- the forward and its cache


def test_cache_gives_the_same_logits_as_one_pass():
    model, tokens = random_gpt(0), torch.randint(11, (2, 12))
    whole, hidden = model(tokens)
    cache, parts = model.new_cache(batch=2), []
    for piece in tokens.split([5, 1, 6], 1):
        logits, _ = model(piece, cache=cache)
        cache.commit(list(range(piece.shape[1])))
        parts.append(logits)
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=0, atol=1e-10)


def test_hidden_states_come_in_the_order_of_the_layers():
    """hidden[i] is what block i reads, hidden[-1] what the output matrix reads."""
    model, tokens, seen = random_gpt(0), torch.randint(11, (2, 12)), []
    for block in model.blocks:
        block.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    logits, hidden = model(tokens)
    assert all(map(torch.equal, hidden[:-1], seen)) and len(hidden) == len(seen) + 1
    assert torch.equal(hidden[0], model.embed(tokens))
    assert torch.equal(model.lm_head(norm(hidden[-1])), logits)


@pytest.mark.parametrize("committed, rows", [(0, 280), (20, 260), (20, 400)])
def test_cache_grows_for_huge_trees(committed, rows):
    """A context of 32 and 256 rows behind it: `rows` siblings after what is committed."""
    model = random_gpt(0)
    text, cache = torch.randint(11, (1, committed + 2)), model.new_cache()
    if committed:
        model(text[:, :committed], cache=cache)
        cache.commit(list(range(committed)))
    positions, mask = torch.full((rows,), committed), torch.eye(rows, dtype=torch.bool)
    logits, _ = model(text[:, committed:-1].expand(1, rows), positions, mask, cache)
    cache.commit([rows - 1])
    after = model(text[:, -1:], cache=cache)[0]
    whole = model(text)[0][:, committed:]  # (1, 2, V): the siblings are all alike
    torch.testing.assert_close(logits, whole[:, :1].expand(1, rows, -1), rtol=0, atol=1e-10)
    torch.testing.assert_close(after, whole[:, 1:], rtol=0, atol=1e-10)


# ---------------------------------------------------------------- the window


@pytest.mark.parametrize("length", [1, 20, 31])
def test_the_room_is_what_fits_below_the_root(length):
    """A root and `room` tokens in a line just fit the window; one more does not."""
    model = random_gpt(1)
    context = Context(model, [1] * length)
    assert context.prefill()[0] == [1] * length
    assert context.room == 32 - length - 1 and not context.full
    model(torch.ones(1, 1 + context.room, dtype=torch.long), cache=context.cache)
    with pytest.raises(ValueError, match="33 rows do not fit"):
        model(torch.ones(1, 2 + context.room, dtype=torch.long), cache=context.cache)
    context.commit([0], [1])
    assert context.room == 32 - length - 2 and context.text == [1] * (length + 1)
    assert context.full == (length == 31)
    context.text = [2] * 32  # full: it starts anew from the last half
    assert len(context.prefill()[0]) == 16 and context.room == 15


# ---------------------------------------------------------------- collecting a text


LETTERS = "abcdefghij"


def decode(tokens):
    return "".join(LETTERS[token] for token in tokens)


def blocks():
    """Steps that write 'a', 'bc', 'def', 'ghij'."""
    yield from (Step([0]), Step([1, 2]), Step([3, 4, 5]), Step([6, 7, 8, 9]))
    pytest.fail("asked for a step behind the stop string")


@pytest.mark.parametrize("stop, text, accepted", [
    ("b", "ab", [0]),  # the first of a block
    ("bc", "abc", [1]),  # a whole one
    ("ab", "ab", [0]),  # begins in the prefill's token
    ("cd", "abcd", [1, 0]),  # begins in one step, ends in the next
    ("cdef", "abcdef", [1, 2]),  # ... and with it
    ("cdefg", "abcdefg", [1, 2, 0]),  # spans three
    ("hi", "abcdefghi", [1, 2, 2]),  # inside a later block
    ("j", "abcdefghij", [1, 2, 3]),
])
def test_a_stop_string_wherever_it_stands(stop, text, accepted):
    told = []
    found = collect(blocks(), 99, stop, decode, told.append)
    assert decode(found.tokens) == text == decode(sum(told, []))
    assert found.accepted == accepted
    assert found.tau == (len(text) - 1) / len(accepted)


def test_whichever_comes_first_ends_a_text():
    for count, text, last in ((4, "abcd", [3]), (6, "abcdef", [3, 4, 5]), (9, "abcdef", [3, 4, 5])):
        found = collect(blocks(), count, "f", decode)
        assert decode(found.tokens) == text and found.steps[-1].tokens == last


def test_accepted_and_tau_by_hand():
    """Three rounds that emit 3, 1 and 2 tokens accepted 2, 0 and 1 drafts."""
    text = Generation([0] * 7, [Step([1, 2, 3]), Step([4]), Step([5, 6])], 2.0)
    assert text.accepted == [2, 0, 1]
    assert text.tau == 2 and text.tokens_per_second == 3


@pytest.mark.parametrize("flags, sentence", [
    ((0,), "max_new_tokens is 0"), ((9, "", decode), "stop is empty"), ((9, "x"), "stop needs")])
def test_bad_ends(flags, sentence):
    with pytest.raises(ValueError, match=sentence):
        collect(iter(()), *flags)
