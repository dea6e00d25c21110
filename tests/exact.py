"""What the chapters' tests share: toy models and exact enumeration, small random networks."""

import torch

from iid_trees import shape_of
from nanogpt.decoding import collect, plain_decode
from nanogpt.exact import trees
from nanogpt.exact.enumeration import outcomes, target_distribution, total_variation
from nanogpt.exact.toy_models import ToyDraft, ToyModel, ToyTarget, loop_bias
from nanogpt.exact.trees import KINDS, Tables, tables
from nanogpt.model import GPT, GPTConfig
from nanogpt.sampling import Dice, Sampler
from tree_attention import speculate, walk


def all_trees(parents, models):
    """Every tree with these parents, see nanogpt.exact.trees."""
    return trees.all_trees(shape_of(tuple(parents)), models)


def bias_and_length(rule, parents, models):
    """Total variation and mean accepted length on these parents, see nanogpt.exact.trees."""
    return trees.bias_and_length(rule, shape_of(tuple(parents)), models)


def wrong_variants(table, *names, but=()):
    """(name, sentence) of a chapter's wrong variants of these functions.

    but: sentences of those that lose nothing of what is proved; the examples catch them.
    """
    return [(name, sentence) for name in names for sentence in table[name] if sentence not in but]


# ---------------------------------------------------------------- small random networks


def random_gpt(seed, vocab=11, block_size=32, width=16):
    """A small GPT in float64 with weights large enough that its argmax is not constant."""
    torch.manual_seed(seed)
    model = GPT(GPTConfig(vocab, block_size, 2, 2, width)).double().eval()
    for parameter in model.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.4)
    return model


class GPTModel:
    """A real network with a ToyModel's interface: its logits for every prefix."""

    def __init__(self, target):
        self.target, self.known = target, {}

    @torch.inference_mode()
    def logits(self, prefix):
        prefix = tuple(prefix)
        if prefix not in self.known:
            self.known[prefix] = self.target(torch.tensor([prefix]))[0][0, -1]
        return self.known[prefix]


def check_greedy(target, prompt, *starts, length=45):
    """Every start(greedy sampler, dice) -> Steps writes what plain decoding writes."""
    greedy = Sampler(0)
    plain = collect(plain_decode(target, prompt, greedy, Dice(0)), length).tokens
    for start in starts:
        assert collect(start(greedy, Dice(0)), length).tokens == plain


class AsGoodAsNew:
    """A drafter that is held, at every proposal, against a fresh one that reads the whole text."""

    def __init__(self, make, target):
        self.make, self.target, self.drafter = make, target, make()

    def reset(self):
        self.text = []
        self.drafter.reset()

    def observe(self, tokens, hidden, rows):
        self.text = self.text + tokens
        self.drafter.observe(tokens, hidden, rows)

    def propose(self, root, room):
        fresh = self.make()
        fresh.reset()
        fresh.observe(self.text, self.target(torch.tensor([self.text]))[1],
                      list(range(len(self.text))))
        for drafter in (self.drafter, fresh):
            if getattr(drafter, "dice", None):
                drafter.dice = Dice(3)
        mine, expected = self.drafter.propose(root, room), fresh.propose(root, room)
        assert mine.tokens.tolist() == expected.tokens.tolist()
        assert mine.parents.tolist() == expected.parents.tolist()
        if mine.draft_probs is not None:
            torch.testing.assert_close(mine.draft_probs, expected.draft_probs, rtol=0, atol=1e-9)
        return mine


def check_as_good_as_new(make, target=None, accept=walk):
    """After every commit a drafter proposes what a fresh one does. -> the drafter

    A drafter that remembers wrongly costs tokens, not exactness: no test of the output can see
    it. The text slides out of the window of 32.
    """
    target = target or random_gpt(1)
    drafter = AsGoodAsNew(make, target)
    steps = collect(speculate(target, drafter, [1, 2, 3], Sampler(1), Dice(4), accept), 50)
    assert sum(steps.accepted) > 2  # else the commits were of one row each
    return drafter.drafter
