"""The frames of a step that is judged by coins: chapter 01's rule, and multi-round rejection."""

from chain_specdec import residual
from nanogpt.pictures.story import short


def tell_coins(story, rolls):
    """min(1, target / draft) for each child in turn, else the residual; chapter 02 tells it too.

    rolls: those of the rule, see Story.draft.
    """
    step, rolls, node, path = story.step, iter(rolls), 0, [0]
    while node is not None:
        here, children = node, step.below(node)
        left, guess, node = step.target_probs[here], step.guesses[here], None
        for child in children:
            token, roll = step.tokens[child], next(rolls)
            t, d = float(left[token]), float(guess[token])
            text = (f"Row {child}, {story.name(child)}: target {short(t)}, drafter "
                    f"{short(d)}. Keep it with probability min(1, target / drafter) = "
                    f"{short(roll.p)}. u = {short(roll.u)}: ")
            law = story.bars(f"after {story.name(here)}", left, guess, [token])
            if roll.value:
                node, path = child, [*path, child]
                story.frame("accept", text + "kept.", [child], law, story.line(roll),
                           accepted=path)
                break
            story.frame("accept", text + "rejected.", [child], law, story.line(roll),
                       rejected=story.reject([child]), accepted=path)
            left, guess = residual(left, guess), guess.clone()
            guess[token] = 0
            guess = guess / guess.sum() if guess.sum() > 0 else guess
            more = child != children[-1]
            story.frame("residual", "The residual, norm(max(target - drafter, 0)): what the "
                       "drafter gave too little. " + (
                           "The next child is judged against it, with the rejected token out "
                           "of the drafter's law." if more else
                           "The next token is drawn from it."),
                       [here], story.bars(f"after {story.name(here)}", left,
                                         guess if more else None, law="residual"))
    story.state = {**story.state, "accepted": path}
    story.own_token(next(rolls), here, "The residual gives the target's own token"
                   if children else "", residual=bool(children))
