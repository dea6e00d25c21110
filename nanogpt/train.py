"""Training: one loop for the target, the draft models and the draft heads.

    python -m nanogpt.train --size small
    torchrun --standalone --nproc_per_node=2 -m nanogpt.train --size baby

Muon for the hidden matrices, AdamW for the rest, linear warm-up and decay, bfloat16 where the
machine is faster with it. The state is saved as it goes and after Ctrl-C; the next run with the
same settings goes on from there. Batches depend on (seed, step) alone, so it sees the same data.
"""

import os
import time
from dataclasses import asdict, replace

import torch
import torch.distributed as dist
import torch.nn.functional as F
from tqdm import tqdm

from nanogpt import cli
from nanogpt.checkpoint import checkpoint_path, load_checkpoint, save_checkpoint
from nanogpt.device import autocast
from nanogpt.model import GPT
from nanogpt.muon import Muon
from nanogpt.sizes import SIZES


class Optimizer:
    """Muon for the weight matrices inside a model, AdamW for everything else.

    Muon orthogonalises each update, which means something for a matrix between two hidden
    spaces, but not for embeddings, output matrices or vectors.
    """

    def __init__(self, model, recipe):
        outer = {"embed.weight", "lm_head.weight"}
        named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
        hidden = [p for n, p in named if p.ndim == 2 and n not in outer]
        other = [p for n, p in named if p.ndim != 2 or n in outer]
        self.parts = []
        if other:
            self.parts.append(torch.optim.AdamW(
                other, lr=recipe.lr, betas=(0.9, 0.95), weight_decay=0.0
            ))
        if hidden:
            self.parts.append(Muon(hidden, recipe.muon_lr, recipe.momentum))
        self.peaks = [part.param_groups[0]["lr"] for part in self.parts]

    def step(self, scale):
        """One update with the learning rates scaled by `scale`."""
        for part, peak in zip(self.parts, self.peaks, strict=True):
            part.param_groups[0]["lr"] = peak * scale
            part.step()
            part.zero_grad(set_to_none=True)

    def state_dict(self):
        return [part.state_dict() for part in self.parts]

    def load_state_dict(self, states):
        for part, state in zip(self.parts, states, strict=True):
            part.load_state_dict(state)


def schedule(step, recipe):
    """Linear warm-up, then linear decay to zero: the learning rate's scale at a step."""
    return min((step + 1) / recipe.warmup, (recipe.steps - step) / recipe.steps)


def step_generator(recipe, step, rank=0):
    """The randomness of one step's batch: the same whether or not training was interrupted."""
    return torch.Generator().manual_seed(recipe.seed * 1_000_003 + step * 64 + rank)


def fit(model, batch_loss, recipe, path, config, name, evaluate=None, save_every=30.0):
    """Train `model` in place, or load it, if `path` already holds the finished weights.

    batch_loss(step) -> scalar loss of that step's batch (called under autocast).
    evaluate() -> a number printed at the end (a validation loss), or None.
    path, config: see nanogpt.checkpoint; name: shown on the progress bar.
    An interrupted run is saved every `save_every` seconds and on Ctrl-C, and resumed.
    -> seconds spent on training in this call (0.0 if the weights were loaded).
    """
    device = next(model.parameters()).device
    optimizer, first = Optimizer(model, recipe), 0
    saved = load_checkpoint(path, config, device)
    if saved is not None:
        try:
            model.load_state_dict(saved["model"])
        except RuntimeError:
            raise ValueError(f"checkpoint {path} does not fit this model; delete it") from None
        first = saved["step"]
        if first == recipe.steps:
            return 0.0
        optimizer.load_state_dict(saved["optimizer"])
    chief = not dist.is_initialized() or dist.get_rank() == 0

    def save(step, **more):
        if chief:
            save_checkpoint(path, config, {"model": model.state_dict(), "step": step, **more})

    model.train()
    start = last_save = time.perf_counter()
    bar = tqdm(range(first, recipe.steps), desc=f"train {name}", initial=first,
               total=recipe.steps, disable=not chief, mininterval=0.5, dynamic_ncols=True)
    step, smooth = first, None
    try:
        for step in bar:
            with autocast(device):
                loss = batch_loss(step)
            loss.backward()
            optimizer.step(schedule(step, recipe))
            if step % 10 == 0:
                smooth = loss.item() if smooth is None else 0.8 * smooth + 0.2 * loss.item()
                bar.set_postfix(loss=f"{smooth:.3f}")
            if time.perf_counter() - last_save > save_every:
                save(step + 1, optimizer=optimizer.state_dict())
                last_save = time.perf_counter()
        step = recipe.steps
    except KeyboardInterrupt:
        save(step, optimizer=optimizer.state_dict())
        bar.close()
        print(f"\nstopped at step {step} of {recipe.steps}; the next run goes on there")
        raise SystemExit(130) from None
    model.eval()
    seconds = time.perf_counter() - start
    value = evaluate() if evaluate is not None else None
    save(recipe.steps, val_loss=value)
    if chief:
        print(f"trained {name} in {seconds:.0f} s"
              + (f", validation loss {value:.3f}" if value is not None else ""))
    return seconds


@torch.inference_mode()
def validation_loss(model, split, batch_size=16):
    """Mean cross-entropy in nats a token, over the whole split in windows of block_size."""
    size = model.block_size
    n = (len(split) - 1) // size
    x = split[:n * size].view(n, size)
    y = split[1:n * size + 1].view(n, size)
    total = 0.0
    for i in range(0, n, batch_size):
        with autocast(model.device):
            logits, _ = model(x[i:i + batch_size].to(model.device))
        target = y[i:i + batch_size].to(model.device)
        total += F.cross_entropy(logits.flatten(0, 1).float(), target.flatten(), reduction="sum")
    return float(total) / (n * size)


def get_gpt(size, dataset, device, retrain=False, recipe=None, folder=None, compile=False):
    """A trained GPT of a named size: loaded if it was trained before, else trained now.

    dataset: nanogpt.data.Dataset; recipe: default the size's own; folder: of the checkpoints.
    Raises ValueError for an unknown size or a damaged checkpoint.
    """
    if size not in SIZES:
        raise ValueError(f"size is '{size}'; it must be one of {', '.join(SIZES)}")
    recipe = recipe or SIZES[size].recipe
    model_config = SIZES[size].config(dataset.vocab_size)
    config = {"model": asdict(model_config), "recipe": asdict(recipe),
              "corpus": dataset.sha256, "tokenizer": dataset.tokenizer_name}
    path = checkpoint_path(size, config, folder)
    if retrain:
        path.unlink(missing_ok=True)

    torch.manual_seed(recipe.seed)
    model = GPT(model_config).to(device)
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    network = torch.compile(model) if compile else model
    if world > 1:
        network = torch.nn.parallel.DistributedDataParallel(network)

    def batch_loss(step):
        generator = step_generator(recipe, step, rank)
        x, y = dataset.batch(
            dataset.train, recipe.batch_size // world, model.block_size, generator
        )
        logits, _ = network(x.to(device))  # (B, N, V)
        return F.cross_entropy(logits.flatten(0, 1).float(), y.to(device).flatten())

    fit(model, batch_loss, recipe, path, config, f"{size} GPT",
        evaluate=lambda: validation_loss(model, dataset.val))
    return model.eval()


def start_processes(device_name):
    """Join the other processes of a `torchrun`, if there are any -> the device name to use."""
    if "RANK" not in os.environ:
        return device_name
    on_cuda = torch.cuda.is_available() and device_name in ("auto", "cuda")
    dist.init_process_group("nccl" if on_cuda else "gloo")
    if not on_cuda:
        return "cpu"
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    return f"cuda:{local}"


def main(argv=None):
    args_parser = cli.parser("Train a GPT on Shakespeare, or load it if that was done before.")
    args_parser.add_argument("--size", choices=SIZES, default="small", help="of the model")
    args_parser.add_argument("--steps", type=int, help="default: the size's own recipe")
    args_parser.add_argument("--batch-size", type=int, help="sequences a step, over all processes")
    args_parser.add_argument("--compile", action="store_true", help="torch.compile the model")
    args = args_parser.parse_args(argv)
    for name in ("steps", "batch_size"):
        value = getattr(args, name)
        if value is not None and value < 1:
            raise ValueError(f"{name} is {value}; it must be at least 1")
    args.device = start_processes(args.device)
    dataset, device = cli.setup(args)
    recipe = SIZES[args.size].recipe
    recipe = replace(recipe, steps=args.steps or recipe.steps, seed=args.seed,
                     batch_size=args.batch_size or recipe.batch_size)
    model = get_gpt(args.size, dataset, device, args.retrain, recipe, compile=args.compile)
    if not dist.is_initialized() or dist.get_rank() == 0:
        loss = validation_loss(model, dataset.val)
        print(f"{args.size}: {sum(p.numel() for p in model.parameters()):,} parameters, "
              f"validation loss {loss:.3f} nats a token")
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    cli.run(main)
