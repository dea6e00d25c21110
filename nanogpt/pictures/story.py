"""A trace: one real verification step as plain data, for pictures that move.

    recording   watches a real decoder, unchanged, and notes what each step did
    Story       tells one of those steps as frames: draft a node, verify, judge, commit
    trace       the dictionary that `stepper` turns into a page and `animate` into a GIF

Nothing in a picture is computed a second time where the decoder has the number: probabilities are
the rows that it judged with, and each u is the number that decided. `json.dumps(trace)` works.
"""

import math
from dataclasses import dataclass, field

import torch

from nanogpt.pictures.plots import visible
from nanogpt.pictures.recording import Recorded

SMALLEST = 0.045  # a narrower segment of the unit interval has no room for its label

# ---------------------------------------------------------------- telling a step


@dataclass
class Story:
    """The frames of one recorded step. Each frame holds all that a picture of it needs.

    decode: tokens -> text. verified: how many rows the target read, if later rows are drafts that
    were never verified (chapter 03). groups: for each row who drafted it, 0 if there is but one;
    names: of group 1 and group 2; scores: with groups, their cumulative log-probabilities, a row.
    target_name, guess_name: what the two laws are called in the chapter's letters.
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
        return visible(self.decode([int(token)]))

    def name(self, row):
        return f"'{self.text(self.step.tokens[row])}'"

    def frame(self, verb, text, focus=(), bars=None, line=None, **changes):
        """Add a frame. focus: rows to point at; changes: of the state, from here on."""
        self.state = {**self.state, **changes}
        self.frames.append({"verb": verb, "text": text, "focus": list(focus), "bars": bars,
                            "line": line, **self.state})

    def bars(self, title, target=None, guess=None, marked=(), count=7, law=None, name=None):
        """The most probable tokens of one or two laws (V,), the marked ones always among them.

        A token that no law knows (nan) has no bar. law, name: what they are called.
        """
        laws = [torch.nan_to_num(law.double()) for law in (target, guess) if law is not None]
        ranked = torch.stack(laws).amax(0).argsort(descending=True, stable=True).tolist()
        kept = [t for i, t in enumerate(ranked) if i < count - len(marked) or t in marked]
        kept = sorted(kept[:count], key=lambda t: -float(laws[0][t]))
        return {"title": title, "law": law or self.target_name,
                "guess": name or self.guess_name, "rows": [
            {"text": self.text(t), "target": number(target, t), "draft": number(guess, t),
             "marked": t in marked} for t in kept if t in marked
            or any(number(one, t) is not None for one in (target, guess))]}

    def plain_bars(self, title, pairs, marked=None):
        """Bars of numbers that are no law: pairs of (text, number); marked: the place of one."""
        return {"title": title, "law": "", "guess": "", "rows": [
            {"text": text, "target": round(value, 6), "draft": None, "marked": i == marked}
            for i, (text, value) in enumerate(pairs)]}

    def line(self, roll, name=None):
        """The unit interval as the dice saw it: segments in order, and where u fell."""
        if roll.probs is None:
            parts = [("keep", roll.p, bool(roll.value)), ("reject", 1 - roll.p, not roll.value)]
            return unit_interval(roll.u, parts)
        name = name or self.text
        parts = [(name(i), p, i == roll.value) for i, p in enumerate(roll.probs.tolist()) if p > 0]
        return unit_interval(roll.u, parts)

    # ------------------------------------------------ the frames that every chapter shares

    def draft(self, say=None, sampled=False):
        """One frame a node, in the order of the rows. say(row) -> what to write.

        sampled: the nodes were drawn, one roll each. -> the rolls that are left for the rule.
        """
        step = self.step
        self.frame("draft", f"The root, {self.name(0)}: the target chose it and has not read it "
                   "yet. Drafts grow below it.", [0])
        for row in range(1, len(step.tokens)):
            parent, token = step.parents[row], step.tokens[row]
            guess, line = self.guess_before(row), None
            text = f"Row {row}, {self.name(row)} after {self.name(parent)}."
            if sampled:
                roll = step.rolls[row - 1]
                guess, line = roll.probs, self.line(roll)
                text += f" Drawn from the drafter: u = {short(roll.u)}."
            if say:
                text += " " + say(row)
            law = None if guess.isnan().all() else self.bars(
                f"after {self.name(parent)}", guess=guess, marked=[token],
                name=f"q, {self.names[self.groups[row] - 1]}" if self.scores else None)
            self.frame("draft", text, [row], law, line, shown=row + 1)
        return step.rolls[len(step.tokens) - 1:] if sampled else step.rolls

    def guess_before(self, row):
        """The law of the drafter that proposed this row, at its parent, as far as it is known."""
        step, parent = self.step, self.step.parents[row]
        if not self.scores:
            return step.guesses[parent]
        law = torch.full_like(step.target_probs[0], torch.nan)
        for other in step.below(parent):
            if self.groups[other] == self.groups[row]:
                law[step.tokens[other]] = math.exp(self.scores[other] - self.scores[parent])
        return law

    def verify(self, more=""):
        """The one forward of the target."""
        n = self.verified
        self.frame("verify", f"One target forward reads all {n} rows. A row sees the context, its "
                   "ancestors and itself, so row i answers: what comes after the path to i? "
                   + more, range(n), shown=len(self.step.tokens))

    def reject(self, rows):
        """These rows and all that hangs below them are out -> the new list of rejected rows."""
        out = set(self.state["rejected"]) | set(rows)
        for row, parent in enumerate(self.step.parents):
            if parent in out:
                out.add(row)
        return sorted(out)

    def guess_at(self, rows):
        """The drafter's law at a prefix; where two trees hold it, the larger of both guesses."""
        return self.step.guesses[rows].nan_to_num(-1).amax(0).where(
            ~self.step.guesses[rows].isnan().all(0), torch.nan)

    def own_token(self, roll, row, why="", residual=False, guess=None):
        """The last draw: the target's own token. why: a rejection's reason; none for a bonus.

        guess (V,): what the drafter had expected here.
        """
        why = why or "Every draft on this path stays, and the bonus token comes behind them"
        self.frame("accept", f"{why}: u = {short(roll.u)} falls on "
                   f"'{self.text(roll.value)}'. It is the next root.", [row],
                   self.bars(f"after {self.name(row)}", roll.probs, guess, [roll.value],
                             law="residual" if residual else None), self.line(roll),
                   next={"text": self.text(roll.value), "parent": row})

    def commit(self):
        """The last frame: what the cache keeps."""
        step = self.step
        rows, others = ", ".join(map(str, step.kept)), self.verified - len(step.kept)
        words = " ".join(f"'{self.text(t)}'" for t in step.emitted)
        forgets = f" and forgets the other {others if others > 1 else 'one'}" if others else ""
        self.frame("commit", f"The cache keeps row{'s' * (len(step.kept) > 1)} {rows}{forgets}. "
                   f"One forward brought {len(step.emitted)} token{'s' * (len(step.emitted) > 1)}: "
                   f"{words}. The last one is the next root.",
                   step.kept, kept=step.kept, accepted=step.kept,
                   rejected=[r for r in range(self.verified) if r not in step.kept])

    def trace(self, chapter, title, subtitle):
        """-> the whole trace, a dictionary of lists, numbers and strings."""
        step = self.step
        return {
            "chapter": chapter, "title": title, "subtitle": subtitle,
            "context": [self.text(t) for t in step.text[-6:]], "committed": step.length,
            "nodes": [{"token": t, "text": self.text(t), "parent": p, "depth": depth,
                       "group": self.groups[row] if self.groups else 0}
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


def number(law, token):
    """A probability for JSON; None where the law is missing or does not know the token."""
    if law is None or bool(law[token].isnan()):
        return None
    return round(float(law[token]), 6)


def short(p):
    """.347 -> '.35'; more digits below .1 and near 1: .0496 -> '.050', .0004, .998 -> '.998'."""
    for places in (2, 3, 4, 5):
        text = f"{p:.{places}f}"
        if p in (0, 1) or 0 < float(text) < 1 and (p >= 0.1 or places > 2):
            break
    return f"{p:g}" if p in (0, 1) else text.lstrip("0")


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
