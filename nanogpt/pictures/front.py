"""The README's pictures: a text, coloured by who wrote each letter; and what drafters gain.

    python -m nanogpt.pictures.front        # draws 01_chain_specdec/pictures/*.png anew
"""

from nanogpt import cli
from nanogpt.chapter import load
from nanogpt.data import load_dataset
from nanogpt.decoding import collect
from nanogpt.device import pick_device
from nanogpt.does_it_pay import MEASURED, load_contests
from nanogpt.packing import for_decoding
from nanogpt.sampling import Dice, Sampler
from nanogpt.train import get_gpt

DRAFTERS = {  # the methods of the README's table, judged one by one and as a block
    "a head": ("03 one head, chain of 8, chapter 01's loop",
               "06 one head, chain of 8, block verification"),
    "a count": ("01 chain of 4, 4-gram", "06 chain of 8, 4-gram, block verification"),
    "the small model": ("01 chain of 4, 57K GPT", "06 chain of 4, block verification")}


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
    ax = pictures.draw_speeds(load_contests(MEASURED / "one_loop")["loops_faster"], DRAFTERS)
    ax.figure.savefig(path.with_name("speed.png"), dpi=200, bbox_inches="tight")


if __name__ == "__main__":
    cli.run(main)
