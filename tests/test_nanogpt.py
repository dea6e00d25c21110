"""The stage: corpora, tokenizers, sampler, packed copies, the target, collecting a text."""

import copy
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from nanogpt import packing, weights
from nanogpt.data import (
    VOCABULARY,
    BPETokenizer,
    CharTokenizer,
    Dataset,
    held_out_prompts,
    hold_out,
    load_dataset,
    load_text,
    load_tokenizer,
)
from nanogpt.decoding import Context, Step, collect
from nanogpt.exact.toy_models import random_gpt
from nanogpt.model import GPT, GPTConfig, norm
from nanogpt.packing import PackedLinear, can_pack, for_decoding, packed_dtype, precision_of
from nanogpt.sampling import Dice, Sampler
from nanogpt.sizes import Recipe
from nanogpt.train import step_generator

# ---------------------------------------------------------------- data


def test_tokenizers_round_trip():
    text = load_text()
    for name in ("char", "bpe"):
        tokenizer = load_tokenizer(name, text)
        tokens = tokenizer.encode(text[:3000])
        assert tokenizer.decode(tokens) == text[:3000]
        assert max(tokens) < tokenizer.vocab_size
    assert len(tokens) < 1500  # a byte pair is worth more than two characters here


def test_the_bpe_trainer_and_its_files(tmp_path):
    """A small vocabulary holds the commonest pair."""
    weights.make_vocabulary("aaab aaab aaab bbb", 258, tmp_path / "v.tiktoken")
    tokenizer = BPETokenizer(tmp_path / "v.tiktoken", 258)
    assert tokenizer.vocab_size == 258 and len(tokenizer.encode("aa")) == 1


def test_held_out_text_comes_from_every_stretch():
    train_text, val_text = hold_out("".join(str(i % 10) * 10 for i in range(10)), 10)
    assert val_text == "0123456789" and len(train_text) == 90
    assert hold_out("abcdefghij", 1) == ("abcdefghi", "j")


def test_a_batch_asks_for_the_next_token():
    """Row by row, from places of its own; each step has places of its own."""
    split, recipe = torch.arange(1000), Recipe(10, 4)
    dataset = Dataset("char", None, split, split, "")
    x, y = dataset.batch(split, 4, 20, step_generator(recipe, 0))
    assert x.shape == y.shape == (4, 20)
    assert torch.equal(y, x + 1) and torch.equal(x - x[:, :1], torch.arange(20).expand(4, -1))
    starts = [tuple(dataset.batch(split, 4, 20, step_generator(replace(recipe, seed=seed), step))[0]
                    [:, 0].tolist()) for seed in (1, 2) for step in range(20)]
    assert len(set(starts)) == 40
    again = dataset.batch(split, 4, 20, step_generator(recipe, 0))[0]
    assert torch.equal(again, x)
    lowest, highest = (f(dataset.batch(torch.arange(22), 99, 20, step_generator(recipe, 0))[1])
                       for f in (torch.min, torch.max))
    assert (lowest, highest) == (1, 21)  # both ends of the text are reached


def test_prompts_are_held_out_and_spread():
    dataset = Dataset("char", None, torch.arange(1000), torch.arange(5000, 6000), "")
    prompts = held_out_prompts(dataset, 3, 64)
    assert [prompt[0] for prompt in prompts] == [5000, 5468, 5935]
    assert all(prompt == list(range(prompt[0], prompt[0] + 64)) for prompt in prompts)


def test_bad_corpora(tmp_path):
    (tmp_path / "empty.txt").write_text(" \n")
    (tmp_path / "short.txt").write_text("abc" * 1999)
    for name, sentence in (("none", "cannot be read"), ("empty", "is empty"),
                           ("short", "5997 tokens; at least 6000")):
        with pytest.raises(ValueError, match=sentence):
            load_dataset(str(tmp_path / f"{name}.txt"))
    (tmp_path / "short.txt").write_text("abc" * 2000)
    assert [len(load_dataset(str(tmp_path / "short.txt")).train)] == [5400]
    whole = VOCABULARY.read_bytes()
    for content in (b"", b"QQ==", whole[:900], whole[:-9], b"\xff"):
        (tmp_path / "v.tiktoken").write_bytes(content)
        with pytest.raises(ValueError, match="v.tiktoken is damaged"):
            BPETokenizer(tmp_path / "v.tiktoken")
    with pytest.raises(ValueError, match="'\xe9' at position 1 is not in the vocabulary"):
        CharTokenizer("abc").encode("a\xe9")
    with pytest.raises(ValueError, match="tokenizer is 'x'"):
        load_tokenizer("x", "abc")


# ---------------------------------------------------------------- sampling


@pytest.mark.parametrize("rule, tenths", [
    ((0,), [1, 0, 0, 0]), ((0.5,), [16, 9, 4, 1]), ((1, 2), [4, 3, 0, 0]),
    ((1, None, 0.7), [4, 3, 0, 0]), ((1, None, 0.71), [4, 3, 2, 0]), ((1, 99, 1e-9), [1, 0, 0, 0]),
    # top_p counts what top_k has left: of (4/9, 3/9, 2/9) two make 7/9 >= .75
    ((1, 3, 0.75), [4, 3, 0, 0]), ((1, None, 0.75), [4, 3, 2, 0]),
    ((1, 2, 0.95), [4, 3, 0, 0]), ((1, 3, 0.3), [1, 0, 0, 0]),  # each cuts beside the other
])
def test_sampler_by_hand(rule, tenths):
    logits = torch.tensor([0.4, 0.3, 0.2, 0.1]).double().log()
    expected = [x / sum(tenths) for x in tenths]
    assert Sampler(*rule)(logits).tolist() == pytest.approx(expected)


@pytest.mark.parametrize("rule", [(0,), (1, 1), (1, None, 1e-4)])
def test_a_tie_goes_to_the_lowest_token(rule):
    tied = torch.tensor([[0.0, 2.0, 2.0, 1.0], [3.0, 1.0, 3.0, 3.0]])
    assert Sampler(*rule)(tied).tolist() == [[0, 1, 0, 0], [1, 0, 0, 0]]
    many = torch.zeros(64, 300)  # long rows take another path through a sort
    assert (Sampler(*rule)(many).argmax(-1) == 0).all()


@pytest.mark.parametrize("rule", [(0,), (0.7,), (1, 4), (1, None, 0.8), (2, 5, 0.6)])
def test_the_distribution_of_every_row_is_its_own(rule):
    rows, sampler = torch.randn(6, 9, generator=torch.Generator().manual_seed(1)), Sampler(*rule)
    alone = torch.stack([sampler(row) for row in rows])
    torch.testing.assert_close(sampler(rows.view(2, 3, 9)).view(6, 9), alone, rtol=0, atol=1e-7)
    torch.testing.assert_close(alone.sum(-1), torch.ones(6))
    assert [sampler(rows.to(dtype)).dtype for dtype in (torch.bfloat16, torch.float64)] == [
        torch.float32, torch.float64]


def test_dice_repeat_and_never_draw_the_impossible():
    probs = torch.tensor([0.0, 0.5, 0.5, 0.0])
    dice = Dice(0), Dice(0)
    draws = [[one.draw(probs) for _ in range(100)] for one in dice]
    assert draws[0] == draws[1] and set(draws[0]) == {1, 2}
    assert dice[0].flip(1.0) and not dice[0].flip(0.0)


def test_a_draw_finds_the_token_at_its_share():
    """Among 100,000 of 1e-8 behind a 1: in float32 their sums would all be 1."""
    dice, probs = Dice(0), torch.tensor([1.0, 0.0]).repeat_interleave(torch.tensor([1, 100_000]))
    probs[1:] = 1e-8
    for share, token in ((0.0, 0), (0.99, 0), (1.0005 / 1.001, 50_000), (1 - 2 ** -53, 100_000)):
        dice.generator = SimpleNamespace(random=lambda share=share: share)
        assert abs(dice.draw(probs) - token) <= 1


# ---------------------------------------------------------------- packed copies


@pytest.mark.parametrize("can, faster, dtype", [
    (True, True, torch.bfloat16), (True, False, torch.float32), (False, True, None)])
def test_auto_packs_wide_models_alone(monkeypatch, can, faster, dtype):
    """In bfloat16 where that is faster, else in float32; narrow ones stay as they are."""
    monkeypatch.setattr(packing, "can_pack", lambda dtype=None: can)
    monkeypatch.setattr(packing, "bf16_is_faster", lambda device: faster)
    monkeypatch.setattr(packing, "pack", lambda model, dtype: packed.update({width: dtype}))
    for width, expected in ((64, None), (128, None), (192, dtype), (384, dtype)):
        packed = {}
        for_decoding(GPT(GPTConfig(11, 8, 1, 2, width)))
        assert packed.get(width) == expected


@pytest.mark.parametrize("ms, rows", [((1.0, 3.5), 3), ((1.0, 0.5), 0), ((1.0, 99.0), 8)])
def test_plain_products_serve_as_many_rows_as_they_are_faster_for(monkeypatch, ms, rows):
    """ms: of a plain product, a row; of a packed one, whatever the rows."""
    clock, (plain, packed) = [0.0], ms

    class Timed:
        def __init__(self, linear, dtype, plain_rows):
            self.plain = plain_rows > 0

        def __call__(self, x):
            clock[0] += plain * len(x) if self.plain else packed

    monkeypatch.setattr(packing, "PackedLinear", Timed)
    monkeypatch.setattr(packing.time, "perf_counter", lambda: clock[0])
    linears = [torch.nn.Linear(2, 2, bias=False)]
    assert packing.count_plain_rows(linears, torch.float32) == rows


@pytest.fixture(params=["bfloat16", "float32"])
def precision(request):
    """One that this machine can pack."""
    if not can_pack(getattr(torch, request.param)):
        pytest.skip(f"this torch packs no {request.param} weights")
    return request.param


@pytest.mark.parametrize("plain_rows", [0, 8])
@pytest.mark.parametrize("rows", [0, 1, 5, 20])
def test_a_packed_product_is_right_to_its_rounding(precision, plain_rows, rows):
    """|error| <= (2u + u^2) |W| |x| + u |y|: weights, inputs and the result are each rounded."""
    dtype, n = getattr(torch, precision), 96
    torch.manual_seed(rows)
    linear, x = torch.nn.Linear(n, 40, bias=False), torch.randn(rows, n)
    layer = PackedLinear(linear, dtype, plain_rows=plain_rows)
    setattr(layer, "packed" if rows < plain_rows else "plain", None)  # not asked
    found = layer(x)
    u = torch.finfo(dtype).eps / 2
    weight = linear.weight.double()
    exact, size = x.double() @ weight.T, x.double().abs() @ weight.abs().T  # (rows, 40)
    sums = n * 2 ** -24  # of adding up in float32, in any order
    bound = (2 * u + u * u + sums) * (1 + u) * size + u * exact.abs()
    assert ((found - exact).abs() <= bound).all()


def test_a_packed_model_is_the_same_network(precision):
    model, tokens = random_gpt(0, width=192).float(), torch.randint(11, (1, 20))
    packed, dtype = for_decoding(model, precision), getattr(torch, precision)
    assert packed_dtype(packed) == dtype and packed_dtype(model) is None
    assert precision_of(packed) == precision and precision_of(model) == "float32"
    assert sum(isinstance(layer, PackedLinear) for layer in packed.modules()) == 4 * 2
    assert isinstance(packed.lm_head, torch.nn.Linear)
    exact = model(tokens)[0]
    # Eight products, each with three roundings of at most eps / 2; another network is at 1.
    bound = 8 * 4 * torch.finfo(dtype).eps
    assert (packed(tokens)[0] - exact).norm() < bound * exact.norm()


def test_a_packed_model_can_be_copied_and_packed_again(precision):
    packed = for_decoding(random_gpt(0, width=192).float(), precision)
    tokens = torch.randint(11, (1, 20))
    for twin in (copy.deepcopy(packed), for_decoding(packed, precision), for_decoding(packed)):
        assert twin is not packed and packed_dtype(twin) == getattr(torch, precision)
        assert torch.equal(twin(tokens)[0], packed(tokens)[0])
        with torch.no_grad():
            twin.embed.weight.zero_()  # a copy: what is written to is its own
    assert packed.embed.weight.abs().sum() > 0
    other = "float32" if precision == "bfloat16" else "bfloat16"
    with pytest.raises(ValueError, match=f"the model is packed in {precision} already"):
        for_decoding(packed, other)
    with pytest.raises(ValueError, match="precision is 'int8'"):
        for_decoding(packed, "int8")


# ---------------------------------------------------------------- the first weights


def test_a_new_model_is_its_embedding():
    """Each block starts as the identity, beside an embedding that what it adds will not drown."""
    torch.manual_seed(0)
    model = GPT(GPTConfig(500, 8, 2, 2, 64))
    _, hidden = model(torch.arange(8)[None])
    assert all(torch.equal(x, hidden[0]) for x in hidden)
    for name, std in (("embed", 0.2), ("lm_head", 0.02), ("blocks.0.attention.qkv", 0.02),
                      ("blocks.1.up", 0.02)):
        assert model.state_dict()[f"{name}.weight"].std() == pytest.approx(std, rel=0.05)


# ---------------------------------------------------------------- rotary positions


def test_a_model_sees_distances_and_no_places():
    model, tokens = random_gpt(3), torch.randint(11, (1, 8))
    logits = model(tokens)[0]
    shifted = model(tokens, positions=torch.arange(9, 17))[0]
    torch.testing.assert_close(shifted, logits, rtol=0, atol=1e-6)
    stretched = model(tokens, positions=2 * torch.arange(8))[0]
    assert (stretched - logits)[0, 1:].abs().amax(-1).min() > 1e-3


# ---------------------------------------------------------------- the forward and its cache


def test_hidden_states_come_in_the_order_of_the_layers():
    """hidden[i] is what block i reads, hidden[-1] what the output matrix reads."""
    model, tokens, seen = random_gpt(0), torch.randint(11, (2, 12)), []
    for block in model.blocks:
        block.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    logits, hidden = model(tokens)
    assert all(map(torch.equal, hidden[:-1], seen)) and len(hidden) == len(seen) + 1
    assert torch.equal(hidden[0], model.embed(tokens))
    assert torch.equal(model.lm_head(norm(hidden[-1])), logits)


def test_cache_grows_for_huge_trees():
    """A context of 32 and 128 rows behind it: 400 siblings after what is committed."""
    model, committed, rows = random_gpt(0), 20, 400
    text, cache = torch.randint(11, (1, committed + 2)), model.new_cache()
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
    assert context.text == [1] * (length + 1) and context.full == (length == 31)
    context.text = [2] * 32  # full: it starts anew from the last half
    assert len(context.prefill()[0]) == 16 and context.room == 15


# ---------------------------------------------------------------- collecting a text


@pytest.mark.parametrize("count, accepted, last", [
    (2, [0], [1]), (5, [1, 1], [3, 4]), (6, [1, 2], [3, 4, 5])])
def test_a_text_ends_where_it_should(count, accepted, last):
    """Inside a block or behind it, and nobody is asked for another."""
    def blocks():
        yield from (Step([0]), Step([1, 2]), Step([3, 4, 5]))
        pytest.fail("asked for a step behind the end")

    told = []
    found = collect(blocks(), count, told.append)
    assert found.tokens == sum(told, []) == list(range(count))
    assert found.accepted == accepted and found.steps[-1].tokens == last
    assert found.tau == (count - 1) / len(accepted)


def test_a_text_of_no_tokens_is_refused():
    with pytest.raises(ValueError, match="max_new_tokens is 0"):
        collect(iter(()), 0)
