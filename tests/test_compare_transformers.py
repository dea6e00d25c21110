"""The comparison with transformers, end to end on small random models."""

import pytest
import torch

from block_diffusion import BlockDrafter
from experiments import compare_transformers
from nanogpt.cli import run
from nanogpt.decoding import collect, plain_decode
from nanogpt.model import GPT, GPTConfig
from nanogpt.packing import can_pack
from nanogpt.sampling import Dice, Sampler

NEW = 32


def random_weights(model, seed=0):
    torch.manual_seed(seed)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.25)
    return model.eval().requires_grad_(False)


def random_gpt(size="small", dataset=None, device=None, retrain=False):
    """In place of get_gpt: the target is the drafter with a little noise, so that drafts pass."""
    model = random_weights(GPT(GPTConfig(62, 128, n_layer=2, n_head=2, n_embd=16)))
    if size != "draft":
        model.lm_head.weight += 0.1 * torch.randn_like(model.lm_head.weight)
    return model


def random_drafter(target, dataset, config, device, retrain):
    return random_weights(BlockDrafter(target, config))


@pytest.fixture
def untrained(monkeypatch):
    """The script with random models in place of trained ones."""
    pytest.importorskip("transformers")
    monkeypatch.setattr(compare_transformers, "get_gpt", random_gpt)
    monkeypatch.setattr(compare_transformers, "get_drafter", random_drafter)


def table_of(capsys, *flags):
    """{method: cells} of the table that the script prints."""
    compare_transformers.main(["--size", "small", "--max-new-tokens", str(NEW), "--prompts", "2",
                               "--k", "3", "--threads", "1", *flags])
    lines = capsys.readouterr().out.splitlines()
    return {line[:32].strip(): line[32:].split() for line in lines if line.endswith("/2")}


METHODS = [
    "transformers greedy", "transformers assisted, default", "transformers assisted, K=3",
    "transformers prompt lookup, 10", "plain", "57K GPT chain, K=3", "DDTree, B=15"]


@pytest.mark.skipif(not can_pack(), reason="this torch cannot pack bfloat16 weights")
def test_bfloat16_on_both_sides(untrained, capsys):
    """Rounded weights may part near-ties, so only the table's frame is compared."""
    table = table_of(capsys, "--precision", "bfloat16")
    assert list(table) == METHODS and table["plain"][5] == "2/2"


def test_every_method_gives_the_same_text(untrained, capsys):
    table = table_of(capsys)
    assert list(table) == METHODS and all(cells[5] == "2/2" for cells in table.values())
    assert table["transformers greedy"][:2] == table["plain"][:2] == ["0.0", "1.00"]
    assert table["transformers greedy"][3] == table["plain"][4] == "1.00x"
    # Same drafter, same drafts, same rule: the same number of forwards, at most one draft apart.
    theirs, ours = (float(table[name][1]) for name in
                    ("transformers assisted, K=3", "57K GPT chain, K=3"))
    assert ours > 1.2 and abs(theirs - ours) / ours < 0.1


@pytest.mark.parametrize("how", [{}, {"assistant_model": "draft"}, {"prompt_lookup_num_tokens": 5}])
def test_every_forward_of_transformers_is_counted(untrained, how):
    """Tokens and drafts add up: a forward brings its own token and the drafts that passed."""
    target, seen = random_gpt(), []
    theirs = compare_transformers.to_transformers(target)
    theirs.register_forward_pre_hook(lambda *call: seen.append(1))
    if "assistant_model" in how:
        how = {"assistant_model": compare_transformers.assistant(random_gpt("draft"), 4)}
    prompt = list(range(20)) * 2
    steps = list(compare_transformers.generate(theirs, NEW, **how)(prompt, 0))
    assert len(steps) == len(seen)
    assert all(1 <= len(step.tokens) <= step.drafted + 1 for step in steps)
    times = [step.seconds["since the call"] for step in steps]
    assert times == sorted(times) and times[0] > 0
    plain = collect(plain_decode(target, prompt, Sampler(0.0), Dice(0)), NEW)
    assert [token for step in steps for token in step.tokens] == plain.tokens


def test_calls_count_the_prompts_forward():
    """Three forwards that bring 1, 3 and 2 tokens, the last one 0.5 s after the call."""
    steps = [compare_transformers.Step([1] * n, drafted=n - 1, detail=second)
             for n, second in ((1, 0.1), (3, 0.3), (2, 0.5))]
    decode = compare_transformers.clocked(lambda prompt, seed: iter(steps))
    generation = collect(decode([0], 0), 6)
    times = [step.seconds["since the call"] for step in generation.steps]
    assert max(times) < 0.1  # clocked has its own clock
    generation.steps[-1].seconds = {"since the call": 0.5}
    call = compare_transformers.as_calls([generation])[0]
    assert (call.forwards, call.drafted, call.tokens_per_second) == (3, 3, 12.0)


@pytest.mark.parametrize("flags, sentence", [
    (["--max-new-tokens", "500"], "max_new_tokens is 500; it must be in [32, 192]"),
    (["--max-new-tokens", "5"], "max_new_tokens is 5"),
    (["--prompts", "0"], "prompts is 0"), (["--k", "0"], "k is 0"), (["--budget", "-1"], "budget"),
])
def test_bad_flags(capsys, flags, sentence):
    with pytest.raises(SystemExit) as stopped:
        run(lambda: compare_transformers.main(flags))
    assert stopped.value.code == 2 and sentence in capsys.readouterr().err


def test_without_transformers_one_sentence(monkeypatch, capsys):
    monkeypatch.setattr("nanogpt.huggingface.MISSING", "transformers")
    monkeypatch.setattr(compare_transformers, "get_gpt", lambda *_: pytest.fail("trained before"))
    with pytest.raises(SystemExit) as stopped:
        run(lambda: compare_transformers.main([]))
    error = capsys.readouterr().err
    assert stopped.value.code == 2 and error.count("\n") == 1
    assert 'pip install -c constraints.txt -e ".[compare]"' in error
