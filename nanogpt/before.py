"""An earlier run, of a few methods on a CPU and on an H100: the closing lesson's riddle."""

import json
from pathlib import Path

from nanogpt.bench import PLAIN

MEASURED = Path(__file__).parent / "measured"


def load_earlier(folder=MEASURED / "before"):
    """{name of the file: what was found on that machine}."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8"))
            for path in sorted(folder.glob("*.json"))}


def in_short(run, method):
    """Of a run at temperature 1 -> milliseconds of a plain step and of a method's round, what eight
    rows take over one, the method's speed-up."""
    table, c = run["tables"]["T = 1"], dict(run["curve"])
    return (table[PLAIN]["round_ms"], table[method]["round_ms"], c[8] / c[1],
            worth(table)[method][2])


def worth(table):
    """{method: (its tau, the price of its round in plain steps, speed-up: their quotient)}.

    table: a temperature's. Example: 3 tokens a round at a price of 1.5: 2x.
    """
    step = table[PLAIN]["round_ms"]
    return {name: (line["tau"], line["round_ms"] / step, line["tau"] * step / line["round_ms"])
            for name, line in table.items()}


