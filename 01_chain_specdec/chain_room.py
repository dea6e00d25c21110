"""Chapter 01's room: its loops, their models, what goes wrong; the price of a round.

See nanogpt/chapter.py for what the stage makes of the three tables.
"""

import torch

import chain_specdec
from chain_grow import grow_chain
from chain_specdec import (
    BigramDraft,
    GPTDraft,
    accept,
    acceptance_probability,
    draft,
    residual,
    speculate_chain,
)
from nanogpt.chapter import Loop, Model
from nanogpt.does_it_pay import speedups, table_of
from nanogpt.exact.slips import changed, replaced, slips
from nanogpt.exact.toy_models import ToyDraft, ToyModel, loop_bias, random_gpt
from nanogpt.packing import for_decoding
from nanogpt.sampling import Sampler
from nanogpt.three_numbers import chain_tokens, timed
from nanogpt.train import get_gpt
from text_table import NgramDraft, TextTable


def table_of_text(tokens):
    """What followed each one to three tokens of a text: the table of a 4-gram."""
    table = TextTable(4)
    table.read(tokens.tolist())
    return table


MODELS = {
    "small": Model(  # the 57K GPT that drafts
        trained=lambda m: for_decoding(get_gpt("draft", m.dataset, m.device, m.retrain),
                                       m.precision),
        random=lambda m: random_gpt(m.seed + 100, m.vocab, m.target.block_size)),
    "pairs": Model(  # a text, of which a bigram counts the pairs
        trained=lambda m: m.dataset.train,
        random=lambda m: torch.arange(400) * 7 % 11 % m.vocab),
    "table": Model(  # what followed each of up to three tokens in that text
        trained=lambda m: table_of_text(m.pairs),
        random=lambda m: table_of_text(torch.randint(
            m.vocab, (400,), generator=torch.Generator().manual_seed(m.seed)))),
}

# Both draft from q and are judged by min(1, p/q); the rule, `accept`, is a part of the loop.
LOOPS = [
    Loop("chain of {}, 57K GPT", lambda m, k, sampler, dice: GPTDraft(m.small), speculate_chain,
         budgets=(1, 2, 4, 8), contest=(1, 2, 3, 4, 6, 8, 12, 16),
         family="57K GPT", drawn=True, greedy=True, grow=grow_chain),
    Loop("chain of {}, bigram",
         lambda m, k, sampler, dice: BigramDraft(m.pairs, m.target.config.vocab_size),
         speculate_chain, budgets=(1, 2, 4, 8), contest=(1, 2, 3, 4, 6, 8, 12, 16),
         family="bigram", drawn=True, greedy=True, grow=grow_chain),
    Loop("chain of {}, 4-gram",
         lambda m, k, sampler, dice: NgramDraft(m.table, m.target.config.vocab_size),
         speculate_chain, budgets=(1, 2, 4, 8), contest=(1, 2, 3, 4, 6, 8, 12, 16),
         family="4-gram", drawn=True, greedy=True),
]
CHAIN = f"01 {LOOPS[0].title(4)}"  # the lesson's example, as the contest calls it

# ---------------------------------------------------------------- what goes wrong

COMMIT = "context.commit(rows, tokens)"
COIN = "acceptance_probability(target_probs[i], draft_probs[i], token)"


def judges_on(drafted, draft_probs, target_probs, dice):
    """No rejection ends the round: how many drafts pass is counted, wherever they stand."""
    n = 0
    for i, token in enumerate(drafted):
        if dice.flip(acceptance_probability(target_probs[i], draft_probs[i], token)):
            n += 1
    return n, dice.draw(target_probs[len(drafted)])


WRONG = {
    "draft": slips(draft, {
        "every token is drafted from the root": ("drafter.logits(token)", "drafter.logits(root)"),
        "the kept distribution ignores the sampler": (
            "sampler(drafter.logits(token)).cpu()", "(logits := drafter.logits(token)).softmax(-1)",
            "dice.draw(draft_probs[-1])", "dice.draw(sampler(logits))"),
        "the tokens are argmaxes instead of draws": (
            "dice.draw(draft_probs[-1])", "int(draft_probs[-1].argmax())"),
    }),
    "acceptance_probability": slips(acceptance_probability, {
        "the ratio is upside down": (
            "target / draft if target < draft else 1.0",
            "draft / target if draft < target else 1.0"),
        "the draft probability is left out": (
            "target / draft if target < draft else 1.0", "target"),
        "the ratio is not capped at 1": (
            "target / draft if target < draft else 1.0", "target / draft"),
    }),
    "residual": slips(residual, {
        "the residual is not normalised": (
            "missing / total if total > 0 else target_probs", "missing"),
        "what the residual lacks to 1 falls to the last token": (
            "missing / total if total > 0 else target_probs",
            "torch.cat([missing[:-1], 1 - missing[:-1].sum()[None]])"),
        "the residual is the target itself": (
            "missing / total if total > 0 else target_probs", "target_probs"),
        "the difference is taken the wrong way round": (
            "target_probs - draft_probs", "draft_probs - target_probs"),
        "the absolute difference is taken": (
            "(target_probs - draft_probs).clamp(min=0)", "(target_probs - draft_probs).abs()"),
        "equal distributions are divided by zero": (
            "missing / total if total > 0 else target_probs", "missing / total"),
    }),
    "accept": slips(accept, {
        "a rejected position draws from the target, without the residual": (
            "residual(target_probs[i], draft_probs[i])", "target_probs[i]"),
        "the bonus token comes from the row before the last": (
            "target_probs[len(drafted)]", "target_probs[len(drafted) - 1]"),
        "a rejection does not end the round: all drafts are judged, the last row writes on":
            judges_on,
        "the ratio is upside down": (
            COIN, "acceptance_probability(draft_probs[i], target_probs[i], token)"),
        "the position in the chain is taken for the token": (
            COIN, "acceptance_probability(target_probs[i], draft_probs[i], i)"),
    }),
    "speculate_chain": slips(speculate_chain, {
        "the rows of rejected drafts stay in the cache": (
            COMMIT, "context.commit(list(range(len(drafted) + 1)), tokens)"),
        "the rows of rejected drafts stay in the cache, and the drafter is shown them": (
            "list(range(n + 1))", "list(range(len(drafted) + 1))"),
        "the root's row does not stay": (
            COMMIT, "context.commit(rows[1:], tokens[1:])"),
        "the next root is the last accepted draft": ("root = token", "root = tokens[-1]"),
        "the drafter is told nothing": ("drafter.observe(tokens, hidden, rows)", "pass"),
        "the drafter is told of its rejected drafts as well": (
            "drafter.observe(tokens, hidden, rows)",
            "drafter.observe([root, *drafted], hidden, list(range(len(drafted) + 1)))"),
        "a full window is not noticed": ("context.full", "False"),
        "the root, which is text, is drawn anew when the window slides": (
            "if context.full:\n    context.begin(drafter)",
            "if context.full:\n    root = dice.draw(sampler(context.begin(drafter)))"),
    }),
    "NgramDraft.observe": slips(NgramDraft.observe, {
        "what was rejected stays in the context": ("self.ahead = ()", "pass"),
    }),
}
HARMLESS = {  # the proofs cannot see them, and here is why
    "every token is drafted from the root": "a worse drafter, whose q is known all the same",
    "the residual is not normalised": "Dice normalises what it draws from",
    "equal distributions are divided by zero": "where they are equal, no draft is rejected",
}


# ---------------------------------------------------------------- the lesson's numbers


def round_in_steps(found, name, T=1):
    """-> tau, and in plain steps the prices of drafting and of the whole round.

    found: a stored contest, see nanogpt.does_it_pay.load_contest; name: of a chain in it.
    All are rounded as they are shown, so that every sum and quotient on the page comes out.
    """
    line, (tau, price, _) = table_of(found, T)[name], speedups(found, T)[name]
    step = sum(line["ms"]) / sum(line["rounds"]) / price  # the milliseconds of a plain step
    return [round(number, 2) for number in (tau, line["verbs"][0] / step, price)]


def tau_of_text(alpha, K, length):
    """Tokens a round, if every draft is accepted with chance alpha and the text stops at `length`.

    length: tokens behind the prefill's. The last round counts as one, but is cut where the text
    ends; without an end this is chain_tokens. Example: alpha .5, K 1, length 2: 4 / 3.
    """
    # A round of j tokens: j - 1 drafts were accepted, and the next was not, if there was one.
    chances = [alpha ** (j - 1) * (1 - alpha) for j in range(1, K + 1)] + [alpha**K]
    rounds = [0.0]  # how many a text of 0, 1, 2, .. tokens takes, on average
    for left in range(1, length + 1):
        rounds.append(1 + sum(chance * rounds[max(left - j, 0)]
                              for j, chance in enumerate(chances, 1)))
    return length / rounds[length]


def foretold(measured, alpha, length):
    """What one alpha says of chains of all lengths; see tau_of_text.

    measured: {K: tokens a round}, of nanogpt.does_it_pay.taus -> {K: (foretold, measured)}.
    """
    return {K: (tau_of_text(alpha, K, length), tokens) for K, tokens in measured.items()}


def chosen_lengths(found, alphas):
    """What section 8's formula chooses at T = 1 among the lengths of a stored contest up to 8; d
    and the rest of a round are those of rounds with 4 and 8 drafts; see three_numbers.timed.

    alphas: {family: its alpha} -> {family: ({length: its method}, the chosen length, d, the rest)}.
    """
    chosen = {}
    for family, alpha in alphas.items():
        chains = {line["budget"]: name for name, line in table_of(found, 1).items()
                  if line["family"] == family and name[:2] == "01" and line["budget"] <= 8}
        d, rest, _ = timed(*((K, *round_in_steps(found, chains[K])[::2]) for K in (4, 8)))
        best = max(chains, key=lambda K, alpha=alpha, d=d, rest=rest:
                   chain_tokens(alpha, K) / (K * d + rest))
        chosen[family] = chains, best, d, rest
    return chosen


def broken_loops(T=1):
    """The loop as it is, and with one change at a time -> {change: total variation}.

    The first five tokens of toy models with two tokens: two rounds, then plain decoding.
    """
    def bias(scale=1.0, **broken):
        drafter = ToyDraft(ToyModel(seed=99, vocab=2, scale=scale))
        with replaced(chain_specdec, **broken):  # these stand in the place of the module's own
            return loop_bias(lambda target, dice: chain_specdec.speculate_chain(
                target, drafter, [0, 1], 2, Sampler(T), dice), Sampler(T), rounds=2, length=5,
                model=ToyModel(seed=5, vocab=2))

    return {
        "as it is": bias(),
        "redraw from p": bias(residual=WRONG["residual"]["the residual is the target itself"]),
        "accept everything": bias(acceptance_probability=lambda *_: 1.0),
        "draft the favourite": bias(
            draft=WRONG["draft"]["the tokens are argmaxes instead of draws"]),
        "keep a stale row": bias(speculate_chain=changed(
            chain_specdec.speculate_chain, "context.commit(rows, tokens)",
            "context.commit([*rows, n + 1][:len(drafted) + 1], tokens)")),
        "another drafter": bias(scale=0.0),
    }
