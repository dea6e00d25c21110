"""A whole round as one launch: commit, draft and verify, with no word from the host in between.

    host    the last path, the new root, random numbers
       |
    device  commit    the last path's rows move to their places, in every cache that holds a tree
       |    draft     `grow`, a chapter's own program: tokens, parents, what they were drawn from
       |    verify    mask and positions from the parents, one target forward
       |
    host    tokens, parents, q, target logits; the loop goes on with the chapter's own rule

On a GPU a small model's forward is short, and a round that Python asks for operation by operation
waits for Python most of the time. Recorded, it is one launch and one wait (graphs.py).

A chapter's drafter stands in its `*_grow.py` once more, as a Grower: a program of tensors whose
shapes are known beforehand. Chance is the one operation that can be exchanged. On the device a draw
looks up a random number that the host has sent, by the rule of Dice.draw, so one seed gives one
text. Played (`played=True`, on a CPU) the Dice itself draws, and so the enumeration of
nanogpt/exact proves a recorded round as it proves any loop.
"""

from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise

import torch

from nanogpt.decoding import Context, Step
from nanogpt.gpu.graphs import Storage, forward_at, record
from nanogpt.model import KVCache

MOST_ROWS = 128  # of a tree: what a cache holds behind a full window, see GPT.new_cache

# ---------------------------------------------------------------- what a chapter brings


class Reader:
    """The model behind a drafter, and what it keeps of the text."""

    holds_trees = False  # True: its cache has a tree's rows where the target's has them

    def new_cache(self, target):
        """-> an empty KVCache with as many rows as the target's, or None."""

    def prefill(self, cache, tokens, hidden):
        """Read a window of text, a list of tokens; hidden: the target's, see GPT.forward. In the
        first round its last token comes again, as a path of one row."""

    def features(self, hidden):
        """What it will want to know of the target's rows, (1, n, F), or None; hidden: of n rows.
        Those of the last path come back in Now.features."""


class Grower:
    """A drafter of fixed shapes, as one tensor program.

    The `grow` of a chapter's Loop makes one: grow(target, drafter, budget, sampler), where drafter
    is the one that the loop has on a CPU. Equal Growers, frozen dataclasses, share a recording.

    read: a Reader; rows: of a tree, the root's included, N; depth: levels below the root at most;
    draws: random numbers at most; numbers: how many other numbers it is told, see Round.numbers.
    """

    draws = numbers = 0

    def grow(self, now):
        """now: a Now -> Drafts of N rows, parents before children."""

    def drafts(self, tokens, parents, draft_probs):
        """What the chapter's rule takes for drafts: (N,), (N,) on the CPU; draft_probs (N, V) or
        None."""

    def judge(self, drafts, target_probs, dice, rule):
        """Ask a rule; None: the chapter's own. target_probs (N, V).

        -> the accepted rows, from the root's 0 on; their tokens, without the root; the next token;
        the chapter's record of the round.
        """

    def beside(self, round, drafter):
        """What the loop takes for its drafter; drafter: the one that it has on a CPU."""
        return round


@dataclass
class Drafts:
    """A tree on the device. Rows that are not alive are padding, and behind all that are below."""

    tokens: torch.Tensor  # (N,)
    parents: torch.Tensor  # (N,)
    seen: torch.Tensor | None  # (N, depth + 1): see `ancestors`; None: nothing is to be verified
    alive: torch.Tensor  # (N,) bool
    draft_probs: torch.Tensor | None = None  # (N, V): what each row's children were drawn from
    masses: torch.Tensor | None = None  # (N,): q(u), if the host wants to know


@dataclass
class Now:
    """What a program may look at, on the device: the text's end, and what the last round left."""

    tokens: torch.Tensor  # (2,): the last committed token, and the root
    length: torch.Tensor  # (1,): committed rows, where the root will lie
    room: torch.Tensor  # (1,): the deepest level that fits into the window
    goal: torch.Tensor  # (R,): where the last path lies in the cache, R = depth + 1; padded
    kept: torch.Tensor  # (1,): how long that path is
    features: torch.Tensor | None  # (1, R, F): of its rows, see Reader.features; padded
    kv: torch.Tensor  # of the reader's cache; the target's, if it has none
    numbers: torch.Tensor  # see Grower
    chance: object  # Shares or Faces
    notes: dict = field(default_factory=dict)  # what a reader keeps for the levels below

    def forward(self, model, kv, tokens, seen, depth):
        """GPT.forward of n new rows behind the text -> logits (n, V), hidden.

        tokens (n,); seen (n, d): which rows behind the text each of them sees, its own first;
        depth (n,): what is added to the length for its position.
        """
        mask = torch.arange(kv.shape[-2], device=kv.device) < self.length  # all of the text, ...
        mask = mask.repeat(len(tokens), 1).scatter_(1, self.length + seen, True)  # ... and its path
        at = (self.length + depth).clamp(max=model.block_size - 1)  # padding may lie beyond
        logits, hidden = forward_at(model, kv, tokens, at, self.length + seen[:, 0], mask)
        return logits[0], hidden

    def draw(self, probs, alive, depth, k=1, replace=False):
        """k children below each of n rows, drawn from probs (n, V), one after the other.

        alive (n,): below others nothing is drawn, nor beyond the room; depth: of the n rows;
        replace: may siblings be equal? Else only tokens of a positive probability are left to draw.
        -> tokens (n, k), and which of them were drawn (n, k).
        """
        return self.chance.draw(probs, alive & (depth < self.room), k, replace)


def ancestors(parents, depth):
    """parents (N,) -> (N, depth + 1): for each row itself, its parent, .., the root, repeated."""
    seen = [torch.arange(len(parents), device=parents.device)]
    for _ in range(depth):
        seen.append(parents[seen[-1]].clamp(min=0))
    return torch.stack(seen, 1)


@cache  # a recording may not copy from the host: this is made when it warms up
def fixed_tree(parents, device):
    """A tree whose shape is known beforehand, a tuple of parents -> parents, ancestors, and for
    each level the slice of its rows."""
    depths = [0]
    for parent in parents[1:]:
        depths.append(depths[parent] + 1)
    ends = [depths.index(depth) for depth in range(depths[-1] + 1)] + [len(parents)]
    rows = torch.tensor(parents)
    return (rows.to(device), ancestors(rows, depths[-1]).to(device),
            [slice(*level) for level in pairwise(ends)])


# ---------------------------------------------------------------- chance


class Shares:
    """Dice.draw on the device. shares (m,): the random numbers in [0, 1) that the host has sent."""

    def __init__(self, shares):
        self.shares, self.used = shares, torch.zeros_like(shares[:1], dtype=torch.long)

    def draw(self, probs, alive, k, replace):
        """See Now.draw."""
        # Rows draw in their order, each all of its children, as Python does; so a row must know how
        # many draws come before its own.
        possible = k if replace else (probs > 0).sum(-1).clamp(max=k)
        count = alive * possible  # (n,)
        first = self.used + count.cumsum(0) - count
        self.used = self.used + count.sum()
        tokens, left = [], probs
        for i in range(k):
            share = self.shares[(first + i).clamp(max=len(self.shares) - 1)][:, None]  # (n, 1)
            weights = probs if replace else left / left.sum(-1, keepdim=True)
            sums = weights.double().cumsum(-1)
            # A row with nothing left finds nonsense, and is not alive.
            token = torch.searchsorted(sums, share * sums[:, -1:], right=True)
            tokens.append(token.clamp(max=probs.shape[-1] - 1))
            left = left.scatter(-1, tokens[-1], 0)
        drawn = torch.arange(k, device=probs.device) < count[:, None]
        return torch.cat(tokens, 1), drawn


class Faces:
    """The Dice itself, for a round that is played: every draw is the host's."""

    def __init__(self, dice):
        self.dice, self.used = dice, torch.zeros(1, dtype=torch.long)

    def draw(self, probs, alive, k, replace):
        """See Now.draw."""
        tokens = torch.zeros(len(probs), k, dtype=torch.long)
        drawn = torch.zeros(len(probs), k, dtype=torch.bool)
        for row in alive.nonzero()[:, 0].tolist():
            left = probs[row].clone()
            for i in range(k):
                if left.sum() > 0:
                    tokens[row, i] = self.dice.draw(left if replace else left / left.sum())
                    drawn[row, i] = True
                    left[tokens[row, i]] *= replace
        return tokens, drawn


# ---------------------------------------------------------------- the program


class Program:
    """Commit, draft and verify, recorded once for all rounds with an equal Grower."""

    def __init__(self, round, grower):
        self.target, self.grower, self.dice = round.target, grower, None
        self.storages = {name: Storage(getattr(*place))
                         for name, place in round.memories().items()}
        kv = self.storages["target"].tensor
        self.spare, R = kv.shape[-2] - 1, self.grower.depth + 1  # nobody sees the last row
        self.graph = record(self.run, {
            "tokens": torch.zeros(2, dtype=torch.long), "length": torch.ones(1, dtype=torch.long),
            "room": torch.full((1,), R - 1), "kept": torch.ones(1, dtype=torch.long),
            "path": torch.zeros(R, dtype=torch.long), "source": torch.full((R,), self.spare),
            "goal": torch.full((R,), self.spare),
            "numbers": torch.zeros(self.grower.numbers + 1, dtype=torch.float64),
            "shares": torch.zeros(self.grower.draws + 1, dtype=torch.float64)}, kv)

    def run(self, tokens, length, room, kept, path, source, goal, numbers, shares):
        """What is recorded; the arguments are as in Now, and path (R,): the last path's rows in its
        tree, source (R,): where they lie in the cache."""
        read, memory = self.grower.read, {name: x.tensor for name, x in self.storages.items()}
        kv = memory.get("reader", memory["target"])
        for trees in [memory["target"]] + [kv] * read.holds_trees:
            trees.index_copy_(-2, goal, trees.index_select(-2, source))
        features = memory["features"][:, path] if "features" in memory else None
        now = Now(tokens, length, room, goal, kept, features, kv, numbers,
                  Shares(shares) if self.dice is None else Faces(self.dice))
        tree = self.grower.grow(now)
        found = {"tokens": tree.tokens, "parents": tree.parents, "alive": tree.alive,
                 "draft_probs": tree.draft_probs, "masses": tree.masses,
                 "used": now.chance.used}
        if tree.seen is not None:
            found["logits"], hidden = now.forward(
                self.target, memory["target"], tree.tokens, tree.seen, (tree.seen > 0).sum(1))
        if features is not None:
            memory["features"][:, :len(tree.tokens)] = read.features(hidden)
        return {name: x for name, x in found.items() if x is not None}, []

    def replay(self, round, root, room):
        """A round of a decoder -> {name: tensor}, overwritten by the next; see `run`."""
        for name, place in round.memories().items():
            self.storages[name].lend(*place)
        put, path, length = self.graph.put, round.path, round.cache.length
        put["tokens"][:], put["length"][:], put["room"][:] = (round.last, root), length, room
        n, start = len(path), length - len(path)
        put["kept"][:], put["path"][:], put["path"][:n] = n, 0, path
        for name in ("source", "goal"):
            put[name][:] = self.spare
        put["source"][:n], put["goal"][:n] = [start + row for row in path], range(start, length)
        put["numbers"][:self.grower.numbers] = round.numbers[:self.grower.numbers]
        self.dice, draws = round.dice if round.played else None, self.grower.draws
        if not round.played:
            put["shares"][:draws] = round.dice.shares(draws)
        found = dict(self.graph.replay()[0])
        unused = draws - int(found.pop("used"))
        if not round.played:
            round.dice.give_back(unused)
        return found


class Programs(dict):
    """The recordings of a target, {Grower: Program}; a copy of the target makes its own."""

    def __deepcopy__(self, memo):
        return Programs()


# ---------------------------------------------------------------- what a loop sees


class ScatteredCache(KVCache):
    """The target's cache. What a commit keeps is moved to its place by the next round."""

    def commit(self, rows):
        self.length += len(rows)


class Round:
    """Target and drafter of a loop in one: drafting launches the whole round, and the loop's
    forward finds its logits here.

    target: a GPT, captured if it lies on a GPU; played: see the head of this file.
    numbers: what the next launch is told; masses (N,): what the last one told, see Drafts.
    """

    numbers = ()

    def __init__(self, target, grower, dice, played=False):
        self.target, self.grower, self.dice, self.played = target, grower, dice, played
        self.block_size = target.block_size
        self.reading, self.features = grower.read.new_cache(target), None  # the reader's

    # ------------------------------------------------ as the target

    def new_cache(self):
        """The cache of the loop's Context."""
        self.cache = ScatteredCache(self.target.config, 1, self.block_size + MOST_ROWS,
                                    self.target.device, self.target.embed.weight.dtype)
        return self.cache

    def __call__(self, tokens, positions=None, mask=None, cache=None):
        """A prefill, where the cache is empty; else what the last launch has found."""
        return (self.logits[None], None) if cache.length else self.target(tokens, cache=cache)

    # ------------------------------------------------ as the drafter

    def reset(self):
        """A new text begins, or a new window."""
        if self.reading is not None:
            self.reading.length = 0

    def observe(self, tokens, hidden, rows):
        """These tokens were committed: a window by the prefill, or rows of the last tree."""
        self.last = tokens[-1]
        if hidden is None:
            self.path = [self.rows[row] for row in rows]
            return
        self.grower.read.prefill(self.reading, tokens, hidden)
        # The last token stands for a path of one row, which lies in its place already.
        self.path = [0]
        features = self.grower.read.features([layer[:, -1:] for layer in hidden])
        if features is not None:
            self.features = features.new_zeros(1, self.grower.rows, features.shape[-1])
            self.features[:, :1] = features

    def propose(self, root, room, grower=None):
        """Launch the round -> drafts, see Grower.drafts. grower: another one of equal depth."""
        grower = grower or self.grower
        programs = self.target.__dict__.setdefault("programs", Programs())
        if grower not in programs:
            programs[grower] = Program(self, grower)
        found = programs[grower].replay(self, root, room)
        # Padding is not shown to the loop: the rows that are alive move up.
        rows = found.pop("alive").nonzero()[:, 0]
        place = torch.full_like(found["parents"], -1)
        place[rows] = torch.arange(len(rows))
        kept = {name: x[rows] for name, x in found.items()}
        parents = place[kept["parents"]]
        parents[0] = -1
        self.rows, self.logits, self.masses = rows.tolist(), kept.get("logits"), kept.get("masses")
        return grower.drafts(kept["tokens"], parents, kept.get("draft_probs"))

    def memories(self):
        """The tensors that a launch reads and writes: {name: (owner, its field)}."""
        found = {"target": (self.cache, "kv"), "reader": (self.reading, "kv"),
                 "features": (self, "features")}
        return {name: place for name, place in found.items() if getattr(*place, None) is not None}


# ---------------------------------------------------------------- the loop


@torch.inference_mode()
def speculate_in_launches(round, drafter, prompt, sampler, dice, rule=None):
    """The loop of chapters 01 and 02, in which one launch drafts and verifies. Yields a Step per
    round, without end; the first is the prefill.

    round: a Round, here the target; drafter: Grower.beside; prompt: a list of token ids.
    """
    context = Context(round, prompt)
    root = dice.draw(sampler(context.begin(drafter)))
    yield Step([root])

    while True:
        if context.full:
            context.begin(drafter)
        drafts = drafter.propose(root, context.room)  # the launch: the target reads them as well,
        target_probs, hidden = context.verify([0], sampler)  # (N, V); so it is told no rows here
        path, accepted, token, detail = round.grower.judge(drafts, target_probs, dice, rule)
        tokens = [root, *accepted]
        context.commit(path, tokens)
        drafter.observe(tokens, hidden, path)
        yield Step([*accepted, token], len(target_probs) - 1, detail=detail, form="one launch")
        root = token
