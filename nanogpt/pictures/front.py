"""The README's picture: a text, coloured by who wrote each letter.

    python -m nanogpt.pictures.front        # draws 01_chain_specdec/pictures/authors.png anew
"""

from nanogpt import cli
from nanogpt.chapter import load
from nanogpt.data import load_dataset
from nanogpt.decoding import collect
from nanogpt.device import pick_device
from nanogpt.packing import for_decoding
from nanogpt.sampling import Dice, Sampler
from nanogpt.train import get_gpt


def main():
    dataset, device, chapter = load_dataset(), pick_device(), load("01")
    chain, pictures = chapter.module("chain_specdec"), chapter.module("chain_pictures")
    target, small = (for_decoding(get_gpt(size, dataset, device)) for size in ("baby", "draft"))
    steps = chain.speculate_chain(target, chain.GPTDraft(small), dataset.tokenizer.encode(
        "MACBETH:\n"), 4, Sampler(0.8), Dice(1))
    text = collect(steps, 135)
    path = chapter.folder / "pictures" / "authors.png"
    ax = pictures.draw_authors(text, dataset.tokenizer.decode)
    lines = dataset.tokenizer.decode(text.tokens).splitlines()
    wide, room = max(map(len, lines)) + 2, ax.get_xlim()[1]  # without the empty margins
    ax.figure.set_figwidth(ax.figure.get_figwidth() * wide / room)
    ax.set(title=f"{len(text.steps) + 1} passes of the large model\n(orange) in place of "
                 f"{len(text.tokens)}",
           xlim=(-0.5, wide), ylim=(len(lines) - 0.4, -0.6))
    ax.figure.savefig(path, dpi=200, bbox_inches="tight")
    print(f"{path}: {len(text.tokens)} letters, {len(text.steps)} forwards")


if __name__ == "__main__":
    cli.run(main)
