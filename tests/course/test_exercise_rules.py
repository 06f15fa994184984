"""What is judged, in words."""

from jaxpar.contracts.base import load
from jaxpar.contracts.case import ArraySpec, Case, Function
from jaxpar.contracts.case_in_words import describe_case
from jaxpar.course.catalog import exercise
from jaxpar.course.exercise_rules import rule_lines


def test_a_case_shows_what_one_device_holds() -> None:
    case = Case("dp=2,tp=4", {"x": ArraySpec((8, 12), "b_dp_tp d")}, {"axis": "tp", "root": 1})
    assert describe_case(case) == 'mesh dp=2,tp=4: x float32[1, 12], axis="tp", root=1'


def test_functions_and_pytrees_are_shown_by_their_names_and_shapes() -> None:
    batch = (ArraySpec((8, 3), "b_dp d"), [ArraySpec((8,), "b_dp", "int32")])
    args = {"loss_fn": Function("somewhere:loss"), "params": {"w": ArraySpec((3,), "d")}}
    case = Case("dp=2", {**args, "batch": batch}, {"axis": "dp"})
    assert describe_case(case) == (
        "mesh dp=2: loss_fn loss, params {w: float32[3]}, batch (float32[4, 3], [int32[4]]), "
        'axis="dp"'
    )


def test_a_value_exercise_shows_calls_and_one_that_raises() -> None:
    lines = list(rule_lines(load(exercise("local_shape").where)))
    assert '  local_shape((8, 6), "b_dp d", {"dp": 4}) -> (2, 6)' in lines
    assert sum(line.endswith("raises ValueError") for line in lines) == 1


def test_a_schedule_shows_one_small_table_and_the_call_that_raises() -> None:
    lines = list(rule_lines(load(exercise("interleaved_schedule").where)))
    assert '  interleaved_schedule(1, 1, 2) -> [["0F0", "1F0", "1B0", "0B0"]]' in lines
    assert sum("->" in line for line in lines) == 1
    assert sum(line.endswith("raises ValueError") for line in lines) == 1
    assert lines[0].endswith("order must be right to earn the rest)")
