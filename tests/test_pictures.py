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

from nanogpt.pictures import gif, gif_tree, step_page
from nanogpt.pictures.plots import BLUE, HEADS, ORANGE, tint
from nanogpt.pictures.story import short
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


def test_an_embedded_page_shows_the_caption_and_the_tree_alone():
    html = step_page.TEMPLATE.read_text(encoding="utf-8")
    hidden = next(line for line in html.splitlines() if ".embed header" in line)
    assert ".card:not(#treecard)" in hidden and "#text" not in hidden
    assert 'asked.has("embed")' in html
    cards = {attrs["id"] for tag, attrs in Reader(html).tags if tag == "section"}
    assert cards == {f"{name}card" for name in ("tree", "mask", "bars", "dice", "cache")}
    assert all(f'{card[:-4]}: $("{card}")' in html for card in cards)  # shown or hidden, each frame


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_the_shipped_page_is_what_the_template_makes_now(chapter):
    """Else write it again: step_through.py --out with the chapter's pictures folder."""
    path = step_page.chapters()[chapter] / "pictures" / "step.html"
    assert path.read_text(encoding="utf-8") == step_page.page(shipped(chapter))


# ---------------------------------------------------------------- the GIF


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_the_shipped_gif_is_small_and_short(chapter):
    path = step_page.chapters()[chapter] / "pictures" / "step.gif"
    shots = gif.pick_shots(shipped(chapter))
    assert path.stat().st_size < 400_000
    with Image.open(path) as picture:
        assert picture.size == (800, 500) and picture.info["loop"] == 0
        assert picture.n_frames == len(shots) > 5
        times = []
        for index in range(picture.n_frames):
            picture.seek(index)
            times.append(picture.info["duration"])
    assert times == [shot.ms for shot in shots] and sum(times) <= 12_000
    assert times[0] == max(times)  # the whole round; only the sliding rows are quick
    assert all(shot.ms >= 600 for shot in shots if shot.moved in (0, 1))


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_the_first_picture_is_complete(chapter):
    """Caption, tree, panel and text have something on them, an accepted draft and the bonus too."""
    path = step_page.chapters()[chapter] / "pictures" / "step.gif"
    with Image.open(path) as picture:
        pixels = np.asarray(picture.convert("RGB")).astype(int)
    for top, bottom, left, right in ((50, 110, 0, 800), (110, 400, 0, 500), (110, 400, 520, 800),
                                     (425, 490, 0, 800)):
        region = pixels[top:bottom, left:right]
        assert 0.01 < (region < 200).any(-1).mean() < 0.9
    for color in (BLUE, ORANGE):  # in the tree and in the text
        exact = (pixels == np.rint(255 * np.array(to_rgb(color)))).all(-1)
        assert exact[110:400].sum() > 200 and exact[425:].sum() > 100


def test_the_shots_of_a_long_round_are_hurried(traces):
    """However many frames have captions, 12 seconds are not exceeded."""
    trace = traces["02 shipped"]
    shots = gif.pick_shots({**trace, "frames": 3 * trace["frames"]})
    assert 11_000 < sum(shot.ms for shot in shots) <= 12_000
    assert shots[0].whole and shots[0].caption == trace["idea"] and shots[-1].moved == 1


def written(figure):
    """Every text in a figure."""
    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]


def one_of_each_kind(shots):
    """The last one of each verb, and the first of all."""
    return [shots[0], *{shot.frame["verb"]: shot for shot in shots}.values()]


@pytest.mark.parametrize("choose", [
    one_of_each_kind, pytest.param(list, marks=pytest.mark.slow)], ids=["verbs", "all"])
@pytest.mark.parametrize("chapter", CASES)
def test_a_shot_shows_its_caption_and_the_nodes_so_far(traces, chapter, choose):
    trace = traces[chapter]
    for shot in choose(gif.pick_shots(trace)):
        figure, frame = gif.draw_shot(trace, shot), shot.frame
        texts, tree = written(figure), figure.axes[0]
        assert " ".join(shot.caption.split()) in [" ".join(text.split()) for text in texts]
        shown = [node["text"] for node in trace["nodes"][:frame["shown"]]]
        shown += [frame["next"]["text"]] if frame["next"] else []
        boxes = [text for text in tree.texts if text.get_bbox_patch() is not None
                 and text.get_fontsize() == 13 and text.get_color() != (0, 0, 0, 0)]
        assert [box.get_text() for box in boxes] == shown
        blue = [row for row, box in enumerate(boxes) if box.get_bbox_patch().get_facecolor()[:3]
                == to_rgb(BLUE)]
        assert blue == sorted(set(frame["accepted"]) & set(range(frame["shown"])))
        for node in trace["nodes"][1:frame["shown"]]:  # numbers at the edges, or below a chain
            if not frame["scores"] and not frame["gone"]:
                assert short(node["q"]) in [text.strip() for text in texts]
        if frame["verb"] in ("draft", "route"):  # the target has read nothing yet
            colors = {text.get_color() for axes in figure.axes for text in axes.texts}
            assert gif_tree.P_INK not in colors - {None} or gif_tree.is_chain(trace)


def test_a_score_stands_at_its_node(traces):
    trace = traces["06 shipped"]
    shot = next(s for s in gif.pick_shots(trace) if s.frame["verb"] == "backward")
    notes = written(gif.draw_shot(trace, shot))
    scores = shot.frame["scores"]
    assert sum(short(score) in notes for score in scores[1:]) == len(scores) - 1


def test_a_gif_shows_what_was_drawn(traces, tmp_path):
    """Frames hold only what changed; put together again they are the pictures, colour by colour."""
    trace = {**traces["03 shipped"], "frames": traces["03 shipped"]["frames"][-3:]}
    path = gif.save_gif(trace, tmp_path / "new" / "step.gif")
    shots = gif.pick_shots(trace)
    exact = [np.rint(255 * np.array(to_rgb(color))) for color in (BLUE, ORANGE, "white")]
    with Image.open(path) as picture:
        assert picture.n_frames == len(shots)
        for index in (0, 1, len(shots) - 1):
            picture.seek(index)
            canvas = gif.draw_shot(trace, shots[index]).canvas
            canvas.draw()
            drawn = np.asarray(canvas.buffer_rgba())[..., :3].astype(int)
            found = np.asarray(picture.convert("RGB")).astype(int)
            assert np.abs(drawn - found).mean() < 1  # a shadow of a letter's edge at most
            for color in exact:
                assert ((found == color).all(-1) >= (drawn == color).all(-1)).all()


def test_colours_that_mean_something_stay_exact():
    palette = gif.shared_palette([Image.new("RGB", (8, 8), color) for color in ("red", "lime")])
    assert palette.shape == (gif.COLORS, 3)
    for color in (ORANGE, *HEADS, *(tint(head, 0.75) for head in HEADS)):
        own = Image.new("RGB", (3, 2), tuple(round(255 * part) for part in to_rgb(color)))
        assert (palette[gif.nearest(own, palette)] == np.asarray(own)).all()


def test_unchanged_pixels_are_transparent():
    first, second = np.array([[1, 2]], np.uint8), np.array([[1, 3]], np.uint8)
    assert [p.tolist() for p in gif.changes_only([first, second])] \
        == [[[1, 2]], [[gif.COLORS, 3]]]


def test_a_gif_that_cannot_be_written(traces, tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    trace = {**traces["01"], "frames": traces["01"]["frames"][-1:]}
    with pytest.raises(ValueError, match="cannot be written"):
        gif.save_gif(trace, tmp_path / "file" / "step.gif")


# ---------------------------------------------------------------- the scripts


def last_one(trace, path):
    """Drawing all frames takes seconds, so the quick test draws the last one."""
    return gif.save_gif({**trace, "frames": trace["frames"][-1:]}, path)


@pytest.mark.parametrize("save", [
    last_one, pytest.param(gif.save_gif, marks=pytest.mark.slow)], ids=["last frame", "all"])
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
        least = 2 + len(gif.SLIDE)  # the whole round, the rows that slide, the end
        assert told > 5 and picture.n_frames >= least


def test_a_bad_count_of_steps_is_refused(tmp_path):
    with pytest.raises(ValueError, match="steps is 0; it must be at least 1"):
        step_page.main("01", None, ["--steps", "0", "--out", str(tmp_path)])
