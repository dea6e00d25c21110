"""The first child is judged by p/q; for the others the target draws from what it still owes.

Exact, and new here: the first child must be drawn from q, and the others may be anything. If the
first one is rejected, the next token is a draw from the residual, whatever the others hold; so the
rule draws it, and only then looks whether one of them has it, as the walk does.
"""

from tree_attention import acceptance_probability, residual


def rule(tree, target_probs, dice):
    path, tokens = [0], tree.tokens.tolist()
    while True:
        node = path[-1]
        first, *others = tree.children[node] or [None]
        if first is None:
            return path, dice.draw(target_probs[node])
        p, q = target_probs[node], tree.draft_probs[node]
        if dice.flip(acceptance_probability(p, q, tokens[first])):
            path.append(first)
            continue
        token = dice.draw(residual(p, q))
        found = [child for child in others if tokens[child] == token]
        if not found:
            return path, token
        path.append(found[0])
