"""The blanks of chapter 03."""

import math

import torch

import dual_draft_routing
from grading import Blank
from nanogpt.exact.toy_models import random_nodes

LOGS = [0.0, math.log(0.8), math.log(0.6), math.log(0.1)]


def parents_stay():
    """If a node stays, its parent stays, also where a child is certain and has the same score."""
    generator = torch.Generator().manual_seed(0)
    for seed in range(20):
        parents, scores = random_nodes(seed)[1], [0.0]
        for parent in parents[1:]:
            scores.append(scores[parent] - int(torch.randint(2, (1,), generator=generator)))
        for budget in (1, 3, 6):
            rows = dual_draft_routing.best_nodes(scores, budget)
            assert len(rows) == budget + 1, f"budget {budget} keeps {len(rows) - 1} nodes"
            assert all(parents[row] in rows for row in rows[1:]), (
                f"parents {parents}, scores {scores}, budget {budget}: {rows} has a node without "
                "its parent")


BLANKS = [
    Blank(
        "dual_draft_routing:mean_confidence",
        """* A head has drafted a tree, which needs one number: how confident is the head in the
        drafted nodes, on average? scores is a list, one cumulative log-score per node, the root
        first. You may call confidence(scores), which returns the list of c = exp(score) of all
        nodes but the root: it turns the scores 0, log .8, log .6 into .8, .6. A tree that is
        only a root has the number 0. Return a number.""",
        """`confidence` has left the root out already: add up its list and divide by its length,
        unless it is empty.""",
        lines=2, minutes=4,
        examples={
            "path probabilities .8, .6, .1": ((LOGS,), 0.5),
            "a tree that is only a root": (([0.0],), 0.0),
        }),
    Blank(
        "dual_draft_routing:route",
        """* Which head's tree is verified? statistics holds one number per head, two or more.
        Choose the head with the largest one, and of equal ones the first. Python alone will do,
        for instance max(numbers, key=...). Return the index of the head.""",
        "max over range(len(statistics)), with a key; max keeps the first of equal ones.",
        lines=1, minutes=3,
        examples={
            "mu = [0.5, 0.4]": (([0.5, 0.4],), 0),
            "mu = [0.4, 0.5]": (([0.4, 0.5],), 1),
            "mu = [0.5, 0.5]": (([0.5, 0.5],), 0),
            "mu = [0.1, 0.3, 0.2]": (([0.1, 0.3, 0.2],), 1),
            "mu = [0.1, 0.2, 0.3]": (([0.1, 0.2, 0.3],), 2),
            "what comes back can be an index":
                (lambda f: hasattr(f([0.5, 0.4]), "__index__"), True),
        }),
    Blank(
        "dual_draft_routing:best_nodes",
        """** A tree is cut to its best nodes. scores holds a cumulative log-score for each row.
        Which rows stay? Row 0, the root, which costs no budget, and the `budget` drafted rows
        with the highest scores; of equal scores the earlier row. You may call sorted(rows,
        key=...), which keeps rows with equal keys in their order. Return the rows in rising
        order; there may be fewer than `budget` drafted rows.""",
        "Sort the rows 1, 2, ... by falling score, cut, add the root, sort again.",
        lines=2, minutes=6, promise=parents_stay,
        examples={
            "scores 0, -1, -2, -1.5, -2, budget 3": (
                ([0.0, -1.0, -2.0, -1.5, -2.0], 3), [0, 1, 2, 3]),
            "scores 0, -2, -1, -3, budget 1": (([0.0, -2.0, -1.0, -3.0], 1), [0, 2]),
            "a tie: scores 0, -1, -1, -1, budget 2": (([0.0, -1.0, -1.0, -1.0], 2), [0, 1, 2]),
            "scores 0, -1, budget 3": (([0.0, -1.0], 3), [0, 1]),
        }),
]
