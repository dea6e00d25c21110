"""The closing lesson's numbers: the strip."""

import pytest

from nanogpt.decoding import Generation, Step
from nanogpt.pictures.strip import draw_strip


def text(tokens, rounds, seconds):
    """A text of so many tokens behind the prefill's, in so many rounds."""
    return Generation([0] * (1 + tokens), [Step([0])] * rounds, seconds)


def test_the_strip_divides_tokens_by_time():
    """12 tokens in 12 s plain; 4 rounds of 3 tokens, 1.5 s each: 2 times as fast."""
    results = {"plain": [text(12, 12, 12.0)], "a tree": [text(12, 4, 6.0)]}
    ax = draw_strip(results)
    said = {word.get_text() for word in ax.texts}
    assert {"3.00 tokens", "1.50 plain steps", "2.00x"} <= said
    widths = [bar.get_width() for bar in ax.patches]
    assert widths == pytest.approx([2, 1, 1.5])  # accepted, the target's own, time
