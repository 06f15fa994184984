"""The pages in a browser: they ask no other host, and answer as Python itself does."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from jaxpar.course.page_tasks import tasks
from jaxpar.explore import answer, defaults
from jaxpar.explore.progress import unpack

pytest.importorskip("playwright", reason="pip install playwright")
pytest.importorskip("markdown", reason="pip install markdown")

import markdown
from playwright.sync_api import Page

from tests.web.chromium import NEEDS_CHROMIUM, NODE_MODULES, served
from web.build import write_assets
from web.explorers import FORMS, exercise_page, explorer_page

EXERCISE = "bubble_fraction"
RIGHT = """def bubble_fraction(stages: int, microbatches: int, chunks: int) -> float:
    return (stages - 1) / (chunks * microbatches + stages - 1)
"""
SHELL = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,"><link rel="stylesheet" href="../../assets/site.css">
<script type="module" src="../../assets/site.js"></script>
<style>body {{ margin: 1rem; font-family: sans-serif }}</style>
</head><body><main>{body}</main></body></html>
"""
ASK = """async ([name, forms]) => {
  const { Python } = await import("/assets/python.js");
  const python = new Python(() => {});
  const answers = [];
  for (const form of forms) answers.push((await python.ask(name, form)).answer);
  python.end();
  return answers;
}"""
SERIOUS = ("serious", "critical")

pytestmark = [
    NEEDS_CHROMIUM,
    pytest.mark.skipif(not NODE_MODULES.is_dir(), reason="no node_modules: npm ci in web/"),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a site of the explorers and one exercise, without a theme."""
    folder = tmp_path_factory.mktemp("site")
    write_assets(folder / "assets")
    pages = {f"explorers/{name}": explorer_page(name) for name in FORMS}
    pages[f"exercises/{EXERCISE}"] = exercise_page(EXERCISE)
    for path, text in pages.items():
        body = markdown.markdown(text, extensions=["fenced_code", "meta"])
        (folder / path).mkdir(parents=True)
        (folder / path / "index.html").write_text(SHELL.format(title=path, body=body), "utf-8")
    with served(folder) as address:
        yield address


def drawn_form(name: str, rng: random.Random) -> dict[str, Any]:
    """A form with some of its controls changed, as a reader would."""
    controls = FORMS[name].CONTROLS
    form = defaults(controls)
    for control in rng.sample(controls, 3):
        if control["kind"] == "choice":
            form[control["name"]] = rng.choice(control["choices"])[0]
        elif control["kind"] == "flag":
            form[control["name"]] = rng.random() < 0.5
        elif control["kind"] == "number":
            form[control["name"]] = rng.randint(
                int(control["minimum"]), min(int(control["maximum"]), 12)
            )
    return form


def rounded(found: Any) -> Any:
    """What JSON keeps of an answer, to 12 digits: Python 3.12 and later add floats more exactly."""
    return json.loads(json.dumps(found), parse_float=lambda text: float(f"{float(text):.12g}"))


@contextmanager
def answered(page: Page) -> Iterator[None]:
    """Waits until the explorer has shown another answer than before."""
    page.evaluate("document.querySelector('.answer').firstElementChild.id = 'old'")
    yield
    page.wait_for_function("!document.querySelector('#old')")


@pytest.mark.always
def test_an_explorer_and_an_exercise(visit: Callable[..., Page]) -> None:
    page = visit("/explorers/schedule/")
    assert page.locator("[data-cell]").count() == 64
    with answered(page):
        page.fill("#schedule-m", "6")
    assert page.locator("[data-cell]").count() == 48
    page.goto(page.url.replace("explorers/schedule", f"exercises/{EXERCISE}"))
    page.fill(".editor", RIGHT)
    page.click(".check")
    page.locator(".verdict").wait_for()
    assert "pass" in page.inner_text(".verdict")
    assert "5 of 5 points" in page.inner_text(".verdict")


@pytest.mark.full
@pytest.mark.parametrize("name", FORMS)
def test_answers_are_those_of_python_itself(visit: Callable[..., Page], name: str) -> None:
    rng = random.Random(name)
    forms = [drawn_form(name, rng) for _ in range(15)]
    answers = visit(f"/explorers/{name}/").evaluate(ASK, [name, forms])
    assert any("error" not in found for found in answers)
    for form, found in zip(forms, answers, strict=True):
        assert rounded(found) == rounded(answer(name, form)), form


@pytest.mark.full
def test_verdicts_are_those_of_python_itself(visit: Callable[..., Page]) -> None:
    forms = [{"exercise": task["id"], "source": task["stub"], "seed": 1} for task in tasks()]
    answers = visit(f"/exercises/{EXERCISE}/").evaluate(ASK, ["verdict", forms])
    for form, found in zip(forms, answers, strict=True):
        wanted = answer("verdict", form)
        assert found["passed"] is wanted["passed"] is False
        assert found["lines"][1:] == wanted["lines"][1:]  # the first one says how long it took


@pytest.mark.full
@pytest.mark.parametrize(
    "path", [*(f"explorers/{name}" for name in FORMS), "exercises/" + EXERCISE]
)
def test_a_page_is_for_everyone(visit: Callable[..., Page], path: str) -> None:
    """It has no serious fault that axe knows, fits 360 pixels, and shows something without JS."""
    page = visit(f"/{path}/", width=360)
    page.add_script_tag(path=NODE_MODULES / "axe-core" / "axe.min.js")
    faults = page.evaluate("axe.run()")["violations"]
    assert [fault["help"] for fault in faults if fault["impact"] in SERIOUS] == []
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    still = visit(f"/{path}/", java_script_enabled=False)
    shown = ".picture > svg" if path.startswith("explorers") else ".editor"
    assert still.locator(shown).is_visible()
    assert still.locator("noscript").is_visible()


@pytest.mark.full
@pytest.mark.parametrize("name", FORMS)
def test_the_address_holds_the_state(visit: Callable[..., Page], name: str) -> None:
    changes = {
        "schedule": ("name", "gpipe"),
        "memory": ("zero", "3"),
        "layout": ("mesh", "dp=4,tp=2"),
        "collectives": ("frame", "1"),
    }
    field, value = changes[name]
    control = f"#{name}-{field}"
    page = visit(f"/explorers/{name}/")
    with answered(page):
        if page.locator(control).evaluate("control => control.tagName") == "SELECT":
            page.select_option(control, value)
        else:
            page.fill(control, value)
    shown = page.inner_html(".answer")
    page.reload()
    assert page.input_value(control) == value
    page.wait_for_function("old => document.querySelector('.answer').innerHTML === old", arg=shown)
    with answered(page):
        page.click("button[type=reset]")
    assert urlsplit(page.url).fragment == ""


@pytest.mark.full
def test_controls_say_where_they_have_no_effect(visit: Callable[..., Page]) -> None:
    page = visit("/explorers/schedule/")
    unused = page.locator(".control.unused label")
    assert unused.all_inner_texts() == ["chunks", "time of I", "time of W", "limit in flight"]
    with answered(page):
        page.select_option("#schedule-name", "zb-h1")
    assert unused.all_inner_texts() == ["chunks", "time of B", "limit in flight"]


@pytest.mark.full
@pytest.mark.parametrize("how", ["mouse", "keys", "button", "touch"])
def test_a_moved_cell_breaks_a_rule(visit: Callable[..., Page], how: str) -> None:
    """1F1 after 1F2 is a schedule, though a slower one; 1F0 after 1B0 is none."""
    page = visit("/explorers/schedule/", has_touch=how == "touch")
    page.hover("[data-cell='1F1']")
    assert "It waits for: 1F0, 0F1." in page.inner_text(".about")
    assert page.locator("[data-cell].before").count() == 2
    assert page.locator("button.later").is_disabled()  # no cell is chosen yet
    place = page.locator("[data-cell='3F0']")
    if how == "touch":
        place.tap()
    else:
        place.focus()
    with answered(page):
        if how == "mouse":
            start, end = place.bounding_box(), page.locator("[data-cell='3B0']").bounding_box()
            assert start and end
            page.mouse.move(start["x"] + 5, start["y"] + 5)
            page.mouse.down()
            page.mouse.move(end["x"] + end["width"], end["y"] + 5, steps=3)
            page.mouse.up()
        elif how == "keys":
            page.keyboard.press("Shift+ArrowRight")
        elif how == "touch":
            page.tap("button.later")
        else:
            page.click("button.later")
    assert "3F0" in page.inner_text(".rule")
    assert page.locator("[data-cell].broken").count() == 1
    with answered(page):
        page.click("summary")
        page.click("button.undo")
    assert page.locator(".rule").count() == 0


@pytest.mark.full
def test_a_table_as_csv(visit: Callable[..., Page]) -> None:
    page = visit("/explorers/schedule/")
    page.click("summary")
    with answered(page):
        page.fill("#schedule-csv", "0F0,0B0\n1F0,1B0")
    assert page.locator("[data-cell]").count() == 4
    with page.expect_download() as loaded:
        page.click("button.download")
    assert Path(loaded.value.path()).read_text("utf-8") == "0F0,0B0\n1F0,1B0\n"
    page.fill("#schedule-csv", "0F0,?")
    page.wait_for_function("document.querySelector('.error').textContent")
    assert "?" in page.inner_text(".error")


@pytest.mark.full
def test_a_term_has_a_formula_and_a_plan_that_fits(visit: Callable[..., Page]) -> None:
    page = visit("/explorers/memory/")
    term = page.locator("[data-term]").first
    term.click()
    assert " = " in page.inner_text(".about")
    form = next(form for form in _plans() if answer("memory", form).get("nearest"))
    state = "&".join(f"{field}={value}" for field, value in form.items())
    with answered(page):
        page.goto(f"{page.url}#{state}")
    with answered(page):
        page.click("button.nearest")
    assert page.locator("button.nearest").is_hidden()


def _plans() -> Iterator[dict[str, Any]]:
    """Plans of every model on one device, some of which do not fit."""
    models = next(row["choices"] for row in FORMS["memory"].CONTROLS if row["name"] == "model")
    yield from ({**defaults(FORMS["memory"].CONTROLS), "model": model} for model, _ in models)


@pytest.mark.full
@pytest.mark.parametrize("how", ["mouse", "select"])
def test_an_axis_splits_another_dim(visit: Callable[..., Page], how: str) -> None:
    page = visit("/explorers/layout/")
    with answered(page):
        if how == "mouse":
            page.drag_and_drop("[data-axis=tp]", "[data-dim=t]", source_position={"x": 9, "y": 9})
        else:
            page.select_option("#layout-axis-tp", "t")
    assert page.input_value("#layout-t_axes") == "tp"
    assert page.locator("[data-dim=t] [data-axis=tp]").is_visible()


@pytest.mark.full
def test_steps_of_a_collective(visit: Callable[..., Page]) -> None:
    page = visit("/explorers/collectives/")
    assert page.inner_text(".place").startswith("1 of ")
    assert page.locator("button.back").is_disabled()
    for name in ("next", "last", "back", "first"):
        with answered(page):
            page.click(f"button.{name}")
    assert page.inner_text(".place").startswith("1 of ")


@pytest.mark.full
def test_an_exercise_keeps_what_is_written(visit: Callable[..., Page]) -> None:
    page = visit(f"/exercises/{EXERCISE}/")
    stub = page.input_value(".editor")
    assert stub == next(task["stub"] for task in tasks() if task["id"] == EXERCISE)
    page.fill(".editor", "while True:")
    page.locator(".editor").press("End")
    page.locator(".editor").press("Enter")
    page.locator(".editor").press_sequentially("pass")
    page.reload()
    assert page.input_value(".editor") == "while True:\n    pass"
    page.locator(".editor").press("Control+Enter")
    page.click(".stop")
    page.locator(".verdict").wait_for()
    assert page.inner_text(".verdict") == "Stopped."
    assert page.locator(".stop").is_hidden()
    page.locator(".editor").press("Control+Enter")
    page.get_by_text("seconds and was ended").wait_for()
    assert "20 seconds" in page.inner_text(".verdict")
    page.click("button.reset")
    assert page.input_value(".editor") == stub


@pytest.mark.full
def test_what_is_solved_can_be_taken_along(visit: Callable[..., Page]) -> None:
    page = visit(f"/exercises/{EXERCISE}/")
    page.fill(".editor", RIGHT)
    page.click(".check")
    page.locator(".verdict.passed").wait_for()
    page.click(".take summary")
    page.wait_for_function("document.querySelector('.progress').value")
    assert unpack(page.input_value(".progress")) == {EXERCISE: RIGHT}
