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


class ToyModel:
    """A language model without a network: independent random logits for every prefix.

    seed: the model; vocab: V; logits are float64, so enumeration is exact to about 1e-16.
    scale stretches the logits: a large scale gives peaked distributions.
    """

    def __init__(self, seed, vocab=4, scale=1.0, allowed=None):
        self.seed, self.vocab, self.scale, self.allowed = seed, vocab, scale, allowed
        self.known = {}

    def logits(self, prefix):
        """prefix: tuple of tokens -> (V,) logits of the next token."""
        prefix = tuple(int(t) for t in prefix)
        if prefix not in self.known:
            number = self.seed
            for token in prefix:  # a hash that is the same in every process
                number = (number * 1_000_003 + token + 1) % (2**61 - 1)
            generator = torch.Generator().manual_seed(number)
            logits = self.scale * torch.randn(
                self.vocab, generator=generator, dtype=torch.float64
            )
            if self.allowed is not None:  # support restricted to these tokens
                banned = [t for t in range(self.vocab) if t not in self.allowed]
                logits[banned] = -torch.inf
            self.known[prefix] = logits
        return self.known[prefix]


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


class ToyCache:
    """The KVCache contract on plain tokens: new rows behind the text, commit keeps some."""

    def __init__(self):
        self.text, self.rows = [], []

    @property
    def length(self):
        return len(self.text)

    @length.setter
    def length(self, n):
        self.text = self.text[:n]

    def commit(self, rows):
        self.text = self.text + [self.rows[row] for row in rows]


class ToyTarget:
    """A ToyModel behind GPT's interface, for running a whole decoding loop by enumeration.

    Each row's prefix is read off the cache, the mask and the positions, as attention would see
    it. A sibling that is visible, a wrong position or a wrongly gathered row changes the prefix,
    so it changes the law of the output.
    """

    device = torch.device("cpu")

    def __init__(self, model, block_size=64):
        self.model, self.block_size = model, block_size

    def new_cache(self, batch=1):
        return ToyCache()

    def __call__(self, tokens, positions=None, mask=None, cache=None):
        """tokens (1, N) -> logits (1, N, V), hidden: one layer (1, N, 1) that holds the tokens."""
        tokens, past = tokens[0].tolist(), cache.text
        n = len(tokens)
        if positions is None:
            positions = torch.arange(len(past), len(past) + n)
        if mask is None:
            mask = torch.ones(n, n, dtype=torch.bool).tril()
        slots = list(enumerate(past)) + list(zip(positions.tolist(), tokens, strict=True))
        logits = []
        for row in range(n):
            columns = torch.ones(len(slots), dtype=torch.bool)
            columns[len(slots) - mask.shape[1]:] = mask[row]
            seen = [slot for slot, visible in zip(slots, columns.tolist(), strict=True) if visible]
            seen.sort(key=lambda slot: slot[0])
            # A gap or a clash of positions makes a prefix that no plain decoding ever has.
            good = [position for position, _ in seen] == list(range(len(seen)))
            prefix = tuple(token for _, token in seen) + (() if good else (-7,))
            logits.append(self.model.logits(prefix))
        cache.rows = tokens
        return torch.stack(logits)[None], [torch.tensor(tokens)[None, :, None]]


class ToyDraft:
    """A ToyModel as a draft model, for chains (`logits`) and for trees (`level`)."""

    def __init__(self, model):
        self.model = model
        self.reset()

    def reset(self):
        self.text, self.new = [], []

    def observe(self, tokens, hidden=None, rows=None):
        self.text, self.new = self.text + tokens, []

    def logits(self, token):
        self.new = self.new + [token]
        return self.model.logits(tuple(self.text + self.new))

    def level(self, tokens, parents):
        if parents == [-1]:
            self.paths = []
        start = [self.paths[p] if p >= 0 else () for p in parents]
        paths = [path + (token,) for path, token in zip(start, tokens, strict=True)]
        self.paths = self.paths + paths
        return torch.stack([self.model.logits(tuple(self.text) + path) for path in paths])


class ToyHead:
    """A ToyModel as one of chapter 03's draft heads: its state is the text itself.

    It learns the text from the hidden rows of a ToyTarget, which are the tokens that were read.
    """

    def __init__(self, seed, vocab=3, scale=1.0):
        self.model = ToyModel(seed, vocab, scale)
        self.reset()

    def reset(self):
        self.state = torch.zeros(1, 0, dtype=torch.long)

    def observe(self, tokens, hidden, rows):
        self.state = torch.cat([self.state, hidden[0][:, rows, 0]], 1)

    def read(self, states, tokens):
        """states (n, T), the texts so far; n tokens -> log-probabilities (n, V), longer states."""
        states = torch.cat([states, torch.tensor(tokens)[:, None]], 1)
        logits = torch.stack([self.model.logits(row.tolist()) for row in states])
        return torch.log_softmax(logits, -1), states


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
