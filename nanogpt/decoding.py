"""Plain autoregressive decoding, the baseline of every table, and what all decoders share.

A decoder is a generator of `Step`s, one a target forward: plain decoding yields one token a
step, speculative decoding one or more. `collect` runs any of them to a length or a stop string.
"""

import time
from dataclasses import dataclass, field

import torch

from nanogpt.device import synchronize


@dataclass
class Step:
    """What one target forward brought.

    tokens: the emitted tokens: accepted draft tokens first, the target's own token last.
    drafted: how many draft tokens were verified.
    seconds: wall time by verb: draft, verify (the forward and the sampler), accept, commit.
    detail: the chapter's own record of the round, ChainRound (01) or TreeRound (02).
    """

    tokens: list
    drafted: int = 0
    seconds: dict = field(default_factory=dict)
    detail: object = None


class Stopwatch:
    """Splits a step's wall time into verbs: `lap('draft')` books the time since the last lap.

    sync=True waits for the device at every lap: right for the shares of a GPU step, but it slows
    the whole step down, so totals are measured without.
    """

    def __init__(self, device, sync=False):
        self.device, self.sync = device, sync
        self.start()

    def start(self):
        """Begin a new step: every verb at zero."""
        self.seconds = {}
        self.last = time.perf_counter()

    def lap(self, verb):
        """Book the time since the last lap, or the start, to this verb."""
        if self.sync:
            synchronize(self.device)
        now = time.perf_counter()
        self.seconds[verb] = self.seconds.get(verb, 0.0) + now - self.last
        self.last = now


class Context:
    """The target, its cache and the text so far: the state that every decoding loop shares.

    Window rule. The cache holds at most block_size rows. When it is full, the context starts
    anew from the last block_size // 2 tokens of the text. What the target sees before a token
    thus depends on the text alone, not on who drafted it: speculative and plain decoding slide
    at the same places and stay equal. Speculation keeps to it by never drafting deeper than
    `room` below the root.
    """

    def __init__(self, target, prompt):
        """prompt: a list of token ids. Raises ValueError if it is empty."""
        if not prompt:
            raise ValueError("the prompt is empty; it must hold at least one token")
        self.target = target
        self.cache = target.new_cache()
        self.text = list(prompt)  # every token that was read, or was read before a slide

    def prefill(self):
        """Read the text in one forward.

        -> the tokens that the window holds, logits (V,) after the last, hidden (see GPT).
        """
        size = self.target.block_size
        window = self.text if len(self.text) < size else self.text[-(size // 2):]
        self.cache.length = 0
        logits, hidden = self.target(tokens_on(self.target, window), cache=self.cache)
        self.cache.commit(list(range(len(window))))
        return window, logits[0, -1], hidden

    def begin(self, drafter):
        """Prefill, and let the drafter begin anew on what was read -> logits (V,) after it."""
        tokens, logits, hidden = self.prefill()
        drafter.reset()
        drafter.observe(tokens, hidden, list(range(len(tokens))))
        return logits

    @property
    def full(self):
        return self.cache.length == self.target.block_size

    @property
    def room(self):
        """How many tokens may follow the root (the next row) inside the window."""
        return self.target.block_size - 1 - self.cache.length

    def commit(self, rows, tokens):
        """Keep these rows of the last forward; tokens are what they read."""
        self.cache.commit(rows)
        self.text += tokens


def tokens_on(model, tokens):
    """A list of token ids -> (1, N) on the model's device."""
    return torch.tensor([tokens], device=model.device)


@torch.inference_mode()
def plain_decode(target, prompt, sampler, dice, sync=False):
    """Plain decoding: one forward, one token, for ever. Yields a Step per forward.

    The first step is the prefill. A step is a round of speculation without drafts, with its time
    booked under the same verbs.
    """
    context = Context(target, prompt)
    watch = Stopwatch(target.device, sync)
    _, logits, _ = context.prefill()
    root = dice.draw(sampler(logits))  # chosen, but not yet read by the target
    yield Step([root], seconds=watch.seconds)

    while True:
        watch.start()
        if context.full:
            context.prefill()
        logits, _ = target(tokens_on(target, [root]), cache=context.cache)  # (1, 1, V)
        probs = sampler(logits[0, -1]).cpu()  # (V,)
        watch.lap("verify")
        token = dice.draw(probs)
        watch.lap("accept")
        context.commit([0], [root])
        watch.lap("commit")
        yield Step([token], seconds=watch.seconds)
        root = token


@dataclass
class Generation:
    """A finished text. tau counts the tokens per target forward, the prefill left out."""

    tokens: list
    steps: list  # of Step, the prefill not among them
    seconds: float  # wall time of the steps, the prefill left out

    @property
    def tau(self):
        """Tokens emitted per target forward, the target's own (bonus) token included."""
        return (len(self.tokens) - 1) / max(len(self.steps), 1)

    @property
    def tokens_per_second(self):
        return (len(self.tokens) - 1) / max(self.seconds, 1e-12)

    @property
    def accepted(self):
        """Accepted draft tokens of each step, the target's own token not counted."""
        return [len(step.tokens) - 1 for step in self.steps]


def collect(steps, max_new_tokens, stop=None, decode=None, on_tokens=None):
    """Run a decoder until max_new_tokens or until the text holds the stop string.

    The end may fall inside an accepted block: the block is cut there, and the tokens cut off
    count nowhere. stop: a string; decode: tokens -> text, needed with stop.
    on_tokens(tokens): called with each step's tokens, to stream the text.
    -> Generation. Raises ValueError if max_new_tokens < 1 or stop is empty.
    """
    run = collecting(steps, max_new_tokens, stop, decode, on_tokens)
    while True:
        try:
            next(run)
        except StopIteration as end:
            return end.value


def collecting(steps, max_new_tokens, stop=None, decode=None, on_tokens=None):
    """`collect` with a pause after every step, which counts nowhere in its seconds.

    Yields the number of tokens so far, returns the Generation: so that several decoders can take
    turns.
    """
    if max_new_tokens < 1:
        raise ValueError(f"max_new_tokens is {max_new_tokens}; it must be at least 1")
    if stop == "":
        raise ValueError("stop is empty; it must hold at least one character")
    if stop is not None and decode is None:
        raise ValueError("stop needs decode, which turns tokens into text")
    tokens, kept, start = [], [], None
    for step in steps:
        emitted = step.tokens[:max_new_tokens - len(tokens)]
        if stop is not None:
            emitted = cut_after(tokens, emitted, stop, decode)
        finished = len(emitted) < len(step.tokens)
        step.tokens = emitted
        tokens += emitted
        if on_tokens is not None:
            on_tokens(emitted)
        if start is None:
            start = time.perf_counter()  # the prefill ends here
        else:
            kept.append(step)
        if finished or len(tokens) == max_new_tokens or (stop and stop in decode(tokens)):
            break
        paused = time.perf_counter()
        yield len(tokens)
        start += time.perf_counter() - paused
    return Generation(tokens, kept, time.perf_counter() - start)


def cut_after(tokens, emitted, stop, decode):
    """The part of `emitted` up to the first token that completes the stop string."""
    for n in range(1, len(emitted)):
        if stop in decode(tokens + emitted[:n]):
            return emitted[:n]
    return emitted
