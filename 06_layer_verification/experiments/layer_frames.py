"""The frames of a step that is judged layer by layer."""

from nanogpt.pictures.story import depths, several, short


def tell_layers(story, rolls, scores, ends):
    """Scores down the layers, then one draw over all ends of the path.

    scores, ends: a number a row, a_v and P[the path ends at v]; rolls: the end, the next token.
    """
    deep, known = depths(story.step.parents), [1.0] + [None] * (len(scores) - 1)
    layers = [[r for r, d in enumerate(deep) if d == depth] for depth in range(max(deep) + 1)]

    def named(row):
        return f"{row}{story.text(story.step.tokens[row])}"

    for depth, layer in enumerate(layers[1:], 1):
        known = [scores[row] if row in layer else a for row, a in enumerate(known)]
        mass = sum(scores[row] for row in layers[depth - 1] if story.step.below(row))
        last = depth == len(layers) - 1
        story.frame("forward", f"Inclusion scores of layer {depth}: a_v is the chance that the "
                    "accepted path goes through v. The nodes above share one target of mass "
                    f"A = {short(mass)}, and no branch is given up yet.", layer,
                    story.plain_bars("a_v, the path goes through", [
                        (named(row), scores[row]) for row in layer]),
                    gif="Down: the chance that the path goes through each node" if last else None,
                    scores=known)
    for depth, layer in reversed(list(enumerate(layers))):
        at = [(named(row), ends[row]) for row in layer]
        story.frame("backward", f"From the deepest layer up: with probability "
                    f"{short(sum(p for _, p in at))} the accepted path ends in layer {depth}.",
                    layer, story.plain_bars("the path ends here", at),
                    gif="Up: the chance that the path ends at each node"
                    if depth == len(layers) - 1 else None)
    end, path = rolls[0], story.step.path
    kept = several(len(path) - 1, "draft")
    story.frame("accept", f"One draw decides the whole path: u = {short(end.u)} falls on row "
                f"{end.value}, so {kept} {'is' if len(path) == 2 else 'are'} accepted at once.",
                [end.value], story.plain_bars("the path ends here", [
                    (named(row), ends[row]) for row in sorted(
                        range(len(ends)), key=lambda row: (row != end.value, -ends[row]))[:8]], 0),
                story.line(end, named), gif=f"One draw picks the end: {kept} accepted at once",
                accepted=path, rejected=[r for r in range(len(scores)) if r not in path])
    below = story.step.below(end.value)
    story.own_token(rolls[1], end.value, "The next token comes from what the target is still "
                    "owed here" if below else "", residual=bool(below))
