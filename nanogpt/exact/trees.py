"""The output distribution of a tree rule, exactly, by listing every tree that could be drawn.

The generic enumerator (enumeration.py) replays one Python run per outcome. Here all trees of
a shape are judged as one batch, and the two draws that a rule makes are replaced by their
distributions. That reaches trees of 15 nodes, and tells losslessness to 1e-12.
"""

import itertools

import numpy as np


class Tables:
    """A draft and a target model: draft[t], target[t] (V^t, V), by prefix, t = 0..H."""

    def __init__(self, draft, target):
        self.draft, self.target, self.V = draft, target, draft[0].shape[1]


def tables(kind, V, H, seed=0):
    """One of KINDS, for every prefix of up to H tokens."""
    rng = np.random.default_rng(seed)
    pairs = [KINDS[kind](rng, V ** t, V) for t in range(H + 1)]
    return Tables([d for d, _ in pairs], [t for _, t in pairs])


def softmax(logits):
    """Along the last axis: (n, V) -> (n, V)."""
    e = np.exp(logits - logits.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def random_distributions(rng, n, V, scale=1.5):
    """n random distributions over V tokens (n, V)."""
    return softmax(scale * rng.normal(size=(n, V)))


def related(rng, n, V):
    """Draft and target (n, V) whose logits share a part."""
    shared = rng.normal(size=(n, V))
    return tuple(softmax(shared + 0.7 * rng.normal(size=(n, V))) for _ in range(2))


def equal(rng, n, V):
    """Draft and target (n, V), the same."""
    distributions = random_distributions(rng, n, V)
    return distributions, distributions.copy()


def only(distributions, tokens):
    """distributions (n, V), cut to these tokens and normalised again."""
    kept = np.zeros_like(distributions)
    kept[:, tokens] = distributions[:, tokens]
    return kept / kept.sum(-1, keepdims=True)


def disjoint(rng, n, V):
    """The draft lives on the first half, the target on the rest."""
    return (only(random_distributions(rng, n, V), slice(0, V // 2)),
            only(random_distributions(rng, n, V), slice(V // 2, V)))


def truncated(rng, n, V):
    """The two likeliest tokens of the draft; the target lacks its least likely one."""
    draft, target = related(rng, n, V)
    # Each lacks tokens of the other: top-k on the draft, top-p on the target.
    draft = np.where(draft >= np.sort(draft, -1)[:, -2:-1], draft, 0)
    target = np.where(target > target.min(-1, keepdims=True), target, 0)
    return tuple(probs / probs.sum(-1, keepdims=True) for probs in (draft, target))


def greedy(rng, n, V):
    """One-hot distributions, as at temperature 0; every second pair agrees."""
    best = rng.integers(V, size=n)
    return np.eye(V)[best], np.eye(V)[(best + np.arange(n) % 2) % V]


KINDS = {
    "random": lambda rng, n, V: (random_distributions(rng, n, V), random_distributions(rng, n, V)),
    "related": related,
    "equal": equal,
    "disjoint": disjoint,
    "truncated": truncated,
    "greedy": greedy,
}


def all_trees(shape, models, most=1_000_000, repeats=True):
    """Every tree of a shape that can be drawn -> shape, (tokens, draft_probs, target_probs) as
    rules judge them, prefixes (B, N), probability (B,).

    shape: anything with parents, a row each, and depths (N,); repeats: may siblings be equal? Else
    each is drawn from what the earlier ones have left.
    """
    parents, V = shape.parents, models.V
    assert V ** (len(parents) - 1) <= most
    # One tree, the root; each further node multiplies them by the tokens that it may carry.
    # prefixes: the number, in base V, that the path to a node spells; its row in the tables.
    prefixes, tokens = np.zeros((1, len(parents)), int), np.zeros((1, len(parents)), int)
    probability = np.ones(1)
    for v in range(1, len(parents)):
        parent = parents[v]
        probs = models.draft[shape.depths[parent]][prefixes[:, parent]]  # (B, V)
        for sibling in () if repeats else range(1, v):
            if parents[sibling] == parent:
                probs = np.where(np.arange(V) == tokens[:, [sibling]], 0, probs)
                probs = probs / probs.sum(-1, keepdims=True)
        tree, token = np.nonzero(probs)  # which tree goes on with which token
        tokens, prefixes = tokens[tree], prefixes[tree]
        probability = probability[tree] * probs[tree, token]
        tokens[:, v], prefixes[:, v] = token, prefixes[:, parent] * V + token
    depths = shape.depths
    draft, target = (
        np.stack([side[depths[v]][prefixes[:, v]] for v in range(len(parents))], axis=1)
        for side in (models.draft, models.target)
    )
    return shape, (tokens, draft, target), prefixes, probability


def distribution_of(ends, residual, trees, models):
    """ends (B, N), residual (B, N, V), what all_trees gave -> the distribution of H + 1 tokens
    (V^(H+1),)."""
    shape, (_, _, target), prefixes, probability = trees
    V, H = models.V, shape.depths.max()
    mass = residual.sum(-1, keepdims=True)
    # A residual without mass stands where no path ends; any distribution will do.
    next_token = np.where(mass > 0, residual / np.where(mass > 0, mass, 1), target)
    weight = probability[:, None, None] * ends[:, :, None] * next_token  # (B, N, V)
    probs = np.zeros(1)
    for t in range(H + 1):
        # What was emitted before is continued by the target; what ends here adds its own token.
        probs = (probs[:, None] * models.target[t]).ravel() if t else np.zeros(V)
        rows = np.flatnonzero(shape.depths == t)
        # Paths that end at depth t and add a token, booked under the prefix that they spell.
        code = prefixes[:, rows, None] * V + np.arange(V)  # (B, rows, V)
        probs += np.bincount(code.ravel(), weight[:, rows].ravel(), minlength=V ** (t + 1))
    return probs


def target_distribution_of(models, H):
    """The target's own distribution of H + 1 tokens (V^(H+1),)."""
    probs = models.target[0].ravel()
    for t in range(1, H + 1):
        probs = (probs[:, None] * models.target[t]).ravel()
    return probs


def bias_and_length(rule, shape, models, repeats=True):
    """-> total variation between output and target over H + 1 tokens; mean accepted tokens.

    rule: judge(shape, tokens, draft_probs, target_probs) on a batch; shape, repeats: see all_trees.
    """
    trees = all_trees(shape, models, repeats=repeats)
    _, arrays, _, probability = trees
    ends, residual = rule.judge(shape, *arrays)
    # On each tree the path must end somewhere, whatever the mean over trees says.
    assert ends.min() >= 0 and np.allclose(ends.sum(-1), 1, atol=1e-12)
    emitted = distribution_of(ends, residual, trees, models)
    difference = emitted - target_distribution_of(models, shape.depths.max())
    return 0.5 * np.abs(difference).sum(), float(probability @ (ends @ shape.depths))


def all_tuples(draft_probs, k, replacement=True):
    """Every k-tuple of children of one node -> (tuple, probability) pairs. draft_probs: (V,)."""
    for X in itertools.product(range(len(draft_probs)), repeat=k):
        probability, left = 1.0, draft_probs.copy()
        for x in X:
            probability *= left[x]  # of what the earlier draws have left
            if not replacement:
                left[x] = 0
                left = left / left.sum() if left.sum() > 0 else left
        if probability > 0:
            yield X, probability


def best_mass(mass, length, vocab, budget):
    """The largest mass of any prefix-closed set of `budget` prefixes, by trying every set.

    mass(prefix) -> its probability; prefixes are tuples of 1 to `length` tokens.
    """
    nodes = [u for d in range(1, length + 1) for u in itertools.product(range(vocab), repeat=d)]
    masses, best = {u: mass(u) for u in nodes}, 0.0
    for chosen in itertools.combinations(nodes, min(budget, len(nodes))):
        members = set(chosen)
        if all(len(u) == 1 or u[:-1] in members for u in chosen):
            best = max(best, sum(masses[u] for u in chosen))
    return best
