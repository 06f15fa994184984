"""Pages: each is one HTML file that loads nothing, with its pictures in it, from a template."""

from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


def render(package: str, template: str, **values: Any) -> str:
    """A page from a template of this package, which may extend page.html; values are escaped."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package, ""), PackageLoader(__name__, "")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**values)


def inline(svg: str) -> Markup:
    """An SVG file as a part of a page: without what stands before its element."""
    return Markup(svg[svg.index("<svg") :])
