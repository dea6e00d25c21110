"""Chapter 03 on the runner: its decoders, and what each head would have brought at every token.

The walk emits the target's own draws, so the text does not depend on who drafts. A tree accepts
exactly as many tokens as its deepest path agrees with that text. So one target forward over the
finished text is enough to know the heads' trees below every token of it, and to replay every
router on them, the oracle included, which in a real decoding would have to verify both trees.

    python 03_dual_draft_routing/routing_room.py    # a head for verse, one for code: every router
    python 03_dual_draft_routing/routing_room.py --taught    # each of them taught to doubt
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))  # so that a plain clone runs, too

from statistics import mean

import torch

from nanogpt import cli
from chain_specdec import speculate_chain  # chapter 01
from dual_draft_routing import (
    BothHeads,
    HeadDraft,
    HeadDrafter,
    HeadLevels,
    RecordLevels,
    RoutedDrafter,
    RoutedLevels,
    best_nodes,
    by_letters,
    by_record,
    colder,
    drafters,
    mean_confidence,
    odds,
    route,
    votes,
)
from heads_grow import grow_drawn_head, grow_heads
from nanogpt.bench import (
    Proposal,
    agreement,
    by_past,
    gain,
    in_pieces,
    plain_texts,
    rounds_of,
    tau,
    trees_everywhere,
)
from nanogpt.chapter import Loop, Model
from nanogpt.data import held_out_prompts, untouched_prompts
from nanogpt.decoding import Context, collect
from nanogpt.exact.slips import slips
from nanogpt.sampling import Dice, Sampler
from text_table import NgramDraft, TextTable  # chapter 01
from train_heads import (
    get_heads,
    get_kinds,
    get_one_head,
    heads_for_decoding,
    random_heads,
)
from tree_attention import (  # chapter 02
    PickedDraft,
    TreeDrafter,
    best_shape,
    multi_round,
    speculate,
    verify,
    walk,
)

MODELS = {
    "heads": Model(  # two draft heads on the target
        trained=lambda m: heads_for_decoding(
            get_heads(m.trained, m.dataset, m.device, m.retrain), m.target),
        random=lambda m: random_heads(m.target, m.seed)),
    "head": Model(  # one that learned everywhere
        trained=lambda m: heads_for_decoding(
            get_one_head(m.trained, m.dataset, m.device, m.retrain), m.target)[0],
        random=lambda m: random_heads(m.target, m.seed)[0]),
}

# Picked trees hold the head's best nodes, and the walk judges them. Drawn ones are chapter 02's.
# "One head" has no duty; heads 1 and 2 share the work, and "alone" each is half of it.
LOOPS = [
    Loop("routed heads, {} nodes", lambda m, n, sampler, dice: RoutedDrafter(drafters(m.heads, n)),
         speculate, walk, budgets=(8, 16), contest=(4, 8, 16, 32), family="two heads",
         proof=(2, 4), grow=grow_heads),
    *(Loop(f"head {h + 1} alone, {{}} nodes", lambda m, n, sampler, dice, h=h:
           HeadDrafter(m.heads[h], budget=n), speculate, walk, budgets=(8,), contest=(8, 16),
           family="half of two heads", proof=(2, 4), grow=grow_heads) for h in (0, 1)),
    Loop("one head, {} nodes", lambda m, n, sampler, dice: HeadDrafter(m.head, budget=n),
         speculate, walk, budgets=(8, 16), contest=(4, 8, 16, 32), family="one head",
         proof=(2, 4), grow=grow_heads),
    # As deep as the longest chain that pays, and as sure as the target: a chain is one such tree.
    Loop("one head, deep, {} nodes", lambda m, n, sampler, dice:
         HeadDrafter(colder(m.head, sampler.temperature), depth=12, budget=n), speculate, walk,
         budgets=(8,), contest=(4, 8, 12, 16, 20, 24, 32), family="one head", proof=(2, 4)),
    Loop("one head, chain of {}", lambda m, k, sampler, dice:
         TreeDrafter(HeadLevels(m.head), (1,) * k, sampler, dice), speculate, multi_round,
         budgets=(4,), contest=(1, 2, 3, 4, 6, 8, 10, 12, 16), family="one head", drawn=True,
         greedy=True, grow=grow_drawn_head),
    Loop("one head, chain of {}, chapter 01's loop", lambda m, k, sampler, dice: HeadDraft(m.head),
         speculate_chain, budgets=(4,), contest=(4, 8, 12), family="one head", drawn=True,
         greedy=True),
    Loop("one head, picked chain of {}, chapter 01's loop", lambda m, k, sampler, dice:
         PickedDraft(HeadDraft(m.head)), speculate_chain, budgets=(4,), contest=(2, 4, 8),
         family="one head"),
    Loop("one head, drawn tree {}", lambda m, shape, sampler, dice:
         TreeDrafter(HeadLevels(m.head), shape, sampler, dice), speculate, multi_round,
         budgets=((2, 2, 1, 1),),
         contest=((2, 1, 1, 1), (2, 2, 1, 1), (2, 2, 2, 2), (2, *(1,) * 7)),
         family="one head", drawn=True, proof=((2,), (2, 1)), grow=grow_drawn_head),
    # How often a first drawn child is accepted, and a second one behind it: as in chapter 02.
    Loop("one head, chain with side shoots, {} drafts", lambda m, n, sampler, dice:
         TreeDrafter(HeadLevels(m.head), best_shape(n, (0.75, 0.1)), sampler, dice), speculate,
         multi_round, budgets=(14,), contest=(10, 14), family="one head", drawn=True, proof=(2,)),
    *(Loop(f"head {h + 1} alone, chain of {{}}", lambda m, k, sampler, dice, h=h:
           TreeDrafter(HeadLevels(m.heads[h]), (1,) * k, sampler, dice), speculate, multi_round,
           budgets=(4,), contest=(4, 6, 8), family="half of two heads", drawn=True, greedy=True,
           grow=grow_drawn_head) for h in (0, 1)),
    Loop("routed heads, chain of {}", lambda m, k, sampler, dice:
         TreeDrafter(RoutedLevels(m.heads), (1,) * k, sampler, dice), speculate, multi_round,
         budgets=(4,), contest=(2, 4, 6, 8, 12, 16), family="two heads", drawn=True, greedy=True),
    Loop("routed by record, chain of {}", lambda m, k, sampler, dice:
         TreeDrafter(RecordLevels(m.heads), (1,) * k, sampler, dice), speculate, multi_round,
         budgets=(4,), contest=(4, 6, 8), family="two heads", drawn=True, greedy=True, learns=True),
]


# ---------------------------------------------------------------- all heads, at every token


def target_expects(context, tree, sampler):
    """How many drafts of a tree the target itself expects to accept: the sum of its probabilities
    of the paths. context: has read the text before the tree's root."""
    probs, paths = verify(context, tree, sampler)[0], [1.0]
    for token, parent in zip(tree.tokens.tolist()[1:], tree.parents.tolist()[1:], strict=True):
        paths.append(paths[parent] * float(probs[parent, token]))
    return sum(paths[1:])


def propose_everywhere(target, heads, text, first, sampler, kind=0):
    """trees_everywhere -> {position: Proposal}; of the two first heads' trees with target_expects,
    and `votes`. heads: HeadDrafters."""
    found, context = {}, Context(target, text[:first])
    context.prefill()
    vote = votes(target, [drafter.head for drafter in heads[:2]], text)
    for root, trees, scores in trees_everywhere(target, BothHeads(heads), text, first):
        due = [target_expects(context, tree, sampler) for tree in trees[:2]]
        found[root] = Proposal([agreement(tree, text[root + 1:]) for tree in trees],
                               [mean_confidence(s) for s in scores], kind, due=due,
                               future=text[root + 1:], vote=vote[root], before=vote[:root])
        context.commit([0], [text[root]])
    return found


class CountHead(NgramDraft):
    """A count that drafts: chapter 01's 4-gram of a Dataset's training text, as a head of this
    chapter. Its state is the end of the text."""

    def __init__(self, data):
        super().__init__(TextTable(4), data.tokenizer.vocab_size)
        self.table.read(data.train.tolist())

    @property
    def state(self):
        return torch.tensor([self.committed])

    def read(self, states, tokens):
        """See grow_tree."""
        ends = torch.cat([states, torch.tensor(tokens)[:, None]], 1)[:, -3:]
        return torch.stack([self.after((*end,)) for end in ends.tolist()]).log_softmax(-1), ends


class LetterLevels(RoutedLevels):
    """RoutedLevels that asks the letters: for which head do all of the text so far speak?"""

    def __init__(self, heads, target):
        super().__init__(heads)
        self.heads, self.target = heads, target

    def reset(self):
        super().reset()
        self.text = []

    def observe(self, tokens, hidden, rows):
        super().observe(tokens, hidden, rows)
        self.text += tokens

    def choose(self, root, rows):
        # The whole text is read anew in each round: this measures tokens, and no time.
        return int(odds(votes(self.target, self.heads, [*self.text, root]))[-1] < 0)


def tell(kinds, target, heads, sampler):
    """24 plain texts of each kind, 128 tokens behind their prompts -> {kind: propose_everywhere of
    each}."""
    known = {}
    for number, kind in enumerate(("verse", "code")):
        prompts = held_out_prompts(kinds[kind], 24)
        known[kind] = [
            propose_everywhere(target, drafters(heads.values()), text, len(prompts[0]), sampler,
                               number)
            for text in plain_texts(target, prompts, sampler)]
    return known


def pair_votes(kinds):
    """A count in place of the heads: how often one letter follows another in each kind's training
    text, every pair .1 times more -> a function of a text, its votes as in `votes`."""
    size, logs = kinds["both"].tokenizer.vocab_size, []
    for kind in "verse", "code":
        train = kinds[kind].train
        pairs = torch.bincount(train[:-1] * size + train[1:], minlength=size ** 2) + 0.1
        logs.append(pairs.view(size, size).log().log_softmax(-1))
    more = logs[0] - logs[1]
    return lambda text: [0.0, *more[text[:-1], text[1:]].tolist()]


def named_right(kinds, target, heads, prompts_of=held_out_prompts, vote=None):
    """For how many prompts do the letters speak for the head of their kind? -> right ones, all.
    prompts_of: see nanogpt/data.py; vote: see pair_votes, or else the heads vote."""
    vote = vote or (lambda prompt: votes(target, (heads["verse"], heads["code"]), prompt))
    right = [(sum(vote(prompt)) > 0) == (kind == "verse")
             for kind in ("verse", "code") for prompt in prompts_of(kinds[kind], 24)]
    return sum(right), len(right)


def turned(kinds, target, heads):
    """Of 24 plain texts of each kind, behind prompts that no other table uses, those that change
    their kind: the letters behind the prompt speak for the other head -> [(what is written, its
    propose_everywhere)]."""
    found = []
    for number, kind in enumerate(("verse", "code")):
        prompts = untouched_prompts(kinds[kind], 24)
        for text in plain_texts(target, prompts, Sampler(1)):
            own = votes(target, (heads["verse"], heads["code"]), text)[len(prompts[0]):]
            if (sum(own) > 0) == (kind == "code"):
                found.append((kinds["both"].tokenizer.decode(text), propose_everywhere(
                    target, drafters(heads.values()), text, len(prompts[0]), Sampler(1), number)))
    return found


# ---------------------------------------------------------------- every router on the same texts

PROMPT = "the prompt"  # for whom do its letters speak?
LETTERS = "the letters"  # of the prompt and of the text so far
SO_FAR = "the surest so far"  # who has promised more in all rounds
NGRAM = "a 4-gram"  # no router: the count that drafts
ROUTERS = ("verse head", "code head", "the surer head", SO_FAR, "its record", PROMPT,
           LETTERS, "knows the kind", "one head for both", "knows p", "the oracle")
GAINS = tuple((router, other) for other in (
    "code head", "one head for both", "knows the kind", "the surer head", "its record", LETTERS)
    for router in ROUTERS if router != other)


def choices(step):
    """Which head does each router keep?"""
    return {"verse head": 0, "code head": 1,
            "knows the kind": step.kind,
            "the surer head": route(step.means[:2]),
            "knows p": route(step.due),  # the target's probabilities, and not its draws
            "the oracle": route(step.lengths[:2]),
            "one head for both": 2, NGRAM: 3}


def surest_so_far(steps):
    """by_past, if each round takes the head that has promised more in all rounds and in this."""
    return by_past(steps, lambda past, root: route(
        [sum(steps[one].means[head] for one in [*past, root]) for head in (0, 1)]))


def by_prompt(steps):
    """by_past, if all rounds take the head for which the prompt's letters speak, all alike."""
    return by_past(steps, lambda past, root: int(sum(steps[min(steps)].before) < 0))


MEMORIES = {SO_FAR: surest_so_far, "its record": by_record, LETTERS: by_letters,
            PROMPT: by_prompt}


def rounds_by(proposals, router):
    """The rounds of what propose_everywhere gave. router: a name in `choices` or in MEMORIES."""
    if router in MEMORIES:
        return MEMORIES[router](proposals)
    return by_past(proposals, lambda past, root: choices(proposals[root])[router])


STRETCHES = 16, 32, 64, 128  # tokens of one kind, in a text that changes between both


def replayed(known, routers):
    """{router: {part: the rounds of every text}}. known: of `tell`; parts: "verse", "code", "both",
    and STRETCHES: each pair of a verse and a code text as one, verse first, then code first."""
    pairs = list(zip(known["verse"], known["code"], strict=True))
    parts = known | {"both": known["verse"] + known["code"]} | {
        every: [in_pieces(pair[::order], every) for order in (1, -1) for pair in pairs]
        for every in STRETCHES}
    return {router: {part: [rounds_by(text, router) for text in texts]
                     for part, texts in parts.items()} for router in routers}


def gain_on(found, router, other, part):
    """nanogpt.bench.gain on a part of `replayed`: a verse and a code text are left out together."""
    return gain(found[router][part], found[other][part], 1 if part in ("verse", "code") else 2)


def print_gains(found, gains, part="both"):
    """What is gained. found: of `replayed`; gains: pairs of a router and the one that it is
    compared with; part: see `replayed`."""
    for router, other in gains:
        share, error = gain_on(found, router, other, part)
        print(f"{router}, over {other}:".ljust(48), f"{share:+.1%} \u00b1 {error:.1%}")


def print_taus(found, gains=(), parts=("verse", "code", "both")):
    """tau of each router, and print_gains."""
    cli.print_table(["tokens a round", *parts], [
        [router, *(f"{tau(rounds[part]):.2f}" for part in parts)]
        for router, rounds in found.items()])
    print()
    print_gains(found, gains)


def print_drawn(kinds, target, heads, sampler):
    """tau of chains of 4 and 8 that are drawn, the head chosen before the draws; and their gains
    over one head's. heads: of get_kinds, and a CountHead."""
    verse, code, both, ngram = heads.values()
    for K in 4, 8:
        found = {}
        for name, levels in (("one head for both", HeadLevels(both)),
                             (NGRAM, HeadLevels(ngram)),
                             ("code head", HeadLevels(code)),
                             (PROMPT, None),  # it names the head of its kind, see named_right
                             (LETTERS, LetterLevels([verse, code], target)),
                             ("how sure?", RoutedLevels([verse, code])),
                             ("what record?", RecordLevels([verse, code]))):
            found[name] = [collect(speculate(
                target, TreeDrafter(levels or HeadLevels(heads[kind]), (1,) * K, sampler, dice),
                prompt, sampler, dice, multi_round), 128).accepted for kind in ("verse", "code")
                for prompt, dice in zip(held_out_prompts(kinds[kind], 24), map(Dice, range(24)),
                                        strict=True)]
            share, error = gain(found[name], found["one head for both"], 2)
            print(f"{K} drawn, {name}: {tau(found[name]):.2f}, {share:+.1%} \u00b1 {error:.1%}")


def opinion(steps, head):
    """-> the drafts that a head expects, those that it gets, and how often the surer-head router
    takes it where it reaches further (right), and where the other does (wrong)."""
    ahead = [(step.lengths[head] - step.lengths[1 - head]) * (route(step.means[:2]) == head)
             for step in steps]
    return (mean(8 * step.means[head] for step in steps),
            mean(step.lengths[head] for step in steps),
            mean(a > 0 for a in ahead), mean(a < 0 for a in ahead))


def says_and_gets(known):
    """-> (says, gets) of a head in its own kind, and in the other's; see `opinion`. The mean of
    both heads."""
    steps = [step for texts in known.values() for text in texts for step in text.values()]
    return [(mean(8 * step.means[step.kind ^ away] for step in steps),
             mean(step.lengths[step.kind ^ away] for step in steps)) for away in (0, 1)]


def print_opinions(known):
    """`opinion` of each head on each kind. known: of tell."""
    rows = []
    for kind, texts in known.items():
        for head, name in enumerate(known):
            says, gets, right, wrong = opinion([step for text in texts for step in text.values()],
                                               head)
            rows.append([f"{name}/{kind}", f"{says:.2f}", f"{gets:.2f}", f"{gets / says:.2f}",
                         f"{right:.0%}", f"{wrong:.0%}"])
    cli.print_table(["head/where", "says", "gets", "ratio", "right", "wrong"], rows)


def main(argv=None):
    p = cli.parser("A head for verse, a head for code: what does routing gain?", corpus=False)
    p.add_argument("--taught", action="store_true", help="heads that were taught to doubt")
    args = p.parse_args(argv)
    _, device = cli.setup(args)
    kinds, target, heads = get_kinds(device, args.retrain, args.taught)
    heads[NGRAM] = CountHead(kinds["both"])
    for prompts_of in held_out_prompts, untouched_prompts:
        for vote in None, pair_votes(kinds):
            print("{} of {} prompts name their head".format(
                *named_right(kinds, target, heads, prompts_of, vote)))
    for temperature in 0.5, 1.0:  # greedy text of so small a target repeats itself
        known = tell(kinds, target, heads, Sampler(temperature))
        print("\ntemperature", temperature)
        found = replayed(known, (*ROUTERS, NGRAM))
        print_taus(found, GAINS, ("verse", "code", "both", *STRETCHES))
        for every in STRETCHES:
            print(f"\nthe kind changes every {every} tokens")
            print_gains(found, GAINS, every)
        print_opinions(known)
    print_drawn(kinds, target, heads, Sampler(1))


# ---------------------------------------------------------------- what goes wrong

NEXT = "root += 1 + accepted[-1]"
WRONG = {
    "best_nodes": slips(best_nodes, {
        "the root is counted in the budget": ("ranked[:budget]", "ranked[:budget - 1]"),
        "the first rows are kept instead of the best": (
            "ranked[:budget]", "range(1, budget + 1)"),
        "a tie goes to the later row": ("range(1, len(scores))", "range(1, len(scores))[::-1]"),
    }),
    "rounds_of": slips(rounds_of, {
        "the target's own token is not counted": (NEXT, "root += max(1, accepted[-1])"),
        "every position is a root, also one inside a round": (NEXT, "root += 1"),
        "the target's own token counts as an accepted draft": (
            "accepted.append(lengths[root])", "accepted.append(lengths[root] + 1)",
            NEXT, "root += accepted[-1]"),
    }),
}
HARMLESS = {  # the proofs cannot see them, and here is why
    "rounds_of": "a replay; no loop asks for it",
    "the root is counted in the budget": "a smaller tree",
    "a tie goes to the later row": "random networks make no ties",
}


if __name__ == "__main__":
    cli.run(main)
