"""Exact enumeration under the name that the tests use, and the grids they run over."""

import itertools

from nanogpt.enumeration import (
    EnumeratingDice,
    ToyCache,
    ToyDraft,
    ToyModel,
    ToyTarget,
    loop_law,
    outcomes,
    output_law,
    target_law,
    total_variation,
)

__all__ = [
    "EnumeratingDice", "ToyCache", "ToyDraft", "ToyModel", "ToyTarget", "grid", "loop_law",
    "outcomes", "output_law", "target_law", "total_variation",
]


def grid(**axes):
    """Every combination of the named values, as dicts: grid(a=(1, 2), b=(3,))."""
    return [
        dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())
    ]
