"""Train the block-diffusion drafter on a frozen target.

Each step takes a few sequences, runs the target over them once for its features and its own
distributions, sets many anchors per sequence, and predicts the L tokens after every anchor in a
single pass: a block mask lets anchor a see the context rows before a and its own block, nothing
else. The loss of position k has weight exp(-(k - 1) / gamma), as in DFlash (gamma = 4 for blocks
of 8, 7 for 16): an early miss makes all later positions worthless.
"""

from dataclasses import asdict

import torch
from block_diffusion import BlockDrafter

from nanogpt.checkpoint import checkpoint_path, fingerprint
from nanogpt.precision import pack, precision_of
from nanogpt.train import Recipe, fit, step_generator

RECIPE = Recipe(steps=600, batch_size=8, lr=3e-3, muon_lr=0.02)
ANCHORS = 24  # blocks per sequence and step


def block_mask(anchors, T, rows):
    """Who may not see whom: (B, 1, A*rows, T + A*rows) bool, True = blocked.

    anchors (B, A): the position of each block's root. A row sees the context strictly before its
    anchor, and all rows of its own block.
    """
    B, A = anchors.shape
    context = torch.arange(T, device=anchors.device) >= anchors[:, :, None]  # (B, A, T)
    context = context.repeat_interleave(rows, 1)  # (B, A*rows, T)
    block = torch.arange(A, device=anchors.device).repeat_interleave(rows)
    other = (block[:, None] != block[None, :]).expand(B, -1, -1)  # (B, A*rows, A*rows)
    return torch.cat([context, other], -1)[:, None]


def drafter_loss(drafter, tokens, anchors, temperature=1.0):
    """Weighted cross-entropy against the target's own distributions, over all anchors.

    tokens (B, T); anchors (B, A), each in 1..T-L-1. At block slot k the label is what the frozen
    target says after reading the text up to anchor + k - 1: a whole distribution instead of the
    one token that happened to follow.
    """
    target, length = drafter.target, drafter.config.length
    B, A = anchors.shape
    with torch.no_grad():
        logits, hidden = target(tokens)  # (B, T, V)
        labels = torch.softmax(logits.float() / temperature, -1)
    offsets = torch.arange(length + 1, device=tokens.device)
    positions = anchors[:, :, None] + offsets  # (B, A, L + 1)
    contexts = drafter.context(hidden, torch.arange(tokens.shape[1], device=tokens.device))
    guess = drafter(
        tokens.gather(1, anchors), positions, contexts,
        block_mask(anchors, tokens.shape[1], length + 1),
    )  # (B, A, L, V)
    # logits[t] speaks of token t + 1, so slot k = 1..L, token anchor + k, reads row anchor + k - 1
    rows = positions[:, :, :-1].reshape(B, -1)  # (B, A*L)
    labels = labels.gather(1, rows[:, :, None].expand(-1, -1, labels.shape[-1]))
    loss = -(labels.view_as(guess) * torch.log_softmax(guess.float(), -1)).sum(-1)  # (B, A, L)
    gamma = 4.0 if length <= 8 else 7.0
    weight = torch.exp(-offsets[:-1] / gamma)
    return (loss * weight).sum() / (weight.sum() * B * A)


def get_drafter(target, dataset, block_config, device, retrain=False, recipe=RECIPE, folder=None):
    """A trained BlockDrafter: loaded if it was trained before, else trained now.

    target: a trained GPT in float32; it is frozen.
    """
    config = {"block": asdict(block_config), "recipe": asdict(recipe),
              "target": fingerprint(target),
              "corpus": dataset.sha256, "tokenizer": dataset.tokenizer_name}
    path = checkpoint_path("block-drafter", config, folder)
    if retrain:
        path.unlink(missing_ok=True)
    torch.manual_seed(recipe.seed)
    target.requires_grad_(False)
    drafter = BlockDrafter(target, block_config).to(device)
    length, T = block_config.length, target.block_size

    def batch_loss(step):
        generator = step_generator(recipe, step)
        tokens, _ = dataset.batch(dataset.train, recipe.batch_size, T, generator)
        anchors = torch.randint(1, T - length, (recipe.batch_size, ANCHORS), generator=generator)
        return drafter_loss(drafter, tokens.to(device), anchors.to(device))

    fit(drafter, batch_loss, recipe, path, config, "block-diffusion drafter")
    return drafter.eval()


def drafter_for_decoding(drafter, target):
    """A copy of the drafter on the decoding copy of its target, in the target's precision."""
    twin = BlockDrafter(target, drafter.config).to(target.device).eval().requires_grad_(False)
    twin.load_state_dict(drafter.state_dict())
    if precision_of(target) == "bfloat16":
        pack(twin)
    return twin
