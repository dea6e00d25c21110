"""Checkpoints: one file per configuration, written atomically, never mistaken for another.

The file name carries a hash of everything that determines the weights (model, recipe, corpus,
tokenizer, seed). A second run with the same settings finds its file; a run with any other
setting looks for another name and trains.
"""

import hashlib
import json
import os
from pathlib import Path

import torch

CHECKPOINTS = Path(__file__).resolve().parent.parent / "data" / "checkpoints"


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


def save_checkpoint(path, config, state):
    """Write {config, **state}: first under another name, then renamed into place.

    An interrupted write leaves the previous file as it was.
    Raises ValueError if the folder cannot be written.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save({"config": config, **state}, temporary)
        os.replace(temporary, path)
    except (OSError, RuntimeError) as error:
        raise ValueError(f"checkpoint {path} cannot be written: {error}") from None
    finally:
        temporary.unlink(missing_ok=True)


def load_checkpoint(path, config, device="cpu"):
    """The saved state, or None if there is no such file.

    Raises ValueError if the file is damaged or belongs to other settings.
    """
    if not path.exists():
        return None
    try:
        state = torch.load(path, map_location=device, weights_only=True)
        if not isinstance(state, dict):
            raise TypeError(type(state))
        saved = state["config"]
    except Exception:  # bytes that are no checkpoint make torch.load raise nearly anything
        raise ValueError(
            f"checkpoint {path} is damaged or no checkpoint of this project; "
            "delete it or run with --retrain"
        ) from None
    if saved != config:
        raise ValueError(
            f"checkpoint {path} belongs to other settings; delete it or run with --retrain"
        )
    return state
