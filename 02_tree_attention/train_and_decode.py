"""Decode Shakespeare with draft trees, and measure what a second guess brings.

    python 02_tree_attention/train_and_decode.py --budgets 4-2-1 1-1-1-1
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))  # so that a plain clone runs, too

from nanogpt import cli, run
from tree_room import LOOPS

# draft    TreeDrafter: children picked (the top tokens), or drawn without replacement
# verify   one forward with the tree's mask, depths as positions      tree_attention.py
# accept   the walk for picked children, multi-round rejection for drawn ones
# commit   the rows of the accepted path are gathered; the loop is speculate

if __name__ == "__main__":
    cli.run(lambda: run.main(LOOPS, __doc__))
