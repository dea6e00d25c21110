"""What a round costs a GPU, loop by loop: launches, waits, and its own milliseconds.

    python -m nanogpt.gpu.measure                 # every loop that has a form of one launch
    python -m nanogpt.gpu.measure --only "^05"    # some of them; see also --size, --temperature

Counted by torch's profiler. A launch is a call that gives the GPU work: a kernel, a copy, a graph;
a wait is one that stays until the GPU is done. What the GPU works is less than a round takes: the
rest is Python. c(N) is the time of one forward of N rows, up to 512 of them.
"""

from dataclasses import replace
from itertools import islice

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from nanogpt import cli
from nanogpt.bench import cost_curve, plains
from nanogpt.data import held_out_prompts
from nanogpt.device import device_name
from nanogpt.does_it_pay import contestants
from nanogpt.gpu.graphs import ROWS
from nanogpt.model import GPT
from nanogpt.packing import for_decoding, precision_of
from nanogpt.run import trained_cast
from nanogpt.sampling import Sampler

LAUNCHES = ("LaunchKernel", "GraphLaunch", "Memcpy", "Memset")  # parts of names, as CUDA has them
WAITS = ("StreamSynchronize", "DeviceSynchronize", "EventSynchronize")
WARM_UP, ROUNDS = 8, 32


def tally(events, rounds):
    """A profiler's events -> launches, waits and the GPU's milliseconds of a round."""
    def calls(parts):
        return sum(event.name.startswith("cu") and any(part in event.name for part in parts)
                   for event in events if event.device_type == DeviceType.CPU)

    busy = sum(event.time_range.elapsed_us() for event in events
               if event.device_type == DeviceType.CUDA)
    return calls(LAUNCHES) / rounds, calls(WAITS) / rounds, busy / rounds / 1e3


def count(steps):
    """-> the form of a decoder's Steps, tokens a step, launches, waits, GPU milliseconds."""
    list(islice(steps, WARM_UP))
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        found = list(islice(steps, ROUNDS))
        torch.cuda.synchronize()
    tokens = sum(len(step.tokens) for step in found) / ROUNDS
    return found[-1].form, tokens, *tally(seen.events(), ROUNDS)


def curve_to_512(target):
    """c(N) of a GPT of the target's size and precision, with a window that holds 512 new rows."""
    config = replace(target.config, block_size=1024)
    return cost_curve(for_decoding(GPT(config).to(target.device), precision_of(target)), ROWS)


def main(argv=None):
    p = cli.parser(__doc__.splitlines()[0])
    cli.target_flags(p)
    p.add_argument("--only", default="", help="a regular expression that a loop's name matches")
    p.add_argument("--temperature", type=float, default=0.0)
    args = p.parse_args(argv)
    sampler, entries = Sampler(args.temperature), contestants(args.only)
    dataset, device = cli.setup(args)
    if device.type != "cuda":
        raise ValueError(f"device is {device.type}; launches are counted on a CUDA device only")
    m, (prompt, *_) = trained_cast(args, dataset, device), held_out_prompts(dataset, 1)
    starts = plains(m.target, sampler) | {
        name: loop.start(m, budget, sampler) for name, (loop, budget, _) in entries.items()
        if loop.runs_at(args.temperature)}
    print(f"{device_name(device)}, {precision_of(m.target)}, temperature {args.temperature:g}; "
          f"a round, the mean of {ROUNDS}\n")
    rows = []
    for name, start in starts.items():
        form, *numbers = count(start(prompt, 0))
        rows.append([name, form, *(f"{number:.2f}" for number in numbers)])
    cli.print_table(["method", "form", "tokens", "launches", "waits", "GPU ms"], rows)
    print("\nc(N), ms: " + ", ".join(
        f"{n}: {ms:.3f}" for n, ms in curve_to_512(m.target).items()))


if __name__ == "__main__":
    cli.run(main)
