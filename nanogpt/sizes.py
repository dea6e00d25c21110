"""The named models of this repository, each with the training recipe that suits it."""

from dataclasses import dataclass

from nanogpt.model import GPTConfig


@dataclass(frozen=True)
class Recipe:
    """How to train; with the model's configuration it determines the weights.

    lr: of AdamW (embedding, output matrix, norms); muon_lr and momentum: of Muon (the hidden
    matrices).
    """

    steps: int
    batch_size: int  # sequences a step
    lr: float = 3e-3
    muon_lr: float = 0.02
    momentum: float = 0.95
    warmup: int = 20
    seed: int = 1


@dataclass(frozen=True)
class Size:
    """A named model: its layers, its width, its context and its recipe.

    label: how tables and pictures call it, by its number of parameters; shipped: its weights come
    along, and a target's draft heads and block drafter.
    """

    label: str
    n_layer: int
    n_head: int
    n_embd: int
    recipe: Recipe
    block_size: int = 256
    shipped: bool = True

    def config(self, vocab_size):
        """The GPTConfig of this size for a vocabulary."""
        return GPTConfig(vocab_size, self.block_size, self.n_layer, self.n_head, self.n_embd)


SIZES = {
    # The small GPT that drafts.
    "draft": Size("57K", 1, 2, 64, Recipe(steps=600, batch_size=16)),
    # A target for lessons and tests.
    "small": Size("0.8M", 4, 4, 128, Recipe(steps=1200, batch_size=8)),
    # nanoGPT's own baby: the target of the tables with times. Few steps, so large ones.
    "baby": Size("10.7M", 6, 6, 384,
                 Recipe(steps=300, batch_size=8, lr=1e-2, muon_lr=0.03, momentum=0.9)),
    # For a GPU, whose forward of the baby is too short to be worth speculating on. The recipe is
    # the small models' and was not tuned.
    "large": Size("85M", 12, 12, 768, Recipe(steps=600, batch_size=16), shipped=False),
}
