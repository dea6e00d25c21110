"""The frames of a step that is judged by the walk."""

from nanogpt.pictures.story import listed, short


def tell_walk(story, rolls):
    """The target draws its own token; what carries it moves on. Chapters 03 to 05 tell it too."""
    step, living, path = story.step, [0], []
    for roll in rolls:
        path = path + living
        children = [c for row in living for c in step.below(row) if c < story.verified]
        matching = [c for c in children if step.tokens[c] == roll.value]
        if not matching:
            story.state = {**story.state, "accepted": path, "rejected": story.reject(children)}
            story.own_token(roll, living[0], "No child carries the token that the target draws "
                           "here" if children else "", guess=story.guess_at(living),
                           gif=f"The target draws '{story.text(roll.value)}': " + (
                               "no child has it" if children else "the tree ends here"))
            return
        rows = f"{'Row' if len(matching) == 1 else 'Rows'} {listed(matching)}"
        what = "carries it: go there." if len(matching) == 1 else (
            "carry it, the same prefix in two trees: both stay alive, one draw serves both.")
        drawn = f"The target draws '{story.text(roll.value)}'"
        story.frame("accept", f"After {story.name(living[0])} the target draws its own token: "
                   f"u = {short(roll.u)} falls on '{story.text(roll.value)}'. "
                   f"{rows} {what}", living,
                   story.bars(f"after {story.name(living[0])}", roll.probs,
                             story.guess_at(living), [roll.value]),
                   story.line(roll), gif=drawn + (
                       ": a child has it" if len(matching) == 1 else ": both trees have it"),
                   accepted=path + matching,
                   rejected=story.reject(set(children) - set(matching)))
        living = matching
