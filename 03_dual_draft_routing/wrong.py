"""What goes wrong in chapter 03: {function: {what was done: the function that does it}}."""

from dual_draft_routing import best_nodes, mean_confidence, route
from nanogpt.exact.slips import slips

MEAN = "sum(c) / len(c) if c"
WRONG = {
    "mean_confidence": slips(mean_confidence, {
        "the root is averaged in": ("c = confidence", "c = [1.0] + confidence"),
        "the log-scores are averaged, then exponentiated": (
            MEAN, "math.exp(sum(scores[1:]) / len(c)) if c"),
        "the sum is taken, not the mean": (MEAN, "sum(c) if c"),
    }),
    "route": slips(route, {
        "the less confident head is chosen": ("(statistics[h], -h)", "-statistics[h]"),
        "a tie goes to the last head": ("(statistics[h], -h)", "(statistics[h], h)"),
    }),
    "best_nodes": slips(best_nodes, {
        "the root is counted in the budget": ("[:budget]", "[:budget - 1]"),
        "the first rows are kept instead of the best": (
            "ranked[:budget]", "range(1, budget + 1)"),
        "a tie goes to the later row": ("range(1, len(scores))", "range(1, len(scores))[::-1]"),
    }),
}
