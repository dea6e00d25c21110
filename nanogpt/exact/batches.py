"""Requests of the engine together, exactly: the joint distribution of their texts.

That each text has the right distribution is not enough: two readers with one prompt must not get
one text. So all texts of a batch are looked at together. If nobody depends on anybody, their joint
distribution is the product of what each one would have alone.
"""

from contextlib import ExitStack, contextmanager
from itertools import pairwise

import torch

from nanogpt import engine
from nanogpt.drafting import GPTDrafter
from nanogpt.engine import Engine, Request
from nanogpt.exact.enumeration import outcomes, total_variation
from nanogpt.exact.slips import replaced, slips
from nanogpt.exact.toy_models import ToyModel, ToyTarget, random_gpt
from nanogpt.paging import PagedModel, Pages
from nanogpt.sampling import Dice, Sampler


class Stream:
    """A Dice whose random numbers are fixed by its seed, and still every one of them is visited.

    The real Dice's draw number n asks where number n of its seed lies among the sums of the
    probabilities; two Dice of one seed ask about the same number. So a number is known as an
    interval, and each question about it cuts that. numbers: {(seed, n): (low, high)}, of all
    requests; dice: visits every outcome of a cut.
    """

    def __init__(self, seed, numbers, dice):
        self.seed, self.numbers, self.dice, self.drawn = seed, numbers, dice, 0

    def draw(self, probs):
        sums = [0.0, *(probs.double() / probs.double().sum()).cumsum(0).tolist()]
        place = self.seed, self.drawn
        low, high = self.numbers.get(place, (0.0, 1.0))
        parts = [max(0.0, min(high, above) - max(low, below)) for below, above in pairwise(sums)]
        parts = [part * (part > 1e-12) for part in parts]  # what is smaller is rounding
        outcome = self.dice.draw(torch.tensor(parts, dtype=torch.float64))
        self.numbers[place] = max(low, sums[outcome]), min(high, sums[outcome + 1])
        self.drawn += 1
        return outcome

    def flip(self, p):
        return self.draw(torch.tensor([1 - p, p], dtype=torch.float64)) == 1


def serve(served, plan, after_round=None):
    """Run an Engine until nobody is left. plan: a list of (round in which it comes, request, round
    in which it is cancelled, or None). after_round(): looks at the engine then."""
    number = 0
    while served.busy or any(comes >= number for comes, _, _ in plan):
        for comes, request, leaves in plan:
            if comes == number:
                served.submit(request)
            if leaves == number and not request.ended:
                served.cancel(request)
        if served.busy:
            served.round()
        if after_round:
            after_round()
        number += 1


def law(request, model):
    """The distribution of a request's text when plain decoding writes it: {new tokens: p}."""
    finished, open_ends = {}, {(): 1.0}
    while open_ends:
        longer = {}
        for new, mass in open_ends.items():
            text = [*request.prompt, *new]
            probs = request.probs(model.logits(text)[None], text)[0]
            for token, p in enumerate(probs.tolist()):
                if p > 0:
                    longer[(*new, token)] = mass * p
        open_ends = {}
        for new, mass in longer.items():
            stopped = any(list(new[-len(stop):]) == list(stop) for stop in request.stops)
            ended = stopped or len(new) == request.max_new_tokens
            (finished if ended else open_ends)[new] = mass
    return finished


def stop_and_join():
    """The first request may stop among its drafts; the second joins, and looks at its text."""
    return [(0, Request([0, 1], Sampler(1), seed=0, max_new_tokens=3, stops=([1, 1],),
                        k=2), None),
            (1, Request([1], Sampler(0.7), seed=1, max_new_tokens=3, penalty=0.5, k=1), None)]


def side_by_side():
    """Equally many rows a round, behind texts of different lengths."""
    return [(0, Request([0, 1, 1, 0, 1], Sampler(1), seed=0, max_new_tokens=3, k=1), None),
            (0, Request([1, 0], Sampler(1, top_k=2), seed=1, max_new_tokens=3, k=1), None)]


# {name: (make_plan, pages)}; the last one's second request is sent back, and reads its text again.
CASES = {"stop and join": (stop_and_join, 12), "side by side": (side_by_side, 12),
         "too few pages": (side_by_side, 5)}


def seed_of(dice):
    """What a Dice was made from."""
    return dice.generator.bit_generator.seed_seq.entropy


def joint_bias(accept, case, share=None):
    """Total variation between the texts of a case's requests together and the product of their
    laws. accept: chapter 01's; share: see Engine."""
    (make_plan, count), model, small = CASES[case], ToyModel(5, 2), ToyTarget(ToyModel(99, 2))

    def texts(dice):
        pages, plan, numbers, streams = Pages(count, 2), make_plan(), {}, {}
        for _, request, _ in plan:
            seed = seed_of(request.dice)  # what it is, not what was asked for
            own = streams.setdefault(id(request.dice), Stream(seed, numbers, dice))
            request.dice = own  # two that share a Dice share a Stream
        serve(Engine(PagedModel(ToyTarget(model), pages), GPTDrafter(small, pages), accept, share),
              plan)
        return tuple(tuple(request.new_tokens) for _, request, _ in plan)

    found, product = {}, {(): 1.0}
    for result, probability in outcomes(texts):
        found[result] = found.get(result, 0.0) + probability
    for _, request, _ in make_plan():
        product = {(*before, new): mass * p for before, mass in product.items()
                   for new, p in law(request, model).items()}
    return total_variation(found, product)


# ---------------------------------------------------------------- what goes wrong

ONE, REQUEST_BEGINS = Dice(0), Request.__post_init__


def begin_with_the_dice_of_all(request):
    REQUEST_BEGINS(request)
    request.dice = ONE


def begin_with_seed_0(request):
    REQUEST_BEGINS(request)
    request.dice = Dice(0)


STOPPED = "any(new[-len(stop):] == list(stop) for stop in stops)"
DRAFT = "if any(ks):\n    self.drafter.draft(self.running, ks[:len(self.running)])"
ENDED = "if request.ended:\n    self.leave(request)"
OWNERS = {"read": PagedModel, "group": PagedModel, "grow": Pages, "__post_init__": Request,
          "probs": Request, "commit": Request, "ragged_commit": engine, "draft": GPTDrafter,
          "make_room": Engine, "round": Engine, "cancel": Engine}
NOT_CUT = "the drafter's cache is not cut back"  # by commit; and draft finds one to read
WRONG = {
    "read": slips(PagedModel.read, {
        "positions are counted from the longest request's length": (
            "positions += places", "longest = max(length for _, length, _ in new)\n"
            "positions += range(longest, longest + len(own))"),
    }),
    "group": slips(PagedModel.group, {
        "a short request sees as many rows as the longest": (
            "length + rows", "length.max() + rows + 0 * length"),
        "a request reads its neighbour's pages": (
            "tables.to(device)", "tables.roll(1, 0).to(device)"),
    }),
    "grow": slips(Pages.grow, {
        "a page is given out twice": ("self.free.pop()", "self.free[-1]"),
    }),
    "__post_init__": {"one dice for all": begin_with_the_dice_of_all,
                      "each has dice of its own, all with seed 0": begin_with_seed_0},
    "probs": slips(Request.probs, {
        "the penalty does not see the drafts": (
            "text[:len(text) - len(logits) + row + 1]", "text[:len(text) - len(logits) + 1]"),
        "the penalty sees the drafts behind": (
            "text[:len(text) - len(logits) + row + 1]", "text"),
    }),
    "commit": slips(Request.commit, {
        NOT_CUT: ("min(self.drafter_length, self.length)",
                  "min(self.drafter_length, self.length + 1)"),
    }),
    "ragged_commit": slips(engine.ragged_commit, {
        "a stop counts only at the end of a round": (STOPPED, f"n == len(tokens) and {STOPPED}"),
        "a stop is looked for in the new tokens alone": (
            "written + tokens[:n]", "tokens[:n]",
            "len(new) == most", "len(written) + n == most"),
        "the stop is not written": ("return tokens[:n], unread + n - 1, ended", (
            "if ended == 'stop':\n    n -= 1\nreturn tokens[:n], unread + n - 1, ended")),
        "what lies behind the stop stays in the cache": (
            "unread + n - 1", "unread + len(tokens) - 1"),
        "the target's own token counts as read": ("unread + n - 1", "unread + n"),
        "the rows of the prompt are forgotten": ("unread + n - 1", "n"),
    }),
    "draft": slips(GPTDrafter.draft, {
        NOT_CUT: ("text[request.drafter_length:]", "text[request.drafter_length:] or text[-1:]"),
        "all drafts are drawn with the first request's sampler": ("request.dice.draw(probs)", (
            "request.dice.draw(requests[0].sampler(logits[-1:])[0].cpu())")),
    }),
    "make_room": slips(Engine.make_room, {
        "who is sent back believes that its rows are still there": ("last.forget()", "pass"),
    }),
    "round": slips(Engine.round, {
        "a page is freed before it is full": (ENDED, (
            "while len(request.table) > request.length // self.pages.size:\n"
            "    self.pages.free.append(request.table.pop())\n") + ENDED),
        "a chain is cut behind the drafts that q likes": (DRAFT, DRAFT + (
            "\nfor request in self.running:\n"
            "    pairs = zip(request.drafted, request.draft_probs)\n"
            "    n = [*(float(q[token]) > 0.3 for token, q in pairs), False].index(False)\n"
            "    del request.drafted[n:], request.draft_probs[n:]")),
    }),
    "cancel": slips(Engine.cancel, {
        "who is cancelled keeps its pages": (
            "self.leave(request)", "self.running.remove(request)"),
    }),
}


@contextmanager
def standing(sentence):
    """Inside `with`: the slip of this name stands in its function's place; None: no slip."""
    with ExitStack() as stack:
        for name, table in WRONG.items():
            if sentence in table:
                stack.enter_context(replaced(OWNERS[name], **{name: table[sentence]}))
        yield


# ---------------------------------------------------------------- a seeded text, in other company


def fewer_in_company(requests, most):
    """A `share` for the Engine: the number of drafts depends on who else is there."""
    return [min(k, 1) if len(requests) > 1 else k for k in most]


def texts_that_change(accept, requests=12, share=None):
    """How many texts of seeded requests are others when they are served together than one by one,
    or never come because the engine breaks off. Random GPTs in float64; share: see Engine."""
    target, small = (random_gpt(seed, 7, 32, 8) for seed in (0, 100))

    def plan():
        return [(i // 3, Request([i % 7] * (1 + 3 * i % 11), Sampler(1 + i % 3 / 4), i, 12,
                                 ([2, 5],), 0.4 * (i % 2), 1 + i % 4), None)
                for i in range(requests)]

    def texts(plans):
        for part in plans:
            pages = Pages(40, 3)
            try:
                serve(Engine(PagedModel(target, pages), GPTDrafter(small, pages), accept,
                             share), part)
                yield from (request.new_tokens for _, request, _ in part)
            except (IndexError, RuntimeError):
                yield from (None for _ in part)

    alone = texts([(0, request, None)] for _, request, _ in plan())
    return sum(a != b for a, b in zip(alone, texts([plan()]), strict=True))
