"""Chapter 02 on the runner: more depth against second guesses; and what one round emits, exactly.

Verifying N rows costs the same whether they form a line or a tree; but each level is a pass of the
drafter. So shapes are compared by what they write and by the clock, not by their number of drafts.
"""

import torch

import tree_attention
from chain_specdec import GPTDraft, acceptance_probability, residual, speculate_chain
from nanogpt.chapter import Loop
from nanogpt.decoding import Context
from nanogpt.exact.enumeration import token_law
from nanogpt.exact.slips import replaced, slips
from nanogpt.exact.toy_models import ToyDraft, ToyModel, loop_bias
from nanogpt.model import KVCache
from nanogpt.sampling import Sampler
from text_table import NgramDraft, NgramLevels  # chapter 01
from tree_attention import (
    PickedDraft,
    Tree,
    TreeBigram,
    TreeDrafter,
    TreeGPT,
    ancestor_mask,
    best_shape,
    draw_without_replacement,
    multi_round,
    speculate,
    top,
    verify,
    walk,
)
from tree_grow import grow_shape

# The shapes of the contest: chains, shallow trees of 4 to 10 drafts, and deeper ones of 8 to 30.
CONTEST = (*((1,) * k for k in (1, 2, 3, 4, 6, 8, 14)), (2, 1), (2, 2), (2, 1, 1), (2, 2, 1),
           (2, 1, 1, 1), (2, 2, 1, 1), (2, 2, 2, 2))
# How often at T = 1 a first drawn draft is accepted; how often it is rejected and the second is
# accepted. On the lesson's held-out positions, rounded.
CHANCES = (0.75, 0.1)


def ngram_levels(m):
    return NgramLevels(m.table, m.target.config.vocab_size)


# Picked: the top tokens, judged by the walk. Drawn: without replacement, judged by multi-round
# rejection. A tree of one child a level is a chain.
LOOPS = [
    Loop("picked tree {}, 57K GPT", lambda m, shape, sampler, dice:
         TreeDrafter(TreeGPT(m.small), shape), speculate, walk,
         budgets=((1,) * 4, (2, 2, 1, 1)), contest=CONTEST, family="57K GPT",
         proof=((2, 1), (1, 2, 1)), grow=grow_shape),
    Loop("drawn tree {}, 57K GPT", lambda m, shape, sampler, dice:
         TreeDrafter(TreeGPT(m.small), shape, sampler, dice), speculate, multi_round,
         budgets=((1,) * 4, (2, 2, 1, 1)), contest=CONTEST, family="57K GPT",
         drawn=True, proof=((2,), (2, 1)), grow=grow_shape),
    Loop("chain with side shoots, {} drafts, 57K GPT", lambda m, n, sampler, dice:
         TreeDrafter(TreeGPT(m.small), best_shape(n, CHANCES), sampler, dice), speculate,
         multi_round, budgets=(14,), contest=(10, 14, 30), family="57K GPT", drawn=True,
         proof=(2,), grow=grow_shape),
    Loop("picked tree {}, bigram", lambda m, shape, sampler, dice:
         TreeDrafter(TreeBigram(m.pairs, m.target.config.vocab_size), shape), speculate, walk,
         budgets=((2, 2, 1, 1),), contest=((2, 2, 1, 1),), family="bigram",
         proof=((2, 1), (1, 2)), grow=grow_shape),
    Loop("drawn tree {}, bigram", lambda m, shape, sampler, dice:
         TreeDrafter(TreeBigram(m.pairs, m.target.config.vocab_size), shape, sampler, dice),
         speculate, multi_round, budgets=((2, 2, 1, 1),), contest=((2, 2, 1, 1),),
         family="bigram", drawn=True, proof=((2,), (2, 1)), grow=grow_shape),
    Loop("4-gram, chain of {}", lambda m, k, sampler, dice:
         TreeDrafter(ngram_levels(m), (1,) * k, sampler, dice),
         speculate, multi_round, budgets=(4,), contest=(4, 6, 8, 12), family="4-gram",
         drawn=True, greedy=True),
    Loop("picked chain of {}, 57K GPT, chapter 01's loop", lambda m, k, sampler, dice:
         PickedDraft(GPTDraft(m.small)), speculate_chain, budgets=(2,), contest=(2, 3, 4, 8),
         family="57K GPT"),
    Loop("picked chain of {}, 4-gram, chapter 01's loop", lambda m, k, sampler, dice:
         PickedDraft(NgramDraft(m.table, m.target.config.vocab_size)), speculate_chain,
         budgets=(2,), contest=(2, 3, 4, 8), family="4-gram"),
    Loop("4-gram, drawn tree {}", lambda m, shape, sampler, dice:
         TreeDrafter(ngram_levels(m), shape, sampler, dice),
         speculate, multi_round, budgets=((2, 2, 1, 1),),
         contest=((2, 1, 1, 1), (2, 2, 1, 1), (2, *(1,) * 7)),
         family="4-gram", drawn=True, proof=((2,), (2, 1))),
]

# ---------------------------------------------------------------- one round, exactly


def emitted(rule, p, q):
    """How often each token comes out of a round, and last how often a draft is accepted, exactly.

    p, q (V,). The root has two children, drawn from q without replacement, or for the walk its top
    tokens.
    """
    def run(dice):
        children = top(q, 2) if rule is walk else draw_without_replacement(q, 2, dice)
        tree = Tree([0, *children], [-1, 0, 0], q.repeat(3, 1))
        path, token = rule(tree, p.repeat(3, 1), dice)
        return [children[path[1] - 1], len(p)] if len(path) > 1 else [token]

    return token_law(run, len(p) + 1).tolist()


def drawn_letters(target_logits, draft_logits, T):
    """How often each letter is the first drawn child, and accepted; how often it is the second, and
    accepted after a rejection, by multi-round rejection at temperature T > 0. (n, V) each."""
    p, q = (Sampler(T)(logits) for logits in (target_logits, draft_logits))
    rejected, owed = (q - p).clamp(min=0), (p - q).clamp(min=0)  # (n, V): each x; sums: 1 - alpha
    owed = owed / owed.sum(-1, keepdim=True).clamp(min=1e-30)  # the residual
    x = torch.eye(q.shape[-1], dtype=torch.bool)
    # (n, x, V): q without x. From the logits, for near T = 0 the other probabilities vanish.
    left = Sampler(T)(draft_logits[:, None].masked_fill(x, -torch.inf))
    return torch.minimum(p, q), (rejected[..., None] * torch.minimum(owed[:, None], left)).sum(1)


def drawn_chances(target_logits, draft_logits, T):
    """As drawn_letters, over all letters: how often the first child is accepted, and how often the
    second; two means over the n."""
    found = drawn_letters(target_logits, draft_logits, T)
    return [float(letters.sum(-1).mean()) for letters in found]


# ---------------------------------------------------------------- what goes wrong

SEES = "mask[row] |= mask[parents[row]]"
RETURN = "return torch.from_numpy(mask)"
POSITIONS = "positions = context.cache.length + tree.depths"
AFTER_ROOT, LENGTH = "range(1, len(parents))", "n = len(rows)"


def keys_only(self, rows):
    """The path's keys are gathered; the values of the first rows stay."""
    index = torch.tensor([self.length + row for row in rows], dtype=torch.long)
    keys = self.kv[:, 0]
    keys[..., self.length:self.length + len(rows), :] = keys.index_select(-2, index)
    self.length += len(rows)


WRONG = {
    "ancestor_mask": slips(ancestor_mask, {
        "siblings are visible": (
            RETURN, f"mask |= np.tril(parents[:, None] == parents)\n{RETURN}"),
        "the root is not visible": (RETURN, f"mask[1:, 0] = False\n{RETURN}"),
        "the causal mask is used": ("np.eye", "np.tri"),
        "only the parent is visible, not its ancestors": (SEES, "mask[row, parents[row]] = True"),
        "only the root, the parent and the node itself are visible": (
            SEES, "mask[row, [0, parents[row]]] = True"),
        "the root's parent, -1, is taken for the last row": (AFTER_ROOT, "range(len(parents))"),
        "the mask holds numbers, not bools": (RETURN, f"{RETURN}.float()"),
        "a node does not see itself": (
            RETURN, f"np.fill_diagonal(mask, False)\n{RETURN}"),
    }),
    "verify": slips(verify, {
        "the row is taken for the position": (
            POSITIONS, "positions = context.cache.length + torch.arange(len(tree))"),
        "the text before the root is not counted": (POSITIONS, "positions = tree.depths"),
        "the root stands one place too late": (
            POSITIONS, "positions = context.cache.length + tree.depths + 1"),
        "the mask is forgotten, so a row reads all rows above it": ("tree.mask", "None"),
    }),
    "draw_without_replacement": slips(draw_without_replacement, {
        "a token that came may come again": ("left[tokens[-1]] = 0", "pass"),
        "the most probable tokens are taken, not drawn": (
            "dice.draw(left / left.sum())", "int(left.argmax())"),
        "a token that comes again is left out, so fewer come": (
            "return tokens", "return list(dict.fromkeys(tokens))",
            "left[tokens[-1]] = 0", "pass"),
    }),
    "walk": slips(walk, {
        "the parent's distribution is used instead of the node's own": (
            "target_probs[path[-1]]", "target_probs[path[-2:][0]]"),
        "the path does not start with the root": ("return path, token", "return path[1:], token"),
        "only the first child is looked at": (
            "tree.children[path[-1]]", "tree.children[path[-1]][:1]"),
        "the target draws anew for each child": (
            "tokens[c] == token", "tokens[c] == (token := dice.draw(target_probs[path[-1]]))"),
    }),
    "commit": slips(KVCache.commit, {
        "the first rows are kept instead of the path's": ("rows != list(range(n))", "False"),
        "the rows are counted from the start of the cache": (
            "self.length + row", "row"),
        "the root is not gathered": (LENGTH, f"rows = rows[1:]\n{LENGTH}"),
        "the rows are sorted": (LENGTH, f"rows = sorted(rows)\n{LENGTH}"),
        "only the keys are gathered": keys_only,
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
            "tree.draft_probs[node]", "tree.draft_probs[path[-2:][0]]"),
    }),
}
HARMLESS = {  # the proofs cannot see them, and here is why
    "a token that comes again is left out, so fewer come":
        "fewer children, and each is still drawn from what the others leave",
    "only the first child is looked at": "a shorter path, from the same draws",
    "the rows are sorted": "a path's rows rise, for every parent stands before its children",
}


# ---------------------------------------------------------------- one coin a node


def independent_coins(tree, target_probs, dice):
    """NOT LOSSLESS: chapter 01's coin for every node, and the longest path that passed wins.

    A natural rule. Nothing crashes and the text looks fine, but chapter 01's proof,

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


def changed_loops(pairs=6):
    """The loop as it is, and with one change at a time -> {change: total variation}, the mean over
    so many pairs of models."""
    def repeating(probs, n, dice):
        return [dice.draw(probs) for _ in range(n)]

    def mean(rule, **how):
        return sum(bias(rule, (2, 1), pair=pair, **how) for pair in range(pairs)) / pairs

    return {
        "walk, as it is": mean(walk),
        "multi-round, as it is": mean(multi_round),
        "top tokens": mean(multi_round, drawn=False),
        "repeats, reduced q": mean(multi_round, draw_without_replacement=repeating),
        "no residual": mean(multi_round, residual=lambda p, q: p),
    }
