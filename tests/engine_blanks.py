"""The blanks of the lesson on the engine, which is no chapter: they are graded in the notebook."""

import inspect
import random
from itertools import product

from nanogpt import drafting, engine
from grade import SECONDS
from grading import Blank, Late, grade_answer, limited, own_line, require
from nanogpt.chapter import load
from nanogpt.exact.batches import WRONG, joint_bias
from nanogpt.exact.slips import slips

A, B = [7], [3, 4]


def all_together():
    """Two requests on toy models: their texts together must have the product of their laws."""
    bias = joint_bias(load("01").module("chain_specdec").accept, "stop and join")
    require(bias < 1e-6, "the texts no longer have the distribution that they have alone: total "
            f"variation {bias:.1e} instead of 0")


def the_best():
    """No other way to share brings more tokens a millisecond."""
    chance = random.Random(1)
    for number in range(60):
        most = [chance.randrange(5) for _ in range(1 + number % 4)]
        alphas, price = [chance.choice((0.3, 0.6, 0.9)) for _ in most], [4.0]
        for _ in range(sum(most)):
            price.append(price[-1] + chance.choice((0, 0.3, 0.9)))
        draft_ms = chance.choice((0, 0.2, 0.7))

        def rate(ks, alphas=alphas, price=price, draft_ms=draft_ms):
            tokens = sum(alpha ** d for alpha, k in zip(alphas, ks, strict=True)
                         for d in range(k + 1))
            return tokens / (price[sum(ks)] + draft_ms * max(ks))

        found = drafting.share_drafts(alphas, most, price, draft_ms)
        best = max(product(*(range(n + 1) for n in most)), key=rate)
        require(rate(found) > rate(best) - 1e-9,
                f"alphas {alphas}, most {most}, price {price}, draft_ms {draft_ms}: {list(best)} "
                f"brings {rate(best):.3f} tokens a ms, your {list(found)} {rate(found):.3f}")


COUNTS = "return [counts[i] for i in range(len(alphas))]"
SHARE_SLIPS = slips(drafting.share_drafts, {
    "drafts are added one by one, always the one that brings most": (COUNTS, """
def rate(ks):
    tokens = sum(alpha ** d for alpha, k in zip(alphas, ks) for d in range(k + 1))
    return tokens / (price[sum(ks)] + draft_ms * max(ks))
best = ks = [0] * len(alphas)
while sum(ks) < sum(most):
    ks = max(([*ks[:i], k + 1, *ks[i + 1:]] for i, k in enumerate(ks) if k < most[i]), key=rate)
    best = max(best, ks, key=rate)
return best"""),
    "it knows two requests and no more": ("best = 0.0, []", "best = 0.0, []\nfirst, second = most"),
    "nobody has more than two drafts": (
        "range(1, most[i] + 1)", "range(1, min(most[i], 2) + 1)"),
    "the requests' own tokens are left out of the sum": ("[len(alphas)]", "[0]"),
    "the drafter's passes are forgotten": ("passes * draft_ms", "0"),
    "a pass is paid for every draft": (
        "passes * draft_ms", "draft_ms * np.arange(len(drafts) + 1)"),
    "every draft counts alpha, however deep it lies": ("alpha ** depth", "alpha"),
    "the most tokens are taken, whatever they cost": (
        "tokens / (np.array(price[:len(drafts) + 1]) + passes * draft_ms)", "tokens * 1.0"),
})
SAME = "[-len(stop):] == list(stop)"
STOP_SLIPS = WRONG["ragged_commit"] | slips(engine.ragged_commit, {
    "of two stops the first in the list ends the text, not the first in the text": (
        f"any(new{SAME} for stop in stops)",
        f"any(new{SAME} for stop in [stop for stop in stops if any((written + tokens[:m]){SAME} "
        "for m in range(1, len(tokens) + 1))][:1])"),
    "only the first stop is looked for": (
        f"any(new{SAME} for stop in stops)", f"any(new{SAME} for stop in stops[:1])"),
})
BLANKS = [
    Blank(
        "nanogpt.engine:ragged_commit",
        """** One request has judged its drafts. tokens are the accepted drafts and the target's own
        token; written are its new tokens so far. Its text ends behind the first stop that appears
        (a stop is a list of tokens, and may begin in `written`), or with token number `most`.
        Return three things: the tokens that are text, how many rows of the forward stay in its
        cache, and "stop", "length" or None. The forward read `unread` tokens and then the drafts;
        the last token of a text is always left unread.""",
        ("Which is the first token behind which the text may end?",
         "Of the n tokens that are text the last one is unread, whoever wrote it: how many rows "
         "have the others, and the ones before them?"),
        lines=8, minutes=8, promise=all_together,
        examples={
            "unread 1, tokens 5, 6, 7, 8; the stop 7 is the third": (
                (1, [5, 6, 7, 8], [], [A], 9), ([5, 6, 7], 3, "stop")),
            "no stop": ((1, [5, 6, 8], [], [A], 9), ([5, 6, 8], 3, None)),
            "the stop 3, 4 began a round before": (
                (1, [4, 6, 8], [1, 3], [B], 9), ([4], 1, "stop")),
            "most is 4, and 2 are written": (
                (1, [5, 6, 8], [1, 2], [A], 4), ([5, 6], 2, "length")),
            "a prompt of 6 tokens, and the first new one": (
                (6, [5], [], [A], 9), ([5], 6, None)),
            "the stop is the last token that it may write": (
                (1, [5, 7, 8], [], [A], 2), ([5, 7], 2, "stop")),
            "tokens 13, 7, 3; two stops, 3 and 7": (
                (1, [13, 7, 3], [], [[3], A], 9), ([13, 7], 2, "stop")),
            "after 6 the tokens 7, 8, 9; two stops, 3 and 6, 7, 8": (
                (1, [7, 8, 9], [6], [[3], [6, 7, 8]], 9), ([7, 8], 2, "stop")),
        }),
    Blank(
        "nanogpt.drafting:share_drafts",
        """*** Who gets how many drafts? Draft number d of request i is accepted with probability
        alphas[i] ** d, and every request writes one token in any case. With n drafts in it the
        forward takes
        price[n] ms; each pass of the drafter, which drafts one token for every request that wants
        one, takes draft_ms. Request i may have at most most[i] drafts. Return a list of counts
        that brings the most tokens a millisecond.""",
        ("A pass is paid once for all requests: try each number of passes by itself.",
         "With so many passes the drafts can be ranked by the tokens that they bring; a request's "
         "second draft never ranks before its first."),
        lines=10, minutes=15, promise=the_best,
        examples={
            "alphas .8, .5, most 2, 2, price 4, 5, 6, 7, 8, a pass costs nothing": (
                ([0.8, 0.5], [2, 2], [4, 5, 6, 7, 8], 0), [2, 0]),
            "alphas .6, .5, most 2, 2, price 4, 4.5, 5, 6, 7, a pass costs nothing": (
                ([0.6, 0.5], [2, 2], [4, 4.5, 5, 6, 7], 0), [1, 1]),
            "rows are free, and so are passes": (([0.8, 0.5], [2, 1], [4, 4, 4, 4], 0), [2, 1]),
            "rows are free, a pass takes 1.2 ms": (
                ([0.8, 0.5], [2, 1], [4, 4, 4, 4], 1.2), [1, 1]),
            "a full batch: as many ms as rows": (
                ([0.8, 0.5], [2, 2], [2, 3, 4, 5, 6], 0.1), [0, 0]),
            "one request: alphas .9, most 3, price 4, 4.2, 4.4, 4.6, a pass costs nothing": (
                ([0.9], [3], [4, 4.2, 4.4, 4.6], 0), [3]),
            "nobody may draft": (([0.8, 0.5], [0, 0], [4], 0.1), [0, 0]),
            # 6.42 tokens in 5.5 ms; the best one draft is the first's, which is free
            "alphas .3, .9, .9, most 2, 2, 2, price 4, 4, 4.5, 4.5, 4.5, 5.5, 6.5, a pass takes "
            ".5 ms": (([0.3, 0.9, 0.9], [2, 2, 2], [4, 4, 4.5, 4.5, 4.5, 5.5, 6.5], 0.5),
                      [0, 2, 2]),
        }),
]
for blank, wrong in zip(BLANKS, (STOP_SLIPS, SHARE_SLIPS), strict=True):
    blank.slips = wrong


def grade_here(answer, hint=0):
    """Grade a function of the notebook; prints the verdict, or its hint 1 or 2."""
    [blank] = [blank for blank in BLANKS if blank.name == answer.__name__]
    if hint:
        print(blank.hint[hint - 1])
        return
    path, tried = inspect.getsourcefile(answer) or "", [""]
    try:
        with limited():
            status, message = grade_answer(blank, answer, path, lambda text, *_: tried.append(text))
    except Late as late:
        status, message = "crashed", (f"no answer after {SECONDS} seconds; an endless loop?\n    "
                                      f"{tried[-1]}{own_line(late, path)}")
    if status == "still blank":
        message = "its question is above it; hint=1 or hint=2 helps"
    print(f"{blank.name}: {status}" + (f"\n    {message}" if message else ""))
