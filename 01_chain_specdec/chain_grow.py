"""Chapter 01's drafts as one tensor program, for a round that is one launch.

See nanogpt/gpu/rounds.py. A reader here is a draft model that answers for n rows of a tree at once,
`level(now, tokens, seen, depth)`, so that later chapters can grow trees from it.
"""

from dataclasses import dataclass

import torch

from chain_specdec import BigramDraft, ChainRound, accept
from nanogpt.gpu.rounds import Drafts, Grower, Reader, fixed_tree
from nanogpt.model import GPT
from nanogpt.sampling import Sampler

# ---------------------------------------------------------------- two draft models


@dataclass(frozen=True)
class GPTReader(Reader):
    """GPTDraft's model; its cache holds the tree's rows where the target's has them."""

    model: GPT
    holds_trees = True

    def new_cache(self, target):
        return self.model.new_cache()

    def prefill(self, cache, tokens, hidden):
        self.model(torch.tensor([tokens]), cache=cache)

    def level(self, now, tokens, seen, depth):
        """n rows of one level -> logits (n, V). tokens (n,); seen: their rows of `ancestors`."""
        at = torch.full_like(tokens, depth)
        if depth == 0:
            # The last token may be a draft of the deepest level, which nobody has read. So it is
            # read again, in its place one row before the root's.
            tokens, at = now.tokens, torch.arange(-1, 1, device=tokens.device)
            seen = at[:, None]
        logits, _ = now.forward(self.model, now.kv, tokens, seen, at)
        return logits[-1:] if depth == 0 else logits


class BigramReader(Reader):
    """BigramDraft's table (V, V), on the target's device. It looks at nothing but a token."""

    def __init__(self, table, device):
        self.table = table.to(device)

    def __eq__(self, other):
        return isinstance(other, BigramReader) and torch.equal(self.table, other.table)

    def __hash__(self):
        return len(self.table)

    def level(self, now, tokens, seen, depth):
        """n rows of one level -> logits (n, V)."""
        return self.table[tokens]


def reader_of(target, drafter):
    """The reader of a BigramDraft or a GPTDraft."""
    if isinstance(drafter, BigramDraft):
        return BigramReader(drafter.table, target.device)
    return GPTReader(drafter.model)


# ---------------------------------------------------------------- the chain


@dataclass(frozen=True)
class ChainGrower(Grower):
    """chain_specdec.draft: k forwards of one row each, a draw after each of them."""

    read: Reader
    k: int
    sampler: Sampler

    rows = property(lambda self: self.k + 1)
    depth = draws = property(lambda self: self.k)

    def grow(self, now):
        tokens, alive, draft_probs = [now.tokens[1:]], [now.length > 0], []
        parents, seen, _ = fixed_tree((*range(-1, self.k),), now.length.device)
        for i in range(self.k):
            logits = self.read.level(now, tokens[i], seen[i:i + 1], i)
            draft_probs.append(self.sampler(logits))  # (1, V)
            token, drawn = now.draw(draft_probs[i], alive[i], i, replace=True)
            tokens.append(token[0])
            alive.append(drawn[0])
        unasked = torch.zeros_like(draft_probs[0])  # nothing is drawn after the last draft
        return Drafts(torch.cat(tokens), parents, seen, torch.cat(alive),
                      torch.cat([*draft_probs, unasked]))

    def drafts(self, tokens, parents, draft_probs):
        """As chain_specdec.draft: a list of tokens, a row (V,) for each."""
        return tokens[1:].tolist(), draft_probs[:-1]

    def judge(self, drafts, target_probs, dice, rule):
        n, token = (rule or accept)(*drafts, target_probs, dice)
        return list(range(n + 1)), drafts[0][:n], token, ChainRound(*drafts, target_probs, n)


def grow_chain(target, drafter, k, sampler):
    """The Grower of speculate_chain's drafter."""
    return ChainGrower(reader_of(target, drafter), k, sampler)
