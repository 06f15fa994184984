"""Pictures of what devices hold: any size, any width, and whose a value was."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxpar.drawing.held import held_lines, only_holders


def names(count: int) -> list[str]:
    return [f"tp {place}" for place in range(count)]


def held(shards: list, width: int = 80, holders: dict | None = None) -> list[str]:
    arrays = dict(zip(names(len(shards)), map(np.asarray, shards), strict=True))
    return held_lines("x", arrays, holders or {}, width)


def test_a_value_that_one_device_holds_has_its_letter() -> None:
    shards = [np.array([1.0, 5.0]), np.array([2.0, 5.0])]
    assert only_holders([shards]) == {1.0: 0, 2.0: 1}
    text = "\n".join(held([[2.0, 3.0], [1.0, 5.0]], holders={1.0: 0, 2.0: 1}))
    assert "2.00b" in text and "1.00a" in text
    assert "3.00 " in text and "5.00 " in text


def test_what_all_devices_hold_is_drawn_once() -> None:
    lines = held([[1.0, 2.0]] * 4)
    assert lines[0] == "x, float64[2] on each device"
    assert lines[1].strip() == "all 4 devices"
    assert len(lines) == 6


@pytest.mark.parametrize("width", [24, 40, 80, 160])
def test_a_large_array_fits_into_any_width(width: int) -> None:
    shards = [np.random.default_rng(n).standard_normal((30, 20, 50)) for n in range(8)]
    lines = held(shards, width)
    assert max(map(len, lines[1:])) <= width
    assert any(".." in line for line in lines)


def test_devices_that_do_not_fit_side_by_side_stand_in_rows() -> None:
    shards = [[float(n)] for n in range(8)]
    assert sum("tp" in line for line in held(shards, 80)) == 1
    assert sum("tp" in line for line in held(shards, 48)) == 2


def test_other_types_and_empty_shards() -> None:
    assert "True" in "\n".join(held([[True, False]]))
    assert " 7 " in "\n".join(held([[7], [8]]))
    assert "1.50" in "\n".join(held([jnp.array([1.5], jnp.bfloat16)]))
    assert "bfloat16[1]" in held([jnp.array([1.5], jnp.bfloat16)])[0]
    assert "empty" in "\n".join(held([np.zeros((0, 3)), np.zeros((0, 3))]))
    assert "nan" in "\n".join(held([[float("nan")], [1.0]]))
