"""Tinted text: every letter once, every forward a box, and three methods that write one text."""

import matplotlib
import pytest
import torch

from block_diffusion import BlockConfig
from experiments import tinted_text
from nanogpt.decoding import Generation, Step
from nanogpt.pictures import tint
from nanogpt.sampling import Sampler
from small_traces import Stand, small_drafter, small_gpt
from train_drafter import drafter_for_decoding

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402

LETTERS = "ab \n"


def decode(tokens):
    return "".join(LETTERS[token] for token in tokens)


def generation(*steps):
    """The first token from the prefill, then one Step for each list."""
    tokens = [0] + [token for step in steps for token in step]
    return Generation(tokens, [Step(list(step)) for step in steps], 1.0)


TEXT = generation([1, 2], [0, 0, 3], [1])  # a|b_|aa$|b


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def test_letters_know_their_forward():
    assert tint.letters(TEXT, decode) == [
        ("a", 0, 0), ("b", 1, 2), (" ", 1, 2), ("a", 2, 3), ("a", 2, 3), ("\n", 2, 3), ("b", 3, 1)]


@pytest.mark.parametrize("width, broken", [
    (99, ["ab aa\n", "b"]), (4, ["ab ", "aa\n", "b"]), (1, ["a", "b", " ", "a", "a", "\n", "b"]),
])
def test_lines_break_between_words_and_lose_nothing(width, broken):
    rows = tint.lines(tint.letters(TEXT, decode), width)
    assert ["".join(letter for letter, _, _ in row) for row in rows] == broken
    assert sum(rows, []) == tint.letters(TEXT, decode)


def test_lines_break_at_the_last_blank():
    rows = tint.lines(tint.letters(generation([2, 1, 2], [0, 0, 1]), decode), 5)  # a b aab
    assert ["".join(letter for letter, _, _ in row) for row in rows] == ["a b ", "aab"]


def test_a_box_a_forward_and_the_deeper_the_more():
    ax = tint.draw_tint(TEXT, decode, "tree")
    assert [round(box.get_width() + 0.1) for box in ax.patches] == [1, 2, 3, 1]
    colors = [box.get_facecolor()[:3] for box in ax.patches]
    assert colors == [pytest.approx(tint.shade(count)) for count in (0, 2, 3, 1)]
    assert sum(tint.shade(1)) > sum(tint.shade(2)) > sum(tint.shade(6)) == sum(tint.shade(9))
    assert "".join(text.get_text() for text in ax.texts) == "ab aa" + tint.NEWLINE + "b"
    assert ax.get_title(loc="left") == "tree: 3 forwards, tau 2.00"


def test_texts_stand_side_by_side():
    axes = tint.draw_tints({"one": TEXT, "two": generation([1])}, decode, width=4)
    assert len(axes) == 2 and axes[0].get_ylim() == axes[1].get_ylim()
    assert len(tint.draw_tints({"one": TEXT}, decode)) == 1


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_three_methods_write_one_text(temperature):
    """Same seed, same text; the trees need fewer forwards; no token is counted twice."""
    target = small_gpt("baby", Stand, "cpu")
    block = drafter_for_decoding(
        small_drafter(target, Stand, BlockConfig.reading(target), "cpu"), target)
    with torch.inference_mode():
        found = tinted_text.texts(target, block, [9, 10, 11], Sampler(temperature), 3, 60, 12)
    plain, chain, tree = found.values()
    assert plain.tokens == chain.tokens == tree.tokens and len(plain.tokens) == 60
    assert len(tree.steps) < len(plain.steps) == 59
    for one in found.values():
        assert sum(len(step.tokens) for step in one.steps) == 59


@pytest.mark.filterwarnings("ignore:Glyph .* missing")  # the alphabet's worst letter
def test_the_script_counts_and_draws(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(tinted_text, "get_gpt", lambda size, data, device, *_: small_gpt(
        size, data, device))
    monkeypatch.setattr(tinted_text, "get_drafter", lambda target, data, config, device, *_:
                        small_drafter(target, data, config, device))
    monkeypatch.setattr(tinted_text.cli, "setup", lambda args: (Stand, torch.device("cpu")))
    tinted_text.main(["--prompt", "abc", "--max-new-tokens", "30", "--precision", "float32",
                      "--out", str(tmp_path)])
    said = capsys.readouterr().out
    assert "plain: 29 forwards, 1.00 tokens each" in said
    assert said.count("the first 30 of 30 tokens are plain decoding's") == 3
    assert (tmp_path / "tinted.png").stat().st_size > 5000
    with pytest.raises(ValueError, match="budget is 0"):
        tinted_text.main(["--budget", "0"])
