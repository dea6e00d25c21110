"""Models of transformers behind our contract: every node, every cache, the loop unchanged."""


import pytest
import torch

from nanogpt import transformers_model
from chain_specdec import GPTDraft, speculate_chain
from ddtree import BlockChainDrafter, DDTreeDrafter
from nanogpt.clock import cost_curve
from nanogpt.decoding import collect, plain_decode
from nanogpt.exact.slips import changed
from nanogpt.packing import can_pack
from nanogpt.sampling import Dice, Sampler
from nanogpt.transformers_model import (
    BranchingCache,
    Greedy,
    TransformersModel,
    check_branching,
    pack,
)
from ngram import LookupDrafter
from tiny_models import CONTEXT, NAMES, V, close, noisy, random_dflash, text, tiny
from tree_attention import Tree, TreeDrafter, TreeGPT, speculate, walk

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()

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
    cache.commit([0])
    logits, _ = target(torch.tensor([[7]]), cache=cache)
    assert close(logits[0, -1], alone(target.model, [*kept, more[0], 7])[0])
    cache.length = len(CONTEXT)  # back, as a drafter does
    logits, _ = target(torch.tensor([more]), cache=cache)
    assert close(logits[0, -1], alone(target.model, CONTEXT + more)[0])


# ---------------------------------------------------------------- the adapter


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
    assert sorted(cost_curve(target, rows=[1, 4, 200], repeats=1)) == [1, 4]
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


def test_greedy_is_sampler_and_dice_of_temperature_zero():
    logits = torch.randn(5, V, generator=torch.Generator().manual_seed(0))
    logits[0, 3] = logits[0, 40] = 9.0  # a tie
    assert ([Greedy().draw(x) for x in Greedy()(logits)]
            == [Dice().draw(probs) for probs in Sampler(0.0)(logits)])


@pytest.mark.parametrize("dtype, bound", [(torch.bfloat16, 0.1), (torch.float32, 1e-4)])
def test_packed_weights(dtype, bound):
    if not can_pack(dtype):
        pytest.skip(f"this torch cannot pack {dtype} weights")
    target = TransformersModel(tiny("llama"))
    before = alone(target.model, CONTEXT)[0]
    pack(target.model, dtype)
    assert target.precision == str(dtype).removeprefix("torch.")
    check_branching(target)
    assert close(alone(target.model, CONTEXT)[0], before, bound)


def test_a_layer_with_a_bias_is_not_packed(monkeypatch):
    """A packed layer would drop the bias."""
    monkeypatch.setattr(transformers_model, "count_plain_rows", lambda *_: 0)
    monkeypatch.setattr(transformers_model, "PackedLinear", lambda *_, **__: torch.nn.Identity())
    layers = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4))
    pack(layers, torch.float32)
    assert [type(layer).__name__ for layer in layers] == ["Identity", "Linear"]


# ---------------------------------------------------------------- the loop, unchanged


def drafters(target):
    """{name: a drafter of trees}."""
    draft = TransformersModel(noisy(target.model))
    found = {"lookup": LookupDrafter(7), "lookup chain": LookupDrafter(5, width=1),
             "draft tree": TreeDrafter(TreeGPT(draft), (3, 2, 1))}
    if target.config.model_type == "qwen3":
        network = random_dflash(target)
        found |= {"DDTree": DDTreeDrafter(network, 40),
                  "DFlash chain": BlockChainDrafter(network)}
    return found


def texts_of(target, prompt, n):
    """{method: Generation} of every method of ours, greedy."""
    chance, draft = (Greedy(), Greedy()), GPTDraft(TransformersModel(noisy(target.model)))
    runs = {"plain": plain_decode(target, prompt, *chance),
            "chain": speculate_chain(target, draft, prompt, 4, Sampler(0), Dice(1))}
    runs |= {name: speculate(target, drafter, prompt, *chance, walk)
             for name, drafter in drafters(target).items()}
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
