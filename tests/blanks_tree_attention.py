"""The blanks of chapter 02."""

import torch

from blanks_chain_specdec import Script
from exact import (
    ToyDraft,
    ToyModel,
    ToyTarget,
    loop_distribution,
    outcomes,
    target_distribution,
    total_variation,
)
from grading import Blank, plain
from nanogpt.model import GPTConfig, KVCache
from nanogpt.sampling import Sampler
from tree_attention import Tree

PARENTS = torch.tensor([-1, 0, 1, 1, 0, 4])  # root -> 1 -> 2, 3 and root -> 4 -> 5


class Normal(Script):
    """A Script that normalises what it draws from, as the real Dice does."""

    def draw(self, probs):
        return super().draw(probs / probs.sum())


class Sure(Script):
    """A Script for distributions that leave nothing to chance, whether by draws or by coins."""

    def flip(self, p):
        return float(p) > 0.5


def tree_promise(rule="walk"):
    """The whole loop with a tree must have the target's distribution."""

    def check():
        import tree_attention as ta

        model, draft = ToyModel(5, 3), ToyDraft(ToyModel(99, 3))

        def start(dice):
            drafter = ta.TreeDrafter(
                draft, (2, 1), Sampler(1), dice if rule == "multi_round" else None)
            return ta.speculate(
                ToyTarget(model), drafter, [0, 1], Sampler(1), dice, getattr(ta, rule))

        emitted = loop_distribution(start, model, Sampler(1), [0, 1], 1, 4)
        distance = total_variation(emitted, target_distribution(model, Sampler(1), [0, 1], 4))
        assert distance < 1e-6, (  # an answer may compute in float32
            f"the text no longer has the target's distribution: total variation {distance:.1e}")

    return check


def observe_mask(f):
    mask = f(PARENTS)
    return {"parents (-1, 0, 1, 1, 0, 4)": mask, "the chain (-1, 0, 1, 2)": f(torch.arange(-1, 3)),
            "the mask's dtype": str(mask.dtype)}


def taught_mask(parents):
    rows = []
    for row in range(len(parents)):
        seen, node = set(), row
        while node >= 0:
            seen.add(node)
            node = int(parents[node])
        rows.append([column in seen for column in range(len(parents))])
    return torch.tensor(rows)


def hidden_root(parents):
    mask = taught_mask(parents)
    mask[1:, 0] = False
    return mask


def wrapped(parents):
    """Row 0 too looks for its parent, and -1 is the last row."""
    mask = torch.eye(len(parents), dtype=torch.bool)
    for row, parent in enumerate(parents.tolist()):
        mask[row] |= mask[parent]
    return mask


def near_only(parents):
    rows = torch.arange(len(parents))
    return (rows == 0) | (rows == parents[:, None]) | (rows == rows[:, None])


def with_siblings(parents):
    same = parents[:, None] == parents[None, :]
    return taught_mask(parents) | (same & torch.ones_like(same).tril())


TREE = Tree([7, 1, 2, 0, 2, 1], PARENTS)
WALK = ("tokens (7 1 2 0 2 1), parents (-1 0 1 1 0 4), the target says 2, then 1, then 0: path, "
        "next token")


def observe_walk(f):
    cases = {WALK: [2, 0, 0, 0, 1, 0], "the target says 1, then 1": [1, 1, 0, 0, 0, 0],
             "the target says 0 at once": [0, 1, 1, 1, 1, 1]}  # what each row is sure of
    return {case: f(TREE, torch.eye(3)[rows], Sure()) for case, rows in cases.items()}


STAYS = "children 0 and 1 of the root, target (.5 .3 .2): the probability that a draft stays"


def chance(f):
    """How often f keeps a child of the root, over every result of its draws or coins."""
    tree = Tree([0, 0, 1], [-1, 0, 0])
    probs = torch.tensor([[0.5, 0.3, 0.2], [0.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
    stays = 0.0
    for result, probability in outcomes(lambda dice: plain(f(tree, probs, dice))):
        match result:
            case [[_, _, *_], _]:
                stays += probability
    return round(stays, 3)


def observe_rows(f):
    probs = torch.eye(6)  # row i says token i
    tree = Tree([0, 0, 1, 5], [-1, 0, 1, 1])
    return {**observe_walk(f), "row i of target_probs says token i": f(tree, probs[:4], Sure()),
            STAYS: chance(f)}


def slip_walk(parent_row=False, no_root=False, first_child=False, draw_each=False):
    def walk(tree, target_probs, dice):
        path = [0]
        while True:
            node = path[-1]
            token = dice.draw(target_probs[max(int(tree.parents[node]), 0) if parent_row else node])
            matching = [c for c in tree.children[node] if tree.tokens[c] == token]
            if first_child:
                matching = [c for c in tree.children[node][:1] if tree.tokens[c] == token]
            for child in tree.children[node] if draw_each else ():
                if tree.tokens[child] == token:
                    matching = [child]
                    break
                matching, token = [], dice.draw(target_probs[node])
            if not matching:
                return (path[1:] if no_root else path), token
            path.append(matching[0])

    return walk


FIRST_PASSES = ("children 0 and 1 of the root, draft (.5 .25 .25), target (.25 .35 .4), then "
                "(.5 .5 0); the first passes: path, token, what the dice were asked")


def observe_multi(f):
    two_children = Tree([0, 0, 1], [-1, 0, 0],
                        torch.tensor([[0.5, 0.25, 0.25], [0.0] * 3, [0.0] * 3]))

    def run(tree, coins):
        dice = Normal([], coins)
        target = torch.tensor([[0.25, 0.35, 0.4], [0.5, 0.5, 0.0], [0.0, 0.5, 0.5]])
        path, token = f(tree, target[:len(tree)], dice)
        return path, token, dice.asked

    return {FIRST_PASSES: run(two_children, [True]),
            "the first child fails, the second passes": run(two_children, [False, True]),
            "the same tree, both fail": run(two_children, [False, False]),
            "a root alone, without draft_probs": run(Tree([0], [-1]), [])}


def slip_multi(keep_target=False, keep_draft=False, plain_end=False):
    def multi_round(tree, target_probs, dice):
        from chain_specdec import acceptance_probability, residual

        path = [0]
        while True:
            node = path[-1]
            target = target_probs[node]
            draft = tree.draft_probs[node] if tree.children[node] else None
            for child in tree.children[node]:
                token = int(tree.tokens[child])
                if dice.flip(acceptance_probability(target, draft, token)):
                    path.append(child)
                    break
                target = target if keep_target else residual(target, draft)
                if not keep_draft:
                    draft = draft.clone()
                    draft[token] = 0
                    draft = draft / draft.sum()
            else:
                return path, dice.draw(target_probs[node] if plain_end else target)

    return multi_round


COMMIT = "length 2, keys 0..7, values 10..17, commit {}: length, keys and values after"


def observe_commit(f):
    seen = {}
    for rows in ([0, 2, 3], [0], [0, 1, 2], [2, 0]):
        cache = KVCache(GPTConfig(3, 8, 1, 1, 1), 1, 8, "cpu", torch.float32)
        cache.kv[:] = torch.arange(8.0)[:, None]
        cache.kv[:, 1] += 10
        cache.length = 2
        f(cache, rows)
        seen[COMMIT.format(rows)] = cache.length, cache.kv[0, :, 0, 0, :cache.length, 0]
    return seen


def slip_commit(first=False, no_offset=False, no_root=False, no_length=False, keys_only=False):
    def commit(cache, rows):
        rows = rows[1:] if no_root else rows
        n = len(rows)
        index = torch.tensor(list(range(n)) if first else rows, dtype=torch.long)
        index = index + (0 if no_offset else cache.length)
        kv = cache.kv[:, :1] if keys_only else cache.kv
        kv[..., cache.length:cache.length + n, :] = kv.index_select(-2, index)
        cache.length += 0 if no_length else n

    return commit


def observe_top(f):
    probs = torch.tensor([0.1, 0.4, 0.2, 0.3])
    return {"probs (.1, .4, .2, .3), n = 2": f(probs, 2), "the same, n = 9": f(probs, 9),
            "what comes back is a": type(f(probs, 2)).__name__}


BLANKS = [
    Blank(
        "tree_attention:top",
        "* Which n tokens become children? The most probable ones, best first. probs is a tensor "
        "(V,). Return a list of at most n token numbers. You may call torch, for instance "
        "probs.topk(2), whose .indices are the places of the two largest entries, and "
        "x.tolist(). Mind a vocabulary that is smaller than n.",
        "torch.topk; a vocabulary may be smaller than n.", 1, 3, observe_top,
        {"probs (.1, .4, .2, .3), n = 2": [1, 3], "the same, n = 9": [1, 3, 2, 0],
         "what comes back is a": "list"}, tree_promise(),
        {"the least probable tokens come first": lambda p, n: p.argsort().tolist()[:n],
         "n may not exceed the vocabulary, and is not capped":
            lambda p, n: p.topk(n).indices.tolist(),
         "the tokens come in the order of their ids":
            lambda p, n: sorted(p.topk(min(n, len(p))).indices.tolist())}),
    Blank(
        "tree_attention:ancestor_mask",
        "** Row i may attend to column j if j is i itself or an ancestor of i. Build the mask from "
        "the parents: a torch tensor (N, N) of booleans. Parents stand before their children; "
        "parents[0] is -1. You may call torch and numpy, for instance torch.eye(3, "
        "dtype=torch.bool), True on the diagonal, and mask[4] |= mask[0], which makes row 4 True "
        "where row 0 is True. Do not write into parents.",
        "Start with the identity. A row sees what its parent sees, and itself; parents come first.",
        5, 8, observe_mask,
        {"parents (-1, 0, 1, 1, 0, 4)": [
            [1, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0], [1, 1, 0, 1, 0, 0],
            [1, 0, 0, 0, 1, 0], [1, 0, 0, 0, 1, 1]],
         "the chain (-1, 0, 1, 2)": [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]],
         "the mask's dtype": "torch.bool"}, tree_promise(),
        {"siblings are visible": with_siblings, "the root is not visible": hidden_root,
         "the causal mask is used": lambda p: torch.ones(len(p), len(p)).tril().bool(),
         "only the parent is visible, not its ancestors":
            lambda p: torch.eye(len(p)).bool() | (torch.arange(len(p))[None] == p[:, None]),
         "only the root, the parent and the node itself are visible": near_only,
         "the root's parent, -1, is taken for the last row": wrapped,
         "the mask holds numbers, not bools": lambda p: taught_mask(p).float(),
         "a node does not see itself":
            lambda p: taught_mask(p) & ~torch.eye(len(p)).bool()}),
    Blank(
        "tree_attention:walk",
        "** Judge a tree whose nodes were chosen in any way. Stand at the root and draw the "
        "target's own token, as plain decoding would, before you look at the children. What if a "
        "child carries it? What if none does? Return the path, a list of rows that starts with 0, "
        "and the token that the target adds behind it. You may call dice.draw(probs) (a token: "
        "dice.draw of (0, 1, 0) is 1), tree.children[0] (a list with the rows of row 0's "
        "children), int(tree.tokens[4]) (the token in row 4) and target_probs[4] (the target's "
        "distribution (V,) of the token after row 4).",
        "The path starts with row 0, and row i of target_probs speaks of the token AFTER node i.",
        6, 8, observe_rows,
        {WALK: ([0, 4, 5], 0),
         "the target says 1, then 1": ([0, 1], 1), "the target says 0 at once": ([0], 0),
         "row i of target_probs says token i": ([0, 1, 2], 2),
         STAYS: 0.8}, tree_promise(),
        {"the parent's distribution is used instead of the node's own": slip_walk(parent_row=True),
         "the path does not start with the root": slip_walk(no_root=True),
         "only the first child is looked at": slip_walk(first_child=True),
         "the target draws anew for each child": slip_walk(draw_each=True)}),
    Blank(
        "nanogpt.model:KVCache.commit",
        "** Keep these new rows of the KV cache, in this order, right behind the committed ones. "
        "self.kv is (layers, 2, batch, heads, rows, head width); its last axis but one counts the "
        "rows. self.length says how many are committed: new row 0 lies at index self.length, and "
        "at the end the kept rows count, too. Any order may be asked for, so copy before you "
        "overwrite. You may call torch, for instance self.kv.index_select(-2, index), which copies "
        "the rows that a tensor names, and self.kv[..., a:b, :] = x. Nothing is returned.",
        "Row 0 of the new rows lies at self.length. index_select copies, so nothing is overwritten "
        "before it is read.", 5, 8, observe_commit,
        {COMMIT.format([0, 2, 3]): (5, [[0, 1, 2, 4, 5], [10, 11, 12, 14, 15]]),
         COMMIT.format([0]): (3, [[0, 1, 2], [10, 11, 12]]),
         COMMIT.format([0, 1, 2]): (5, [[0, 1, 2, 3, 4], [10, 11, 12, 13, 14]]),
         COMMIT.format([2, 0]): (4, [[0, 1, 4, 2], [10, 11, 14, 12]])}, None,
        {"the first rows are kept instead of the path's": slip_commit(first=True),
         "the rows are counted from the start of the cache": slip_commit(no_offset=True),
         "the root is not gathered": slip_commit(no_root=True),
         "the rows are sorted": lambda cache, rows: slip_commit()(cache, sorted(rows)),
         "only the keys are gathered": slip_commit(keys_only=True),
         "the length does not move": slip_commit(no_length=True)}),
    Blank(
        "tree_attention:multi_round",
        "*** Children that were drawn without replacement: go down from the root, and give each "
        "child in turn chapter 01's coin; go to the first that stays. After a rejection two "
        "things change before the next coin: the target still owes the residual only, and the "
        "next child was drawn from the drafter's distribution without the rejected token. If no "
        "child stays, or there is none, draw the next token; from what? Return path and token as "
        "walk does. You may call acceptance_probability(p, q, token) (the coin), residual(p, q), "
        "dice.flip(a) (True with probability a), dice.draw(probs) (a token), tree.children[0] (a "
        "list of rows), int(tree.tokens[1]), and tree.draft_probs[0], what row 0's children were "
        "drawn from, (V,): work on a copy, q.clone(). A root without children may have no "
        "draft_probs (None).",
        "Normalise both before the next child; if no child stays, draw from the last residual.",
        14, 15, observe_multi,
        {FIRST_PASSES: ([0, 1], 0, [0.5, [0.5, 0.5, 0.0]]),
         "the first child fails, the second passes": ([0, 2], 1, [0.5, 0.8, [0.0, 0.5, 0.5]]),
         "the same tree, both fail": ([0], 2, [0.5, 0.8, [0.0, 0.0, 1.0]]),
         "a root alone, without draft_probs": ([0], 2, [[0.25, 0.35, 0.4]])},
        tree_promise("multi_round"),
        {"the target is not updated after a rejection": slip_multi(keep_target=True),
         "the draft distribution keeps the rejected token, or loses it and is not normalised":
            slip_multi(keep_draft=True),
         "the end draws from the target instead of the residual": slip_multi(plain_end=True)}),
]
