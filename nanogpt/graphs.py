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

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)  # N is padded to one of these; longer ones stay eager
CAUSAL = np.tri(SIZES[-1], dtype=bool)
CONTEXT = 8  # context rows of a captured drafter pass: what a round commits, padded


class Graph:
    """`run(**inputs)`, recorded for inputs of one shape.

    run -> what the host wants, a tuple of tensors, and what stays on the device.
    host: {name: tensor on the CPU}, filled anew before each replay through `self.host` (numpy);
    kept: {name: tensor on the device}, written there by the caller; kv: the storage on the device
    that run works on; here only its device and precision are asked.
    """

    def __init__(self, run, host, kept, kv):
        # All inputs are one piece of memory: a copy costs as much as a kernel, whatever its size.
        sizes = [-(-x.nbytes // 16) * 16 for x in host.values()]
        pinned = torch.empty(sum(sizes), dtype=torch.uint8, pin_memory=True)
        twin = torch.empty_like(pinned, device=kv.device)

        def views(memory):
            return {name: part[:x.nbytes].view(x.dtype).view(x.shape)
                    for part, (name, x) in zip(memory.split(sizes), host.items(), strict=True)}

        for name, view in views(pinned).items():
            view.copy_(host[name])
        self.host = {name: view.numpy() for name, view in views(pinned).items()}
        self.kept = kept
        self.alive = pinned, twin  # the graph knows their addresses and does not hold them

        def whole():
            twin.copy_(pinned, non_blocking=True)
            return run(**views(twin), **kept)

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
            self.here = [torch.empty_like(x, device="cpu").pin_memory() for x in wanted]
            self.graph, self.stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
            with torch.cuda.graph(self.graph):
                wanted, self.there = whole()
                for here, x in zip(self.here, wanted, strict=True):
                    here.copy_(x, non_blocking=True)

    def replay(self):
        """Run it on what the buffers hold now, and wait -> what the host wanted, now on the CPU;
        what stayed on the device. The next replay overwrites both."""
        self.graph.replay()
        self.stream.synchronize()  # the one wait of a forward
        return self.here, self.there


class IndexedCache:
    """A KVCache for recording: new rows go where `rows` (N,) says, attention sees all rows."""

    def __init__(self, kv, rows):
        self.kv, self.rows = kv, rows

    def write(self, layer, new):
        self.kv[layer].index_copy_(-2, self.rows, new)
        return self.kv[layer]


class Capture:
    """A model's forward with graphs in it, and the cache storage that they were recorded on.

    Several decoders take turns on one model, each with a KVCache; the storage is lent to whoever
    runs, and what the one before has in it is copied out.
    """

    def __init__(self, model):
        self.model, self.eager = model, type(model).forward.__get__(model)
        self.graphs, self.kv, self.borrower = {}, None, lambda: None

    def __deepcopy__(self, memo):
        return type(self)(copy.deepcopy(self.model, memo))  # a copy records graphs of its own

    def lend(self, cache):
        """Make the storage this cache's."""
        if self.kv is None:
            with torch.inference_mode(False):  # so that it may be written to outside of it as well
                self.kv = torch.zeros_like(cache.kv)
        if cache.kv is not self.kv:
            before = self.borrower()
            if before is not None and before.kv is self.kv:
                before.kv = self.kv.clone()
            rows = min(self.kv.shape[-2], cache.kv.shape[-2])  # a huge tree has longer ones
            self.kv[..., :rows, :] = cache.kv[..., :rows, :]
            cache.kv, self.borrower = self.kv, weakref.ref(cache)

    def graph(self, key):
        """A graph, recorded by its `recipe` when it is first asked for.

        key: how many rows, or slots of a block, or "round".
        """
        if key not in self.graphs:
            with torch.inference_mode():
                self.graphs[key] = Graph(*self.recipe(key), self.kv)
        return self.graphs[key]


def forward_at(model, kv, tokens, positions, rows, mask):
    """GPT.forward for a recording: new rows at any place of the cache storage kv.

    tokens, positions, rows (N,); mask (N, rows of kv), bool: what each sees of all that is stored.
    -> logits (1, N, V) and hidden, see GPT.forward.
    """
    bias = torch.zeros(mask.shape, dtype=kv.dtype, device=kv.device)
    bias = bias.masked_fill_(~mask, -torch.inf)
    return model.layers(tokens[None], model.cos[positions], model.sin[positions], bias,
                        IndexedCache(kv, rows))


class CapturedGPT(Capture):
    """GPT.forward, captured for up to SIZES[-1] rows of one sequence behind a cache.

    The logits come to the CPU, where the sampler and the dice work on them. `hidden` is overwritten
    by the next forward of as many rows.
    """

    def __call__(self, tokens, positions=None, mask=None, cache=None):
        N = tokens.shape[1]
        size = next((size for size in SIZES if size >= N), None)
        if (cache is None or len(tokens) > 1 or size is None
                or cache.length + size > cache.kv.shape[-2]):  # no room for the padding
            return self.eager(tokens, positions, mask, cache)
        past = cache.length
        if positions is None:
            self.model.check_window(past + N)
            positions = torch.arange(past, past + N)
        mask = CAUSAL[:N, :N] if mask is None else mask.cpu()
        self.lend(cache)
        graph = self.graph(size)
        put = graph.host
        put["tokens"][:N], put["positions"][:N] = tokens[0].cpu(), positions.cpu()
        put["rows"][:] = range(past, past + size)
        put["mask"][:] = False
        put["mask"][:N, :past + N - mask.shape[1]] = True  # older rows are visible to all
        put["mask"][:N, past + N - mask.shape[1]:past + N] = mask
        pad = range(N, size)  # a row that sees nothing would be nan, and stay in the cache
        put["mask"][pad, range(past + N, past + size)] = True
        (logits,), hidden = graph.replay()
        return logits[:, :N].clone(), [x[:, :N] for x in hidden]

    def recipe(self, size):
        """-> run; its host buffers, whose first values write into the last row, a spare one; {}."""
        model, kv = self.model, self.kv

        def run(tokens, positions, rows, mask):
            logits, hidden = forward_at(model, kv, tokens, positions, rows, mask)
            return (logits,), hidden

        spare = kv.shape[-2] - 1
        return run, {"tokens": torch.zeros(size, dtype=torch.long),
                     "positions": torch.zeros(size, dtype=torch.long),
                     "rows": torch.full((size,), spare),
                     "mask": torch.ones(size, spare + 1, dtype=torch.bool)}, {}


class CapturedDrafter(Capture):
    """BlockDrafter.forward (chapter 05), captured for one block behind a cache.

    The logits come to the CPU, where the tree is grown.
    """

    def __call__(self, features, roots, positions, cache=None, visible=None):
        T = features.shape[1]
        if cache is None or roots.numel() > 1 or T > CONTEXT:
            return self.eager(features, roots, positions, cache, visible)
        start, block = positions.start, positions.stop - positions.start - T  # L + 1 rows
        self.lend(cache)
        graph = self.graph(block)
        graph.kept["features"][:, :T] = features
        put, spare = graph.host, self.kv.shape[-2] - 1
        places = [*range(start, start + T), *[spare] * (CONTEXT - T),
                  *range(start + T, positions.stop)]
        put["roots"][:], put["rows"][:] = int(roots), places
        put["positions"][:] = [min(place, positions.stop - 1) for place in places]
        put["visible"][:] = False
        put["visible"][..., :positions.stop] = True  # context and block; not the spare row
        (logits,), _ = graph.replay()
        return logits.clone()

    def recipe(self, block):
        """-> run, its host buffers, and the features' place on the device."""
        kv = self.kv

        def run(features, roots, positions, rows, visible):
            cache = IndexedCache(kv, rows)
            return (self.eager(features, roots, positions, cache, visible),), None

        spare, n = kv.shape[-2] - 1, CONTEXT + block
        host = {"roots": torch.zeros(1, 1, dtype=torch.long),
                "positions": torch.zeros(n, dtype=torch.long),
                "rows": torch.full((n,), spare),
                "visible": torch.ones(1, 1, block, spare + 1, dtype=torch.bool)}
        features = torch.zeros(1, CONTEXT, self.model.width, dtype=kv.dtype, device=kv.device)
        return run, host, {"features": features}


def capture(model, how):
    """Let a model's forward run through graphs, in place, if it lies on a CUDA device.

    how: CapturedGPT or CapturedDrafter.
    """
    if next(model.parameters()).device.type == "cuda":
        ready_to_decode()
        model.forward = how(model)  # an instance's own forward stands before its class's
    return model


def captured(model):
    """Whether a model's forward runs through graphs."""
    return isinstance(getattr(model, "forward", None), Capture)
