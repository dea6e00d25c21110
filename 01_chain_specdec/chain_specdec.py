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
Speculative Sampling" (2023). In their letters target = p, draft = q, K = gamma, and alpha is the
acceptance rate. This code spells `target_probs` and `draft_probs`, since later papers swap them.
"""

from dataclasses import dataclass

import torch

from nanogpt.decoding import Context, Step, Stopwatch, tokens_on

# ---------------------------------------------------------------- two draft models


LARGEST_TABLE = 8192  # tokens of a bigram's vocabulary: a table of 256 MiB


class BigramDraft:
    """The cheapest language model there is: a table of which token follows which."""

    def __init__(self, tokens, vocab_size, smoothing=0.1):
        """tokens (T,): the text to count. smoothing: added to each count, so nothing has p = 0.

        Raises ValueError for a vocabulary whose table would not fit, or a smoothing of 0.
        """
        if vocab_size > LARGEST_TABLE:
            raise ValueError(f"a bigram table of {vocab_size} x {vocab_size} tokens does not fit; "
                             f"this drafter takes vocabularies up to {LARGEST_TABLE}")
        if not smoothing > 0:
            raise ValueError(f"smoothing is {smoothing}; it must be above 0")
        pairs = tokens[:-1] * vocab_size + tokens[1:]
        counts = torch.bincount(pairs, minlength=vocab_size**2).view(vocab_size, vocab_size)
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

    The cache holds committed tokens; root and drafts lie behind them for one round only. The
    next round reads what was accepted again, together with the new root, in a single forward:
    simpler than keeping rows, and as fast, because a forward of a few rows costs one of one row.
    """

    def __init__(self, model):
        self.model = model
        self.cache = model.new_cache()
        self.reset()

    def reset(self):
        self.cache.length = self.committed = 0  # rows of the cache that hold committed tokens
        self.pending = []  # committed tokens that the cache has not read yet

    def observe(self, tokens, hidden=None, rows=None):
        """These tokens were committed; `hidden` and `rows` (see speculate) are not needed here."""
        self.pending = self.pending + tokens
        self.cache.length = self.committed  # forget the round's root and drafts

    @torch.inference_mode()
    def logits(self, token):
        """Read one more token -> (V,), the logits of the token after it."""
        new = self.pending + [token]
        logits, _ = self.model(tokens_on(self.model, new), cache=self.cache)  # (1, n, V)
        self.cache.commit(list(range(len(new))))
        self.committed += len(self.pending)
        self.pending = []
        return logits[0, -1]


# ---------------------------------------------------------------- draft, verify, accept


def draft(drafter, root, k, sampler, dice):
    """Draw k tokens after the root, each from the drafter's own distribution.

    -> drafted, a list of k tokens, and draft_probs, a list of k rows (V,). Row i is the
    distribution that drafted[i] was really drawn from: after temperature, top-k and top-p. The rule
    below is exact only with that one.
    """
    drafted, draft_probs, token = [], [], root
    for _ in range(k):
        draft_probs.append(sampler(drafter.logits(token)).cpu())  # (V,)
        token = dice.draw(draft_probs[-1])
        drafted.append(token)
    return drafted, draft_probs


def verify(target, cache, root, drafted):
    """One causal forward over the root and the drafts.

    -> logits (K + 1, V): row i is the target's opinion on the token after i drafts;
    hidden: see GPT.forward. The cache holds K + 1 new rows, none committed.
    """
    logits, hidden = target(tokens_on(target, [root, *drafted]), cache=cache)
    return logits[0], hidden


def acceptance_probability(target_probs, draft_probs, token):
    """min(1, target(x) / draft(x)) for one token. target_probs, draft_probs: (V,)."""
    target, draft = float(target_probs[token]), float(draft_probs[token])
    return target / draft if target < draft else 1.0  # 0 / 0 counts as 1


def residual(target_probs, draft_probs):
    """norm(max(target - draft, 0)): where the drafter put too little. (V,), (V,) -> (V,)

    Worked example: target (.5, .3, .2), draft (.6, .1, .3). The drafter's surplus is .1 on
    token 0 and .1 on token 2; both are rejected that often, .2 in all. What is missing, .2 on
    token 1, is exactly what the residual hands out: (0, 1, 0).
    """
    missing = (target_probs - draft_probs).clamp(min=0)
    total = missing.sum()
    # Equal distributions leave nothing over, and nothing is ever rejected: any answer will do.
    return missing / total if total > 0 else target_probs


def accept(drafted, draft_probs, target_probs, dice):
    """Leviathan et al., Algorithm 1, from the coins on.

    drafted: K tokens; draft_probs: K rows (V,); target_probs (K + 1, V).
    -> n, how many drafts stay (a prefix), and the next token, which is always the target's.
    """
    for i, token in enumerate(drafted):
        if not dice.flip(acceptance_probability(target_probs[i], draft_probs[i], token)):
            return i, dice.draw(residual(target_probs[i], draft_probs[i]))
    return len(drafted), dice.draw(target_probs[len(drafted)])  # the bonus token


# ---------------------------------------------------------------- the loop


@dataclass
class ChainRound:
    """A round's record, in Step.detail. drafted: K tokens; draft_probs: K rows (V,); target_probs
    (K + 1, V); accepted: how many drafts stayed."""

    drafted: list
    draft_probs: list
    target_probs: torch.Tensor
    accepted: int


@torch.inference_mode()
def speculate_chain(target, drafter, prompt, k, sampler, dice, sync=False):
    """Speculative decoding with chains of k drafts. Yields a Step per target forward, for ever.

    The first step is the prefill. prompt: a list of token ids. sampler serves target and drafter.
    Raises ValueError if the prompt is empty or k < 1.
    """
    if k < 1:
        raise ValueError(f"k is {k}; a chain holds at least 1 draft token")
    context = Context(target, prompt)
    watch = Stopwatch(target.device, sync)
    root = dice.draw(sampler(context.begin(drafter)))
    yield Step([root], seconds=watch.seconds)

    while True:
        watch.start()
        if context.full:
            context.begin(drafter)
        drafted, draft_probs = draft(drafter, root, min(k, context.room), sampler, dice)
        watch.lap("draft")
        logits, hidden = verify(target, context.cache, root, drafted)
        target_probs = sampler(logits).cpu()  # (K + 1, V)
        watch.lap("verify")
        n, token = accept(drafted, draft_probs, target_probs, dice)
        watch.lap("accept")
        rows, tokens = list(range(n + 1)), [root, *drafted[:n]]
        context.commit(rows, tokens)
        drafter.observe(tokens, hidden, rows)
        watch.lap("commit")
        yield Step([*drafted[:n], token], len(drafted), watch.seconds,
                   detail=ChainRound(drafted, draft_probs, target_probs, n))
        root = token


# ---------------------------------------------------------------- what to expect


def acceptance_rate(target_probs, draft_probs):
    """alpha = sum_x min(target(x), draft(x)): the chance that one draft token stays.

    (..., V), (..., V) -> (...). Leviathan et al., Corollary 3.6.
    """
    return torch.minimum(target_probs, draft_probs).sum(-1)


def expected_tokens(alpha, k):
    """Tokens per round, bonus token included, if every draft stays with chance alpha.

    1 + alpha + ... + alpha^k = (1 - alpha^(k+1)) / (1 - alpha). Leviathan et al., Equation 1.
    """
    return k + 1.0 if alpha == 1 else (1 - alpha ** (k + 1)) / (1 - alpha)


def expected_speedup(tokens, k, plain_ms, draft_ms, verify_ms):
    """Predicted speed-up over plain decoding, from measured costs in milliseconds.

    tokens: per round; plain_ms = c(1), one plain step; draft_ms: one draft token;
    verify_ms = c(k + 1). With draft_ms = c * plain_ms and verify_ms = plain_ms this is
    Leviathan et al., Theorem 3.8.
    """
    return tokens * plain_ms / (k * draft_ms + verify_ms)
