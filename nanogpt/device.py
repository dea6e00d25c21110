"""Which device, which precision: asked of the machine, not assumed."""

import contextlib
import functools
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel


def pick_device(name="auto"):
    """'auto' means cuda, else mps, else cpu. Raises ValueError if the device is not there."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(),
             "cpu": True}
    usable = [kind for kind, ok in there.items() if ok]
    if name not in ("auto", *usable):
        raise ValueError(f"device '{name}' is not available here; this machine has: "
                         f"{', '.join(usable)}")
    return torch.device(usable[0] if name == "auto" else name)


def synchronize(device):
    """Wait until the device has finished; without this a GPU's clock readings mean nothing."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def ready_to_decode():
    """Settings of torch for decoding on a CUDA device."""
    # A text grows, and cuDNN plans attention anew for each length that it meets: 25 ms a forward.
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.set_num_threads(1)  # what is left for the CPU is so small that threads only wait


def device_name(device):
    """A name to print under every table of times."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "cpu":
        threads = torch.get_num_threads()
        return f"CPU, {threads} thread{'s' * (threads > 1)}"
    return device.type


@functools.cache
def bf16_is_faster(device):
    """True where bfloat16 matrix products beat float32.

    CUDA: asked of the driver. CPU: measured. MPS: float32 is kept.
    """
    if device.type != "cpu":
        return device.type == "cuda" and torch.cuda.is_bf16_supported()

    def seconds(a, b):
        start = time.perf_counter()
        a @ b
        return time.perf_counter() - start

    pairs = {dtype: (torch.ones(128, 512, dtype=dtype), torch.ones(512, 512, dtype=dtype))
             for dtype in (torch.bfloat16, torch.float32)}
    best = dict.fromkeys(pairs, float("inf"))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # on a busy machine two would wait for each other
    for lap in range(100):
        # In turn and often: on a busy machine most laps are disturbed, the best ones are not.
        best = {dtype: min(best[dtype], seconds(*pair)) for dtype, pair in pairs.items()}
        # A CPU without the instructions emulates them, up to 60 times slower: soon beyond doubt.
        if lap >= 4 and best[torch.bfloat16] > 10 * best[torch.float32]:
            break
    torch.set_num_threads(threads)
    return best[torch.bfloat16] < 0.8 * best[torch.float32]


@contextlib.contextmanager
def autocast(device):
    """Mixed precision for training: bfloat16 matrix products where they are faster.

    On a CPU attention becomes such products too: the fused kernel saves memory on long contexts,
    at 256 tokens it costs a fifth of a training step more than the products by themselves.
    """
    fast = bf16_is_faster(device)
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.autocast(device.type, dtype=torch.bfloat16, enabled=fast))
        if fast and device.type == "cpu":
            torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)  # the CPU obeys it too
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        yield
