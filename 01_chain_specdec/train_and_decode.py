"""Decode Shakespeare with a chain of drafts, and measure what that brings.

    python 01_chain_specdec/train_and_decode.py --prompt "JULIET:" --temperatures 0.8
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))  # so that a plain clone runs, too

from nanogpt import cli, run
from chain_room import LOOPS

# draft    GPTDraft, a GPT of 57K parameters, or BigramDraft      chain_specdec.py
# verify   one causal forward of the target
# accept   min(1, p/q), and the residual behind a rejected draft
# commit   the first rows of the cache; the loop is speculate_chain

if __name__ == "__main__":
    cli.run(lambda: run.main(LOOPS, __doc__))
