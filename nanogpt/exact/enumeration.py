"""Exact enumeration: the proof that a decoding rule loses nothing.

Sampling could only say "no difference seen". Here chance itself is replaced: `outcomes(run)`
calls `run(dice)` once for every possible sequence of draws and yields each result with its exact
probability. `output_law` completes each result to a fixed length with the target's own law, so
the law of speculative decoding and the law of plain decoding can be compared number by number.

    outcomes(lambda dice: dice.flip(0.25) + dice.flip(0.5))
    -> (0, .375), (1, .375), (1, .125), (2, .125), one for each sequence of flips

Two scales: `outcomes` on one function, `loop_law` on a whole decoding loop with a ToyTarget and
a ToyDraft or ToyHead in place of the networks.
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
        probs = probs.double() / probs.double().sum()
        possible = [i for i, p in enumerate(probs.tolist()) if p > 0]
        turn = len(self.taken)
        outcome = self.script[turn] if turn < len(self.script) else possible[0]
        self.choices.append(possible)
        self.taken.append(outcome)
        self.probability *= float(probs[outcome])
        return outcome

    def flip(self, p):
        return self.draw(torch.tensor([1 - p, p], dtype=torch.float64)) == 1


def outcomes(run):
    """Yield (result, probability) of `run(dice)` for every possible sequence of draws."""
    script = []
    while script is not None:
        dice = EnumeratingDice(script)
        yield run(dice), dice.probability
        # The next script in depth-first order: advance the last draw that has another outcome.
        script = None
        for turn in reversed(range(len(dice.taken))):
            later = [c for c in dice.choices[turn] if c > dice.taken[turn]]
            if later:
                script = dice.taken[:turn] + [later[0]]
                break


def target_law(model, sampler, prefix, length):
    """The law of `length` tokens after `prefix` under plain decoding: {tokens: probability}."""
    law = {(): 1.0}
    for _ in range(length):
        longer = {}
        for tokens, mass in law.items():
            probs = sampler(model.logits(tuple(prefix) + tokens))
            for token, p in enumerate(probs.tolist()):
                if p > 0:
                    longer[tokens + (token,)] = mass * p
        law = longer
    return law


def output_law(model, sampler, prefix, length, emit):
    """The law of the first `length` tokens when `emit(dice) -> emitted tokens` goes first.

    What `emit` leaves short is completed by plain decoding; what it emits beyond is cut.
    """
    law = {}
    for emitted, probability in outcomes(emit):
        head = tuple(int(t) for t in emitted)[:length]
        tails = target_law(model, sampler, tuple(prefix) + head, length - len(head))
        for tail, mass in tails.items():
            law[head + tail] = law.get(head + tail, 0.0) + probability * mass
    return law


def total_variation(law, other):
    """0.5 * sum |difference|: 0 for equal laws, 1 for laws that never agree."""
    return 0.5 * sum(
        abs(law.get(key, 0.0) - other.get(key, 0.0))
        for key in set(law) | set(other)
    )


def loop_law(make_steps, model, sampler, prompt, rounds, length):
    """The law of the first `length` tokens when a decoding loop runs its prefill and `rounds`
    rounds, and plain decoding does the rest. make_steps(dice) -> a generator of Steps."""

    def emit(dice):
        steps = make_steps(dice)
        emitted = []
        for _ in range(rounds + 1):
            emitted += next(steps).tokens
        return emitted

    return output_law(model, sampler, prompt, length, emit)
