"""The explorer of schedules: what each cell waits for, which rule a table breaks, and figures."""

from typing import Any
from xml.etree import ElementTree

import pytest

from jaxpar.explore import answer
from jaxpar.schedules import NAMES, Table, make_table, simulate

STUCK = "0F0,0B0,0F1,0B1\n1F0,1F1,1B1,1B0\n"


def drawn_cells(svg: str) -> list[str]:
    groups = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}g")
    return [group.attrib["data-cell"] for group in groups if "data-cell" in group.attrib]


@pytest.mark.parametrize("name", NAMES)
def test_every_cell_starts_when_all_that_it_waits_for_has_ended(name: str) -> None:
    answered = answer("schedule", {"name": name, "p": 4, "m": 8, "F": 2, "P": 0})
    cells = {cell["id"]: cell for cell in answered["cells"]}
    for cell in cells.values():
        ends = [cells[other]["end"] for other in cell["waits_for"]]
        assert cell["start"] == max(ends, default=0)
        assert all(cell["id"] in cells[other]["waited_on_by"] for other in cell["waits_for"])
        assert all(cell["id"] in cells[other]["waits_for"] for other in cell["waited_on_by"])
    assert sorted(drawn_cells(answered["svg"])) == sorted(cells)
    assert max(cell["end"] for cell in cells.values()) == answered["makespan"]


def test_the_critical_path_is_that_of_the_simulation() -> None:
    answered = answer("schedule", {"name": "1f1b", "p": 3, "m": 4})
    path = simulate(make_table("1f1b", 3, 4)).critical_path
    assert {cell["id"] for cell in answered["cells"] if cell["critical"]} == set(map(str, path))


def test_in_flight_is_told_in_bytes() -> None:
    form = {"name": "interleaved", "p": 4, "m": 8, "chunks": 2, "activation_gb": 3}
    numbers = dict(answer("schedule", form)["numbers"])
    assert numbers["most in flight on a device"] == "11 chunks"  # 2(p-1) + (v-1)p + 1
    assert numbers["which are"] == "16.5 GB"
    assert "which are" not in dict(answer("schedule", form | {"activation_gb": 0})["numbers"])


def test_a_table_goes_out_and_comes_in_again() -> None:
    answered = answer("schedule", {"name": "zb-h1"})
    again = answer("schedule", {"csv": answered["csv"]})
    assert again["wrong"] is None
    assert again["cells"] == answered["cells"]
    assert Table.from_csv(answered["csv"]) == make_table("zb-h1", 4, 8)


@pytest.mark.parametrize(
    ("csv", "cell", "words"),
    [
        (STUCK, "0B0", "this order can never run"),
        ("0B0,0F0\n1F0,1B0", "0B0", "it comes before 0F0"),
        ("0F0,0B0\n1F0,1F0", "1F0", "it is there twice"),
        ("0F0,0B0\n1F0", "1F0", "1B0 is missing"),
        ("0F0,0B0\n,", None, "the row has no action"),
    ],
)
def test_a_broken_rule_is_told_at_its_cell(csv: str, cell: str | None, words: str) -> None:
    answered = answer("schedule", {"csv": csv})
    assert answered["wrong"]["cell"] == cell
    assert words in answered["wrong"]["text"]
    assert set(drawn_cells(answered["svg"])) == {one["id"] for one in answered["cells"]}
    assert answered["numbers"] == []


def test_a_broken_table_is_drawn_in_its_order() -> None:
    cells = answer("schedule", {"csv": STUCK, "F": 1, "B": 3})["cells"]
    last = [(one["id"], one["start"], one["end"]) for one in cells if one["device"] == 1]
    assert last == [("1F0", 0, 1), ("1F1", 1, 2), ("1B1", 2, 5), ("1B0", 5, 8)]


def test_a_search_keeps_its_limit_and_says_how_good_it_is() -> None:
    answered = answer("schedule", {"name": "search", "p": 4, "m": 8, "limit": 3})
    assert answered["makespan"] == 31  # which the exercise proves to be the least
    assert "No schedule of one stage on each device with at most 3" in answered["notes"][-1]
    assert [row[0] for row in answered["tables"][0]["rows"]][:2] == ["searched", "naive"]


def test_another_one_is_drawn_beside_it() -> None:
    answered = answer("schedule", {"name": "gpipe", "beside": "1f1b"})
    assert [row[0] for row in answered["tables"][0]["rows"]] == ["gpipe", "1f1b"]
    assert len(drawn_cells(answered["svg"])) == 2 * len(answered["cells"])


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"p": 99}, "devices is 99; use a whole number from 1 to 16"),
        ({"F": "much"}, "time of F is much; use a number from 0 to 100"),
        ({"name": "best"}, "schedule is 'best'; use one of naive, "),
        ({"mesh": "dp=2"}, "there is no field 'mesh'"),
        ({"name": "interleaved", "m": 6}, "microbatches is 6; it must be a multiple"),
        ({"name": "interleaved", "p": 16, "m": 64, "chunks": 4}, "at most 4,096 can be drawn"),
        ({"name": "search", "p": 16, "m": 64}, "a search for 16 devices and 64 microbatches"),
        ({"csv": "0F0,what"}, "'what' is not an action"),
        ({"csv": ","}, "the row has no action"),
        ({"F": 0, "B": 0}, "give F or B a cost above 0"),
    ],
)
def test_bad_forms_are_explained(form: dict[str, Any], words: str) -> None:
    assert words in answer("schedule", form)["error"]
