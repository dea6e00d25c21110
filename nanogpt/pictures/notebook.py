"""Show the taught code inside a notebook, instead of copying it there."""

import inspect

from IPython.display import Markdown, display


def show(*things):
    """Display the source of functions or classes as it stands in their module."""
    for thing in things:
        display(Markdown(f"```python\n{inspect.getsource(inspect.unwrap(thing))}```"))
