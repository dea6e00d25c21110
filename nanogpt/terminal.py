"""The terminal, with the standard library alone: one way to say no, tables in plain ASCII.

The grader starts often, and importing torch takes a second.
"""

import argparse
import logging
import os
import sys
import textwrap


class HelpFormatter(argparse.ArgumentDefaultsHelpFormatter):
    """Prints a flag's default, unless there is none or the help text names it."""

    def _get_help_string(self, action):
        if action.default is None or action.default is False or "default" in action.help:
            return action.help
        return super()._get_help_string(action)


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that says what is wrong in one sentence, without the usage before it.

    doc: a script's docstring, of which the first line is shown; None under `python -OO`.
    """

    def __init__(self, doc):
        # No abbreviations: --temperature is not --temperatures.
        super().__init__(description=(doc or "").partition("\n")[0],
                         formatter_class=HelpFormatter, allow_abbrev=False)

    def error(self, message):
        """Raises ValueError, which `run` prints."""
        raise ValueError(f"{message}; --help lists the flags")


def run(main):
    """Call main(); what ends it becomes one sentence on stderr, and the exit status.

    2: a ValueError, or a file that cannot be read or written; 130: Ctrl-C. 1, without a word, if
    nobody reads on, as behind `| head`.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # a shell has closed it: `>&-`
            setattr(sys, name, os.fdopen(nothing(), "w"))
    sys.stdout.reconfigure(errors="replace")  # a console may not know every character
    logging.basicConfig(format="%(message)s", stream=sys.stdout)
    logging.raiseExceptions = False  # what cannot be printed is said once, below
    logging.getLogger("nanogpt").setLevel(logging.INFO)
    try:
        try:
            main()
        finally:
            print(end="", flush=True)  # here, where its errors are caught
    except ValueError as error:
        refuse(error)
    except BrokenPipeError:
        silence()
        raise SystemExit(1) from None
    except OSError as error:
        if error.filename is None:
            silence()
        what = f"{error.filename} cannot be read or" if error.filename else "the output cannot be"
        refuse(f"{what} written: {error.strerror or error}")
    except KeyboardInterrupt as pressed:
        print(f"\n{str(pressed) or 'stopped'}", file=sys.stderr)
        raise SystemExit(130) from None


def refuse(sentence):
    """Raises SystemExit, status 2."""
    print(f"error: {sentence}", file=sys.stderr)
    raise SystemExit(2) from None


def silence():
    """Nothing more to the standard output: Python would write the rest of it at its end."""
    os.dup2(nothing(), sys.stdout.fileno())


def nothing():
    """A file for output that nobody wants."""
    return os.open(os.devnull, os.O_WRONLY)


# ---------------------------------------------------------------- tables

WIDTH = 100  # columns of a terminal; what is longer would be broken anywhere


def print_table(header, rows):
    """Print rows of cells under a header; the first column to the left, the others to the right.

    A long cell of the first column goes on in the next line, where the table would be too wide.
    """
    cells = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    room = WIDTH - sum(widths[1:]) - 2 * (len(widths) - 1)
    widths[0] = min(widths[0], max(room, 20))
    for number, row in enumerate(cells):
        first, *more = textwrap.wrap(row[0], widths[0], subsequent_indent="  ",
                                     break_on_hyphens=False) or [""]
        line = [first.ljust(widths[0])]
        line += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        print("  ".join(line).rstrip())
        for rest in more:
            print(rest)
        if number == 0:
            print("  ".join("-" * width for width in widths))
