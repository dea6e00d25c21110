"""CUDA graphs: a forward of a few rows as one launch instead of a hundred.

A small model's forward is about a hundred kernels. A GPU runs them in a fraction of the time that
Python needs to start them one by one. A graph records them once, and `replay` starts them all.
What it recorded is fixed, addresses and shapes alike. So, in a recorded forward,

    inputs      lie in pinned host memory, and copying them to the device is part of the graph;
                so is the way back of what the host wants to see, the logits
    cache rows  are written where an index says, and attention sees the whole cache through a mask
    N           is padded to the next of a few sizes; a padding row sees itself alone

Longer forwards (a prefill, training) run as they always do. On a CPU nothing is captured.
"""

import copy
import weakref

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from nanogpt.device import ready_to_decode
from nanogpt.model import KVCache

ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)  # N is padded to one of these; more stay eager
CAUSAL = np.tri(ROWS[-1], dtype=bool)


class Graph:
    """`run(**inputs)`, recorded for inputs of one shape.

    run -> {name: tensor} that the host wants, and a list of tensors that stay on the device.
    inputs: {name: tensor on the CPU}, filled anew before each replay through `put` (numpy); their
    first values must harm nothing. kv: the storage on the device that run works on; here only its
    device and precision are asked.
    """

    def __init__(self, run, inputs, kv):
        # All inputs are one piece of memory: a copy costs as much as a kernel, whatever its size.
        sizes = [-(-x.nbytes // 16) * 16 for x in inputs.values()]
        pinned = torch.empty(sum(sizes), dtype=torch.uint8, pin_memory=True)
        twin = torch.empty_like(pinned, device=kv.device)

        def views(memory):
            return {name: part[:x.nbytes].view(x.dtype).view(x.shape)
                    for part, (name, x) in zip(memory.split(sizes), inputs.items(), strict=True)}

        for name, view in views(pinned).items():
            view.copy_(inputs[name])
        self.put = {name: view.numpy() for name, view in views(pinned).items()}
        self.alive = pinned, twin  # the graph knows their addresses and does not hold them

        def whole():
            twin.copy_(pinned, non_blocking=True)
            return run(**views(twin))

        # In float32 the fused attention kernel takes 60 us for one row, plain products take 20.
        # In bfloat16 cuDNN's is the fastest; it plans for each shape anew, so only graphs have it.
        kernels = [SDPBackend.MATH] if kv.dtype == torch.float32 else [
            SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
        with sdpa_kernel(kernels):
            stream = torch.cuda.Stream()  # recording demands a stream of its own, warmed up
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                whole()
                wanted, _ = whole()
            torch.cuda.current_stream().wait_stream(stream)
            self.here = {name: torch.empty_like(x, device="cpu").pin_memory()
                         for name, x in wanted.items()}
            self.graph, self.stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
            with torch.cuda.graph(self.graph):
                wanted, self.there = whole()
                for name, x in wanted.items():
                    self.here[name].copy_(x, non_blocking=True)

    def replay(self):
        """Run it on what the inputs hold now, and wait -> what the host wanted, now on the CPU;
        what stayed on the device. The next replay overwrites both."""
        self.graph.replay()
        self.stream.synchronize()  # the one wait of a forward
        return self.here, self.there


class Played:
    """A Graph without a recording: a replay runs the function once more, on the same inputs.

    It is what tests and proofs run, on a CPU.
    """

    def __init__(self, run, inputs, kv):
        self.put = {name: x.numpy() for name, x in inputs.items()}
        self.run = lambda: run(**{name: x.to(kv.device) for name, x in inputs.items()})
        wanted, self.there = self.run()  # as recording does
        self.here = {name: x.cpu().clone() for name, x in wanted.items()}

    def replay(self):
        """As a Graph's; it overwrites in the same way."""
        wanted, there = self.run()
        for old, new in zip([*self.here.values(), *self.there], [*wanted.values(), *there],
                            strict=True):
            old.copy_(new)
        return self.here, self.there


def record(run, inputs, kv):
    """-> a Graph, or where kv lies on no CUDA device a Played one."""
    return (Graph if kv.device.type == "cuda" else Played)(run, inputs, kv)


class Storage:
    """A tensor that recordings work on: it keeps its address, and is lent to one owner at a time.

    Several decoders take turns on one recording, each with a cache of its own.
    """

    def __init__(self, like):
        with torch.inference_mode(False):  # so that it may be written to outside of it as well
            self.tensor = torch.zeros_like(like)
        self.borrower = lambda: None

    def lend(self, owner, name="kv"):
        """Make it what owner.name is; what the borrower before has in it is copied out."""
        mine = getattr(owner, name)
        if mine is self.tensor:
            return
        before = self.borrower()
        if before is not None and getattr(before, name) is self.tensor:
            setattr(before, name, self.tensor.clone())
        rows = min(self.tensor.shape[-2], mine.shape[-2])  # a huge tree has longer caches
        self.tensor[..., :rows, :] = mine[..., :rows, :]
        setattr(owner, name, self.tensor)
        self.borrower = weakref.ref(owner)


class IndexedCache(KVCache):
    """A KVCache for recording: new rows go where `rows` (N,) says, attention sees all rows."""

    def __init__(self, kv, rows):
        self.kv, self.rows = kv, rows

    def write(self, layer, new):
        self.kv[layer].index_copy_(-2, self.rows, new)
        return self.kv[layer]


def forward_at(model, kv, tokens, positions, rows, mask):
    """GPT.forward for a recording: new rows at any place of the cache storage kv.

    tokens, positions, rows (N,); mask (N, rows of kv), bool: what each sees of all that is stored.
    -> logits (1, N, V) and hidden, see GPT.forward.
    """
    bias = torch.zeros(mask.shape, dtype=kv.dtype, device=kv.device)
    bias = bias.masked_fill_(~mask, -torch.inf)
    return model.layers(tokens[None], model.cos[positions], model.sin[positions], bias,
                        IndexedCache(kv, rows))


class CapturedGPT:
    """GPT.forward, captured for up to ROWS[-1] rows of one sequence behind a cache.

    The logits come to the CPU, where the sampler and the dice work on them. `hidden` is overwritten
    by the next forward of as many rows.
    """

    def __init__(self, model):
        self.model, self.eager = model, type(model).forward.__get__(model)
        self.graphs, self.storage = {}, None  # {rows: Graph}

    def __deepcopy__(self, memo):
        return type(self)(copy.deepcopy(self.model, memo))  # a copy records graphs of its own

    def __call__(self, tokens, positions=None, mask=None, cache=None):
        N = tokens.shape[1]
        size = next((size for size in ROWS if size >= N), None)
        if (cache is None or len(tokens) > 1 or size is None
                or cache.length + size > cache.kv.shape[-2]):  # no room for the padding
            return self.eager(tokens, positions, mask, cache)
        past = cache.length
        if positions is None:
            self.model.check_window(past + N)
            positions = torch.arange(past, past + N)
        mask = CAUSAL[:N, :N] if mask is None else mask.cpu()
        if self.storage is None:
            self.storage = Storage(cache.kv)
        self.storage.lend(cache)
        if size not in self.graphs:
            with torch.inference_mode():
                self.graphs[size] = self.recorded(size)
        put = self.graphs[size].put
        put["tokens"][:N], put["positions"][:N] = tokens[0].cpu(), positions.cpu()
        put["rows"][:] = range(past, past + size)
        put["mask"][:] = False
        put["mask"][:N, :past + N - mask.shape[1]] = True  # older rows are visible to all
        put["mask"][:N, past + N - mask.shape[1]:past + N] = mask
        pad = range(N, size)  # a row that sees nothing would be nan, and stay in the cache
        put["mask"][pad, range(past + N, past + size)] = True
        found, hidden = self.graphs[size].replay()
        return found["logits"][:, :N].clone(), [x[:, :N] for x in hidden]

    def recorded(self, size):
        """-> the Graph of `size` rows."""
        model, kv = self.model, self.storage.tensor

        def run(tokens, positions, rows, mask):
            logits, hidden = forward_at(model, kv, tokens, positions, rows, mask)
            return {"logits": logits}, hidden

        spare = kv.shape[-2] - 1  # the first inputs write into the last row, a spare one
        return record(run, {"tokens": torch.zeros(size, dtype=torch.long),
                            "positions": torch.zeros(size, dtype=torch.long),
                            "rows": torch.full((size,), spare),
                            "mask": torch.ones(size, spare + 1, dtype=torch.bool)}, kv)


def capture(model):
    """Let a GPT's forward run through graphs, in place, if it lies on a CUDA device."""
    if model.device.type == "cuda":
        ready_to_decode()
        model.forward = CapturedGPT(model)  # an instance's own forward stands before its class's
    return model


def captured(model):
    """Whether a model's forward runs through graphs."""
    return isinstance(getattr(model, "forward", None), CapturedGPT)
