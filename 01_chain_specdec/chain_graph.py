"""A round of chapter 01 as one CUDA graph: K drafts and their verification in one launch.

    host    the last committed token, the root, K random numbers
       |
    graph   K forwards of the small GPT, a draw after each; one target forward over root and drafts
       |
    host    accept, on the drafts and both rows of distributions

A forward of a small GPT takes a GPU 50 us, and Python more than that to ask for it, to wait and to
draw. Here the device draws by itself, from the same random numbers, by the rule of Dice.draw: one
seed gives the text that `speculate_chain` gives (but for the rounding of a device's softmax).
"""

import torch

from chain_specdec import ChainRound, accept, speculate_chain
from nanogpt.decoding import Context, Step
from nanogpt.graphs import Capture, captured, forward_at


def draw(probs, share):
    """Dice.draw on the device. probs (V,); share (1,), a random number in [0, 1) -> (1,)."""
    sums = probs.double().cumsum(-1)
    whole = sums[-1:]
    share = torch.minimum(share * whole, torch.nextafter(whole, torch.zeros_like(whole)))
    return torch.searchsorted(sums, share, right=True)


class ChainGraph(Capture):
    """Draft and verification of a round of k drafts, recorded.

    small, target: captured GPTs; sampler: of both.
    """

    def __init__(self, small, target, k, sampler):
        super().__init__(small)
        self.target, self.k, self.sampler = target, k, sampler

    def run(self, tokens, length, shares):
        """What is recorded. tokens (2,): the last that was committed, the root; length (1,): the
        committed rows; shares (k,): random numbers."""
        drafted, draft_probs = [tokens[1:]], []
        # The drafter has not read a last draft that was accepted. So it reads the last token again.
        rows = torch.cat([length - 1, length])
        for i in range(self.k):
            logits = self.forward_behind(self.model, tokens, rows)
            draft_probs.append(self.sampler(logits[-1]))
            tokens, rows = draw(draft_probs[-1], shares[i:i + 1]), length + 1 + i
            drafted.append(tokens)
        drafted = torch.cat(drafted)  # the root and k drafts
        rows = length + torch.arange(self.k + 1, device=length.device)
        logits = self.forward_behind(self.target, drafted, rows)
        return (drafted, torch.stack(draft_probs), logits), None

    def forward_behind(self, model, tokens, rows):
        """A causal forward of new rows behind all before, tokens and rows (N,) -> logits (N, V)."""
        kv = model.forward.kv
        mask = torch.arange(kv.shape[-2], device=kv.device) <= rows[:, None]
        positions = rows.clamp(max=model.block_size - 1)
        return forward_at(model, kv, tokens, positions, rows, mask)[0][0]

    def recipe(self, _):
        """-> run, its host buffers, which first write behind all text, and {}."""
        self.kv = self.target.forward.kv  # tells Graph device and precision
        return self.run, {"tokens": torch.zeros(2, dtype=torch.long),
                          "length": torch.tensor([self.kv.shape[-2] - 1 - self.k]),
                          "shares": torch.zeros(self.k, dtype=torch.float64)}, {}


class ChainTarget:
    """What Context takes for a target: its forward draws the drafts that it verifies."""

    def __init__(self, target, drafter, k, sampler, dice):
        self.target, self.drafter, self.dice, self.k = target, drafter, dice, k
        self.block_size, self.new_cache = target.block_size, target.new_cache
        graphs, what = drafter.model.forward.graphs, (k, sampler, id(target))
        self.graph = graphs.setdefault(what, ChainGraph(drafter.model, target, k, sampler))

    def __call__(self, tokens, positions=None, mask=None, cache=None):
        """A prefill, where the cache is empty; else a round, tokens (1, 2): the last token that was
        committed, and the root.

        -> target logits (1, K + 1, V); drafted and draft_probs, see chain_specdec.draft (of a
        prefill: hidden, see GPT.forward).
        """
        if not cache.length:
            return self.target(tokens, cache=cache)
        if self.drafter.pending:  # a prefill's tokens
            self.drafter.logits(int(tokens[0, 1]))
        self.target.forward.lend(cache)
        self.drafter.model.forward.lend(self.drafter.cache)
        graph = self.graph.graph("round")
        k = min(self.k, self.block_size - 1 - cache.length)  # what fits into the window
        graph.host["tokens"][:], graph.host["length"][:] = tokens[0], cache.length
        graph.host["shares"][:k] = [self.dice.generator.random() for _ in range(k)]
        (drafted, draft_probs, logits), _ = graph.replay()
        return logits[None, :k + 1], (drafted[1:k + 1].tolist(), draft_probs[:k].clone())


@torch.inference_mode()
def chain_in_one_graph(target, drafter, prompt, k, sampler, dice):
    """speculate_chain on a GPU: the same texts.

    target, and the model of the GPTDraft: captured, see nanogpt/graphs.py. Yields Steps.
    """
    context = Context(ChainTarget(target, drafter, k, sampler, dice), prompt)
    root = dice.draw(sampler(context.begin(drafter)))
    yield Step([root])

    while True:
        if context.full:
            context.begin(drafter)
        target_probs, (drafted, draft_probs) = context.verify([context.text[-1], root], sampler)
        n, token = accept(drafted, draft_probs, target_probs, dice)
        context.commit(list(range(n + 1)), [root, *drafted[:n]])
        yield Step([*drafted[:n], token], len(drafted),
                   detail=ChainRound(drafted, draft_probs, target_probs, n))
        root = token


def loop_for(drafter):
    """speculate_chain, or the same in one graph where the drafter is captured."""
    return chain_in_one_graph if captured(getattr(drafter, "model", None)) else speculate_chain
