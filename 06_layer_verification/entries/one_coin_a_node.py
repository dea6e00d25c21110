"""A rule from blog posts: chapter 01's coin for every node, and the longest path wins. NOT exact.

Its nodes are the drafter's top tokens. Why it breaks: chapter 02, sections 7 and 9.
"""

from nanogpt.chapter import load
from tree_attention import TreeDrafter, TreeGPT

rule = load("02").room.independent_coins


def drafter(m, budget, sampler, dice):
    return TreeDrafter(TreeGPT(m.small), budget)
