"""Chapter 06's trees of independent draws as one tensor program; see nanogpt/gpu/rounds.py."""

from dataclasses import dataclass
from functools import partial

from chain_grow import reader_of  # chapter 01
from heads_grow import head_reader  # chapter 03
from tree_grow import TreeGrower  # chapter 02


@dataclass(frozen=True)
class SampledTreeGrower(TreeGrower):
    """sample_tree: every child is a draw of its own, whatever its siblings are."""

    def below(self, now, probs, alive, depth, parents):
        return now.draw(probs[parents], alive[parents], depth, replace=True)


def grow_sampled(target, drafter, budget, sampler, reader=reader_of):
    """The Grower of a SampledTreeDrafter. reader(target, model) -> a reader of its model."""
    return SampledTreeGrower(reader(target, drafter.model), tuple(drafter.parents),
                             drafter.sampler, drawn=True)


grow_sampled_head = partial(grow_sampled, reader=head_reader)  # on HeadLevels
