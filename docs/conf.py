# SPDX-License-Identifier: Apache-2.0
"""Sphinx makes a site of the pages, of the docstrings and of the headers: ``./dev docs``."""

import base64
import importlib
import inspect
import pathlib
import re
import subprocess
from typing import Any
from xml.etree import ElementTree

import fp8lab
from docutils import nodes
from docutils.statemachine import StringList
from fp8lab._names import HOMES
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = pathlib.Path(__file__).resolve().parents[1]

project = "fp8lab"
version = release = fp8lab.__version__
author = copyright = "the authors of fp8lab"
language = "en"

extensions = ["myst_nb", "sphinx.ext.autodoc", "numpydoc"]
html_theme = "furo"
html_title = f"fp8lab {version}"
html_show_sphinx = False
html_static_path = ["static"]
html_css_files = ["site.css"]
smartquotes_action = "qe"  # "--" begins an option
exclude_patterns = ["data", "examples", "static"]
myst_heading_anchors = 4  # as the links of the pages name headings
myst_enable_extensions = ["colon_fence"]
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # docstrings say shapes and types
# Notebooks have no outputs in the project: each build of the site runs them.
nb_execution_mode = "auto"
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_output_stderr = "error"
# The pages' blocks of text are commands and their output.
highlight_language = "none"
suppress_warnings = ["misc.highlighting_failure"]

# --- Python: each public name under the module that has it ------------------------------------------------------------

#: Modules of public names, in the order of the page: what each is about.
GROUPS = {
    "_casts": "Casts",
    "_of_core": "Formats, profiles and other types that several groups have",
    "_outcomes": "Where casts underflow and saturate",
    "_random": "Random bits for stochastic rounding, and draws of PyTorch",
    "_recipes": "Recipes: scales and casts of tensors",
    "_scaling": "Quantized tensors",
    "_shapes": "Shapes that recipes and systems take",
    "_delayed": "Delayed scaling",
    "_models": "Tensor cores",
    "_products": "Products",
    "_gemm_recipes": "How a GEMM is composed",
    "_trace": "One dot product, step by step",
    "_linear": "A Linear layer",
    "_layer": "A Linear layer with a state",
    "_state": "Transformer Engine's state over steps",
    "_tensor_parallel": "Several devices",
    "_units": "Special function units and CUDA's functions",
    "_bounds": "Bounds of functions that nobody has recorded",
    "_measures": "Errors and histograms",
    "_distributions": "Distributions",
    "_check": "Checking a model",
    "_compare": "Comparing",
    "_diagnose": "The doctor of quantized tensors",
    "_gemm_doctor": "The doctor of GEMMs",
    "_explain": "Explaining codes, formats, recipes and models",
    "_report": "Results and pages",
}
MODULES = ("fp8lab.experiments", "fp8lab.operators", "fp8lab.gpu")


def names_of(module: str) -> list[str]:
    return sorted(name for name, home in HOMES.items() if home == module)


class PublicNames(SphinxDirective):
    """Every public name of Python, by group; a name that no group has is an error."""

    def run(self) -> list[nodes.Node]:
        lines: list[str] = []

        def add(name: str, value: Any) -> None:
            if inspect.isclass(value):
                lines.extend((f".. autoclass:: {name}", "   :members:", ""))
            elif callable(value):
                lines.extend((f".. autofunction:: {name}", ""))

        homes = {home for name, home in HOMES.items() if home != name and not name.startswith("__")}
        if homes - set(GROUPS):
            raise self.error(
                f"modules of public names that have no group in docs/conf.py: {sorted(homes - set(GROUPS))}"
            )
        for module, title in GROUPS.items():
            names = [name for name in names_of(module) if not name.startswith("__")]
            if not names:
                raise self.error(f"{module} has no public name, and a group in docs/conf.py")
            lines += [title, "-" * len(title), ""]
            for name in names:
                add(f"fp8lab.{name}", getattr(fp8lab, name))
        for module in MODULES:
            loaded = importlib.import_module(module)
            lines += [module, "-" * len(module), "", (inspect.getdoc(loaded) or "").replace("\n", " "), ""]
            for name in sorted(loaded.__all__):
                add(f"{module}.{name}", getattr(loaded, name))
        section = nodes.section()
        section.document = self.state.document
        self.state.nested_parse(
            StringList(lines, source="docs/conf.py"), self.content_offset, section, match_titles=True
        )
        return section.children


# --- C++: every public header, by what doxygen reads ------------------------------------------------------------------

LIBRARIES = {
    "formats": "formats/include",
    "reference": "reference/include",
    "doctor": "reference/doctor/include",
    "gpu": "gpu/include",
}
DOXYGEN = """
INPUT = {inputs}
RECURSIVE = YES
EXCLUDE_PATTERNS = */gpu/ptx/* */gpu/recorder/*
OUTPUT_DIRECTORY = {output}
GENERATE_HTML = NO
GENERATE_LATEX = NO
GENERATE_XML = YES
XML_PROGRAMLISTING = NO
QUIET = YES
WARNINGS = NO
WARN_IF_UNDOCUMENTED = NO
WARN_NO_PARAMDOC = NO
WARN_IF_DOC_ERROR = NO
WARN_IF_INCOMPLETE_DOC = NO
JAVADOC_AUTOBRIEF = YES
MARKDOWN_SUPPORT = NO
MACRO_EXPANSION = YES
EXPAND_ONLY_PREDEF = YES
PREDEFINED = FP8LAB_HD= "HWY_RESTRICT="
STRIP_FROM_PATH = {strip}
STRIP_FROM_INC_PATH = {strip}
"""
XML = ROOT / "build" / "docs" / "doxygen" / "xml"


def purpose(header: pathlib.Path) -> str:
    """The lines of comment at the head of a header."""
    lines = []
    for line in header.read_text().splitlines()[1:]:
        if not line.startswith("//"):
            break
        lines.append(line[2:].strip())
    return " ".join(lines)


def text_of(element: ElementTree.Element | None) -> str:
    return "" if element is None else " ".join("".join(element.itertext()).split())


def said_of(element: ElementTree.Element) -> str:
    return f"{text_of(element.find('briefdescription'))} {text_of(element.find('detaileddescription'))}".strip()


def template_of(element: ElementTree.Element) -> str:
    parameters = []
    for one in element.findall("templateparamlist/param"):
        name, default = text_of(one.find("declname")), text_of(one.find("defval"))
        parameters.append(f"{text_of(one.find('type'))} {name}{' = ' + default if default else ''}".strip())
    return f"template <{', '.join(parameters)}>\n" if parameters else ""


def declaration_of(member: ElementTree.Element, within: str = "") -> str:
    """A public function, variable, enumeration or type in C++, of the class ``within``; "" where it is not public."""
    kind = member.get("kind")
    if member.get("prot") != "public" or kind not in ("function", "variable", "typedef", "enum"):
        return ""
    if kind == "enum":
        values = [text_of(value.find("name")) for value in member.findall("enumvalue")]
        return f"enum class {text_of(member.find('name'))} {{ {', '.join(values)} }};"
    definition = text_of(member.find("definition")).replace("typedef ", "").replace(f"{within or 'fp8lab'}::", "")
    initial = text_of(member.find("initializer")) if kind == "variable" else ""
    arguments = text_of(member.find("argsstring")) if kind == "function" else ""
    declaration = f"{definition}{arguments}{' ' + initial if 0 < len(initial) < 40 else ''};"
    for spaced, written in (
        ("< ", "<"),
        (" >", ">"),
        (" &", "& "),
        (" *", "* "),
        ("&  ", "& "),
        ("& &", "&&"),
    ):  # as the headers have it
        declaration = declaration.replace(spaced, written)
    return template_of(member) + declaration


def entry_of(name: str, declaration: str, said: str) -> list[str]:
    """What the page says of one declaration."""
    text = re.sub(r"([\\*|_])", r"\\\1", re.sub(r"`([^`]+)`", r"``\1``", said))
    code = [f"   {line}" for line in declaration.splitlines()]
    return [f".. index:: {name}", "", ".. code-block:: cpp", "", *code, "", text, ""]


def class_of(compound: ElementTree.Element) -> list[str]:
    """The entry of a class: its public members with what is said of each."""
    name = text_of(compound.find("compoundname"))
    if "<" in name or compound.get("prot") != "public":
        return []
    lines = [f"{template_of(compound)}{compound.get('kind')} {name.removeprefix('fp8lab::')} {{"]
    for member in compound.iter("memberdef"):
        declaration = declaration_of(member, name)
        if declaration:
            said = said_of(member)
            lines += [f"  /// {said}"] if said else []
            lines += [f"  {line}" for line in declaration.splitlines()]
    return entry_of(name, "\n".join([*lines, "};"]), said_of(compound))


def declarations() -> dict[str, list[tuple[int, list[str]]]]:
    """Of each header, line by line, what it declares."""
    found: dict[str, list[tuple[int, list[str]]]] = {}

    def add(element: ElementTree.Element, lines: list[str]) -> None:
        place = element.find("location")
        if lines and place is not None:
            found.setdefault(place.get("declfile") or place.get("file", ""), []).append(
                (int(place.get("line", 0)), lines)
            )

    for path in sorted(XML.glob("namespace*.xml")):
        for member in ElementTree.parse(path).iter("memberdef"):
            declaration = declaration_of(member)
            if declaration:
                add(member, entry_of(text_of(member.find("qualifiedname")), declaration, said_of(member)))
    for path in sorted([*XML.glob("struct*.xml"), *XML.glob("class*.xml")]):
        for compound in ElementTree.parse(path).iter("compounddef"):
            add(compound, class_of(compound))
    return found


class Headers(SphinxDirective):
    """What each public header of a library declares."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        folder = ROOT / LIBRARIES[self.arguments[0]]
        of_headers = declarations()
        lines: list[str] = []
        for header in sorted(folder.rglob("*.hpp")):
            if header.parent.name in ("ptx", "recorder"):
                continue  # what instructions and the recorder are made of
            path = str(header.relative_to(folder))
            lines += [path, "-" * len(path), "", purpose(header), ""]
            for _, one in sorted(of_headers.get(path, []), key=lambda place: place[0]):
                lines += one
        section = nodes.section()
        section.document = self.state.document
        self.state.nested_parse(
            StringList(lines, source="docs/conf.py"), self.content_offset, section, match_titles=True
        )
        return section.children


def keep_stars(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Experiments say what the command line says, which is no markup: its stars are those of patterns."""
    if what == "function" and name.startswith("fp8lab.experiments."):
        lines[:] = [line if "``" in line else line.replace("*", "\\*") for line in lines]


def run_doxygen(app: Sphinx) -> None:
    XML.parent.mkdir(parents=True, exist_ok=True)
    folders = [str(ROOT / folder) for folder in LIBRARIES.values()]
    text = DOXYGEN.format(inputs=" ".join(folders), output=XML.parent, strip=" ".join(folders))
    subprocess.run(["doxygen", "-"], input=text, text=True, check=True)


# --- The page that computes -------------------------------------------------------------------------------------------

BROWSER = ROOT / "bindings" / "browser"
COMPILED = ROOT / "build" / "browser" / "fp8lab.wasm"
START = """
startLibrary(Uint8Array.from(atob("{library}"), (one) => one.charCodeAt(0))).then(
  (library) => showPage(library, document.querySelector(".try-it")));
"""


class TryIt(SphinxDirective):
    """A form, its program, and the library as WebAssembly, all of them within the page."""

    def run(self) -> list[nodes.Node]:
        if not COMPILED.exists():
            said = "This site was made without the library for the browser, which bindings/browser/build.sh makes."
            return [nodes.paragraph(text=said)]
        for path in (COMPILED, BROWSER / "page.html", BROWSER / "page.js"):
            self.env.note_dependency(str(path))
        program = (BROWSER / "page.js").read_text()
        start = START.format(library=base64.b64encode(COMPILED.read_bytes()).decode())
        html = f"{(BROWSER / 'page.html').read_text()}<script>\n{program}{start}</script>"
        return [nodes.raw("", html, format="html")]


# --- Pages ------------------------------------------------------------------------------------------------------------

LINK = re.compile(r"\[([^\[\]]+)\]\(([^)\s]+)\)")


def read_page(app: Sphinx, name: str, source: list[str]) -> None:
    """Puts the README before the index. Where a link leads out of the pages, the site says the path in the project."""
    folder = ROOT if name == "index" else (ROOT / "docs" / name).resolve().parent
    if name == "index":
        source[0] = (ROOT / "README.md").read_text() + source[0]

    def link(found: re.Match[str]) -> str:
        target, _, anchor = found[2].partition("#")
        path = (folder / target).resolve()
        if not target or "://" in target or not path.exists():
            return found[0]
        if path.parent == ROOT / "notebooks":
            return f"{{doc}}`{found[1]} </notebooks/{path.stem}>`"
        if path.parent == ROOT / "docs" and path.suffix == ".md" and folder == ROOT / "notebooks":
            return f"{{doc}}`{found[1]} </{path.stem}>`"
        if path.parent == ROOT / "docs" and path.suffix == ".md":
            return f"[{found[1]}]({path.name}{'#' + anchor if anchor else ''})"
        place = f"`{path.relative_to(ROOT)}`"
        return place if place in found[1] or found[1] == place.strip("`") else f"{found[1]} ({place})"

    source[0] = LINK.sub(link, source[0])


def notebooks(app: Sphinx, env: Any, added: set[str], changed: set[str], removed: set[str]) -> list[str]:
    """They show what this fp8lab gives, not what it gave when they were last edited."""
    return sorted(name for name in env.found_docs if name.startswith("notebooks/"))


def setup(app: Sphinx) -> None:
    app.add_directive("public-names", PublicNames)
    app.add_directive("headers", Headers)
    app.add_directive("try-it", TryIt)
    app.connect("source-read", read_page)
    app.connect("env-get-outdated", notebooks)
    app.connect("builder-inited", run_doxygen)
    app.connect("autodoc-process-docstring", keep_stars, priority=100)  # before numpydoc's
