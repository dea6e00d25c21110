"""Sampler: logits -> probabilities.  Dice: probabilities -> token, the only source of chance.

Whether decoding is greedy or random is decided here and nowhere else.
"""

from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class Sampler:
    """Temperature, then top-k, then top-p, as one map from logits to probabilities.

    temperature: 0 means greedy (one-hot of the argmax, the lowest index on a tie); else at least
        1e-6.
    top_k: keep the k most probable tokens (None: all; more than V: all).
    top_p: keep the smallest set of most probable tokens whose mass reaches top_p, in (0, 1].

    Example: probabilities (.4, .3, .2, .1). top_k 3 leaves (4/9, 3/9, 2/9, 0); with top_p .75
    beside it (4/7, 3/7, 0, 0), since .75 is asked of what top_k has left: 7/9 suffice.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0

    def __post_init__(self):
        # `not (...)` instead of the opposite comparison, so that NaN is refused too. Far below
        # 1e-6, logits / temperature would overflow float32.
        if not (self.temperature == 0 or 1e-6 <= self.temperature < float("inf")):
            raise ValueError(f"temperature is {self.temperature}; it must be 0 (greedy) or at "
                             "least 1e-06")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k is {self.top_k}; it must be at least 1")
        if not (0 < self.top_p <= 1):
            raise ValueError(f"top_p is {self.top_p}; it must be above 0 and at most 1")

    def __call__(self, logits):
        """logits (..., V) -> probs (..., V), summing to 1 over the last axis."""
        # Half precision is lifted, or the sum would not be 1; float64 stays, for the proofs.
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if self.temperature == 0:
            # One-hot: each coin min(1, p/q) of the chapters is then sure, so every lossless rule
            # becomes greedy acceptance by itself, without a second code path.
            best = logits.argmax(-1, keepdim=True)
            return torch.zeros_like(logits).scatter_(-1, best, 1.0)
        probs = torch.softmax(logits / self.temperature, -1)
        if self.top_k is None and self.top_p == 1:
            return probs
        # stable: a tie at a cut goes to the lower id, so the same tokens survive on every run.
        ranked, order = probs.sort(dim=-1, descending=True, stable=True)  # (..., V)
        keep = torch.ones_like(ranked, dtype=torch.bool)
        if self.top_k is not None:
            keep[..., self.top_k:] = False
        if self.top_p < 1:
            kept = ranked * keep
            kept = kept / kept.sum(-1, keepdim=True)  # top_p counts what top_k has left as 1
            # A token stays if the mass BEFORE it has not reached top_p: the first always stays.
            keep &= kept.cumsum(-1) - kept < self.top_p
        probs = torch.zeros_like(probs).scatter_(-1, order, ranked * keep)  # back to token order
        return probs / probs.sum(-1, keepdim=True)


class Dice:
    """Draws tokens. Every random choice of every chapter is a `draw`; a device that draws by itself
    takes the `shares` of as many draws.

    So a seed repeats a run, and a proof replaces the Dice by one that visits every outcome with
    its probability (nanogpt/exact/enumeration.py).
    """

    def __init__(self, seed=0):
        # On the CPU, wherever the model is: one seed gives one text on every device.
        self.generator = np.random.default_rng(seed)

    def draw(self, probs):
        """probs (V,), non-negative with a positive sum -> an index in 0..V-1, as int."""
        # The first token at which the sum of the probabilities passes a random share of the whole.
        # In numpy: a round draws several times, and torch.multinomial takes five times as long.
        sums = probs.cpu().numpy().cumsum(dtype=np.float64)  # (V,)
        # At most 1 - 2^-53 of the whole, and so below it, rounded, too.
        share = self.generator.random() * sums[-1]
        return int(sums.searchsorted(share, side="right"))  # right: not a token of probability 0

    def shares(self, n):
        """The random shares of the next n draws, (n,), for a device that draws by itself."""
        return self.generator.random(n)

    def give_back(self, n):
        """The last n shares were not used: the next draws get them."""
        self.generator.bit_generator.advance(-n % 2**128)

    def flip(self, p):
        """A coin: True with probability p in [0, 1]."""
        # A draw from two, so that whoever replaces `draw` has replaced all chance.
        return self.draw(torch.tensor([1 - p, p], dtype=torch.float64)) == 1
