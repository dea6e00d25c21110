"""The blanks of chapter 05."""

import math
from itertools import islice

import numpy as np
import torch

import ddtree
import draft_law
import priced_trees
from blanks_chain_specdec import decimals
from chain_specdec import accept
from conditional_marginals import Children
from ddtree import marginal_children
from grading import Blank, Misuse, require
from merged_trees import prefixes
from nanogpt.exact.enumeration import outcomes
from nanogpt.exact.toy_models import ToyModel, random_nodes
from nanogpt.exact.trees import best_mass
from tree_attention import Tree

TWO = torch.tensor([[0.6, 0.4], [0.9, 0.1]], dtype=torch.float64).log()
THREE = torch.cat([TWO, TWO[:1]])
RARE = torch.tensor([[0.999999, 1e-6], [0.9999, 1e-4]], dtype=torch.float64).log()
SURE = torch.tensor([[1.0, 0.0], [0.5, 0.5]], dtype=torch.float64).log()
HOLES = torch.tensor([[0.6, 0.4, 0, 0], [1, 0, 0, 0]]).double().log()
WIDE = torch.tensor([[0.5, 0.3, 0.2], [0.7, 0.2, 0.1], [0.9, 0.05, 0.05]]).double().log()
NODES = Tree([5, 0, 0, 1, 1], [-1, 0, 1, 0, 3])


def check_best(children, mass, budget):
    """The heap's tree must be worth as much as the best tree found by trying all."""
    found = sum(map(mass, prefixes(ddtree.best_first_tree(0, children, budget))[1:]))
    best = best_mass(mass, 2, 3, budget)
    require(abs(found - best) < 1e-9,
            f"with budget {budget} the tree is worth {found:.3f}, the best one {best:.3f}")


def best_of_all():
    for seed in range(3):
        log_probs = torch.stack([ToyModel(seed, 3).logits((i,)) for i in (0, 1)]).log_softmax(-1)
        for budget in (1, 3, 5):
            check_best(marginal_children(log_probs), lambda prefix, q=log_probs: math.exp(
                sum(q[i, t] for i, t in enumerate(prefix))), budget)
    # The same on a transition table.
    h = np.array([[1.0, 0.5, 0.0], [0.0, 0.2, 0.9]])
    table = np.array([np.eye(3), np.eye(3)[[1, 2, 0]]])

    def mass(prefix, total=1.0, before=0):
        for slot, token in enumerate(prefix):
            weights = np.exp(h[slot] + table[slot, before])
            total, before = total * weights[token] / weights.sum(), token
        return total

    check_best(Children(h, table, 1.0, 4), mass, 4)


def popped(log_probs, pops):
    return lambda f: list(islice(f(5, marginal_children(log_probs)), pops))


class Used(float):
    """A log-probability that notes when it is calculated with: to look at it costs nothing."""

    def __new__(cls, value, noted):
        number = super().__new__(cls, value)
        number.noted = noted
        return number

    def note(name):
        def method(self, *others):
            self.noted[id(self)] = self  # kept: what is freed may give its id to another one
            return getattr(float, name)(self, *others)

        return method

    for name in ("__add__", "__radd__", "__sub__", "__rsub__", "__neg__", "__mul__", "__rmul__"):
        locals()[name] = note(name)


def lazily(pops):
    """The first nodes of a tree without end, in which every node has ten children. Raises Misuse
    if the answer looks at more of it than it needs."""
    def call(f):
        asked, noted = [], {}

        def children(prefix):
            asked.append(prefix)
            if len(asked) > 10 * pops:
                raise Misuse(
                    f"on a tree without end, your code asks for the children of {len(asked)} "
                    f"prefixes before it yields node {len(nodes) + 1}; whoever asks decides when "
                    "to stop: `yield` each node as soon as it is popped, and put only its next "
                    "sibling and its first child into the heap")
            first, ratio = ((0.8, 0.2), (0.4, 0.6))[len(prefix) % 2]
            return ([Used(math.log(first * ratio ** rank), noted) for rank in range(10)],
                    list(range(10)))

        nodes = []
        for node in f(5, children):
            nodes.append(node)
            if len(nodes) == pops:
                break
        if len(asked) > pops + 1:
            raise Misuse(f"for {pops} nodes your code asks for the children of {len(asked)} "
                         f"prefixes: {pops} are enough, the root's and those of what was popped")
        if len(noted) > 2 * pops + 1:
            raise Misuse(f"for {pops} nodes your code scores {len(noted)} prefixes; two for each "
                         "node that is popped are enough: its next sibling and its first child")
        return nodes

    return call


def shuffled(seed, pops):
    """The first nodes where the best token is not token 0, of a table or of marginals."""
    h, table = (np.random.default_rng(seed).normal(size=shape) for shape in ((4, 4), (4, 4, 4)))
    return lambda f: list(islice(f(3, Children(h, table, 1.0, 4)), pops))


def random_tree(seed):
    """A tree over three tokens, and as many marginals as it has nodes, one of them with a 0."""
    tree = Tree(*random_nodes(seed, size=2 + seed))
    log_probs = torch.stack([ToyModel(seed, 3).logits((i,)) for i in range(len(tree))])
    log_probs = log_probs.log_softmax(-1)
    log_probs[seed % 3, 0] = -math.inf
    return tree, log_probs


def priced(seed, count=6):
    """Falling masses, and a round's milliseconds for 0..count nodes, some rows free."""
    random = np.random.default_rng(seed)
    steps = random.choice([0.0, 0.2, 1.5], count)
    return (sorted((round(float(x), 2) for x in random.random(count)), reverse=True),
            [round(4 + float(x), 1) for x in np.cumsum([0, *steps])])


def as_the_lazy_one():
    """As many as `worth_verifying` takes, which sees one mass after the other."""
    for seed in range(20):
        masses, ms = priced(seed)
        nodes = [(0, 0, mass) for mass in masses]
        wanted = len(priced_trees.worth_verifying(nodes, ms, priced_trees.slopes(ms), 0.25))
        found = priced_trees.best_size(masses, ms, 0.25)
        require(found == wanted, f"masses {masses}, ms {ms}, rate 0.25: {wanted} nodes are best, "
                                 f"you take {found}")


def what_is_written():
    """By enumeration: p and the bias together are what the rule writes, with p unlike q."""
    for p, q, law in triples():

        def run(dice, p=p, q=q, law=law):
            if not dice.flip(float(law.sum())):
                return dice.draw(p)  # nothing is sent
            draft = dice.draw(law / law.sum())
            n, token = accept([draft], [q], torch.stack([p, p]), dice)
            return draft if n else token

        text = torch.zeros(len(p)).double()
        for token, chance in outcomes(run):
            text[token] += chance
        off = (p + draft_law.bias(p, q, law) - text).abs().sum() / 2
        require(off < 1e-6, f"p {decimals(p)}, q {decimals(q)}, law {decimals(law)}: p and your "
                f"bias are {float(off):.2f} away from {decimals(text)}, which is written")


def triples():
    """p, q and a law that sums to 1 - h."""
    for seed in range(8):
        p, q, law = (ToyModel(number, 2 + seed % 3).logits(()).softmax(-1)
                     for number in (seed, seed + 50, seed + 90))
        yield p, q, law * (1, 0.9, 0.3, 0.6)[seed % 4]


def three(*rows):
    """p, q and a law, (V,) each."""
    return tuple(torch.as_tensor(row, dtype=torch.float64) for row in rows)


def mended(*rows):
    """-> how often each token is written, and how often a draft is accepted, by enumeration."""
    p, q, shown = three(*rows)

    def call(f):
        told, silent = f(p, q, shown)
        found = torch.zeros(len(p) + 1).double()

        def run(dice):
            draft = dice.draw(q)
            if not dice.flip(float(shown[draft])):
                return dice.draw(silent), 0
            n, token = accept([draft], [told], torch.stack([p, p]), dice)
            return draft if n else token, n

        for (token, accepted), chance in outcomes(run):
            found[token] += chance
            found[-1] += accepted * chance
        return found

    return call


def the_most():
    """The text is p, and min(p, q shown) is accepted, which no such judge can surpass."""
    for p, q, shown in triples():
        found = mended(p, q, shown)(draft_law.mend)
        most = torch.minimum(p, q * shown).sum()
        require((found - torch.stack([*p, most])).abs().max() < 1e-6,
                f"p {decimals(p)}, q {decimals(q)}, shown {decimals(shown)}: written is "
                f"{decimals(found[:-1])}, accepted {found[-1]:.3f}; {most:.3f} is possible")


BLANKS = [
    Blank(
        "ddtree:node_masses",
        """* The mass of every node but the root, (N - 1,), in the order of the rows: the
        product of the probabilities of the tokens on its path. log_probs[i, t] is the logarithm
        of the probability of token t at depth i + 1; the root is at depth 0. A logarithm may be
        -inf; no nan may come out.""",
        ("A node's mass is its parent's times the probability of its own token.",
         "Row after row, or all rows at once with the mask, which says who is on whose path. "
         "0 times -inf is nan."),
        lines=3, minutes=8,
        examples={
            "q_1 (.6, .4), q_2 (.9, .1), q_3 (.6, .4), nodes (0), (0, 0), (1), (1, 1)":
                ((NODES, THREE), [0.6, 0.54, 0.4, 0.04]),
            "the root alone": ((Tree([5], [-1]), THREE), []),
            "q_1 (1, 0), q_2 (.5, .5), the same nodes": ((NODES, SURE), [1, 0.5, 0, 0]),
        },
        more=lambda: {f"tokens {tree.tokens.tolist()}, parents {tree.parents.tolist()}, q of toy "
                      f"model {seed}": (tree, log_probs)
                      for seed, (tree, log_probs) in enumerate(map(random_tree, range(8)))}),
    Blank(
        "ddtree:best_first",
        """*** Start with the most probable first token in the heap. Pop the best prefix,
        `yield` it as (token, row of its parent, mass), then push its next sibling and its first
        child, until the heap is empty. The root is row 0 and is not yielded; the first node
        that is yielded is row 1. Scores are logarithms, so they add up: what is a sibling's
        score, what a first child's? heapq.heappop gives the smallest entry; a good one is (-score,
        parent, rank): the parent's row, and the rank from 0.""",
        ("Keep three lists, an entry a row: the prefix, its score (the root's is 0) and what may "
         "follow it.",
         "A sibling shares everything but its last factor. Which of the three lists' scores holds "
         "exactly what they share? A first child has one factor more."),
        lines=16, minutes=20, promise=best_of_all,
        examples={
            "root 5, q_1 (.6, .4), q_2 (.9, .1), 3 pops: token, parent's row, mass":
                (popped(TWO, 3), [(0, 0, 0.6), (0, 1, 0.54), (1, 0, 0.4)]),
            "the same, 99 pops": (popped(TWO, 99), [
                (0, 0, 0.6), (0, 1, 0.54), (1, 0, 0.4), (0, 3, 0.36), (1, 1, 0.06), (1, 3, 0.04)]),
            "root 5, no slots": (popped(TWO[:0], 3), []),
            # (0), (0, 0), (0, 0, 0), (1), (1, 0)
            "q (.5 .3 .2), (.7 .2 .1), (.9 .05 .05), 5 pops": (popped(WIDE, 5), [
                (0, 0, 0.5), (0, 1, 0.35), (0, 2, 0.315), (1, 0, 0.3), (0, 4, 0.21)]),
            # token 1 is the best one of the first slot, and has rank 0
            "q_1 (.4, .6), q_2 (.9, .1), 3 pops": (
                popped(torch.stack([TWO[0].flip(0), TWO[1]]), 3),
                [(1, 0, 0.6), (0, 1, 0.54), (0, 0, 0.4)]),
            # (0), (0, 0), (1), (1, 0), (2)
            "a tree without end, q (.4 .24 .144 ..), (.8 .16 ..), (.4 .24 ..), ..., 5 pops": (
                lazily(5), [
                    (0, 0, 0.4), (0, 1, 0.32), (1, 0, 0.24), (0, 3, 0.192), (2, 0, 0.144)]),
        },
        more=lambda: {f"a table of toy conditionals {seed}, {pops} pops": shuffled(seed, pops)
                      for seed in range(3) for pops in (2, 20, 99)} | {
            "q_1 (.999999, .000001), q_2 (.9999, .0001), 99 pops": popped(RARE, 99),
            "q_1 (.6, .4, 0, 0), q_2 (1, 0, 0, 0): all masses that are not 0": lambda f: [
                mass for *_, mass in popped(HOLES, 99)(f) if mass != 0]}),
    Blank(
        "priced_trees:best_size",
        """** How many nodes pay? masses are those of the nodes, falling; ms[n] is what a round with
        n nodes takes, ms[0] without any; rate is how many tokens a millisecond of the past rounds
        has brought. Milliseconds that are spent here are missing elsewhere: what are they worth?
        Return n, the smallest of equally good ones.""",
        ("Tokens and milliseconds cannot be subtracted, unless one is turned into the other.",
         "How many tokens would the past rounds have written in ms[n], and how many does a round "
         "with n nodes bring? Rows come in steps: the first n that loses need not be the end."),
        lines=2, minutes=6, promise=as_the_lazy_one,
        examples={
            "masses .3, .2, .1, ms 5, 7, 7, 10, rate .2": ((
                [0.3, 0.2, 0.1], [5, 7, 7, 10], 0.2), 2),
            "masses .9, .5, .2, ms 4, 5, 6, 7, rate .4": (([0.9, 0.5, 0.2], [4, 5, 6, 7], 0.4), 2),
            "masses .9, .5, .2, ms 4, 4, 4, 4, rate .4": (([0.9, 0.5, 0.2], [4, 4, 4, 4], 0.4), 3),
            "masses .9, .5, .2, ms 4, 5, 6, 7, rate .1": (([0.9, 0.5, 0.2], [4, 5, 6, 7], 0.1), 3),
            "masses .2, .1, ms 4, 5, 6, rate .4": (([0.2, 0.1], [4, 5, 6], 0.4), 0),
            "masses .25, ms 1, 2, rate .25": (([0.25], [1, 2], 0.25), 0),  # equally good
            "no node is offered": (([], [4], 0.4), 0),
        },
        more=lambda: {f"toy masses and prices {seed}, rate {rate}": (*priced(seed), rate)
                      for seed in range(6) for rate in (0.05, 0.3, 0.6)} | {
            "masses .3, .009, .0002, rows that cost nothing": ([0.3, 0.009, 2e-4], [4] * 4, 0.3),
            # only the fifth node pays for the step
            "masses .3, .29, .28, .27, .26, ms 4, 6, 6, 6, 6, 6, rate .65":
                ([0.3, 0.29, 0.28, 0.27, 0.26], [4, *[6] * 5], 0.65)}),
    Blank(
        "draft_law:mend",
        """** A drafter draws x from q, and sends it with probability shown[x]. What must the p/q
        rule be told, and what does the target draw from in rounds without a draft? Choose both so
        that the text has p and as many drafts as possible are accepted. p, q, shown and both
        answers are (V,). After a rejection the rule draws from the residual of p and of what it
        was told.""",
        ("How often does a draft x reach the judge at all? Tell it that, and nothing is sent too "
         "often.",
         "The answers belong together. If a round without a draft counts as a rejection, it must "
         "write what p still lacks."),
        lines=2, minutes=5, promise=the_most,
        examples={
            "p = q = (.8, .2), every draft 1 is hidden: what is written, what is accepted": (
                mended([0.8, 0.2], [0.8, 0.2], [1, 0]), [0.8, 0.2, 0.8]),
            "p (.5, .5), q (.6, .4), nothing is hidden": (
                mended([0.5, 0.5], [0.6, 0.4], [1, 1]), [0.5, 0.5, 0.9]),
            "p (.5, .3, .2), q (.3, .1, .6), a draft 2 is sent in half of all cases": (
                mended([0.5, 0.3, 0.2], [0.3, 0.1, 0.6], [1, 1, 0.5]), [0.5, 0.3, 0.2, 0.6]),
        },
        more=lambda: {f"p {decimals(p)}, q {decimals(q)}, shown {decimals(shown)}": mended(
            p, q, shown) for p, q, shown in triples()} | {
            "p (.3, .7), q (.6, .4), nothing is ever sent": mended([0.3, 0.7], [0.6, 0.4], [0, 0]),
            "p (.97, .03), q (.5, .5), draft 0 is hidden": mended(
                [0.97, 0.03], [0.5, 0.5], [0, 1])}),
    Blank(
        "draft_law:bias",
        """** By how much is the text wrong? Chapter 01's rule is told q, but its drafts come by
        another law: law[x] is how often x is sent, and in the other rounds the target writes a
        token of its own. Return how often each token comes out, less its p: d a - S r. p, q, law
        and the answer are (V,).""",
        ("The judge believes that of all drafts which are sent, x are q[x]. How many more of them "
         "are there, and how many of those does it accept?",
         "d compares the law with law.sum() * q, and a of x is acceptance_probability(p, q, x). "
         "What is accepted more is drawn less from residual(p, q)."),
        lines=3, minutes=6, promise=what_is_written,
        examples={
            "p = q = (.8, .2), every draft 1 is hidden: law (.8, 0)": (
                three([0.8, 0.2], [0.8, 0.2], [0.8, 0]), [0.16, -0.16]),
            "p (.5, .5), q (.6, .4), draft 0 for sure: law (1, 0)": (
                three([0.5, 0.5], [0.6, 0.4], [1, 0]), [1 / 3, -1 / 3]),
            "p (.5, .5), q (.8, .2), a coin hides one draft of two: law (.4, .1)": (
                three([0.5, 0.5], [0.8, 0.2], [0.4, 0.1]), [0, 0]),
            "p (.5, .3, .2), q (.3, .1, .6), every draft 1 is hidden: law (.3, 0, .6)": (
                three([0.5, 0.3, 0.2], [0.3, 0.1, 0.6], [0.3, 0, 0.6]), [0.05, -0.07, 0.02]),
        },
        more=lambda: {f"p {decimals(p)}, q {decimals(q)}, law {decimals(law)}": (p, q, law)
                      for p, q, law in triples()} | {
            "p has no token 2: (.7, .3, 0), q (.5, .1, .4), law (.3, .2, .5)":
                three([0.7, 0.3, 0], [0.5, 0.1, 0.4], [0.3, 0.2, 0.5]),
            "q has no token 2: (.3, .7, 0), p (.5, .1, .4), law (.3, .3, .4)":
                three([0.5, 0.1, 0.4], [0.3, 0.7, 0], [0.3, 0.3, 0.4]),
            "nobody has token 2: p (.6, .4, 0), q (.5, .5, 0), law (.5, .25, 0)":
                three([0.6, 0.4, 0], [0.5, 0.5, 0], [0.5, 0.25, 0]),
            "q sums to .8, as the law does: p (.8, .2), q and law (.8, 0)":
                three([0.8, 0.2], [0.8, 0], [0.8, 0]),
            "a law that is nearly q, (.503, .497), p (.4, .6), q (.5, .5)":
                three([0.4, 0.6], [0.5, 0.5], [0.503, 0.497])}),
]
