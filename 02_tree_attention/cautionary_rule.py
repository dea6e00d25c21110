"""A rule that looks right and is not: one coin a node, and the longest path wins.

It is a natural rule that you will meet in blog posts and repositories. Every node gets the coin of
chapter 01, min(1, target / draft). Of the paths whose nodes all passed, the longest is taken, and
the target adds a token behind its end. Nothing crashes and the text looks fine, but its
distribution is no longer the target's.

The proof of chapter 01 says that token x comes out with probability

    draft(x) * min(1, target(x) / draft(x))  +  P(rejected) * residual(x)  =  target(x)

and the rule breaks each of its parts, in the lines marked WRONG. bench.py
counts exactly how far off it is, with one break at a time and with all of them.

There are two repairs. Children that were picked, such as the top tokens, are offered one by one as
answers to a single draw from the target, without a ratio: `walk_by_coins`, which is
`tree_attention.walk` in other words. Children that were drawn keep the ratio and meet what is left
of the target: `tree_attention.multi_round`.
"""

from chain_specdec import acceptance_probability, residual  # chapter 01


def independent_coins(tree, target_probs, dice):
    """NOT LOSSLESS. Arguments and result as `tree_attention.walk`; the tree has draft_probs."""
    paths = {0: [0]}  # for each node that is reached by accepted nodes alone, the way to it
    for row in range(1, len(tree)):
        parent, token = int(tree.parents[row]), int(tree.tokens[row])
        # WRONG for a top token: it was certain to be proposed, so the first factor is 1 and not
        # draft(x). If the drafter equals the target, the most probable token always comes out.
        # WRONG for a second child: it counts only where the first was rejected, and there the
        # target owes no more than its residual.
        coin = acceptance_probability(target_probs[parent], tree.draft_probs[parent], token)
        if dice.flip(coin) and parent in paths:
            paths[row] = paths[parent] + [row]
    # WRONG: if two siblings passed, what was drafted below them decides which of them comes out.
    best = max(paths.values(), key=len)  # the first of the longest
    if best == [0] and len(tree) > 1:
        return best, dice.draw(residual(target_probs[0], tree.draft_probs[0]))
    # WRONG where children of the path's end were rejected: the residual is due here as well. The
    # target is drawn from as if they had never been offered.
    return best, dice.draw(target_probs[best[-1]])


def walk_by_coins(tree, target_probs, dice):
    """The walk in other words: offer the children one by one instead of drawing the token.

    Arguments, result and distribution as `tree_attention.walk`.
    """
    path = [0]
    while True:
        left = target_probs[path[-1]].clone()  # (V,)
        for child in tree.children[path[-1]]:
            # "Is the target's token x?" Yes with target(x), among the tokens not yet ruled out.
            if dice.flip(float(left[tree.tokens[child]] / left.sum())):
                path.append(child)
                break
            left[tree.tokens[child]] = 0  # the answer was no
        else:  # no child was accepted, or there is none
            return path, dice.draw(left / left.sum())
