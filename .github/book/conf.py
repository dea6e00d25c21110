"""Sphinx's settings for the book. build.py collects the pages and calls Sphinx."""

import os
from html import escape
from pathlib import Path

from docutils.nodes import SkipNode, image, paragraph, title
from latex2mathml import converter
from PIL import Image

project = html_title = "Speculative decoding from scratch"
copyright = "2026, its authors. MIT licence"
html_last_updated_fmt = "%d %B %Y"
# Where the host publishes it; a card that shows a link wants the whole address of its picture.
owner, _, name = os.environ.get("GITHUB_REPOSITORY", "").partition("/")
html_baseurl = f"https://{owner}.github.io/{name}/" if name else ""

extensions = ["myst_nb", "sphinx_copybutton"]
nb_execution_mode = "off"  # the notebooks are stored with their outputs
nb_render_markdown_format = "myst"  # outputs may hold formulas and folded parts
nb_merge_streams = True
myst_enable_extensions = ["dollarmath", "html_image"]
myst_heading_anchors = 4  # the code host's anchors work beside Sphinx's own
highlight_language = "text"
suppress_warnings = ["myst.header", "mystnb.lexer", "config.cache"]
copybutton_selector = ":not(.output) > div.highlight > pre"

html_theme = "furo"
html_copy_source = False
html_favicon = "_static/favicon.svg"
html_static_path = ["_static"]
html_css_files = ["book.css"]
html_js_files = [("book.js", {"defer": "defer"})]
html_math_renderer = "mathml"


def mathml(writer, node, display="inline"):
    """Sphinx's own renderers load a script from the network, or need LaTeX. This needs neither."""
    writer.body.append(converter.convert(node.astext(), display=display))
    raise SkipNode


def figures(app, doctree, docname):
    """What a notebook draws is called after its section; a wide picture scrolls on a phone."""
    heading = ""
    for picture in doctree.findall(lambda node: isinstance(node, (image, title))):
        if isinstance(picture, title):
            heading = picture.astext()
            continue
        picture.setdefault("alt", f"Figure: {heading}")
        if "width" not in picture and picture["uri"].endswith(".png"):
            with Image.open(Path(app.srcdir, picture["uri"])) as opened:  # 1 inch is 100 px wide
                width = round(100 * opened.width / opened.info["dpi"][0])
            picture["width"] = f"{width}px"
        if int(str(picture.get("width", "0")).removesuffix("px")) > 530:
            picture["classes"].append("wide")


def card(app, pagename, templatename, context, doctree):
    """What other sites show of a link to a page."""
    if doctree is None:
        return
    pictures = [node["uri"].rpartition("/")[2] for node in doctree.findall(image)]
    shown = {"title": context["title"], "description": doctree.next_node(paragraph).astext()[:200],
             "image": f"{html_baseurl}_images/{(*pictures, 'front.png')[0]}"}
    context["metatags"] += "".join(f'<meta property="og:{name}" content="{escape(text)}">\n'
                                   for name, text in shown.items())
    if pagename == "404" and html_baseurl:  # it may be shown at any address
        context["metatags"] = f'<base href="{html_baseurl}">' + context["metatags"]


def setup(app):
    app.connect("doctree-resolved", figures)
    app.connect("html-page-context", card)
    app.add_html_math_renderer(
        "mathml", (mathml, None), (lambda writer, node: mathml(writer, node, "block"), None))
