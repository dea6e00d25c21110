"""The stage: tokenizers, sampler, cache, window, checkpoints, and training."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from nanogpt import bpe, checkpoint, data, packing, train
from nanogpt.checkpoint import checkpoint_path, load_checkpoint, save_checkpoint
from nanogpt.data import (
    CharTokenizer,
    hold_out,
    load_dataset,
    load_text,
    load_tokenizer,
    read_ranks,
)
from nanogpt.decoding import Context, collect, plain_decode
from nanogpt.model import GPT, GPTConfig
from nanogpt.packing import can_pack, for_decoding, precision_of
from nanogpt.sampling import Dice, Sampler
from nanogpt.sizes import Recipe
from nanogpt.train import fit
from test_chain_specdec import random_gpt

ROOT = Path(__file__).resolve().parent.parent

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


# ---------------------------------------------------------------- model and decoding


def test_cache_gives_the_same_logits_as_one_pass():
    model, tokens = random_gpt(0), torch.randint(11, (2, 12))
    whole, hidden = model(tokens)
    cache, parts = model.new_cache(batch=2), []
    for piece in tokens.split([5, 1, 6], 1):
        logits, _ = model(piece, cache=cache)
        cache.commit(list(range(piece.shape[1])))
        parts.append(logits)
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=0, atol=1e-10)
    assert len(hidden) == 3 and hidden[0].shape == (2, 12, 16)


def test_cache_grows_for_huge_trees():
    model = random_gpt(0)
    cache = model.new_cache()
    positions, mask = torch.zeros(400, dtype=torch.long), torch.eye(400, dtype=torch.bool)
    logits, _ = model(torch.ones(1, 400, dtype=torch.long), positions, mask, cache)
    torch.testing.assert_close(logits[0, 399], logits[0, 0], rtol=0, atol=1e-12)


def test_window_rule():
    """Full context: it starts anew from the last half; the forward refuses to go beyond."""
    model = random_gpt(1)
    context = Context(model, [1] * 31)
    assert context.prefill()[0] == [1] * 31 and context.room == 0 and not context.full
    context.text = [2] * 32
    assert len(context.prefill()[0]) == 16 and context.room == 15
    with pytest.raises(ValueError, match="33 rows do not fit"):
        model(torch.ones(1, 33, dtype=torch.long))


def test_stop_string_and_length_cut_inside_a_block():
    from chain_specdec import GPTDraft, speculate_chain

    target, decode = random_gpt(2), lambda tokens: "".join(chr(97 + t) for t in tokens)
    greedy = Sampler(0)
    plain = collect(plain_decode(target, [1, 2], greedy, Dice(0)), 40).tokens
    for n in (1, 2, 7, 30):
        steps = speculate_chain(target, GPTDraft(target), [1, 2], 4, greedy, Dice(0))
        cut = collect(steps, n)
        assert cut.tokens == plain[:n]
        assert sum(len(s.tokens) for s in cut.steps) == n - 1
    stop = decode(plain[9:11])
    steps = speculate_chain(target, GPTDraft(target), [1, 2], 4, greedy, Dice(0))
    text = decode(collect(steps, 40, stop, decode).tokens)
    assert text.endswith(stop) and text.count(stop) == 1
    with pytest.raises(ValueError, match="max_new_tokens is 0"):
        collect(iter(()), 0)
    with pytest.raises(ValueError, match="stop is empty"):
        collect(iter(()), 9, "", decode)
    with pytest.raises(ValueError, match="stop needs decode"):
        collect(iter(()), 9, "x")


def test_auto_packs_wide_models_alone(monkeypatch):
    if not can_pack():
        pytest.skip("no packed bfloat16 on this machine")
    monkeypatch.setattr(packing, "bf16_is_faster", lambda device: True)
    found = [precision_of(for_decoding(GPT(GPTConfig(11, 8, 1, 2, width))))
             for width in (64, 128, 192, 384)]
    assert found == ["float32", "float32", "bfloat16", "bfloat16"]
    monkeypatch.setattr(packing, "bf16_is_faster", lambda device: False)
    assert precision_of(for_decoding(GPT(GPTConfig(11, 8, 1, 2, 384)))) == "float32"


def test_packed_bfloat16_stays_close():
    torch.manual_seed(0)
    model = GPT(GPTConfig(11, 32, 2, 2, 32))
    try:
        packed = for_decoding(model, "bfloat16")
    except ValueError:
        pytest.skip("no packed bfloat16 on this machine")
    tokens = torch.randint(11, (1, 20))
    torch.testing.assert_close(packed(tokens)[0], model(tokens)[0], rtol=0, atol=0.02)
    with pytest.raises(ValueError, match="precision is 'int8'"):
        for_decoding(model, "int8")


# ---------------------------------------------------------------- checkpoints and training


def test_checkpoints_are_keyed_and_checked(tmp_path, monkeypatch):
    config = {"width": 1}
    path = checkpoint_path("m", config, tmp_path)
    assert path != checkpoint_path("m", {"width": 2}, tmp_path)
    assert load_checkpoint(path, config) is None
    save_checkpoint(path, config, {"step": 3})
    assert load_checkpoint(path, config)["step"] == 3
    with pytest.raises(ValueError, match="other settings"):
        load_checkpoint(path, {"width": 2})

    def dies(*args):
        raise OSError("disk full")

    monkeypatch.setattr(checkpoint.torch, "save", dies)
    with pytest.raises(ValueError, match="cannot be written"):
        save_checkpoint(path, config, {"step": 4})
    monkeypatch.undo()
    assert load_checkpoint(path, config)["step"] == 3  # what was there is still there
    assert len(list(tmp_path.iterdir())) == 1
    whole = path.read_bytes()
    garbage = [hashlib.sha256(bytes([i])).digest()[:8] for i in range(256)]
    for content in (b"", b"not a checkpoint", whole[:100], *garbage):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="damaged"):
            load_checkpoint(path, config)
    for content in (torch.zeros(3), ["config"], {}):
        torch.save(content, path)
        with pytest.raises(ValueError, match="no checkpoint of this project"):
            load_checkpoint(path, config)


def train_tiny(path, stop_at=None):
    """12 steps of a tiny model; stop_at: press Ctrl-C in that step."""
    torch.manual_seed(0)
    model = GPT(GPTConfig(5, 8, 1, 1, 8))

    def batch_loss(step):
        if step == stop_at:
            raise KeyboardInterrupt
        generator = train.step_generator(Recipe(12, 2), step)
        tokens = torch.randint(5, (2, 8), generator=generator)
        return torch.nn.functional.cross_entropy(
            model(tokens)[0].flatten(0, 1).float(), tokens.flatten())

    fit(model, batch_loss, Recipe(12, 2), path, {"tiny": 1}, "tiny")
    return model.state_dict()


def test_an_interrupted_training_goes_on_where_it_stopped(tmp_path):
    whole = train_tiny(tmp_path / "a.pt")
    with pytest.raises(SystemExit):
        train_tiny(tmp_path / "b.pt", stop_at=7)
    resumed = train_tiny(tmp_path / "b.pt")
    for name in whole:
        torch.testing.assert_close(resumed[name], whole[name], rtol=0, atol=0)
    assert torch.equal(train_tiny(tmp_path / "b.pt")["embed.weight"], whole["embed.weight"])


def test_two_processes_train_together(tmp_path):
    """torchrun with gloo: both see their share of the batch, one writes the checkpoint."""
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("to be or not to be, that is the question.\n" * 300)
    driver = tmp_path / "driver.py"
    driver.write_text(
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from pathlib import Path\n"
        "from nanogpt import checkpoint, train\n"
        f"checkpoint.CHECKPOINTS = Path({str(tmp_path)!r})\n"
        f"train.main(['--size', 'draft', '--steps', '2', '--corpus', {str(corpus)!r},"
        " '--threads', '1'])\n")
    answer = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2",
         str(driver)],
        capture_output=True, text=True, timeout=240, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert answer.returncode == 0, answer.stderr[-2000:]
    assert answer.stdout.count("validation loss") == 2  # from one process: trained, summary
    assert len(list(tmp_path.glob("draft-*.pt"))) == 1
