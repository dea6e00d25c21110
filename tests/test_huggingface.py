"""The export to Hugging Face format: the same logits, the same texts, the same characters."""

import pytest
import torch

from nanogpt import huggingface
from nanogpt.cli import run
from nanogpt.data import CharTokenizer
from nanogpt.decoding import collect, plain_decode
from nanogpt.model import GPT, GPTConfig
from nanogpt.sampling import Dice, Sampler

TEXT = "ROMEO:\n  But, soft!\n\nwhat 's light . n't ? \t[x]\u00e9\U0001f600"


def random_gpt(vocab_size, seed=0):
    """A GPT in which every matrix matters (fresh blocks are the identity)."""
    torch.manual_seed(seed)
    model = GPT(GPTConfig(vocab_size, block_size=64, n_layer=2, n_head=2, n_embd=16)).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model.requires_grad_(False)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A random model with its character tokenizer, and the folder that holds both."""
    pytest.importorskip("transformers")
    tokenizer = CharTokenizer(TEXT)
    model, folder = random_gpt(tokenizer.vocab_size), tmp_path_factory.mktemp("export") / "gpt"
    huggingface.export(model, tokenizer, folder)
    return model, tokenizer, folder


def test_the_folder_is_complete(exported):
    names = {path.name for path in exported[2].iterdir()}
    assert names >= {"config.json", "generation_config.json", "model.safetensors",
                     "tokenizer.json", "tokenizer_config.json"}


@torch.inference_mode()
def test_logits_are_equal(exported):
    from transformers import AutoModelForCausalLM

    model, tokenizer, folder = exported
    loaded = AutoModelForCausalLM.from_pretrained(folder)
    assert type(loaded).__module__.startswith("transformers.")  # no code of ours
    tokens = torch.randint(tokenizer.vocab_size, (3, 64))
    ours = model(tokens)[0]
    assert ours.std() > 0.5  # else equal logits would say little
    torch.testing.assert_close(loaded(tokens).logits, ours, rtol=0, atol=1e-5)


def test_greedy_texts_are_equal(exported):
    from transformers import AutoModelForCausalLM

    model, tokenizer, folder = exported
    loaded, prompt = AutoModelForCausalLM.from_pretrained(folder), tokenizer.encode("soft!\n")
    ours = collect(plain_decode(model, prompt, Sampler(0.0), Dice(0)), 40).tokens
    theirs = loaded.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=40)
    assert theirs[0, len(prompt):].tolist() == ours


def test_characters_come_back(exported):
    from transformers import AutoTokenizer

    _, tokenizer, folder = exported
    loaded = AutoTokenizer.from_pretrained(folder)
    assert len(loaded) == tokenizer.vocab_size
    for text in (TEXT, "\n\n  \n", " , . 's", ""):
        assert loaded(text).input_ids == tokenizer.encode(text)
        assert loaded.decode(tokenizer.encode(text)) == text
    with pytest.raises(Exception, match="UNK"):
        loaded("soft#")


def test_other_tokenizers_and_folders_are_refused(exported, tmp_path, capsys):
    with pytest.raises(ValueError, match="only the character vocabulary"):
        huggingface.export(exported[0], object(), tmp_path)
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ValueError, match="cannot be written"):
        huggingface.export(exported[0], exported[1], tmp_path / "file")
    with pytest.raises(SystemExit) as stopped:
        run(lambda: huggingface.main(["--tokenizer", "bpe", "--out", str(tmp_path)]))
    assert stopped.value.code == 2 and "tokenizer is 'bpe'" in capsys.readouterr().err


def test_without_transformers_one_sentence(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(huggingface, "MISSING", "transformers")
    monkeypatch.setattr(huggingface, "get_gpt", lambda *_: pytest.fail("trained before"))
    with pytest.raises(SystemExit) as stopped:
        run(lambda: huggingface.main(["--out", str(tmp_path)]))
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("error: this needs the package 'transformers'")
    assert "pip install" in error and error.count("\n") == 1
