"""Published DFlash drafters: both spellings, the pass of transformers' own class, refusals."""

import json
import re

import pytest
import torch

from block_diffusion import BlockDraft
from dflash import DFlash, load_dflash, read_config
from nanogpt.transformers_model import TransformersModel
from test_real_model import DEEPSPEC, V, close, published, random_dflash, save, text, tiny

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()


def test_both_spellings_of_a_config():
    inner = {"block_size": 5, "mask_token_id": 60, "target_layer_ids": [0, 2]}
    for zlab in (published(), published(block_size=None, dflash_config=inner)):
        read = read_config(zlab)
        assert (read.length, read.feature_layers, read.mask_token) == (4, (1, 3), 60)
    deepspec = read_config(published(**DEEPSPEC))
    assert (deepspec.length, deepspec.feature_layers) == (5, (0, 3))  # the root's slot predicts


@pytest.mark.parametrize("changes, sentence", [
    ({"architectures": ["DFlash2DraftModel"]}, "the drafter's architecture is 'DFlash2DraftModel'"),
    ({"dflash_config": {}}, "names no mask_token_id"),
    ({"block_size": None}, "names no block_size"),
    ({"dflash_config": {"mask_token_id": 60, "target_layer_ids": [0], "selector_rank": 4}},
     "sets dflash_config.selector_rank to 4"),
    ({"layer_types": ["sliding_attention"] * 2}, "sets layer_types"),
    (DEEPSPEC | {"markov_rank": 64}, "sets markov_rank to 64"),
    ({"attention_bias": True}, "sets attention_bias"),
    ({"hidden_size": 64}, "wants a hidden_size of 64, the target has 32"),
    ({"dflash_config": {"mask_token_id": 60, "target_layer_ids": [1, 3]}}, "after block 4"),
    ({"dflash_config": {"mask_token_id": 61, "target_layer_ids": [1]}}, "mask token 61 of 61"),
    ({"block_size": 1}, "length 0"),
    ({"num_hidden_layers": 3}, "contradicts itself: ValueError: `num_hidden_layers` (3)"),
])
def test_what_is_not_known_is_refused_by_name(changes, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        DFlash(TransformersModel(tiny("qwen3")), read_config(published(**changes)))


def test_files_that_do_not_fit_are_refused(tmp_path):
    target = TransformersModel(tiny("qwen3"))
    with pytest.raises(ValueError, match="is no drafter: it must hold"):
        load_dflash(tmp_path, target)
    folder = save(random_dflash(target), tmp_path / "drafter")
    (folder / "config.json").write_text(json.dumps(published(intermediate_size=64)))
    with pytest.raises(ValueError, match="not those of its config: look at layers.0.mlp"):
        load_dflash(folder, target)
    (folder / "config.json").write_text("{")
    with pytest.raises(ValueError, match="is no drafter"):
        load_dflash(folder, target)


def stock_pass(network, features, root, length):
    """The same pass by transformers' own class, which has DFlash since 5.15 -> logits (L, V)."""
    stock = pytest.importorskip("transformers.models.muse_glimmer_assistant")
    sizes = network.config.sizes
    model = stock.modeling_muse_glimmer_assistant.MuseGlimmerAssistantModel(
        transformers.MuseGlimmerAssistantConfig(
            hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=8, rms_norm_eps=1e-6, block_size=length + 1,
            layer_types=sizes.layer_types, max_position_embeddings=128, mask_token_id=60,
            rope_parameters={"rope_theta": 1e6, "rope_type": "default"},
            target_layer_ids=[0, 2])).eval()
    names = {"fc.weight": "encoder.fc.weight", "hidden_norm.weight":
             "encoder.output_norm_enc.weight"}
    model.load_state_dict({names.get(name, name): x for name, x in network.state_dict().items()})
    embeds = network.target.embed(torch.tensor([[root] + [60] * length]))
    with torch.inference_mode():
        x = model(noise_embeds=embeds, context_hidden_states=features,
                  position_ids=torch.arange(features.shape[1] + length + 1)[None])[0]
    return network.target.lm_head(x)[0, 1:]


def test_a_pass_equals_the_stock_class_of_transformers():
    network = random_dflash(TransformersModel(tiny("qwen3")))
    features = torch.randn(1, 20, 64, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        logits = network(features, torch.tensor([[5]]), slice(0, 25), network.new_cache())
    assert logits.shape == (1, 1, 4, V)
    assert close(logits[0, 0], stock_pass(network, features, 5, 4), 1e-5)


@pytest.mark.parametrize("changes", [{}, DEEPSPEC], ids=["z-lab", "DeepSpec"])
def test_a_pass_in_pieces_equals_a_pass_at_once(changes):
    """The cache of the context: what was read once is not read again, whatever the rounds were."""
    target = TransformersModel(tiny("qwen3"))
    network = random_dflash(target, **changes)
    _, hidden = target(torch.tensor([text(40)]))
    once, pieces = BlockDraft(network), BlockDraft(network)
    once.observe(text(40), hidden, list(range(40)))
    for first, last in ((0, 17), (17, 18), (18, 40)):
        pieces.observe(text(40)[first:last], hidden, list(range(first, last)))
        got = pieces.marginals(3, 100)
    assert got.shape == (network.config.length, V) and close(got, once.marginals(3, 100), 1e-4)
    assert pieces.marginals(3, 2).shape == (2, V) and pieces.marginals(3, 0).shape == (0, V)
    # a cache that must grow keeps what it holds
    pieces.cache.kv = pieces.cache.kv[..., :41, :].clone()
    assert close(pieces.marginals(3, 100), got, 1e-4)
    assert not close(pieces.marginals(4, 100), got, 1e-2)  # the root matters


@pytest.mark.parametrize("changes, own", [({}, False), (DEEPSPEC, True)])
def test_only_deepspec_reads_and_writes_with_matrices_of_its_own(changes, own):
    target = TransformersModel(tiny("qwen3"))
    draft = BlockDraft(random_dflash(target, **changes))
    _, hidden = target(torch.tensor([text(6)]))
    draft.observe(text(6), hidden, list(range(6)))
    before = draft.logits(5, 9)
    for borrowed in (target.model.get_input_embeddings(), target.model.get_output_embeddings()):
        kept = borrowed.weight.data.clone()
        borrowed.weight.data *= 2
        assert torch.equal(draft.logits(5, 9), before) == own
        borrowed.weight.data = kept
