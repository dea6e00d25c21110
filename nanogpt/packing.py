"""The fastest precision for decoding on this machine.

A CPU with bfloat16 matrix instructions takes 1.9 to 2.0 times as long for 32 rows as for one
(measured on two cores of an AMD EPYC), if the weights lie in the order in which those instructions
read them. `for_decoding` makes a copy of a model with its weights packed so.

subtle: rounded weights are another model by a hair, and one whose logits may differ in the last
bits with the number of rows in a forward. Where the two best tokens are that close, greedy texts
may part; scripts compare the texts and say where and by what gap.
"""

import copy

import torch
from torch import nn

from nanogpt.device import bf16_is_faster

PRECISIONS = ("auto", "float32", "bfloat16")
WIDE = 192  # a narrower model loses more by packing than it wins, for 1 to 32 rows (measured)


class PackedLinear(nn.Module):
    """A bias-free linear layer with bfloat16 weights, packed for the CPU's matrix unit.

    The weights stay as they are for ever, so copies of a packed model share them.
    """

    def __init__(self, linear, out_dtype=torch.float32):
        super().__init__()
        self.out_dtype = out_dtype
        # Opaque to torch: neither a parameter nor in state_dict, and deepcopy cannot read it.
        self.weight = torch.ops.mkldnn._reorder_linear_weight(
            linear.weight.detach().bfloat16(), None
        )

    def __deepcopy__(self, memo):
        """A layer of its own on the same weights, which nobody writes to."""
        twin = copy.copy(self)
        memo[id(self)] = twin
        return twin

    def forward(self, x):
        """x (..., C_in) -> (..., C_out) in out_dtype."""
        # The products are rounded once, on the way out; inside they add up in float32.
        y = torch.ops.mkldnn._linear_pointwise(x.bfloat16(), self.weight, None, "none", [], "")
        return y.to(self.out_dtype)


def can_pack():
    """torch keeps the packing operator private: look whether it is there and works."""
    try:
        layer = nn.Linear(32, 32, bias=False)  # other processors refuse at the first call
        return PackedLinear(layer)(torch.ones(2, 32)).shape == (2, 32)
    except (AttributeError, RuntimeError, NotImplementedError):
        return False


def for_decoding(model, precision="auto"):
    """A copy of the model for decoding. precision: 'float32', 'bfloat16', or 'auto'.

    'auto' is bfloat16 on a CPU where that is measured to be faster, if the model is WIDE; float32
    elsewhere. A copy of a packed model is packed, too.
    Raises ValueError for an unknown precision, bfloat16 where it cannot be had, or float32 of a
    packed model.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"precision is '{precision}'; it must be one of {', '.join(PRECISIONS)}")
    packed = precision_of(model) == "bfloat16"
    if packed and precision == "float32":  # what was rounded off does not come back
        raise ValueError("precision is 'float32', but the model is packed in bfloat16 already; "
                         "copy the trained model instead")
    # A copy: training goes on with the original, and plain and speculative decoding share this one.
    model = copy.deepcopy(model).eval().requires_grad_(False)
    if packed:
        return model
    on_cpu = model.device.type == "cpu"
    if precision == "bfloat16" and not (on_cpu and can_pack()):
        raise ValueError("precision 'bfloat16' needs a CPU whose torch can pack bf16 weights")
    # On a GPU a small model is bound by kernel launches, not by arithmetic: float32 there.
    wide = next(model.parameters()).shape[-1] >= WIDE  # the embedding, in our models and in others'
    # Asked of the machine: a CPU without the instructions packs as well, and is slower then.
    if precision == "auto" and on_cpu and wide and bf16_is_faster(model.device) and can_pack():
        precision = "bfloat16"
    if precision == "bfloat16":
        pack(model)
    return model


def pack(model):
    """Replace every linear layer but the output matrix by a packed one, in place.

    The residual stream, attention, norms and output matrix stay in float32.
    """
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.Linear) and name != "lm_head":  # close logits decide tokens
                # Inside an MLP bfloat16 may stay: the next layer would round it anyway.
                dtype = torch.bfloat16 if name == "up" else torch.float32
                setattr(parent, name, PackedLinear(child, dtype))


def precision_of(model):
    """'bfloat16' or 'float32': what the model's blocks multiply in."""
    # Walks over all modules: the output matrix of a packed model is an nn.Linear still.
    packed = any(isinstance(module, PackedLinear) for module in model.modules())
    return "bfloat16" if packed else "float32"
