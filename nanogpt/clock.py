"""The clock: medians of milliseconds, and the cost curve c(N).

    python -m nanogpt.clock --size baby

prints how long one target forward takes for N new rows. Speculative decoding lives on that
curve being flat: N drafted tokens are verified for little more than the price of one.
"""

import statistics
import time

import torch

from nanogpt import cli
from nanogpt.cli import print_table
from nanogpt.device import device_name, synchronize
from nanogpt.packing import PRECISIONS, for_decoding, precision_of
from nanogpt.sizes import SIZES
from nanogpt.train import get_gpt


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


def main(argv=None):
    p = cli.parser("Print c(N), the time of one target forward for N new rows.")
    p.add_argument("--size", choices=SIZES, default="baby", help="which model")
    p.add_argument("--cached", type=int, default=128, help="rows already in the cache")
    args = p.parse_args(argv)
    most = SIZES[args.size].block_size // 2
    if not 1 <= args.cached <= most:
        raise ValueError(f"cached is {args.cached}; it must be in [1, {most}], half the context")
    dataset, device = cli.setup(args)
    model = get_gpt(args.size, dataset, device, args.retrain)
    curves = {}
    for precision in PRECISIONS[1:]:
        try:
            curves[precision] = cost_curve(for_decoding(model, precision), cached=args.cached)
        except ValueError:
            continue  # this machine cannot decode in that precision
    chosen = precision_of(for_decoding(model))
    print(f"\nc(N) of the '{args.size}' target, milliseconds (and c(N) / c(1)), "
          f"{args.cached} rows cached, {device_name(device)}; decoding uses {chosen}")
    header = ["rows N"] + [f"{name}" for name in curves]
    rows = next(iter(curves.values()))
    print_table(header, [
        [n] + [f"{curve[n]:.2f} ({curve[n] / curve[1]:.2f})" for curve in curves.values()]
        for n in rows
    ])


if __name__ == "__main__":
    cli.run(main)
