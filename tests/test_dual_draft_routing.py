"""Chapter 03: the tree that a head grows, the router, and heads that are trained for a duty and
decoded as trained.

Exactness, greedy text and wrong variants of the table's loops: tests/test_loops.py.
"""

import itertools
import math
from types import SimpleNamespace

import pytest
import torch

import routing_room
from dual_draft_routing import (
    HeadDrafter,
    HeadLevels,
    RecordLevels,
    RoutedDrafter,
    grow_tree,
    odds,
    odds_of,
)
from merged_trees import prefixes
from nanogpt.bench import gain
from nanogpt.chapter import Loop
from nanogpt.data import CharTokenizer
from nanogpt.decoding import collect, plain_decode
from nanogpt.exact import proofs
from nanogpt.exact.toy_models import ToyHead, ToyModel, loop_bias, random_gpt
from nanogpt.sampling import Dice, Sampler
from train_heads import DEPTH, default_configs, head_loss, letters_of, on_duty, random_heads
from tree_attention import TreeDrafter, multi_round, speculate

PROMPT = [0, 1]


def started(head, text):
    head.reset()
    head.state = torch.tensor([text])
    return head


def toy_pair(budget=3):
    return [HeadDrafter(ToyHead(seed), 2, 2, budget) for seed in (8, 9)]


def test_a_coin_may_choose_the_head():
    """The drafters' own coin is a draw like any other."""
    for sampler in Sampler(1), Sampler(0.7, top_p=0.9):
        assert loop_bias(lambda target, dice, sampler=sampler: speculate(
            target, RoutedDrafter(toy_pair(), lambda means: int(dice.flip(0.5))), PROMPT, sampler,
            dice), sampler, 1, 4) < 1e-12


# ---------------------------------------------------------------- the tree


def full_tree(head, root, depth, top_k):
    """Every node of the top-k expansion as {path: score}, by brute force."""
    scores, level = {(): 0.0}, [()]
    for _ in range(depth):
        longer = []
        for path in level:
            states = torch.tensor([head.state[0].tolist() + [root, *path[:-1]]]) if path \
                else head.state
            log_probs, _ = head.read(states, [path[-1] if path else root])
            best = log_probs[0].topk(min(top_k, log_probs.shape[-1]))
            for value, token in zip(best.values.tolist(), best.indices.tolist(), strict=True):
                longer.append(path + (token,))
                scores[longer[-1]] = scores[path] + value
        level = longer
    return scores


@pytest.mark.parametrize("seed", range(6))
def test_pruned_expansion_keeps_the_best_nodes_of_the_full_one(seed):
    head = started(ToyHead(seed, vocab=5, scale=1.5), [1, 2])
    for depth, top_k, budget in itertools.product((1, 3, 4), (1, 2, 9), (1, 4, 13)):
        tree, scores = grow_tree(head, 3, depth, top_k, budget)
        everything = full_tree(head, 3, depth, top_k)
        wanted = sorted((s for path, s in everything.items() if path), reverse=True)[:budget]
        assert sorted(scores[1:], reverse=True) == pytest.approx(wanted, abs=1e-12)
        assert len(set(prefixes(tree))) == len(tree) == min(budget, len(everything) - 1) + 1
        for path, score in zip(prefixes(tree), scores, strict=True):
            assert everything[path] == pytest.approx(score, abs=1e-12)


def test_a_count_is_a_head_by_hand():
    """In "bcabb", behind "cab", Witten and Bell give .8125 to b and .0625 to c; behind "abb", of
    which only b was seen, they are alike."""
    class Data:
        tokenizer, train = CharTokenizer("abc"), torch.tensor([1, 2, 0, 1, 1])

    head = routing_room.CountHead(Data)
    head.observe([2, 0])
    assert grow_tree(head, 1, 2, 1, 2)[1] == pytest.approx(
        [0, math.log(13 / 14), math.log(13 / 28)])


# ---------------------------------------------------------------- the router


def test_the_more_confident_tree_is_the_one_proposed():
    sharp, vague = toy_pair()
    sharp.head.model = ToyModel(8, 3, scale=9.0)
    vague.head.model = ToyModel(9, 3, scale=0.1)
    for pair, index in (([sharp, vague], 0), ([vague, sharp], 1)):
        routed = RoutedDrafter(pair)
        for drafter in pair:
            started(drafter.head, PROMPT)
        tree = routed.propose(2, room=9)
        assert routed.choices == [index]
        assert prefixes(tree) == prefixes(sharp.propose(2, room=9))


class Fixed:
    """A head that says the same everywhere."""

    def __init__(self, *probs):
        self.state, self.said = torch.zeros(1, 1), torch.tensor([probs]).log()

    def reset(self):
        pass

    def observe(self, tokens, hidden, rows):
        pass

    def read(self, states, tokens):
        return self.said.expand(len(tokens), -1), states


def test_a_record_of_drawn_rounds_by_hand():
    """Head 0 is surer. Then a 2 comes, accepted, for which head 1 had more; then a 0, the target's
    own, for which head 0 had more: .8 times .1 is less than .2 times .7."""
    for last, expected in ((None, [0, 1, 1]), (1, [0, 1, 0])):
        router, chosen = RecordLevels([Fixed(.8, .1, .1), Fixed(.2, .1, .7)], last), []
        router.reset()
        for committed, root in (([1, 1], 1), ([1, 2], 1), ([1], 0)):
            router.observe(committed, None, None)
            router.level([root], [-1])
            chosen.append(router.drafters.index(router.chosen))
        assert chosen == expected


def test_a_choice_by_the_record_is_lossless():
    """Two rounds, for the second chooses by what the first one wrote."""
    loop = Loop("by record, {}", lambda m, k, sampler, dice: TreeDrafter(
        RecordLevels(m.heads), (1,) * k, sampler, dice), speculate, multi_round)
    for seed in (1, 3):
        assert proofs.bias(loop, 1, Sampler(0.9), rounds=2, seed=seed) < 1e-12


# ---------------------------------------------------------------- the heads


def test_what_is_known_beforehand_is_what_a_sure_target_expects():
    """Greedy, the target knows its draws; and no tree is longer than the text."""
    target = random_gpt(2, block_size=64)
    heads, prompt = random_heads(target), [1, 2, 3]
    text = prompt + collect(plain_decode(target, prompt, Sampler(0), Dice(0)), 50).tokens
    known = routing_room.propose_everywhere(
        target, routing_room.drafters(heads, 6), text, len(prompt), Sampler(0))
    assert all(step.due == step.lengths for step in known.values())
    vote = routing_room.votes(target, heads, text)
    assert all([*step.before, step.vote] == vote[:root + 1] for root, step in known.items())
    both = routing_room.BothHeads(routing_room.drafters(heads, 6))
    for root, trees, _ in routing_room.trees_everywhere(target, both, text, len(prompt)):
        assert max(int(tree.depths.max()) for tree in trees) <= len(text) - 1 - root


def test_routers_by_hand():
    """Two tokens behind the root. The verse head guesses the first, the code head none, and is
    the surer one: 2 tokens in 1 round for verse and the oracle, in 2 for code and the router."""
    known = {0: routing_room.Proposal([1, 0], [.2, .3]), 1: routing_room.Proposal([0, 0], [.2, .2])}
    wanted = {"verse head": 2, "code head": 1, "the surer head": 1, "the oracle": 2}
    assert wanted == {router: routing_room.tau([routing_room.rounds_by(known, router)])
                      for router in wanted}


def test_votes_are_what_the_heads_give_to_the_next_token():
    """As a tree reads them: below every token, from the state of the token before it."""
    target = random_gpt(2, block_size=64)
    heads, text = random_heads(target), [1, 2, 3, 1, 0, 2]
    found = routing_room.votes(target, heads, text)
    assert found[:2] == [0, 0]
    levels = [HeadLevels(head) for head in heads]
    _, hidden = target(torch.tensor([text]))
    for place in range(1, 5):
        given = []
        for level in levels:
            level.observe(text[place - 1:place], hidden, [place - 1])
            given.append(float(level.level([text[place]], [-1])[0, text[place + 1]]))
        assert found[place + 1] == pytest.approx(given[0] - given[1], abs=1e-5)


def test_the_letters_up_to_the_root_name_the_head_that_draws():
    target, found = random_gpt(2, block_size=64), []
    heads = random_heads(target)
    router = routing_room.LetterLevels(heads, target)
    for text in itertools.product(range(3), repeat=5):
        router.reset()
        for part in ([0, 1], [2, 3]):  # two rounds; the last letter is the root
            router.observe([text[i] for i in part], target(torch.tensor([text]))[1], part)
        router.level([text[-1]], [-1])
        speaks = odds(routing_room.votes(target, heads, [*text]))[-1]
        found.append((router.drafters.index(router.chosen), speaks < 0))
    assert all(head == for_the_second for head, for_the_second in found)
    assert {head for head, _ in found} == {0, 1}


def test_odds_by_hand():
    """3 to 1 for the first head's kind is .75; with a change in a quarter of the cases it is
    .75 * .75 + .25 * .25 for the next token. Then a 1 to 1 changes nothing but the time."""
    assert odds([math.log(3), 0], 0.25) == pytest.approx(
        [math.log(.625 / .375), math.log(.5625 / .4375)])
    # Enumerated: four tokens, every course of kinds before the fifth.
    given = [(.7, .2), (.1, .6), (.5, .4), (.9, .3)]
    chance = [0, 0]
    for kinds in itertools.product((0, 1), repeat=5):
        changes = sum(one != two for one, two in itertools.pairwise(kinds))
        chance[kinds[4]] += .1 ** changes * .9 ** (4 - changes) * math.prod(
            both[kind] for both, kind in zip(given, kinds[:4], strict=True))
    assert odds([math.log(one / two) for one, two in given], .1)[-1] == pytest.approx(
        math.log(chance[0] / chance[1]))
    assert odds([1e4, -1e4])[-1] == pytest.approx(-math.log(31))  # no sure vote outlives a change


def test_letters_by_hand():
    """The prompt speaks for verse, 5 to 1 and 1 to 2; the first letter of the text for code, with 2
    to 9, and with change nothing before it counts much. The prompt alone keeps verse."""
    steps = {7 + i: routing_room.Proposal([0, 1], [], vote=math.log(vote),
                                          before=[0.0, math.log(5), math.log(.5)])
             for i, vote in enumerate((1, 2 / 9, 1, 1))}
    assert [round(math.exp(one), 2) for one in odds_of(steps).values()] == [
        1.96, .46, .49, .51]
    assert routing_room.rounds_by(steps, routing_room.LETTERS) == [0, 1, 1]
    assert routing_room.rounds_by(steps, routing_room.PROMPT) == [0, 0, 0, 0]


def test_the_prompt_names_its_head(monkeypatch):
    """A vote is the number that the prompt repeats."""
    monkeypatch.setattr(routing_room, "votes", lambda target, pair, prompt: prompt)
    for verse, code, right in ((1, -2, 48), (1, 1, 24), (-2, 1, 0)):
        assert routing_room.named_right({"verse": verse, "code": code}, None, {
            "verse": None, "code": None}, lambda vote, count: [[vote] * 4] * count) == (right, 48)


def test_pairs_vote_by_hand():
    """In verse a 1 follows a 0, in code another 0."""
    kinds = {kind: SimpleNamespace(tokenizer=SimpleNamespace(vocab_size=2),
                                   train=torch.tensor([0, *pair] * 9))
             for kind, pair in (("verse", [1]), ("code", [0]), ("both", []))}
    vote = routing_room.pair_votes(kinds)
    assert vote([0])[0] == 0 and vote([0, 1])[1] > 1 and vote([0, 0])[1] < -1


def test_texts_that_turn(monkeypatch):
    """Two tokens are the prompt, and every token is its vote: of each kind one text turns."""
    for name, stub in {
            "untouched_prompts": lambda data, n: [[0, 0]] * n, "votes": lambda *given: given[-1],
            "plain_texts": lambda *given: [[9, 9, -1], [-9, -9, 1]],
            "drafters": list, "propose_everywhere": lambda *given: given[-1]}.items():
        monkeypatch.setattr(routing_room, name, stub)
    kinds = {"verse": None, "code": None,
             "both": SimpleNamespace(tokenizer=SimpleNamespace(decode=str))}
    assert routing_room.turned(kinds, None, {"verse": None, "code": None}) == [
        ("[9, 9, -1]", 0), ("[-9, -9, 1]", 1)]


def test_a_gain_by_hand():
    """One round a text, 2 and 4 tokens against 1 and 1: three times as many. Without either text it
    would be 4 and 2 times, one off: with two texts, that is the standard error."""
    assert gain([[1], [3]], [[0], [0]]) == pytest.approx((2, 2))
    # Without one of three: 3, 3.5 and 2.5 times, a deviation of .5; times (n - 1) / sqrt(n), twice.
    assert gain([[2], [1], [3]], [[0], [0], [0]]) == pytest.approx((2, 2 / 3 ** 0.5))
    # Two kinds of text, one with 3 tokens for 1, the other with 2 for 1: no accident, and no error.
    assert gain([[2], [2], [1], [1]], [[0]] * 4, 2) == pytest.approx((1.5, 0))
    assert gain([[2], [2], [1], [1]], [[0]] * 4)[1] > 0.1
    parts = "verse", "code", "both", *routing_room.STRETCHES
    found = {"a": dict.fromkeys(parts, [[2], [2], [1], [1]]), "b": dict.fromkeys(parts, [[0]] * 4)}
    assert [part for part in parts if routing_room.gain_on(found, "a", "b", part)[1] > 0.1] == [
        "verse", "code"]


def test_both_orders_of_a_pair():
    """Verse texts write 3 tokens a round, code 1: by its prompt each text keeps its first head."""
    known = {kind: [{root: routing_room.Proposal(lengths, [.5, .5], before=before)
                     for root in range(128)}] for kind, lengths, before in (
                         ("verse", [3, 0], [1.0]), ("code", [0, 1], [-1.0]))}
    found = routing_room.replayed(known, ["the prompt", "verse head", "code head"])
    for every in routing_room.STRETCHES:
        rounds = {router: parts[every] for router, parts in found.items()}
        assert rounds["the prompt"] == [rounds["verse head"][0], rounds["code head"][1]]
        assert rounds["the prompt"][1][0] == 1, every  # code comes first in the second


def test_bad_input():
    for name in "depth", "top_k", "budget":
        with pytest.raises(ValueError, match=f"{name} is 0; it must be at least 1"):
            HeadDrafter(None, **{name: 0})


# ---------------------------------------------------------------- training


def one_position(head):
    """Tokens with a single proposal, hidden[0], their hidden states, and the loss there."""
    tokens = torch.arange(DEPTH + 1)[None] * 3 % 11
    hidden = head.target(tokens)[1]

    def loss(labels, duty):
        return head_loss(head, tokens, hidden, labels[None], torch.tensor([[duty]])).item()

    return tokens[0].tolist(), hidden, loss


@pytest.mark.parametrize("which", [0, 1])
def test_training_and_decoding_read_the_same(which):
    """The loss at one position equals what `read` says there, level after level."""
    head = random_heads(random_gpt(2, block_size=64))[which]
    tokens, hidden, loss = one_position(head)
    labels = torch.softmax(torch.randn(DEPTH + 1, 11, dtype=torch.float64), -1)
    head.observe(None, hidden, [0])
    states, total = head.state, 0.0
    for d in range(1, DEPTH + 1):
        log_probs, states = head.read(states, tokens[d:d + 1])
        total -= float((labels[d] * log_probs[0]).sum())
    assert loss(labels, True) == pytest.approx(total / DEPTH, abs=1e-5)


def test_off_duty_a_head_learns_little_and_to_be_unsure():
    """Off duty half of the label is uniform, and a place weighs less."""
    *_, loss = one_position(random_heads(random_gpt(2, block_size=64))[0])
    uniform = torch.full((DEPTH + 1, 11), 1 / 11, dtype=torch.float64)
    sure = torch.eye(11, dtype=torch.float64)[[4] * (DEPTH + 1)]
    on = loss(uniform, True)
    assert loss(uniform, False) == pytest.approx(0.2 * on)
    assert loss(sure, False) == pytest.approx(
        0.2 * (0.5 * loss(sure, True) + 0.5 * on), rel=1e-5)


def test_the_duties_divide_the_text():
    """'to be, or': a root is inside a word if it and the token before it are letters."""
    text = "to be, or not"
    tokenizer = CharTokenizer(text)
    letters, tokens = letters_of(tokenizer), torch.tensor([tokenizer.encode(text)])
    inside, edges = (on_duty(config.duty, tokens, letters)[0] for config in default_configs(4))
    roots = text[1:len(text) - DEPTH + 1]
    assert [c for c, there in zip(roots, inside, strict=True) if there] == ["o", "e"]
    assert torch.equal(edges, ~inside)
    assert on_duty("everywhere", tokens, letters).all()
    # Verse and code come in turn.
    assert on_duty("verse", tokens.expand(3, -1), letters).all(1).tolist() == [1, 0, 1]
