"""Chapter 05's room: its decoders, a first guess at what their rounds cost, and what goes wrong;
for its lessons six toys, the length of a drawn chain, and what a tree is worth beside others.
"""

from collections import Counter
from functools import cache
from itertools import accumulate

import torch

from block_diffusion import BlockConfig, BlockDraft
from block_grow import grow_argmax, grow_best, grow_drawn
from chain_specdec import accept, acceptance_probability, residual  # chapter 01
from conditional_marginals import BlockLevels, ConditionalTreeDrafter, SlotLevels
from ddtree import (
    BlockChainDrafter,
    DDTreeDrafter,
    best_first,
    best_first_tree,
    draft_temperature,
    marginal_children,
    node_masses,
)
from draft_law import bias, mend
from nanogpt.bench import cost_curve, median_ms
from nanogpt.chapter import Loop, Model
from nanogpt.data import untouched_prompts
from nanogpt.decoding import collect
from nanogpt.exact.enumeration import outcomes, token_law
from nanogpt.exact.slips import slips
from nanogpt.sampling import Dice, Sampler
from ngram import LookupDrafter, NgramTreeDrafter
from priced_grow import grow_priced, grow_priced_chain
from priced_trees import (
    Ledger,
    PricedChainDrafter,
    PricedTreeDrafter,
    best_size,
    prices,
    worth_verifying,
)
from train_drafter import drafter_for_decoding, get_drafter, random_drafter
from tree_attention import (  # chapter 02
    Tree,
    TreeDrafter,
    multi_round,
    speculate,
    walk,
)

MODELS = {
    "block": Model(  # the block-diffusion drafter, with its transition table
        trained=lambda m: drafter_for_decoding(get_drafter(
            m.trained, m.dataset, BlockConfig.reading(m.trained), m.device, m.retrain), m.target),
        random=lambda m: random_drafter(m.target, m.seed, transition=True)),
    "ledger": Model(  # what rounds cost and bring: ledger(whose, budget, sampler) -> a Ledger
        trained=lambda m: shared_ledgers(*guessed_price(m)),
        # For the proofs a new one for each text, on a machine whose rows cost more and more.
        random=lambda m: lambda whose, n, sampler, trust=1.0: Ledger(
            [1 + 0.02 * i ** 1.5 for i in range(n + 1)], 0.1, trust, clock=None)),
    "shape": Model(  # of the fixed tree: shape(n, T) -> n prefixes in ranks
        # Of 48 untouched texts the contest has those in between, and others have none.
        trained=lambda m: shapes(m.block, untouched_prompts(m.dataset, 48)[1::2]),
        random=lambda m: lambda n, T: [(0,), (1,), (0, 1), (0, 1, 0)][:n]),
}


def shared_ledgers(price, draft_ms):
    """-> ledger(whose, budget, sampler): the same Ledger for all texts of one method."""
    return cache(lambda whose, n, sampler, trust=1.0: Ledger(price[:n + 1], draft_ms, trust))


def by_price(make):
    """-> the drafter of a Loop: of the trees that `make` would grow, as much as pays."""
    return lambda m, n, sampler, dice: PricedTreeDrafter(
        make(m.block, n, draft_temperature(sampler.temperature)), m.ledger(make, n, sampler))


def chain_by_price(m, k, sampler, dice):
    k = min(k, m.block.config.length)  # a pass has no more slots
    chain = TreeDrafter(BlockLevels(m.block), (1,) * k, sampler, dice)
    return PricedChainDrafter(chain, m.ledger(BlockLevels, k, sampler, trust=0.6))


class FirstChildren(NgramTreeDrafter):
    """The heap's rival in equal code: it is shown the best child of a node alone, so its tree is a
    chain of favourites."""

    def ranked(self, context):
        return [best[:1] for best in super().ranked(context)]


# The paper's first: the best tree of its marginals. Then one path of it, the tree on conditionals,
# and drafts that are drawn; as many of them as pay; and a tree without a network, from what the
# text itself has said.
LOOPS = [
    Loop("DDTree, {} nodes", lambda m, n, sampler, dice:
         DDTreeDrafter(m.block, n, draft_temperature(sampler.temperature)), speculate, walk,
         budgets=(7, 15), contest=(1, 3, 7, 15, 31, 63), family="block drafter", proof=(2, 4),
         grow=grow_best),
    Loop("conditional DDTree, {} nodes", lambda m, n, sampler, dice:
         ConditionalTreeDrafter(m.block, n, draft_temperature(sampler.temperature)),
         speculate, walk, budgets=(7, 15), contest=(1, 3, 7, 15, 31, 63), family="block drafter",
         proof=(2, 4), grow=grow_best),
    Loop("fixed tree of the same pass, {} nodes", lambda m, n, sampler, dice:
         FixedTree(m.block, m.shape(n, sampler.temperature), draft_temperature(
             sampler.temperature)), speculate, walk, budgets=(15,),
         contest=(3, 7, 15, 31),
         family="block drafter", proof=(2, 4)),
    Loop("block chain of {}, the favourites", lambda m, k, sampler, dice:
         BlockChainDrafter(m.block, k), speculate, walk, budgets=(5,), contest=(2, 3, 4, 5),
         family="block drafter", proof=(2, 5), grow=grow_argmax),
    Loop("slots, drawn chain of {}", lambda m, k, sampler, dice:
         TreeDrafter(SlotLevels(m.block), (1,) * k, sampler, dice), speculate, multi_round,
         budgets=(3,), contest=(2, 3, 4, 5), family="block drafter", drawn=True, proof=(2,)),
    Loop("slots, drawn tree {}", lambda m, shape, sampler, dice:
         TreeDrafter(SlotLevels(m.block), shape, sampler, dice), speculate, multi_round,
         budgets=((2, 2, 1),), contest=((2, 1, 1), (2, 2, 1)), family="block drafter", drawn=True,
         proof=((2, 1),)),
    Loop("block, drawn chain of {}", lambda m, k, sampler, dice:
         TreeDrafter(BlockLevels(m.block), (1,) * k, sampler, dice), speculate, multi_round,
         budgets=(3,), contest=(1, 2, 3, 4, 5), family="block drafter", drawn=True,
         grow=grow_drawn),
    Loop("block, drawn tree {}", lambda m, shape, sampler, dice:
         TreeDrafter(BlockLevels(m.block), shape, sampler, dice), speculate, multi_round,
         budgets=((2, 2, 1),), contest=((2, 1, 1), (2, 2, 1)), family="block drafter", drawn=True,
         proof=((2,), (2, 1)), grow=grow_drawn),
    Loop("DDTree by price, up to {}", by_price(DDTreeDrafter), speculate, walk, budgets=(63,),
         contest=(63,), family="block drafter", proof=(2, 4), learns=True, grow=grow_priced),
    Loop("conditional DDTree by price, up to {}", by_price(ConditionalTreeDrafter), speculate,
         walk, budgets=(63,), contest=(63,), family="block drafter", proof=(2, 4), learns=True,
         grow=grow_priced),
    Loop("block, drawn chain by price, up to {}", chain_by_price, speculate, multi_round,
         budgets=(5,), contest=(5,), family="block drafter", drawn=True, learns=True,
         grow=grow_priced_chain),
    Loop("n-gram lookup, {} nodes", lambda m, n, sampler, dice: LookupDrafter(n), speculate, walk,
         budgets=(8,), contest=(2, 4, 8, 16), family="lookup", proof=(2, 4)),
    # A third beside greedy text, all of it at temperature 1: tried on prompts of no contest.
    Loop("4-gram, {} nodes", lambda m, n, sampler, dice:
         NgramTreeDrafter(n, m.table, (1 + 2 * sampler.temperature) / 3), speculate, walk,
         budgets=(8,), contest=(4, 8, 16, 32), family="4-gram", proof=(2, 4)),
    Loop("4-gram, the heap's chain of {}", lambda m, n, sampler, dice: FirstChildren(n, m.table),
         speculate, walk, budgets=(8,), contest=(4, 8, 16), family="4-gram", proof=(2, 4)),
]


# ---------------------------------------------------------------- what a round may cost

ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)  # of a tree with its root
MOST = ROWS[-1] - 1  # nodes of a tree


def build_ms(drafter):
    """Median milliseconds in which a DDTreeDrafter builds its tree from one pass, on the CPU."""
    length = drafter.network.config.length
    slots = torch.randn(length, drafter.network.target.config.vocab_size)
    drafter.logits = lambda *_: slots  # of this drafter alone: its pass is done
    return median_ms(lambda: drafter.propose(0, length), slots.device)


def guessed_price(m):
    """-> a first guess at what a round costs here, for a Ledger: [ms for 0..MOST nodes], draft_ms.
    """
    price = prices(cost_curve(m.target, ROWS, repeats=10), MOST)
    # A node is popped before it is verified. Where rows are nearly free, on a GPU, that is dearer.
    pop_ms = build_ms(DDTreeDrafter(m.block, MOST)) / MOST
    # A forward with a new number of rows first makes its kernels, for milliseconds, and a GPU has
    # recorded few of them. So every number is as dear as the next in ROWS, and none lies between.
    rows = [next(size for size in ROWS if size > n) for n in range(MOST + 1)]
    # A pass: half a plain step. Rounds will tell.
    return [price[n - 1] + n * pop_ms for n in rows], price[0] / 2


# ---------------------------------------------------------------- what goes wrong

MASSES = "torch.where(tree.mask[1:, 1:], own, 0.0).sum(-1).exp()"
ROOT, POP = "prefixes, scores = [(root,)], [0.0]", "minus_score, parent, rank = heapq.heappop(heap)"
CHILD, SIBLING = "scores[row] + below[row][0][0]", "scores[parent] + ranked[rank + 1]"
GAINS = "sum(masses[:n]) - rate * ms[n]"


def cut_chain(extra, whole=PricedChainDrafter.draft):
    """-> a `draft` whose chain is cut where its drafter gives a draft .5 or less.

    extra: 0 ends the chain before this draft, 1 behind it.
    """
    def draft(self, root, room, rate, alpha):
        tree, length = whole(self, root, room, rate, alpha)
        if length > 0:
            chances = tree.draft_probs[range(length), tree.tokens[1:]].tolist()
            keep = 1 + [chance > 0.5 for chance in [*chances, 0.0]].index(False) + extra
            tree = Tree(tree.tokens[:keep], tree.parents[:keep], tree.draft_probs[:keep])
        return tree, len(tree) - 1

    return draft


MENDED = "return law, residual(p, law)"
MOVED, FILLED = "(law - law.sum() * q) * a", "moved - moved.sum() * residual(p, q)"
WRONG = {
    "node_masses": slips(node_masses, {
        "a node keeps only its own probability": (MASSES, "own.exp()"),
        "the position is one too deep": ("depths - 1", "depths"),
        "the root is among the masses": (MASSES, f"torch.cat([torch.ones(1), {MASSES}])"),
        "the logarithms are never exponentiated": (MASSES, MASSES.removesuffix(".exp()")),
        "0 times -inf enters the sum": (
            "torch.where(tree.mask[1:, 1:], own, 0.0)", "tree.mask[1:, 1:] * own"),
    }),
    "best_first": slips(best_first, {
        "the heap pops the worst prefix first": (
            POP, f"{POP}\nminus_score = -minus_score", "-below[0][0][0]", "below[0][0][0]",
            "(-score, parent, rank + 1)", "(score, parent, rank + 1)",
            "(-score, row, 0)", "(score, row, 0)"),
        "the root comes out as a node": (
            ROOT, f"yield root, -1, 1.0\n{ROOT}"),
        "a score comes out where the mass should": ("math.exp(-minus_score)", "-minus_score"),
        "siblings are never pushed": ("rank + 1 < len(ranked)", "False"),
        "children are never pushed": ("heapq.heappush(heap, (-score, row, 0))", "pass"),
        "the child takes over its parent's rank": (
            CHILD, "scores[row] + below[row][0][rank]", "(-score, row, 0)", "(-score, row, rank)"),
        "the next sibling's term is added to the node's own score": (
            SIBLING, "scores[row] + ranked[rank + 1]"),
        "the sibling keeps the old rank's score": (SIBLING, "scores[parent] + ranked[rank]"),
        "the log-probabilities are multiplied": (CHILD, "scores[row] * below[row][0][0]"),
    }),
    "worth_verifying": slips(worth_verifying, {
        "the price of the next row stands for all behind it": (
            "rate * slope[n]", "rate * (price[n + 1] - price[n])"),
        "what was popped on the way to a step stays": ("return popped[:best]", "return popped"),
        "the drafter's masses are taken at their word": ("trust * node[2]", "node[2]"),
        "the milliseconds are no tokens yet": (
            "rate * (price[n + 1] - price[n])", "price[n + 1] - price[n]"),
        "every node pays for the root's row again": (
            "price[n + 1] - price[n]", "price[n + 1]"),
    }),
    "best_size": slips(best_size, {
        "the first node that loses ends it, although the next one may be nearly free": (
            "return gains.index(max(gains))",
            "return next((n for n in range(len(ms) - 1) if gains[n + 1] <= gains[n]), len(ms) - 1)",
        ),
        "this round's own tokens per millisecond are maximised": (
            GAINS, "(1 + sum(masses[:n])) / ms[n]"),
        "the milliseconds are no tokens yet": (GAINS, "sum(masses[:n]) - ms[n]"),
        "the price of n nodes is read one row too early": (
            GAINS, "sum(masses[:n]) - rate * ms[max(n - 1, 0)]"),
        "each node is weighed alone, not with those before it": (
            GAINS, "(masses[n - 1] if n else 0) - rate * (ms[n] - ms[0])"),
    }),
    "bias": slips(bias, {
        "the rounds in which nothing is sent are forgotten": (MOVED, "(law - q) * a"),
        "every draft that comes too often is accepted": (MOVED, "law - law.sum() * q"),
        "who is accepted too often is missing nowhere": (FILLED, "moved"),
        "what is accepted too often is added to the residual's draws": (
            FILLED, "moved + moved.sum() * residual(p, q)"),
        "after a rejection the token is drawn from p": (FILLED, "moved - moved.sum() * p"),
    }),
    "mend": slips(mend, {wrong: (MENDED, f"return {pair}") for wrong, pair in {
        "the judge is told q": "q, residual(p, law)",
        "silence still draws from p": "law, p",
        "silence draws what p has above q": "law, residual(p, q)",
        "the law is scaled up, but silence is a rejection": "law / law.sum(), residual(p, law)",
        "the other pair, which is right, but accepts fewer drafts": "law / law.sum(), p",
    }.items()}),
    "draft": slips(PricedChainDrafter.draft, {
        "the chain ends before the first draft that it does not like": cut_chain(0),
    }),
}
ANY_TREE = "another tree is drafted, and the walk is right on any tree"
HARMLESS = {  # the proofs cannot see them, and here is why
    **dict.fromkeys(WRONG["best_first"].keys() - {
        "the root comes out as a node", "the child takes over its parent's rank"}, ANY_TREE),
    "node_masses": "a prediction; no loop asks for it",
    "worth_verifying": ANY_TREE,
    "best_size": "worth_verifying stands in its place",
    **dict.fromkeys(("bias", "mend"), "no loop hides a drawn draft"),
}


# ---------------------------------------------------------------- the one bug, in six toys


def judged(draft, q, p, dice):
    """One draft, judged by chapter 01's rule, which is told q -> the token that is written, and
    whether that is the draft."""
    accepted, token = accept([draft], [q], torch.stack([p, p]), dice)
    return draft if accepted else token, bool(accepted)


def always(token, q):
    """The law of a draft that is `token` for sure."""
    return torch.eye(len(q), dtype=q.dtype)[token]


def top_token(p, q, dice, told):
    """The favourite is sent, for sure. told: now the judge knows how the draft came."""
    return judged(0, always(0, q) if told else q, p, dice)


def smaller_of_two(q):
    """The law of the smaller of two tokens that are drawn from q."""
    rest = q.flip(0).cumsum(0).flip(0)  # of this token or a later one
    return rest ** 2 - (rest - q) ** 2


def surer_of_two(p, q, dice, told):
    """Two draws from a perfect q, and the surer one is sent, which is the smaller token."""
    return judged(min(dice.draw(q), dice.draw(q)), smaller_of_two(q) if told else q, p, dice)


def better_of_two_walks(p, _, dice, told):
    """Both trees guess token 0. Each has a draw of its own, and the walk that got further stays;
    told: one draw serves both."""
    one = dice.draw(p)
    token = one if told or one == 0 else dice.draw(p)
    return token, token == 0


def hidden_if_rare(p, q, dice, told=False):
    """A draft that came with less than one half is not sent: the target draws by itself. told: it
    draws what p lacks, for the judge knows the law with its hole."""
    draft, shown = dice.draw(q), q >= 0.5
    law, silent = mend(p, q, shown) if told else (q, p)
    return judged(draft, law, p, dice) if shown[draft] else (dice.draw(silent), False)


def never_the_same_twice(p, q, dice, told):
    """Two children are drawn, never the same twice, and judged one after the other as if each were
    a draw from the whole q."""
    first = dice.draw(q)
    others = q * (torch.arange(len(q)) != first) / (1 - q[first])
    for draft, law in (first, q), (dice.draw(others), others if told else q):
        if dice.flip(acceptance_probability(p, law, draft)):
            return draft, True
        p = residual(p, law)
    return dice.draw(p), False


def toys(told=False, cooled=lambda p: p):
    """Six times the draft comes by one law, and the judge is told another.

    told: the judge is told the right one; cooled: what becomes of the target's distribution, (V,)
    -> (V,). -> {what was done: (chapter, how often token 0 is written, how often a draft is
    accepted, both by enumeration, p)}
    """
    two, even, heap, three, wide = (torch.tensor(row, dtype=torch.float64) for row in (
        [0.8, 0.2], [0.5, 0.5], [0.6, 0.4], [0.4, 0.2, 0.4], [0.3, 0.6, 0.1]))
    cases = {
        "the favourite is sent": ("02", two, two, top_token),
        "the surer of two draws is sent": ("03", two, two, surer_of_two),
        "the longer of two walks is kept": ("04", even, even, better_of_two_walks),
        "the heap's choice is sent": ("05", even, heap, top_token),
        "two siblings, never the same": ("02", three, wide, never_the_same_twice),
        "a draw is hidden if its q is below .5": ("here", two, two, hidden_if_rare),
    }
    found = {}
    for name, (chapter, p, q, run) in cases.items():
        drawn = [*outcomes(lambda dice, p=p, q=q, run=run: run(cooled(p), q, dice, told))]
        written = sum(chance for (token, _), chance in drawn if token == 0)
        taken = sum(chance for (_, accepted), chance in drawn if accepted)
        found[name] = chapter, written, taken, p.tolist()
    return found


def round_by_round(p, q, law):
    """What one draft from `law` writes if the rule is told q, every sequence of draws visited; (V,)
    all. law: it may sum to less than 1; in the other rounds nothing is sent."""
    def run(dice):
        if not dice.flip(float(law.sum())):
            return dice.draw(p)  # the target by itself
        return judged(dice.draw(law / law.sum()), q, p, dice)[0]

    return token_law(run, len(p))


def damage(p, q, law):
    """How much of the probability stands at wrong tokens if the rule is told q, and drafts come by
    another law: the mean over N places. (N, V) each."""
    places = zip(p, q, law, strict=True)
    return sum(float(bias(*place).abs().sum()) / 2 for place in places) / len(p)


# ---------------------------------------------------------------- what a tree is worth


def shape_tree(root, log_probs, shape):
    """A tree of fixed ranks. log_probs (L, V); shape: prefixes in ranks, parents first; longer
    ones than L are left out."""
    ranked = log_probs.argsort(-1, descending=True).tolist()
    kept = [u for u in shape if len(u) <= len(ranked)]
    row = {(): 0} | {u: i for i, u in enumerate(kept, 1)}
    return Tree([root, *(ranked[len(u) - 1][u[-1]] for u in kept)],
                [-1, *(row[u[:-1]] for u in kept)])


class FixedTree(DDTreeDrafter):
    """The heap's rival with equal rows: the same ranks in every round.

    shape: prefixes in ranks, parents first.
    """

    def __init__(self, network, shape, temperature):
        super().__init__(network, len(shape), temperature)
        self.shape = shape

    def propose(self, root, room):
        return shape_tree(root, self.marginals(root, room), self.shape)


class Watched(FixedTree):
    """It keeps the marginals of all its passes, in `seen`."""

    def __init__(self, network, shape, temperature):
        super().__init__(network, shape, temperature)
        self.seen = []

    def marginals(self, root, room):
        self.seen.append(super().marginals(root, room))
        return self.seen[-1]


def accepted_shape(passes, texts, budget):
    """The `budget` prefixes in ranks that would have been accepted most often, parents first.

    passes: log q, (L, V) each; texts: what plain decoding wrote behind each, L tokens or more;
    behind shorter ones the pass is left out.
    """
    counts = Counter()
    for log_q, tokens in zip(passes, texts, strict=True):
        if len(tokens) >= len(log_q):
            ranked = log_q.argsort(-1, descending=True).tolist()
            ranks = tuple(row.index(token) for row, token in zip(ranked, tokens, strict=False))
            counts.update(ranks[:depth] for depth in range(1, len(ranks) + 1))
    return sorted(counts, key=lambda u: (-counts[u], len(u), u))[:budget]


def shapes(network, texts, tokens=64):
    """-> shape(n, T): the n prefixes that these texts, token ids, would have accepted most, counted
    in the rounds of this same shape."""
    @cache
    def watched(T, shape):
        passes, behind = [], []
        for seed, prompt in enumerate(texts):
            watch = Watched(network, shape, draft_temperature(T))
            found = collect(speculate(network.target, watch, prompt, Sampler(T), Dice(seed), walk),
                            tokens)
            ends = accumulate((len(step.tokens) for step in found.steps[:-1]), initial=1)
            passes += watch.seen
            behind += [found.tokens[end:][:network.config.length] for end in ends]
        return passes, behind

    @cache
    def shape(n, T):
        tried = [((0,),)]
        for _ in range(4):  # where its rounds begin depends on the shape, so it is counted again
            tried.append(tuple(accepted_shape(*watched(T, tried[-1]), n)))
        return min(tried[1:], key=lambda one: len(watched(T, one)[0]))  # in the fewest rounds

    return shape


@torch.inference_mode()
def target_masses(target, text, tree, T=1.0):
    """p(u) of every node but the root, (N - 1,): their sum is the number of accepted drafts that
    the target expects. text: token ids, the root last; T: its temperature."""
    cache = target.new_cache()
    target(torch.tensor([text[:-1]]), cache=cache)
    cache.commit(list(range(len(text) - 1)))
    positions = (cache.length + tree.depths).to(target.device)
    logits, _ = target(torch.tensor([tree.tokens.tolist()]), positions, tree.mask, cache)
    log_p = Sampler(T)(logits[0].double().cpu()).log()[tree.parents[1:], tree.tokens[1:]]
    return torch.where(tree.mask[1:, 1:].cpu(), log_p, 0.0).sum(-1).exp()


def oracle_tree(target, text, budget, depth=5):
    """The best tree there is: the heap asks the target itself for every prefix."""
    @torch.inference_mode()
    def children(prefix):
        if len(prefix) > depth:
            return [], []
        logits, _ = target(torch.tensor([[*text[:-1], *prefix]]))
        ranked = torch.log_softmax(logits[0, -1].double(), -1).sort(descending=True)
        return ranked.values.tolist(), ranked.indices.tolist()

    return best_first_tree(text[-1], children, budget)


def one_pass(network, text):
    """The drafter's marginals behind a text: token ids, the root last -> log q_1 .. q_L (L, V)."""
    block = BlockDraft(network)
    _, hidden = network.target(torch.tensor([text[:-1]]))
    block.observe(text[:-1], hidden, list(range(len(text) - 1)))
    return block.marginals(text[-1], network.config.length)


@torch.inference_mode()
def perfect_pass(target, text, length, samples=256):
    """What the best of all slots would say: the target's own marginals -> log q_1 .. q_L (L, V).

    A mean over so many continuations that the target draws; text: token ids, the root last.
    """
    drawn, marginals = torch.tensor([text]).expand(samples, -1), []
    generator = torch.Generator().manual_seed(0)
    for _ in range(length):
        probs = Sampler(1)(target(drawn)[0][:, -1].float().cpu())  # (samples, V)
        marginals.append(probs.mean(0))
        drawn = torch.cat([drawn, torch.multinomial(probs, 1, generator=generator)], 1)
    return torch.stack(marginals).log()


@torch.inference_mode()
def accepted_of_drawn(target, text, law, length, draws, siblings=0):
    """Chains are drawn, and judged by p/q: how often each letter has an accepted draft, a mean over
    so many chains, (length,). law(the chain so far) -> (V,), what the next draft is drawn from;
    siblings: so many picks beside each draft, the best others of its law."""
    dice, chains, q = Dice(0), [], []
    for _ in range(draws):
        chain = []
        for _ in range(length):
            q.append(law(chain))
            chain.append(dice.draw(q[-1]))
        chains.append(chain)
    q, chains = torch.stack(q).reshape(draws, length, -1), torch.tensor(chains)  # (draws, L, V)
    logits, _ = target(torch.cat([torch.tensor([text]).expand(draws, -1), chains], 1))
    p, drafts = Sampler(1)(logits[:, len(text) - 1:-1].float().cpu()), chains[..., None]
    kept = (p / q).gather(-1, drafts)[..., 0].clamp(max=1)
    lacks = (p - q).clamp(min=0)  # the residual, but for its sum
    best = q.scatter(-1, drafts, -1).topk(siblings).indices
    held = lacks.gather(-1, best).sum(-1) / lacks.sum(-1)
    reached = kept.cumprod(1) / kept
    return (reached * (kept + (1 - kept) * held)).mean(0)


def blind(row, text, length, least=2e-5):
    """What a drafter that reads its own drafts says of each place if it may not: its rows, averaged
    over all that may stand before, (length, V). row(context) -> (V,), context: the last three
    tokens; those that are rarer than `least` are left out."""
    contexts, rows = {tuple(text[-3:]): 1.0}, []
    for _ in range(length):
        rows.append(sum(chance * row(context) for context, chance in contexts.items()))
        after = Counter()
        for context, chance in contexts.items():
            probs = row(context)
            for token in probs.nonzero().flatten().tolist():
                after[(*context[1:], token)] += chance * float(probs[token])
        contexts = {context: chance for context, chance in after.items() if chance >= least}
    return torch.stack([probs / probs.sum() for probs in rows])


def row_of(ngram):
    """-> row(context), the distribution (V,) that an NgramDraft has after these tokens."""
    return lambda context: ngram.after(context).softmax(-1)


@torch.inference_mode()
def reading_on(network, ngram, texts, draws=20):
    """Is it worth anything to read one's own drafts? Chains as long as the pass's, drawn for each
    text, at temperature 1 -> {who: how often each draft is accepted, (texts, length)}.

    ngram: a 4-gram, an NgramDraft of chapter 01.
    """
    row = row_of(ngram)
    length, found = network.config.length, {"the pass": [], "4-gram, blind": [], "4-gram": []}
    for text in texts:
        slots, last = (one_pass(network, text).exp(), blind(row, text, length)), tuple(text[-3:])
        laws = [*(lambda chain, q=q: q[len(chain)] for q in slots),
                lambda chain, last=last: row((*last, *chain)[-3:])]
        for accepted, law in zip(found.values(), laws, strict=True):
            accepted.append(accepted_of_drawn(network.target, text, law, length, draws))
    return {who: torch.stack(accepted) for who, accepted in found.items()}


@torch.inference_mode()
def picked_reading(target, ngram, text, budget, length, reads=True):
    """The heap on a 4-gram, which reads its own drafts or, see `blind`, does not -> what its first
    n nodes are worth to the target, n = 0, 1, .., budget, at temperature 1. length: of its paths
    at most."""
    def children(prefix):  # the root's comes first
        if len(prefix) > length:
            return [], []
        ranked = row_of(ngram)((*text[:-1], *prefix)[-3:]).log().sort(descending=True)
        return ranked.values.tolist(), ranked.indices.tolist()

    tree = best_first_tree(text[-1], children if reads else marginal_children(
        blind(row_of(ngram), text, length).log()), budget)
    return [0.0, *target_masses(target, text, tree).cumsum(0).tolist()]


@torch.inference_mode()
def picked_by_slot(network, text, budget=12):
    """How many nodes each letter has, and how many of these are accepted, expected by the target at
    temperature 1: in the heap's tree, and in the best there is -> (2, 2, L). text: token ids, the
    root last; one pass behind it."""
    target, log_probs, found = network.target, one_pass(network, text), []
    for tree in (best_first_tree(text[-1], marginal_children(log_probs), budget),
                 oracle_tree(target, text, budget, len(log_probs))):
        masses = target_masses(target, text, tree)
        letter = torch.nn.functional.one_hot(tree.depths[1:] - 1, len(log_probs)).to(masses)
        found.append(torch.stack([torch.ones_like(masses), masses]) @ letter)
    return torch.stack(found)


@torch.inference_mode()
def worths(network, text, budget=12, shape=()):
    """{"shape", "heap", "best": two lists, what the tree of the first n nodes is worth, n = 0, 1,
    ..: to the drafter's marginals, and to the target}. The best tree there is asks the target; the
    heap's goes on to three times the budget.

    text: token ids, the root last; one pass behind it, at temperature 1; shape: see shape_tree.
    """
    target, log_probs = network.target, one_pass(network, text)
    trees = {"shape": shape_tree(text[-1], log_probs, shape),
             "heap": best_first_tree(text[-1], marginal_children(log_probs), 3 * budget),
             "best": oracle_tree(target, text, budget, len(log_probs))}
    return {name: [[0.0, *masses.cumsum(0).tolist()] for masses in (
        node_masses(tree, log_probs), target_masses(target, text, tree))]
        for name, tree in trees.items()}
