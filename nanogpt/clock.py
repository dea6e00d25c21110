"""The clock: medians of milliseconds, and the cost curve c(N).

How long does one target forward take for N new rows? Speculative decoding lives on that curve
being flat: N drafted tokens are verified for little more than the price of one.
"""

import statistics
import time

import torch

from nanogpt.device import synchronize


def median_ms(call, device, repeats=30, warmup=5, before=None):
    """Median wall time of `call()` in milliseconds, the device synchronised around each call.

    before(): called ahead of every call, untimed; it leaves the caches as they will be found.
    """
    laps = []
    for i in range(warmup + repeats):
        if before is not None:
            before()
        synchronize(device)
        start = time.perf_counter()
        call()
        synchronize(device)
        if i >= warmup:
            laps.append(time.perf_counter() - start)
    return 1e3 * statistics.median(laps)


@torch.inference_mode()
def cost_curve(target, rows=(1, 2, 4, 8, 16, 32, 64, 128), cached=128, repeats=30):
    """c(N): milliseconds of one forward of N new rows on a cache of `cached` rows.

    Sizes are measured in turn, round after round, so a slow moment hits all of them alike.
    -> {N: median milliseconds}; row counts that do not fit into the window are left out.
    """
    cached = min(cached, target.block_size // 2)
    rows = [n for n in rows if cached + n <= target.block_size]
    cache = target.new_cache()
    target(torch.zeros(1, cached, dtype=torch.long, device=target.device), cache=cache)
    cache.commit(list(range(cached)))
    laps = {n: [] for n in rows}
    for _ in range(repeats):
        for n in rows:
            tokens = torch.zeros(1, n, dtype=torch.long, device=target.device)
            laps[n].append(median_ms(lambda t=tokens: target(t, cache=cache), target.device,
                                     repeats=1, warmup=1))
    return {n: statistics.median(values) for n, values in laps.items()}


def interpolate(curve, n):
    """c(n) for any n, by linear interpolation in the measured {N: ms}.

    Below the smallest N its value stays; above the largest the last slope goes on.
    """
    sizes = sorted(curve)
    if n <= sizes[0]:
        return curve[sizes[0]]
    for low, high in zip(sizes, sizes[1:], strict=False):
        if n <= high or high == sizes[-1]:
            weight = (n - low) / (high - low)
            return curve[low] + weight * (curve[high] - curve[low])
    return curve[sizes[0]]
