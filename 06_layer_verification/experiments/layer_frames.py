"""The frames of a step that is judged layer by layer."""

from nanogpt.pictures.story import depths, short


def tell_layers(story, rolls, scores, ends):
    """Scores down the layers, then one draw over all ends of the path.

    scores, ends: a number a row, a_v and P[the path ends at v]; rolls: the end, the next token.
    """
    deep, known = depths(story.step.parents), [1.0] + [None] * (len(scores) - 1)
    layers = [[r for r, d in enumerate(deep) if d == depth] for depth in range(max(deep) + 1)]
    for depth, layer in enumerate(layers[1:], 1):
        known = [scores[row] if row in layer else a for row, a in enumerate(known)]
        mass = sum(scores[row] for row in layers[depth - 1] if story.step.below(row))
        story.frame("forward", f"Inclusion scores of layer {depth}: a_v is the chance that the "
                   "accepted path goes through v. The nodes above share one target of mass "
                   f"A = {short(mass)}, and no branch is given up yet.", layer, scores=known)
    for depth, layer in reversed(list(enumerate(layers))):
        at = [(f"{row}{story.text(story.step.tokens[row])}", ends[row]) for row in layer]
        story.frame("backward", f"From the deepest layer up: with probability "
                   f"{short(sum(p for _, p in at))} the accepted path ends in layer {depth}.",
                   layer, story.plain_bars("P[the path ends here]", at))
    end, path = rolls[0], story.step.path
    story.frame("accept", f"One draw decides the whole path: u = {short(end.u)} falls on row "
               f"{end.value}, so {len(path) - 1} drafts are accepted at once.", [end.value],
               line=story.line(end, lambda row: f"{row}{story.text(story.step.tokens[row])}"),
               accepted=path, rejected=[r for r in range(len(scores)) if r not in path])
    below = story.step.below(end.value)
    story.own_token(rolls[1], end.value, "The next token comes from what the target is still "
                   "owed here" if below else "", residual=bool(below))
