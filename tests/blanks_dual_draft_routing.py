"""The blanks of chapter 03."""

import torch

import dual_draft_routing
from nanogpt import bench
from dual_draft_routing import HeadDrafter
from grading import Blank, require
from nanogpt.bench import agreement
from nanogpt.decoding import collect
from nanogpt.exact.toy_models import ToyHead, ToyModel, ToyTarget, random_nodes
from nanogpt.sampling import Dice, Sampler
from tree_attention import speculate, walk


def parents_stay():
    """If a node stays, its parent stays, also where a child is certain and has the same score."""
    generator = torch.Generator().manual_seed(0)
    for seed in range(20):
        parents, scores = random_nodes(seed)[1], [0.0]
        for parent in parents[1:]:
            scores.append(scores[parent] - int(torch.randint(2, (1,), generator=generator)))
        for budget in (1, 3, 6):
            rows = dual_draft_routing.best_nodes(scores, budget)
            require(len(rows) == budget + 1,
                    f"scores {scores}, budget {budget}: {rows} are {len(rows) - 1} nodes")
            require(all(parents[row] in rows for row in rows[1:]),
                    f"parents {parents}, scores {scores}, budget {budget}: {rows} has a node "
                    "without its parent")


def as_decoded():
    """A text is decoded with a tree a round: its replay must find the rounds that there were."""
    for seed in range(4):
        drafter, target = HeadDrafter(ToyHead(seed), 3, 2, 5), ToyTarget(ToyModel(seed, 3))
        run = collect(speculate(target, drafter, [0, 1], Sampler(1), Dice(seed), walk), 24)
        text, lengths = [0, 1, *run.tokens], {}
        for root in range(2, len(text)):
            drafter.reset()
            drafter.observe(text[:root], torch.tensor([text[:root]])[..., None][None], range(root))
            lengths[root] = agreement(drafter.propose(text[root], 9), text[root + 1:])
        rounds, found = run.accepted[:-2], list(bench.rounds_of(lengths))
        require(found[:len(rounds)] == rounds, "decoding a text has accepted "
                f"{rounds} in its first rounds, its replay says {found[:len(rounds)]}")


def numbers(seed, count, parts=8):
    """`count` numbers in [0, 1], in so many parts: if these are few, some are equal."""
    generator = torch.Generator().manual_seed(seed)
    return [round(n / parts, 3) for n in torch.randint(
        parts + 1, (count,), generator=generator).tolist()]


def log_scores(seed, count):
    """0 for the root, then `count` log-scores."""
    return [0.0, *(round(-4 * x, 2) for x in numbers(seed, count, 8 if seed % 2 else 200))]


BLANKS = [
    Blank(
        "dual_draft_routing:best_nodes",
        """** A tree is cut to its best nodes. scores holds a cumulative log-score for each row.
        Which rows stay? Row 0, the root, which costs no budget, and the `budget` drafted rows
        with the highest scores; of equal scores the earlier row. Return the rows in rising
        order; there may be fewer than `budget` drafted rows. Nothing here looks at parents: can
        a node stay while its parent goes?""",
        ("Which order of the rows would make the cut easy, and which one is asked for?",
         "Two orders are needed, one after the other. A sort that keeps equal scores in their "
         "order settles the ties."),
        lines=2, minutes=6, promise=parents_stay,
        examples={
            "scores 0, -1, -2, -1.5, -2, budget 3": (
                ([0.0, -1.0, -2.0, -1.5, -2.0], 3), [0, 1, 2, 3]),
            "scores 0, -2, -1, -3, budget 1": (([0.0, -2.0, -1.0, -3.0], 1), [0, 2]),
            "a tie: scores 0, -1, -1, -1, budget 2": (([0.0, -1.0, -1.0, -1.0], 2), [0, 1, 2]),
            "scores 0, -1, budget 3": (([0.0, -1.0], 3), [0, 1]),
        },
        more=lambda: {f"scores {log_scores(seed, seed)}, budget {budget}":
                      (log_scores(seed, seed), budget)
                      for seed in range(9) for budget in (1, 2, 5)}),
    Blank(
        "nanogpt.bench:rounds_of",
        """** The oracle's replay. A text is finished, and for every position of it somebody has
        looked up how many drafts a round would accept whose root stands there: lengths
        {position: drafts}. Decode the text again. What does each round accept? Return a list,
        for as long as a root stands at a known position. The first root is the first known
        position.""",
        ("A round writes its accepted drafts and one token of the target's own.",
         "The token of the target's own is the next root: it stands right behind the last accepted "
         "draft. Positions between two roots are never asked."),
        lines=5, minutes=6, promise=as_decoded,
        examples={
            "lengths {10: 2, 11: 0, 12: 3, 13: 1, 14: 0, 15: 4}":
                (({10: 2, 11: 0, 12: 3, 13: 1, 14: 0, 15: 4},), [2, 1, 4]),
            "lengths {3: 0, 4: 0, 5: 1}": (({3: 0, 4: 0, 5: 1},), [0, 0, 1]),
            "lengths {7: 9}": (({7: 9},), [9]),
        },
        more=lambda: {f"lengths {known}": (known,) for known in (
            dict(enumerate((20 * x for x in numbers(seed, 12, 20)), start=seed))
            for seed in range(8)) for known in [{i: round(n / 4) for i, n in known.items()}]}),
]
