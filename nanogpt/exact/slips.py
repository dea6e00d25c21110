"""Wrong variants of a function, made from its own source: the proofs and the graders read them.

A proof that nothing can fail proves nothing. So every chapter has a table of slips:
{function's name: {sentence that names the slip: the function with that slip}}.
"""

import ast
import inspect
import linecache
import textwrap
from contextlib import nullcontext
from unittest.mock import patch


def wrong_variants(table, *names, but=()):
    """(name, sentence) of a chapter's wrong variants of these functions.

    but: sentences of those that lose nothing of what is proved; the examples catch them.
    """
    return [(name, sentence) for name in names for sentence in table[name] if sentence not in but]


class Exchange(ast.NodeTransformer):
    """Puts `new` in the place of `old` in a syntax tree, and counts how often.

    old: an expression or one statement; new: an expression, or one or more statements.
    """

    def __init__(self, old, new):
        (old,), new = (ast.parse(code).body for code in (old, new))
        if isinstance(old, ast.Expr) and isinstance(new[0], ast.Expr):
            old, new = old.value, new[0].value
        self.old, self.new, self.found = ast.dump(old), new, 0

    def visit(self, node):
        if ast.dump(node) != self.old:
            return self.generic_visit(node)
        self.found += 1
        return self.new


def changed(function, *edits):
    """The function, or class, with parts of it replaced: old, new, old, new, ...: see Exchange.

    Comments, docstrings and the layout of the code do not matter: syntax trees are compared. The
    result stands in the function's module, so it sees what is put in the place of its neighbours.
    Raises ValueError if an old part is not there exactly once, or a part is no code by itself.
    """
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    for old, new in zip(edits[::2], edits[1::2], strict=True):
        try:
            exchange = Exchange(old, new)
        except (SyntaxError, ValueError, IndexError):  # or two old statements, or no new one
            raise ValueError(f"{function.__name__}: '{old}' must be an expression or one "
                             f"statement, and '{new}' an expression or statements") from None
        tree = exchange.visit(tree)
        if exchange.found != 1:
            raise ValueError(f"{function.__name__} holds '{old}' {exchange.found} times, not once")
    source, space = ast.unparse(tree), {}
    # Under a name of its own, so that inspect.getsource and tracebacks find the changed lines.
    name = f"<wrong {function.__name__} {len(linecache.cache)}>"
    linecache.cache[name] = len(source), None, source.splitlines(True), name
    exec(compile(source, name, "exec"), inspect.getmodule(function).__dict__, space)
    return space[function.__name__]


class Lost:
    """Stands for a slip that cannot be made, since its function was rewritten. why: a sentence."""

    def __init__(self, why):
        self.why = why

    def __call__(self, *args, **kwargs):
        """Raises ValueError."""
        raise ValueError(self.why)


class Slips(dict):
    """{sentence: the function with that slip, or Lost}. right: the function as it is."""

    def __init__(self, right):
        super().__init__()
        self.right = right

    def owner(self):
        """The module, or class, that holds the function."""
        place = inspect.getmodule(self.right)
        for name in self.right.__qualname__.split(".")[:-1]:
            place = getattr(place, name)
        return place

    def standing(self, sentence):
        """Inside `with`: this slip stands in the function's place."""
        slip = self[sentence]
        if not inspect.isclass(slip):
            return replaced(self.owner(), **{self.right.__name__: slip})
        # Rules hold the class itself, or an object of it, since they were made: so the class stays,
        # and its parts are replaced, without what Python itself notes of a class.
        return replaced(self.right, **{
            name: part for name, part in vars(slip).items()
            if inspect.isfunction(part) or not name.startswith("__")})


def slips(function, table):
    """{sentence: edits, see `changed`, or a function} -> Slips."""
    made = Slips(function)
    for sentence, slip in table.items():
        try:
            made[sentence] = slip if callable(slip) else changed(function, *slip)
        except ValueError as error:
            made[sentence] = Lost(str(error))
    return made


def replaced(owner, **others):
    """Inside `with`: these stand in the place of the module's, or class's, own."""
    return patch.multiple(owner, **others) if others else nullcontext()
