"""A chapter's script, from what its room declares: one text before your eyes, then the table.

    python -m nanogpt.run 01 --prompt "JULIET:" --temperatures 0.8

The table holds plain decoding, chapter 01's chain of 4 as everybody's rival, and every loop of the
chapter, in turn on the same prompts.
"""

import sys
from types import SimpleNamespace

from nanogpt import chapter, cli
from nanogpt.bench import plains, print_tables
from nanogpt.chapter import Cast, Loop, decoders
from nanogpt.data import held_out_prompts
from nanogpt.packing import for_decoding
from nanogpt.sampling import Dice, Sampler
from nanogpt.sizes import SIZES
from nanogpt.train import get_gpt


def trained_cast(args, dataset, device):
    """The trained models of the flags, see cli.target_flags; a model is loaded when it is needed.

    m.trained: the target in float32, as it was trained; m.target: its copy for decoding.
    """
    trained = get_gpt(args.size, dataset, device, args.retrain)
    return Cast(for_decoding(trained, args.precision), "trained", trained=trained,
                dataset=dataset, device=device, retrain=args.retrain, precision=args.precision)


def a_cast(dataset, device, size="baby"):
    """trained_cast with the usual flags, for lessons."""
    flags = SimpleNamespace(size=size, retrain=False, precision="auto")
    return trained_cast(flags, dataset, device)


def a_budget(text):
    """The type of a flag that takes budgets: '4' -> 4, '2-2-1' -> (2, 2, 1)."""
    counts = tuple(map(int, text.split("-")))
    return counts if "-" in text else counts[0]


def read_flags(argv, doc, loops, temperatures):
    """-> the flags, args.samplers, one for each table, and args.loop, the one that is streamed.

    Raises ValueError for a bad one.
    """
    p = cli.parser(doc)
    cli.decoding_flags(p)
    p.add_argument("--temperatures", type=float, nargs="+", default=temperatures,
                   help="one table for each; 0 is greedy")
    p.add_argument("--top-k", type=int, help="draw from the k most probable tokens only")
    p.add_argument("--top-p", type=float, default=1.0,
                   help="draw from the fewest tokens with this probability in all")
    p.add_argument("--loop", default=loops[0].title(loops[0].budgets[-1]),
                   help="which loop writes the text for --prompt")
    p.add_argument("--budgets", type=a_budget, nargs="+",
                   help="in the table, for all loops with budgets of this kind: 4, or 2-2-1")
    p.add_argument("--quick", action="store_true",
                   help="a first look: --size small and --prompts 3")
    args = p.parse_args(argv)
    if args.quick:
        args.size, args.prompts = "small", 3
    args.samplers = [Sampler(t, args.top_k, args.top_p) for t in args.temperatures]
    most = SIZES[args.size].block_size - 1
    for budget in args.budgets or ():
        numbers = budget if isinstance(budget, tuple) else (budget,)
        if not all(1 <= n <= most for n in numbers):
            raise ValueError(f"a budget is {budget}; it must be in [1, {most}], the rows that one "
                             "forward has beside the root")
    return args


def find(loops, title) -> tuple[Loop, object]:
    """-> the Loop and the budget that a title names. Raises ValueError if none has it."""
    known = {loop.title(budget): (loop, budget) for loop in loops for budget in loop.budgets}
    if title not in known:
        raise ValueError(f"loop is '{title}'; it must be one of: " + "; ".join(known))
    return known[title]


def with_budgets(loops, budgets):
    """The loops, with those of these budgets that are of their kind: 4, or (2, 2, 1)."""
    return [loop.but(budgets=tuple(b for b in budgets or () if type(b) is type(loop.budgets[0]))
                     or loop.budgets) for loop in loops]


def rival(loops):
    """Chapter 01's chain of 4, for the table of any other chapter -> a list of Loops."""
    chain, *_ = chapter.load("01").loops
    return [] if chain in loops else [chain.but(budgets=(4,))]


def main(loops, doc, argv=None, after=None, temperatures=(0.0, 1.0)):
    """What a chapter's train_and_decode.py does.

    loops: LOOPS of its room; doc: of the script; after(results): what it prints below the tables,
    of the last one; temperatures: of the tables, unless a flag says otherwise.
    """
    args = read_flags(argv, doc, loops, temperatures)
    dataset, device = cli.setup(args)
    prompt = cli.check_decoding(args, dataset)
    shown = with_budgets(loops, args.budgets)
    loop, budget = find([*loops, *shown], args.loop)
    m = trained_cast(args, dataset, device)

    print(f"\n{args.loop}:")
    steps = loop.steps(m, budget, prompt, args.samplers[-1], Dice(args.seed))
    cli.print_stream(steps, args.prompt, args.max_new_tokens, dataset.tokenizer)
    tables = print_tables(
        args, m.target, held_out_prompts(dataset, args.prompts), args.samplers,
        lambda sampler: plains(m.target, sampler) | decoders(
            rival(shown) + shown, m, sampler))
    if after:
        print()
        after(tables[args.samplers[-1].temperature])


def any_chapter(argv):
    """`python -m nanogpt.run 01 ..`: the first argument is the number of a chapter."""
    number, *flags = argv or [""]
    if number in ("-h", "--help"):
        print("python -m nanogpt.run NUMBER [flags]; those of chapter 01:\n")
        number, flags = "01", [number]
    main(chapter.load(number).loops, __doc__, flags)


if __name__ == "__main__":
    cli.run(lambda: any_chapter(sys.argv[1:]))
