"""Plain autoregressive decoding, the baseline of every table, and what all decoders share.

A decoder is a generator of `Step`s, one a target forward: plain decoding yields one token a
step, speculative decoding one or more. `collect` runs any of them to a length.
"""

import time
from dataclasses import dataclass, field

import torch

from nanogpt.model import GPT


@dataclass
class Step:
    """What one target forward brought.

    tokens: the emitted tokens: accepted draft tokens first, the target's own token last.
    drafted: how many draft tokens were verified.
    seconds: wall time by verb, if somebody asked for it: see `timed`.
    detail: the chapter's own record of the round, ChainRound (01) or TreeRound (02).
    form: "eager", or "one launch" where a GPU ran the whole round at once (gpu/rounds.py).
    """

    tokens: list
    drafted: int = 0
    seconds: dict = field(default_factory=dict)
    detail: object = None
    form: str = "eager"


class Context:
    """The target, its cache and the text so far: the state that every decoding loop shares.

    Window rule: the cache holds at most block_size rows. When it is full, the context starts anew
    from the last block_size // 2 tokens of the text.
    """

    def __init__(self, target: GPT, prompt):
        """prompt: a list of token ids. Raises ValueError if it is empty."""
        if not prompt:
            raise ValueError("the prompt is empty; it must hold at least one token")
        self.target = target
        self.cache = target.new_cache()
        # What the target sees before a token depends on this text alone, not on who drafted it:
        # speculative and plain decoding slide at the same places and stay equal.
        self.text = list(prompt)  # every token that was read, or was read before a slide

    def prefill(self):
        """Read the text in one forward.

        -> the tokens that the window holds, logits (V,) after the last, hidden (see GPT).
        """
        size = self.target.block_size
        # `<`, not `<=`: a full window would leave no row for the root.
        window = self.text if len(self.text) < size else self.text[-(size // 2):]
        self.cache.length = 0  # a slide moves every position, so no cached row stays right
        logits, hidden = self.target(torch.tensor([window]), cache=self.cache)
        self.cache.commit(list(range(len(window))))
        return window, logits[0, -1], hidden

    def begin(self, drafter):
        """Prefill, and let the drafter begin anew on what was read -> logits (V,) after it."""
        tokens, logits, hidden = self.prefill()
        drafter.reset()  # a drafter with a cache of its own slides as the target does
        drafter.observe(tokens, hidden, list(range(len(tokens))))
        return logits

    @property
    def full(self):
        return self.cache.length == self.target.block_size

    @property
    def room(self):
        """How deep drafts may lie below the root, the next row, inside the window."""
        return self.target.block_size - 1 - self.cache.length  # the root takes one row

    def verify(self, tokens, sampler, positions=None, mask=None):
        """One forward over new rows, none of them committed.

        tokens: a list of N; positions, mask: see GPT.forward -> target_probs (N, V) on the CPU: row
        i is the target's distribution of the token after row i; hidden: see GPT.forward.
        """
        logits, hidden = self.target(torch.tensor([tokens]), positions, mask, self.cache)
        return sampler(logits[0]).cpu(), hidden

    def commit(self, rows, tokens):
        """Keep these rows of the last forward; tokens are what they read."""
        self.cache.commit(rows)
        self.text += tokens  # the cache holds keys and values; a slide reads the tokens again


@torch.inference_mode()
def plain_decode(target, prompt, sampler, dice):
    """Plain decoding: one forward, one token, without end. Yields a Step per forward.

    The first step is the prefill. A step is a round of speculation without drafts.
    """
    context = Context(target, prompt)
    _, logits, _ = context.prefill()
    root = dice.draw(sampler(logits))  # chosen, but not yet read by the target
    yield Step([root])

    while True:  # whoever asks for Steps decides when to stop
        if context.full:
            context.prefill()  # the root is drawn already, so its logits go unused
        probs, _ = context.verify([root], sampler)  # (1, V)
        token = dice.draw(probs[0])  # the root of the next step: nobody has read it yet
        context.commit([0], [root])  # the row that was just read; nothing to reject
        yield Step([token])
        root = token


def timed(steps):
    """The same Steps, with the wall time of their verbs in `seconds`.

    No loop knows of it: while a step is made, the two methods of Context that every round calls
    are wrapped, and what lies before, between and behind them are the verbs. draft: up to the
    target's forward; verify: the forward and the sampler; accept; commit, the drafter included.
    """
    own, marks = (Context.verify, Context.commit), []

    def marking(method):
        def call(*args):
            marks.append(time.perf_counter())
            result = method(*args)
            marks.append(time.perf_counter())
            return result

        return call

    wrapped = [marking(method) for method in own]
    while True:
        start = time.perf_counter()
        Context.verify, Context.commit = wrapped
        try:
            step = next(steps, None)
        finally:
            Context.verify, Context.commit = own
        if step is None:
            return
        if marks:  # the first step is the prefill, and has no verbs
            verify, accept, commit, _ = marks
            step.seconds = {"draft": verify - start, "verify": accept - verify,
                            "accept": commit - accept, "commit": time.perf_counter() - commit}
            marks.clear()
        yield step


@dataclass
class Generation:
    """A finished text. tau counts the tokens per target forward, the prefill left out."""

    tokens: list
    steps: list  # of Step, the prefill not among them
    seconds: float  # wall time of the steps, the prefill and the turns of others left out

    @property
    def tau(self):
        """Tokens emitted per target forward, the target's own (bonus) token included."""
        return (len(self.tokens) - 1) / max(len(self.steps), 1)  # token 0 is the prefill's

    @property
    def accepted(self):
        """Accepted draft tokens of each step, the target's own token not counted."""
        return [len(step.tokens) - 1 for step in self.steps]  # each step ends on the target's own


def collect(steps, max_new_tokens, on_tokens=None):
    """Run a decoder until max_new_tokens.

    on_tokens(tokens): called with each step's tokens, to stream the text.
    -> Generation. Raises ValueError if max_new_tokens < 1.
    """
    run = collecting(steps, max_new_tokens, on_tokens)
    while True:
        try:
            next(run)
        except StopIteration as end:
            return end.value


def collecting(steps, max_new_tokens, on_tokens=None):
    """`collect` with a pause after every step, so that several decoders can take turns.

    Yields the number of tokens so far, returns the Generation.
    """
    if max_new_tokens < 1:
        raise ValueError(f"max_new_tokens is {max_new_tokens}; it must be at least 1")
    tokens, kept, start = [], [], None
    for step in steps:
        # The end may fall inside an accepted block: cut there, what is cut off counts nowhere.
        step.tokens = step.tokens[:max_new_tokens - len(tokens)]
        tokens += step.tokens
        if on_tokens is not None:
            on_tokens(step.tokens)
        if start is None:
            start = time.perf_counter()  # the prefill ends here, for every method alike
        else:
            kept.append(step)
        if len(tokens) == max_new_tokens:
            break
        paused = time.perf_counter()
        yield len(tokens)  # here the others decode, on their own time
        start += time.perf_counter() - paused
    return Generation(tokens, kept, time.perf_counter() - start)
