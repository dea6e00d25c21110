"""Two draft heads: decode with each of them, with the surer one of the moment, and with draws.

    python 03_dual_draft_routing/train_and_decode.py --budgets 8
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))  # so that a plain clone runs, too

from nanogpt import cli, run
from routing_room import LOOPS

# draft    RoutedDrafter: two heads grow a tree each, the surer one's is kept
# verify   as in chapter 02                                       dual_draft_routing.py
# accept   the walk
# commit   as in chapter 02; both heads take the accepted rows; the loop is speculate

if __name__ == "__main__":
    cli.run(lambda: run.main(LOOPS, __doc__))
