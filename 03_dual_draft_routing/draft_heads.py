"""Two draft heads on the target's hidden states, and how they are trained.

Which hidden state exists when? At proposal time the root token has been chosen, but the target has
not read it. So the newest hidden state is that of the token before the root. A head starts from it,
reads the root, and from there on its own state stands in for the hidden states that the target
has not computed yet:

    hidden of the last committed token --fuse--> state
    state, embedding of the root -------read---> state' --target's lm_head--> tokens at depth 1
    state', embedding of a depth-1 node --read--> state'' ...

The target's embedding and output matrix are borrowed and frozen. One read costs two small matrix
products, whatever the length of the text. The idea of drafting from the target's features is
that of EAGLE (Li et al., 2024); the recurrent state instead of a transformer layer is that of the
recurrent drafter (Cheng et al., 2024).
"""

from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import nn

from nanogpt.checkpoint import checkpoint_path, fingerprint
from nanogpt.model import norm
from nanogpt.precision import pack, precision_of
from nanogpt.sampling import Sampler
from nanogpt.train import Recipe, fit, step_generator

RECIPE = Recipe(steps=300, batch_size=8, lr=3e-3, muon_lr=0.02)
DEPTH = 6  # levels that the heads are trained for


@dataclass(frozen=True)
class HeadConfig:
    """layers: which hidden states are read (indices into GPT.forward's list); kind: what a head
    knows of its own drafts. 'autoregressive' reads every drafted token into its state, 'parallel'
    sees the root and then guesses all depths at once."""

    layers: tuple
    kind: str = "autoregressive"


class DraftHead(nn.Module):
    """fuse, then read one token at a time. The target is borrowed, not owned.

    One instance serves one text: `state` (1, C) stands for the committed tokens.
    Raises ValueError for layers that the target does not have, or an unknown kind.
    """

    def __init__(self, target, config):
        super().__init__()
        if config.kind not in ("autoregressive", "parallel"):
            raise ValueError(f"kind is '{config.kind}'; it must be autoregressive or parallel")
        if not config.layers or max(config.layers) > target.config.n_layer:
            raise ValueError(f"layers are {config.layers}; the target has hidden states "
                             f"0 to {target.config.n_layer}")
        n_embd = target.config.n_embd
        self.config, self.borrowed = config, [target]  # in a list: no submodule, no gradient
        self.fuse = nn.Linear(len(config.layers) * n_embd, n_embd, bias=False)
        self.mix = nn.Linear(2 * n_embd, n_embd, bias=False)
        self.up = nn.Linear(n_embd, 2 * n_embd, bias=False)
        self.down = nn.Linear(2 * n_embd, n_embd, bias=False)
        nn.init.zeros_(self.down.weight)
        # A parallel head has no token to read below the root: a learned vector stands for it.
        self.unknown = nn.Parameter(torch.zeros(n_embd))

    @property
    def target(self):
        return self.borrowed[0]

    def features(self, hidden):
        """hidden: a list of (B, N, C) -> the states after each row, (B, N, C)."""
        layers = [norm(hidden[i]) for i in self.config.layers]
        return self.fuse(torch.cat(layers, -1))

    def advance(self, states, embedded):
        """One read: states (..., C), embedded tokens (..., C) -> states (..., C)."""
        x = self.mix(torch.cat([norm(states), norm(embedded)], -1))
        return x + self.down(F.relu(self.up(norm(x))).square())

    def embedded(self, tokens, depth):
        """What is read at this depth, 0 for the root: tokens (...) -> (..., C)."""
        if depth > 0 and self.config.kind == "parallel":
            return self.unknown.expand(*tokens.shape, -1)
        return self.target.embed(tokens)

    # ------------------------------------------------ the protocol of grow_tree and of the loop

    def reset(self):
        self.state = None

    @torch.inference_mode()
    def observe(self, tokens, hidden, rows):
        """Committed: hidden[layer][:, rows] are the target's hidden states of these tokens."""
        last = [layer[:, rows[-1:]] for layer in hidden]  # the newest one is all that is needed
        self.state = self.features(last)[0]  # (1, C)

    @torch.inference_mode()
    def read(self, states, tokens):
        """n nodes of one level: their parents' states (n, C), their tokens (a list).

        -> log-probabilities of the token after each node (n, V) on the CPU, their states (n, C).
        """
        depth = 0 if states is self.state else 1  # only the root is read into the committed state
        tokens = torch.tensor(tokens, device=states.device)
        states = self.advance(states, self.embedded(tokens, depth))
        logits = self.target.lm_head(norm(states)).float()
        return torch.log_softmax(logits, -1).cpu(), states


def head_loss(head, tokens, hidden, labels):
    """Cross-entropy against the target's own distributions, mean over depths and positions.

    tokens (B, T); hidden: the target's list of (B, T, C) for them; labels (B, T, V): row t is the
    target's distribution of token t + 1.
    Every position t is a proposal: the state starts from hidden[t], the root is token t + 1, and
    depth d predicts what the target says after reading token t + d. The text itself is read in
    place of drafted tokens, since a draft is of use only as long as it is what the target says.
    """
    T, loss = tokens.shape[1], 0.0
    states = head.features(hidden)[:, :T - DEPTH]  # (B, T - DEPTH, C)
    for d in range(1, DEPTH + 1):
        root_side = tokens[:, d:T - DEPTH + d]  # token t + d
        states = head.advance(states, head.embedded(root_side, d - 1))
        guess = torch.log_softmax(head.target.lm_head(norm(states)).float(), -1)
        loss = loss - (labels[:, d:T - DEPTH + d] * guess).sum(-1).mean()
    return loss / DEPTH


class Heads(nn.Module):
    """Both heads in one module, so that one training run and one checkpoint hold them."""

    def __init__(self, target, configs):
        super().__init__()
        self.heads = nn.ModuleList(DraftHead(target, config) for config in configs)


def default_configs(n_layer):
    """The chapter's two heads for a target of n_layer layers."""
    return (HeadConfig((n_layer,)), HeadConfig((n_layer // 2, n_layer), "parallel"))


def get_heads(target, dataset, device, retrain=False, configs=None, recipe=RECIPE, folder=None):
    """The trained heads: loaded if they were trained before, else trained now, both at once.

    target: a trained GPT in float32; it is frozen. Each batch runs through it once, and both heads
    learn from the same hidden states. -> list of DraftHead
    """
    configs = configs or default_configs(target.config.n_layer)
    config = {"heads": [{**asdict(c), "layers": list(c.layers)} for c in configs], "depth": DEPTH,
              "recipe": asdict(recipe), "target": fingerprint(target), "corpus": dataset.sha256,
              "tokenizer": dataset.tokenizer_name}
    path = checkpoint_path("draft-heads", config, folder)
    if retrain:
        path.unlink(missing_ok=True)
    torch.manual_seed(recipe.seed)
    target.requires_grad_(False)
    both, sampler = Heads(target, configs).to(device), Sampler()

    def batch_loss(step):
        generator = step_generator(recipe, step)
        tokens, _ = dataset.batch(
            dataset.train, recipe.batch_size, target.block_size, generator)
        tokens = tokens.to(device)
        with torch.no_grad():
            logits, hidden = target(tokens)
            labels = sampler(logits)
        return sum(head_loss(head, tokens, hidden, labels) for head in both.heads)

    fit(both, batch_loss, recipe, path, config, f"{len(configs)} draft heads")
    return list(both.eval().heads)


def heads_for_decoding(heads, target):
    """Copies of the heads on the decoding copy of their target, in the target's precision."""
    copies = []
    for head in heads:
        twin = DraftHead(target, head.config).to(target.device).eval().requires_grad_(False)
        twin.load_state_dict(head.state_dict())
        if precision_of(target) == "bfloat16":
            pack(twin)
        copies.append(twin)
    return copies
