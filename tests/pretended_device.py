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


def place(tensor):
    """Where a tensor pretends to lie."""
    return getattr(tensor, "pretended", HOST)


def put(value, device):
    """Tag every tensor in a nest of lists, tuples and dicts -> the nest."""
    for tensor in tensors_in(value):
        tensor.pretended = device
    return value


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


def common_place(name, tensors):
    """Where all these tensors lie; a number (no axes) on the CPU goes with any of them."""
    places = {place(t) for t in tensors if t.ndim > 0 or place(t) == AWAY}
    if len(places) > 1:
        raise RuntimeError(f"{name}: " + ", ".join(f"{tuple(t.shape)} on {place(t)}"
                                                   for t in tensors))
    return places.pop() if places else HOST


class PretendedDevice(TorchFunctionMode):
    """results: how many tensors were made over there."""

    ANYWHERE = {"copy_", "_has_compatible_shallow_copy_type"}  # take tensors of two places

    def __init__(self):
        super().__init__()
        self.results = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name, kwargs = func.__name__, dict(kwargs or {})
        if name == "__get__" and func.__self__ is torch.Tensor.device:
            return place(args[0])
        if name == "__set__":  # tensor.data = other, tensor.grad = other
            func(*args, **kwargs)
            return put(args[0], place(args[1])) if args[1] is not None else None
        if name in ("to", "cpu"):
            return self.move(func, args, kwargs)
        if name in ("numpy", "__array__") and place(args[0]) == AWAY:
            raise TypeError("a tensor on cuda has no numpy array; call .cpu() first")

        inputs = list(tensors_in((args, kwargs)))
        if name in self.ANYWHERE:
            inputs = inputs[:1]
        elif name == "__getitem__" and place(args[0]) == AWAY:
            inputs = inputs[:1]  # indices may lie on the CPU
        goal = common_place(name, inputs)
        if kwargs.get("device") is not None:
            goal = self.device(kwargs["device"])
            kwargs["device"] = HOST
        generator = kwargs.get("generator")
        if generator is not None and goal == AWAY:
            raise RuntimeError(f"{name}: a generator of the CPU, a result on cuda")

        out = func(*args, **kwargs)
        if name == "__iter__":
            return iter([self.made(part, goal) for part in out])
        return self.made(out, goal)

    def move(self, func, args, kwargs):
        """tensor.cpu(), tensor.to(device, dtype or another tensor)."""
        tensor, goal, rest = args[0], place(args[0]), []
        if func.__name__ == "cpu":
            goal = HOST
        for value in args[1:]:
            if isinstance(value, (str, torch.device)):
                goal, value = self.device(value), HOST
            elif isinstance(value, torch.Tensor):
                goal = place(value)
            rest.append(value)
        if kwargs.get("device") is not None:
            goal, kwargs["device"] = self.device(kwargs["device"]), HOST
        out = func(tensor, *rest, **kwargs)
        if out is tensor and goal != place(tensor):
            out = tensor.clone()
        return self.made(out, goal)

    def made(self, value, device):
        """Tag what a function returned, unless it is one of the CPU's own."""
        if device == AWAY:
            self.results += len(tensors_in(value))
        return put(value, device)

    @staticmethod
    def device(name):
        """'cuda', 'cuda:0', 'cpu' or a torch.device -> HOST or AWAY."""
        return AWAY if torch.device(name).type == "cuda" else HOST


@contextlib.contextmanager
def pretended_cuda():
    """In here a machine without a GPU has one, as far as where tensors lie. Yields the device."""
    deepcopy, load = nn.Parameter.__deepcopy__, torch.load

    def copy_in_place(parameter, memo):
        return put(deepcopy(parameter, memo), place(parameter))

    def load_there(path, map_location="cpu", **more):
        return put(load(path, map_location="cpu", **more), PretendedDevice.device(map_location))

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
        with PretendedDevice() as device:
            yield device
