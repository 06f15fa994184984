"""Predictions as people type them."""

import pytest

from jaxpar.course.prediction import Kind, parse_bytes, parse_quantity


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("96", 96), ("0", 0), (" 3/4 * 128 ", 96), ("2 * (8 - 1) / 8 * 96", 168), ("1.5 kB", 1500),
        ("2KiB", 2048), ("10 bytes", 10), ("7/3", 2),
    ],
)  # fmt: skip
def test_a_number_or_a_sum_with_a_unit(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize(
    "text", ["", "many", "3 x", "1/0", "-1", "2**99", "n*x", "()", "1 2", "1" * 101, "9" * 5 + "e9"]
)
def test_what_is_no_number_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"^prediction: received .*Enter alone to skip$"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "kind", "quantity"),
    [
        ("1/4 ms", "seconds", 0.00025),
        ("2 h", "seconds", 7200),
        ("70B", "count", 70e9),
        ("2", "count", 2),
    ],
)
def test_each_kind_has_its_units(text: str, kind: Kind, quantity: float) -> None:
    assert float(parse_quantity(text, kind)) == quantity


@pytest.mark.parametrize(
    ("text", "kind"), [("3 MB", "seconds"), ("3 ms", "bytes"), ("3 ms", "count")]
)
def test_a_unit_of_another_kind_is_refused(text: str, kind: Kind) -> None:
    with pytest.raises(ValueError, match="is allowed, such as"):
        parse_quantity(text, kind)


def test_digits_may_be_in_groups_of_three() -> None:
    assert parse_quantity("1,024 * 7,168", "bytes") == 1024 * 7168
    with pytest.raises(ValueError, match="received '1,5'"):
        parse_quantity("1,5", "bytes")
