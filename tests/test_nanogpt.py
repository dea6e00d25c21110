"""The stage: corpora, tokenizers, the sampler, packed copies."""

import copy
import hashlib
import io

import pytest
import torch

from nanogpt import bpe, data, packing
from nanogpt.data import (
    CharTokenizer,
    hold_out,
    load_dataset,
    load_text,
    load_tokenizer,
    read_ranks,
)
from nanogpt.model import GPT, GPTConfig
from nanogpt.packing import PackedLinear, can_pack, for_decoding, packed_dtype, precision_of
from nanogpt.sampling import Dice, Sampler

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
    """The shipped vocabulary holds each byte; a small one holds the commonest pair."""
    shipped = read_ranks(bpe.VOCABULARY)
    assert sorted(shipped.values()) == list(range(768))
    assert all(bytes([b]) in shipped for b in range(256))
    ranks = bpe.train_vocabulary("aaab aaab aaab bbb", 258)
    bpe.write_ranks(ranks, tmp_path / "v.tiktoken")
    assert read_ranks(tmp_path / "v.tiktoken") == ranks and b"aa" in ranks


def test_held_out_text_comes_from_every_stretch():
    train_text, val_text = hold_out("".join(str(i % 10) * 10 for i in range(10)), 10)
    assert val_text == "0123456789" and len(train_text) == 90
    assert hold_out("abcdefghij", 1) == ("abcdefghi", "j")


def test_bad_corpora(tmp_path):
    (tmp_path / "empty.txt").write_text(" \n")
    (tmp_path / "short.txt").write_text("abc" * 100)
    for name, sentence in (("none", "cannot be read"), ("empty", "is empty"),
                           ("short", "300 tokens; at least 6000")):
        with pytest.raises(ValueError, match=sentence):
            load_dataset(str(tmp_path / f"{name}.txt"))
    with pytest.raises(ValueError, match="'\xe9' at position 1 is not in the vocabulary"):
        CharTokenizer("abc").encode("a\xe9")
    with pytest.raises(ValueError, match="tokenizer is 'x'"):
        load_tokenizer("x", "abc")


def test_tiny_shakespeare_is_checked_and_kept(tmp_path, monkeypatch):
    def no_network(*args, **kwargs):
        raise OSError("no network")

    content = b"words, words, words"
    for answer, sentence in ((no_network, "could not be downloaded"),
                             (lambda *a, **k: io.BytesIO(content), "SHA-256")):
        monkeypatch.setattr(data.urllib.request, "urlopen", answer)
        with pytest.raises(ValueError, match=sentence):
            data.download_tiny(tmp_path)
        assert not list(tmp_path.iterdir())
    monkeypatch.setattr(data, "TINY_SHA256", hashlib.sha256(content).hexdigest())
    assert data.download_tiny(tmp_path) == content
    assert (tmp_path / "tinyshakespeare.txt").read_bytes() == content


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


def small_gpt(width=32):
    torch.manual_seed(0)
    model = GPT(GPTConfig(11, 32, 2, 2, width))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return model


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
    model, tokens = small_gpt(192), torch.randint(11, (1, 20))
    packed, dtype = for_decoding(model, precision), getattr(torch, precision)
    assert packed_dtype(packed) == dtype and packed_dtype(model) is None
    assert precision_of(packed) == precision and precision_of(model) == "float32"
    assert sum(isinstance(layer, PackedLinear) for layer in packed.modules()) == 4 * 2
    assert isinstance(packed.lm_head, torch.nn.Linear)
    exact = model(tokens)[0]
    # Eight products, each with three roundings of at most eps / 2; another network is at 1.
    bound = 8 * 4 * torch.finfo(dtype).eps
    assert (packed(tokens)[0] - exact).norm() < bound * exact.norm()


@pytest.mark.parametrize("limit", [0, 1, 3, 8])
def test_the_faster_form_for_each_number_of_rows(precision, monkeypatch, limit):
    """A clock on which plain products of up to `limit` rows take 1 s, all packed ones 2 s."""
    now = [0.0]

    class Timed(PackedLinear):
        def forward(self, x):
            plain = len(x) <= self.plain_rows
            now[0] += 2.0 if not plain else 1.0 if len(x) <= limit else 3.0
            return x

    linears = [torch.nn.Linear(8, 8, bias=False)] * 3
    monkeypatch.setattr(packing, "PackedLinear", Timed)
    monkeypatch.setattr(packing.time, "perf_counter", lambda: now[0])
    assert packing.count_plain_rows(linears, getattr(torch, precision)) == limit


def test_a_packed_model_can_be_copied_and_packed_again(precision):
    packed, tokens = for_decoding(small_gpt(192), precision), torch.randint(11, (1, 20))
    for twin in (copy.deepcopy(packed), for_decoding(packed, precision), for_decoding(packed)):
        assert twin is not packed and packed_dtype(twin) == getattr(torch, precision)
        assert torch.equal(twin(tokens)[0], packed(tokens)[0])
        with torch.no_grad():
            twin.embed.weight.zero_()  # a copy: what is written to is its own
    assert packed.embed.weight.abs().sum() > 0
    other = "float32" if precision == "bfloat16" else "bfloat16"
    with pytest.raises(ValueError, match=f"the model is packed in {precision} already"):
        for_decoding(packed, other)


def test_bad_precisions():
    with pytest.raises(ValueError, match="precision is 'int8'"):
        for_decoding(small_gpt(), "int8")
    if not can_pack():
        with pytest.raises(ValueError, match="needs a CPU whose torch can pack"):
            for_decoding(small_gpt(), "bfloat16")
