"""Comparing results: the one table of tolerances, and the first difference in words."""

from __future__ import annotations

import numpy as np

from jaxpar.contracts.case import Case
from jaxpar.grading.findings import Finding

RELATIVE_TOLERANCE = {"float64": 1e-12, "float32": 4e-6, "float16": 4e-3, "bfloat16": 3e-2}
"""Relative to the largest expected element; times sqrt(elements / 64) for large arrays."""
MOST_TOLERATED = 0.25  # of the largest expected element, so that what is missing is never near


def bound(dtype: str, expected: np.ndarray, multiple: float) -> float:
    """Returns how far an element of a right result may be from `expected`."""
    if dtype not in RELATIVE_TOLERANCE:
        return 0.0
    scale = float(np.max(np.abs(expected), initial=0.0)) or 1.0
    growth = max(1.0, (expected.size / 64) ** 0.5)
    return min(multiple * RELATIVE_TOLERANCE[dtype] * growth, MOST_TOLERATED) * scale


def same(dtype: str, got: np.ndarray, expected: np.ndarray, multiple: float) -> bool:
    """Whether all elements are equal within the tolerance; NaN never is."""
    if got.shape != expected.shape:
        return False
    wide, right = got.astype(np.float64), expected.astype(np.float64)
    return bool(np.all(np.abs(wide - right) <= bound(dtype, right, multiple)))


def near(dtype: str, got: np.ndarray, expected: np.ndarray, multiple: float) -> bool:
    """Whether some element of a right result has more than half of the allowed error."""
    return dtype in RELATIVE_TOLERANCE and not same(dtype, got, expected, multiple / 2)


def alike(dtype: str, got: np.ndarray, other: np.ndarray, multiple: float) -> bool:
    """Whether two results, right or wrong, are equal within the tolerance.

    Elements that are not finite are equal to each other, whether infinite or NaN.
    """
    finite = np.isfinite(other.astype(np.float64))
    if got.shape != other.shape or np.any(np.isfinite(got.astype(np.float64)) != finite):
        return False
    return same(dtype, got[finite], other[finite], multiple)


def first_difference(
    case: Case, dtype: str, got: np.ndarray, expected: np.ndarray, multiple: float, place: str = ""
) -> Finding | None:
    """The first wrong element of blocks [*mesh sizes, *local shape], or None.

    `multiple` scales the usual tolerance, and `place` tells where the array is in the result, if
    the result is more than this array.
    """
    mesh_dims = len(case.sizes)
    if got.shape != expected.shape:
        shape, right = got.shape[mesh_dims:], expected.shape[mesh_dims:]
        name = place and f" as result{place}"
        message = f"each device returns shape {shape}{name}; it must be {right}"
        return Finding(False, message, str(right), str(shape), how="wrong shape")
    wide, right = got.astype(np.float64), expected.astype(np.float64)
    wrong = ~(np.abs(wide - right) <= bound(dtype, right, multiple))
    if not wrong.any():
        return None
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    device = ", ".join(f"{axis}={i}" for axis, i in zip(case.sizes, at[:mesh_dims], strict=True))
    element = f"{list(at[mesh_dims:])}{place and f' of result{place}'}"
    count = f"{int(wrong.sum())} of {wrong.size} elements differ"
    value, target = f"{wide[at]:.6g}", f"{right[at]:.6g}"
    message = (
        f"on {case.mesh}, device {device}, element {element} is {value}; "
        f"it must be {target} ({count})"
    )
    return Finding(False, message, target, value)
