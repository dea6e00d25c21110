"""Export a trained NanoGPT to a folder that Hugging Face transformers loads like any other model.

    pip install -c constraints.txt -e ".[compare]"
    python -m nanogpt.huggingface --size baby --out exported

    AutoModelForCausalLM.from_pretrained("exported")   # a NemotronForCausalLM, no code of ours
    AutoTokenizer.from_pretrained("exported")          # one token a character

Our architecture needs a twin among the standard ones. Nemotron has the same parts: rotary
positions on the two halves of a head, an MLP of two matrices with squared ReLU, no biases in the
linear layers, an output matrix of its own. Its layer norms have parameters, and its weight counts
from 1: zeros in weight and bias make it a norm without parameters. So the weights move over as they
are, and a forward multiplies the same matrices as ours.
"""

from pathlib import Path

import torch

from nanogpt import cli
from nanogpt.data import held_out_prompts
from nanogpt.sizes import SIZES
from nanogpt.train import get_gpt

try:  # the extra [compare]; every function here says so if it is missing
    import tokenizers
    import transformers
except ImportError as error:
    MISSING = error.name
else:
    MISSING = None

NEEDS = ("this needs the package '{}', which is not installed; run: "
         'pip install -c constraints.txt -e ".[compare]"')


def need_transformers():
    """The transformers module. Raises ValueError with the pip command if it is not there."""
    if MISSING:
        raise ValueError(NEEDS.format(MISSING))
    return transformers


def nemotron_config(config):
    """Our GPTConfig -> NemotronConfig of the same shape and the same rotary angles."""
    return need_transformers().NemotronConfig(
        vocab_size=config.vocab_size, hidden_size=config.n_embd,
        intermediate_size=4 * config.n_embd, num_hidden_layers=config.n_layer,
        num_attention_heads=config.n_head, num_key_value_heads=config.n_head,
        max_position_embeddings=config.block_size, hidden_act="relu2", norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0,
                         "partial_rotary_factor": 1.0},
        tie_word_embeddings=False, bos_token_id=None, eos_token_id=None, pad_token_id=None,
    )


def nemotron_weights(model):
    """A GPT's weights under Nemotron's names: {name: tensor}.

    Our qkv (3 C, C) holds the rows of queries, keys and values one after the other; each third is
    a matrix of its own there. Every norm's weight and bias (C,) are zeros.
    """
    weights = {"model.embed_tokens.weight": model.embed.weight,
               "lm_head.weight": model.lm_head.weight}
    norms = ["model.norm"]
    for i, block in enumerate(model.blocks):
        layer = f"model.layers.{i}"
        for name, third in zip("qkv", block.attention.qkv.weight.chunk(3), strict=True):
            weights[f"{layer}.self_attn.{name}_proj.weight"] = third  # (C, C)
        weights[f"{layer}.self_attn.o_proj.weight"] = block.attention.out.weight
        weights[f"{layer}.mlp.up_proj.weight"] = block.up.weight
        weights[f"{layer}.mlp.down_proj.weight"] = block.down.weight
        norms += [f"{layer}.input_layernorm", f"{layer}.post_attention_layernorm"]
    zeros = model.embed.weight.new_zeros(model.config.n_embd)
    for norm in norms:
        weights |= {f"{norm}.weight": zeros, f"{norm}.bias": zeros}
    return {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}


def to_transformers(model):
    """A float32 GPT -> NemotronForCausalLM on the same device, with the same logits."""
    twin = need_transformers().NemotronForCausalLM(nemotron_config(model.config))
    twin.load_state_dict(nemotron_weights(model))  # strict: every weight must find its place
    return twin.to(model.device).eval()


def character_tokenizer(tokenizer, block_size):
    """Our CharTokenizer -> a fast tokenizer of transformers: the same ids, the same text back.

    Every character is cut off by itself, newline and space too, and looked up as a whole word.
    There is no token for unknown characters: like ours, it refuses them.
    """
    need_transformers()
    characters = tokenizers.Tokenizer(tokenizers.models.WordLevel(tokenizer.ids))
    characters.pre_tokenizer = tokenizers.pre_tokenizers.Split(
        tokenizers.Regex(r"[\s\S]"), "isolated")
    characters.decoder = tokenizers.decoders.Fuse()  # else the words are joined with spaces
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=characters, model_max_length=block_size,
        clean_up_tokenization_spaces=False)


def export(model, tokenizer, folder):
    """Write config.json, generation_config.json, model.safetensors and the tokenizer's files.

    model: a float32 GPT; tokenizer: a nanogpt.data.CharTokenizer; folder: made if missing.
    Raises ValueError for another tokenizer, a folder that cannot be written, or without
    transformers.
    """
    if not hasattr(tokenizer, "chars"):
        raise ValueError("the tokenizer is not 'char'; only the character vocabulary is exported")
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        to_transformers(model).save_pretrained(folder)
        character_tokenizer(tokenizer, model.block_size).save_pretrained(folder)
    except OSError as error:
        raise ValueError(f"folder '{folder}' cannot be written: {error.strerror}") from None


def main(argv=None):

    from nanogpt.cli import parser

    p = parser("Export a trained GPT to a folder in Hugging Face format.")
    p.add_argument("--size", choices=SIZES, default="baby", help="of the model")
    p.add_argument("--out", type=Path, required=True, help="folder to write")
    args = p.parse_args(argv)
    if args.tokenizer != "char":
        raise ValueError(f"tokenizer is '{args.tokenizer}'; only 'char' can be exported")
    need_transformers().logging.disable_progress_bar()
    dataset, device = cli.setup(args)
    cli.make_folder(args.out)
    model = get_gpt(args.size, dataset, device, args.retrain)
    export(model, dataset.tokenizer, args.out)

    tokens = torch.tensor(held_out_prompts(dataset, 4))  # (4, 64)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(args.out)
    with torch.inference_mode():
        gap = (loaded(tokens).logits - model(tokens.to(device))[0].cpu()).abs().max()
    print(f"{args.out}: {type(loaded).__name__}, {loaded.num_parameters():,} parameters; on "
          f"held-out text its logits differ from ours by at most {float(gap):.1e}")


if __name__ == "__main__":
    cli.run(main)
