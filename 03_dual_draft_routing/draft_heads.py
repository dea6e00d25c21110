"""Two draft heads on the target's hidden states.

Which hidden states exist at which time? When a head proposes, the root token has been chosen, but
the target has not read it. So the newest hidden state is that of the token before the root. A head
starts from it and reads the root. From there on its own state replaces the hidden states that the
target has not computed yet:

    hidden of the last committed token --fuse--> state
    state, embedding of the root -------read---> state' --target's lm_head--> tokens at depth 1
    state', embedding of a depth-1 node --read--> state'' ...

The target's embedding and output matrix are borrowed and frozen. One read costs a few small matrix
products, whatever the length of the text. The idea of drafting from the target's features is
that of EAGLE (Li et al., 2024); the recurrent state instead of a transformer layer is that of the
recurrent drafter (Cheng et al., 2024).

train_heads.py trains the heads.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from nanogpt.model import norm


@dataclass(frozen=True)
class HeadConfig:
    """layers: which hidden states are read (indices into GPT.forward's list); duty: the places that
    the head is trained for, see train_heads.on_duty; width: W, the size of its state."""

    layers: tuple
    duty: str = "everywhere"
    width: int = 128


class DraftHead(nn.Module):
    """fuse, then read one token at a time. The target is borrowed, not owned.

    `state` (1, W) stands for the committed tokens of one text. A HeadDrafter works with a copy of
    the head: a state of its own, the same weights.
    """

    def __init__(self, target, config):
        super().__init__()
        n_embd, width = target.config.n_embd, config.width  # C, W
        self.config, self.borrowed = config, [target]  # in a list: no submodule, no gradient
        self.fuse = nn.Linear(len(config.layers) * n_embd, width, bias=False)
        self.mix = nn.Linear(width + n_embd, width, bias=False)
        self.up = nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)
        self.out = nn.Linear(width, n_embd, bias=False)
        nn.init.zeros_(self.down.weight)  # training starts from the mix alone, as a GPT's blocks do

    @property
    def target(self):
        return self.borrowed[0]

    def features(self, hidden, rows=slice(None)):
        """hidden: a list of (B, N, C) -> the states after these rows, (B, rows, W)."""
        # Layers differ in scale: each is normed alone, or the last one would dominate the others.
        layers = [norm(hidden[i][:, rows]) for i in self.config.layers]
        return self.fuse(torch.cat(layers, -1))  # (B, rows, len(layers) C) -> (B, rows, W)

    def advance(self, states, tokens):
        """One read: states (..., W), token ids (...) -> states (..., W)."""
        embedded = self.target.embed(tokens)  # (..., C)
        x = self.mix(torch.cat([norm(states), norm(embedded)], -1))  # (..., W + C) -> (..., W)
        return x + self.down(F.relu(self.up(norm(x))).square())  # the MLP of a GPT's block

    def guess(self, states):
        """states (..., W) -> log-probabilities of the next token (..., V)."""
        # Through the target's own last norm and output matrix: a head need not learn the tokens.
        logits = self.target.lm_head(norm(self.out(norm(states))))
        # Half precision is lifted; float64 stays, for the proofs.
        return torch.log_softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)), -1)

    # ------------------------------------------------ the protocol of grow_tree and of the loop

    def reset(self):
        self.state = None  # a new context begins: nothing of the old one is left

    @torch.inference_mode()
    def observe(self, tokens, hidden, rows):
        """Committed: hidden[layer][:, rows] are the target's hidden states of these tokens."""
        # The newest row is enough: it holds what the target made of the whole text.
        self.state = self.features(hidden, rows[-1:])[0]  # (1, W)

    @torch.inference_mode()
    def read(self, states, tokens):
        """n nodes of one level: their parents' states (n, W), their tokens (a list).

        -> log-probabilities of the token after each node (n, V) on the CPU, their states (n, W).
        """
        states = self.advance(states, torch.tensor(tokens, device=states.device))
        return self.guess(states).cpu(), states  # the tree grows in Python, the states stay there
