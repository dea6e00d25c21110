"""Numbers in the texts that come from the contest: each must stand in a stored file.

A table's row, or a paragraph, that names a method of the contest in full, as in "one head, 8
nodes", may hold no decimal number but this method's: tokens a round, price, speed-up, their errors,
how far it is behind, the range over the files; at the temperature that it names, "T = 0", or that
its table or its title names, else at any. What is to be checked must name its method. Code, and
what stands below a title with the words "earlier run", is not looked at.
"""

import json
import re
from pathlib import Path

import pytest

from nanogpt.does_it_pay import (
    MEASURED,
    behind,
    load_contests,
    span,
    speedups,
    table_of,
    tau_error,
)
from test_contest import contest

ROOT = Path(__file__).resolve().parents[1]
NUMBER = re.compile(r"(?<![\w.])\d*\.\d+(?!\w*\.\d)")
TEMPERATURE = re.compile(r"\b(?:T = |temperature )(\d*\.?\d+)")


def plain(text):
    """Without marks, on one line."""
    return re.sub(r"\s+", " ", re.sub(r"[*`:\\]|<[^>]*>", "", text))


def units(text):
    """Paragraphs and rows of tables, each with the temperature that stands above it, or None."""
    above, skipped = None, False
    for block in re.split(r"\n\s*\n", re.sub(r"(?ms)```.*?```|^    .*?$", "", text)):
        if block.startswith("#"):
            skipped = "earlier run" in block.splitlines()[0]
        if skipped:
            continue
        rows = block.splitlines() if block.lstrip().startswith("|") else [block]
        for row in map(plain, rows):
            said = set(TEMPERATURE.findall(row))
            above = said.pop() if len(said) == 1 else None if row.startswith("#") else above
            yield row, above


def named(unit, names):
    """The methods that a text names in full, with or without their chapters; longer names first,
    for one may stand inside another."""
    found = set()
    for name in sorted(names, key=len, reverse=True):
        pattern = r"(?<![\w-])" + re.escape(name[3:]) + r"(?![\d-])"
        if name[:2].isdigit() and re.search(pattern, unit):
            found.add(name)
            unit = re.sub(pattern, "", unit)
    return found, unit


def numbers_of(files, names, T):
    """All that a contest says of some methods at a temperature, "0"; None: at any."""
    for found in files.values():
        for t in [float(t) for t in found["tables"] if T is None or float(T) == float(t)]:
            here = [name for name in names if name in table_of(found, t)]
            fast = speedups(found, t)
            if here:
                best = max(fast, key=lambda name, fast=fast: fast[name][2])
                more = behind(found, t, best)
            for name in here:
                same = {key: file for key, file in files.items()
                        if f"{t:g}" in file["tables"] and name in table_of(file, t)}
                yield from (*fast[name], *more[name], *span(same, t, name),
                            tau_error(found, t, name))


def strangers(text, files):
    """Numbers that no file has -> [(number, its unit)]; and how many were found."""
    wrong, right = [], 0
    methods = {name for found in files.values() for table in found["tables"].values()
               for name in table["methods"]}
    for unit, T in units(text):
        names, rest = named(unit, methods)
        if not names:
            continue
        known = list(numbers_of(files, names, T))
        for said in NUMBER.findall(TEMPERATURE.sub("", rest)):
            half = 0.5 * 10 ** -len(said.partition(".")[2])
            if any(abs(float(said) - value) <= half + 1e-9 for value in known):
                right += 1
            else:
                wrong.append((said, unit))
    return wrong, right


def texts():
    """Every text of the repository that may quote the contest: {name: text}."""
    found = {path: path.read_text(encoding="utf-8")
             for path in [ROOT / "README.md", *ROOT.glob("0*/*.md")]}
    for path in [*ROOT.glob("0*/*.ipynb"), *ROOT.glob("nanogpt/*.ipynb")]:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        found[path] = "\n\n".join("".join(cell["source"]) for cell in cells
                                  if cell["cell_type"] == "markdown")
    return found


FILES = load_contests() | {f"{name}, {folder}": found for folder in ("again", "one_loop", "trained")
                           for name, found in load_contests(MEASURED / folder).items()}


@pytest.mark.parametrize("path, text", [pytest.param(path, text, id=str(path.relative_to(ROOT)))
                                        for path, text in texts().items()])
def test_every_number_of_a_method_stands_in_the_file(path, text):
    assert not strangers(text, FILES)[0]


# ---------------------------------------------------------------- the check itself

TOYS = {"fast": contest(), "slow": contest(2.0)}  # the head: 2 tokens, 21/16 and 21/8, 1.52x, .76x


@pytest.mark.parametrize("text, right, wrong", [
    ("At T = 1 **one head, 8 nodes** has 2.00 tokens a round: 1.5x, on a slow one .76x.", 3, []),
    ("| method | T = 1 |\n|---|---|\n| 03 one head, 8 nodes | 1.52x | 1.31 |", 2, []),
    ("At T = 1 one head, 8 nodes\nhas 1.53x.", 0, ["1.53"]),
    ("one head, 8 nodes: 2.62 plain steps and 0.06 ms behind, 2.62 again", 3, []),
    ("chain of 2, 57K GPT: 2.5 for 2.0; chain of 4, 57K GPT: 4.0", 3, []),
    ("chain of 2, 57K GPT: 4.0", 0, ["4.0"]),  # another method's
    ("chain of 22, 57K GPT: 4.0, and 7.7 of nobody", 0, []),
    ("# An earlier run\n\none head, 8 nodes: 7.7\n\n# Now\n\none head, 8 nodes: 1.52x", 1, []),
    ("```\none head, 8 nodes 7.7\n```\n\n    one head, 8 nodes 7.7", 0, []),
    ("At temperature 0 the one head, 8 nodes, has 1.52x", 0, ["1.52"]),  # not measured there
])
def test_numbers_are_told_apart(text, right, wrong):
    found, count = strangers(text, TOYS)
    assert ([said for said, _ in found], count) == (wrong, right)


def test_a_name_inside_another_is_not_meant():
    names = {"06 two chains of 4, LV", "06 one head, two chains of 4, LV"}
    assert named("one head, two chains of 4, LV", names)[0] == {"06 one head, two chains of 4, LV"}
    assert named("two chains of 4, LV", names)[0] == {"06 two chains of 4, LV"}


def test_titles_without_their_chapters_are_unique():
    for found in load_contests().values():
        for table in found["tables"].values():
            titles = [name[3:] for name in table["methods"] if name[:2].isdigit()]
            assert len(set(titles)) == len(titles)


def test_the_methods_gain_less_in_float32():
    """On the Xeon, where plain decoding is faster in it; chapter 01's RESULTS say by how much."""
    found = load_contests(MEASURED / "precision")
    lost = [round(100 - 100 * fast["float32"] / fast["bfloat16"]) for fast in (
        {name: max(numbers[2] for numbers in speedups(file, T).values())
         for name, file in found.items()} for T in (1, 0.6))]
    said = texts()[ROOT / "01_chain_specdec" / "RESULTS.md"]
    assert "lost {} and {} percent".format(*lost) in said


def test_what_is_said_of_the_contests_in_one_loop():
    """Sentences of the README and the closing lesson, with what the files have in their gaps."""
    contests = load_contests(MEASURED / "one_loop")
    loops, quiet, hour = (contests[name] for name in ("loops", "loops_faster", "one_hour"))
    readme, lesson = (re.sub(r"\s+", " ", texts()[ROOT / page])
                      for page in ("README.md", "nanogpt/does_it_pay.ipynb"))

    def best(file, T, family):
        return max(numbers[2] for name, numbers in speedups(file, T).items()
                   if table_of(file, T)[name]["family"] == family)

    lost = [1 - best(hour, T, "4-gram") / best(hour, T, "one head") for T in (1, 0.6)]
    assert "second, {:.0f} and {:.0f} percent behind the head".format(
        *(100 * share for share in lost)) in lesson
    assert "head's chain of eight had {:.2f}x, in a noisier one {:.2f}x, in a quieter one {:.2f}x" \
        .format(*(best(file, 1, "one head") for file in (hour, loops, quiet))) in lesson
    for names in (("03 one head, chain of 8, chapter 01's loop",
                   "06 one head, chain of 8, block verification"),
                  ("01 chain of 4, 4-gram", "06 chain of 8, 4-gram, block verification"),
                  ("01 chain of 4, 57K GPT", "06 chain of 4, block verification")):
        for name in names:
            row = "{:.2f} / {:.2f} = {:.2f}x".format(*speedups(quiet, 1)[name])
            assert row in readme.replace("*", "")
    assert "The 4-gram is: {:.2f}x beside {:.2f}x, in the quiet hour" \
        .format(*(best(quiet, 1, who) for who in ("4-gram", "one head"))) in lesson
