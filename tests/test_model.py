"""The target and plain decoding: cache, rotary positions, hidden states, window, stop strings."""

import pytest
import torch

from chain_specdec import GPTDraft, speculate_chain
from nanogpt.decoding import Context, Generation, Step, collect, plain_decode
from nanogpt.model import norm, rope_tables, rotate
from nanogpt.sampling import Dice, Sampler
from test_chain_specdec import random_gpt
from tree_attention import Tree, speculate

# ---------------------------------------------------------------- rotary positions


def rotated(x, position, block_size=64):
    """x (hd,) as q at this position, turned -> (hd,)."""
    cos, sin = rope_tables(block_size, len(x))  # (block_size, 3, 1, hd)
    qkv = torch.stack([x, x, x]).to(cos.dtype)[:, None]  # (3, 1, hd): one head
    return rotate(qkv.double(), cos[position], sin[position])[0, 0]


def test_a_rotation_by_hand():
    """head_dim 4: pairs (x0, x2) and (x1, x3) turn by 1 and by 1 / 100 a position."""
    x = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    for position in (0, 1, 7):
        pairs = torch.complex(x[:2], x[2:])
        angles = position * torch.tensor([1.0, 0.01], dtype=torch.float64)
        turned = pairs * torch.polar(torch.ones_like(angles), angles)
        expected = torch.cat([turned.real, turned.imag])
        torch.testing.assert_close(rotated(x, position), expected, rtol=0, atol=1e-6)


def test_a_rotation_keeps_norms_and_leaves_v_alone():
    cos, sin = rope_tables(32, 8)
    qkv = torch.randn(2, 32, 3, 5, 8, dtype=torch.float64)  # (B, N, 3, heads, hd)
    q, k, v = rotate(qkv, cos, sin).unbind(2)
    assert torch.equal(v, qkv[:, :, 2])
    for new, old in ((q, qkv[:, :, 0]), (k, qkv[:, :, 1])):
        assert torch.equal(new[:, 0], old[:, 0])  # position 0 turns nothing
        assert (new[:, 1:] - old[:, 1:]).abs().amax(-1).min() > 1e-3
        for half in (new.unflatten(-1, (2, 4)), old.unflatten(-1, (2, 4))):
            assert half.shape[-2:] == (2, 4)
        pairs = [x.unflatten(-1, (2, 4)).norm(dim=-2) for x in (new, old)]  # of (x[i], x[i + hd/2])
        torch.testing.assert_close(*pairs, rtol=0, atol=1e-6)


def test_a_score_depends_on_the_distance_alone():
    q, k = torch.randn(2, 8, dtype=torch.float64)
    scores = {(i, j): float(rotated(q, i) @ rotated(k, j))
              for i in (0, 3, 11, 40) for j in (i, i + 1, i + 5, i + 20)}
    for (i, j), score in scores.items():
        assert score == pytest.approx(scores[0, j - i], abs=1e-5)
    assert len({round(scores[0, d], 3) for d in (0, 1, 5, 20)}) == 4


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
    model, tokens = random_gpt(0), torch.randint(11, (2, 12))
    logits, hidden = model(tokens)
    assert len(hidden) == 3 and all(h.shape == (2, 12, 16) for h in hidden)
    assert torch.equal(hidden[0], model.embed(tokens))
    for index, block in enumerate(model.blocks):
        seen = []
        with_hook = block.register_forward_pre_hook(lambda _, args, seen=seen: seen.append(args[0]))
        model(tokens)
        with_hook.remove()
        assert torch.equal(seen[0], hidden[index])
    assert torch.equal(model.lm_head(norm(hidden[-1])), logits)
    assert all((a - b).abs().max() > 0.1 for a, b in zip(hidden, hidden[1:], strict=False))


@pytest.mark.parametrize("committed", [0, 20])
@pytest.mark.parametrize("rows", [260, 280, 400])
def test_cache_grows_for_huge_trees(committed, rows):
    """A context of 32 and 256 rows behind it: `rows` siblings after what is committed."""
    model = random_gpt(0)
    prefix = torch.randint(11, (1, committed))
    cache = model.new_cache()
    if committed:
        model(prefix, cache=cache)
        cache.commit(list(range(committed)))
    positions, mask = torch.full((rows,), committed), torch.eye(rows, dtype=torch.bool)
    logits, _ = model(torch.ones(1, rows, dtype=torch.long), positions, mask, cache)
    alone = model(torch.cat([prefix, torch.ones(1, 1, dtype=torch.long)], 1))[0][0, -1]
    for row in (0, rows // 2, rows - 1):
        torch.testing.assert_close(logits[0, row], alone, rtol=0, atol=1e-10)
    cache.commit([rows - 1])
    after = model(torch.tensor([[2]]), cache=cache)[0][0, 0]
    text = torch.cat([prefix, torch.tensor([[1, 2]])], 1)
    torch.testing.assert_close(after, model(text)[0][0, -1], rtol=0, atol=1e-10)


# ---------------------------------------------------------------- the window


def test_window_rule():
    """Full context: it starts anew from the last half; the forward refuses to go beyond."""
    model = random_gpt(1)
    context = Context(model, [1] * 31)
    assert context.prefill()[0] == [1] * 31 and context.room == 0 and not context.full
    context.text = [2] * 32
    assert len(context.prefill()[0]) == 16 and context.room == 15
    with pytest.raises(ValueError, match="33 rows do not fit"):
        model(torch.ones(1, 33, dtype=torch.long))


@pytest.mark.parametrize("length", [1, 20, 31])
def test_the_room_is_what_fits_below_the_root(length):
    """A root and `room` tokens in a line just fit the window; one more does not."""
    model = random_gpt(1)
    context = Context(model, [1] * length)
    context.prefill()
    assert context.room == 32 - length - 1
    model(torch.ones(1, 1 + context.room, dtype=torch.long), cache=context.cache)
    with pytest.raises(ValueError, match="33 rows do not fit"):
        model(torch.ones(1, 2 + context.room, dtype=torch.long), cache=context.cache)
    context.commit([0], [1])
    assert context.room == 32 - length - 2 and context.text == [1] * (length + 1)
    assert context.full == (length == 31)


@pytest.mark.parametrize("extra", [0, 1])
def test_a_tree_may_be_as_deep_as_the_room_and_no_deeper(extra):
    class Deep:
        """Proposes a line that reaches the last row of the window, or one beyond."""

        def reset(self):
            pass

        def observe(self, *args):
            pass

        def propose(self, root, room):
            n = room + extra
            return Tree([root] * (1 + n), list(range(-1, n)))

    steps = speculate(random_gpt(1), Deep(), [1] * 20, Sampler(0), Dice(0))
    next(steps)
    if extra:
        with pytest.raises(ValueError, match="the tree is 12 deep; only 11 fit"):
            next(steps)
    else:
        assert next(steps).drafted == 11


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
    ("c", "abc", [1]),  # its last
    ("bc", "abc", [1]),
    ("ab", "ab", [0]),  # begins in the prefill's token
    ("cd", "abcd", [1, 0]),  # begins in one step, ends in the next
    ("cdef", "abcdef", [1, 2]),  # ... and with it
    ("bcde", "abcde", [1, 1]),
    ("cdefg", "abcdefg", [1, 2, 0]),  # spans three
    ("e", "abcde", [1, 1]),  # inside a later block
    ("hi", "abcdefghi", [1, 2, 2]),
    ("j", "abcdefghij", [1, 2, 3]),
])
def test_a_stop_string_wherever_it_stands(stop, text, accepted):
    told = []
    found = collect(blocks(), 99, stop, decode, told.append)
    assert decode(found.tokens) == text == decode(sum(told, []))
    assert found.accepted == accepted
    assert found.tau == (len(text) - 1) / len(accepted)


def test_whichever_comes_first_ends_a_text():
    assert decode(collect(blocks(), 4, "f", decode).tokens) == "abcd"
    assert decode(collect(blocks(), 6, "f", decode).tokens) == "abcdef"
    assert decode(collect(blocks(), 9, "f", decode).tokens) == "abcdef"


def test_accepted_and_tau_by_hand():
    """Three rounds that emit 3, 1 and 2 tokens accepted 2, 0 and 1 drafts."""
    text = Generation([0] * 7, [Step([1, 2, 3]), Step([4]), Step([5, 6])], 2.0)
    assert text.accepted == [2, 0, 1]
    assert text.tau == 2 and text.tokens_per_second == 3


def test_stop_string_and_length_cut_inside_a_block():
    target, letters = random_gpt(2), lambda tokens: "".join(chr(97 + t) for t in tokens)
    greedy = Sampler(0)
    plain = collect(plain_decode(target, [1, 2], greedy, Dice(0)), 40).tokens
    for n in (1, 2, 7, 30):
        steps = speculate_chain(target, GPTDraft(target), [1, 2], 4, greedy, Dice(0))
        cut = collect(steps, n)
        assert cut.tokens == plain[:n]
        assert sum(len(s.tokens) for s in cut.steps) == n - 1
    stop = letters(plain[9:11])
    steps = speculate_chain(target, GPTDraft(target), [1, 2], 4, greedy, Dice(0))
    text = letters(collect(steps, 40, stop, letters).tokens)
    assert text.endswith(stop) and text.count(stop) == 1
    with pytest.raises(ValueError, match="max_new_tokens is 0"):
        collect(iter(()), 0)
    with pytest.raises(ValueError, match="stop is empty"):
        collect(iter(()), 9, "", letters)
    with pytest.raises(ValueError, match="stop needs decode"):
        collect(iter(()), 9, "x")
