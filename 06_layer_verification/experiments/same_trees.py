"""Compare rules on the same trees, without coins.

Rules that differ by one percent drown in the noise of a decoded text: whether a step accepts one
token or five is mostly chance. But every step has recorded its tree and the target's
probabilities, and with both the rule's coins can be averaged out (`expected_length`). So let all
rules judge the very same trees, and compare tree by tree.
"""

import numpy as np

from nanogpt.printing import print_table
from tree_rule import Drafted


def recorded_trees(results, most):
    """At most that many of the trees that all decoders met, evenly spread -> a list of Drafted.

    results: {name: list of Generation}; the steps of a decoder without trees have no detail.
    """
    details = [step.detail for generations in results.values() for g in generations
               for step in g.steps if step.detail is not None and len(step.detail.tree) > 1]
    spacing = max(-(-len(details) // most), 1)
    return [Drafted(d.tree, d.target_probs) for d in details[::spacing]]


def tau_by_tree(rules, trees):
    """{name: rule}, a list of Drafted -> {name: (n,)}: expected tokens of a step on each tree.

    The next token is counted, as tau counts it.
    """
    return {name: np.array([1 + rule.expected_length(d.shape, d.tokens, d.draft_probs,
                                                     d.target_probs)[0] for d in trees])
            for name, rule in rules.items()}


def gain(lifted, base):
    """Percent by which one rule's mean exceeds another's on the same trees; its standard error."""
    differences = 100 * (lifted - base) / base.mean()
    return differences.mean(), differences.std() / max(len(differences) - 1, 1) ** 0.5


def print_same_trees(rules, results, most=400):
    """Print each rule's expected tau on recorded trees, and LV over TV in percent, with its
    standard error. -> {name: tau}"""
    trees, rows = recorded_trees(results, most), []
    tau = tau_by_tree(rules, trees)
    for name, values in tau.items():
        over = ""
        if name.startswith("LV"):
            over = "{:+.2f}% ({:.2f})".format(*gain(values, tau[name.replace("LV", "TV")]))
        rows.append([name, f"{values.mean():.3f}", over])
    print_table([f"the same {len(trees)} trees", "expected tau", "LV over TV"], rows)
    return {name: values.mean() for name, values in tau.items()}
