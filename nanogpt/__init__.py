"""The stage: the model, its data and training, plain decoding, and what measures decoders.

    model.py       GPT and its KV cache           sampling.py   Sampler, Dice: all chance
    decoding.py    plain decoding, and what every decoding loop shares
    packing.py     a faster copy for decoding     device.py     cpu, cuda or mps
    data.py        corpora and tokenizers         sizes.py      named models, their recipes
    train.py       the training loop, Muon
    checkpoint.py  files of weights               weights.py    makes those that come along
    graphs.py      CUDA graphs                    cli.py        flags, tables, the terminal
    transformers_model.py  published models
    bench.py       the runner: milliseconds, c(N), who is faster; a text decoded again
    does_it_pay.py all chapters in one run: the closing lesson's numbers
    exact/         enumeration: the proof that a rule loses nothing
    pictures/      everything that draws, records or animates; nothing above imports it

Chapters import from here, never the other way round.
"""

import sys
from pathlib import Path

# A chapter's folder starts with a digit, so it is no package: its modules are imported by their
# plain names, `from tree_attention import Tree`, and this is the one place that makes it possible.
# At the end of the path: a script's own folder, with its own bench.py, stays first.
sys.path += [folder for folder in map(str, sorted(Path(__file__).resolve().parents[1].glob("0?_*")))
             if folder not in sys.path]
