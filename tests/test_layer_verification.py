"""Chapter 06: every rule on every shape loses nothing, exactly; the toy experiment computes what it
says.

The loops of the table, and all other wrong variants: tests/test_loops.py.
"""

from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import block_rules
import layer_verification
import layers_room as bench
from block_rules import (
    BlockVerification,
    GreedyBlockVerification,
    TraversalVerification,
    block_verification,
)
from chain_specdec import ChainRound, accept, speculate_chain
from global_resolution import CappedGR
from iid_trees import (
    SHAPES,
    SampledTreeDrafter,
    as_arrays,
    complete,
    multi_chain,
    shape_of,
    shape_parents,
)
from layer_verification import LayerVerification, TokenVerification, next_token
from nanogpt.decoding import Generation, Step
from nanogpt.does_it_pay import load_contest
from nanogpt.exact import trees as exact_trees
from nanogpt.exact.proofs import random_cast
from nanogpt.exact.slips import replaced
from nanogpt.exact.toy_models import ToyDraft, ToyModel, loop_bias
from nanogpt.exact.trees import KINDS, Tables, tables
from nanogpt.sampling import Dice, Sampler
from single_step_rules import KSEQ, RRS, DistinctRRS, SpS
from test_chain_specdec import drafts_accepted
from tree_attention import Tree, TreeDrafter, multi_round, speculate, walk

WRONG = bench.WRONG
p2, q2 = torch.tensor([[0.9, 0.1], [0.5, 0.5]], dtype=torch.float64)  # the lesson's e and t
STEPS = bench.STEPS | {"CappedGR": CappedGR}
RULES = bench.RULES | {"TV + CappedGR": TokenVerification(CappedGR),
                       "LV + CappedGR": LayerVerification(CappedGR)}


def all_trees(parents, models):
    """Every tree with these parents, see nanogpt/exact/trees.py."""
    return exact_trees.all_trees(shape_of(tuple(parents)), models)


def bias_and_length(rule, parents, models):
    """Total variation and mean accepted length on these parents, see nanogpt/exact/trees.py."""
    return exact_trees.bias_and_length(rule, shape_of(tuple(parents)), models)


# ---------------------------------------------------------------- exactly lossless

# (b, H, V), as far as all trees can be listed: b = 3, H = 3 on the narrow shape alone.
SIZES = [(1, 1, 5), (1, 2, 4), (1, 3, 3), (2, 1, 4), (2, 2, 3), (3, 1, 4), (3, 2, 2)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", RULES)
def test_output_distribution_is_the_targets_exactly(name, kind):
    for shape, children_of in SHAPES.items():
        for b, H, V in SIZES:
            if "Capped" in name or name in bench.rules_for(shape, b):
                parents = shape_parents(children_of, b, H)
                bias, length = bias_and_length(RULES[name], parents, tables(kind, V, H))
                assert bias < 1e-12, (shape, b, H)
                if kind == "equal" and (name != "GBV" or b == 1):  # GBV judges the best of b draws
                    assert length == pytest.approx(H, abs=0.01 if "Capped" in name else 1e-5)
                assert length == 0 or kind != "disjoint"


FULL = ["TV + RRS", "LV + K-SEQ", "LV + RRS", "LV + CappedGR", "TRV"]
TREES = [name for name in RULES if name not in ("BV", "GBV")]
UNEVEN = [-1, 0, 0, 0, 2, 2, 3, 4, 4, 6]  # leaves at depth 1, 2 and 3; 3, 2 and 1 children


@pytest.mark.parametrize("parents, V, names", [
    (shape_parents(multi_chain, 2, 3), 3, [*TREES, "GBV"]),
    (shape_parents(multi_chain, 3, 2), 3, [*TREES, "GBV"]),
    (shape_parents(multi_chain, 3, 3), 2, [*TREES, "GBV"]),
    (shape_parents(SHAPES["tapered"], 2, 3), 2, TREES),
    (shape_parents(complete, 2, 3), 2, FULL),  # 16,384 trees
    (UNEVEN, 2, TREES),
])
def test_output_distribution_on_deeper_wider_and_uneven_trees(parents, V, names):
    for name in names:
        for kind in ("related", "truncated" if V > 2 else "equal"):
            assert bias_and_length(RULES[name], parents, tables(kind, V, 3, seed=1))[0] < 1e-12


def test_the_layer_lift_is_not_ahead_on_every_pair_of_models():
    """Both are exact; but LV moves mass to the second child, below which nothing was drafted."""
    draft, target = ([np.tile([x, 1 - x], (2**t, 1)) for t, x in enumerate(first_tokens)]
                     for first_tokens in ((0.9, 0.5, 0.2, 0.4), (0.7, 0.5, 0.2, 0.0)))
    lengths = {}
    for lift in (LayerVerification, TokenVerification):
        bias, lengths[lift] = bias_and_length(lift(KSEQ), [-1, 0, 1, 1, 2], Tables(draft, target))
        assert bias < 1e-12
    assert lengths[LayerVerification] == pytest.approx(2.176, abs=1e-3)
    assert lengths[TokenVerification] == pytest.approx(2.400, abs=1e-3)


# ---------------------------------------------------------------- identities


def judged(rule, parents, models):
    shape, arrays, *_ = all_trees(parents, models)
    return rule.judge(shape, *arrays)


@pytest.mark.parametrize("kind", KINDS)
def test_on_a_chain_every_lifted_rule_is_block_verification(kind):
    for H, V in ((1, 5), (2, 4), (4, 3)):
        parents, models = shape_parents(complete, 1, H), tables(kind, V, H)
        ends, residual = judged(BlockVerification(), parents, models)
        others = [LayerVerification(step) for step in (SpS, *STEPS.values())]
        for rule in (*others, TraversalVerification(), GreedyBlockVerification()):
            their_ends, their_residual = judged(rule, parents, models)
            assert abs(their_ends - ends).max() < 1e-13
            # Residuals need not agree where the path cannot end.
            distributions = [ends[:, :, None] * r / np.maximum(r.sum(-1, keepdims=True), 1e-300)
                    for r in (residual, their_residual)]
            assert abs(distributions[0] - distributions[1]).max() < 1e-12


def chain_bias(rule):
    """Of chapter 01's loop with another rule."""
    drafter = ToyDraft(ToyModel(99, 3, scale=2.0))
    return loop_bias(lambda target, dice: speculate_chain(
        target, drafter, [0, 1], 2, Sampler(1), dice, rule), Sampler(1))


def test_block_verification_in_chapter_01s_loop():
    """Exact with three tokens, where a residual has two; as many drafts as the arrays say, which
    judge trees; .04 more than `accept`."""
    wrong = WRONG["block_verification"]["the residual is not scaled by the score"]
    assert chain_bias(block_verification) < 1e-12 and chain_bias(wrong) > 5e-4
    lengths = []
    for K in 1, 2, 3, 4:
        shape, arrays, _, chances = all_trees([*range(-1, K)], Tables(*(
            [x.numpy()[None].repeat(2 ** t, 0) for t in range(K + 1)] for x in (q2, p2))))
        lengths.append([chances @ BlockVerification().expected_length(shape, *arrays),
                        *(drafts_accepted(rule, p2, q2, K)
                          for rule in (block_verification, accept))])
    by_arrays, mine, chapter_01 = zip(*lengths, strict=True)
    assert mine == pytest.approx(by_arrays)
    assert mine[:2] == pytest.approx((0.6, 1.0)) and chapter_01[:2] == pytest.approx((0.6, 0.96))
    # As sums of averages, each with the target's own token.
    sums = bench.reached_by_rule(p2.numpy(), q2.numpy(), 4).cumsum(1)[:, 1:]
    assert sums - 1 == pytest.approx(np.array([chapter_01, mine]))


def test_a_block_is_between_the_overlap_of_whole_chains_and_its_kth_part():
    """The lesson's law: so the factor of both is the best-weighted overlap in the long run."""
    for seed in range(5):
        p, q = np.random.default_rng(seed).dirichlet(np.ones(3), 2)
        block, P, Q = bench.reached_by_rule(p, q, 7)[1], np.ones(1), np.ones(1)
        weighted = min((p ** s * q ** (1 - s)).sum() for s in np.linspace(0, 1, 101))
        for k in range(1, 8):
            P, Q = np.outer(P, p).ravel(), np.outer(Q, q).ravel()
            whole = np.minimum(P, Q).sum()
            assert whole / k - 1e-12 < block[k] < whole + 1e-12 < weighted ** k + 1e-11


def test_block_verification_gains_nothing_where_drafts_are_picked():
    """Then q is 1 at the draft, whatever the model of the drafter said."""
    p, q = torch.tensor([[0.6, 0.4], [1, 0]], dtype=torch.float64)
    for K, accepted in (2, 0.96), (4, 1.3056):  # .6 + .36 + .216 + .1296
        found = [drafts_accepted(rule, p, q, K) for rule in (block_verification, accept)]
        assert found == pytest.approx([accepted] * 2)


def test_two_rules_are_compared_on_the_same_chains():
    assert bench.error_by_text(["ab", "cd"], np.array([1, 3, 5, 7])) == 2  # 4 above, 4 below
    # By hand: a half and twice as many more, of a mean of 2; and where p is q, all and one more.
    assert bench.gain_by_tree(np.array([1, 3]), np.array([3, 9])) == pytest.approx((2, 6, 200, 100))
    rows, tokens = np.random.default_rng(1).dirichlet(np.ones(3), (1, 4)), np.array([[0, 1, 2, 0]])
    equal = bench.tau_by_tree(bench.RULES, [(shape_of((-1, 0, 1, 2)), tokens, rows, rows)])
    assert equal["BV"] == pytest.approx([4])


def test_gains_by_length_by_hand_and_as_stored():
    assert bench.tokens_by_length(ChainRound([1, 0], [q2, q2], [p2, p2], 0)) == pytest.approx(
        np.array([[1, 1.2, 1.4], [1, 1.2, 1.56]]))  # te, as in the lesson
    # Near the window's end, 32, chains are shorter; they are left out.
    found = bench.gains_by_length(random_cast(), [[1] * 27, [2] * 27], drafts=3, new_tokens=12)
    results = (bench.MEASURED.parents[1] / "06_layer_verification/RESULTS.md").read_text("utf-8")
    for who, line in bench.load_gains()["drafters"].items():
        assert line.keys() == found[who].keys()
        for K in 2, 3, 4, 6, 8, 12:
            assert "| {:.2f}, {:.2f} | {:+.1f}% ({:.1f}) |".format(
                *(column[K] for column in [*line.values()][1:])) in results


def test_a_forecast_knows_where_a_text_ends():
    """A half of the rounds writes two tokens. A text of two: two rounds or one, 1.5 on average."""
    assert bench.tokens_of_text([1, 1.5], 1, 2) == pytest.approx(4 / 3)
    assert bench.tokens_of_text([1, 1.5, 1.75], 2, 1) == 1
    assert bench.tokens_of_text([1, 1.5, 1.75], 2, 20000) == pytest.approx(1.75, 1e-3)
    name = "06 chain of {}, block verification"
    found = bench.forecast({name.format(4): (3, 2, 1.5), name.format(8): (4, 3, 1.6)}, 20000)
    points = found.pop(("57K GPT", "as a block"))
    assert [*points] == [4, 8] and not any(found.values())
    assert points[4] == pytest.approx((3.1361, 2), 1e-3)


def test_time_saved_as_a_block(monkeypatch):
    """As in RESULTS; and by hand: half the time, for as many tokens; without a text 60 or 33 %."""
    results = (bench.MEASURED.parents[1] / "06_layer_verification/RESULTS.md").read_text("utf-8")
    for hour in "loops", "loops_faster", "one_hour":
        found = load_contest(bench.MEASURED / "one_loop" / f"{hour}.json")
        row = " | ".join("{:.1f} \u00b1 {:.1f}".format(*bench.saved_as_a_block(found, K))
                         for K in (4, 8, 12))
        assert f"| {hour} | {row} |" in results
    one, block = bench.HEADS
    monkeypatch.setattr(bench, "tokens_of_text", lambda *_: 1)
    found = {"tables": {"1": {"methods": {
        one.format(4): {"ms": [5, 3], "rounds": [1, 1]},
        block.format(4): {"ms": [2, 2], "rounds": [1, 1]}}}}}
    assert bench.saved_as_a_block(found, 4) == pytest.approx((50, 4 / 15 * 100))


def test_what_a_debtor_accepts():
    """Two drafts, by hand: behind no draft, and nowhere else, an e is owed. A round in debt accepts
    .85 and owes again in a half, a fresh one 1.04, and owes in .4. p = q: all, and no debt."""
    p, q = p2.numpy(), q2.numpy()
    assert bench.debtor(p, q, 2, 4000) == pytest.approx((8.6 / 9, 4 / 9), abs=0.03)
    assert [*bench.debtor(q, q, 3, 9)] == [3, 0]


def test_twice_as_many_on_every_chain_is_a_gain_without_an_error(monkeypatch):
    """However long the chains are."""
    monkeypatch.setattr(bench, "tokens_by_length", lambda chain: np.outer(
        [1, 2], np.ones(4) + sum(chain.drafted)))
    for line in bench.gains_by_length(random_cast(), [[1], [2]], 3, 12).values():
        assert (line["gain"], line["error"]) == ([100] * 4, [0] * 4)


def test_lv_over_tv_in_percent(monkeypatch, capsys):
    monkeypatch.setattr(bench, "recorded_trees", lambda texts: [])
    monkeypatch.setattr(bench, "tau_by_tree", lambda rules, trees: {
        name: np.array([3.0, 3.0] if name[:2] == "LV" else [2.0, 2.0]) for name in rules})
    bench.print_same_trees(defaultdict(list))
    assert capsys.readouterr().out.count("+50.00% (0.00)") == len(bench.STEPS)


def test_two_chains_are_cut_to_other_shapes():
    """Three and three: nodes 1, 3, 5 and 2, 4, 6; a tree whose window was short is left out."""
    parents, tokens = (-1, 0, 0, 1, 2, 3, 4), np.arange(7)[None]
    trees = [(shape_of(parents), tokens, 10 * tokens), (shape_of(parents[:3]), tokens[:, :3])]
    for first, second, kept, below in ((3, 0, [0, 1, 3, 5], (-1, 0, 1, 2)),
                                       (3, 1, [0, 1, 2, 3, 5], (-1, 0, 0, 1, 3)),
                                       (2, 2, [0, 1, 2, 3, 4], parents[:5])):
        (shape, *arrays), = bench.cut_paths(trees, first, second)
        assert shape.parents == below
        assert [x[0].tolist() for x in arrays] == [kept, [10 * v for v in kept]]


def test_the_trees_of_all_texts_are_met():
    """At most 400, here every third of 900."""
    steps = [Step([], detail=SimpleNamespace(
        tree=Tree([i, 0], [-1, 0], torch.ones(2, 3)), target_probs=torch.ones(2, 3)))
        for i in range(900)]
    found = bench.recorded_trees([Generation([], steps[:450], 1), Generation([], steps[450:], 1)])
    assert [tokens[0, 0] for _, tokens, *_ in found] == list(range(0, 900, 3))


def test_the_lessons_check_by_hand(capsys):
    """Of p2 = (.9, .1) and q2 = (.5, .5) chapter 01 accepts .6, an e for sure and a t with .2."""
    bench.check(accept, p2, q2)
    out = capsys.readouterr().out
    assert "et is written with 0.09, plain: 0.09" in out
    assert "if t is first, both are accepted with 0.12\ndrafts accepted on average: 0.96\n" in out
    assert out.endswith("total variation: 0\n")
    bench.compare({"one": accept, "block": block_verification}, p2, q2)
    out = capsys.readouterr().out.split("\n")
    assert out[2].split() == ["one", "0.12", "0.96", "0"]
    assert out[3].split() == ["block", "0.20", "1.00", "0"]


@pytest.mark.parametrize("kind", KINDS)
def test_with_one_layer_lv_is_tv(kind):
    for b, step in ((b, step) for b in (1, 2, 3) for step in STEPS.values()):
        tv, lv = (judged(lift(step), shape_parents(complete, b, 1), tables(kind, 4, 1))
                  for lift in (TokenVerification, LayerVerification))
        assert abs(tv[0] - lv[0]).max() < 1e-15 and abs(tv[1] - lv[1]).max() < 1e-15


def test_by_hand_a_chain_of_two():
    """The example at the top of layer_verification.py."""
    draft, target = torch.tensor([[0.5, 0.5]] * 3), torch.tensor([[0.9, 0.1]] * 3)
    arrays = as_arrays(Tree([0, 1, 0], [-1, 0, 1], draft), target)
    for lift, second in ((TokenVerification, 0.12), (LayerVerification, 0.2)):
        scores, flow = lift(SpS).scores(*arrays)
        assert scores[0, 1] == pytest.approx(0.2, abs=1e-7)
        assert flow[0, 1].sum() == pytest.approx(second, abs=1e-7)


# ---------------------------------------------------------------- wrong rules

SHORTER = {  # lossless: only the length shows it
    "the target is scaled by a_v instead of A: lossless, but shorter":
        ("score_children", [-1, 0, 0, 1, 1, 2, 3, 5], 0.02),
    "leaves have a part in A: lossless, but shorter":
        ("inclusion_scores", [-1, 0, 0, 1, 3], 0.005),
}


@pytest.mark.parametrize("step", ["K-SEQ", "RRS", "CappedGR"])
@pytest.mark.parametrize("sentence", SHORTER)
def test_lifts_that_stay_lossless_but_accept_less_are_caught(sentence, step):
    name, parents, loss = SHORTER[sentence]
    rule, models = LayerVerification(STEPS[step]), tables("related", 2, 3)
    right = bias_and_length(rule, parents, models)
    with replaced(layer_verification, **{name: WRONG[name][sentence]}):
        wrong = bias_and_length(rule, parents, models)
    assert right[0] < 1e-12 and wrong[0] < 1e-12 and wrong[1] < right[1] - loss


CHAIN, CHAINS = shape_parents(complete, 1, 3), shape_parents(multi_chain, 2, 1)


def test_tokens_of_equal_ratio_share_no_rank():
    """No random network makes ties; where draft and target agree, all ratios are equal."""
    wrong = WRONG["GreedyBlockVerification"][
        "tokens of equal ratio share a rank, and the first chain wins"]
    with replaced(block_rules, GreedyBlockVerification=wrong):
        assert bias_and_length(wrong(), CHAINS, tables("equal", 4, 1))[0] > 1e-3


def test_gbv_keeps_its_digits_for_a_rare_prefix():
    """hi^K - lo^K would have lost most digits where the prefix has probability 1e-12."""
    rare = 1e-12
    draft = np.array([[[rare, 0.5, 0.5 - rare], [0.2, 0.5, 0.3], [0, 0, 0]]])
    target = np.array([[[0.3, 0.3, 0.4], [0.3, 0.3, 0.4], [1, 0, 0]]])
    # Two equal chains: token 0 has by far the best ratio, so below = 1 - rare, joint = rare.
    draft, target = (np.concatenate([p, p[:, 1:]], axis=1) for p in (draft, target))
    chains, tokens = np.array([[0, 1, 2], [0, 3, 4]]), np.array([[0, 0, 1, 0, 1]])
    _, emitted = GreedyBlockVerification.best(chains, tokens, draft, target)
    # Below the rare prefix the maximum of two is, to 1e-12, a single draw.
    assert emitted[0, 1] == pytest.approx(draft[0, 1], abs=2e-12)


def test_traversal_ends_at_the_root_if_nowhere_else():
    """p is q, but for a billionth: a rejected child leaves nothing of p for the root to owe."""
    draft = np.array([[[0.25, 0.75], [0.0, 0.0]]])
    ends, _ = TraversalVerification().judge(
        shape_of((-1, 0)), np.array([[0, 1]]), draft, (1 - 1e-9) * np.array([[[0.25, 0.75]] * 2]))
    assert ends[0] == pytest.approx([1e-9, 1 - 1e-9], abs=1e-15)


def test_where_only_rounding_ends_a_path_the_target_answers():
    """A residual without mass; and p is q, but a coin refused both drafts."""
    assert {next_token(np.zeros(3), np.array([0, 1.0, 0]), Dice(seed)) for seed in range(9)} == {1}
    dice = Dice(0)
    dice.flip = lambda p: False
    assert block_verification([0, 1], [q2, q2], torch.stack([q2] * 3), dice)[0] == 0


class Untruncated(SampledTreeDrafter):
    """Its draft_probs stand before top-k instead of after it."""

    def propose(self, root, room):
        tree = super().propose(root, room)
        untruncated = self.model.level([root], [-1]).softmax(-1)
        return Tree(tree.tokens, tree.parents,
                    torch.cat([untruncated, torch.zeros(len(tree) - 1, 4)]))


CHAPTER_02 = [lift(DistinctRRS) for lift in (TokenVerification, LayerVerification)]


def test_the_same_siblings_under_both_lifts_as_the_lesson_says():
    """TV of DistinctRRS is chapter 02's multi_round; the layer adds to it on each of 12 pairs."""
    lesson = (bench.MEASURED.parents[1] / "06_layer_verification/layers.ipynb").read_text("utf-8")
    shape = shape_of(tuple(shape_parents(multi_chain, 2, 4)))
    both = np.array([[exact_trees.bias_and_length(
        rule, shape, tables("related", V=3, H=4, seed=seed), repeats=False)
        for rule in CHAPTER_02] for seed in range(12)])
    assert both[:, :, 0].max() < 1e-12 and (both[:, 1, 1] > both[:, 0, 1]).all()
    assert all(f"| {length:.3f} |" in lesson for length in both[:, :, 1].mean(0))


@pytest.mark.parametrize("make, exact, biased", [
    # one that walks, one that judges the whole tree, one that judges it from its leaves up
    (lambda model, dice: SampledTreeDrafter(model, [-1, 0, 0], Sampler(1, top_k=2), dice),
     [TokenVerification(RRS), LayerVerification(KSEQ), TraversalVerification()], []),
    (lambda model, dice: Untruncated(model, [-1, 0, 0], Sampler(1, top_k=2), dice),
     [], [TokenVerification(RRS), LayerVerification(KSEQ), TraversalVerification()]),
    # the top tokens are no draws; and chapter 02's children are drawn without replacement
    (lambda model, dice: TreeDrafter(model, (2,)),
     [walk], [TokenVerification(RRS), LayerVerification(KSEQ), TraversalVerification()]),
    (lambda model, dice: TreeDrafter(model, (2,), Sampler(1), dice),
     [multi_round, *CHAPTER_02], [LayerVerification(RRS)]),
], ids=["as it was drawn", "before top-k", "top tokens", "without replacement"])
def test_a_tree_that_was_not_drawn_as_its_rule_thinks_is_caught(make, exact, biased):
    drafter = ToyDraft(ToyModel(99, 4))
    for rule in exact + biased:
        bias = loop_bias(lambda target, dice, rule=rule: speculate(
            target, make(drafter, dice), [0], Sampler(1), dice, rule), Sampler(1), 1, 2,
            ToyModel(5, 4), [0])
        assert bias < 1e-12 if rule in exact else bias > 1e-3


# ---------------------------------------------------------------- decoding, and the trees


def test_shapes_by_hand():
    parents = {name: shape_parents(SHAPES[name], 2, 3) for name in SHAPES}
    assert parents == {"multi-chain": [-1, 0, 0, 1, 2, 3, 4],
                       "tapered": [-1, 0, 0, 1, 1, 2, 3, 3, 4, 5],
                       "complete": [-1, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6]}


def test_a_root_alone_has_no_draft_distribution():
    drafter = SampledTreeDrafter(ToyDraft(ToyModel(1, 4)), CHAIN, Sampler(1), Dice(0))
    assert drafter.propose(3, room=0).draft_probs is None
    assert drafter.propose(3, room=1).draft_probs.shape == (2, 4)


def test_bad_input():
    target = torch.full((5, 3), 1 / 3)
    tree = Tree([0, 1, 2, 0, 1], [-1, 0, 0, 1, 1], target)
    for rule in RULES.values():
        with pytest.raises(ValueError, match="has no draft_probs"):
            rule(Tree(tree.tokens, tree.parents), target, Dice(0))
    with pytest.raises(ValueError, match="BV judges chains"):
        BlockVerification()(tree, target, Dice(0))
    with pytest.raises(ValueError, match="parts below it"):
        GreedyBlockVerification()(tree, target, Dice(0))
    with pytest.raises(ValueError, match="SpS judges 1 child"):
        LayerVerification(SpS)(tree, target, Dice(0))
    for b, depth in ((0, 1), (1, 0)):
        with pytest.raises(ValueError, match="must be at least 1"):
            shape_parents(complete, b, depth)
    for b, depth in ((10 ** 12, 1), (2, 99)):  # before it is made
        with pytest.raises(ValueError, match="make a tree of more than 4096 nodes"):
            shape_parents(complete, b, depth)


# ---------------------------------------------------------------- the toy experiment


@pytest.mark.parametrize("shape_name", SHAPES)
def test_means_over_drawn_trees_agree_with_the_mean_over_all_trees(shape_name):
    pair, parents = bench.random_pair(3, 2, 0.5, seed=4), shape_parents(SHAPES[shape_name], 2, 2)
    leaves = np.zeros((9, 3))  # as the experiment has it: no expectation reads them
    models = Tables([*pair.draft, leaves], [*pair.target, leaves])
    shape, arrays, _, probability = all_trees(parents, models)
    drawn = bench.draw_trees(pair, shape, 20_000, 0)
    for name, rule in bench.rules_for(shape_name, 2).items():
        expected = probability @ rule.judge(shape, *arrays)[0] @ shape.depths
        lengths = rule.expected_length(shape, *drawn)
        error = lengths.std() / len(lengths) ** 0.5
        # 6 standard errors: a false alarm in about one of 5e8 comparisons.
        assert abs(lengths.mean() - expected) < 6 * error + 1e-6, name


def test_the_table_by_rule_and_shape(capsys, monkeypatch):
    for name, value in (("VOCAB", 4), ("SEEDS", 2), ("TREES", 5)):
        monkeypatch.setattr(bench, name, value)
    bench.main(["--depth", "2"])
    out = capsys.readouterr().out
    assert "GBV" in out and "BV  " not in out.replace("GBV", "")
    # The error of a mean of two: their deviation, 1.41, over the root of 2.
    with monkeypatch.context() as patch:
        patch.setattr(bench, "lengths", lambda *_: dict.fromkeys(bench.RULES, [1.0, 3.0]))
        bench.main([])
    assert capsys.readouterr().out.count("2.000 (1.000)") == 3 * 8
    # Half the logits are shared, the other half is each one's own; softmax takes their mean away.
    pair = bench.random_pair(15, 4, 0.5, seed=1)
    draft, target = np.log(pair.draft[3]), np.log(pair.target[3])
    spreads = [(x - x.mean(-1, keepdims=True)).std() for x in (draft - target, draft + target)]
    assert spreads == pytest.approx([(14 / 30) ** 0.5, (14 / 10) ** 0.5], rel=0.03)
    # On models that agree every draft is accepted.
    assert bench.lengths("complete", 2, similarity=1)["LV + GR"] == pytest.approx([2, 2])
