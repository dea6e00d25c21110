"""Tables and text on the terminal, in plain ASCII."""

import sys
import textwrap

from nanogpt.decoding import collect

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


def print_text(text):
    """Print text at once, whatever the console can encode."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, errors="replace").decode(encoding))
    sys.stdout.flush()


def print_stream(steps, prompt, max_new_tokens, tokenizer, stop=None):
    """Print a prompt, and its continuation as it is decoded -> Generation.

    steps: a generator of Steps; prompt: a text; stop: see decoding.collect.
    """
    print_text(f"\n{prompt}")
    text = collect(steps, max_new_tokens, stop, tokenizer.decode,
                   lambda tokens: print_text(tokenizer.decode(tokens)))
    print(f"\n\n{len(text.tokens)} tokens, {text.tau:.2f} per target forward")
    return text
