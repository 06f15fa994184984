"""A solution can be read whole: with the helpers of the library that it calls."""

from jaxpar.contracts.base import load
from jaxpar.course.catalog import exercise
from jaxpar.course.solution import solution


def test_helpers_come_with_it() -> None:
    source, file = solution(load(exercise("parameter_server_step").where))
    assert file == "jaxpar/parallel/server.py"
    names = (
        "parameter_server_step", "_sum_on_root", "_send_from_root", "_zero_except_on",
        "_devices_except",
    )  # fmt: skip
    assert sorted(source.count(f"def {name}(") for name in names) == [1] * 5
    assert "single_master" not in source
