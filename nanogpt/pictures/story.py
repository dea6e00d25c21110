"""A trace: one real verification step as plain data, for pictures that move.

    recording   watches a real decoder, unchanged, and notes what each step did
    Story       tells one of those steps as frames: draft some nodes, verify, judge, commit
    trace       the dictionary that `step_page` turns into a page and `gif` into a GIF

Nothing in a picture is computed a second time where the decoder has the number: probabilities are
the rows that it judged with, and each u is the number that decided. `json.dumps(trace)` works.
"""

import math
from dataclasses import dataclass, field

import torch

from nanogpt.pictures.plots import visible
from nanogpt.pictures.recording import Recorded

SMALLEST = 0.045  # a narrower segment of the unit interval has no room for its label
HANDFUL = 3  # so many nodes of a chain in one frame
LETTERS = 34  # of the text before the root

# ---------------------------------------------------------------- telling a step


@dataclass
class Story:
    """The frames of one recorded step. Each frame holds all that a picture of it needs.

    decode: tokens -> text. verified: how many rows the target read, if later rows are drafts that
    were never verified (chapter 03). groups: for each row who drafted it, 0 if there is but one;
    names: of group 1 and group 2; scores: with groups, their cumulative log-probabilities, a row.
    target_name, guess_name: what p and q are called in the chapter's letters.
    """

    step: Recorded
    decode: object
    verified: int | None = None
    groups: list | None = None
    names: tuple = ()
    scores: list | None = None
    target_name: str = "p, target"
    guess_name: str = "q, drafter"
    frames: list = field(default_factory=list)

    def __post_init__(self):
        self.state = {"shown": 1, "accepted": [], "rejected": [], "gone": [], "next": None,
                      "scores": None, "kept": None}
        self.verified = self.verified or len(self.step.tokens)

    def text(self, token):
        """A token as it is shown, white space made visible."""
        return visible(self.decode([int(token)]))

    def name(self, row):
        """The token of a row, in quotes."""
        return f"'{self.text(self.step.tokens[row])}'"

    def frame(self, verb, text, focus=(), bars=(), lines=(), gif=None, **changes):
        """Add a frame. focus: rows to point at; changes: of the state, from here on.

        bars: see Story.bars, one chart or a list; lines: see Story.line, one or a list; gif: the
        caption in the GIF, None if the GIF leaves this frame out.
        """
        self.state = {**self.state, **changes}
        bars, lines = ([one] if isinstance(one, dict) else list(one) for one in (bars, lines))
        self.frames.append({"verb": verb, "text": text, "focus": list(focus), "bars": bars,
                            "lines": lines, "gif": gif, **self.state})

    def bars(self, title, target=None, guess=None, marked=(), count=7, target_name=None,
             guess_name=None):
        """The most probable tokens of p, of q or of both (V,), the marked ones always among them.

        A token whose probability is not known (nan) has no bar. The names stand in the legend.
        """
        known = [torch.nan_to_num(probs.double()) for probs in (target, guess)
                 if probs is not None]
        ranked = torch.stack(known).amax(0).argsort(descending=True, stable=True).tolist()
        kept = [t for i, t in enumerate(ranked) if i < count - len(marked) or t in marked]
        kept = sorted(kept[:max(count, len(marked))], key=lambda t: -float(known[0][t]))
        return {"title": title, "target_name": target_name or self.target_name,
                "guess_name": guess_name or self.guess_name, "rows": [
            {"text": self.text(t), "target": number(target, t), "draft": number(guess, t),
             "marked": t in marked} for t in kept if t in marked
            or any(number(one, t) is not None for one in (target, guess))]}

    def plain_bars(self, title, pairs, marked=None):
        """Bars of other numbers: pairs of (text, number); marked: the place of one."""
        return {"title": title, "target_name": "", "guess_name": "", "rows": [
            {"text": text, "target": round(value, 6), "draft": None, "marked": i == marked}
            for i, (text, value) in enumerate(pairs)]}

    def line(self, roll, name=None, title=""):
        """The unit interval as the dice saw it: segments in order, and where u fell."""
        if roll.probs is None:
            parts = [("keep", roll.p, bool(roll.value)), ("reject", 1 - roll.p, not roll.value)]
        else:
            name = name or self.text
            parts = [(name(i), p, i == roll.value)
                     for i, p in enumerate(roll.probs.tolist()) if p > 0]
        return {"title": title, **unit_interval(roll.u, parts)}

    # ------------------------------------------------ the frames that every chapter shares

    def handfuls(self):
        """The drafts, a level at a time; of a chain a few levels at a time. -> lists of rows."""
        deep = depths(self.step.parents)
        levels = [[row for row, d in enumerate(deep) if d == depth]
                  for depth in range(1, max(deep) + 1)]
        if all(len(level) == 1 for level in levels):
            rows = [level[0] for level in levels]
            return [rows[i:i + HANDFUL] for i in range(0, len(rows), HANDFUL)]
        return levels

    def draft(self, say, sampled=False, groups=None, place=None, gif=(None, None), **known):
        """One frame a handful of nodes. -> the rolls that are left for the rule.

        say(rows) -> what to write; sampled: the nodes were drawn, one roll each; groups: lists of
        rows, one a frame (default: see handfuls); place(row) -> the title of the chart that shows
        where it came from (default: its parent); gif: the captions of the first frame and of the
        last; known: state that grows with the rows, as scores=[...], a number a row.
        """
        step = self.step
        groups = [rows for rows in groups or self.handfuls() if rows]
        for i, rows in enumerate(groups):
            captions = [gif[0]] * (i == 0) + [gif[1]] * (i == len(groups) - 1)
            root = ("" if i else f"The target chose the root {self.name(0)} and has not read it "
                    "yet. Drafts grow below it. ")
            grown = {name: [x if row <= rows[-1] else None for row, x in enumerate(values)]
                     for name, values in known.items()}
            self.frame("draft", root + say(rows), rows, self.charts(rows, place, sampled), [
                self.line(step.rolls[row - 1], title=f"{self.name(row)} after "
                          f"{self.name(step.parents[row])}") for row in rows] if sampled else (),
                gif=captions[-1] if captions else None, shown=rows[-1] + 1, **grown)
        return step.rolls[len(step.tokens) - 1:] if sampled else step.rolls

    def charts(self, rows, place, sampled):
        """Where these drafts came from: a chart of q for each place, its drafts marked."""
        found = {}
        for row in rows:
            guess = self.step.rolls[row - 1].probs if sampled else self.guess_before(row)
            parent = self.step.parents[row]
            title = place(row) if place else f"after {self.name(parent)}"
            if not guess.isnan().all():
                found.setdefault(title if place else parent, (title, guess, []))[2].append(row)
        count = 7 if len(found) == 1 else 4
        return [self.bars(title, guess=guess, marked=[self.step.tokens[row] for row in same],
                          count=count, guess_name=f"q, {self.names[self.groups[same[0]] - 1]}"
                          if self.scores else None)
                for title, guess, same in (sorted(found.values(), key=lambda one: one[0]) if place
                                           else found.values())]

    def guess_before(self, row):
        """q of the drafter that proposed this row, at its parent, as far as it is known."""
        step, parent = self.step, self.step.parents[row]
        if not self.scores:
            return step.guesses[parent]
        probs = torch.full_like(step.target_probs[0], torch.nan)
        for other in step.below(parent):
            if self.groups[other] == self.groups[row]:
                probs[step.tokens[other]] = math.exp(self.scores[other] - self.scores[parent])
        return probs

    def verify(self, more="", gif="One forward of the target reads all of it"):
        """The one forward of the target."""
        n = self.verified
        self.frame("verify", f"One target forward reads all {n} rows. A row sees the context, its "
                   "ancestors and itself. So row i answers: what comes after the path to i? "
                   + more, range(n), gif=gif, shown=len(self.step.tokens))

    def reject(self, rows):
        """These rows and all that hangs below them are out -> the new list of rejected rows."""
        out = set(self.state["rejected"]) | set(rows)
        for row, parent in enumerate(self.step.parents):
            if parent in out:
                out.add(row)
        return sorted(out)

    def guess_at(self, rows):
        """The drafter's q at a prefix; where two trees hold it, the larger of both guesses."""
        return self.step.guesses[rows].nan_to_num(-1).amax(0).where(
            ~self.step.guesses[rows].isnan().all(0), torch.nan)

    def own_token(self, roll, row, why="", residual=False, guess=None, gif=None):
        """The last draw: the target's own token. why: a rejection's reason; none if all stayed.

        guess (V,): what the drafter had expected here.
        """
        own = f"'{self.text(roll.value)}'"
        why = why or "Every draft on this path stays, and the bonus token comes after them"
        self.frame("accept", f"{why}: u = {short(roll.u)} falls on {own}. It is the next root.",
                   [row], self.bars(f"after {self.name(row)}", roll.probs, guess, [roll.value],
                                    target_name="residual" if residual else None),
                   self.line(roll),
                   gif=gif or f"The target adds its own token, {own}",
                   next={"text": self.text(roll.value), "parent": row})

    def commit(self):
        """The last frame: what the cache keeps."""
        step = self.step
        rows, others = ", ".join(map(str, step.kept)), self.verified - len(step.kept)
        words = " ".join(f"'{self.text(t)}'" for t in step.emitted)
        forgets = f" and forgets the other {others if others > 1 else 'one'}" if others else ""
        self.frame("commit", f"The cache keeps row{'s' * (len(step.kept) > 1)} {rows}{forgets}. "
                   f"One forward brought {len(step.emitted)} token{'s' * (len(step.emitted) > 1)}: "
                   f"{words}. The last one is the next root.", step.kept,
                   gif="The cache keeps the rows of the path and forgets the others",
                   kept=step.kept, accepted=step.kept,
                   rejected=[r for r in range(self.verified) if r not in step.kept])

    def trace(self, chapter, title, subtitle, idea, scores=""):
        """-> the whole trace, a dictionary of lists, numbers and strings.

        idea: the caption of the GIF's first picture, the chapter in a sentence; scores: a
        word for the numbers at the nodes, see the frames that have them.
        """
        step = self.step
        return {
            "chapter": chapter, "title": title, "subtitle": subtitle, "idea": idea,
            "scores": scores,
            "context": [self.text(t) for t in step.text[-6:]], "committed": step.length,
            "text": self.decode(step.text)[-LETTERS:] if step.text else "",
            "nodes": [{"token": t, "text": self.text(t), "parent": p, "depth": depth,
                       "group": self.groups[row] if self.groups else 0,
                       "p": number(step.target_probs[p], t) if 0 < row < self.verified else None,
                       "q": number(self.guess_before(row), t) if row else None}
                      for row, (t, p, depth) in enumerate(zip(
                          step.tokens, step.parents, depths(step.parents), strict=True))],
            "groups": list(self.names), "verified": self.verified,
            "mask": ancestor_rows(step.parents[:self.verified]),
            "kept": list(step.kept), "emitted": list(step.emitted),
            "emitted_text": [self.text(t) for t in step.emitted],
            "draws": [{"kind": "coin", "u": r.u, "p": r.p, "value": bool(r.value)}
                      if r.probs is None else
                      {"kind": "token", "u": r.u, "p": float(r.probs[r.value]), "value": r.value}
                      for r in step.rolls],
            "frames": self.frames,
        }


# ---------------------------------------------------------------- small helpers


def listed(names):
    """['a', 'b', 'c'] -> 'a, b and c'."""
    *most, last = map(str, names)
    return f"{', '.join(most)} and {last}" if most else last


def several(count, thing):
    """3, 'token' -> '3 tokens'; 1 -> '1 token'."""
    return f"{count} {thing}{'s' * (count != 1)}"


def number(probs, token):
    """A probability of probs (V,) for JSON; None if there are none or the token is not known."""
    if probs is None or bool(probs[token].isnan()):
        return None
    return round(float(probs[token]), 6)


def short(p):
    """.347 -> '.35'; more digits below .1 and near 1: .0496 -> '.050', .0004, .998 -> '.998'."""
    for places in (2, 3, 4, 5):
        text = f"{p:.{places}f}"
        if p in (0, 1) or 0 < float(text) < 1 and (p >= 0.1 or places > 2):
            break
    if not 0 < float(text) < 1:  # 0 and 1 themselves, and what five digits cannot tell from them
        return "0" if p < 0.5 else "1"
    return text.lstrip("0")


def unit_interval(u, parts):
    """parts: (text, probability, hit) in order -> {"u", "segments"}; narrow neighbours are joined.

    The segment that u fell into always stands alone.
    """
    segments = []
    for text, p, hit in parts:
        small = p < SMALLEST and not hit
        if small and segments and not segments[-1]["text"]:
            segments[-1]["p"] += p
        else:
            segments.append({"text": "" if small else text, "p": p, "hit": hit})
    return {"u": u, "segments": segments}


def depths(parents):
    """parents (a list, -1 first) -> the depth of every row."""
    found = []
    for parent in parents:
        found.append(0 if parent < 0 else found[parent] + 1)
    return found


def ancestor_rows(parents):
    """parents -> for each row the sorted rows that it sees: its ancestors and itself."""
    seen = []
    for row, parent in enumerate(parents):
        seen.append([row] if parent < 0 else [*seen[parent], row])
    return seen
