"""What is judged, in words."""

from jaxpar.contracts.base import load
from jaxpar.contracts.case import ArraySpec, Case, Function, Made
from jaxpar.contracts.case_in_words import arguments_in_words, describe_case
from jaxpar.course.catalog import exercise
from jaxpar.course.exercise_rules import rule_lines


def test_a_case_shows_what_one_device_holds() -> None:
    case = Case("dp=2,tp=4", {"x": ArraySpec((8, 12), "b_dp_tp d")}, {"axis": "tp", "root": 1})
    assert describe_case(case) == 'mesh dp=2,tp=4: x float32[1, 12]; axis "tp"; root 1'


def scaled_error(params: object, batch: object) -> None:
    """The error, scaled.

    A second paragraph.
    """


def a_step(rate: object, params: object) -> None:
    """A step by a rate."""


def test_functions_are_shown_by_their_purpose_and_pytrees_by_their_shapes() -> None:
    batch = (ArraySpec((8, 3), "b_dp d"), [ArraySpec((8,), "b_dp", "int32")])
    params = {"w": ArraySpec((3,), "d")}
    case = Case(
        "dp=2",
        {"loss_fn": Function(f"{__name__}:scaled_error"), "params": params, "batch": batch},
        {"axis": "dp"},
    )
    assert describe_case(case) == (
        "mesh dp=2: loss_fn the error, scaled; params {w: float32[3]}; "
        'batch (float32[4, 3], [int32[4]]); axis "dp"'
    )


def test_what_is_made_is_shown_by_its_maker_and_its_arrays() -> None:
    rate, step = ArraySpec((4,), "d_dp"), Function(f"{__name__}:a_step")
    bound = Made(Function("functools:partial"), (step, rate))
    state = Made(step, (rate, [rate, 3], rate, 5))
    optimizer = Function("optax:MaskedNode")
    case = Case("dp=2", {"update": bound, "state": state, "optimizer": optimizer})
    assert list(arguments_in_words(case)) == [
        ("update", "a step by a rate"),
        ("state", "a step by a rate, made from float32[2] and [float32[2], 3]"),
        ("optimizer", "maskednode"),
    ]


def test_a_stub_shows_the_arguments_of_a_case_in_a_column_each() -> None:
    lines = list(rule_lines(load(exercise("summa_matmul").where)))
    first = lines.index("Tried with, on each device:")
    assert lines[first + 1 : first + 6] == [
        "  mesh dp=2,tpx=2,tpy=2",
        "    x     float32[24, 40]",
        "    w     float32[40, 56]",
        '    rows  "tpx"',
        '    cols  "tpy"',
    ]


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


def test_a_challenge_says_what_is_measured_and_with_what() -> None:
    for id, says in (
        (
            "swap_layout",
            "the fewest bytes from each device in one call, forward, on mesh fsdp=2,tp=4",
        ),
        (
            "frugal_layers",
            "the fewest bytes of intermediate results, forward and backward, on mesh",
        ),
        ("limited_schedule", "the shortest schedule, in limited_schedule(4, 8, 3). Every right"),
    ):
        lines = list(rule_lines(load(exercise(id).where)))
        first = next(at for at, line in enumerate(lines) if line.startswith("Open challenge"))
        assert says in " ".join(" ".join(lines[first : first + 3]).split())
    lines = rule_lines(load(exercise("gather").where))
    assert not any(line.startswith("Open challenge") for line in lines)
