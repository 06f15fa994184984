"""Tables: reading, writing, what is refused, and ticks."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxpar.schedules import Action, Table, check, make_table, to_ticks
from tests.schedules.tables import Sizes, can_run, dependencies, sizes

ONE_F_ONE_B = [
    ["0F0", "0F1", "0B0", "0F2", "0B1", "0B2"],
    ["1F0", "1B0", "1F1", "1B1", "1F2", "1B2"],
]


def changed(row: int, cells: str) -> Table:
    """The table above with one row replaced."""
    rows = list(ONE_F_ONE_B)
    rows[row] = cells.split()
    return Table.parse(rows)


def refusal(table: Table) -> str:
    with pytest.raises(ValueError, match=r"^schedule: row \d+.* cell \d+") as error:
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
    "cell",
    ["0X0", "0f0", "F0", "0F", "-1F0", "0F-1", "0SEND_F0", "0F0 0B0", "\u0661F0", "9" * 5000],
)
def test_what_is_no_action_is_refused_at_its_cell(cell):
    with pytest.raises(
        ValueError, match=r"^schedule: row 2 \(device 1\), cell 3: .* not an action"
    ):
        Table.parse([["0F0"], ["1F0", "", cell]])


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (changed(0, "0F0 0F1 0B0 0F2 0B1 0B2 0F1"), "row 1 .*cell 7 .*twice, also in row 1 .*2;"),
        (changed(1, "1F0 1B0 1F1 1B1 1F2"), "row 2 .*cell 5 .*1B2 is missing"),
        (changed(1, "1F0 1B0 1F1 1B1 1B2"), "row 2 .*cell 5 .*1F2 is missing"),
        (changed(0, "0F0 0F1 0B0 0B1"), "row 2 .*cell 5 .*0F2 is missing"),
        (changed(1, "1F0 1B0 1F1 1B1 1F3 1B3"), "row 2 .*cell 5 .*0F3 is missing"),
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
        (Table(()), "row 1, cell 1: no rows"),
    ],
)
def test_a_wrong_table_is_refused_at_its_cell(table, says):
    assert re.search(says, refusal(table))


def test_the_circle_of_an_order_that_can_never_run_is_shown():
    table = Table.parse([["0F0", "0B0", "0F1", "0B1"], ["1F0", "1F1", "1B0", "1B1"]])
    message = refusal(table)
    assert "row 1 waits at cell 2 (0B0) for 1B0, row 2 waits at cell 2 (1F1) for 0F1;" in message
    assert message.endswith("move 0F1 before that cell of its row")
    check(Table.parse([["0F0", "0F1", "0B0", "0B1"], ["1F0", "1F1", "1B0", "1B1"]]))


def test_who_only_waits_is_no_part_of_the_circle():
    table = make_table("1f1b", 4, 4).to_rows()
    table[3][1], table[3][2] = table[3][2], table[3][1]  # 3F1 before 3B0: still right
    check(Table.parse(table))
    table[2] = table[2][2:] + table[2][:2]  # stage 2 begins with a backward
    assert "row 3 (device 2)" in refusal(Table.parse(table))


@given(sizes())
def test_any_generated_table_is_valid(size: Sizes):
    table = make_table(*size)
    check(table)
    assert can_run(table)


@given(sizes())
def test_csv_there_and_back(size: Sizes):
    table = make_table(*size)
    assert Table.from_csv(table.to_csv()) == table
    ticks = to_ticks(table)
    assert Table.from_csv(ticks.to_csv()) == ticks
    check(ticks)


@given(sizes(), st.data())
def test_a_cell_moved_is_refused_exactly_where_the_order_can_no_longer_run(
    size: Sizes, data: st.DataObject
):
    table = make_table(*size)
    rows = [list(row) for row in table.rows]
    row = data.draw(st.sampled_from(rows))
    row.insert(
        data.draw(st.integers(0, len(row) - 1)), row.pop(data.draw(st.integers(0, len(row) - 1)))
    )
    moved = Table(tuple(tuple(row) for row in rows))
    if can_run(moved):
        check(moved)
    else:
        refusal(moved)


@given(sizes(), st.data())
def test_a_cell_moved_before_what_it_needs_is_refused(size: Sizes, data: st.DataObject):
    table = make_table(*size)
    needs = dependencies(table)
    rows = [list(row) for row in table.rows]
    pairs = [(row, a, b) for row in rows for a in row if a for b in row if b in needs[a]]
    row, action, needed = data.draw(st.sampled_from(pairs))
    row.remove(action)
    row.insert(row.index(needed), action)
    refusal(Table(tuple(tuple(row) for row in rows)))


@given(sizes(), st.data())
def test_a_cell_lost_copied_or_given_to_another_device_is_refused(size: Sizes, data: st.DataObject):
    table = make_table(*size)
    rows = [list(row) for row in table.rows]
    device = data.draw(st.integers(0, len(rows) - 1))
    cell = data.draw(st.integers(0, len(rows[device]) - 1))
    other = data.draw(st.integers(0, len(rows) - 1))
    what = data.draw(st.sampled_from(["lost", "copied", "given"]))
    action = rows[device][cell]
    if what != "copied":
        del rows[device][cell]
    if what == "copied" or (what == "given" and other != device):
        rows[other].append(action)
    refusal(Table(tuple(tuple(row) for row in rows)))


@given(sizes())
def test_in_ticks_what_an_action_needs_is_done_in_an_earlier_column(size: Sizes):
    table = make_table(*size)
    ticks = to_ticks(table)
    column = {action: cell for row in ticks.rows for cell, action in enumerate(row) if action}
    assert all(column[b] < column[a] for a, before in dependencies(table).items() for b in before)
    stripped = tuple(tuple(action for action in row if action) for row in ticks.rows)
    assert stripped == table.rows


def test_ticks_of_1f1b_are_those_of_its_figure():
    assert to_ticks(make_table("1f1b", 2, 3)).to_csv() == (
        "0F0,0F1,,0B0,0F2,0B1,,0B2\n,1F0,1B0,1F1,1B1,1F2,1B2\n"
    )
