"""What goes wrong in chapter 02: {function: {what was done: the function that does it}}."""

from nanogpt.exact.slips import slips
from nanogpt.model import KVCache
from tree_attention import ancestor_mask, multi_round, walk

SEES = "mask[row] |= mask[parents[row]]"
RETURN = "return torch.from_numpy(mask)"
GATHER = "self.kv[..., self.length:self.length + n, :] = self.kv.index_select(-2, index)"
WRONG = {
    "ancestor_mask": slips(ancestor_mask, {
        "siblings are visible": (
            RETURN, f"mask |= np.tril(parents[:, None] == parents)\n    {RETURN}"),
        "the root is not visible": (RETURN, f"mask[1:, 0] = False\n    {RETURN}"),
        "the causal mask is used": ("np.eye", "np.tri"),
        "only the parent is visible, not its ancestors": (SEES, "mask[row, parents[row]] = True"),
        "only the root, the parent and the node itself are visible": (
            SEES, "mask[row, [0, parents[row]]] = True"),
        "the root's parent, -1, is taken for the last row": ("range(1, ", "range("),
        "the mask holds numbers, not bools": (RETURN, f"{RETURN}.float()"),
        "a node does not see itself": (
            RETURN, f"np.fill_diagonal(mask, False)\n    {RETURN}"),
    }),
    "walk": slips(walk, {
        "the parent's distribution is used instead of the node's own": (
            "target_probs[path[-1]]", "target_probs[path[-2:][0]]"),
        "the path does not start with the root": ("return path,", "return path[1:],"),
        "only the first child is looked at": (
            "tree.children[path[-1]]", "tree.children[path[-1]][:1]"),
        "the target draws anew for each child": (
            "== token]", "== (token := dice.draw(target_probs[path[-1]]))]"),
    }),
    "commit": slips(KVCache.commit, {
        "the first rows are kept instead of the path's": ("rows != list(range(n))", "False"),
        "the rows are counted from the start of the cache": (
            "[self.length + row ", "[row "),
        "the root is not gathered": ("    n = ", "    rows = rows[1:]\n    n = "),
        "the rows are sorted": ("    n = ", "    rows = sorted(rows)\n    n = "),
        "only the keys are gathered": (GATHER, GATHER.replace("[...", "[:, 0, ...").replace(
            "kv.index", "kv[:, 0].index")),
        "the length does not move": ("self.length += n", "pass"),
    }),
    "multi_round": slips(multi_round, {
        "the target is not updated after a rejection": (
            "target_left = residual(target_left, draft_left)", "pass"),
        "the residual is not normalised": (
            "residual(target_left, draft_left)", "(target_left - draft_left).clamp(min=1e-30)"),
        "the draft distribution keeps the rejected token, or loses it and is not normalised": (
            "draft_left[token] = 0", "pass"),
        "the end draws from the target instead of the residual": (
            "dice.draw(target_left)", "dice.draw(target_probs[node])"),
        "the parent's distributions are used instead of the node's own": (
            "target_probs[node]", "target_probs[path[-2:][0]]",
            "draft_probs[node]", "draft_probs[path[-2:][0]]"),
    }),
}
