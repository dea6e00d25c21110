"""Two draft heads, one tree: decode with the trie of both, and with both trees side by side.

    python 04_merged_trees/train_and_decode.py --budgets 16
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))  # so that a plain clone runs, too

from nanogpt import cli, run
from merging_room import LOOPS

# draft    TrieDrafter: the best prefixes of both heads' trees, a row for each      merged_trees.py
# verify   as in chapter 02
# accept   the walk; accept_paths where a prefix has two rows
# commit   as in chapter 02; both heads take the accepted rows; the loop is speculate

if __name__ == "__main__":
    cli.run(lambda: run.main(LOOPS, __doc__))
