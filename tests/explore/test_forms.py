"""All explorers: their controls, and what every answer has."""

from typing import Any
from xml.etree import ElementTree

import pytest

from jaxpar.explore import answer, defaults
from jaxpar.explore.controls import read
from tests.explore.drawn_forms import EXPLORERS, controls_of, drawn

KINDS = {"number": int | float, "choice": str, "text": str, "flag": bool}


@pytest.mark.parametrize("name", EXPLORERS)
def test_controls_say_all_that_a_page_needs(name: str) -> None:
    for control in controls_of(name):
        assert isinstance(control["default"], KINDS[control["kind"]])
        assert control["help"].endswith(".")
        if control["kind"] == "choice":
            assert control["default"] in [value for value, _ in control["choices"]]
        if control["kind"] == "number":
            assert control["minimum"] <= control["default"] <= control["maximum"]


@pytest.mark.parametrize("name", EXPLORERS)
def test_the_defaults_are_what_an_empty_form_means(name: str) -> None:
    assert answer(name, {}) == answer(name, defaults(controls_of(name)))


@pytest.mark.parametrize("name", EXPLORERS)
def test_numbers_may_come_as_texts(name: str) -> None:
    form = defaults(controls_of(name))
    texts = {key: value if isinstance(value, bool) else str(value) for key, value in form.items()}
    assert answer(name, texts) == answer(name, form)


@pytest.mark.parametrize("name", EXPLORERS)
def test_every_answer_has_a_picture_and_whole_tables(name: str) -> None:
    right = [one for one in (answer(name, f) for f in drawn(name, 20, 1)) if "error" not in one]
    assert right
    for answered in right:
        assert ElementTree.fromstring(answered["svg"]).tag.endswith("svg")
        assert answered["title"]
        assert all(isinstance(word, str) for pair in answered["numbers"] for word in pair)
        for table in answered["tables"]:
            widths = {len(table["headers"]), len(table["numeric"]), *map(len, table["rows"])}
            assert len(widths) == 1
            assert all(isinstance(cell, str) for row in table["rows"] for cell in row)


@pytest.mark.parametrize("value", ["nan", "inf", None, [], {}, "1e999", 2.5])
def test_a_number_that_is_none_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"here: devices is .*; use a whole number"):
        read("here", controls_of("schedule"), {"p": value})


def test_an_unknown_form_is_refused() -> None:
    assert "there is no form 'plan'; use one of schedule" in answer("plan", {})["error"]
