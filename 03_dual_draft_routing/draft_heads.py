"""Two draft heads on the target's hidden states, and how they are trained.

Which hidden state exists when? At proposal time the root token has been chosen, but the target has
not read it. So the newest hidden state is that of the token before the root. A head starts from it,
reads the root, and from there on its own state stands in for the hidden states that the target
has not computed yet:

    hidden of the last committed token --fuse--> state
    state, embedding of the root -------read---> state' --target's lm_head--> tokens at depth 1
    state', embedding of a depth-1 node --read--> state'' ...

The target's embedding and output matrix are borrowed and frozen. One read costs a few small matrix
products, whatever the length of the text. The idea of drafting from the target's features is
that of EAGLE (Li et al., 2024); the recurrent state instead of a transformer layer is that of the
recurrent drafter (Cheng et al., 2024).

Two heads that learn the same differ only by chance, and their confidence hardly tells who is right.
So the chapter's heads divide the work. One is on duty inside words, the other at their edges. Off
duty a head learns little of what the target says, and to say that it does not know.
"""

from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import nn

from nanogpt.checkpoint import checkpoint_path, fingerprint
from nanogpt.model import norm
from nanogpt.sampling import Sampler
from nanogpt.sizes import Recipe
from nanogpt.train import fit, step_generator

RECIPE = Recipe(steps=300, batch_size=8, lr=3e-3, muon_lr=0.02)
DEPTH = 6  # levels that the heads are trained for
OFF_DUTY = 0.2  # weight of a place where a head is not on duty; half of it asks for ignorance
DUTIES = ("everywhere", "inside words", "word edges")


@dataclass(frozen=True)
class HeadConfig:
    """layers: which hidden states are read (indices into GPT.forward's list); duty: one of DUTIES,
    the places that the head is trained for; width: W, the size of its state."""

    layers: tuple
    duty: str = "everywhere"
    width: int = 128


class DraftHead(nn.Module):
    """fuse, then read one token at a time. The target is borrowed, not owned.

    One instance serves one text: `state` (1, W) stands for the committed tokens.
    Raises ValueError for layers that the target does not have, or an unknown duty.
    """

    def __init__(self, target, config):
        super().__init__()
        if config.duty not in DUTIES:
            raise ValueError(f"duty is '{config.duty}'; it must be one of {', '.join(DUTIES)}")
        if not config.layers or not set(config.layers) <= set(range(target.config.n_layer + 1)):
            raise ValueError(f"layers are {config.layers}; the target has hidden states "
                             f"0 to {target.config.n_layer}")
        n_embd, width = target.config.n_embd, config.width
        self.config, self.borrowed = config, [target]  # in a list: no submodule, no gradient
        self.fuse = nn.Linear(len(config.layers) * n_embd, width, bias=False)
        self.mix = nn.Linear(width + n_embd, width, bias=False)
        self.up = nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)
        self.out = nn.Linear(width, n_embd, bias=False)
        nn.init.zeros_(self.down.weight)

    @property
    def target(self):
        return self.borrowed[0]

    def features(self, hidden):
        """hidden: a list of (B, N, C) -> the states after each row, (B, N, W)."""
        layers = [norm(hidden[i]) for i in self.config.layers]
        return self.fuse(torch.cat(layers, -1))

    def advance(self, states, tokens):
        """One read: states (..., W), token ids (...) -> states (..., W)."""
        embedded = self.target.embed(tokens)
        x = self.mix(torch.cat([norm(states), norm(embedded)], -1))
        return x + self.down(F.relu(self.up(norm(x))).square())

    def guess(self, states):
        """states (..., W) -> log-probabilities of the next token (..., V)."""
        logits = self.target.lm_head(norm(self.out(norm(states))))
        return torch.log_softmax(logits.float(), -1)

    # ------------------------------------------------ the protocol of grow_tree and of the loop

    def reset(self):
        self.state = None

    @torch.inference_mode()
    def observe(self, tokens, hidden, rows):
        """Committed: hidden[layer][:, rows] are the target's hidden states of these tokens."""
        last = [layer[:, rows[-1:]] for layer in hidden]  # the newest one is all that is needed
        self.state = self.features(last)[0]  # (1, W)

    @torch.inference_mode()
    def read(self, states, tokens):
        """n nodes of one level: their parents' states (n, W), their tokens (a list).

        -> log-probabilities of the token after each node (n, V) on the CPU, their states (n, W).
        """
        states = self.advance(states, torch.tensor(tokens, device=states.device))
        return self.guess(states).cpu(), states


# ---------------------------------------------------------------- training


def inside_words(tokens, letters):
    """Which proposals stand inside a word: their root and the token before it end in a letter.

    tokens (B, T); letters (V,) bool -> (B, T - DEPTH) bool, entry t for the root token t + 1.
    """
    is_letter = letters[tokens]  # (B, T)
    return is_letter[:, :-DEPTH] & is_letter[:, 1:tokens.shape[1] - DEPTH + 1]


def on_duty(duty, tokens, letters):
    """(B, T - DEPTH) bool: the proposals that a head of this duty is there for."""
    inside = inside_words(tokens, letters)
    return {"everywhere": torch.ones_like(inside), "inside words": inside,
            "word edges": ~inside}[duty]


def head_loss(head, tokens, hidden, labels, duty):
    """Cross-entropy against the target's own distributions, mean over depths and positions.

    tokens (B, T); hidden: the target's list of (B, T, C) for them; labels (B, T, V): row t is the
    target's distribution of token t + 1; duty (B, T - DEPTH) bool: see on_duty.
    Every position t is a proposal: the state starts from hidden[t], the root is token t + 1, and
    depth d predicts what the target says after reading token t + d. The text itself is read in
    place of drafted tokens, since a draft is of use only as long as it is what the target says.

    Off duty the label is half the target's distribution, half the uniform one, and the weight is
    OFF_DUTY: there the head learns above all not to be confident.
    """
    T, V, loss = tokens.shape[1], labels.shape[-1], 0.0
    weight = torch.where(duty, 1.0, OFF_DUTY)  # (B, T - DEPTH)
    known = torch.where(duty, 1.0, 0.5)[..., None]  # the target's part of the label
    states = head.features(hidden)[:, :T - DEPTH]  # (B, T - DEPTH, W)
    for d in range(1, DEPTH + 1):
        states = head.advance(states, tokens[:, d:T - DEPTH + d])  # read token t + d
        label = known * labels[:, d:T - DEPTH + d] + (1 - known) / V
        loss = loss - (weight * (label * head.guess(states)).sum(-1)).mean()
    return loss / DEPTH


class Heads(nn.Module):
    """Both heads in one module, so that one training run and one checkpoint hold them."""

    def __init__(self, target, configs):
        super().__init__()
        self.heads = nn.ModuleList(DraftHead(target, config) for config in configs)


def default_configs(n_layer, duties=DUTIES[1:]):
    """Two heads for a target of n_layer layers, by default the chapter's specialists.

    Both read the middle and the last layer, so they differ in nothing but their duties; with
    duties=("everywhere",) * 2 in nothing but the chance of their first weights.
    """
    return tuple(HeadConfig((n_layer // 2, n_layer), duty) for duty in duties)


def letters_of(tokenizer):
    """(V,) bool: which tokens end in a letter."""
    texts = [tokenizer.decode([token]) for token in range(tokenizer.vocab_size)]
    return torch.tensor([text[-1:].isalpha() for text in texts])


def get_heads(target, dataset, device, retrain=False, configs=None, recipe=RECIPE, folder=None):
    """The trained heads: loaded if they were trained before, else trained now, both at once.

    target: a trained GPT in float32; it is frozen. Each batch runs through it once, and both heads
    learn from the same hidden states. -> list of DraftHead
    """
    configs = configs or default_configs(target.config.n_layer)
    config = {"heads": [{**asdict(c), "layers": list(c.layers)} for c in configs], "depth": DEPTH,
              "off_duty": OFF_DUTY, "recipe": asdict(recipe), "target": fingerprint(target),
              "corpus": dataset.sha256, "tokenizer": dataset.tokenizer_name}
    path = checkpoint_path("draft-heads", config, folder)
    if retrain:
        path.unlink(missing_ok=True)
    torch.manual_seed(recipe.seed)
    target.requires_grad_(False)
    both, sampler = Heads(target, configs).to(device), Sampler()
    letters = letters_of(dataset.tokenizer).to(device)

    def batch_loss(step):
        generator = step_generator(recipe, step)
        tokens, _ = dataset.batch(
            dataset.train, recipe.batch_size, target.block_size, generator)
        tokens = tokens.to(device)
        with torch.no_grad():
            logits, hidden = target(tokens)
            labels = sampler(logits)
        return sum(head_loss(head, tokens, hidden, labels,
                             on_duty(head.config.duty, tokens, letters)) for head in both.heads)

    fit(both, batch_loss, recipe, path, config, f"{len(configs)} draft heads")
    return list(both.eval().heads)


def heads_for_decoding(heads, target):
    """Copies of the heads on the decoding copy of their target.

    They stay in float32: on matrices this small, packing costs more time than it saves.
    """
    copies = []
    for head in heads:
        twin = DraftHead(target, head.config).to(target.device).eval().requires_grad_(False)
        twin.load_state_dict(head.state_dict())
        copies.append(twin)
    return copies
