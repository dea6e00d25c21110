"""A GPU that is not there: tensors lie on the CPU and carry a tag that says 'cuda'.

Without a GPU nobody notices a tensor that stayed behind when its model moved. In here `cuda` can be
asked for, every torch function sees to it that its result lies where its inputs lie, and one whose
inputs lie in two places raises, as it does on the real device.
"""

import contextlib

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from nanogpt import graphs

HOST, AWAY = torch.device("cpu"), torch.device("cuda", 0)
ANYWHERE = {"to", "cpu", "copy_", "_has_compatible_shallow_copy_type"}  # take tensors of two places


def place(tensor):
    """Where a tensor pretends to lie."""
    return getattr(tensor, "pretended", HOST)


def tensors_in(value):
    """Every tensor in a nest of lists, tuples and dicts."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return tensors_in(list(value.values()))
    # A corpus is a list of a million numbers; a list that begins with one holds nothing else.
    numbers = isinstance(value, list) and value and isinstance(value[0], (int, float))
    if numbers or not isinstance(value, (list, tuple)):
        return []
    return [tensor for part in value for tensor in tensors_in(part)]


def put(value, device):
    """Tag every tensor in a nest of lists, tuples and dicts -> the nest."""
    for tensor in tensors_in(value):
        tensor.pretended = device
    return value


def common_place(name, tensors):
    """Where all these tensors lie; a number (no axes) on the CPU goes with any of them."""
    places = {place(t) for t in tensors if t.ndim > 0 or place(t) == AWAY}
    if len(places) > 1:
        raise RuntimeError(f"{name}: " + ", ".join(f"{tuple(t.shape)} on {place(t)}"
                                                   for t in tensors))
    return places.pop() if places else HOST


def asked_for(device):
    """'cuda', 'cuda:0', 'cpu', a torch.device, or a tensor that lies there -> HOST or AWAY."""
    if isinstance(device, torch.Tensor):
        return place(device)
    return AWAY if torch.device(device).type == "cuda" else HOST


class PretendedDevice(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        name, kwargs = func.__name__, dict(kwargs or {})
        if name == "__get__" and func.__self__ is torch.Tensor.device:
            return place(args[0])
        if name == "__set__":  # tensor.data = other, tensor.grad = other
            func(*args, **kwargs)
            return put(args[0], place(args[1])) if args[1] is not None else None
        if name in ("numpy", "__array__") and place(args[0]) == AWAY:
            raise TypeError("a tensor on cuda has no numpy array; call .cpu() first")

        inputs = tensors_in((args, kwargs))
        if name in ANYWHERE or name == "__getitem__" and place(args[0]) == AWAY:
            inputs = inputs[:1]  # indices may lie on the CPU
        goal = HOST if name == "cpu" else common_place(name, inputs)
        if name == "to":
            for value in args[1:]:
                if isinstance(value, (str, torch.device, torch.Tensor)):
                    goal = asked_for(value)
            args = [HOST if isinstance(value, (str, torch.device)) else value for value in args]
        if kwargs.get("device") is not None:
            goal, kwargs["device"] = asked_for(kwargs["device"]), HOST
        if kwargs.get("generator") is not None and goal == AWAY:
            raise RuntimeError(f"{name}: a generator of the CPU, a result on cuda")

        out = func(*args, **kwargs)
        if name in ("to", "cpu") and out is args[0] and goal != place(out):
            out = out.clone()  # what was moved stays where it was, too
        if name == "__iter__":
            return iter([put(part, goal) for part in out])
        return put(out, goal)


@contextlib.contextmanager
def pretended_cuda():
    """In here a machine without a GPU has one, as far as where tensors lie."""
    deepcopy, load = nn.Parameter.__deepcopy__, torch.load

    def copy_in_place(parameter, memo):
        return put(deepcopy(parameter, memo), place(parameter))

    def load_there(path, map_location="cpu", **more):
        return put(load(path, map_location="cpu", **more), asked_for(map_location))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nn.Parameter, "__deepcopy__", copy_in_place)
        patch.setattr(torch, "load", load_there)
        patch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())
        patch.setattr(graphs, "capture", lambda model, how: model)  # there are no graphs to record
        for name, answer in (("is_available", True), ("device_count", 1), ("synchronize", None),
                             ("get_device_name", "pretended"), ("is_bf16_supported", True)):
            patch.setattr(torch.cuda, name, lambda *_, answer=answer: answer)
        # An optimizer asks the driver whether a graph is being captured. A torch that was built for
        # CUDA has such a question, and no driver here to answer it. (The name varies by release.)
        for name in dir(torch.optim.Optimizer):
            if name.endswith("_graph_capture_health_check"):
                patch.setattr(torch.optim.Optimizer, name, lambda optimizer: None)
        with PretendedDevice():
            yield
