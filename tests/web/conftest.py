"""A browser for the pages of the fixture `site`, which each file of tests has of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from tests.web.chromium import CHROMIUM, START

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page, Request


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def visit(browser: Browser, site: str) -> Iterator[Callable[..., Page]]:
    """Opens pages; in the end none has asked another host, and none has logged an error."""
    wrong: list[str] = []
    contexts = []

    def logged(line: ConsoleMessage) -> None:
        if line.type == "error":
            wrong.append(line.text)

    def asked(request: Request) -> None:
        if urlsplit(request.url).hostname not in ("127.0.0.1", None):
            wrong.append(request.url)

    def opened(path: str, width: int = 1280, **settings: Any) -> Page:
        context = browser.new_context(viewport={"width": width, "height": 900}, **settings)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(START)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", logged)
        page.on("request", asked)
        page.goto(site + path)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not wrong
