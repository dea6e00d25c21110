"""Sampler: logits -> probabilities.  Dice: probabilities -> token, the only source of chance.

Whether decoding is greedy or random is decided here and nowhere else. At temperature 0 the
Sampler returns the one-hot of the argmax, and every lossless rule of the chapters then becomes
greedy acceptance by itself: p(x) is 0 or 1, so each coin has a certain outcome.
"""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Sampler:
    """Temperature, then top-k, then top-p, as one map from logits to probabilities.

    temperature: 0 means greedy (one-hot of the argmax, the lowest index on a tie); else at least
        1e-6, for float32 knows no smaller one.
    top_k: keep the k most probable tokens (None: all; more than V: all).
    top_p: keep the smallest set of most probable tokens whose mass reaches top_p, in (0, 1].

    Ties at a cut are broken by token id, so exactly the same tokens survive on every run.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0

    def __post_init__(self):
        # `not (...)` instead of the opposite comparison, so that NaN is refused too.
        if not (self.temperature == 0 or 1e-6 <= self.temperature < float("inf")):
            raise ValueError(f"temperature is {self.temperature}; it must be 0 (greedy) or at "
                             "least 1e-06")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k is {self.top_k}; it must be at least 1")
        if not (0 < self.top_p <= 1):
            raise ValueError(f"top_p is {self.top_p}; it must be above 0 and at most 1")

    def __call__(self, logits):
        """logits (..., V) -> probs (..., V), summing to 1 over the last axis.

        float64 stays float64; anything narrower is lifted to float32 first.
        """
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if self.temperature == 0:
            best = logits.argmax(-1, keepdim=True)
            return torch.zeros_like(logits).scatter_(-1, best, 1.0)
        probs = torch.softmax(logits / self.temperature, -1)
        if self.top_k is None and self.top_p == 1:
            return probs
        ranked, order = probs.sort(dim=-1, descending=True, stable=True)  # (..., V)
        keep = torch.ones_like(ranked, dtype=torch.bool)
        if self.top_k is not None:
            keep[..., self.top_k:] = False
        if self.top_p < 1:
            kept = ranked * keep
            kept = kept / kept.sum(-1, keepdim=True)
            # A token stays if the mass BEFORE it has not reached top_p: the first always stays.
            keep &= kept.cumsum(-1) - kept < self.top_p
        probs = torch.zeros_like(probs).scatter_(-1, order, ranked * keep)
        return probs / probs.sum(-1, keepdim=True)


class Dice:
    """Draws tokens. Every random choice of every chapter goes through `draw`.

    That makes runs repeatable (one seed), and it makes proofs possible: the tests replace the
    Dice by one that visits every outcome and knows its probability (tests/exact.py).
    """

    def __init__(self, seed=0):
        self.generator = torch.Generator().manual_seed(seed)

    def draw(self, probs):
        """probs (V,), non-negative with a positive sum -> an index in 0..V-1, as int."""
        return int(torch.multinomial(probs.cpu(), 1, generator=self.generator))

    def flip(self, p):
        """A coin: True with probability p in [0, 1]."""
        return self.draw(torch.tensor([1 - p, p], dtype=torch.float64)) == 1
