"""What goes wrong in chapter 05: {function: {what was done: the function that does it}}."""

from conditional_marginals import Children
from ddtree import best_first, child_score, node_masses, sibling_score
from nanogpt.exact.slips import changed, replaced, slips
from nanogpt.exact.toy_models import ToyDraft, ToyModel, loop_bias
from priced_trees import PricedChainDrafter, worth_verifying
from tree_attention import TreeDrafter, multi_round, speculate  # chapter 02

MASSES = "torch.where(tree.mask[1:, 1:], own, 0.0).sum(-1).exp()"
ENTRY = "self.table[level, token]"
DRAW = "tree = self.drafter.propose(root, room)"
CUT = DRAW + """
    if len(tree) > 1:
        chances = tree.draft_probs[range(len(tree) - 1), tree.tokens[1:]].tolist()
        keep = 1 + [chance > 0.5 for chance in [*chances, 0.0]].index(False)
        tree = Tree(tree.tokens[:keep], tree.parents[:keep], tree.draft_probs[:keep])"""
WRONG = {
    "node_masses": slips(node_masses, {
        "a node keeps only its own probability": (MASSES, "own.exp()"),
        "the position is one too deep": ("depths - 1", "depths"),
        "the root is among the masses": (MASSES, f"torch.cat([torch.ones(1), {MASSES}])"),
        "the logarithms are never exponentiated": (".exp()", ""),
        "0 times -inf enters the sum": (
            "torch.where(tree.mask[1:, 1:], own, 0.0)", "(tree.mask[1:, 1:] * own)"),
    }),
    "child_score": slips(child_score, {
        "the node's score is left out": ("score + ranked", "ranked"),
        "the last token is taken instead of the best": ("[0]", "[-1]"),
        "the log-probabilities are multiplied": ("score + ranked", "score * ranked"),
    }),
    "sibling_score": slips(sibling_score, {
        "the old rank is kept": ("rank + 1", "rank"),
        "the parent's score is left out": ("parent_score + ranked", "ranked"),
        "the old term is subtracted, although the parent's score does not hold it": (
            "parent_score + ", "parent_score - ranked[rank] + "),
        "the next rank is added to the node's own score": (
            "parent_score + ", "parent_score + ranked[rank] + "),
    }),
    "best_first": slips(best_first, {
        "the heap pops the worst prefix first": (
            "[(-below[0]", "[(below[0]", "append(-minus", "append(minus", "exp(-minus",
            "exp(minus", "(-score, parent,", "(score, parent,", "(-score, row,", "(score, row,"),
        "the root comes out as a node": ("    while heap:", "    yield root, -1, 1.0\n"
                                         "    while heap:"),
        "a score comes out where the mass should": ("math.exp(-minus_score)", "-minus_score"),
        "siblings are never pushed": ("if rank + 1 < len(ranked):", "if False:"),
        "children are never pushed": ("if below[row][0]:", "if False:"),
        "the child takes over its parent's rank": (
            "child_score(scores[row], below[row][0])", "scores[row] + below[row][0][rank]",
            "(-score, row, 0)", "(-score, row, rank)"),
    }),
    "below": slips(Children.below, {
        "the table of the wrong slot is read": (ENTRY, "self.table[level - 1, token]"),
        "the table is read the wrong way round": (ENTRY, "self.table[level, :, token]"),
        "the token before is not looked at: a marginal": (f" + {ENTRY}", ""),
        "the drafter's temperature is ignored": (" / self.temperature", ""),
        "the worst child comes first": ("argsort(-logits", "argsort(logits"),
        "probabilities are returned instead of their logarithms": (
            "(logits[best] - log_sum)", "np.exp(logits[best] - log_sum)"),
        "the children that are kept are normalised among themselves": (
            '"stable")', '"stable")[:self.most]', "np.exp(logits - top)",
            "np.exp(logits[best] - top)"),
    }),
    "worth_verifying": slips(worth_verifying, {
        "the price of the next row stands for all behind it": (
            "rate * slope[n]", "rate * (price[n + 1] - price[n])"),
        "what was popped on the way to a step stays": ("return popped[:best]", "return popped"),
        "the drafter's masses are taken at their word": ("trust * node[2]", "node[2]"),
        "the milliseconds are no tokens yet": (
            "gain += worth - rate *", "gain += worth -"),
        "every node pays for the root's row again": (
            "(price[n + 1] - price[n])", "price[n + 1]"),
    }),
    "draft": slips(PricedChainDrafter.draft, {
        "the chain ends before the first draft that it does not like": (DRAW, CUT),
    }),
}


# ---------------------------------------------------------------- the length of a drawn chain

LENGTHS = {
    "from past rounds": PricedChainDrafter.draft,
    "ends before a disliked draft": next(iter(WRONG["draft"].values())),
    "ends after it": changed(PricedChainDrafter.draft, DRAW,
                              CUT.replace("[:keep]", "[:keep + 1]")),
}


def chain_bias(draft, sampler):
    """The bias of two rounds of drawn chains, and the lengths that they had."""
    lengths = set()

    def start(target, dice):
        chain = TreeDrafter(ToyDraft(ToyModel(4, 2)), (), sampler, dice)
        drafter = PricedChainDrafter(chain, [1, 1.25, 1.75], 0)
        for step in speculate(target, drafter, [0, 1], sampler, dice, multi_round):
            lengths.add(step.drafted)
            yield step

    with replaced(PricedChainDrafter, draft=draft):
        return loop_bias(start, sampler, rounds=2, model=ToyModel(5, 2)), lengths
