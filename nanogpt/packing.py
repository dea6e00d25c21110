"""A faster copy of a model for decoding: weights packed for this machine's processor.

A matrix product of several rows reads its weights fastest in an order of its own, and a CPU with
bfloat16 instructions also takes them at half the size. Verification lives on that: with packed
weights a forward of 8 rows costs 1.2 times one of a single row in bfloat16 (2 cores with AVX-512
bf16), and 1.5 times in float32 (2 cores with AVX2), where plain float32 weights take 2.0 times.
For few rows plain weights may be faster; how few, the machine is asked when the copy is made.

subtle: logits may differ in the last bits with the number of rows in a forward, and bfloat16
weights are another model by a hair. Where the two best tokens are that close, greedy texts may
part; a table at temperature 0 counts how many are the same.
"""

import copy
import math
import time

import torch
import torch.nn.functional as F
from torch import nn

from nanogpt.device import bf16_is_faster
from nanogpt.gpu import graphs

PRECISIONS = ("auto", "float32", "bfloat16")
ROWS = 8  # the number of rows that weights are packed for; others run on them too
SAMPLE = 24  # layers that are timed: more than a processor's cache holds, less than all of a giant
WIDE = 192  # a narrower model loses more by packing than it wins, for 1 to 32 rows (measured)


class PackedLinear(nn.Module):
    """A bias-free linear layer for the CPU, its weights packed in bfloat16 or float32.

    plain_rows: up to so many rows the plain product is taken, since it is faster.
    The weights never change, so copies of a packed model share them.
    """

    def __init__(self, linear, dtype, out_dtype=torch.float32, plain_rows=0):
        super().__init__()
        self.dtype, self.out_dtype, self.plain_rows = dtype, out_dtype, plain_rows
        weight = linear.weight.detach().to(dtype)
        # Opaque to torch: neither a parameter nor in state_dict, and deepcopy cannot read it.
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight, ROWS)
        self.plain = weight if plain_rows else None

    def __deepcopy__(self, memo):
        """A layer of its own on the same weights, which nobody writes to."""
        twin = copy.copy(self)
        memo[id(self)] = twin
        return twin

    def forward(self, x):
        """x (..., C_in) -> (..., C_out) in out_dtype."""
        x = x.to(self.dtype)
        # The products are rounded once, on the way out; inside they add up in float32.
        if self.plain is not None and x.numel() <= self.plain_rows * x.shape[-1]:
            return F.linear(x, self.plain).to(self.out_dtype)
        y = torch.ops.mkldnn._linear_pointwise(x, self.packed, None, "none", [], "")
        return y.to(self.out_dtype)


def count_plain_rows(linears, dtype):
    """Up to how many rows these layers' plain products are faster here than their packed ones."""
    sample = linears[:SAMPLE]
    forms = [[PackedLinear(linear, dtype, plain_rows=rows) for linear in sample]
             for rows in (ROWS, 0)]  # plain, packed
    for rows in range(1, ROWS + 1):
        inputs = [torch.ones(rows, linear.in_features) for linear in sample]
        best = [math.inf, math.inf]
        for _ in range(5):  # in turn, and the best of five: other programs disturb single laps
            for i, form in enumerate(forms):
                start = time.perf_counter()
                for layer, x in zip(form, inputs, strict=True):
                    layer(x)
                best[i] = min(best[i], time.perf_counter() - start)
        if best[1] < best[0]:
            return rows - 1
    return ROWS


def can_pack(dtype=torch.bfloat16):
    """torch keeps the packing operator private: look whether it is there and works."""
    try:
        layer = nn.Linear(32, 32, bias=False)  # other processors refuse at the first call
        return PackedLinear(layer, dtype)(torch.ones(2, 32)).shape == (2, 32)
    except (AttributeError, RuntimeError, NotImplementedError):
        return False


def for_decoding(model, precision="auto"):
    """A copy of the model for decoding. precision: 'float32', 'bfloat16', or 'auto'.

    'auto' is bfloat16 on a GPU that has it, and on a CPU where that is measured to be faster, if
    the model is WIDE; float32 elsewhere. A copy of a packed model is packed, too. On CUDA the
    copy's short forwards are captured (gpu/graphs.py).
    Raises ValueError for an unknown precision, bfloat16 where it cannot be had, or another
    precision than that of a model that is packed already.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"precision is '{precision}'; it must be one of {', '.join(PRECISIONS)}")
    packed = packed_dtype(model)
    if packed is not None and precision not in ("auto", precision_of(model)):
        raise ValueError(f"precision is '{precision}', but the model is packed in "
                         f"{precision_of(model)} already; copy the trained model instead")
    # A copy: training goes on with the original, and plain and speculative decoding share this one.
    model = copy.deepcopy(model).eval().requires_grad_(False)
    if packed is not None:
        return model
    on_cpu = model.device.type == "cpu"
    if model.device.type == "cuda":
        if precision == "bfloat16" or precision == "auto" and bf16_is_faster(model.device):
            pack(model, torch.bfloat16)
        return graphs.capture(model)
    if precision == "bfloat16" and not (on_cpu and can_pack()):
        raise ValueError("precision 'bfloat16' needs a GPU, or a CPU whose torch can pack bf16 "
                         "weights")
    # Small products gain nothing.
    wide = next(model.parameters()).shape[-1] >= WIDE  # the embedding, in our models and in others'
    # Asked of the machine: a CPU without the instructions packs as well, and is slower then.
    if precision == "auto" and on_cpu and wide and bf16_is_faster(model.device) and can_pack():
        precision = "bfloat16"
    if precision == "bfloat16":
        pack(model, torch.bfloat16)
    elif on_cpu and wide and can_pack(torch.float32):
        pack(model, torch.float32)
    return model


def pack(model, dtype):
    """Replace every linear layer but the output matrix by a packed one, in place.

    The residual stream, attention, norms and output matrix stay in float32; on a GPU, where a
    change of dtype costs as much as a product, the output matrix alone.
    """
    if next(model.parameters()).device.type == "cuda":
        head = copy.deepcopy(getattr(model, "lm_head", None))
        model.to(dtype)
        if head is not None:
            head.register_forward_pre_hook(lambda layer, inputs: (inputs[0].float(),))
            model.lm_head = head
        return
    pack_layers(model, dtype, ("lm_head",))  # close logits decide tokens


def pack_layers(model, dtype, but=()):
    """Replace the linear layers of a float32 model on the CPU by packed ones, in place.

    Those with a bias stay, and those of a name in `but`.
    """
    places = [(parent, name, child) for parent in model.modules()
              for name, child in parent.named_children()
              if type(child) is nn.Linear and child.bias is None and name not in but]
    plain_rows = count_plain_rows([linear for *_, linear in places], dtype)
    for parent, name, linear in places:
        # Inside an MLP bfloat16 may stay: the next layer would round it anyway.
        out_dtype = dtype if name == "up" else torch.float32
        setattr(parent, name, PackedLinear(linear, dtype, out_dtype, plain_rows))


def packed_dtype(model):
    """torch.bfloat16 or torch.float32, what a model's layers are packed in; None if they are not.

    A model that is bfloat16 as a whole, as on a GPU, counts as packed.

    It walks over all modules: the output matrix of a packed model is an nn.Linear still.
    """
    if next(model.parameters()).dtype == torch.bfloat16:
        return torch.bfloat16
    layers = (module for module in model.modules() if isinstance(module, PackedLinear))
    return next((layer.dtype for layer in layers), None)


def precision_of(model):
    """'bfloat16' or 'float32': what the model's blocks multiply in."""
    return "bfloat16" if packed_dtype(model) == torch.bfloat16 else "float32"
