"""When two results are the same."""

import numpy as np
import pytest

from jaxpar.grading.compare import alike, same

ONE = np.array([1.0, np.inf, np.nan, 2.0])


def test_nothing_that_is_not_finite_is_right() -> None:
    assert not same("float32", ONE, np.ones(4), 1.0)


@pytest.mark.parametrize(
    ("other", "equal"),
    [
        ([1.0, np.inf, np.nan, 2.0], True),
        ([1.0, -np.inf, np.inf, 2.0], True),
        ([1.000001, np.inf, np.nan, 2.0], True),
        ([1.1, np.inf, np.nan, 2.0], False),
        ([np.inf, np.inf, np.nan, 2.0], False),
        ([1.0, 0.0, np.nan, 2.0], False),
        ([1.0, np.inf, np.nan], False),
    ],
)
def test_wrong_results_are_alike_where_they_are_finite(other: list[float], equal: bool) -> None:
    assert alike("float32", ONE, np.array(other), 1.0) == equal


def test_integers_are_alike_if_equal() -> None:
    assert alike("int32", np.arange(3), np.arange(3), 1.0)
    assert not alike("int32", np.arange(3), np.arange(1, 4), 1.0)
