"""Predict, then look: what was measured opens when somebody has predicted it, or skips it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from jaxpar.course.catalog import lesson
from jaxpar.course.page.lesson_page import to_html
from jaxpar.course.page.recorder import record
from tests.course.test_page import LESSON
from tests.web.chromium import NEEDS_CHROMIUM

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = NEEDS_CHROMIUM


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A lesson as one file, opened as a file."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "lesson.py").write_text(LESSON)
    (folder / "lesson.html").write_text(to_html(lesson("02"), record(folder / "lesson.py")))
    return (folder / "lesson.html").as_uri()


@pytest.fixture
def page(visit: Callable[..., Page]) -> Page:
    return visit("")


def predict(page: Page, number: int, typed: str) -> None:
    page.locator(".question input").nth(number).fill(typed)
    page.locator(".question button[type=submit]").nth(number).click()


def test_measured_opens_when_all_is_predicted(page: Page) -> None:
    picture = page.locator("figure svg")
    assert not picture.is_visible()
    assert "Open: 2 of 2 questions" in page.locator(".notice").inner_text()
    predict(page, 0, "7/8 * 1,024")
    assert "Open: 1 of 2 questions" in page.locator(".notice").inner_text()
    predict(page, 1, "4")
    assert picture.is_visible() and not page.locator(".notice").is_visible()
    right, wrong = page.locator(".measured").all_inner_texts()
    assert "896 bytes. As you predicted." in right
    assert "Steps: 3. You predicted 4, 1.33 times as much." in wrong


def test_what_is_no_number_is_asked_again(page: Page) -> None:
    for typed in ("many", "1 ms", "2 **", "(3", "-1", ""):
        predict(page, 0, typed)
        assert "such as 96, 3/4 * 128 or 2 KiB" in page.locator(".wrong").first.inner_text()
    assert "2 of 2" in page.locator(".notice").inner_text()


def test_who_does_not_predict_may_look(page: Page) -> None:
    page.locator(".notice button").click()
    assert page.locator("figure svg").is_visible()
    assert "You predicted" not in page.locator("main").inner_text()
    page.locator(".question .kept button").first.click()
    assert not page.locator("figure svg").is_visible()


def test_a_prediction_outlives_a_reload(page: Page) -> None:
    predict(page, 0, "1 kB")
    page.reload()
    assert "Your prediction: 1 kB." in page.locator(".question").first.inner_text()
    assert "1 of 2" in page.locator(".notice").inner_text()


def test_without_scripts_everything_is_shown(visit: Callable[..., Page]) -> None:
    page = visit("", java_script_enabled=False)
    assert page.locator("figure svg").is_visible()
    assert page.locator(".measured").first.is_visible()
