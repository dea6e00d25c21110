"""Drafts for several requests at once: a small GPT or a table, and who gets how many.

A drafter of the engine has one method. draft(requests, ks) gives every request `drafted`, at most
k tokens, and `draft_probs`, a row (V,) for each: what that token was drawn from. One with a model
shows its `config`, so that the engine sees whether window and vocabulary fit.
"""

from collections import Counter

import numpy as np

from nanogpt.paging import PagedModel

PRIOR = 60  # drafts: an acceptance rate of its own needs a past of about this length
STEP = 0.1  # and it moves in steps: what is less is chance


class GPTDrafter:
    """A small GPT that drafts for all requests at once. Its cache lies in the same pages."""

    def __init__(self, model, pages):
        self.small, self.config = PagedModel(model, pages), model.config

    def draft(self, requests, ks):
        for i in range(max(ks)):  # one forward for the i-th drafts of all
            drafting = [request for request, k in zip(requests, ks, strict=True) if k > i]
            new = []
            for request in drafting:
                # At first what was accepted and the root, as the target; then the last draft.
                text = (request.text + request.drafted)[request.start:]
                new.append((request.table, request.drafter_length, text[request.drafter_length:]))
                request.drafter_length = len(text)
            for request, logits in zip(drafting, self.small.read(new), strict=True):
                # The target's sampler, and a penalty counts the drafts before this one.
                probs = request.probs(logits[-1:], request.text + request.drafted)[0]  # (V,)
                request.draft_probs.append(probs)
                request.drafted.append(request.dice.draw(probs))


class TextDrafter:
    """Drafts from each text by itself, as a table of counts does: no forward, and no cache.

    logits_of: a list of tokens -> (V,), the logits of the token after it.
    """

    def __init__(self, logits_of):
        self.logits_of = logits_of

    def draft(self, requests, ks):
        for request, k in zip(requests, ks, strict=True):
            for _ in range(k):
                text = request.text + request.drafted
                probs = request.probs(self.logits_of(text)[None], text)[0]  # (V,)
                request.draft_probs.append(probs)
                request.drafted.append(request.dice.draw(probs))


# ---------------------------------------------------------------- who gets how many


def share_drafts(alphas, most, price, draft_ms):
    """Who gets how many drafts, so that the round brings the most tokens per millisecond.

    alphas: each request's acceptance rate; most: how many drafts each may have; price[n]: the
    milliseconds of the round's forward with n drafts in it; draft_ms: one pass of the drafter,
    which drafts once for every request. -> a list of counts.

    Worked example: alphas .8 and .5, most 2 each; price 4, 5, 6, 7, 8 ms, a pass costs nothing. In
    order of worth the drafts are .8, .64, .5, .25. The rates are 2/4 = .5, 2.8/5 = .56,
    3.44/6 = .573, 3.94/7 = .563, ..: two drafts, and the first request gets both.
    """
    # Draft number d of a request is accepted with alpha^d. These fall along each chain, so the n
    # best of all are beginnings of chains: chapter 05's heap, with a root for each request.
    ranked = sorted(((alpha ** depth, i, depth) for i, alpha in enumerate(alphas)
                     for depth in range(1, most[i] + 1)), reverse=True)
    best = 0.0, []
    for passes in range(max(most) + 1):
        drafts = [(worth, i) for worth, i, depth in ranked if depth <= passes]
        # Each request's own token comes in any case; to them n drafts are added, n = 0, 1, ..
        tokens = np.cumsum([len(alphas)] + [worth for worth, _ in drafts])
        rates = tokens / (np.array(price[:len(drafts) + 1]) + passes * draft_ms)
        if rates.max() > best[0]:
            best = rates.max(), drafts[:rates.argmax()]
    counts = Counter(i for _, i in best[1])
    return [counts[i] for i in range(len(alphas))]


class ByLoad:
    """`share` for the Engine: as many drafts as pay with just as many requests as there are now.

    prices: {requests: {rows: ms}}, a round's forward with so many requests, and so many rows for
    each of them; draft_ms: {requests: ms}, one pass of the drafter; alpha: which part of the
    drafts that were tested so far, of anybody, was accepted.
    """

    def __init__(self, prices, draft_ms, alpha):
        self.prices, self.draft_ms, self.alpha = prices, draft_ms, alpha
        self.asked = self.answer = None

    def __call__(self, requests, most):
        asked = [self.alpha_of(request) for request in requests], most
        if asked != self.asked:  # else the last answer stands; to find it takes a millisecond
            load = min(self.prices, key=lambda n: abs(n - len(requests)))
            price = self.price(load, sum(most), len(requests))
            self.asked, self.answer = asked, share_drafts(*asked, price, self.draft_ms[load])
        return self.answer

    def price(self, load, drafts, requests=None):
        """The milliseconds of a forward with 0, 1, .., `drafts` drafts in it, of so many requests,
        by what as many as `load` had to pay; requests: default `load`."""
        rows = 1 + np.arange(drafts + 1) / (requests or load)  # for each of them, on average
        return np.interp(rows, list(self.prices[load]), list(self.prices[load].values()))

    def alpha_of(self, request):
        """A request's acceptance rate: everybody's, until its own past says otherwise."""
        own = (request.accepted + PRIOR * self.alpha) / (request.tested + PRIOR)
        # Who is nearly equal shall have equal chains: each length in a round attends by itself.
        return min(1.0, max(0.0, self.alpha + STEP * round((own - self.alpha) / STEP)))
