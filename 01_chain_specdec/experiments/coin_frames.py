"""The frames of a step that is judged by coins: chapter 01's rule, and multi-round rejection.

They show the numbers and the verdicts. The formulas are for the reader to find.
"""

from chain_specdec import residual
from nanogpt.pictures.story import listed, short


def tell_coins(story, rolls):
    """A coin for each child in turn, then a draw of the target's own; chapter 02 tells it too.

    rolls: those of the rule, see Story.draft.
    """
    step, rolls, node, path, fresh = story.step, list(rolls), 0, [0], []
    rolls.reverse()
    while node is not None:
        here, children = node, step.below(node)
        left, guess, node = step.target_probs[here], step.guesses[here], None
        for child in children:
            token, roll = step.tokens[child], rolls.pop()
            t, d = float(left[token]), float(guess[token])
            text = (f"Row {child}, {story.name(child)}: target p = {short(t)}, drafter q = "
                    f"{short(d)}. Keep it with probability {short(roll.p)}. "
                    f"u = {short(roll.u)}: ")
            chart = story.bars(f"after {story.name(here)}", left, guess, [token])
            if roll.value:
                node, path, fresh = child, [*path, child], [*fresh, story.name(child)]
                # A run of kept drafts is one picture in the GIF: that of its last.
                more = step.below(child) and rolls[-1].value
                said = f"The target keeps {listed(fresh)}"
                story.frame("accept", text + "kept.", [child], chart, story.line(roll),
                            gif=None if more else said, accepted=path)
                fresh = fresh if more else []
                break
            other = child != children[-1]
            story.frame("accept", text + "rejected.", [child], chart, story.line(roll),
                        gif=f"{story.name(child)} is rejected, its sibling is tried"
                        if other else None,
                        rejected=story.reject([child]), accepted=path)
            left, guess = residual(left, guess), guess.clone()
            guess[token] = 0
            guess = guess / guess.sum() if guess.sum() > 0 else guess
            story.frame("accept", "After a rejection, q is subtracted from p where p is larger. "
                        + ("The next child is judged against what remains, the residual, and the "
                           "rejected token leaves q." if other else
                           "The next token is drawn from what remains, the residual."),
                        [here], story.bars(f"after {story.name(here)}", left,
                                           guess if other else None, target_name="residual"))
    story.state = {**story.state, "accepted": path}
    story.own_token(rolls.pop(), here, "No child is left. The target draws its own token from the "
                    "residual" if children else "", residual=bool(children),
                    gif=children and f"{story.name(children[-1])} is rejected: the target draws "
                    "a token of its own")
