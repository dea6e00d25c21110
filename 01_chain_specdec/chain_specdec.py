"""Chain speculative decoding: draft K tokens, verify them in one forward, lose nothing.

    prompt --prefill--> root
       draft    a cheap model proposes K tokens after the root, one by one
       verify   one target forward reads root + drafts: K + 1 distributions at once
       accept   keep draft x with probability min(1, target(x) / draft(x)); at the first
                rejection draw from norm(max(target - draft, 0)) instead; if all pass,
                draw a bonus token from the last distribution
       commit   the KV cache keeps the rows of the accepted tokens

The root is the last token that the target chose and has not read yet. Every round emits at least
one token of the target's own, so it never stalls, and the emitted text has exactly the target's
distribution whatever the drafter proposes: a bad drafter costs time, not quality.

Sources: Leviathan, Kalman, Matias, "Fast Inference from Transformers via Speculative Decoding"
(2023), Algorithm 1 and Section 3; Chen et al., "Accelerating Large Language Model Decoding with
Speculative Sampling" (2023). In their letters, and in our comments, p is the target, q the drafter,
gamma is K and alpha the acceptance rate. The code spells `target_probs` and `draft_probs`, since
later papers swap the letters.
"""

from dataclasses import dataclass

import torch

from nanogpt.decoding import Context, Step

# ---------------------------------------------------------------- two draft models


class BigramDraft:
    """The cheapest language model there is: a table of which token follows which."""

    def __init__(self, tokens, vocab_size, smoothing=0.1):
        """tokens (T,): the text to count; smoothing: added to each count, above 0."""
        # A pair (before, after) as one number, in the order in which view() lays out a table.
        pairs = tokens[:-1] * vocab_size + tokens[1:]
        counts = torch.bincount(pairs, minlength=vocab_size**2).view(vocab_size, vocab_size)
        # A pair that was never seen stays possible: log(0) would be -inf, a whole row of it nan.
        self.table = (counts + smoothing).log()  # (V, V): row = the token before

    def reset(self):
        """A new text begins. (A bigram has no memory.)"""

    def observe(self, tokens, hidden=None, rows=None):
        """These tokens were committed."""

    def logits(self, token):
        """-> (V,), the logits of the token after `token`."""
        return self.table[token]


class GPTDraft:
    """A small GPT with a KV cache of its own.

    The cache keeps committed tokens. Root and drafts lie behind them for one round only; those
    that were accepted are read again in the next round, together with the new root.
    """

    def __init__(self, model):
        self.model = model
        self.cache = model.new_cache()
        self.reset()

    def reset(self):
        self.cache.length = self.committed = 0  # rows of the cache that hold committed tokens
        self.pending = []  # committed tokens that the cache has not read yet

    def observe(self, tokens, hidden=None, rows=None):
        """These tokens were committed; `hidden` and `rows` (see chapter 02) are not needed here."""
        # Reading them again is simpler than picking out their rows, and as fast: a forward of a
        # few rows costs about as much as one of a single row.
        self.pending = self.pending + tokens
        self.cache.length = self.committed  # forget the round's root and drafts

    @torch.inference_mode()
    def logits(self, token):
        """Read one more token -> (V,), the logits of the token after it."""
        new = self.pending + [token]
        logits, _ = self.model(torch.tensor([new]), cache=self.cache)  # (1, n, V)
        self.cache.commit(list(range(len(new))))  # the round's next draft must see them all, ...
        self.committed += len(self.pending)  # ... but `token` is a guess: it stays this round only
        self.pending = []
        return logits[0, -1]


# ---------------------------------------------------------------- draft, verify, accept


def draft(drafter, root, k, sampler, dice):
    """Draw k tokens after the root, each from the drafter's distribution after temperature.

    -> drafted, a list of k tokens, and draft_probs, a list of k rows (V,): row i is what token i
    was drawn from.
    """
    drafted, draft_probs, token = [], [], root
    for _ in range(k):
        # Algorithm 1's q_i, after temperature, top-k and top-p: the accept rule divides by the
        # probability that the draft really had.
        draft_probs.append(sampler(drafter.logits(token)).cpu())  # (V,)
        token = dice.draw(draft_probs[-1])  # x_i ~ q_i, not its argmax; the next one follows it
        drafted.append(token)
    return drafted, draft_probs


def verify(context, root, drafted, sampler):
    """One causal forward over the root and the drafts.

    -> target_probs (K + 1, V), Algorithm 1's p_1 .. p_(K+1): row i is the target's distribution of
    the token after i drafts; hidden: see GPT.forward. The cache of the context holds K + 1 new
    rows, none committed.
    """
    # Without a mask the forward is causal, so row i sees the context, the root and i drafts: the
    # text that plain decoding would have read there, if these drafts are right.
    return context.verify([root, *drafted], sampler)


def acceptance_probability(target_probs, draft_probs, token):
    """The probability with which a draft token is accepted. target_probs, draft_probs: (V,).

    Example: target (.5, .3, .2), draft (.6, .1, .3): token 0 has 5/6.
    """
    # min(1, p(x) / q(x)), Algorithm 1: what was drafted too often is thinned to p(x).
    target, draft = float(target_probs[token]), float(draft_probs[token])
    return target / draft if target < draft else 1.0  # nothing is divided by 0, and 0 / 0 is 1


def residual(target_probs, draft_probs):
    """The distribution that the target draws from after a rejection. (V,), (V,) -> (V,)

    Example: target (.5, .3, .2), draft (.6, .1, .3): (0, 1, 0).
    """
    # norm(max(p - q, 0)), Algorithm 1: where the drafter put too little. In the example its
    # surplus, .1 on token 0 and .1 on token 2, is rejected that often, .2 in all; and .2 is just
    # what token 1 lacks.
    missing = (target_probs - draft_probs).clamp(min=0)  # (V,)
    total = missing.sum()  # 1 - alpha: as much as the drafter's surplus, which is rejected
    # Equal distributions leave nothing over, and nothing is ever rejected: any answer will do.
    return missing / total if total > 0 else target_probs


def accept(drafted, draft_probs, target_probs, dice):
    """Test the drafts: how many are accepted, which token is next. Algorithm 1 from the coins on.

    drafted: K tokens; draft_probs: K rows (V,); target_probs (K + 1, V).
    -> n, how many drafts are accepted (a prefix), and the next token, which is always the target's.
    """
    for i, token in enumerate(drafted):  # left to right, one coin each
        # Both rows i answer the same question: which token follows the root and i drafts?
        if not dice.flip(acceptance_probability(target_probs[i], draft_probs[i], token)):
            # Token x has come out with min(p(x), q(x)) so far; this draw adds what p(x) still
            # lacks. The drafts behind follow a token that is gone, so no coin falls for them.
            return i, dice.draw(residual(target_probs[i], draft_probs[i]))
    # All are accepted, and the forward has read them: its last row gives the bonus token for free.
    return len(drafted), dice.draw(target_probs[len(drafted)])


# ---------------------------------------------------------------- the loop


@dataclass
class ChainRound:
    """A round's record, in Step.detail."""

    drafted: list  # K tokens
    draft_probs: list  # K rows (V,)
    target_probs: torch.Tensor  # (K + 1, V)
    accepted: int  # how many drafts were accepted, the bonus token not counted


@torch.inference_mode()
def speculate_chain(target, drafter, prompt, k, sampler, dice, rule=None):
    """Speculative decoding with chains of k drafts. Yields a Step per round, without end.

    The first step is the prefill. prompt: a list of token ids; sampler serves target and drafter;
    rule: another one with the arguments of `accept`. Raises ValueError if the prompt is empty or
    k < 1.
    """
    if k < 1:
        raise ValueError(f"k is {k}; a chain holds at least 1 draft token")
    context = Context(target, prompt)  # the text so far, and the target's KV cache of it
    # Prefill: one forward reads the prompt, the drafter is reset and told what was read, and the
    # logits (V,) after the last token come back.
    root = dice.draw(sampler(context.begin(drafter)))
    yield Step([root])

    while True:
        if context.full:  # no row is free: prefill anew, from the last block_size // 2 tokens
            context.begin(drafter)
        # room: the rows that still fit behind the root's. At the window's end chains get shorter.
        drafted, draft_probs = draft(drafter, root, min(k, context.room), sampler, dice)
        target_probs, hidden = verify(context, root, drafted, sampler)  # (K + 1, V)
        n, token = (rule or accept)(drafted, draft_probs, target_probs, dice)
        # The root and n drafts are text that the target has read. `token` is text as well, but
        # not yet read: it is the next root.
        rows, tokens = list(range(n + 1)), [root, *drafted[:n]]
        context.commit(rows, tokens)  # the cache keeps the first n + 1 of its K + 1 new rows
        drafter.observe(tokens, hidden, rows)  # it must forget the drafts that were rejected
        yield Step([*drafted[:n], token], len(drafted),
                   detail=ChainRound(drafted, draft_probs, target_probs, n))
        root = token
