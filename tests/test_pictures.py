"""What a reader sees of a step: the page, the GIF, the scripts that write both."""

import copy
import json
import re
import runpy
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.text import Text
from PIL import Image

from nanogpt.pictures import gif, step_page
from nanogpt.pictures.plots import BLUE, ORANGE, RED
from small_traces import CASES, CHAPTERS, all_traces, shipped, small_models

# the small models' alphabet has a letter that no font has
pytestmark = pytest.mark.filterwarnings("ignore:Glyph .* missing")


@pytest.fixture
def traces():
    return all_traces()


# ---------------------------------------------------------------- the page


class Reader(HTMLParser):
    """Collects what a browser would take for scripts and for markup."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.scripts, self.depth = [], [], 0
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.depth += tag == "script"

    def handle_endtag(self, tag):
        self.depth -= tag == "script"

    def handle_data(self, data):
        if self.depth:
            self.scripts.append(data)


@pytest.mark.parametrize("chapter", CASES)
def test_a_page_stands_alone(traces, chapter):
    html = step_page.page(traces[chapter])
    assert not re.search(r"https?:|src\s*=|href\s*=|@import|url\(|fetch\(|XMLHttp", html)


@pytest.mark.parametrize("text", ["</script>", "<!--", "<script>", "\u2028", "</SCRIPT >"])
def test_no_token_breaks_the_page(traces, text):
    trace = copy.deepcopy(traces["02"])
    trace["nodes"][1]["text"] = trace["frames"][1]["text"] = text
    plain, html = (Reader(step_page.page(t)) for t in (traces["02"], trace))
    assert html.tags == plain.tags and len(html.scripts) == 1
    start = html.scripts[0].index("const trace = ") + len("const trace = ")
    data, _ = json.JSONDecoder().raw_decode(html.scripts[0][start:])
    assert data == trace


def test_the_template_has_one_place_for_the_trace():
    assert step_page.TEMPLATE.read_text(encoding="utf-8").count(step_page.PLACE) == 1


def test_the_page_has_an_element_for_every_id():
    html = step_page.TEMPLATE.read_text(encoding="utf-8")
    asked = set(re.findall(r'\$\("(\w+)"\)', html))
    assert asked == {attrs["id"] for _, attrs in Reader(html).tags if "id" in attrs}


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_the_shipped_page_is_what_the_template_makes_now(chapter):
    """Else write it again: step_through.py --out with the chapter's pictures folder."""
    path = step_page.chapters()[chapter] / "pictures" / "step.html"
    assert path.read_text(encoding="utf-8") == step_page.page(shipped(chapter))


# ---------------------------------------------------------------- the GIF


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_the_shipped_gif_is_small_and_slow(chapter):
    path = step_page.chapters()[chapter] / "pictures" / "step.gif"
    frames = shipped(chapter)["frames"]
    assert path.stat().st_size < 300_000
    with Image.open(path) as picture:
        assert picture.size == (800, 600) and picture.info["loop"] == 0
        assert picture.n_frames == len(frames) > 5
        times = []
        for index in range(picture.n_frames):
            picture.seek(index)
            times.append(picture.info["duration"])
    assert min(times) >= 1500 and times[-1] == max(times) >= 6000
    assert all(time >= 20 * min(len(frame["text"]), 200)  # at most 50 letters a second
               for time, frame in zip(times, frames, strict=True))


def written(figure):
    """Every text in a figure."""
    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]


def one_of_each_kind(frames):
    """(index, frame), the last one of each verb."""
    return {frame["verb"]: (index, frame) for index, frame in enumerate(frames)}.values()


@pytest.mark.parametrize("choose", [
    one_of_each_kind, pytest.param(enumerate, marks=pytest.mark.slow)], ids=["verbs", "all"])
@pytest.mark.parametrize("chapter", CASES)
def test_a_frame_shows_the_sentence_and_the_nodes_so_far(traces, chapter, choose):
    trace = traces[chapter]
    for index, frame in choose(trace["frames"]):
        figure = gif.draw_frame(trace, index)
        texts, tree = written(figure), figure.axes[0]
        assert " ".join(frame["text"].split()) in [" ".join(text.split()) for text in texts]
        shown = [node["text"] for node in trace["nodes"][:frame["shown"]]]
        shown += [frame["next"]["text"]] if frame["next"] else []
        boxes = [text for text in tree.texts if text.get_bbox_patch() is not None
                 and text.get_fontsize() == 12 and text.get_color() != (0, 0, 0, 0)]
        assert [box.get_text() for box in boxes] == shown
        blue = [row for row, box in enumerate(boxes) if box.get_bbox_patch().get_facecolor()[:3]
                == to_rgb(BLUE)]
        assert blue == sorted(set(frame["accepted"]) & set(range(frame["shown"])))
        dice = [text for text in texts if re.fullmatch(r"u = 0\.\d{3} \u2192 .*", text, re.S)]
        assert len(dice) == bool(frame["line"])
        assert not dice or float(dice[0][4:9]) == round(min(frame["line"]["u"], 0.999), 3)  # u < 1


def test_a_score_stands_at_its_node(traces):
    trace = traces["06 shipped"]
    index = next(i for i, frame in enumerate(trace["frames"]) if frame["verb"] == "backward")
    notes = [note for note in written(gif.draw_frame(trace, index)) if note.startswith(".")]
    scores = trace["frames"][index]["scores"]
    assert sum(gif.short(score) in notes for score in scores[1:]) == len(scores) - 1


def test_a_gif_shows_what_was_drawn(traces, tmp_path):
    """Frames hold only what changed; put together again they are the pictures, colour by colour."""
    trace = {**traces["03 shipped"], "frames": traces["03 shipped"]["frames"][-4:]}
    path = gif.save_gif(trace, tmp_path / "new" / "step.gif")
    exact = [np.rint(255 * np.array(to_rgb(color))) for color in (BLUE, ORANGE, "white")]
    with Image.open(path) as picture:
        assert picture.n_frames == 4
        for index in range(4):
            picture.seek(index)
            canvas = gif.draw_frame(trace, index).canvas
            canvas.draw()
            drawn = np.asarray(canvas.buffer_rgba())[..., :3].astype(int)
            found = np.asarray(picture.convert("RGB")).astype(int)
            assert np.abs(drawn - found).mean() < 1  # a shadow of a letter's edge at most
            for color in exact:
                assert ((found == color).all(-1) >= (drawn == color).all(-1)).all()


def test_colours_that_mean_something_stay_exact():
    palette = gif.shared_palette([Image.new("RGB", (8, 8), color) for color in ("red", "lime")])
    assert palette.shape == (gif.COLORS, 3)
    reject = Image.new("RGB", (3, 2), tuple(round(255 * part) for part in to_rgb(RED)))
    assert (palette[gif.nearest(reject, palette)] == np.asarray(reject)).all()


def test_unchanged_pixels_are_transparent():
    first, second = np.array([[1, 2]], np.uint8), np.array([[1, 3]], np.uint8)
    assert [p.tolist() for p in gif.changes_only([first, second])] \
        == [[[1, 2]], [[gif.COLORS, 3]]]


def test_a_gif_that_cannot_be_written(traces, tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    trace = {**traces["01"], "frames": traces["01"]["frames"][-2:]}
    with pytest.raises(ValueError, match="cannot be written"):
        gif.save_gif(trace, tmp_path / "file" / "step.gif")


# ---------------------------------------------------------------- the scripts


def last_two(trace, path):
    """Drawing all frames takes seconds, so the quick test draws the last two."""
    return gif.save_gif({**trace, "frames": trace["frames"][-2:]}, path)


@pytest.mark.parametrize("save", [
    last_two, pytest.param(gif.save_gif, marks=pytest.mark.slow)], ids=["two frames", "all"])
@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_script_writes_its_page_and_its_gif(chapter, save, tmp_path, capsys):
    script = str(step_page.chapters()[chapter] / "experiments" / "step_through.py")
    with small_models() as patch:
        patch.setattr(step_page, "save_gif", save)
        patch.setattr(sys, "argv", [script, "--prompt", "abc", "--steps", "20",
                                    "--precision", "float32", "--out", str(tmp_path)])
        patch.setattr(sys, "path", list(sys.path))
        runpy.run_path(script, run_name="__main__")
    html = (tmp_path / "step.html").read_text(encoding="utf-8")
    assert f'"chapter": "{chapter}"' in html
    told = int(re.search(r"\((\d+) frames", capsys.readouterr().out)[1])
    with Image.open(tmp_path / "step.gif") as picture:
        assert picture.n_frames == (2 if save is last_two else told) <= told


def test_a_bad_count_of_steps_is_refused(tmp_path):
    with pytest.raises(ValueError, match="steps is 0; it must be at least 1"):
        step_page.main("01", None, ["--steps", "0", "--out", str(tmp_path)])
