"""Muon: momentum whose update is made orthogonal before it is applied.

For the matrices inside a network, where a gradient step is dominated by a few directions; after
orthogonalisation all directions move alike. torch.optim.Muon does the same, but always in
bfloat16, which a CPU without such instructions emulates 60 times slower than float32.

Source: Keller Jordan et al., "Muon: An optimizer for hidden layers in neural networks" (2024).
"""

import torch

from nanogpt.device import bf16_is_faster

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the quintic a x + b x^3 + c x^5


def orthogonalize(update, steps=5):
    """Newton-Schulz: (m, n) -> about U V^T of its SVD; singular values between 0.7 and 1.2.

    They come near 1 and no nearer: the coefficients are chosen for speed. A zero matrix stays zero.
    """
    a, b, c = COEFFICIENTS
    # Whatever multiplies faster here; five steps forgive the rounding of bfloat16.
    x = update.bfloat16() if bf16_is_faster(update.device) else update.float()
    wide = x.shape[0] <= x.shape[1]
    x = x if wide else x.T  # so that the Gram matrix below is the small one
    # The Frobenius norm is at least the largest singular value: all of them are now in [0, 1].
    x = x / x.norm().clamp(min=1e-7)
    if x.dtype == torch.bfloat16 or x.shape[0] == x.shape[1]:
        for _ in range(steps):
            gram = x @ x.T  # (m, m)
            x = a * x + (b * gram + c * gram @ gram) @ x  # the quintic, on every singular value
    else:
        # The same with products of small squares alone: X <- p X makes G = X X^T into p G p, and
        # all the p make one factor q. In bfloat16 the rounding of G would grow with every step.
        gram, q = x @ x.T, torch.eye(len(x), device=x.device)
        for _ in range(steps):
            p = a * torch.eye(len(x), device=x.device) + b * gram + c * gram @ gram
            q, gram = p @ q, p @ gram @ p
        x = q @ x
    return x if wide else x.T


class Muon(torch.optim.Optimizer):
    """Orthogonalised Nesterov momentum, for parameters that are matrices."""

    def __init__(self, parameters, lr, momentum=0.95):
        super().__init__(parameters, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure=None):
        """One update of every parameter that has a gradient."""
        for group in self.param_groups:
            momentum = group["momentum"]
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                if not state:  # the first step, or the parameter had no gradient before
                    state["momentum_buffer"] = torch.zeros_like(weight)  # torch's name for it
                average = state["momentum_buffer"].lerp_(weight.grad, 1 - momentum)
                # Nesterov: look ahead along the average that this gradient is already part of.
                update = orthogonalize(weight.grad.lerp(average, momentum))
                # A tall matrix gets a larger step, so that one rate serves all shapes.
                scale = max(1, weight.shape[0] / weight.shape[1]) ** 0.5
                weight.add_(update.to(weight.dtype), alpha=-group["lr"] * scale)
