"""The rules that this chapter compares, by the names that its tables use."""

from block_rules import BlockVerification, GreedyBlockVerification, TraversalVerification
from global_resolution import GR
from layer_verification import LayerVerification, TokenVerification
from single_step_rules import KSEQ, RRS

STEPS = {"K-SEQ": KSEQ, "RRS": RRS, "GR": GR}
LIFTS = {"TV": TokenVerification, "LV": LayerVerification}
RULES = {f"{lift} + {step}": lifted(rule)
         for step, rule in STEPS.items() for lift, lifted in LIFTS.items()}
RULES |= {"TRV": TraversalVerification(), "GBV": GreedyBlockVerification(),
          "BV": BlockVerification()}


def rules_for(shape_name, branching):
    """{name: rule}, those that can judge such trees: GBV wants chains that part at the root, BV
    one chain."""
    skipped = {"BV"} if branching > 1 else set()
    if shape_name != "multi-chain" and branching > 1:
        skipped.add("GBV")
    return {name: rule for name, rule in RULES.items() if name not in skipped}
