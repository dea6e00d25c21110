"""Accept a child with p, whatever q was; after a rejection set its p to 0, and ask the next one.

The question of SafeAILab/EAGLE, issue 183: where has q gone? It is exact: a top token is sent for
sure, so its q is 1. It accepts what the walk accepts.
"""

from tree_attention import TreeDrafter, TreeGPT


def drafter(m, budget, sampler, dice):
    return TreeDrafter(TreeGPT(m.small), budget)


def rule(tree, target_probs, dice):
    path = [0]
    while True:
        left = target_probs[path[-1]].clone()  # (V,)
        for child in tree.children[path[-1]]:
            if dice.flip(left[tree.tokens[child]] / left.sum()):
                path.append(child)
                break
            left[tree.tokens[child]] = 0
        else:
            return path, dice.draw(left)
