"""The stage: corpora, tokenizers, the sampler, packed copies."""

import copy
import hashlib

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


def test_bpe_vocabulary_is_complete_and_in_tiktokens_format():
    ranks = read_ranks(bpe.VOCABULARY)
    assert sorted(ranks.values()) == list(range(768))
    assert all(bytes([b]) in ranks for b in range(256))


def test_the_bpe_trainer_and_its_file(tmp_path):
    ranks = bpe.train_vocabulary("aaab aaab aaab bbb", 258)
    bpe.write_ranks(ranks, tmp_path / "v.tiktoken")
    assert read_ranks(tmp_path / "v.tiktoken") == ranks and b"aa" in ranks


def test_held_out_text_comes_from_every_stretch():
    train_text, val_text = hold_out("".join(str(i % 10) * 10 for i in range(10)), 10)
    assert val_text == "0123456789" and len(train_text) == 90
    assert hold_out("abcdefghij", 1) == ("abcdefghi", "j")


def test_bad_corpora(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="cannot be read"):
        load_text(str(tmp_path / "none.txt"))
    (tmp_path / "empty.txt").write_text(" \n")
    with pytest.raises(ValueError, match="is empty"):
        load_text(str(tmp_path / "empty.txt"))
    (tmp_path / "short.txt").write_text("abc" * 100)
    with pytest.raises(ValueError, match="300 tokens; at least 6000"):
        load_dataset(str(tmp_path / "short.txt"))
    with pytest.raises(ValueError, match="'é' at position 1 is not in the vocabulary"):
        CharTokenizer("abc").encode("aé")
    with pytest.raises(ValueError, match="tokenizer is 'x'"):
        load_tokenizer("x", "abc")

    def no_network(*args, **kwargs):
        raise OSError("no network")

    monkeypatch.setattr(data.urllib.request, "urlopen", no_network)
    with pytest.raises(ValueError, match="could not be downloaded"):
        data.download_tiny(tmp_path)


def test_tiny_shakespeare_is_checked_and_kept(tmp_path, monkeypatch):
    class Answer:
        def __enter__(self):
            return self

        def __exit__(self, *args):
            pass

        def read(self):
            return b"words, words, words"

    monkeypatch.setattr(data.urllib.request, "urlopen", lambda *a, **k: Answer())
    with pytest.raises(ValueError, match="SHA-256"):
        data.download_tiny(tmp_path)
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(data, "TINY_SHA256", hashlib.sha256(Answer().read()).hexdigest())
    assert data.download_tiny(tmp_path) == Answer().read()
    assert (tmp_path / "tinyshakespeare.txt").read_bytes() == Answer().read()


# ---------------------------------------------------------------- sampling


def test_sampler_by_hand():
    logits = torch.tensor([0.4, 0.3, 0.2, 0.1]).double().log()
    assert Sampler(0)(logits).tolist() == [1, 0, 0, 0]
    assert Sampler(1, top_k=2)(logits).tolist() == pytest.approx([4 / 7, 3 / 7, 0, 0])
    assert Sampler(1, top_p=0.7)(logits).tolist() == pytest.approx([4 / 7, 3 / 7, 0, 0])
    assert Sampler(1, top_p=0.71)(logits).tolist() == pytest.approx([4 / 9, 3 / 9, 2 / 9, 0])
    assert Sampler(0.5)(logits).tolist() == pytest.approx([16 / 30, 9 / 30, 4 / 30, 1 / 30])
    assert Sampler(1, top_k=99, top_p=1e-9)(logits).tolist() == [1, 0, 0, 0]
    assert Sampler(1, top_k=1)(torch.zeros(3)).tolist() == [1, 0, 0]  # ties: the lowest id


def test_top_p_counts_what_top_k_has_left():
    """(.4, .3, .2, .1): three tokens left are (4/9, 3/9, 2/9), and two of them make 7/9 >= .75."""
    logits = torch.tensor([0.4, 0.3, 0.2, 0.1]).double().log()
    assert Sampler(1, top_k=3, top_p=0.75)(logits).tolist() == pytest.approx([4 / 7, 3 / 7, 0, 0])
    assert Sampler(1, top_p=0.75)(logits).tolist() == pytest.approx([4 / 9, 3 / 9, 2 / 9, 0])
    # top_k alone would leave more than top_p, or fewer: each cuts beside the other
    assert Sampler(1, top_k=2, top_p=0.95)(logits).tolist() == pytest.approx([4 / 7, 3 / 7, 0, 0])
    assert Sampler(1, top_k=3, top_p=0.3)(logits).tolist() == [1, 0, 0, 0]


def test_a_tie_goes_to_the_lowest_token():
    tied = torch.tensor([[0.0, 2.0, 2.0, 1.0], [3.0, 1.0, 3.0, 3.0]])
    assert Sampler(0)(tied).tolist() == [[0, 1, 0, 0], [1, 0, 0, 0]]
    assert Sampler(1, top_k=1)(tied).tolist() == [[0, 1, 0, 0], [1, 0, 0, 0]]
    assert Sampler(1, top_p=0.1)(tied).tolist() == [[0, 1, 0, 0], [1, 0, 0, 0]]
    many = torch.zeros(64, 300)  # long rows take another path through a sort
    for sampler in (Sampler(0), Sampler(1, top_k=1), Sampler(1, top_p=1e-4)):
        assert (sampler(many).argmax(-1) == 0).all()


def test_the_distribution_of_every_row_is_its_own():
    """Rows of one call, and of one dtype, are cut as if each came alone."""
    rows = 2 * torch.randn(2, 3, 9, generator=torch.Generator().manual_seed(1))
    for sampler in (Sampler(0), Sampler(0.7), Sampler(1, 4), Sampler(1, None, 0.8),
                    Sampler(2, 5, 0.6)):
        alone = torch.stack([sampler(row) for row in rows.view(6, 9)]).view(2, 3, 9)
        torch.testing.assert_close(sampler(rows), alone, rtol=0, atol=1e-7)
        torch.testing.assert_close(alone.sum(-1), torch.ones(2, 3))
        assert sampler(rows.bfloat16()).dtype == torch.float32
        assert sampler(rows.double()).dtype == torch.float64


@pytest.mark.parametrize("slip, match", [
    ({"temperature": -1}, "temperature is -1"), ({"temperature": float("nan")}, "temperature is"),
    ({"top_k": 0}, "top_k is 0"), ({"top_p": 0}, "top_p is 0"), ({"top_p": 1.5}, "top_p is 1.5"),
])
def test_bad_samplers(slip, match):
    with pytest.raises(ValueError, match=match):
        Sampler(**slip)


def test_dice_repeat_and_never_draw_the_impossible():
    probs = torch.tensor([0.0, 0.5, 0.5, 0.0])
    draws = [Dice(3).draw(probs) for _ in range(3)]
    assert len(set(draws)) == 1
    dice = Dice(0)
    assert {dice.draw(probs) for _ in range(200)} == {1, 2}
    assert dice.flip(1.0) and not dice.flip(0.0)


# ---------------------------------------------------------------- packed copies


def test_auto_packs_wide_models_alone(monkeypatch):
    """In bfloat16 where that is faster, else in float32; narrow ones stay as they are."""
    packed = []
    monkeypatch.setattr(packing, "pack", lambda model, dtype: packed.append(dtype))
    monkeypatch.setattr(packing, "can_pack", lambda dtype=None: True)
    for faster, dtype in ((True, torch.bfloat16), (False, torch.float32)):
        monkeypatch.setattr(packing, "bf16_is_faster", lambda device, answer=faster: answer)
        for width in (64, 128, 192, 384):
            for_decoding(GPT(GPTConfig(11, 8, 1, 2, width)))
        assert packed == [dtype] * 2
        packed.clear()
    monkeypatch.setattr(packing, "can_pack", lambda dtype=None: False)
    for_decoding(GPT(GPTConfig(11, 8, 1, 2, 384)))
    assert packed == []


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
@pytest.mark.parametrize("rows", [1, 5, 20])
def test_a_packed_product_is_right_to_its_rounding(precision, plain_rows, rows):
    """|error| <= (2u + u^2) |W| |x| + u |y|: weights, inputs and the result are each rounded."""
    dtype, n = getattr(torch, precision), 96
    torch.manual_seed(rows)
    linear, x = torch.nn.Linear(n, 40, bias=False), torch.randn(rows, n)
    found = PackedLinear(linear, dtype, plain_rows=plain_rows)(x)
    u = torch.finfo(dtype).eps / 2
    weight = linear.weight.double()
    exact, size = x.double() @ weight.T, x.double().abs() @ weight.abs().T  # (rows, 40)
    sums = n * 2 ** -24  # of adding up in float32, in any order
    bound = (2 * u + u * u + sums) * (1 + u) * size + u * exact.abs()
    assert ((found - exact).abs() <= bound).all()


def test_a_packed_model_is_the_same_network(precision):
    model, tokens = small_gpt(192), torch.randint(11, (1, 20))
    packed = for_decoding(model, precision)
    assert packed_dtype(packed) == getattr(torch, precision) and packed_dtype(model) is None
    assert precision_of(packed) == precision and precision_of(model) == "float32"
    kinds = [type(layer) for layer in packed.modules()
             if isinstance(layer, PackedLinear | torch.nn.Linear)]
    assert kinds == 4 * 2 * [PackedLinear] + [torch.nn.Linear]  # the last: the output matrix
    exact, ours = model(tokens)[0], packed(tokens)[0]
    # What rounding costs here: the plain model, each product's inputs and result rounded.
    for layer in model.blocks.modules():
        if isinstance(layer, torch.nn.Linear):
            layer.weight.data = layer.weight.to(packed_dtype(packed)).float()
            layer.register_forward_pre_hook(
                lambda _, args: (args[0].to(packed_dtype(packed)).float(),))
            layer.register_forward_hook(lambda *args: args[2].to(packed_dtype(packed)).float())
    cost = (model(tokens)[0] - exact).abs().max()
    assert (ours - exact).abs().max() < 3 * cost + 1e-4 * exact.std()


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
