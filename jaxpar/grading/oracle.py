"""Draws the inputs of a case and computes the right results, in the judge's own process.

The judge does so after the evidence is complete, so that no answer can have seen the inputs.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxpar.contracts.base import Contract, Expected
from jaxpar.contracts.case import ArraySpec, Case, fill
from jaxpar.grading.program_export import differentiated
from jaxpar.inspector.compiled import UNOPTIMIZED
from jaxpar.mesh import parse_layout, simulate_devices

INTEGERS = {"around": (-50, 150), "large": (-(2**27), 2**27 + 1)}
Blocks = np.ndarray
"""[*mesh sizes, *local shape]: what each device holds of one array."""


@dataclass(frozen=True)
class Truth:
    """The inputs of one case, and the right results.

    Attributes:
        inputs: global arrays, in the order of the case.
        expected: the right value of each output, as numpy arrays in float64.
        cotangents: the drawn c_i of each float output y_i, stacked like its blocks; None for the
            other outputs.
        gradients: the blocks of the gradients of the sum over devices of <c_i, y_i>.
    """

    inputs: list[np.ndarray]
    expected: list[Expected]
    cotangents: list[np.ndarray | None]
    gradients: list[Blocks]


def truth(contract: Contract, index: int, seed: int) -> Truth:
    """Draws the inputs of a case, and computes the right results in float64 on one device."""
    case = contract.cases[index]
    rng = np.random.default_rng([seed, index, zlib.crc32(contract.id.encode())])
    inputs = draw_inputs(case, rng)
    if contract.poison and contract.is_drawn(index):
        contract.poison(case, inputs)
    chosen = differentiated(case, contract.gradient)

    simulate_devices(1)  # no accelerator is started for this
    with jax.enable_x64(True):
        wide = [_widen(array) for array in inputs]
        shapes, with_gradient = _compiled(contract, index, tuple(chosen))
        cotangents = [
            rng.standard_normal(e.shape) if jnp.issubdtype(e.dtype, jnp.floating) else None
            for e, _ in shapes(*wide)
        ]
        results, gradients = with_gradient(cotangents, *wide)
        return Truth(
            inputs,
            [Expected(np.asarray(b), None if w is None else np.asarray(w)) for b, w in results],
            cotangents,
            [
                blocks(np.asarray(g), case, leaf.layout)
                for (_, leaf), g in zip(chosen.values(), gradients, strict=True)
            ],
        )


def draw_inputs(case: Case, rng: np.random.Generator) -> list[np.ndarray]:
    """Draws the global arrays of a case, in its order."""
    return [_draw(leaf, rng) for _, leaf in case.arrays()]


@lru_cache(maxsize=512)
def _compiled(
    contract: Contract, index: int, chosen: tuple[int, ...]
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Returns two functions of the inputs: the types of the right results, and these results.

    The second one also computes the gradients, and is compiled once for each case.
    """
    case = contract.cases[index]
    shapes: list[Any] = []

    def types(*arrays: Any) -> list[Any]:
        shapes[:] = shapes or jax.eval_shape(lambda *a: _call(contract, case, a), *arrays)
        return shapes

    return types, jax.jit(
        lambda cotangents, *arrays: _with_gradient(contract, case, arrays, chosen, cotangents),
        compiler_options=UNOPTIMIZED,
    )


def blocks(array: np.ndarray, case: Case, layout: str) -> Blocks:
    """Returns the shards of a global array, stacked over the devices that hold them."""
    sizes = case.sizes
    parts = []
    for position in np.ndindex(*sizes.values()):
        place = dict(zip(sizes, position, strict=True))
        part = array
        for dim, (_, axes) in enumerate(parse_layout(layout)):
            for axis in axes:
                part = np.split(part, sizes[axis], axis=dim)[place[axis]]
        parts.append(part)
    return np.stack(parts).reshape((*sizes.values(), *parts[0].shape))


def _call(contract: Contract, case: Case, arrays: Sequence[Any]) -> list[tuple[Any, Any]]:
    leaves = iter(arrays)
    args = [fill(value, leaves) for value in case.args.values()]
    return [(e.blocks, e.whole) for e in contract.oracle(case, *args)]


def _with_gradient(
    contract: Contract,
    case: Case,
    arrays: Sequence[Any],
    chosen: Sequence[int],
    cotangents: Sequence[np.ndarray | None],
) -> tuple[list[tuple[Any, Any]], list[Any]]:
    def objective(*parts: Any) -> tuple[Any, Any]:
        full = list(arrays)
        for i, part in zip(chosen, parts, strict=True):
            full[i] = part
        results = _call(contract, case, full)
        pairs = zip(results, cotangents, strict=True)
        return sum(jnp.vdot(c, y) for (y, _), c in pairs if c is not None), results

    if not chosen:
        return _call(contract, case, arrays), []
    parts = [arrays[i] for i in chosen]
    gradients, results = jax.grad(objective, tuple(range(len(parts))), has_aux=True)(*parts)
    return results, list(gradients)


def _draw(leaf: ArraySpec, rng: np.random.Generator) -> np.ndarray:
    """Draws one array from the distribution that `leaf.draw` names; `ArraySpec` explains each."""
    dtype = jnp.dtype(leaf.dtype)
    if leaf.draw == "ties":
        two = rng.standard_normal(2).astype(dtype)
        values = np.append(two, np.nextafter(two.max(), dtype.type(np.inf)))
        return values[rng.integers(0, 3, leaf.shape)]
    if leaf.draw == "padded":
        rows, in_row = rng.integers(1, leaf.shape[0] // 2), math.prod(leaf.shape[1:])
        count = rows * in_row + (rng.integers(1, in_row) if in_row > 1 else 0)
        return (np.arange(math.prod(leaf.shape)) < count).reshape(leaf.shape)
    if leaf.draw == "holes":
        return rng.integers(0, 2, leaf.shape).astype(bool)
    if not jnp.issubdtype(dtype, jnp.floating):
        low, high = INTEGERS.get(leaf.draw, (0, 100))
        return np.asarray(rng.integers(low, high, leaf.shape), dtype)
    normal = np.asarray(rng.standard_normal(leaf.shape))
    if leaf.draw in ("shifted", "peaked"):
        normal += rng.choice([-100, 0, 100], (*leaf.shape[:-1], 1))
    if leaf.draw == "peaked":
        places = rng.integers(0, 4 * leaf.shape[-1], (*leaf.shape[:-1], 1))
        normal += 200 * (np.arange(leaf.shape[-1]) == places)
    if leaf.draw == "spread":
        normal *= 10.0 ** rng.integers(-3, 4, leaf.shape)
    if leaf.draw == "wide":
        normal *= 100
    if leaf.draw == "sparse":
        normal *= rng.integers(0, 2, leaf.shape)
    return (np.abs(normal) if leaf.draw in ("positive", "sparse") else normal).astype(dtype)


def _widen(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if jnp.issubdtype(array.dtype, jnp.floating) else array
