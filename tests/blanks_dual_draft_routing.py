"""The blanks of chapter 03."""

import math

import torch

from dual_draft_routing import best_nodes
from grading import Blank

LOGS = [0.0, math.log(0.8), math.log(0.6), math.log(0.1)]


def observe_best(f):
    return {"scores 0, -1, -2, -1.5, -2, budget 3": f([0.0, -1.0, -2.0, -1.5, -2.0], 3),
            "scores 0, -2, -1, -3, budget 1": f([0.0, -2.0, -1.0, -3.0], 1),
            "a tie: scores 0, -1, -1, -1, budget 2": f([0.0, -1.0, -1.0, -1.0], 2)}


def observe_mean(f):
    return {"path probabilities .8, .6, .1": f(LOGS), "a tree that is only a root": f([0.0])}


def observe_route(f):
    return {f"mu = {mu}": f(mu) for mu in ([0.5, 0.4], [0.4, 0.5], [0.5, 0.5], [0.1, 0.3, 0.2])}


BLANKS = [
    Blank(
        "dual_draft_routing:best_nodes",
        "Which rows stay? The root and the `budget` nodes with the best cumulative scores.",
        "Sort by falling score, then by row, so that a parent wins a tie against its child.", 2, 5,
        observe_best,
        {"scores 0, -1, -2, -1.5, -2, budget 3": [0, 1, 2, 3],
         "scores 0, -2, -1, -3, budget 1": [0, 2],
         "a tie: scores 0, -1, -1, -1, budget 2": [0, 1, 2]}, None,
        {"the root is counted in the budget": lambda s, b: best_nodes(s, b - 1),
         "the first rows are kept instead of the best": lambda s, b: list(range(b + 1)),
         "a tie goes to the later row": lambda s, b: sorted(
             [0, *sorted(range(1, len(s)), key=lambda r: (-s[r], -r))[:b]])}),
    Blank(
        "dual_draft_routing:mean_confidence",
        "One number for a tree: the mean of c = exp(s) over its drafted nodes.",
        "`confidence` leaves the root out; a tree without drafts has no mean.", 2, 5,
        observe_mean, {"path probabilities .8, .6, .1": 0.5, "a tree that is only a root": 0.0},
        None,
        {"the root is averaged in": lambda s: float(torch.tensor(s).exp().mean()),
         "the log-scores are averaged, then exponentiated": lambda s: math.exp(
             sum(s[1:]) / (len(s) - 1)) if s[1:] else 0.0,
         "the sum is taken, not the mean": lambda s: float(torch.tensor(s[1:]).exp().sum())}),
    Blank(
        "dual_draft_routing:route",
        "Which head's tree is verified? The one with the larger mean; the first on a tie.",
        "max over the indices with a key.", 1, 3, observe_route,
        {"mu = [0.5, 0.4]": 0, "mu = [0.4, 0.5]": 1, "mu = [0.5, 0.5]": 0,
         "mu = [0.1, 0.3, 0.2]": 1}, None,
        {"the less confident head is chosen": lambda mu: mu.index(min(mu)),
         "a tie goes to the last head": lambda mu: max(range(len(mu)), key=lambda h: (mu[h], h))}),
]
