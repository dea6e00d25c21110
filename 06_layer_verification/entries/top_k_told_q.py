"""The drafter's top tokens, judged by p/q as if they had been drawn. NOT exact.

The question of SafeAILab/EAGLE, issue 221. (The code asked about does something else: qx_is_one.)
"""

from tree_attention import TreeDrafter, TreeGPT, multi_round

rule = multi_round


def drafter(m, budget, sampler, dice):
    return TreeDrafter(TreeGPT(m.small), budget)
