"""Chapter 07's room: its loop, what goes wrong, and its blank. See nanogpt/chapter.py."""

from echo import EchoDrafter, echo

from nanogpt.chapter import Loop
from nanogpt.exact.slips import slips
from tree_attention import speculate, walk  # chapter 02

LOOPS = [
    Loop("echo of {}", lambda m, k, sampler, dice: EchoDrafter(k), speculate, walk,
         budgets=(2, 4), contest=(1, 2, 4, 8), family="lookup"),
]

FOUND = "text[place + 1:place + 1 + most]"
WRONG = {
    "echo": slips(echo, {
        "the token itself is echoed": (FOUND, "text[place:place + most]"),
        "the first occurrence is taken": ("reversed(range(len(text)))", "range(len(text))"),
        "all that followed is echoed": (FOUND, "text[place + 1:]"),
    }),
}
HARMLESS = dict.fromkeys(  # the proofs cannot see them, and here is why
    ("the token itself is echoed", "the first occurrence is taken"),
    "another chain is drafted, and the walk is right on any")

BLANKS = [  # target, question, hint, lines, minutes, {input: (arguments, result)}
    ("echo:echo",
     "Find the latest place of the token `root` in the list `text`, and return what follows it, at "
     "most `most` tokens; an empty list if it is nowhere.",
     "Go through the places from the last to the first.", 4, 5, {
         "text (1, 2, 3, 1), root 2, most 2": (([1, 2, 3, 1], 2, 2), [3, 1]),
         "text (1, 2, 1, 3, 4), root 1, most 1": (([1, 2, 1, 3, 4], 1, 1), [3]),
         "text (1, 2), root 5, most 2": (([1, 2], 5, 2), []),
     }),
]
