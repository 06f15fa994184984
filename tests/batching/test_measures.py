"""What users notice, by hand."""

import pytest

from jaxpar.batching.measures import serving_metrics

LIMITS = {"ttft_limit": 1.0, "itl_limit": 0.25}
QUICK, SLOW = (2.0, [2.5, 2.75, 3.0], True), (1.0, [2.25, 2.5, 3.5], True)


def test_by_hand() -> None:
    failed = (0.5, [4.5], False)
    found = serving_metrics([QUICK, SLOW, failed], **LIMITS)
    assert found == pytest.approx({
        "ttft_p50": 0.875,
        "ttft_p99": 0.5 + 0.99 * 0.75,
        "itl_p50": 0.25,
        "itl_p99": 0.25 + 0.97 * 0.75,
        "tokens_per_second": 6 / 4,
        "good_per_second": 1 / 4,
    })  # fmt: skip


def test_where_nobody_was_answered_there_are_no_percentiles() -> None:
    found = serving_metrics([(1.0, [], False), (2.0, [2.5], False)], **LIMITS)
    assert found["ttft_p50"] is None and found["itl_p99"] is None
    assert found["tokens_per_second"] == found["good_per_second"] == 0


@pytest.mark.parametrize(
    ("log", "says"),
    [
        ([], "there is no request"),
        ([(1.0, [1.0], True)], "arrived at 1.0"),
        ([(1.0, [3.0, 2.0], False)], "times must ascend"),
    ],
)
def test_what_cannot_be_is_refused(log: list, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        serving_metrics(log, **LIMITS)
