"""What goes wrong in chapter 02: {function: {what was done: the function that does it}}; one coin a
node, a rule that looks right; and how far off each is, counted exactly."""

import torch

import tree_attention
from chain_specdec import acceptance_probability, residual
from nanogpt.decoding import Context
from nanogpt.exact.slips import replaced, slips
from nanogpt.exact.toy_models import ToyDraft, ToyModel, loop_bias
from nanogpt.model import KVCache
from nanogpt.sampling import Sampler
from tree_attention import TreeDrafter, ancestor_mask, multi_round, speculate, verify, walk

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


# ---------------------------------------------------------------- one coin a node


def independent_coins(tree, target_probs, dice):
    """NOT LOSSLESS: chapter 01's coin for every node, and the longest path that passed wins.

    A natural rule that you will meet in blog posts and repositories. Nothing crashes and the text
    looks fine, but chapter 01's proof,

        draft(x) * min(1, target(x) / draft(x))  +  P(rejected) * residual(x)  =  target(x),

    breaks in each of its parts. Arguments and result as `walk`; the tree has draft_probs.
    """
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


# ---------------------------------------------------------------- how far off, exactly


@torch.inference_mode()
def changed_layouts(model, text, tree):
    """One forward over a tree against a forward over each row's path alone, at temperature 1.

    text: a list of tokens, the tree's root its last -> {change: the worst row's total variation}.
    """
    paths = [torch.tensor([text[:-1] + tree.tokens[seen].tolist()]) for seen in tree.mask]
    alone = torch.stack([Sampler(1)(model(path)[0][0, -1]) for path in paths])  # (N, V)
    rows, found = torch.arange(len(tree)), {}
    for change, slip in {"as it is": {},  # from here on the tree's depths are known
                         "causal mask": {"mask": rows[:, None] >= rows},
                         "row as position": {"depths": rows}}.items():
        context = Context(model, text[:-1])
        context.prefill()
        with replaced(tree, **slip):
            probs, _ = verify(context, tree, Sampler(1))
        found[change] = float((probs - alone).abs().sum(-1).max() / 2)
    return found


def bias(rule, branching, drawn=None, length=None, pair=5, sampler=None, rounds=1, draft=None,
         **broken):
    """Total variation, 0..1, between plain decoding and rounds of the loop, over `length` tokens.

    drawn: children are drawn without replacement (else they are the top tokens), by default for
    multi_round only; pair: which two random models of 3 tokens; draft: a ToyModel in place of that
    drafter; sampler: default temperature 1; broken: functions of tree_attention to replace.
    """
    sampler = sampler or Sampler(1)
    draft = ToyDraft(draft or ToyModel(100 + pair, vocab=3))

    def start(target, dice):
        drafter = TreeDrafter(draft, branching, sampler,
                              dice if (rule is multi_round if drawn is None else drawn) else None)
        return speculate(target, drafter, (0, 1), sampler, dice, rule)

    with replaced(tree_attention, **broken):
        return loop_bias(start, sampler, rounds, length or len(branching) + 2,
                         ToyModel(pair, vocab=3))


def mean_bias(*case, pairs=30):
    """The mean of `bias` over so many pairs of models."""
    return sum(bias(*case, pair=pair) for pair in range(pairs)) / pairs


BREAKS = {  # rule, branching, are the children drawn, how many tokens: the root's, then the round's
    "0. chain of 1, drawn: this is chapter 01": (independent_coins, (1,), True, 2),
    "1. chain of 1, the top token instead of a draw": (independent_coins, (1,), False, 2),
    "2. two drawn children, the old coin for the second": (independent_coins, (2,), True, 2),
    "3. chain of 2, drawn, no residual at its end": (independent_coins, (1, 1), True, 3),
    "all three: a tree 2-2 of top tokens": (independent_coins, (2, 2), False, 3),
}


def changed_loops():
    """The loop as it is, and with one change at a time -> {change: total variation}."""
    shape, causal = (2, 1), WRONG["ancestor_mask"]["the causal mask is used"]

    def repeating(probs, n, dice):
        return [dice.draw(probs) for _ in range(n)]

    return {
        "walk, as it is": bias(walk, shape),
        "multi-round, as it is": bias(multi_round, shape),
        "worst guesses": bias(walk, shape, top=lambda probs, n: probs.argsort()[:n].tolist()),
        "causal mask": bias(walk, shape, ancestor_mask=causal),
        "top tokens": bias(multi_round, shape, drawn=False),
        "with replacement": bias(multi_round, shape, draw_without_replacement=repeating),
        "no residual": bias(multi_round, shape, residual=lambda p, q: p),
    }
