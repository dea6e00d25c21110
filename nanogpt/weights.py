"""What comes along in data/: weights, and a byte-pair vocabulary; each is made by one command.

    python -m nanogpt.weights --make
    python -m nanogpt.weights --make-vocabulary

Weights are stored in float16. A drafter is trained on its target as it is stored, and its settings
hold the fingerprint of those weights: it fits this target and no other. Names and shapes are those
of the models' state_dict. nanogpt/checkpoint.py finds them again by their settings.
"""

import base64
import json
import platform
import tempfile
import time
from functools import partial
from pathlib import Path

import torch
from tiktoken._educational import bpe_train

from nanogpt import checkpoint, cli, train
from nanogpt.chapter import load
from nanogpt.checkpoint import read_index, save_checkpoint, sha256
from nanogpt.data import SPLIT, VOCABULARY, load_text
from nanogpt.device import device_name
from nanogpt.sizes import SIZES

COMMAND = "python -m nanogpt.weights --make"


def store(name, get, loss, folder, device):
    """Train one model, store it in float16 and write it into the index -> the model as stored.

    get(scratch) -> a module; its checkpoint, the trained weights, lies in the folder `scratch`;
    loss(module) -> its validation loss.
    """
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        model = get(Path(scratch))
        [path] = Path(scratch).iterdir()
        saved = torch.load(path, map_location="cpu", weights_only=True)
    seconds = round(time.perf_counter() - start)
    halves = {key: tensor.half() for key, tensor in saved["model"].items()}
    model.load_state_dict(halves)  # from here on it is what others will load
    save_checkpoint(folder / f"{name}.pt", saved["config"],
                    {"model": halves, "step": saved["step"]})
    index = folder / "index.json"
    entries = json.loads(index.read_text(encoding="utf-8")) if index.exists() else {}
    on = device_name(device) if device.type != "cpu" else (
        f"{platform.machine()} CPU, {torch.get_num_threads()} threads")
    entries[f"{name}.pt"] = {
        "config": saved["config"], "sha256": sha256(folder / f"{name}.pt"),
        "validation_loss": round(loss(model), 4), "seconds": seconds,
        "machine": f"{on}, torch {torch.__version__}", "command": COMMAND}
    index.write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")
    return model


def make(folder, dataset, device, recipes=None):
    """Train all of them beside the folder, and put them in its place when all are there.

    recipes: others than the usual ones, by name.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="weights-", dir=folder.parent) as beside:
        new, old = Path(beside) / "new", Path(beside) / "old"
        new.mkdir()
        try:
            train_all(new, dataset, device, recipes or {})
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"stopped; {folder} is as it was") from None
        if folder.exists():
            folder.rename(old)
        new.rename(folder)


def train_all(folder, dataset, device, recipes):
    """Fill an empty folder; see `make`."""
    heads, drafters = (load(number).module(name) for number, name in (
        ("03", "train_heads"), ("05", "train_drafter")))
    recipes = {"drafter": drafters.RECIPE, "heads": heads.RECIPE, **recipes}

    def keep_target(name, size, data):
        get = partial(train.get_gpt, size, data, device, True, recipes.get(size))
        return store(name, get, lambda model: train.validation_loss(model, data.val), folder,
                     device)

    def keep_heads(name, target, data, train_them):
        def get(scratch):
            found = train_them(recipe=recipes["heads"], folder=scratch)
            return heads.Heads(target, [head.config for head in found]).to(device)  # not filled yet

        store(name, get, lambda both: heads.heads_validation_loss(both.heads, data), folder, device)

    for size in (size for size in SIZES if SIZES[size].shipped):
        target = keep_target(size, size, dataset)
        if size == "draft":  # a draft model has no drafters
            continue
        store(f"{size}-block-drafter", partial(
            drafters.get_drafter, target, dataset, drafters.BlockConfig.reading(target), device,
            True, recipes["drafter"]),
            lambda model: drafters.drafter_validation_loss(model, dataset),
            folder, device)
        keep_heads(f"{size}-draft-heads", target, dataset,
                   partial(heads.get_heads, target, dataset, device, True))
        keep_heads(f"{size}-one-head", target, dataset,
                   partial(heads.get_one_head, target, dataset, device, True))
    kinds = heads.kinds_of_text()
    target = keep_target("small-verse-and-code", "small", kinds["both"])
    for kind, data in kinds.items():
        keep_heads(f"small-head-for-{kind}", target, data,
                   partial(heads.get_kind_head, kind, data, target, device, True))
    turns = heads.in_turn(kinds)
    keep_heads("small-taught-heads", target, turns,
               partial(heads.get_taught_heads, turns, target, device, True))


def make_vocabulary(text, size, path):
    """The `size` byte-pair tokens of a text, the first 256 the bytes, into a file as tiktoken has
    it: 'base64 rank' a line. The trainer is tiktoken's own; it takes some minutes."""
    ranks = bpe_train(text, size, SPLIT, visualise=None)
    lines = [f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items()]
    path.write_text("".join(lines), encoding="ascii", newline="\n")


def main(argv=None):
    p = cli.parser(__doc__, retrain=False)
    p.add_argument("--make", action="store_true", help="train all and write data/weights anew")
    p.add_argument("--make-vocabulary", action="store_true", help="of data/shakespeare.txt")
    args = p.parse_args(argv)
    if args.make_vocabulary:
        make_vocabulary(load_text(), 768, VOCABULARY)
    dataset, device = cli.setup(args)
    if args.make:
        make(checkpoint.WEIGHTS, dataset, device)
    index = read_index()
    if not index:
        raise ValueError(f"{checkpoint.WEIGHTS / 'index.json'} is not there; --make makes it")
    for name, entry in index.items():
        print(f"{name:24} validation loss {entry['validation_loss']:.3f}, trained in "
              f"{entry['seconds']} s on {entry['machine']}")


if __name__ == "__main__":
    cli.run(main)
