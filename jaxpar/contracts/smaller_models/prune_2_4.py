"""The two largest of every four neighbours in a column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.contracts.base import BadCall, Communication, Contract, Expected, wrong
from jaxpar.contracts.case import ArraySpec, Case
from jaxpar.contracts.draws import all_axes, axis_names, mesh_of, pick
from jaxpar.contracts.smaller_models.common import own_rows
from jaxpar.contracts.steps import gathered, own_shard
from jaxpar.mesh import parse_mesh, varying_axes
from jaxpar.prune import prune_2_4


def _pruned(case: Case, w: Array) -> list[Expected]:
    """Each number that fewer than two of its four neighbours beat."""
    fours = w.reshape(-1, 4, w.shape[1])
    mine, others = jnp.abs(fours)[:, :, None], jnp.abs(fours)[:, None]  # [i, mine, other, k]
    first = jnp.arange(4)[None] < jnp.arange(4)[:, None]  # the other comes first
    beaten = (others > mine) | ((others == mine) & first[None, :, :, None])
    return [own_rows(case, jnp.where(beaten.sum(axis=2) < 2, fours, 0).reshape(w.shape))]


def _case(
    mesh: str, rows: int, cols: int, dtype: str = "float32",
    draw: Literal["normal", "ties"] = "normal",
) -> Case:  # fmt: skip
    """Each device has so many rows."""
    devices = int(np.prod([*parse_mesh(mesh).values()]))
    return Case(
        mesh, {"w": ArraySpec((devices * rows, cols), f"d_{all_axes(mesh)} f", dtype, draw)}
    )


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    axis, other = axis_names(rng, 2, besides=("dp", "tp"))
    fours, cols = pick(rng, range(5, 10)), pick(rng, range(11, 17))
    return (
        _case(mesh_of(rng, **{axis: 3, other: 2}), 4 * fours, cols),
        _case(f"{axis}=5", 4 * fours + 8, cols + 6, "bfloat16", "ties"),
        _case(f"{other}=2", 4, cols + 12),
    )


def _with_equal_magnitudes(case: Case, inputs: list[np.ndarray]) -> None:
    """Gives some neighbours equal magnitudes, with other signs, and some columns zeros."""
    (w,) = inputs
    fours = w.reshape(-1, 4, w.shape[1])
    fours[:, 1, ::3] = -fours[:, 0, ::3]
    fours[:, 3, ::2] = -fours[:, 1, ::2]
    fours[:, :3, 0] = 0


CONTRACT = Contract(
    kind="program",
    task="keep the two largest magnitudes of every four neighbours in a column",
    reference=prune_2_4,
    oracle=_pruned,
    cases=(_case("dp=2", 32, 24), _case("tp=4", 12, 10, draw="ties")),
    draw=_drawn,
    poison=_with_equal_magnitudes,
    gradient=("w",),
    sharding=True,
    errors=(
        BadCall(_case("dp=2", 30, 24), "30 rows"),
        BadCall(_case("dp=2", 2, 24), "2 rows"),
    ),
    communication=Communication("nothing is sent", forward=((),)),
    hints=(
        "Reshape w to [d/4, 4, f]: then the four neighbours are dim 1.",
        "A number is kept if fewer than two of its neighbours beat it: by a larger magnitude, or "
        "by an equal one that comes first.",
        "A stable jnp.argsort of -jnp.abs(w) over dim 1 gives places from the largest; jnp.argsort "
        "of these places gives each number its rank. Keep the ranks 0 and 1.",
    ),
    minimal="All four neighbours are on the same device, so nothing need be sent.",
    harder="Which order of the rows of w would lose least? An order of the rows is free: x can be "
    "put in the same one.",
)


def _kept(
    w: Array,
    *,
    of: int = 4,
    count: int = 2,
    size: Callable[[Array], Array] = jnp.abs,
    check: bool = True,
) -> Array:
    """The largest `count` of every `of` neighbours, by their `size`."""
    if check and len(w) % 4:
        raise ValueError(f"{len(w)} rows")
    whole = jnp.pad(w, ((0, -len(w) % of), (0, 0)))
    groups = whole.reshape(-1, of, w.shape[1])
    order = jnp.argsort(-size(groups), axis=1, stable=True)
    kept = jnp.where(jnp.argsort(order, axis=1) < count, groups, 0)
    return kept.reshape(whole.shape)[: len(w)]


@wrong("values")
def along_the_rows(w: Array) -> Array:
    """The four are neighbours in a row; a product sums over the rows of w, so take four neighbours
    in a column."""
    if len(w) % 4:
        raise ValueError(f"{len(w)} rows")
    return _kept(w.T, check=False).T


@wrong("values")
def four_of_eight(w: Array) -> Array:
    """Four of every eight are kept, which may be all of the first four; the hardware takes two of
    every four."""
    return _kept(w, of=8, count=4)


@wrong("values")
def one_of_two(w: Array) -> Array:
    """One of every two is kept; the two largest of four may be neighbours."""
    return _kept(w, of=2, count=1)


@wrong("values")
def one_of_four(w: Array) -> Array:
    """One of every four is kept; keep two."""
    return _kept(w, count=1)


@wrong("values")
def three_of_four(w: Array) -> Array:
    """Three of every four are kept; keep two."""
    return _kept(w, count=3)


@wrong("values")
def smallest_kept(w: Array) -> Array:
    """The two smallest magnitudes are kept; keep the largest."""
    return _kept(w, size=lambda x: -jnp.abs(x))


@wrong("values")
def largest_with_sign(w: Array) -> Array:
    """The two largest numbers are kept, so that -5 loses against 1; compare magnitudes, with
    jnp.abs."""
    return _kept(w, size=lambda x: x)


@wrong("values")
def last_of_equals(w: Array) -> Array:
    """Of equal magnitudes the last is kept; keep the first, as a stable jnp.argsort of -jnp.abs(w)
    does."""
    fours = _checked(w).reshape(-1, 4, w.shape[1])[:, ::-1]
    return _kept(fours.reshape(w.shape)).reshape(fours.shape)[:, ::-1].reshape(w.shape)


@wrong("values")
def all_equals_kept(w: Array) -> Array:
    """All numbers that are as large as the second largest are kept, which may be three or four; of
    equal ones the first two are kept."""
    fours = _checked(w).reshape(-1, 4, w.shape[1])
    second = jnp.sort(jnp.abs(fours), axis=1)[:, 2:3]
    return jnp.where(jnp.abs(fours) >= second, fours, 0).reshape(w.shape)


@wrong("values")
def one_threshold(w: Array) -> Array:
    """The larger half of all numbers is kept, wherever they are; keep two of every four."""
    _checked(w)
    return jnp.where(jnp.abs(w) >= jnp.median(jnp.abs(w)), w, 0)


@wrong("values")
def four_far_apart(w: Array) -> Array:
    """The four are a quarter of the rows apart; they are neighbours, rows 0 to 3, 4 to 7 and so
    on."""
    apart = _checked(w).reshape(4, -1, w.shape[1])
    pruned = _kept(jnp.swapaxes(apart, 0, 1).reshape(w.shape)).reshape(-1, 4, w.shape[1])
    return jnp.swapaxes(pruned, 0, 1).reshape(w.shape)


@wrong("values")
def ones_and_zeros(w: Array) -> Array:
    """You return which numbers are kept, as ones and zeros; return the numbers themselves."""
    return jnp.sign(jnp.abs(_kept(w)))


@wrong("values")
def only_the_kept(w: Array) -> Array:
    """You return the two numbers of every four, in half as many rows; return zeros for the
    others."""
    fours = _kept(w).reshape(-1, 4, w.shape[1])
    order = jnp.argsort(-jnp.abs(fours), axis=1, stable=True)[:, :2]
    return jnp.take_along_axis(fours, order, axis=1).reshape(-1, w.shape[1])


@wrong("values")
def kept_twice_as_large(w: Array) -> Array:
    """What is kept is multiplied by 2, as dropout does; weights stay as they are."""
    return 2 * _kept(w)


@wrong("gradient")
def gradient_of_all(w: Array) -> Array:
    """The gradient passes to what was set to 0, too; a number that becomes 0 whatever it was has
    none."""
    return w + lax.stop_gradient(_kept(w) - w)


@wrong("gradient")
def without_a_gradient(w: Array) -> Array:
    """The gradient stops; what is kept has the gradient of the result."""
    return lax.stop_gradient(_kept(w))


@wrong("communication")
def rows_gathered(w: Array) -> Array:
    """The rows of all devices are gathered; four neighbours are on one device, so send nothing."""
    pruned = _kept(_checked(w))
    for axis in sorted(varying_axes(w)):
        pruned = own_shard(gathered(pruned, axis), axis)
    return pruned


@wrong("errors")
def rest_as_it_is(w: Array) -> Array:
    """Where 4 does not divide the rows, raise ValueError; no device takes a part of four."""
    return _kept(w, check=False)


def _checked(w: Array) -> Array:
    if len(w) % 4:
        raise ValueError(f"{len(w)} rows")
    return w
