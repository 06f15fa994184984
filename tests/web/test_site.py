"""The site, as `make site` builds it: its pages can be read, followed and heard in any browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from jaxpar.course.catalog import Lesson
from jaxpar.course.folder import Course
from jaxpar.course.page import lesson_page
from jaxpar.course.page.parts import Part
from tests.web.chromium import NEEDS_CHROMIUM, NODE_MODULES, served
from web import build, pages

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytest.importorskip("zensical", reason="pip install zensical")

pytestmark = [
    pytest.mark.full,
    NEEDS_CHROMIUM,
    pytest.mark.skipif(not NODE_MODULES.is_dir(), reason="no node_modules: npm ci in web/"),
]
ROWS = tuple(row for row in pages.LESSONS if row.number in ("02", "16"))
PATHS = ["/", "/explorers/memory/", "/docs/site/", *(f"/lessons/{row.name}/" for row in ROWS)]
SEEN = """() => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  return {
    title: document.title,
    mains: all("main").length,
    wide: document.documentElement.scrollWidth > window.innerWidth,
    tables: all("article table").filter((table) => !table.querySelector("th")).length,
    pictures: all("figure svg").filter((svg) => svg.firstElementChild.tagName !== "title").length,
  };
}"""
GOOD = {"mains": 1, "wide": False, "tables": 0, "pictures": 0}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a site on which all lessons but two are only titles."""
    folder = tmp_path_factory.mktemp("build")
    run = lesson_page.lesson_parts

    def parts(course: Course, row: Lesson) -> list[Part]:
        return run(course, row) if row in ROWS else [Part("prose", f"# {row.title}")]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lesson_page, "lesson_parts", parts)
        assert build.build(folder) == 0
    with served(folder / "site") as address:
        yield address


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("width", [360, 1280])
def test_a_page_can_be_read_at_any_width(visit: Callable[..., Page], path: str, width: int) -> None:
    seen = visit(path, width=width).evaluate(SEEN)
    assert seen.pop("title")
    assert seen == GOOD


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_serious_keeps_anybody_from_reading(
    visit: Callable[..., Page], path: str, scheme: str
) -> None:
    page = visit(path, color_scheme=scheme)
    page.evaluate((NODE_MODULES / "axe-core" / "axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("axe.run('article')")["violations"]
    serious = [one for one in found if one["impact"] in ("serious", "critical")]
    assert not [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in serious]


def test_an_explorer_runs_below_the_theme(visit: Callable[..., Page]) -> None:
    page = visit("/explorers/schedule/")
    page.fill("#schedule-m", "6")
    page.wait_for_function("document.querySelectorAll('[data-cell]').length === 48")


def test_a_page_is_found_by_a_word_in_it(visit: Callable[..., Page], site: str) -> None:
    del site
    page = visit("/")
    page.keyboard.press("Control+K")
    page.keyboard.type("interleaved")
    page.get_by_text("Lesson 16: pipeline schedules").first.wait_for()


def test_contents_lead_to_what_is_open(visit: Callable[..., Page]) -> None:
    page = visit(f"/lessons/{ROWS[1].name}/")
    name = page.locator("nav a.folded").first.inner_text().strip()
    shown = page.locator("nav a:visible", has_text=name)
    assert name and shown.count() == 0
    page.locator(".notice button").click()
    assert shown.count() == 1


def test_what_is_solved_has_a_mark(visit: Callable[..., Page]) -> None:
    page = visit("/")
    assert page.locator("a.solved").count() == 0
    page.evaluate("localStorage.setItem('jaxpar solved bubble_fraction', 'def ...')")
    page.reload()
    assert page.locator("article a.solved").all_inner_texts() == ["the idle fraction of a pipeline"]
    page.goto(page.url + "exercises/gpipe_schedule/")
    assert page.locator("nav a.solved").all_text_contents() != []
    assert page.locator("article a.solved").count() == 0
