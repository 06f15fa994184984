"""What an SVG file holds, for tests of pictures."""

from xml.etree import ElementTree

SPACE = "{http://www.w3.org/2000/svg}"


def elements(svg: str, tag: str) -> list[ElementTree.Element]:
    """All elements with this tag, in order."""
    return list(ElementTree.fromstring(svg).iter(f"{SPACE}{tag}"))


def texts(svg: str) -> list[str]:
    """All texts, in order."""
    return ["".join(element.itertext()) for element in elements(svg, "text")]


def numbers(element: ElementTree.Element, *names: str) -> list[float]:
    """The attributes with these names."""
    return [float(element.get(name, 0)) for name in names]
