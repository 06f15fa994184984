"""What is in a page, as tests look at it."""

from html.parser import HTMLParser


class Elements(HTMLParser):
    """The elements of a page, with their attributes, and the text in it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += f" {data}"
