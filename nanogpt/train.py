"""Training: one loop for the target, the draft models and the draft heads.

    python -m nanogpt.train --size small

Muon for the hidden matrices, AdamW for the rest, linear warm-up and decay, bfloat16 where the
machine is faster with it. The state is saved as it goes; after Ctrl-C the same command goes on from
there.

Muon: Keller Jordan et al., "Muon: An optimizer for hidden layers in neural networks" (2024).
"""

import time
from dataclasses import asdict, replace

import torch
import torch.nn.functional as F
from tqdm import tqdm

from nanogpt import cli
from nanogpt.checkpoint import checkpoint_path, restore, save_checkpoint, shipped, updates_in
from nanogpt.device import autocast, bf16_is_faster
from nanogpt.model import GPT
from nanogpt.sizes import SIZES

# ---------------------------------------------------------------- Muon

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the quintic a x + b x^3 + c x^5


def orthogonalize(update, steps=5):
    """Newton-Schulz: (m, n) -> about U V^T of its SVD; singular values between 0.7 and 1.2.

    They come near 1 and no nearer: the coefficients are chosen for speed. A zero matrix stays zero.
    """
    a, b, c = COEFFICIENTS
    # Whatever multiplies faster here; five steps forgive the rounding of bfloat16.
    x = update.bfloat16() if bf16_is_faster(update.device) else update.float()
    wide = x.shape[0] <= x.shape[1]
    x = x if wide else x.T  # so that the Gram matrix below is the small one
    # The Frobenius norm is at least the largest singular value: all of them are now in [0, 1].
    x = x / x.norm().clamp(min=1e-7)
    if x.dtype == torch.bfloat16 or x.shape[0] == x.shape[1]:
        for _ in range(steps):
            gram = x @ x.T  # (m, m)
            x = a * x + (b * gram + c * gram @ gram) @ x  # the quintic, on every singular value
    else:
        # The same with products of small squares alone: X <- p X makes G = X X^T into p G p, and
        # all the p make one factor q. In bfloat16 the rounding of G would grow with every step.
        gram, q = x @ x.T, torch.eye(len(x), device=x.device)
        for _ in range(steps):
            p = a * torch.eye(len(x), device=x.device) + b * gram + c * gram @ gram
            q, gram = p @ q, p @ gram @ p
        x = q @ x
    return x if wide else x.T


class Muon(torch.optim.Optimizer):
    """Orthogonalised Nesterov momentum, for parameters that are matrices.

    A gradient is dominated by a few directions; after orthogonalisation all of them move alike.
    torch.optim.Muon does the same, but always in bfloat16, which a CPU without such instructions
    emulates 60 times slower than float32.
    """

    def __init__(self, parameters, lr, momentum=0.95):
        super().__init__(parameters, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure=None):
        """One update of every parameter that has a gradient."""
        for group in self.param_groups:
            momentum = group["momentum"]
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                if not state:  # the first step, or the parameter had no gradient before
                    state["momentum_buffer"] = torch.zeros_like(weight)  # torch's name for it
                average = state["momentum_buffer"].lerp_(weight.grad, 1 - momentum)
                # Nesterov: look ahead along the average that this gradient is already part of.
                update = orthogonalize(weight.grad.lerp(average, momentum))
                # A tall matrix gets a larger step, so that one rate serves all shapes.
                scale = max(1, weight.shape[0] / weight.shape[1]) ** 0.5
                weight.add_(update.to(weight.dtype), alpha=-group["lr"] * scale)


# ---------------------------------------------------------------- both optimizers, one schedule


class Optimizer:
    """Muon for the weight matrices inside a model, AdamW for everything else."""

    def __init__(self, model, recipe):
        # To make an update orthogonal means something between two hidden spaces. Rows of an
        # embedding or an output matrix stand for tokens, of which a batch sees some.
        outer = {"embed.weight", "lm_head.weight"}
        named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
        hidden = [p for n, p in named if p.ndim == 2 and n not in outer]
        other = [p for n, p in named if p.ndim != 2 or n in outer]
        self.parts = []
        if other:
            # No weight decay: a few hundred steps on a small corpus are over before it matters.
            self.parts.append(torch.optim.AdamW(
                other, lr=recipe.lr, betas=(0.9, 0.95), weight_decay=0.0
            ))
        if hidden:  # a draft head may have none
            self.parts.append(Muon(hidden, recipe.muon_lr, recipe.momentum))
        # Two optimizers with rates of their own, one schedule for both.
        self.peaks = [part.param_groups[0]["lr"] for part in self.parts]

    def step(self, scale):
        """One update with the learning rates scaled by `scale`."""
        for part, peak in zip(self.parts, self.peaks, strict=True):
            part.param_groups[0]["lr"] = peak * scale
            part.step()
            part.zero_grad(set_to_none=True)  # gradients add up otherwise

    def state_dict(self):
        return [part.state_dict() for part in self.parts]

    def load_state_dict(self, states):
        for part, state in zip(self.parts, states, strict=True):
            part.load_state_dict(state)


def schedule(step, recipe):
    """Linear warm-up, then linear decay to zero: the learning rate's scale at a step."""
    # One line rises from 1 / warmup, the other falls from 1 to 1 / steps; the lower one holds.
    return min((step + 1) / recipe.warmup, (recipe.steps - step) / recipe.steps)


def step_generator(recipe, step):
    """The randomness of one step's batch."""
    # Of the step alone, not of those before it: a resumed training sees the same data.
    # 64 belongs to the weights that came along: with another number they could not be made again.
    return torch.Generator().manual_seed(recipe.seed * 1_000_003 + step * 64)


def fit(model, batch_loss, recipe, path, config, name, evaluate=None, save_every=15.0,
        retrain=False):
    """Train `model` in place, or load it, if finished weights of these very settings are there: at
    `path`, or among those that came along.

    retrain: train in any case; what is finished stays until this is finished, too.

    batch_loss(step) -> scalar loss of that step's batch (called under autocast).
    evaluate() -> a number printed at the end (a validation loss), or None.
    path, config: see nanogpt.checkpoint; name: shown on the progress bar.
    The state is saved every `save_every` seconds, and the next training goes on from there.
    Raises ValueError for a file that is damaged or cannot be written.
    """
    # Draft heads train the same way, so: a batch_loss instead of data, and no model.device.
    finished = None if retrain else path if path.exists() else shipped(config)
    if finished:
        restore(model, finished, config, [recipe.steps])
        return
    cli.writable(path)
    optimizer, begun, done = Optimizer(model, recipe), path.with_suffix(".unfinished.pt"), 0
    if begun.exists():
        done = restore(model, begun, config, range(1, recipe.steps + 1), optimizer)

    def save(into, **more):
        save_checkpoint(into, config, {"model": model.state_dict(), "step": done, **more})

    model.train()
    start = last_save = time.perf_counter()
    bar = tqdm(range(done, recipe.steps), desc=f"train {name}", initial=done, total=recipe.steps,
               mininterval=0.5, dynamic_ncols=True)
    try:  # a step is a batch, its gradient, an update
        for step in bar:
            with autocast(next(model.parameters()).device):
                loss = batch_loss(step)
            loss.backward()  # outside: it takes each operation's precision from the forward
            optimizer.step(schedule(step, recipe))
            done = step + 1
            if step % 10 == 0:  # .item() waits for the device, so not at every step
                bar.set_postfix(loss=f"{loss.item():.2f}")
            if time.perf_counter() - last_save > save_every:  # a crash costs no more than this
                if updates_in(begun) < done:  # else another process is ahead
                    save(begun, optimizer=optimizer.state_dict())
                last_save = time.perf_counter()
    except KeyboardInterrupt:  # in the middle of an update, it may be: what was saved is whole
        bar.close()
        raise KeyboardInterrupt(f"stopped at step {done} of {recipe.steps}; "
                                f"{what_is_kept(begun, save_every)}") from None
    save(path)  # finished: nobody needs the optimizer's averages
    begun.unlink(missing_ok=True)
    model.eval()
    said = f", validation loss {evaluate():.3f}" if evaluate else ""
    print(f"trained {name} in {time.perf_counter() - start:.0f} s{said}")


def what_is_kept(begun, save_every):
    """What is said of a training that was stopped. begun: the file of its state."""
    saved = updates_in(begun)
    return (f"the same command goes on from step {saved}, which was saved last" if saved else
            f"nothing is kept, the state is saved every {save_every:.0f} s")


@torch.inference_mode()
def validation_loss(model, split, batch_size=16):
    """Mean cross-entropy in nats per token, over the whole split in windows of block_size."""
    size = model.block_size
    n = (len(split) - 1) // size  # whole windows; the last tokens may be left out
    x = split[:n * size].view(n, size)
    y = split[1:n * size + 1].view(n, size)  # (n, size): the token after each
    total = 0.0
    for i in range(0, n, batch_size):
        with autocast(model.device):
            logits, _ = model(x[i:i + batch_size].to(model.device))
        target = y[i:i + batch_size].to(model.device)
        # In float32: a sum over a whole text loses digits in bfloat16.
        total += F.cross_entropy(logits.flatten(0, 1).float(), target.flatten(), reduction="sum")
    return float(total) / (n * size)


def get_gpt(size, dataset, device, retrain=False, recipe=None, folder=None):
    """A trained GPT of a named size: loaded if it was trained before, else trained now.

    dataset: nanogpt.data.Dataset; recipe: default the size's own; folder: of the checkpoints.
    Raises ValueError for an unknown size or a damaged checkpoint.
    """
    if size not in SIZES:
        raise ValueError(f"size is '{size}'; it must be one of {', '.join(SIZES)}")
    recipe = recipe or SIZES[size].recipe
    model_config = SIZES[size].config(dataset.vocab_size)
    # All that determines the weights is part of the file's name.
    config = {"model": asdict(model_config), "recipe": asdict(recipe),
              "corpus": dataset.sha256, "tokenizer": dataset.tokenizer_name}
    path = checkpoint_path(size, config, folder)
    torch.manual_seed(recipe.seed)
    model = GPT(model_config).to(device)

    def batch_loss(step):
        generator = step_generator(recipe, step)
        x, y = dataset.batch(
            dataset.train, recipe.batch_size, model.block_size, generator
        )  # (B, N) each
        logits, _ = model(x.to(device))  # (B, N, V)
        # (B N, V) against (B N,): every row of the window is a lesson.
        return F.cross_entropy(logits.flatten(0, 1).float(), y.to(device).flatten())

    fit(model, batch_loss, recipe, path, config, f"{size} GPT",
        evaluate=lambda: validation_loss(model, dataset.val), retrain=retrain)
    return model.eval()


def main(argv=None):
    p = cli.parser("Train a GPT on Shakespeare, or load it if that was done before.")
    p.add_argument("--size", choices=SIZES, default="small", help="of the model")
    p.add_argument("--steps", type=int, help="default: the size's own recipe")
    args = p.parse_args(argv)
    if args.steps is not None and args.steps < 1:
        raise ValueError(f"steps is {args.steps}; it must be at least 1")
    dataset, device = cli.setup(args)
    recipe = SIZES[args.size].recipe
    # Another recipe is another file name: a short trial never stands in for the real model.
    recipe = replace(recipe, steps=args.steps or recipe.steps, seed=args.seed)
    model = get_gpt(args.size, dataset, device, args.retrain, recipe)
    loss = validation_loss(model, dataset.val)
    print(f"{args.size}: {sum(p.numel() for p in model.parameters()):,} parameters, "
          f"validation loss {loss:.3f} nats per token")


if __name__ == "__main__":
    cli.run(main)
