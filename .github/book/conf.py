"""Sphinx's settings for the book. build.py collects the pages and calls Sphinx."""

import os
import re
import subprocess
from html import escape
from pathlib import Path

from docutils.nodes import SkipNode, image, paragraph, title
from latex2mathml import converter
from PIL import Image


def code_host():
    """Where the host shows the files, such as https://host/owner/name; None if nobody knows.

    In a workflow the host's own variables say it, in a clone git's remote `origin`.
    """
    if "GITHUB_REPOSITORY" in os.environ:
        return f"{os.environ['GITHUB_SERVER_URL']}/{os.environ['GITHUB_REPOSITORY']}"
    try:
        git = subprocess.run(["git", "remote", "get-url", "origin"], cwd=Path(__file__).parent,
                             capture_output=True, text=True, check=False)
    except OSError:  # no git here
        return None
    found = re.match(r"(?:https://|ssh://git@|git@)([\w.-]+\.\w+)[:/](.+?)(?:\.git)?$",
                     git.stdout.strip())
    return f"https://{found[1]}/{found[2]}" if found else None


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
nb_code_prompt_show = "Show the code"
nb_code_prompt_hide = "Hide the code"
myst_enable_extensions = ["dollarmath", "html_image"]
myst_heading_anchors = 4  # the code host's anchors work beside Sphinx's own
highlight_language = "text"
suppress_warnings = ["myst.header", "mystnb.lexer", "config.cache"]
copybutton_selector = ":not(.output) > div.highlight > pre"

html_theme = "furo"
html_use_index = html_copy_source = False
if code_host():
    html_theme_options = {"footer_icons": [
        {"name": "The code", "url": code_host(), "html": "The code", "class": ""}]}
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


def metatags(title, description, page, picture="card.png"):
    """What other sites show of a link to a page: its lines in the head."""
    if len(description) > 200:
        description = f"{description[:200].rpartition(' ')[0]} ..."
    shown = {"og:title": title, "og:description": description, "description": description,
             "twitter:card": "summary_large_image"}
    if html_baseurl:
        shown |= {"og:image": html_baseurl + picture, "og:url": html_baseurl + page}
    return "".join(f'<meta {"property" if name[:3] == "og:" else "name"}="{name}" '
                   f'content="{escape(text)}">\n' for name, text in shown.items())


def card(app, pagename, templatename, context, doctree):
    if doctree is None:
        return
    texts = [" ".join(node.astext().split()) for node in doctree.findall(paragraph)]
    pictures = [f"_images/{Path(node['uri']).name}" for node in doctree.findall(image)]
    context["metatags"] += metatags(
        context["title"], next((text for text in texts if len(text) > 40), html_title),
        f"{pagename}.html", (*pictures, "card.png")[0])
    if pagename == "404" and html_baseurl:  # it may be shown at any address
        context["metatags"] = f'<base href="{html_baseurl}">' + context["metatags"]


def setup(app):
    app.connect("doctree-resolved", figures)
    app.connect("html-page-context", card)
    app.add_html_math_renderer(
        "mathml", (mathml, None), (lambda writer, node: mathml(writer, node, "block"), None))
