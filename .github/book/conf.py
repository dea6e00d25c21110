"""Sphinx's settings for the book. build.py collects the pages and calls Sphinx."""

from docutils.nodes import SkipNode
from latex2mathml import converter

project = html_title = "Speculative decoding from scratch"
copyright = "2026, the authors. MIT licence"

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
html_favicon = "_static/favicon.svg"
html_static_path = ["_static"]
html_css_files = ["book.css"]
html_js_files = [("book.js", {"defer": "defer"})]
html_math_renderer = "mathml"


def mathml(writer, node, display="inline"):
    """Sphinx's own renderers load a script from the network, or need LaTeX. This needs neither."""
    writer.body.append(converter.convert(node.astext(), display=display))
    raise SkipNode


def setup(app):
    app.add_html_math_renderer(
        "mathml", (mathml, None), (lambda writer, node: mathml(writer, node, "block"), None))
