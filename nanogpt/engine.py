"""A small engine: several requests share each forward of the target, and each text stays exact.

A round of the engine is a round of chapter 01 for every request that runs:

    draft    each request gets some drafts, perhaps none
    verify   one forward reads the rows of all: what each has not read yet, and its drafts
    accept   each request judges its own drafts, with its own sampler and its own dice
    commit   a text may end among its new tokens; its rows lie in its own pages

Requests come, end and are cancelled between two rounds. A new one needs nothing special: what it
has not read yet is its prompt, and the forward reads that beside the others' few rows.

No row sees the row of another request, and nobody else draws from its dice. So a request's text has
the distribution that it has alone. With a fixed number of drafts, and but for rounding, the same
seed writes the same text, too. `share` may give fewer drafts in company: that is settled before
they are drawn, so the distribution stays, but other random numbers make another text.

The rule that accepts comes from the caller (chapter 01's `accept`), for the stage imports no
chapter; so do the drafters, see drafting.py.
"""

import secrets
from dataclasses import dataclass

import torch

from nanogpt.sampling import Dice, Sampler

LAST = 64  # tokens that a penalty looks back at
HARDEST = 1000  # penalty; one that is no number in float32 would leave no token possible

# ---------------------------------------------------------------- a request


@dataclass(eq=False)  # two requests are two, even if they ask for the same
class Request:
    """What somebody asks for, and how far it has come.

    prompt: a list of token ids; seed: of its own dice, default a fresh one; stops: lists of tokens,
    the text ends after the first one that appears; penalty: is subtracted from a token's logit for
    each time that the token stands in the last LAST tokens; k: the most drafts a round.
    Raises ValueError for values that make no sense.
    """

    prompt: list
    sampler: Sampler = Sampler()
    seed: int | None = None
    max_new_tokens: int = 64
    stops: tuple = ()
    penalty: float = 0.0
    k: int = 4

    def __post_init__(self):
        for name, least in (("max_new_tokens", 1), ("k", 0)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise ValueError(f"{name} is {value}; it must be an integer, at least {least}")
        # What is wrong here would break off a round, and so end all others, too.
        for name, tokens in ("the prompt", self.prompt), *(("a stop", stop) for stop in self.stops):
            if not isinstance(tokens, list | tuple):
                raise ValueError(f"{name} is {tokens}; it must be a list of tokens")
            if not tokens:
                raise ValueError(f"{name} is empty; it must hold at least one token")
            for token in tokens:
                if type(token) is not int:
                    raise ValueError(f"{name} holds {token!r}; a token is an integer")
        if not abs(self.penalty) <= HARDEST:
            raise ValueError(f"penalty is {self.penalty}; it must lie in -{HARDEST} to {HARDEST}")
        if self.seed is None:  # a common default would make two readers of one prompt get one text
            self.seed = secrets.randbits(63)
        self.dice = Dice(self.seed)  # of its own: its draws do not depend on who else is there
        self.text = list(self.prompt)  # no forward has read the last token, the root
        self.start = 0  # where the window begins in the text
        self.table = []  # its pages
        self.drafted, self.draft_probs = [], []
        self.accepted = self.tested = 0  # drafts, over all rounds
        self.ended = None  # "stop", "length" or "cancelled"
        self.forget()

    def forget(self):
        """No row of it is in a cache any more."""
        self.length = self.drafter_length = 0  # rows that the target, the drafter has read

    @property
    def new_tokens(self):
        return self.text[len(self.prompt):]

    @property
    def unread(self):
        """What the target has not read of the text: at first the prompt, later the root alone."""
        return self.text[self.start + self.length:]

    def probs(self, logits, text):
        """logits (n, V) of the rows that read the last n tokens of a text -> probs (n, V)."""
        if self.penalty:
            logits = logits.clone()
            for row in range(len(logits)):
                # Each row has a text of its own: the drafts before it count, those behind do not.
                read = text[:len(text) - len(logits) + row + 1][-LAST:]
                counts = torch.bincount(torch.tensor(read), minlength=logits.shape[-1])
                logits[row] -= self.penalty * counts.to(logits)
        return self.sampler(logits).cpu()

    def slide(self, window):
        """The window rule of `Context`: when it is full, begin anew from the last half."""
        if self.length == window:
            self.start = len(self.text) - 1 - window // 2
            self.forget()

    def commit(self, logits, accept):
        """Judge the drafts, keep what is accepted -> the new tokens.

        logits (n, V): of its rows in the round's forward, the drafts' last.
        """
        k = len(self.drafted)
        target_probs = self.probs(logits[-k - 1:], self.text + self.drafted)  # (k + 1, V)
        n, token = accept(self.drafted, self.draft_probs, target_probs, self.dice)
        tokens, rows, self.ended = ragged_commit(
            len(self.unread), [*self.drafted[:n], token], self.new_tokens, self.stops,
            self.max_new_tokens)
        self.accepted += min(n, len(tokens))  # what lies behind the end counts nowhere
        self.tested += min(n + 1, k, len(tokens))
        self.text += tokens
        self.length += rows  # the next round writes over the rows behind
        # What the drafter has read beyond was rejected. It is cut back here and not by the drafter,
        # who is not asked in a round without drafts.
        self.drafter_length = min(self.drafter_length, self.length)
        self.drafted, self.draft_probs = [], []
        return tokens


def ragged_commit(unread, tokens, written, stops, most):
    """What one request keeps of a round: its own number of tokens and rows, whatever others keep.

    unread: how many tokens it read before its drafts; tokens: the accepted drafts and the target's
    own; written: its new tokens so far; stops: lists of tokens; most: its max_new_tokens.
    -> the tokens that are text, how many rows of the forward stay, "stop", "length" or None.

    Example: it read its root, then the drafts t, h, e; all are accepted, and the target adds a
    space. With the stop h: the tokens t, h; two rows, the root's and the t's; "stop".
    """
    for n in range(1, len(tokens) + 1):
        new = written + tokens[:n]
        # A stop may begin in an earlier round, and it may end inside the drafts.
        stopped = any(new[-len(stop):] == list(stop) for stop in stops)
        ended = "stop" if stopped else "length" if len(new) == most else None
        if ended or n == len(tokens):
            # A text's last token is always unread: the target's own, or one with nothing behind it.
            return tokens[:n], unread + n - 1, ended


# ---------------------------------------------------------------- the engine


class Engine:
    """Requests in, tokens out.

    target: a PagedModel; drafter: see drafting.py, or None; accept: chapter 01's rule;
    share(requests, most) -> how many drafts each one gets, at most `most`; default: all of them.

        engine.submit(request)
        while engine.busy:
            for request, tokens in engine.round():
                ...  # stream them
    """

    def __init__(self, target, drafter, accept, share=None):
        """Raises ValueError if the window has a single row, or if the drafter's is shorter or its
        vocabulary has another size."""
        self.target, self.pages, self.window = target, target.pages, target.model.block_size
        if self.window < 2:
            raise ValueError("the window has 1 row; it must have at least 2")
        own = target.model.config
        small = getattr(drafter, "config", own)  # who has no model has none
        if small.block_size < self.window:
            raise ValueError(f"the drafter's window has {small.block_size} rows; it must have at "
                             f"least {self.window}, as the target's")
        if small.vocab_size != own.vocab_size:
            raise ValueError(f"the drafter's model knows {small.vocab_size} tokens, the target "
                             f"knows {own.vocab_size}; they must be the same")
        self.drafter, self.accept, self.share = drafter, accept, share
        self.waiting, self.running = [], []  # in the order in which they came

    @property
    def busy(self):
        return bool(self.waiting or self.running)

    def submit(self, request):
        """Queue a request.

        Raises ValueError if it was submitted before, holds what is no token, or can never fit.
        """
        if request.ended or request in self.waiting + self.running:
            raise ValueError("this request was submitted before; make a new one")
        tokens = range(self.target.model.config.vocab_size)  # a wrong one would end all others, too
        if strange := [token for token in request.prompt if token not in tokens]:
            raise ValueError(f"the prompt holds {strange[0]}; tokens are 0 to {len(tokens) - 1}")
        rows = min(self.window, len(request.prompt) + request.max_new_tokens + request.k)
        pages = self.pages.missing([], rows)
        if pages > self.pages.count:
            raise ValueError(f"the request may need {pages} pages of {self.pages.size} rows, and "
                             f"the engine has {self.pages.count}")
        if len(request.prompt) >= self.window:
            request.start = len(request.prompt) - self.window // 2
        self.waiting.append(request)

    def cancel(self, request):
        """End a request, between two rounds; its pages come back."""
        request.ended = request.ended or "cancelled"
        self.leave(request)

    def leave(self, request):
        self.pages.release(request.table)
        for queue in (self.waiting, self.running):
            if request in queue:
                queue.remove(request)

    def most_drafts(self, request):
        if self.drafter is None or request.text == request.prompt:
            return 0  # a prompt is read without drafts, as in chapter 01
        return min(request.k, self.window - request.length - len(request.unread))

    def admit(self):
        """Let in who waits, in order, as long as there are pages for what must be read first."""
        while self.waiting:
            request = self.waiting[0]
            rows = min(self.window, len(request.unread) + request.k)
            if self.pages.missing([], rows) > len(self.pages.free):
                return
            self.running.append(self.waiting.pop(0))

    def make_room(self, ks):
        """Pages for the round's rows. If none is left, whoever came last goes back to the queue.

        Its pages are freed; its text stays, and will be read again.
        """
        for request, k in zip(list(self.running), ks, strict=True):
            rows = request.length + len(request.unread) + k
            while request in self.running and not self.pages.grow(request.table, rows):
                last = self.running.pop()
                self.pages.release(last.table)
                last.forget()
                self.waiting.insert(0, last)

    def round(self):
        """One forward of the target for all -> a list of (request, its new tokens)."""
        self.admit()
        for request in self.running:
            request.slide(self.window)
        most = [self.most_drafts(request) for request in self.running]
        # It may look at who is here and at past rounds, not at this round's draws: what is judged
        # must have been drawn from q, whatever was drawn.
        ks = self.share(self.running, most) if self.share else most
        self.make_room(ks)
        if any(ks):
            self.drafter.draft(self.running, ks[:len(self.running)])  # the last ones may be gone
        logits = self.target.read([(request.table, request.length, request.unread + request.drafted)
                                   for request in self.running])
        streamed = [(request, request.commit(rows, self.accept))
                    for request, rows in zip(self.running, logits, strict=True)]
        for request, _ in streamed:
            if request.ended:
                self.leave(request)
        return streamed
