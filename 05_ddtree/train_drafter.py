"""Train the block-diffusion drafter on a frozen target.

Each step takes a few sequences, runs the target over them once for its features and its own
distributions, sets many anchors per sequence, and predicts the L tokens after every anchor in a
single pass. Labels are the target's distributions; the loss of position k has weight
exp(-(k - 1) / gamma), as in DFlash.
"""

from dataclasses import asdict

import torch

from block_diffusion import BlockConfig, BlockDrafter
from nanogpt.checkpoint import checkpoint_path, fingerprint
from nanogpt.packing import pack, packed_dtype
from nanogpt.sampling import Sampler
from nanogpt.sizes import Recipe
from nanogpt.train import fit, step_generator

# All anchors of a sequence share one forward of the frozen target. With more sequences of fewer
# anchors, most of a step would go to that forward.
RECIPE = Recipe(steps=550, batch_size=2, lr=3e-3, muon_lr=0.02)
BLOCK_ROWS = 432  # rows of all blocks on one sequence
# Positions over which a slot's weight in the loss falls to 1/e. DFlash takes 4 for blocks of 8 and
# 7 for 16; blocks of 5, and walks that get less far, need a smaller one.
GAMMA = 2.0


def block_mask(anchors, T, rows):
    """Who may see whom: (B, 1, A*rows, T + A*rows) bool.

    anchors (B, A): the position of each block's root; T: context rows; rows: of a block, L + 1.
    """
    B, A = anchors.shape
    # The context strictly before the anchor: while decoding, the target has not read the root yet,
    # so there are no features of it.
    context = torch.arange(T, device=anchors.device) < anchors[:, :, None]  # (B, A, T)
    context = context.repeat_interleave(rows, 1)  # (B, A*rows, T)
    # All rows of its own block and none of another: that one's root may be a label of this one.
    block = torch.arange(A, device=anchors.device).repeat_interleave(rows)  # (A*rows,)
    own = (block[:, None] == block[None, :]).expand(B, -1, -1)  # (B, A*rows, A*rows)
    return torch.cat([context, own], -1)[:, None]


def drafter_loss(drafter, tokens, anchors, sampler):
    """Weighted cross-entropy against the target's own distributions, over all anchors.

    tokens (B, T); anchors (B, A), each in 1..T-L-1; sampler: the target's decoding rule.
    """
    target, length = drafter.target, drafter.config.length
    B, A = anchors.shape
    # One forward of the target gives the features of all contexts and the labels of all slots: a
    # whole distribution tells more than the one token that happened to follow.
    with torch.no_grad():
        logits, hidden = target(tokens)  # (B, T, V)
        labels = sampler(logits)  # (B, T, V)
    offsets = torch.arange(length + 1, device=tokens.device)
    positions = anchors[:, :, None] + offsets  # (B, A, L + 1): a root stands at its anchor
    context = torch.arange(tokens.shape[1], device=tokens.device).expand(B, -1)
    guess = drafter(
        drafter.features(hidden), tokens.gather(1, anchors),
        torch.cat([context, positions.flatten(1)], 1),
        visible=block_mask(anchors, tokens.shape[1], length + 1),
    )  # (B, A, L, V)
    # logits[t] speaks of token t + 1, so slot k = 1..L, token anchor + k, reads row anchor + k - 1
    rows = positions[:, :, :-1].reshape(B, -1)  # (B, A*L)
    labels = labels.gather(1, rows[:, :, None].expand(-1, -1, labels.shape[-1]))  # (B, A*L, V)
    if drafter.transition is not None:
        # The token before slot k is read from the text: anchor + k - 1, the row just named.
        before = tokens.gather(1, rows).view(B, A, length)
        guess = guess + drafter.transition[torch.arange(length, device=tokens.device), before]
    # Without a table, over many texts this is least where q_k is p averaged over what may stand in
    # slots 1..k-1: the marginal, the best guess of a slot that cannot see them.
    loss = -(labels.view_as(guess) * torch.log_softmax(guess.float(), -1)).sum(-1)  # (B, A, L)
    # An early miss makes all later positions worthless, so slot 1 counts most.
    weight = torch.exp(-offsets[:-1] / GAMMA)  # (L,)
    return (loss * weight).sum() / (weight.sum() * B * A)


@torch.inference_mode()
def drafter_validation_loss(drafter, dataset):
    """drafter_loss on 64 held-out windows, at anchors a block apart."""
    device, length = drafter.target.device, drafter.config.length
    T = drafter.target.block_size
    tokens, _ = dataset.batch(dataset.val, 64, T, torch.Generator().manual_seed(0))
    anchors = torch.arange(1, T - length, length + 1, device=device)
    losses = [drafter_loss(drafter, part.to(device), anchors.expand(len(part), -1), Sampler())
              for part in tokens.split(8)]
    return float(sum(losses)) / len(losses)


def get_drafter(target, dataset, block_config, device, retrain=False, recipe=RECIPE, folder=None):
    """A trained BlockDrafter: loaded if it was trained before, else trained now.

    target: a trained GPT in float32; it is frozen.
    """
    config = {"block": asdict(block_config), "recipe": asdict(recipe), "block_rows": BLOCK_ROWS,
              "gamma": GAMMA, "own_texts": False,  # in the key of the weights that came along
              "target": fingerprint(target), "corpus": dataset.sha256,
              "tokenizer": dataset.tokenizer_name}
    path = checkpoint_path("block-drafter", config, folder)
    torch.manual_seed(recipe.seed)
    target.requires_grad_(False)  # its embedding and output matrix are read, and never trained
    drafter = BlockDrafter(target, block_config).to(device)
    length, T, B = block_config.length, target.block_size, recipe.batch_size
    anchors_each = max(1, BLOCK_ROWS // (length + 1))

    def batch_loss(step):
        generator = step_generator(recipe, step)
        tokens, _ = dataset.batch(dataset.train, B, T, generator)
        anchors = torch.randint(1, T - length, (B, anchors_each), generator=generator)
        return drafter_loss(drafter, tokens.to(device), anchors.to(device), Sampler())

    fit(drafter, batch_loss, recipe, path, config, "block-diffusion drafter",
        evaluate=lambda: drafter_validation_loss(drafter, dataset), retrain=retrain)
    return drafter.eval()


def random_drafter(target, seed, length=4, n_layer=2, transition=False):
    """A drafter with random weights in float64 on a small target, for the proofs."""
    torch.manual_seed(seed)
    config = BlockConfig(length, n_layer, (0, 1, 2), transition=transition)
    drafter = BlockDrafter(target, config).double().eval()
    for parameter in drafter.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return drafter.requires_grad_(False)


def drafter_for_decoding(drafter, target):
    """A copy of the drafter on the decoding copy of its target, in the target's precision."""
    twin = BlockDrafter(target, drafter.config).to(target.device).eval().requires_grad_(False)
    twin.load_state_dict(drafter.state_dict())
    # As the target was packed: the choice was made for the pair. See nanogpt/packing.py.
    dtype = packed_dtype(target)
    if dtype is not None:
        pack(twin, dtype)
    return twin
