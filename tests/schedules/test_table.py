"""Tables: reading, writing, what is refused, and ticks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxpar.schedules import Action, Table, check, make_table, to_ticks
from tests.schedules.tables import dependencies, edges, has_circle, tables

ONE_F_ONE_B = [
    ["0F0", "0F1", "0B0", "0F2", "0B1", "0B2"],
    ["1F0", "1B0", "1F1", "1B1", "1F2", "1B2"],
]


def changed(row: int, cells: str) -> Table:
    """The table above with one row in other words."""
    rows = list(ONE_F_ONE_B)
    rows[row] = cells.split()
    return Table.parse(rows)


def refusal(table: Table) -> str:
    with pytest.raises(ValueError, match=r"^schedule: row \d+ .*cell \d+") as error:
        check(table)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_table_knows_its_sizes():
    table = make_table("zb-v", 3, 6)
    assert (table.devices, table.stages, table.chunks, table.microbatches) == (3, 6, 2, 6)
    assert [table.device_of(stage) for stage in range(6)] == [0, 1, 2, 2, 1, 0]
    assert [make_table("interleaved", 3, 6).device_of(s) for s in range(6)] == [0, 1, 2, 0, 1, 2]


def test_the_grammar_is_that_of_pytorch():
    table = Table.from_csv("0F0,, 0I0 ,0W0,\n,1F0,1B0\n\n")
    assert table.rows == (
        (Action(0, "F", 0), None, Action(0, "I", 0), Action(0, "W", 0), None),
        (None, Action(1, "F", 0), Action(1, "B", 0)),
    )
    assert table.to_csv() == "0F0,,0I0,0W0,\n,1F0,1B0\n"
    check(table)


@pytest.mark.parametrize("line_end", ["\r\n", "\r", "\n"])
def test_any_line_end_is_read(line_end):
    assert Table.from_csv(f"0F0,0B0{line_end}1F0,1B0{line_end}").devices == 2


@pytest.mark.parametrize(
    "cell", ["0X0", "0f0", "F0", "0F", "-1F0", "0F-1", "0SEND_F0", "0F0 0B0", "\u0661F0", "9" * 5000]
)
def test_what_is_no_action_is_refused_at_its_cell(cell):
    with pytest.raises(ValueError, match=r"^schedule: row 2 \(device 1\), cell 3: .* not an action"):
        Table.parse([["0F0"], ["1F0", "", cell]])


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (changed(0, "0F0 0F1 0B0 0F2 0B1 0B2 0F1"), "row 1 .*cell 7 .*twice, also in row 1 .*2;"),
        (changed(1, "1F0 1B0 1F1 1B1 1F2"), "row 2 .*cell 5 .*1B2 is missing"),
        (changed(1, "1F0 1B0 1F1 1B1 1B2"), "row 2 .*cell 5 .*1F2 is missing"),
        (changed(0, "0F0 0F1 0B0 0B1"), "row 2 .*cell 5 .*0F2 is missing"),
        (changed(1, "1F0 1B0 1F1 1B1 1F3 1B3"), "row 1 .*cell 4 .*1F2 is missing"),
        (changed(0, "0F1 0F2 0B1 0B2"), "row 2 .*cell 1 .*0F0 is missing"),
        (Table.parse([["0F0", "0B0"], ["2F0", "2B0"]]), "row 2 .*cell 1 .*stage 1 is missing"),
        (Table.parse([["0F0", "0B0"], ["1F9999999", "1B0"]]), "microbatch 1 is missing"),
        (changed(1, "1F0 1B0 1F1 1B1 1F2 1B2 0F3"), "row 2 .*cell 7 .*on two devices"),
        (changed(1, "1F0 1B0 1F1 1B1 1F2 1B2 1W2"), "row 2 .*cell 7 .*same backward"),
        (changed(1, "1F0 1B0 1I1 1F1 1B1 1F2 1B2"), "row 2 .*cell 3 .*same backward"),
        (changed(1, "1F0 1B0 1F1 1B1 1F2 1I2"), "row 2 .*cell 6 .*1W2 is missing"),
        (changed(1, "1F0 1B0 1F1 1B1 1F2 1W2"), "row 2 .*cell 6 .*1I2 is missing"),
        (changed(1, "1F0 1B0 1F1 1B1 1F2 1W2 1I2"), "row 2 .*cell 6 .*before 1I2 .cell 7"),
        (changed(0, "0B0 0F0 0F1 0F2 0B1 0B2"), "row 1 .*cell 1 .*before 0F0 .cell 2"),
        (Table.parse([["0F0", "0B0", "1F0", "1B0"]]), "row 1 .*cell 2 .*before 1F0 .cell 3"),
        (Table.parse([["0F0", "1F0", "0B0", "1B0"]]), "row 1 .*cell 3 .*before 1B0 .cell 4"),
        (Table.parse([["1F0", "0F0", "1B0", "0B0"]]), "row 1 .*cell 1 .*before 0F0 .cell 2"),
        (Table.parse([*ONE_F_ONE_B, []]), "row 3 .*cell 1: the row has no action"),
        (Table.parse([["", ""]]), "row 1 .*cell 1: the row has no action"),
    ],
)
def test_a_wrong_table_is_refused_at_its_cell(table, says):
    with pytest.raises(ValueError, match=says):
        check(table)
    refusal(table)


def test_no_rows_at_all_are_refused():
    with pytest.raises(ValueError, match="row 1, cell 1: no rows"):
        check(Table(()))


def test_the_circle_of_an_order_that_can_never_run_is_shown():
    message = refusal(changed(0, "0F0 0B0 0F1 0F2 0B1 0B2"))if False else refusal(
        Table.parse([["0F0", "0B0", "0F1", "0B1"], ["1F0", "1F1", "1B0", "1B1"], ["2F0"]])
    )
    assert message
