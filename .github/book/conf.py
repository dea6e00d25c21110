"""Sphinx's settings for the book. build.py collects the pages and calls Sphinx.

The pages are the repository's own files, so what Sphinx lacks is added here while it reads: the
table of contents, links that lead to a file of the repository, step pages in place of their GIFs.
"""

import json
import os
import re
import shutil
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath

from docutils import nodes
from latex2mathml import converter
from PIL import Image, ImageDraw
from sphinx import addnodes
from sphinx.transforms import SphinxTransform

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

# ------------------------------------------------------------------ settings


def cited(field):
    """A field of CITATION.cff: the one place where the addresses of the code and the book stand."""
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    return re.search(rf'^{field}: "?([^"\n]*)"?$', text, re.M)[1].rstrip("/")


def addresses():
    """(the code, the book), no slash at the end. A fork that builds its own book has its own."""
    code, book = cited("repository-code"), cited("url")
    fork = os.environ.get("GITHUB_REPOSITORY")
    if fork and not code.endswith(f"/{fork}"):
        owner, name = fork.split("/")
        return f"{os.environ['GITHUB_SERVER_URL']}/{fork}", f"https://{owner.lower()}.github.io/{name}"
    return code, book


CODE, ADDRESS = addresses()
BRANCH = "main"

project = cited("title")
author = "The authors"
copyright = "2026, the authors. MIT licence"
release = cited("version")
html_title = project
language = "en"

extensions = ["myst_nb", "sphinx_copybutton", "sphinxext.opengraph"]
nb_execution_mode = "off"  # the notebooks are stored with their outputs
nb_render_markdown_format = "myst"  # outputs may hold formulas and folded parts
nb_merge_streams = True
nb_code_prompt_show = "Show the {type}"
nb_code_prompt_hide = "Hide the {type}"
myst_enable_extensions = ["dollarmath", "html_image"]
myst_heading_anchors = 4  # the code host's anchors work beside Sphinx's own
myst_links_external_new_tab = False
highlight_language = "text"
suppress_warnings = ["myst.header", "mystnb.lexer", "config.cache"]
copybutton_selector = "div.highlight-bash pre, div.highlight-python pre, div.highlight-ipython3 pre"

html_theme = "furo"
html_favicon = "_static/favicon.svg"
html_static_path = ["_static"]
html_css_files = ["book.css"]
html_js_files = [("book.js", {"defer": "defer"})]
html_copy_source = False
html_show_sphinx = False
html_permalinks_icon = "#"
html_math_renderer = "mathml"
html_theme_options = {
    "source_view_link": CODE,  # name_the_page has each page's own
    "navigation_with_keys": False,  # the arrow keys belong to the step pages
}

ogp_site_url = ADDRESS + "/"
ogp_site_name = project
ogp_social_cards = {"enable": False}
ogp_enable_meta_description = True

# ------------------------------------------------------------------ what is read, and where from

PAGES = {}  # file of the repository -> page of the book
SOURCES = {}  # page of the book -> file of the repository


def know_the_pages(app):
    """build.py wrote down which files became which pages."""
    PAGES.update(json.loads((Path(app.srcdir) / "pages.json").read_text(encoding="utf-8")))
    SOURCES.update({page: source for source, page in PAGES.items()})


def toctree(caption, entries):
    """A hidden table of contents; it is what the sidebar shows."""
    return "\n".join(["", "", "```{toctree}", ":hidden:", f":caption: {caption}" if caption else "",
                      "", *entries, "```", ""])


def add_contents(app, page, text):
    """The front page leads to the chapters and the rest, a chapter to its rooms."""
    there = app.env.found_docs
    chapters = sorted(name for name in there if re.match(r"0\d_\w+/index$", name))
    if page == "index":
        rest = ["tests/workshop", "glossary", "data/index", "contributing", "changelog"]
        text[0] += toctree("Chapters", chapters)
        text[0] += toctree("More", [name for name in rest if name in there])
    elif page in chapters:
        rooms = {"walkthrough": "Lesson", "results": "Results", "step": "Step by step"}
        more = sorted(name.split("/")[1] for name in there - {page}
                      if name.startswith(page.replace("index", "")))
        text[0] += toctree("", [f"{rooms[name]} <{name}>" for name in rooms if name in more])
        text[0] += toctree("", [name for name in more if name not in rooms])
    elif page.endswith("walkthrough"):
        text[0] = fold_hidden_cells(text[0])


def fold_hidden_cells(text):
    """Jupyter's own mark for a folded cell, in the words of myst-nb."""
    notebook = json.loads(text)
    for cell in notebook["cells"]:
        hidden = cell["metadata"].get("jupyter", {})
        tags = cell["metadata"].get("tags", [])
        for part, tag in (("source_hidden", "hide-input"), ("outputs_hidden", "hide-output")):
            if hidden.get(part) and tag not in tags:
                cell["metadata"]["tags"] = tags = [*tags, tag]
    return json.dumps(notebook)


# ------------------------------------------------------------------ links


def ignored(path):
    """Is the path of a folder that git ignores? Then the code host does not have it."""
    lines = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    return any(f"/{line}" in f"/{path}/" for line in lines if line.endswith("/"))


def leads_to(link, page):
    """Where a link of the repository leads from a page of the book.

    -> ("page", name), ("file", address relative to the page), ("code", address) or None.
    """
    path, _, anchor = link.partition("#")
    path = normpath(str(PurePosixPath(SOURCES.get(page, page)).parent / path))
    if path.startswith("..") or not (ROOT / path).exists() or ignored(path):
        return None
    for file in (path, f"{path}/README.md", f"{path}/README.md".removeprefix("./")):
        if file in PAGES:
            return "page", PAGES[file]
    if re.match(r"0\d_\w+/pictures/", path):  # copied as they are
        here = str(PurePosixPath(page).parent)
        return "file", relpath(path, here) + (f"#{anchor}" if anchor else "")
    kind = "tree" if (ROOT / path).is_dir() else "blob"
    return "code", f"{CODE}/{kind}/{BRANCH}/{path}" + (f"#{anchor}" if anchor else "")


class LeadLinks(SphinxTransform):
    """Links between files of the repository become links between pages, or to the code host."""

    default_priority = 500

    def apply(self):
        page = self.env.docname
        for node in list(self.document.findall(addnodes.pending_xref)):
            if node["reftype"] == "myst":
                anchor = node.get("reftargetid")
                target = node["reftarget"] + (f"#{anchor}" if anchor else "")
                if node["refdomain"] != "doc":
                    self.lead(node, target, page)
        for node in list(self.document.findall(addnodes.download_reference)):
            self.lead(node, node["reftarget"], page)
        for node in list(self.document.findall(nodes.literal)):
            self.lead_name(node, page)
        for node in list(self.document.findall(nodes.raw)):
            if node["format"] == "html":
                new = re.sub(r'\b(href|src)="([^"#:][^":]*)"',
                             lambda m: self.lead_raw(m, page), node.astext())
                node.replace_self(nodes.raw("", new, format="html"))

    def lead(self, node, target, page):
        """Make the node lead where the target is in the book, or leave it: Sphinx will warn."""
        kind, to = leads_to(target, page) or (None, None)
        if kind == "page":
            new = addnodes.pending_xref(
                "", *node.children, refdomain="doc", reftype="myst", reftarget=to, refdoc=page,
                reftargetid=target.partition("#")[2] or None, refexplicit=True)
            node.replace_self(new)
        elif kind:
            here = kind == "file"
            node.replace_self(nodes.reference("", "", *node.children, refuri=to, internal=here))

    def lead_name(self, node, page):
        """`chain_specdec.py` in a text: the name of a file leads to the file."""
        name = node.astext()
        inside = isinstance(node.parent, (nodes.reference, nodes.title, addnodes.pending_xref,
                                          addnodes.download_reference))
        if inside or not re.fullmatch(r"[\w./-]+(\.(py|ipynb|md|html|toml|txt)|/)", name):
            return
        links = [name, relpath(name, str(PurePosixPath(SOURCES.get(page, page)).parent))]
        for link in links[:1] if name == "README.md" else links:  # every folder has one
            if leads_to(link, page) not in (None, ("page", page)):
                wrap = addnodes.pending_xref("", node.deepcopy(), refdomain=None)
                node.replace_self(wrap)
                self.lead(wrap, link, page)
                return

    def lead_raw(self, match, page):
        """The same for `href` and `src` in plain HTML."""
        kind, to = leads_to(match[2], page) or (None, None)
        if kind == "page":
            to = relpath(to, str(PurePosixPath(page).parent)) + ".html"
            to += "#" + match[2].partition("#")[2] if "#" in match[2] else ""
        return f'{match[1]}="{to}"' if kind else match[0]


class EmbedSteps(SphinxTransform):
    """In a chapter's page the moving picture gives way to the page on which one can step."""

    default_priority = 490

    def apply(self):
        page = self.env.docname
        if not re.match(r"0\d_\w+/index$", page):
            return
        for image in list(self.document.findall(nodes.image)):
            html = str(PurePosixPath(image["uri"]).with_suffix(".html"))
            if not image["uri"].endswith("pictures/step.gif") or not leads_to(html, page):
                continue
            place = image
            while place.parent is not None and len(place.parent.children) == 1 and isinstance(
                    place.parent, (nodes.paragraph, nodes.reference)):
                place = place.parent
            alt = image.get("alt", "One real step").replace('"', "&quot;")
            place.replace_self(nodes.raw("", (
                f'<iframe class="step" src="{html}#embed" title="{alt}" loading="lazy"></iframe>\n'
                f'<noscript><img src="{image["uri"]}" alt="{alt}"></noscript>\n'
                f'<p class="step-link"><a href="step.html">With every number</a> '
                f'&middot; <a href="{html}">as a page of its own</a></p>'), format="html"))


class ColourCommands(SphinxTransform):
    """An indented block of commands is coloured as what it is, and gets a copy button."""

    default_priority = 495

    def apply(self):
        for block in self.document.findall(nodes.literal_block):
            lines = [line for line in block.astext().splitlines() if line.strip()]
            if block.get("language", "none") in ("none", "") and lines and all(
                    re.match(r"(python|pip|torchrun|git|\.|#|cd|ruff|bash) ", line)
                    for line in lines):
                block["language"] = "bash"


# ------------------------------------------------------------------ what is written


def mathml(writer, node, block=False):
    """A formula as MathML: browsers draw it themselves, without a script or a network."""
    writer.body.append(converter.convert(node.astext(), display="block" if block else "inline"))
    raise nodes.SkipNode


def preview(folder):
    """A still of a chapter's moving picture, in the format of link previews -> address or None."""
    gif = ROOT / folder / "pictures" / "step.gif"
    return f"_static/previews/{folder}.png" if gif.exists() else None


def draw_previews(folder):
    """1200 x 630 is what the networks cut to; the GIF's first frame has everything on it."""
    folder.mkdir(parents=True, exist_ok=True)
    for gif in sorted(ROOT.glob("0?_*/pictures/step.gif")):
        with Image.open(gif) as movie:
            frame = movie.convert("RGB")
        card = Image.new("RGB", (1200, 630), frame.getpixel((2, 2)))
        card.paste(frame, ((1200 - frame.width) // 2, (630 - frame.height) // 2))
        card.save(folder / f"{gif.parent.parent.name}.png", optimize=True)


def draw_icon(path):
    """What a browser asks for beside a step page that stands alone: the root, a circle."""
    icon = Image.new("RGBA", (64, 64))
    ImageDraw.Draw(icon).ellipse((6, 6, 58, 58), fill="#0072b2")
    icon.save(path)


def name_the_page(app, page, template, context, doctree):
    """Its file on the code host, and its picture for link previews."""
    if page in SOURCES:
        context["theme_source_view_link"] = f"{CODE}/blob/{BRANCH}/{SOURCES[page]}"


def choose_preview(app, doctree):
    """A chapter shows its own step, every other page the one of chapter 05."""
    page = app.env.docname
    picture = preview(page.split("/")[0]) or preview("05_ddtree")
    if picture:
        app.env.metadata[page]["og:image"] = f"{ADDRESS}/{picture}"
        app.env.metadata[page]["og:image:alt"] = "One real verification step, drawn as a tree"


def copy_pictures(app, error):
    """Step pages and pictures also stand at the addresses they have in the repository."""
    if error or app.builder.format != "html":
        return
    for path in sorted(Path(app.srcdir).glob("0?_*/pictures/*")):
        to = Path(app.outdir) / path.relative_to(app.srcdir)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, to)
    draw_previews(Path(app.outdir) / "_static" / "previews")
    draw_icon(Path(app.outdir) / "favicon.ico")


def setup(app):
    """Hang all of the above into Sphinx."""
    app.connect("builder-inited", know_the_pages)
    app.connect("source-read", add_contents)
    app.connect("doctree-read", choose_preview)
    app.connect("html-page-context", name_the_page)
    app.connect("build-finished", copy_pictures)
    for transform in (EmbedSteps, ColourCommands, LeadLinks):
        app.add_transform(transform)
    app.add_html_math_renderer(
        "mathml", (mathml, None), (lambda writer, node: mathml(writer, node, block=True), None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
