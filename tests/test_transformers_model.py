"""Models of transformers behind our contract: every node, every cache, the loop unchanged."""

from copy import deepcopy
from types import SimpleNamespace

import pytest
import torch

from nanogpt import transformers_model
from chain_specdec import GPTDraft, speculate_chain
from ddtree import BlockChainDrafter, DDTreeDrafter
from experiments import real_model_table
from experiments.real_model_lookup import LookupDrafter
from nanogpt.bench import print_differences
from nanogpt.clock import cost_curve
from nanogpt.decoding import collect, plain_decode
from nanogpt.packing import can_pack
from nanogpt.sampling import Dice, Sampler
from nanogpt.transformers_model import (
    BranchingCache,
    Greedy,
    TransformersModel,
    check_branching,
    pack,
    pick_dtype,
)
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


class RowAsPosition(TransformersModel):
    """Wrong: the row in the forward instead of the depth."""

    def __call__(self, tokens, positions=None, mask=None, cache=None):
        if positions is not None:
            positions = torch.arange(len(positions)) + int(positions[0])
        return super().__call__(tokens, positions, mask, cache)


class BooleanMask(TransformersModel):
    """Wrong under eager attention, which adds the mask."""

    def bias(self, rows, mask, seen):
        return super().bias(rows, mask, seen) == 0


class NothingCut(TransformersModel):
    """Wrong: rows that were never committed stay in the cache."""

    def new_cache(self):
        cache = super().new_cache()
        cache.cut = lambda: None
        return cache


class NoWindow(TransformersModel):
    """Wrong: sliding layers see everything."""

    def bias(self, rows, mask, seen):
        self.window = 10**6
        return super().bias(rows, mask, seen)


class RowDistance(TransformersModel):
    """Wrong: the window counts rows, not positions."""

    def bias(self, rows, mask, seen):
        n = len(seen) + len(rows)
        bias = super().bias(torch.arange(len(seen), n), mask, torch.arange(len(seen)))
        return bias


class AfterTheNorm(TransformersModel):
    """Wrong: transformers' own list, whose last state has gone through the final norm."""

    def __call__(self, tokens, positions=None, mask=None, cache=None):
        logits, hidden = super().__call__(tokens, positions, mask, cache)
        inner = self.model.get_decoder()
        hidden[-1] = (inner.ln_f if hasattr(inner, "ln_f") else inner.norm)(hidden[-1])
        return logits, hidden


class PrefixCommitted(TransformersModel):
    """Wrong: the first rows are kept instead of the path's."""

    def new_cache(self):
        cache = super().new_cache()
        cache.commit = lambda rows: BranchingCache.commit(cache, list(range(len(rows))))
        return cache


@pytest.mark.parametrize("mutant, kind, attention", [
    (RowAsPosition, "qwen3", "sdpa"), (RowAsPosition, "gpt2", "sdpa"),
    (BooleanMask, "llama", "eager"), (BooleanMask, "gpt2", "eager"),
    (NothingCut, "llama", "sdpa"), (PrefixCommitted, "qwen3", "sdpa"),
    (NoWindow, "qwen3, two sliding layers", "sdpa"), (NoWindow, "mistral", "eager"),
    (RowDistance, "qwen3, two sliding layers", "sdpa"), (AfterTheNorm, "llama", "sdpa"),
    (AfterTheNorm, "gpt2", "sdpa"),
], ids=lambda value: getattr(value, "__name__", value))
def test_mutants_are_caught(mutant, kind, attention):
    with pytest.raises((AssertionError, RuntimeError)):
        check(mutant(tiny(kind, attention)))


@pytest.mark.parametrize("mutant, attention", [
    (RowAsPosition, "sdpa"), (BooleanMask, "eager"), (NothingCut, "sdpa")])
def test_a_model_is_tried_before_it_is_used(mutant, attention):
    """The check that the script makes finds architectures that nobody has thought of."""
    with pytest.raises(ValueError, match="cannot verify a tree"):
        check_branching(mutant(tiny("llama", attention)))


def test_a_prefill_makes_one_row_and_keeps_what_is_asked_for():
    target = TransformersModel(tiny("qwen3"), keep=(0, 3))
    tokens = torch.tensor([CONTEXT])
    logits, hidden = target(tokens, cache=target.new_cache())
    assert logits.shape == (1, 1, V)
    assert [x is not None for x in hidden] == [True, False, False, True, False]
    assert hidden[3].shape == (1, 30, 32)
    assert target(tokens)[0].shape == (1, 30, V)  # no cache: no prefill
    assert target.precision == "float32" and target.block_size == 128
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


@pytest.mark.parametrize("seed", range(3))
def test_greedy_is_sampler_and_dice_of_temperature_zero(seed):
    logits = torch.randn(5, V, generator=torch.Generator().manual_seed(seed))
    logits[0, 3] = logits[0, 40] = 9.0  # a tie
    greedy, dice = Greedy(), Dice()
    assert ([greedy.draw(x) for x in greedy(logits)]
            == [dice.draw(probs) for probs in Sampler(0.0)(logits)])


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
    layers = torch.nn.ModuleDict({"plain": torch.nn.Linear(4, 4, bias=False),
                                  "biased": torch.nn.Linear(4, 4)})
    pack(layers, torch.float32)
    assert [type(layer).__name__ for layer in layers.values()] == ["Identity", "Linear"]


@pytest.mark.parametrize("faster, packs, device, wanted", [
    (True, True, "cpu", (torch.float32, torch.bfloat16)),
    (True, False, "cpu", (torch.float32, None)),
    (False, True, "cpu", (torch.float32, torch.float32)),
    (True, False, "cuda", (torch.bfloat16, None)),
])
def test_the_precision_is_the_machines_fastest(monkeypatch, faster, packs, device, wanted):
    monkeypatch.setattr(transformers_model, "bf16_is_faster", lambda device: faster)
    monkeypatch.setattr(transformers_model, "can_pack", lambda dtype=None: packs)
    assert pick_dtype("auto", torch.device(device)) == wanted
    packed = torch.float32 if packs and device == "cpu" else None
    assert pick_dtype("float32", torch.device(device)) == (torch.float32, packed)
    with pytest.raises(ValueError, match="precision is 'int4'"):
        pick_dtype("int4", torch.device(device))


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


def texts_of(target, prompt, n, temperature=0.0):
    """{method: Generation} of every method of ours."""
    sampler = Sampler(temperature)
    chance = (Greedy(), Greedy()) if temperature == 0 else (sampler, Dice(1))
    draft = GPTDraft(TransformersModel(noisy(target.model)))
    runs = {"plain": plain_decode(target, prompt, *chance),
            "chain": speculate_chain(target, draft, prompt, 4, sampler, Dice(1))}
    runs |= {name: speculate(target, drafter, prompt, *chance, walk)
             for name, drafter in drafters(target).items()}
    return {name: collect(steps, n) for name, steps in runs.items()}


@pytest.mark.parametrize("kind", NAMES)
def test_texts_equal_plain_decoding_and_transformers_greedy(kind):
    target = TransformersModel(tiny(kind))
    texts = texts_of(target, CONTEXT, 24)
    steps = real_model_table.theirs(SimpleNamespace(target=target), {"max_new_tokens": 24},
                                    CONTEXT, 0)
    theirs = [t for step in steps for t in step.tokens]
    assert {name: g.tokens for name, g in texts.items()} == dict.fromkeys(texts, theirs)
    assert texts["chain"].tau > 1.3 and texts["draft tree"].tau > 1.3  # something was accepted


@pytest.mark.parametrize("kind", ["qwen3", "qwen3, two sliding layers", "gpt2"])
def test_texts_stay_equal_across_a_slide_of_the_window(kind):
    target = TransformersModel(tiny(kind))
    texts = texts_of(target, text(110), 40)  # the window holds 128, then it slides
    plain = texts["plain"].tokens
    assert {name: g.tokens for name, g in texts.items()} == dict.fromkeys(texts, plain)
    if kind == "qwen3":
        assert texts["DDTree"].tau > 1.2  # 40 of 61 tokens: many first ones are right


def test_sampled_texts_repeat_with_their_seed():
    target = TransformersModel(tiny("qwen3"))
    once, again = (texts_of(target, CONTEXT, 12, temperature=0.5) for _ in range(2))
    assert {n: g.tokens for n, g in once.items()} == {n: g.tokens for n, g in again.items()}


def test_the_clock_and_the_account_take_the_adapter(capsys):
    target = TransformersModel(tiny("llama"))
    assert sorted(cost_curve(target, rows=[1, 4, 200], repeats=1)) == [1, 4]
    texts = texts_of(target, CONTEXT, 8)
    changed = deepcopy(texts["chain"])
    changed.tokens[5] = -1
    print_differences({"plain": [texts["plain"]], "wrong": [changed]}, [CONTEXT], target)
    assert "prompt 0 differs at token 5" in capsys.readouterr().out
