"""Tables and text on the terminal, in plain ASCII."""

import sys


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
