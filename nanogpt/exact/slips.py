"""Wrong variants of a function, made from its own source: the proofs and the graders read them.

A proof that nothing can fail proves nothing. So every chapter has a table of slips, `wrong.py`:
{function's name: {sentence that names the slip: the function with that slip}}.
"""

import inspect
import textwrap
from contextlib import nullcontext
from unittest.mock import patch


def changed(function, *edits):
    """The function, or class, with parts of its source replaced: old, new, old, new, ...

    It stands in its module, so it sees what is put in the place of its neighbours.
    Raises ValueError if an old part is not there exactly once.
    """
    source = textwrap.dedent(inspect.getsource(function))
    for old, new in zip(edits[::2], edits[1::2], strict=True):
        if source.count(old) != 1:
            raise ValueError(f"{function.__name__} holds {old!r} {source.count(old)} times, not 1")
        source = source.replace(old, new)
    space = {}
    exec(source, inspect.getmodule(function).__dict__, space)
    return space[function.__name__]


def slips(function, table):
    """{sentence: edits, see `changed`, or a function} -> {sentence: function}."""
    return {sentence: slip if callable(slip) else changed(function, *slip)
            for sentence, slip in table.items()}


def replaced(owner, **others):
    """Inside `with`: these stand in the place of the module's, or class's, own."""
    return patch.multiple(owner, **others) if others else nullcontext()
