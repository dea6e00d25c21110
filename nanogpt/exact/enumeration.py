"""Exact enumeration: the proof that a decoding rule loses nothing.

Sampling could only say "no difference seen". Here chance itself is replaced: `outcomes(run)`
calls `run(dice)` once for every possible sequence of draws and yields each result with its exact
probability. So the distribution of speculative decoding's output and that of plain decoding's can
be compared number by number.

    outcomes(lambda dice: dice.flip(0.25) + dice.flip(0.5))
    -> (0, .375), (1, .375), (1, .125), (2, .125), one for each sequence of flips

Two scales: `outcomes` on one function, `loop_distribution` on a whole decoding loop with a
ToyTarget and a ToyDraft in place of the networks. A distribution here is one over texts, a dict
{tuple of tokens: probability}.
"""

import torch


class EnumeratingDice:
    """A Dice that follows a given script of outcomes and multiplies their probabilities."""

    def __init__(self, script):
        self.script = script  # the outcomes of the first draws, fixed by the caller
        self.choices = []  # for each draw so far: the possible outcomes left to visit
        self.taken = []
        self.probability = 1.0

    def draw(self, probs):
        probs = probs.double() / probs.double().sum()  # (V,); the real Dice normalises, too
        possible = [i for i, p in enumerate(probs.tolist()) if p > 0]  # what the real one may draw
        turn = len(self.taken)
        # Behind the script: the first outcome that can be; `outcomes` visits the others later.
        outcome = self.script[turn] if turn < len(self.script) else possible[0]
        self.choices.append(possible)
        self.taken.append(outcome)
        self.probability *= float(probs[outcome])  # draws are independent, given those before
        return outcome

    def flip(self, p):
        return self.draw(torch.tensor([1 - p, p], dtype=torch.float64)) == 1


def outcomes(run):
    """Yield (result, probability) of `run(dice)` for every possible sequence of draws."""
    script = []  # the first run takes the first outcome of every draw
    while script is not None:
        dice = EnumeratingDice(script)
        yield run(dice), dice.probability
        # The next script in depth-first order: advance the last draw that has another outcome.
        script = None
        for turn in reversed(range(len(dice.taken))):
            later = [c for c in dice.choices[turn] if c > dice.taken[turn]]
            if later:  # what was drawn after this turn may be other draws altogether
                script = dice.taken[:turn] + [later[0]]
                break


def token_law(run, size):
    """The distribution (size,) of what `run(dice)` gives: a token, or several that count each."""
    law = torch.zeros(size, dtype=torch.float64)
    for token, probability in outcomes(run):
        law[token] += probability
    return law


def target_distribution(model, sampler, prefix, length):
    """Plain decoding's distribution of `length` tokens after `prefix`: {tokens: probability}."""
    distribution = {(): 1.0}  # the empty text is certain
    for _ in range(length):
        longer = {}
        for tokens, mass in distribution.items():
            probs = sampler(model.logits(tuple(prefix) + tokens))
            for token, p in enumerate(probs.tolist()):
                if p > 0:
                    longer[tokens + (token,)] = mass * p  # the chain rule, one token on
        distribution = longer
    return distribution


def output_distribution(model, sampler, prefix, length, emit):
    """The distribution of the first `length` tokens when `emit(dice) -> emitted tokens` goes first.

    The rest is plain decoding. -> {tokens: probability}
    """
    heads, distribution = {}, {}
    for emitted, probability in outcomes(emit):
        head = tuple(int(t) for t in emitted)[:length]  # what a round emits beyond is cut
        # Many sequences of draws end in one text: their probabilities add up.
        heads[head] = heads.get(head, 0.0) + probability
    for head, probability in heads.items():
        # Rounds emit more or fewer tokens; completed by the target, all have one length.
        tails = target_distribution(model, sampler, tuple(prefix) + head, length - len(head))
        for tail, mass in tails.items():
            distribution[head + tail] = distribution.get(head + tail, 0.0) + probability * mass
    return distribution


def total_variation(distribution, other):
    """0.5 * sum |difference|: 0 for equal distributions, 1 for those that never agree."""
    return 0.5 * sum(
        abs(distribution.get(key, 0.0) - other.get(key, 0.0))
        for key in set(distribution) | set(other)  # a text that one never writes has 0
    )


def loop_distribution(make_steps, model, sampler, prompt, rounds, length):
    """The distribution of the first `length` tokens when a decoding loop runs its prefill and
    `rounds` rounds, and plain decoding does the rest. make_steps(dice) -> a generator of Steps."""

    def emit(dice):
        steps = make_steps(dice)
        emitted = []
        for _ in range(rounds + 1):  # the first Step is the prefill's
            emitted += next(steps).tokens
        return emitted

    return output_distribution(model, sampler, prompt, length, emit)
