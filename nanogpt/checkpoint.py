"""Checkpoints: one file per configuration, written atomically, never mistaken for another.

The file name carries a hash of everything that determines the weights (model, recipe, corpus,
tokenizer, seed). A second run with the same settings finds its file; a run with any other
setting looks for another name and trains. For the settings that most people ask for, weights come
along in data/weights; nanogpt/weights.py makes them.
"""

import contextlib
import hashlib
import io
import json
import logging
import os
import zipfile
from pathlib import Path

import torch

CHECKPOINTS = Path(__file__).resolve().parent.parent / "data" / "checkpoints"
WEIGHTS = CHECKPOINTS.with_name("weights")
SAID = {"config", "sha256", "validation_loss", "seconds", "machine"}  # in the index, of each file
ADVICE = "is damaged; `git checkout data/weights` or a new download brings it back"

log = logging.getLogger(__name__)  # a script prints it, see cli.run; a lesson does not


def checkpoint_path(name, config, folder=None):
    """The file for these settings. config: a dict of JSON values."""
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()
    return (folder or CHECKPOINTS) / f"{name}-{digest[:12]}.pt"


def fingerprint(model):
    """A hash of a model's weights: the part of a key that says which target a drafter is for."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def sha256(path):
    """Of a file, in hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def read_index():
    """{name of a file in data/weights: what the index says of it}, {} if there is no index.

    Raises ValueError if the index is damaged.
    """
    index = WEIGHTS / "index.json"
    try:
        entries = json.loads(index.read_text(encoding="utf-8"))
        whole = all(entry.keys() >= SAID for entry in entries.values())
    except FileNotFoundError:
        return {}
    except (ValueError, AttributeError):
        whole = False
    if not whole:
        raise ValueError(f"{index} {ADVICE}, --retrain does without")
    return entries


def shipped(config):
    """The file of the weights that came along for exactly these settings, or None.

    Raises ValueError if it, or the index, is damaged.
    """
    config = json.loads(json.dumps(config))  # as JSON has it: a tuple is a list there
    for name, said in read_index().items():
        path = WEIGHTS / name
        if said["config"] == config and path.exists():
            if sha256(path) != said["sha256"]:
                raise ValueError(f"{path} {ADVICE}, --retrain does without")
            log.info("weights: data/weights/%s, trained by this script in %s s on %s; --retrain "
                     "trains anew", name, said["seconds"], said["machine"])
            return path
    return None


def save_checkpoint(path, config, state):
    """Write {config, **state}, see write_whole."""
    content = io.BytesIO()  # torch's own writing to a full disk does not say that it is full
    torch.save({"config": config, **state}, content)
    write_whole(path, content.getbuffer())


def write_whole(path, content):
    """Write bytes: first under another name, then renamed into place.

    An interrupted write leaves the previous file as it was. Raises ValueError if it cannot be
    written.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        os.replace(temporary, path)
    except OSError as error:
        raise ValueError(f"{path} cannot be written: {error.strerror}") from None
    finally:
        with contextlib.suppress(OSError):  # a folder that cannot be written says so for itself
            temporary.unlink(missing_ok=True)


def updates_in(path):
    """How many updates the weights in a file have had; 0 if there is no such file."""
    try:
        return torch.load(path, mmap=True, weights_only=True)["step"]  # no weights are read
    except Exception:  # bytes that are no checkpoint make torch.load raise nearly anything
        return 0


def restore(model, path, config, steps, optimizer=None):
    """Load a file into a model, and into its optimizer -> the updates that they have had.

    steps: how many may be in it. Raises ValueError if the file cannot be read, is damaged, or
    belongs to other settings.
    """
    what = "is damaged or no checkpoint of this project"
    try:
        content = io.BytesIO(path.read_bytes())
        device = next(model.parameters()).device
        saved = torch.load(content, map_location=device, weights_only=True)
        if saved["config"] == config:
            model.load_state_dict(saved["model"])
            if optimizer is not None:
                optimizer.load_state_dict(saved["optimizer"])
            finite = all(tensor.isfinite().all() for tensor in model.state_dict().values())
            # torch reads over flipped bits; but the file is a ZIP archive, with checksums.
            if finite and saved["step"] in steps and not zipfile.ZipFile(content).testzip():
                return saved["step"]
        else:
            what = "belongs to other settings"
    except OSError as error:
        raise ValueError(f"checkpoint {path} cannot be read: {error.strerror}") from None
    except Exception:  # see above
        pass
    raise ValueError(f"checkpoint {path} {what}; delete it")
