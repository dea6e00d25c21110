"""Plain decoding with several tokens a launch: the fair baseline of every row that is one launch.

A speculative round draws its drafts on the device. So here the device draws, too, and Python hears
of `tokens` tokens at once; what is left to compare is the work.
"""

from dataclasses import dataclass

import torch

from nanogpt.decoding import Context, Step
from nanogpt.gpu.rounds import Drafts, Grower, Reader, Round
from nanogpt.model import GPT
from nanogpt.sampling import Sampler


@dataclass(frozen=True)
class PlainGrower(Grower):
    """So many forwards of one row each, a draw after each of them; nothing is to be verified."""

    target: GPT
    rows: int
    sampler: Sampler

    read, depth = Reader(), 0
    draws = property(lambda self: self.rows)

    def grow(self, now):
        tokens, alive = [now.tokens[1:]], [now.length > 0]
        for i in range(self.rows):
            seen = torch.arange(i, -1, -1, device=now.kv.device)[None]  # row i, and those before it
            logits, _ = now.forward(self.target, now.kv, tokens[i], seen, seen[:, 0])
            # Row i reads what the window holds while the rows before it leave room.
            token, drawn = now.draw(self.sampler(logits), alive[i], i - 1, replace=True)
            tokens.append(token[0])
            alive.append(drawn[0])
        tokens = torch.cat(tokens[1:])
        return Drafts(tokens, torch.zeros_like(tokens), None, torch.cat(alive[1:]))

    def drafts(self, tokens, parents, draft_probs):
        return tokens.tolist()


@torch.inference_mode()
def plain_in_launches(target, prompt, sampler, dice, tokens=8, played=False):
    """plain_decode, with the same texts. Yields a Step a token, `tokens` of them at a time.

    played: see Round.
    """
    ahead = Round(target, PlainGrower(target, tokens, sampler), dice, played)
    context = Context(ahead, prompt)
    root = dice.draw(sampler(context.begin(ahead)))
    yield Step([root])

    while True:
        if context.full:
            context.begin(ahead)
        found = ahead.propose(root, context.room)  # fewer at the window's end
        for token in found:
            context.cache.commit([0])
            context.text.append(root)
            yield Step([token], form="one launch")
            root = token
