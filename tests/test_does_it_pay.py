"""The closing lesson: all chapters in one run, the table of what was saved, and the strip."""

import pytest

from nanogpt.decoding import Generation, Step
from nanogpt.does_it_pay import load_measured, main, markdown
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


def test_all_chapters_in_one_run(tmp_path):
    """Saved, loaded again and printed; what draws its drafts has no line at temperature 0."""
    main(["--size", "small", "--prompts", "2", "--max-new-tokens", "6",
          "--save", str(tmp_path / "here.json")])
    columns = load_measured(tmp_path)
    greedy, drawn = (columns["here"]["tables"][T] for T in ("T = 0", "T = 1"))
    assert {name[:2] for name in drawn} == {"01", "02", "03", "04", "05", "06"}
    assert {name for name in drawn if "drawn" in name} == set(drawn) - set(greedy)
    for line in drawn.values():
        assert line["price"] * line["speedup"] == pytest.approx(line["tau"])
    assert markdown(columns).count("\n") == 1 + len(drawn)


def test_a_table_has_every_machine_beside_the_first_ones_tau():
    def machine(*speedups):
        return {"tables": {"T = 0": {"01 a, p/q": line(2, speedups[0])},
                           "T = 1": {"01 a, p/q": line(2, 1), "05 b, walk": line(3, speedups[1])}}}

    def line(tau, fast):
        return {"tau": tau, "tau_error": 0.25, "speedup": fast, "speedup_error": 0.125}

    rows = markdown({"here": machine(1.5, 2), "gpu": machine(3, 0.5)}, digits=1).splitlines()
    assert rows[0] == ("| chapter | method and rule "
                       "| T = 0: tau | T = 0: here | T = 0: gpu "
                       "| T = 1: tau | T = 1: here | T = 1: gpu |")
    assert rows[3] == ("| 05 | b, walk |  |  |  | **3.00**\u00b10.25 | **2.0x**\u00b10.1 "
                       "| 0.5x\u00b10.1 |")


@pytest.mark.parametrize("flags, said", [
    (["--prompts", "1"], "prompts is 1"), (["--markdown", "abacus"], "markdown is 'abacus'")])
def test_what_is_refused(flags, said):
    with pytest.raises(ValueError, match=said):
        main(flags)
