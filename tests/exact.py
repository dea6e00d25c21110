"""Exact enumeration under the name that the tests use, and the grids they run over."""

import itertools

from iid_trees import shape_of
from nanogpt.exact import trees
from nanogpt.exact.enumeration import (
    EnumeratingDice,
    loop_distribution,
    outcomes,
    output_distribution,
    target_distribution,
    total_variation,
)
from nanogpt.exact.toy_models import ToyCache, ToyDraft, ToyModel, ToyTarget
from nanogpt.exact.trees import KINDS, Tables, tables

__all__ = [
    "KINDS", "EnumeratingDice", "Tables", "ToyCache", "ToyDraft", "ToyModel", "ToyTarget",
    "all_trees", "bias_and_length", "grid", "loop_distribution", "outcomes", "output_distribution",
    "tables", "target_distribution", "total_variation",
]


def all_trees(parents, models):
    """Every tree with these parents, see nanogpt.exact.trees."""
    return trees.all_trees(shape_of(tuple(parents)), models)


def bias_and_length(rule, parents, models):
    """Total variation and mean accepted length on these parents, see nanogpt.exact.trees."""
    return trees.bias_and_length(rule, shape_of(tuple(parents)), models)


def grid(**axes):
    """Every combination of the named values, as dicts: grid(a=(1, 2), b=(3,))."""
    return [
        dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())
    ]
