"""How the two draft heads are trained: on the target's own distributions, each for its duty.

Two heads that learn the same differ only by chance, and their confidence hardly tells which one is
right. So the chapter's heads divide the work. One is on duty inside words, the other at their
edges; or one in verse, the other in code. Off duty a head learns little of what the target says,
and learns to be unsure.
"""

from dataclasses import asdict, dataclass, replace
from hashlib import sha256

import torch
from torch import nn

from draft_heads import DraftHead, HeadConfig
from nanogpt.checkpoint import checkpoint_path, fingerprint
from nanogpt.data import DATA, CharTokenizer, Dataset, hold_out, load_text
from nanogpt.packing import for_decoding
from nanogpt.sampling import Sampler
from nanogpt.sizes import Recipe
from nanogpt.train import fit, get_gpt, step_generator

RECIPE = Recipe(steps=300, batch_size=8, lr=3e-3, muon_lr=0.02)
DEPTH = 6  # levels that the heads are trained for
SPECIALISTS = ("inside words", "word edges")  # the heads' duties
OFF_DUTY = 0.2  # weight of a place where a head is not on duty; half of it asks for ignorance

# ---------------------------------------------------------------- who is on duty where


def letters_of(tokenizer):
    """(V,) bool: which tokens end in a letter."""
    texts = [tokenizer.decode([token]) for token in range(tokenizer.vocab_size)]
    return torch.tensor([text[-1:].isalpha() for text in texts])


def on_duty(duty, tokens, letters):
    """(B, T - DEPTH) bool: the proposals that a head of this duty is there for, entry t for the
    root token t + 1. Inside a word: the root and the token before it end in a letter. Verse, code:
    the even rows, the odd ones, see InTurn.

    tokens (B, T); letters (V,) bool.
    """
    is_letter = letters[tokens]  # (B, T)
    # Entry t looks at tokens t and t + 1; the last DEPTH places have too little text behind them.
    inside = is_letter[:, :-DEPTH] & is_letter[:, 1:tokens.shape[1] - DEPTH + 1]
    even = torch.ones_like(inside)
    even[1::2] = False
    return {"everywhere": torch.ones_like(inside), "inside words": inside, "word edges": ~inside,
            "verse": even, "code": ~even}[duty]


# ---------------------------------------------------------------- the loss


def head_loss(head, tokens, hidden, labels, duty):
    """Cross-entropy against the target's own distributions, mean over depths and positions.

    tokens (B, T); hidden: the target's list of (B, T, C) for them; labels (B, T, V): row t is the
    target's distribution of token t + 1; duty (B, T - DEPTH) bool: see on_duty.
    Every position t is a proposal: the state starts from hidden[t], the root is token t + 1, and
    depth d predicts what the target says after reading token t + d.
    """
    T, V, loss = tokens.shape[1], labels.shape[-1], 0.0
    # Off duty the label is half the target's distribution and half the uniform one, at a small
    # weight: there the head learns mainly not to be confident.
    weight = torch.where(duty, 1.0, OFF_DUTY)  # (B, T - DEPTH)
    known = torch.where(duty, 1.0, 0.5)[..., None]  # the target's part of the label
    states = head.features(hidden)[:, :T - DEPTH]  # (B, T - DEPTH, W)
    for d in range(1, DEPTH + 1):
        # Read token t + d, a token of the text in place of a draft: a draft is of use only while
        # it is what the target says.
        states = head.advance(states, tokens[:, d:T - DEPTH + d])
        label = known * labels[:, d:T - DEPTH + d] + (1 - known) / V  # (B, T - DEPTH, V)
        loss = loss - (weight * (label * head.guess(states)).sum(-1)).mean()
    return loss / DEPTH


def heads_loss(heads, tokens, letters):
    """The sum of the heads' losses, each on its duty. tokens (B, T); letters (V,) bool."""
    with torch.no_grad():
        logits, hidden = heads[0].target(tokens)  # the expensive part of a step, once for all heads
        labels = Sampler()(logits)  # at temperature 1, whatever will be decoded
    return sum(head_loss(head, tokens, hidden, labels, on_duty(head.config.duty, tokens, letters))
               for head in heads)


@torch.inference_mode()
def heads_validation_loss(heads, dataset):
    """heads_loss on 64 held-out windows."""
    target, letters = heads[0].target, letters_of(dataset.tokenizer)
    tokens, _ = dataset.batch(dataset.val, 64, target.block_size, torch.Generator().manual_seed(0))
    losses = [heads_loss(heads, part.to(target.device), letters.to(target.device))
              for part in tokens.split(8)]
    return float(sum(losses)) / len(losses)


# ---------------------------------------------------------------- two heads, one training run


class Heads(nn.Module):
    """Both heads in one module, so that one training run and one checkpoint hold them."""

    def __init__(self, target, configs):
        super().__init__()
        self.heads = nn.ModuleList(DraftHead(target, config) for config in configs)


def default_configs(n_layer, duties=SPECIALISTS):
    """Two heads for a target of n_layer layers, by default the chapter's specialists."""
    # Both read the middle and the last layer, so they differ only in their duties, and
    # generalists only in their random first weights.
    return tuple(HeadConfig((n_layer // 2, n_layer), duty) for duty in duties)


def get_heads(target, dataset, device, retrain=False, configs=None, recipe=RECIPE, folder=None):
    """The trained heads: loaded if they were trained before, else trained now, both at once.

    target: a trained GPT in float32; it is frozen. -> list of DraftHead
    """
    configs = configs or default_configs(target.config.n_layer)
    config = {"heads": [{**asdict(c), "layers": list(c.layers)} for c in configs], "depth": DEPTH,
              "off_duty": OFF_DUTY, "recipe": asdict(recipe), "target": fingerprint(target),
              "corpus": dataset.sha256, "tokenizer": dataset.tokenizer_name}
    path = checkpoint_path("draft-heads", config, folder)
    torch.manual_seed(recipe.seed)
    target.requires_grad_(False)
    both = Heads(target, configs).to(device)
    letters = letters_of(dataset.tokenizer).to(device)

    def batch_loss(step):
        tokens, _ = dataset.batch(dataset.train, recipe.batch_size, target.block_size,
                                  step_generator(recipe, step))
        return heads_loss(both.heads, tokens.to(device), letters)

    fit(both, batch_loss, recipe, path, config, f"{len(configs)} draft heads",
        evaluate=lambda: heads_validation_loss(both.heads, dataset), retrain=retrain)
    return list(both.eval().heads)


def get_one_head(target, dataset, device, retrain=False, recipe=RECIPE, folder=None):
    """A list of one head without a duty, which learns everywhere: the rival of any two heads."""
    configs = default_configs(target.config.n_layer, ("everywhere",))
    return get_heads(target, dataset, device, retrain, configs, recipe, folder)


def random_heads(target, seed=0):
    """Two heads with random weights in float64 on a small target, for the proofs."""
    torch.manual_seed(seed)
    n = target.config.n_layer
    heads = [DraftHead(target, HeadConfig((n,))), DraftHead(target, HeadConfig((1, n)))]
    for head in heads:
        torch.nn.init.normal_(head.down.weight, std=0.3)
    return [head.double().requires_grad_(False) for head in heads]


def heads_for_decoding(heads, target):
    """Copies of the heads on the decoding copy of their target."""
    copies = []
    for head in heads:
        # In float32: on matrices this small, packing costs more time than it saves.
        twin = DraftHead(target, head.config).to(target.device).eval().requires_grad_(False)
        twin.load_state_dict(head.state_dict())
        copies.append(twin.to(target.embed.weight.dtype))  # bfloat16 on a GPU
    return copies


# ---------------------------------------------------------------- a head for each kind of text


def kinds_of_text():
    """{kind: Dataset} of characters: Shakespeare's verse, this repository's code, and both."""
    texts = [load_text(), load_text(DATA / "code.txt")]
    tokenizer, digest = CharTokenizer("".join(texts)), sha256("".join(texts).encode())
    verse, code = (hold_out(text, 10) for text in texts)  # training text, validation text
    parts = {"verse": verse, "code": code, "both": map(str.__add__, verse, code)}
    return {kind: Dataset("char", tokenizer,
                          *(torch.tensor(tokenizer.encode(part)) for part in halves),
                          f"{kind} of {digest.hexdigest()}") for kind, halves in parts.items()}


def get_kind_head(kind, dataset, target, device, retrain=False, recipe=RECIPE, folder=None):
    """A list of one head that has learned this kind of text; "both" takes twice the steps."""
    recipe = replace(recipe, steps=recipe.steps * (2 if kind == "both" else 1))
    return get_one_head(target, dataset, device, retrain, recipe, folder)


@dataclass
class InTurn(Dataset):
    """Two kinds of text; train and val are pairs. Windows come in turn: the even rows of a batch
    are of the first kind."""

    def batch(self, split, size, length, generator):
        """See Dataset.batch."""
        halves = [super(InTurn, self).batch(text, size // 2, length, generator) for text in split]
        return tuple(torch.stack(pair, 1).flatten(0, 1) for pair in zip(*halves, strict=True))


def in_turn(kinds):
    """Verse and code of kinds_of_text -> their InTurn."""
    verse, code = kinds["verse"], kinds["code"]
    return InTurn("char", verse.tokenizer, (verse.train, code.train), (verse.val, code.val),
                  f"in turn {verse.sha256}")


def get_taught_heads(dataset, target, device, retrain=False, recipe=RECIPE, folder=None):
    """The head for verse and the head for code, each taught to doubt on the other kind -> a list.

    dataset: of in_turn. Each head sees as many windows of its own kind as get_kind_head's.
    """
    recipe = replace(recipe, batch_size=2 * recipe.batch_size)
    return get_heads(target, dataset, device, retrain,
                     default_configs(target.config.n_layer, ("verse", "code")), recipe, folder)


def get_kinds(device, retrain=False, taught=False):
    """kinds_of_text; the 0.8M target that has learned both; {kind: a head for it}, for decoding.

    taught: the heads for verse and for code were taught to doubt.
    """
    kinds = kinds_of_text()
    trained = get_gpt("small", kinds["both"], device, retrain)
    pair = dict(zip(("verse", "code"), get_taught_heads(
        in_turn(kinds), trained, device, retrain), strict=True)) if taught else {}
    heads = [pair[kind] if kind in pair else get_kind_head(
        kind, dataset, trained, device, retrain)[0] for kind, dataset in kinds.items()]
    target = for_decoding(trained)
    return kinds, target, dict(zip(kinds, heads_for_decoding(heads, target), strict=True))
