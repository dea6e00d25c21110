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

    sync: wait for the device at every lap, for the shares of a step on a GPU.
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
        if self.sync:  # slows the whole step down, so totals are measured without
            synchronize(self.device)
        now = time.perf_counter()
        self.seconds[verb] = self.seconds.get(verb, 0.0) + now - self.last
        self.last = now  # nothing is booked twice: the next lap begins here


class Context:
    """The target, its cache and the text so far: the state that every decoding loop shares.

    Window rule: the cache holds at most block_size rows. When it is full, the context starts anew
    from the last block_size // 2 tokens of the text.
    """

    def __init__(self, target, prompt):
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
        logits, hidden = self.target(tokens_on(self.target, window), cache=self.cache)
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

    def commit(self, rows, tokens):
        """Keep these rows of the last forward; tokens are what they read."""
        self.cache.commit(rows)
        self.text += tokens  # the cache holds keys and values; a slide reads the tokens again


def tokens_on(model, tokens):
    """A list of token ids -> (1, N) on the model's device."""
    return torch.tensor([tokens], device=model.device)  # a batch of one


@torch.inference_mode()
def plain_decode(target, prompt, sampler, dice, sync=False):
    """Plain decoding: one forward, one token, without end. Yields a Step per forward.

    The first step is the prefill. A step is a round of speculation without drafts.
    """
    context = Context(target, prompt)
    watch = Stopwatch(target.device, sync)
    _, logits, _ = context.prefill()
    root = dice.draw(sampler(logits))  # chosen, but not yet read by the target
    yield Step([root], seconds=watch.seconds)

    while True:  # whoever asks for Steps decides when to stop
        watch.start()
        if context.full:
            context.prefill()  # the root is drawn already, so its logits go unused
        logits, _ = target(tokens_on(target, [root]), cache=context.cache)  # (1, 1, V)
        # A round books the same under the same verb, so that the two can be subtracted.
        probs = sampler(logits[0, -1]).cpu()  # (V,)
        watch.lap("verify")
        token = dice.draw(probs)  # the root of the next step: nobody has read it yet
        watch.lap("accept")
        context.commit([0], [root])  # the row that was just read; nothing to reject
        watch.lap("commit")
        yield Step([token], seconds=watch.seconds)
        root = token


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
    def tokens_per_second(self):
        return (len(self.tokens) - 1) / max(self.seconds, 1e-12)

    @property
    def accepted(self):
        """Accepted draft tokens of each step, the target's own token not counted."""
        return [len(step.tokens) - 1 for step in self.steps]  # each step ends on the target's own


def collect(steps, max_new_tokens, stop=None, decode=None, on_tokens=None):
    """Run a decoder until max_new_tokens or until the text holds the stop string.

    stop: a string; decode: tokens -> text, needed with stop.
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
    """`collect` with a pause after every step, so that several decoders can take turns.

    Yields the number of tokens so far, returns the Generation.
    """
    if max_new_tokens < 1:
        raise ValueError(f"max_new_tokens is {max_new_tokens}; it must be at least 1")
    if stop == "":
        raise ValueError("stop is empty; it must hold at least one character")
    if stop is not None and decode is None:
        raise ValueError("stop needs decode, which turns tokens into text")
    tokens, kept, start = [], [], None
    for step in steps:
        # The end may fall inside an accepted block: cut there, what is cut off counts nowhere.
        emitted = step.tokens[:max_new_tokens - len(tokens)]
        if stop is not None:
            emitted = cut_after(tokens, emitted, stop, decode)
        finished = len(emitted) < len(step.tokens)
        step.tokens = emitted
        tokens += emitted
        if on_tokens is not None:
            on_tokens(emitted)
        if start is None:
            start = time.perf_counter()  # the prefill ends here, for every method alike
        else:
            kept.append(step)
        # The whole text is searched: a stop string may begin in one step and end in another.
        if finished or len(tokens) == max_new_tokens or (stop and stop in decode(tokens)):
            break
        paused = time.perf_counter()
        yield len(tokens)  # here the others decode, on their own time
        start += time.perf_counter() - paused
    return Generation(tokens, kept, time.perf_counter() - start)


def cut_after(tokens, emitted, stop, decode):
    """The part of `emitted` up to the first token that completes the stop string."""
    for n in range(1, len(emitted)):  # the shortest part that holds it
        if stop in decode(tokens + emitted[:n]):
            return emitted[:n]
    return emitted
