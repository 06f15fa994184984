"""What the exercises of the lesson on low communication have in common."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxpar.contracts.blocks import axis_first
from jaxpar.contracts.case import Case, Sizes, array_leaves


def flat(blocks: Array) -> Array:
    """The numbers of blocks [*, block] one after the other, as gradients are flattened."""
    return blocks.reshape(-1)


def own_number(numbers: Array) -> Array:
    """One value for each device, which is a scalar there."""
    return numbers.squeeze()


def groups(case: Case, x: Array) -> Array:
    """What the devices hold of a flat array: [n, *sizes of the other mesh axes, numbers]."""
    return axis_first(case, x.reshape(-1))


def held(case: Case, blocks: np.ndarray) -> np.ndarray:
    """The blocks of an output, which are in mesh order, in float64 and as `groups` orders them."""
    place = list(case.sizes).index(case.kwargs["axis"])
    return np.moveaxis(np.asarray(blocks, np.float64), place, 0)


def given(case: Case, array: np.ndarray) -> np.ndarray:
    """What the devices are given of a flat array, in float64 and as `groups` orders it."""
    by_device = np.asarray(array, np.float64).reshape(*case.sizes.values(), -1)
    return held(case, by_device)


def where_in(case: Case, at: tuple[int, ...]) -> str:
    """A place in the order of `groups`, in words."""
    others = [axis for axis in case.sizes if axis != case.kwargs["axis"]]
    names = (case.kwargs["axis"], *others)
    device = ", ".join(f"{name}={i}" for name, i in zip(names, at, strict=False))
    return f"on device {device}, number {at[-1]}"


def first_above(values: np.ndarray, bound: np.ndarray) -> tuple[int, ...] | None:
    """The first place where a value is above its bound, or NaN; None if there is none."""
    wrong = ~(values <= bound)
    return tuple(map(int, np.argwhere(wrong)[0])) if wrong.any() else None


def all_reduce_bytes(name: str) -> Callable[[Sizes], float]:
    """Wire bytes of one all-reduce of what a device has of an argument, padded to n chunks."""

    def wire_bytes(sizes: Sizes) -> float:
        n = sizes.n()
        leaves = zip(sizes.leaf_bytes(name), array_leaves(sizes.case.args[name]), strict=True)
        chunks = (
            -(-size // (n * _item_bytes(leaf.dtype))) * _item_bytes(leaf.dtype)
            for size, leaf in leaves
        )
        return 2 * (n - 1) * sum(chunks)

    return wire_bytes


def _item_bytes(dtype: str) -> int:
    return jnp.dtype(dtype).itemsize
