"""Tables and text on the terminal, in plain ASCII."""

import sys

from nanogpt.decoding import collect


def print_table(header, rows):
    """Print rows of cells under a header; the first column to the left, the others to the right."""
    cells = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    for number, row in enumerate(cells):
        line = [row[0].ljust(widths[0])]
        line += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        print("  ".join(line).rstrip())
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
