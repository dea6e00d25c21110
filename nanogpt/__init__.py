"""The stage: the model, its data and training, plain decoding, and what measures decoders.

    model.py       GPT and its KV cache           sampling.py   Sampler, Dice: all chance
    decoding.py    plain decoding, and what every decoding loop shares
    packing.py     a faster copy for decoding     device.py     cpu, cuda or mps
    data.py        corpora and tokenizers         sizes.py      named models, their recipes
    train.py       the training loop, Muon
    checkpoint.py  files of weights               weights.py    makes those that come along
    gpu/           a round as one launch          terminal.py   one way to say no, tables
    chapter.py     what a chapter declares: Loop, Model
    run.py         its script                     cli.py        flags that all scripts share
    engine.py      several requests in one forward
    paging.py      their cache, in pages          drafting.py   their drafts
    bench.py       the runner: milliseconds, c(N), who is faster; a text decoded again
    does_it_pay.py the contest of all methods      three_numbers.py  on a machine of yours
    before.py      an earlier run, the closing lesson's riddle
    exact/         enumeration: the proof that a rule loses nothing; a debugging kit
    pictures/      everything that draws, records or animates; nothing above imports it

Chapters import from here. The other way round there is one door, chapter.py.
"""

import sys
from pathlib import Path

# A chapter's folder starts with a digit, so it is no package: its modules are imported by their
# plain names, `from tree_attention import Tree`, and this is the one place that makes it possible.
# In front of what is installed, which may be another clone; behind the folder of the script.
ROOT = Path(__file__).resolve().parents[1]
sys.path[1:1] = map(str, sorted(ROOT.glob("0?_*")))


def quiet_stop(kind, error, trace):
    """Ctrl-C ends a script without a traceback, in the seconds of its imports, too."""
    if issubclass(kind, KeyboardInterrupt):
        print("\nstopped", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)


# Behind the imports `run` does it. Who only imports from here keeps a hook of his own: it is set
# where `python -m nanogpt.NAME` starts (then the first word is -m), or a script of this folder.
START = Path(*sys.argv[:1])
if START.name == "-m" or START.suffix == ".py" and ROOT in START.resolve().parents[:3]:
    sys.excepthook = quiet_stop
