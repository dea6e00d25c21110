"""Chapter 05's search for a shape and its sweep of the temperature, on random models."""

import matplotlib

matplotlib.use("Agg")

from experiments import sampled_shapes
from experiments.sampled_shapes import draw_temperatures, print_shapes, print_sweep, sweep
from test_chain_specdec import random_gpt
from test_ddtree import random_drafter


def test_shapes_and_sweep(monkeypatch, capsys):
    """Every shape is decoded; a row for each temperature, a line for each method."""
    monkeypatch.setattr(sampled_shapes, "TEMPERATURES", [0.0, 1.0])
    target = random_gpt(1)
    block = random_drafter(target, 1, transition=True)
    prompts = [[1, 8, 4, 0, 7]]
    print_shapes(target, block, prompts, 8)
    printed = capsys.readouterr().out
    for shapes in sampled_shapes.SHAPES.values():
        assert all(sampled_shapes.shape_name(shape) in printed for shape in shapes)
    found = sweep(target, block, prompts, 8)
    assert list(found) == [0.0, 1.0] and len(found[1.0]) == 4
    print_sweep(found)
    assert capsys.readouterr().out.count("x") >= 8
    axes = draw_temperatures(found)
    assert len(axes[0].lines) == 4


def test_shapes_fit_their_rows():
    """A shape of `rows` rows: the root and its drafts."""
    for rows, shapes in sampled_shapes.SHAPES.items():
        for branching in shapes:
            drafts, width = 0, 1
            for children in branching:
                width *= children
                drafts += width
            assert 1 + drafts <= rows, branching
