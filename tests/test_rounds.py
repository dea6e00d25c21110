"""A round as one launch: every loop that has a `grow`, against the same loop run by Python.

On a GPU, where there is one; else a recording is played on the CPU, by the same program.
"""

import copy
from itertools import islice
from types import SimpleNamespace

import pytest
import torch
from torch.autograd import DeviceType
from torch.utils._python_dispatch import TorchDispatchMode

import block_grow
import chain_grow
import heads_grow
import iid_grow
import merging_grow
from ddtree import best_first_tree
from merged_trees import prefixes
from nanogpt.bench import plains, take_turns
from nanogpt.chapter import chapters, known_models
from nanogpt.decoding import collect, collecting, plain_decode, timed
from nanogpt.exact import proofs
from nanogpt.exact.slips import changed, replaced
from nanogpt.exact.toy_models import GPTModel, loop_bias, random_gpt
from nanogpt.gpu import graphs, measure, rounds
from nanogpt.gpu.plain import plain_in_launches
from nanogpt.gpu.rounds import Faces, Shares
from nanogpt.sampling import Dice, Sampler
from test_devices import pretended_cuda, tensors_in
from tree_attention import Tree
from tree_grow import best_tree

# Of chapter 06 four: its other rules judge the same trees.
LOOPS = [pytest.param(loop, id=f"{chapter.number} {loop.name}")
         for chapter in chapters() for loop in chapter.loops if loop.grow
         and (chapter.number != "06" or loop.name.endswith(("LV + K-SEQ", "BV", "verification")))]
KINDS = {}
for param in LOOPS:
    KINDS.setdefault((param.values[0].grow, param.values[0].rule), param)
# Who grows and judges as one before it runs the same program, and has its turn in the slow tests.
OF_EACH_KIND = [pytest.param(*param.values, id=param.id, marks=[pytest.mark.slow] * (
    param not in KINDS.values())) for param in LOOPS]
SAMPLERS = [Sampler(0), Sampler(1), Sampler(0.7, top_k=3, top_p=0.5)]  # the last: 1 to 3 children
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def cast_on(device, seed=1, vocab=11):
    """proofs.random_cast, all of its models on a device."""
    m = proofs.random_cast(seed, vocab)
    for name in ("target", *known_models()):
        model = getattr(m, name)
        for part in model if isinstance(model, list) else [model]:
            if isinstance(part, torch.nn.Module):
                part.to(device)
    return m


def told(steps, n=70):
    """-> the text, and of every round what was drafted: tokens and parents by prefix, and q."""
    text = collect(steps, n)
    return text.tokens, [drafted(step.detail) for step in text.steps]


def drafted(record):
    """What a ChainRound or a TreeRound tells of the drafts: {prefix: q after it, or None}."""
    if not hasattr(record, "tree"):
        paths = [tuple(record.drafted[:n]) for n in range(len(record.drafted))]
        return dict(zip(paths, record.draft_probs, strict=True)) | {tuple(record.drafted): None}
    q, tree = record.tree.draft_probs, record.tree
    inner = [bool(below) and q is not None for below in tree.children]
    return {path: q[row] if inner[row] else None for row, path in enumerate(prefixes(tree))}


def assert_equal(mine, expected):
    """What `told` gives: equal texts, equal drafts, q equal but for rounding."""
    assert mine[0] == expected[0]
    for ours, theirs in zip(mine[1], expected[1], strict=True):
        assert ours.keys() == theirs.keys()
        for path, q in theirs.items():
            if q is not None:
                torch.testing.assert_close(ours[path], q, rtol=0, atol=1e-6, check_dtype=False)


def run(loop, form, budget=None, sampler=SAMPLERS[1], m=None, n=50):
    """What is `told` of a loop in one of its forms. 50 tokens cross the window of 32 twice."""
    m, budget = m or cast_on(DEVICE), budget or loop.budgets[-1]
    return told(loop.but(form=form).steps(m, budget, [2, 0, 1], sampler, Dice(5)), n)


@pytest.mark.parametrize("loop", LOOPS)
def test_texts_and_drafts_are_those_of_the_eager_loop(loop):
    m = cast_on(DEVICE)
    for sampler, budget in zip(SAMPLERS, (loop.proof[0], loop.budgets[-1], loop.budgets[-1]),
                               strict=True):
        if loop.runs_at(sampler.temperature):
            assert_equal(run(loop, "one launch", budget, sampler, m),
                         run(loop, "eager", budget, sampler, m))
    if DEVICE == "cpu":
        assert_equal(run(loop, "played", m=m), run(loop, "eager", m=m))


@pytest.mark.parametrize("loop", OF_EACH_KIND)
def test_the_text_has_the_targets_distribution_exactly(loop):
    """The same as test_loops.py asks of the eager loop."""
    played, (small, *larger) = loop.but(form="played"), loop.proof
    for sampler in filter(lambda sampler: loop.runs_at(sampler.temperature), SAMPLERS):
        assert proofs.bias(played, small, sampler, vocab=3, length=3) < 1e-12, sampler
    assert proofs.bias(played, small, Sampler(0.9), rounds=2) < 1e-12
    for budget in larger:
        assert proofs.bias(played, budget, Sampler(1), length=3) < 1e-12, budget


@pytest.mark.parametrize("loop", OF_EACH_KIND)
def test_decoders_take_turns_on_one_recording(loop):
    """Three texts, two temperatures: nobody gets another's cache, drafts or temperature."""
    m, budget = cast_on(DEVICE), loop.budgets[-1]
    samplers = [Sampler(1), Sampler(0.5), Sampler(1)]

    def in_turn(form, turn):
        runs = {i: collecting(loop.but(form=form).steps(
            m, budget, [1, 8, 4 + i], sampler, Dice(i)), 40) for i, sampler in enumerate(samplers)}
        return [([*g.tokens], [drafted(step.detail) for step in g.steps])
                for _, g in sorted(take_turns(runs, turn).items())]

    for mine, expected in zip(in_turn("one launch", 3), in_turn("eager", 99), strict=True):
        assert_equal(mine, expected)


@pytest.mark.parametrize("loop", [loop for loop in LOOPS if loop.values[0].name in (
    "chain of {}, 57K GPT", "DDTree, {} nodes", "conditional DDTree, {} nodes")])
@pytest.mark.parametrize("budget", [1, 2, 30, 127, 128])
def test_small_and_large_budgets(loop, budget):
    """127 drafts and the root are as many rows as lie behind a full window; 128 run eagerly."""
    m = cast_on(DEVICE, vocab=20)
    mine, expected = (told(loop.but(form=form).steps(m, budget, [3], Sampler(1), Dice(2)), 40)
                      for form in ("one launch", "eager"))
    assert_equal(mine, expected)
    _, step = islice(loop.but(form="one launch").steps(m, budget, [3], Sampler(1), Dice(2)), 2)
    assert step.form == ("eager" if budget == 128 else "one launch")


@pytest.mark.parametrize("loop", [loop for loop in LOOPS if "tree {}, 57K" in loop.id])
def test_a_node_has_no_more_children_than_there_are_tokens(loop):
    m = cast_on(DEVICE, vocab=3)
    assert_equal(*(run(loop, form, (4, 4), m=m) for form in ("one launch", "eager")))


def test_a_step_says_in_which_form_it_ran():
    m, loop = cast_on(DEVICE), LOOPS[0].values[0]
    graphs.capture(m.target)
    for form in ("eager", "one launch", None):
        step, *_ = collect(loop.but(form=form).steps(m, 1, [1], Sampler(1), Dice(0)), 9).steps
        assert step.form == (form or ("one launch" if DEVICE == "cuda" else "eager"))


def test_launches_waits_and_the_gpus_time_are_counted():
    """By hand: two rounds of one graph and two kernels, one copy and one wait in all."""
    def event(name, device=DeviceType.CPU, us=0):
        return SimpleNamespace(name=name, device_type=device,
                               time_range=SimpleNamespace(elapsed_us=lambda: us))

    names = ["cudaGraphLaunch", "cudaLaunchKernel", "cuLaunchKernelEx", "cudaMemcpyAsync",
             "cudaStreamSynchronize", "aten::add", "cudaMalloc", "Memcpy HtoD"]
    kernels = [event("gemm", DeviceType.CUDA, 300), event("Memcpy HtoD", DeviceType.CUDA, 100)]
    assert measure.tally([*map(event, names), *kernels], 2) == (2.0, 0.5, 0.2)


def test_the_curve_to_512_has_a_window_for_it(monkeypatch):
    monkeypatch.setattr(measure, "cost_curve", lambda target, rows: (target.block_size // 2, rows))
    cached, rows = measure.curve_to_512(random_gpt(1))
    assert cached >= rows[-1] == 512


@pytest.mark.skipif(DEVICE == "cuda", reason="here it would count")
def test_without_a_gpu_nothing_is_counted():
    with pytest.raises(ValueError, match="device is cpu; launches are counted on a CUDA device"):
        measure.main(["--device", "cpu"])


def test_one_recording_for_all_decoders_that_are_alike():
    """And one of its own for another budget, another temperature, another drafter, a copy."""
    m, loop = cast_on(DEVICE), LOOPS[0].values[0].but(form="one launch")

    def recordings(m, budget=2, temperature=1.0):
        collect(loop.steps(m, budget, [1], Sampler(temperature), Dice(0)), 5)
        return len(m.target.programs)

    assert [recordings(m), recordings(m), recordings(m, 3), recordings(m, 2, 0.5)] == [1, 1, 2, 3]
    m.small = copy.deepcopy(m.small)
    assert recordings(m) == 4
    m.target = copy.deepcopy(m.target)
    assert recordings(m) == 1


# ---------------------------------------------------------------- plain decoding


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("tokens", [1, 8, 40])
def test_plain_decoding_with_several_tokens_a_launch(sampler, tokens):
    """Twice over the window's end; a launch may bring more than a window holds."""
    target = cast_on(DEVICE).target
    expected = collect(plain_decode(target, [3, 1, 4], sampler, Dice(1)), 70).tokens
    for played in {False, DEVICE == "cpu"}:
        steps = plain_in_launches(target, [3, 1, 4], sampler, Dice(1), tokens, played)
        text = collect(timed(steps), 70)
        assert text.tokens == expected and len(text.steps) == 69
        assert {step.form for step in text.steps} == {"one launch"}


def test_plain_decoding_with_several_tokens_a_launch_is_exact():
    target, prompt = random_gpt(1, vocab=3), [0, 1]
    assert loop_bias(lambda _, dice: plain_in_launches(target, prompt, Sampler(1), dice, 2, True),
                     Sampler(1), 3, 4, GPTModel(target), prompt) < 1e-12


def test_on_a_gpu_plain_decoding_runs_in_both_forms():
    target = cast_on(DEVICE).target
    assert list(plains(target, Sampler(1))) == ["plain"]
    target.forward = graphs.CapturedGPT(target)
    forms = [collect(start([1], 0), 5).steps[-1].form
             for start in plains(target, Sampler(1)).values()]
    assert forms == ["one launch", "eager"]


# ---------------------------------------------------------------- breaks on purpose

NAMED = {loop.id: loop.values[0] for loop in LOOPS}
CHAIN, TREE, BEST, BLOCK, ROUTED, TRIE, IID = (NAMED[name] for name in (
    "01 chain of {}, 57K GPT", "02 drawn tree {}, 57K GPT", "05 DDTree, {} nodes",
    "05 block, drawn tree {}", "03 routed heads, {} nodes", "04 trie of both heads, {} nodes",
    "06 two chains of {}, LV + K-SEQ"))
BREAKS = {  # what is wrong: the loop that shows it, whose method, and what is changed in it
    "accepted rows stay where they lie": (
        TREE, rounds.Program, "run", "trees.index_select(-2, source)",
        "trees.index_select(-2, goal)"),
    "a row sees the whole tree": (
        TREE, rounds.Now, "forward", "self.length + seen",
        "(self.length + seen[:, :1].T).expand(len(tokens), -1)"),
    "rows count instead of depths": (
        TREE, rounds.Now, "forward", "self.length + depth", "self.length + seen[:, 0]"),
    "the last draft is not read again": (
        CHAIN, chain_grow.GPTReader, "level", "torch.arange(-1, 1, device=tokens.device)",
        "torch.zeros(2, dtype=torch.long)"),
    "what was not drawn is not given back": (
        TREE, rounds.Program, "replay", "round.dice.give_back(unused)", "pass"),
    "a drawn token can be drawn again": (
        TREE, rounds.Shares, "draw", "left = left.scatter(-1, tokens[-1], 0)", "pass"),
    "rows draw in the order of siblings": (
        TREE, rounds.Shares, "draw", "first + i", "self.used * 0 + i * len(probs)"),
    "drafts beyond the window": (
        CHAIN, rounds.Now, "draw", "alive & (depth < self.room)", "alive"),
    "q is the row of the next node": (
        CHAIN, chain_grow.ChainGrower, "grow", "torch.cat([*draft_probs, unasked])",
        "torch.cat([unasked, *draft_probs])"),
    "the drafter forgets the accepted path": (
        BEST, rounds.Program, "replay", "(n, 0, path)", "(n, 0, 0)"),
    "the block looks beyond the window": (
        BEST, block_grow.BlockReader, "logits", "last = at[-1:]", "last = rows[-1:]"),
    "the less sure head is taken": (
        ROUTED, heads_grow.HeadsGrower, "grow",
        "self.confidence(other) > self.confidence(best)",
        "self.confidence(other) < self.confidence(best)"),
    "a prefix keeps the first head's score": (
        TRIE, merging_grow.TrieGrower, "grow", "union.scatter_reduce(0, where, theirs, 'amax')",
        "union"),
    "equal tokens are one prefix": (
        TRIE, merging_grow.TrieGrower, "grow",
        "(parents == where[above][:, None]) & (tokens == others[:, None])",
        "tokens == others[:, None]"),
    "all children of a level are drawn from its first row": (
        IID, iid_grow.SampledTreeGrower, "below", "probs[parents]", "probs[parents * 0]"),
    "the slots forget the token before": (
        BLOCK, block_grow.BlockReader, "level", "table[depth, tokens]",
        "table[depth, now.tokens[1]]"),
    "padding is shown to the loop": (
        TREE, rounds.Round, "propose", "found.pop('alive').nonzero()[:, 0]",
        "torch.arange(len(found.pop('alive')))"),
}


@pytest.mark.skipif(DEVICE == "cuda", reason="a broken recording may take the GPU with it")
@pytest.mark.parametrize("sentence", BREAKS)
def test_these_change_a_text_or_its_drafts(sentence):
    loop, owner, name, *edits = BREAKS[sentence]
    settings = [(budget, sampler) for budget in (loop.budgets[-1], loop.proof[-1])
                for sampler in SAMPLERS[1:]]
    expected = [run(loop, "eager", *setting) for setting in settings]
    with replaced(owner, **{name: changed(getattr(owner, name), *edits)}), \
            pytest.raises((AssertionError, ValueError, IndexError)):
        for setting, right in zip(settings, expected, strict=True):
            assert_equal(run(loop, "one launch", *setting), right)


def test_a_borrower_whose_rows_are_not_saved_is_noticed():
    kept = changed(graphs.Storage.lend, "setattr(before, name, self.tensor.clone())", "pass")
    with replaced(graphs.Storage, lend=kept), pytest.raises(AssertionError):
        test_decoders_take_turns_on_one_recording(CHAIN)


# ---------------------------------------------------------------- what can be recorded at all


class NoWordFromTheHost(TorchDispatchMode):
    """Raises where an operation makes a number for Python, a tensor from Python's numbers, or a
    shape that depends on values: none of these can be recorded."""

    FORBIDDEN = {"_local_scalar_dense", "nonzero", "masked_select", "unique2"}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        masks = name in ("index", "index_put_") and any(
            x.dtype == torch.bool for x in args[1] if x is not None)
        numbers = name == "lift_fresh" and args[0].ndim  # a single number is a kernel's argument
        if masks or numbers or name in self.FORBIDDEN:
            raise RuntimeError(f"{name} needs the host")
        return func(*args, **kwargs or {})


@pytest.mark.parametrize("loop", OF_EACH_KIND)
def test_a_round_needs_no_word_from_the_host(loop):
    m = proofs.random_cast()
    collect(loop.but(form="one launch").steps(m, loop.budgets[-1], [1, 2], Sampler(1), Dice(0)), 9)
    with torch.inference_mode(), NoWordFromTheHost():
        for program in m.target.programs.values():
            program.graph.run()


@pytest.mark.parametrize("stray", [lambda x: x[x > 0], lambda x: float(x.sum()),
                                   lambda x: x + torch.tensor([1, 2, 3]), torch.nonzero])
def test_a_word_from_the_host_is_noticed(stray):
    x = torch.arange(3)
    stray(x)
    with NoWordFromTheHost(), pytest.raises(RuntimeError, match="needs the host"):
        stray(x)


@pytest.mark.skipif(DEVICE == "cuda", reason="here is a real one")
@pytest.mark.parametrize("loop", OF_EACH_KIND)
def test_no_tensor_strays_on_a_pretended_device(loop):
    with pretended_cuda():
        m = cast_on("cuda")
        graphs.capture(m.target)
        steps = loop.steps(m, loop.budgets[-1], [1, 2], Sampler(0.8, top_k=4), Dice(0))
        assert collect(steps, 40).steps[-1].form == "one launch"  # over the window's end
        for program in m.target.programs.values():
            assert tensors_in(program.graph.here)[0].device.type == "cpu"


# ---------------------------------------------------------------- chance


@pytest.mark.parametrize("k, replace", [(1, True), (3, True), (1, False), (3, False)])
def test_the_device_draws_what_the_dice_draws(k, replace):
    """Also from one-hot rows, from rows with fewer than k tokens, and below rows that are dead; and
    what it does not use, it gives back."""
    probs = torch.rand(40, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    probs[::3, 1:4] = 0
    probs[::7] = torch.eye(5, dtype=torch.float64)[2]
    probs = probs / probs.sum(-1, keepdim=True)
    alive = torch.arange(40) % 5 > 0
    dice, same = Dice(3), Dice(3)
    shares = Shares(torch.from_numpy(dice.shares(40 * k)))
    tokens, drawn = shares.draw(probs, alive, k, replace)
    dice.give_back(40 * k - int(shares.used))
    expected, also = Faces(same).draw(probs, alive, k, replace)
    assert drawn.equal(also) and tokens[drawn].equal(expected[drawn])
    assert dice.draw(probs[1]) == same.draw(probs[1])
    assert dice.generator.random() == same.generator.random()
    assert (probs[:, None].expand(-1, k, -1).gather(-1, tokens[..., None])[..., 0][drawn] > 0).all()


def test_a_share_of_0_takes_no_token_of_probability_0():
    probs = torch.tensor([[0.0, 0.25, 0.75, 0.0]])
    for share, token in ((0.0, 1), (0.25, 2), (1 - 2**-53, 2)):
        shares = Shares(torch.tensor([share], dtype=torch.float64))
        assert shares.draw(probs, torch.tensor([True]), 1, True)[0].item() == token


# ---------------------------------------------------------------- the best tree, level by level


def all_of(log_probs):
    """The children of best_tree from a table (L, V, V)."""
    return lambda level, tokens, above: (
        log_probs[level, tokens], torch.arange(log_probs.shape[-1]).repeat(len(tokens), 1))


@pytest.mark.parametrize("budget", [1, 6, 30, 127])
def test_the_tree_by_levels_is_the_heaps(budget):
    """Also where a child is certain, so as probable as its parent."""
    torch.manual_seed(0)
    log_probs = torch.randn(3, 7, 7).mul(3).log_softmax(-1)
    log_probs[1, 2] = torch.full((7,), -100.0).index_fill(0, torch.tensor(4), 0.0)

    def children(prefix):
        if len(prefix) > 3:
            return [], []
        ranked = log_probs[len(prefix) - 1, prefix[-1]].sort(descending=True)
        return ranked.values.tolist(), ranked.indices.tolist()

    tokens, parents, _ = best_tree(torch.tensor([5]), 3, budget, all_of(log_probs))
    tree, seen = Tree(tokens, parents), rounds.ancestors(parents, 3)
    assert prefixes(tree) == prefixes(best_first_tree(5, children, budget))
    assert (seen > 0).sum(1).equal(tree.depths)
    assert torch.zeros(tree.mask.shape).scatter(1, seen, 1.0).bool().equal(tree.mask)


def test_a_sure_child_stands_behind_its_parent():
    """All of one probability: a tree whose rows are in any order is no Tree."""
    sure = torch.full((6, 3, 3), -torch.inf)
    sure[:, :, 1] = 0.0
    tokens, parents, scores = best_tree(torch.tensor([1]), 6, 6, all_of(sure))
    assert parents.tolist() == [-1, 0, 1, 2, 3, 4, 5] and scores.isfinite().all()
