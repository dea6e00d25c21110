"""Pictures: they draw what they were given, into the Axes they were given."""

import re
from pathlib import Path

import matplotlib
import pytest
import torch

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402

from nanogpt.pictures import plots  # noqa: E402
from tree_attention import Tree  # noqa: E402

# root -> c0 -> c2, c3 and root -> c1 -> c4, c5
TEXTS = ["root", "c0", "c2", "c3", "c1", "c4", "c5", "a\n b$"]
TREE = Tree(range(7), [-1, 0, 1, 1, 0, 4, 4])
PROBS = torch.full((7, 8), 0.125)


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def texts(ax):
    return [text.get_text() for text in ax.texts]


def test_white_space_becomes_visible():
    assert plots.visible("a b\n") == "a\u2423b\\n"
    assert plots.visible("") == "\u2205"
    assert [plots.two_digits(p) for p in (0.347, 1.0, 0.996, 0.001)] == [".35", "1", "1", "0"]


def test_tree_layout():
    assert plots.tree_rows(TREE.children) == [1.5, 0.5, 0, 1, 2.5, 2, 3]
    assert plots.tree_rows([[1], [2], []]) == [0, 0, 0]


def test_tree_shows_every_node_edge_and_probability():
    ax = plots.draw_tree(TREE, TEXTS.__getitem__)
    assert texts(ax) == TEXTS[:7]
    assert len(ax.lines) == 6
    ax = plots.draw_tree(TREE, TEXTS.__getitem__, [0, 4, 5], PROBS, next_token=7)
    assert texts(ax).count(".12") == 6
    assert "a\\n\u2423b$" in texts(ax)
    colors = [line.get_color() for line in ax.lines]
    assert colors.count(plots.BLUE) == 2
    assert colors.count(plots.GREY) == 4
    assert colors[-1] == plots.ORANGE
    bold = [t.get_text() for t in ax.texts if t.get_fontweight() == "bold"]
    assert bold == ["root", "c1", "c4", "a\\n\u2423b$"]


def test_tree_shows_both_models_and_given_colors():
    both = Tree(TREE.tokens, TREE.parents, 2 * PROBS)
    _, given = plt.subplots()
    ax = plots.draw_tree(both, TEXTS.__getitem__, [0], PROBS, [plots.GREEN] * 7, ax=given)
    assert ax is given
    assert texts(ax).count(".12 / .25") == 6
    assert set(plots.edge_labels(TREE, PROBS * 0.02)) == {"<.01"}  # small, not impossible
    boxes = [text.get_bbox_patch() for text in ax.texts if text.get_text() in TEXTS]
    assert {box.get_edgecolor() for box in boxes} == {matplotlib.colors.to_rgba(plots.GREEN)}


def test_masks():
    left, right = plots.draw_mask_beside_causal(TREE.mask, TEXTS[:7])
    dark, red = (torch.tensor(matplotlib.colors.to_rgb(c)) for c in (plots.INK, plots.RED))

    def cells(ax, color):
        picture = torch.as_tensor(ax.images[0].get_array())
        return ((picture - color).abs().sum(-1) < 1e-3)

    assert torch.equal(cells(left, dark), TREE.mask)
    assert torch.equal(cells(right, dark), TREE.mask)
    assert torch.equal(cells(right, red), torch.ones(7, 7).tril().bool() & ~TREE.mask)
    assert [label.get_text() for label in left.get_yticklabels()] == TEXTS[:7]
    wide = plots.draw_mask(torch.ones(2, 3), ["a", "b"], columns=["x", "y", "z"])
    assert len(wide.get_xticklabels()) == 3


def test_cache_has_an_arrow_for_each_kept_row():
    ax = plots.draw_cache(["F", "i"], TEXTS[:7], [0, 4, 5])
    arrows = [a for a in ax.texts if getattr(a, "arrow_patch", None) is not None]
    assert [round(a.xyann[0] - 2.47) for a in arrows] == [0, 4, 5]  # from here ...
    assert [round(a.xy[0] - 2.47) for a in arrows] == [0, 1, 2]  # ... to there
    assert len(ax.patches) == (2 + 7) + (2 + 3)


def test_measurements():
    left, right = plots.draw_sweep({"chain": ([4, 8], [1, 2], [0.9, 1.1]),
                                    "tree": ([4, 8], [2, 3], [1.2, 1.3])}, "drafts", log2=True)
    assert (len(left.lines), len(right.lines)) == (2, 3)  # and the line of plain decoding
    assert [t.get_text() for t in left.get_xticklabels()] == ["4", "8"]
    ax = plots.draw_acceptance({"chain": [0, 1, 1, 3], "tree": [2, 2]})
    assert [bar.get_height() for bar in ax.patches] == [0.25, 0.5, 0, 0.25, 0, 0, 1, 0]
    ax = plots.draw_predicted({"chain": (1.2, 1.1), "tree": (1.5, 1.4)})
    assert [c.get_offsets().tolist() for c in ax.collections] == [[[1.2, 1.1]], [[1.5, 1.4]]]
    ax = plots.draw_bars({"one": {"rule": 0.5, "walk": 1e-17}, "two": {"rule": 0.7, "walk": 0}},
                         "distance")
    assert texts(ax) == ["0.50", "0.70", "0", "0"]


def test_more_than_four_lines_are_split_into_two_rows():
    """Names that end alike share a row; all rows have the same scales."""
    line = ([4, 8], [1, 2], [0.9, 1.1])
    names = [f"{kind}, T={t}" for kind in ("tree", "chain", "block") for t in (0, 1)]
    assert [list(group) for group in plots.split_lines({name: line for name in names})] == [
        ["tree, T=0", "chain, T=0", "block, T=0"], ["tree, T=1", "chain, T=1", "block, T=1"]]
    assert [list(group) for group in plots.split_lines(dict.fromkeys("abcde"))] == [
        ["a", "b", "c"], ["d", "e"]]
    axes = plots.draw_sweep({name: line for name in names}, "drafts", log2=True)
    assert len(axes) == 4 and axes[0].get_ylim() == axes[2].get_ylim()
    assert [len(ax.get_legend().get_texts()) for ax in axes[::2]] == [3, 3]


def test_shares_by_position():
    """Where nothing was tested there is no point."""
    ax = plots.draw_positions({"bigram": [0.5, 0.25, float("nan")], "small": [0.75, 0.5, 1.0]})
    assert [line.get_label() for line in ax.lines] == ["bigram", "small"]
    assert ax.lines[1].get_xydata().tolist() == [[1, 0.75], [2, 0.5], [3, 1.0]]
    assert [round(tick) for tick in ax.get_xticks()] == [1, 2, 3]


def test_somebody_draws_every_picture():
    """A chapter, a notebook, or another picture."""
    root = Path(plots.__file__).resolve().parents[2]
    users = [path for pattern in ("0?_*/**/*.py", "0?_*/*.ipynb", "nanogpt/**/*.py")
             for path in root.glob(pattern)]
    text = "\n".join(path.read_text(encoding="utf-8") for path in users)
    drawn = [name for name in vars(plots) if name.startswith("draw_")]
    assert drawn
    for name in drawn:  # once where it is defined, and once more
        assert len(re.findall(rf"\b{name}\b", text)) > 1, name


def test_save(tmp_path):
    path = plots.save(plots.draw_mask(TREE.mask, TEXTS[:7]), tmp_path / "new" / "mask.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert not plt.get_fignums()
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ValueError, match="cannot be written"):
        plots.save(plots.draw_mask(TREE.mask, TEXTS[:7]), tmp_path / "file" / "mask.png")
