"""Chapter 02: any tree loses nothing, what breaks the rule does; trees and drafters by hand.

Exactness, greedy text and wrong variants of the table's loops: tests/test_loops.py.
"""

import re
from itertools import combinations, permutations

import pytest
import torch

import tree_room
from nanogpt.does_it_pay import MEASURED, behind, load_contests, speedups, table_of
from nanogpt.exact.enumeration import token_law
from nanogpt.exact.toy_models import (
    ToyModel,
    ToyTarget,
    loop_bias,
    random_gpt,
)
from nanogpt.sampling import Dice, Sampler
from tree_attention import (
    Tree,
    TreeBigram,
    TreeDrafter,
    TreeGPT,
    best_shape,
    draw_without_replacement,
    expected_by_shape,
    full,
    multi_round,
    speculate,
    walk,
)

SAMPLERS = [Sampler(0), Sampler(0.7), Sampler(1), Sampler(1, top_k=2), Sampler(1, top_p=0.7)]
SMALL = random_gpt(1)
FOLLOWERS = torch.tensor([0, 3, 0, 3, 0, 3, 0, 2, 0, 2, 0, 1, 0])  # 0 -> 3 (3x), 2 (2x), 1 (1x)


class FixedDrafter:
    """Proposes the same tree shape and tokens for every root; for walk only."""

    def __init__(self, tokens, parents):
        self.tokens, self.parents = tokens, parents

    def reset(self):
        pass

    def observe(self, tokens, hidden, rows):
        pass

    def propose(self, root, room):
        return Tree([root, *self.tokens], [-1, *self.parents])


@pytest.mark.parametrize("tokens, parents", [
    ([1, 1, 2, 0], [0, 0, 1, 2]),  # equal siblings with different children
    ([1, 2, 1, 1, 0], [0, 0, 1, 3, 3]),
    ([0, 0, 0], [0, 0, 0]),
])
def test_walk_is_exact_on_any_tree_duplicates_included(tokens, parents):
    for sampler in SAMPLERS:
        assert loop_bias(lambda target, dice, s=sampler: speculate(
            target, FixedDrafter(tokens, parents), [0, 1], s, dice), sampler, 2) < 1e-12


SIDE = (((),), ())  # a chain of 2 with a side shoot at the root


def test_shapes_by_hand():
    """Chances .6 and .3: along the chain .6, .36, .216, a side shoot at the root .3."""
    assert full((2, 1)) == (((),), ((),)) and full(()) == ()
    assert [best_shape(n, (0.6, 0.3)) for n in (1, 2, 3)] == [((),), (((),),), SIDE]
    assert best_shape(3, (0.6, 0.3), levels=1) == ((), ())  # no third child, no second level
    assert expected_by_shape(SIDE, (0.6, 0.3)) == pytest.approx(1 + 0.6 + 0.36 + 0.3)
    assert expected_by_shape(full((1,) * 3), (0.6, 0.3)) == pytest.approx(2.176)
    tree = TreeDrafter(TreeBigram(FOLLOWERS, 5), SIDE).propose(0, room=9)
    assert tree.tokens.tolist() == [0, 3, 2, 0] and tree.parents.tolist() == [-1, 0, 0, 1]


# ---------------------------------------------------------------- what is not lossless


def test_each_break_of_the_rule_shows_alone():
    """The top token instead of a draw; a second child; no residual at the end of a chain."""
    right, *breaks = [tree_room.bias(tree_room.independent_coins, *case) for case in (
        ((1,), True, 2), ((1,), False, 2), ((2,), True, 2), ((1, 1), True, 3))]
    assert right < 1e-12  # one drawn child: the rule of chapter 01
    assert min(breaks) > 0.02, breaks


def test_the_lessons_three_changes():
    """None leaves multi-round rejection lossless."""
    *lossless, top, equal, residual = tree_room.changed_loops(pairs=2).values()
    assert len(lossless) == 2 and max(lossless) < 1e-12 and min(top, equal, residual) > 0.05


# ---------------------------------------------------------------- what the lesson says


def test_drawn_chances_by_hand_and_near_temperature_0():
    """The lesson's example; and where only favourites are drawn, a draw is a pick."""
    p, q = torch.tensor([[0.1, 0.5, 0.3, 0.1]]), torch.tensor([[0.4, 0.3, 0.1, 0.2]])
    assert tree_room.drawn_chances(p.log(), q.log(), 1) == pytest.approx((0.6, 0.25))
    _, second = tree_room.drawn_letters(p.log(), q.log(), 1)  # 3/8 and 1/8 of B's .1 in the end
    assert second.tolist() == [pytest.approx([0, 0.1875, 0.0625, 0])]
    assert [tree_room.emitted(rule, p[0], q[0]) for rule in (walk, multi_round)] == [
        pytest.approx([0.1, 0.5, 0.3, 0.1, accepted]) for accepted in (0.6, 0.85)]
    logits = [torch.stack([torch.randperm(5) for _ in range(40)]).float() for _ in range(2)]
    best, guesses = logits[0].argmax(-1, keepdim=True), logits[1].argsort(-1, descending=True)
    picked = (guesses[:, :2] == best).double().mean(0).tolist()
    assert min(picked) > 0
    assert tree_room.drawn_chances(*logits, 0.008) == pytest.approx(picked)  # e^-125 beside 1


def test_32_bits_near_temperature_0_lose_children_but_no_exactness():
    generator = torch.Generator().manual_seed(0)
    for logits in torch.randn(20, 2, 4, generator=generator):
        p, q = Sampler(0.02)(logits)

        def run(dice, p=p, q=q):
            children = draw_without_replacement(q, 3, dice)
            tree = Tree([0, *children], [-1] + [0] * len(children), q.repeat(len(children) + 1, 1))
            path, token = multi_round(tree, p.repeat(len(tree), 1), dice)
            return children[path[1] - 1] if len(path) > 1 else token

        torch.testing.assert_close(token_law(run, 4), p.double(), rtol=0, atol=1e-6)


def test_the_most_that_a_rule_can_accept_of_the_lessons_two_drawn_children():
    """The least cut between the target's draws and the pairs that hold them."""
    p, q = [0.1, 0.5, 0.3, 0.1], [0.4, 0.3, 0.1, 0.2]
    pairs = {pair: q[pair[0]] * q[pair[1]] / (1 - q[pair[0]]) for pair in permutations(range(4), 2)}
    cuts = [sum(p[x] for x in range(4) if x not in some)
            + sum(chance for pair, chance in pairs.items() if some & set(pair))
            for n in range(5) for some in map(set, combinations(range(4), n))]
    assert min(cuts) == pytest.approx(0.935, abs=5e-4)


MACHINES = [pytest.param(found, id=name) for name, found in load_contests().items()]
CASES = [pytest.param(*machine.values, T, id=f"{machine.id}-{T}")
         for machine in MACHINES for T in (0, 0.6, 1)]
LOOP = {0: "02 picked tree {}, 57K GPT", 0.6: "02 drawn tree {}, 57K GPT",
        1: "02 drawn tree {}, 57K GPT"}


@pytest.mark.parametrize("found, T", CASES)
def test_no_tree_of_the_small_gpt_is_faster_than_its_best_chain(found, T):
    """Text by text; the best chain is chapter 01's."""
    fast, begins = speedups(found, T), LOOP[T].partition("{}")[0]
    chains = [name for name in fast if name.startswith("01 chain") and name.endswith("57K GPT")]
    trees = [name for name in fast if name.startswith(begins + "2") and name.endswith("57K GPT")]
    more = behind(found, T, max(chains, key=lambda name: fast[name][2]))
    assert len(trees) >= 3 and all(more[name][0] > -more[name][1] for name in trees)
    assert all(fast[name][2] < max(fast[chain][2] for chain in chains) for name in trees)


@pytest.mark.parametrize("found", MACHINES)
def test_three_shapes_as_the_lesson_says(found):
    """14 drafts in four levels write what 14 levels write, for less; a chain of six needs six."""
    (tall, dear, slow), (wide, cheap, fast), (six, price, _) = (
        speedups(found, 0)[LOOP[0].format("-".join(map(str, shape)))][:3]
        for shape in ((1,) * 14, (2, 2, 1, 1), (1,) * 6))
    assert abs(tall - wide) < 0.15 and 0 < wide - six < 0.2
    assert cheap < 0.8 * dear and fast > 1.2 * slow and price < 0.8 * dear


@pytest.mark.parametrize("found", MACHINES)
def test_drawn_is_ahead_of_picked_in_the_same_shape(found):
    """Same drafter, loop and rows, T = 1, text by text: more than any shape is ahead of another."""
    gain, fast = [], speedups(found, 1)
    for shape in ("1-1-1-1", "2-2-1-1"):
        drawn, picked = (f"02 {way} tree {shape}, 57K GPT" for way in ("drawn", "picked"))
        mean, error = behind(found, 1, picked)[drawn]
        assert mean < -error
        gain.append(fast[drawn][2] / fast[picked][2])
    shapes = [fast[f"02 drawn tree {shape}, 57K GPT"][2] for shape in ("1-1-1-1", "2-2-1-1")]
    assert min(gain) > 1.3 > max(shapes) / min(shapes)


@pytest.mark.parametrize("found, T", CASES)
def test_with_cheap_levels_a_tree_wins_and_at_1_drawn_drafts_do(found, T):
    """At T = 0, where one pass makes all guesses, the best tree is ahead of the best chain. At
    T = 1 the best of all drawn methods is ahead of the best that picks."""
    fast, sides = speedups(found, T), {True: [], False: []}  # who shall be ahead, and of whom
    for name, line in table_of(found, T).items():
        if T or line["family"] == "block drafter":
            sides[line.get("drawn", False) if T else "chain" not in name].append(name)
    ahead, of = (max(names, key=lambda name: fast[name][2]) for names in sides.values())
    mean, error = behind(found, T, ahead)[of]
    assert mean > error


# ---------------------------------------------------------------- the tree itself


def root_path(tree, row):
    path = [row]
    while path[0] != 0:
        path.insert(0, int(tree.parents[path[0]]))
    return path


def test_bad_input():
    for parents in ([], [0, 0], [-1, 1], [-1, -1], [-1, 0, 2]):
        with pytest.raises(ValueError, match="parents are"):
            Tree([0] * len(parents), parents)
    with pytest.raises(ValueError, match="every level needs"):
        TreeDrafter(TreeBigram(torch.tensor([0, 1, 0]), 2), (2, 0))
    with pytest.raises(ValueError, match="prompt is empty"):
        next(speculate(ToyTarget(ToyModel(0)), FixedDrafter([], []), [], Sampler(1), Dice(0)))


def test_a_tree_may_be_as_deep_as_the_window_has_room_and_no_deeper():
    """A window of 32 rows: 2 of the prompt, the root's, 29 below it."""
    for depth, fits in ((29, True), (30, False)):
        drafter = FixedDrafter([1] * depth, range(depth))
        steps = speculate(random_gpt(0), drafter, [1, 2], Sampler(1), Dice(0))
        next(steps)
        if fits:
            step = next(steps)
            assert step.drafted == 29 and len(step.detail.path) == len(step.tokens)
        else:
            with pytest.raises(ValueError, match="the tree is 30 deep; only 29 fit"):
                next(steps)


# ---------------------------------------------------------------- the drafters


def test_the_bigrams_table_by_hand():
    """The text 0 1 2 2 1 0 0 1: after 0 came 0 once and 1 twice, ..."""
    drafter = TreeBigram(torch.tensor([0, 1, 2, 2, 1, 0, 0, 1]), 3, smoothing=0.5)
    counts = torch.tensor([[1, 2, 0], [1, 0, 1], [0, 1, 1]])
    for token in range(3):
        torch.testing.assert_close(drafter.logits(token).exp(), counts[token] + 0.5)
    torch.testing.assert_close(drafter.level([1, 0], [0, 0]).exp(), counts[[1, 0]] + 0.5)


@pytest.mark.parametrize("temperature", [0, 0.1, 1])
def test_the_top_children_are_the_same_at_any_temperature(temperature):
    """At 0 the sampler's one-hot would know the first of them only."""
    drafter = TreeDrafter(TreeBigram(FOLLOWERS, 5), (3, 1), Sampler(temperature))
    tree = drafter.propose(0, room=9)
    assert tree.tokens.tolist() == [0, 3, 2, 1, 0, 0, 0]
    assert tree.parents.tolist() == [-1, 0, 0, 0, 1, 2, 3]
    assert tree.draft_probs[0].tolist() == pytest.approx([x / 6.5 for x in (.1, 1.1, 2.1, 3.1, .1)])
    assert [int(drafter.propose(0, room).depths.max()) for room in (0, 1, 2)] == [0, 1, 2]


def test_drawn_children_come_through_the_sampler():
    model = TreeBigram(FOLLOWERS, 5)
    tree = TreeDrafter(model, (3, 1), Sampler(0), Dice(0)).propose(0, room=9)
    assert tree.tokens.tolist() == [0, 3, 0]  # at temperature 0 there is one child to draw
    assert tree.draft_probs.tolist() == [[0, 0, 0, 1, 0], [1, 0, 0, 0, 0], [0] * 5]
    tree = TreeDrafter(model, (5,), Sampler(1, top_k=3), Dice(0)).propose(0, room=9)
    assert sorted(tree.tokens.tolist()) == [0, 1, 2, 3]
    assert tree.draft_probs[0].tolist() == pytest.approx([x / 6.3 for x in (0, 1.1, 2.1, 3.1, 0)])


def test_tree_drafting_gpt_sees_only_its_own_branch():
    """TreeGPT's draft distributions equal those of plain forwards over each path."""
    drafter, text = TreeDrafter(TreeGPT(SMALL), (3, 2, 1)), [4, 5, 6]
    drafter.observe(text, None, None)
    tree = drafter.propose(7, room=20)
    assert tree.depths.tolist() == [0] + 3 * [1] + 6 * [2] + 6 * [3]
    for row in range(10):  # all that were asked: the root, its 3 children, their 6
        tokens = text + tree.tokens[root_path(tree, row)].tolist()
        plain, _ = SMALL(torch.tensor([tokens]))
        torch.testing.assert_close(
            tree.draft_probs[row], Sampler()(plain[0, -1]), rtol=0, atol=1e-9)
    assert not tree.draft_probs[10:].any()


def test_what_pays_as_the_lesson_says():
    found = load_contests(MEASURED / "one_loop")["one_hour"]
    fast = speedups(found, 1)
    for step in ("picked 1-1 2-1 faster", "picked 1-1 1-1-1 slower", "picked 2-1 2-2 slower",
                 "drawn 1-1 2-1 level", "drawn 1-1 1-1-1 faster", "drawn 2-1 2-2 slower"):
        way, *shapes, verdict = step.split()
        old, new = (f"02 {way} tree {shape}, 57K GPT" for shape in shapes)
        tokens, price = (fast[new][i] - fast[old][i] for i in (0, 1))
        late, error = behind(found, 1, old)[new]  # text by text
        said = "level" if abs(late) <= error else "slower" if late > 0 else "faster"
        assert (said, tokens / price > fast[old][2]) == (verdict, verdict == "faster")
    greedy = [name for name in table_of(found, 0) if name.startswith("02 picked tree")]
    late = behind(found, 0, "02 picked tree 1-1-1-1, 57K GPT")
    assert all(late[name][0] > late[name][1] for name in greedy if re.search("tree .*2", name))


def test_where_a_tree_loses_and_where_it_wins():
    found = {(folder, name): file for folder in (".", "again", "one_loop")
             for name, file in load_contests(MEASURED / folder).items()}
    ways, ahead = (r"02 drawn tree .*[2-9].*, 57K GPT", "01 chain of .*, 57K GPT"), []
    for file in found.values():
        fast = speedups(file, 1) if "1" in file["tables"] else {}
        trees, chains = ([fast[name][2] for name in fast if re.match(way, name)] for way in ways)
        ahead += [max(chains) > max(trees)] if trees and chains else []
    assert ahead == [True] * 7
    tree, chain = "05 4-gram, 8 nodes", "01 chain of 8, 4-gram"
    less = [behind(file, 0, chain)[tree] for file in found.values()
            if "0" in file["tables"] and {tree, chain} <= file["tables"]["0"]["methods"].keys()]
    assert len(less) == 6 and all(late + error < 0 for late, error in less)
    rounds = table_of(found["one_loop", "heap_or_chain"], 0)
    fewer = [chain - tree for chain, tree in zip(*(rounds[name]["rounds"] for name in (
        "05 4-gram, the heap's chain of 8", tree)), strict=True)]
    assert sum(more > 0 for more in fewer) == 48 and min(fewer) == 0 and len(fewer) == 56
