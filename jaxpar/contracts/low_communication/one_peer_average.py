"""The mean of a device's parameters and of another one's, which is another one in each step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.contracts.base import BadCall, Communication, Contract, Expected, Limit, wrong
from jaxpar.contracts.blocks import axis_first, mesh_order
from jaxpar.contracts.case import ArraySpec, Case
from jaxpar.contracts.draws import all_axes, axis_names, mesh_of, pick
from jaxpar.contracts.losses import on_each_device
from jaxpar.contracts.steps import gathered, hop
from jaxpar.mesh import parse_mesh
from jaxpar.parallel import local


def _averaged(case: Case, params: Any) -> list[Expected]:
    n, step = case.sizes[case.kwargs["axis"]], case.kwargs["step"]
    distance = 2 ** (step % (n.bit_length() - 1)) if n > 1 else 0

    def of_leaf(leaf: Array) -> Expected:
        own = axis_first(case, leaf)
        return Expected(mesh_order(case, (own + jnp.roll(own, distance, axis=0)) / 2))

    return [of_leaf(leaf) for leaf in jax.tree.leaves(params)]


def _case(mesh: str, params: Any, axis: str, step: int) -> Case:
    devices = int(np.prod([*parse_mesh(mesh).values()]))
    own = on_each_device(params, devices, all_axes(mesh))
    return Case(mesh, {"params": own}, {"axis": axis, "step": step})


def _params(
    rows: int, columns: int, dtype: str = "float32", heads: tuple[int, int] = (3, 2)
) -> dict[str, Any]:
    return {
        "w": ArraySpec((rows, columns), "d f", dtype),
        "layers": [ArraySpec((columns,), "f"), ArraySpec((*heads, rows), "a h d", dtype)],
    }


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    """bfloat16, far on in training; two devices; one device."""
    axis, other = axis_names(rng, 2, besides=("dp", "tp"))
    rows, columns = pick(rng, (5, 7)), pick(rng, (9, 11))
    step, wide = 4 * pick(rng, range(250, 300)) + 2, _params(columns, rows, heads=(2, 3))
    return (
        _case(mesh_of(rng, **{axis: 4, other: 3}), _params(rows, columns, "bfloat16"), axis, step),
        _case(f"{other}=3,{axis}=2", wide, axis, pick(rng, (5, 6))),
        _case(f"{axis}=1,{other}=2", _params(rows, rows), axis, pick(rng, (3, 4))),
    )


_FLAT = ArraySpec((8,), "d")

CONTRACT = Contract(
    kind="program",
    task="return the mean of params here and on the device 2**(step mod log2 n) places before",
    reference=local.one_peer_average,
    oracle=_averaged,
    cases=(
        _case("dp=8", _params(8, 8), "dp", 1),
        _case("dp=8", _params(5, 8), "dp", 4),
        _case("dp=2,tp=4", _params(6, 10), "tp", 4),
    ),
    draw=_drawn,
    gradient=("params",),
    errors=(
        BadCall(_case("dp=6", _FLAT, "dp", 0), "n = 6"),
        BadCall(_case("dp=3,tp=2", _FLAT, "dp", 1), "n = 3"),
        BadCall(_case("ep=12", _FLAT, "ep", 5), "n = 12"),
    ),
    communication=Communication(
        "one permute's bytes of params",
        forward=((Limit(("permute",), "axis", lambda s: s.bytes("params")),),),
        backward="forward",
    ),
    hints=(
        "Every device sends to one other and receives from one other, so this is a permute. With 8 "
        "devices the distances are 1, 2 and 4, and then 1 again.",
        "`step` is a number of Python, so the distance is one, too: 2 ** (step % m), where m is "
        "log2 of lax.axis_size(axis). With one device m is 0, and there is nothing to do.",
        "jax.tree.map over the leaves, and lax.ppermute(leaf, axis, [(i, (i + distance) % n) for i "
        "in range(n)]) for each.",
    ),
    minimal="A device cannot average with another one without its parameters: their bytes once, "
    "where an all-reduce sends them almost twice. After log2 n steps all have the mean of all.",
    harder="Let n be any number: take half of this device's parameters and weights that add up to "
    "1, and find distances after which all have the mean.",
)


def _half(params: Any, arrived: Callable[[Array], Array]) -> Any:
    return jax.tree.map(lambda leaf: (leaf + arrived(leaf)) / 2, params)


def _steps(axis: str) -> int:
    """log2 n, after checking that it is a whole number."""
    n = lax.axis_size(axis)
    if n & (n - 1):
        raise ValueError(f"n = {n}")
    return n.bit_length() - 1


def _distance(axis: str, step: int) -> int:
    return 2 ** (step % max(1, _steps(axis)))


def _right(params: Any, axis: str, step: int) -> Any:
    distance = _distance(axis, step)
    return _half(params, lambda leaf: hop(leaf, axis, distance))


@wrong("values")
def always_the_neighbour(params: Any, *, axis: str, step: int) -> Any:
    """The distance is 1 in every step, so that news goes round the ring one place at a time; it
    must be 1, 2, 4 and so on."""
    _steps(axis)
    return _half(params, lambda leaf: hop(leaf, axis))


@wrong("values")
def from_the_other_side(params: Any, *, axis: str, step: int) -> Any:
    """Each device receives from the one behind it; device i receives from i - d, so that device i
    sends to i + d."""
    distance = _distance(axis, step)
    return _half(params, lambda leaf: hop(leaf, axis, -distance))


@wrong("values")
def distance_of_the_step(params: Any, *, axis: str, step: int) -> Any:
    """The distance is the number of the step; it is a power of two, 2 ** (step mod log2 n)."""
    _steps(axis)
    return _half(params, lambda leaf: hop(leaf, axis, step))


@wrong("values")
def twice_the_step(params: Any, *, axis: str, step: int) -> Any:
    """The distance is 2 * (step mod log2 n); it is 2 ** (step mod log2 n)."""
    distance = 2 * (step % max(1, _steps(axis)))
    return _half(params, lambda leaf: hop(leaf, axis, distance))


@wrong("values")
def distances_begin_with_two(params: Any, *, axis: str, step: int) -> Any:
    """The distances are 2, 4, 8; begin with 2 ** 0 = 1."""
    distance = _distance(axis, step)
    return _half(params, lambda leaf: hop(leaf, axis, 2 * distance))


@wrong("values")
def distances_never_begin_again(params: Any, *, axis: str, step: int) -> Any:
    """After log2 n steps the distance is a multiple of n, and each device averages with itself;
    take the step mod log2 n."""
    _steps(axis)
    return _half(params, lambda leaf: hop(leaf, axis, 2**step))


@wrong("values")
def step_modulo_n(params: Any, *, axis: str, step: int) -> Any:
    """The step is taken mod n; there are log2 n distances, so take it mod log2 n."""
    _steps(axis)
    distance = 2 ** (step % lax.axis_size(axis))
    return _half(params, lambda leaf: hop(leaf, axis, distance))


@wrong("values")
def partners_swap(params: Any, *, axis: str, step: int) -> Any:
    """Device i receives from i ^ d, as in recursive doubling; here it receives from i - d, mod
    n."""
    n, distance = lax.axis_size(axis), _distance(axis, step)
    if n == 1:
        return params
    pairs = [(i, i ^ distance) for i in range(n)]
    return _half(params, lambda leaf: lax.ppermute(leaf, axis, pairs))


@wrong("values")
def no_wrap_around(params: Any, *, axis: str, step: int) -> Any:
    """The last devices send to nobody, so that the first receive zeros; take i + d mod n."""
    n, distance = lax.axis_size(axis), _distance(axis, step)
    pairs = [(i, i + distance) for i in range(n - distance)]
    return _half(params, lambda leaf: lax.ppermute(leaf, axis, pairs))


@wrong("values")
def sum_of_two(params: Any, *, axis: str, step: int) -> Any:
    """The two are added and not halved."""
    return jax.tree.map(lambda leaf: 2 * leaf, _right(params, axis, step))


@wrong("values")
def divided_by_n(params: Any, *, axis: str, step: int) -> Any:
    """The sum of two is divided by n; divide by 2."""
    n = lax.axis_size(axis)
    return jax.tree.map(lambda leaf: leaf * 2 / n, _right(params, axis, step))


@wrong("values")
def parameters_of_the_peer(params: Any, *, axis: str, step: int) -> Any:
    """Each device takes the parameters of the other one; take the mean of both."""
    distance = _distance(axis, step)
    return jax.tree.map(lambda leaf: hop(leaf, axis, distance), params)


@wrong("values")
def both_neighbours(params: Any, *, axis: str, step: int) -> Any:
    """The mean is of three: this device and those on both sides; take one peer, at half the
    bytes."""
    distance = _distance(axis, step)
    return jax.tree.map(
        lambda leaf: (leaf + hop(leaf, axis, distance) + hop(leaf, axis, -distance)) / 3, params
    )


@wrong("values")
def mean_of_all(params: Any, *, axis: str, step: int) -> Any:
    """The mean is of all devices, which costs an all-reduce; take that of two."""
    _steps(axis)
    return lax.pmean(params, axis)


@wrong("values")
def one_device_fails(params: Any, *, axis: str, step: int) -> Any:
    """With one device log2 n is 0, and step mod 0 fails; return params there."""
    distance = 2 ** (step % _steps(axis))
    return _half(params, lambda leaf: hop(leaf, axis, distance))


@wrong("values")
def averages_widened(params: Any, *, axis: str, step: int) -> Any:
    """Leaves of bfloat16 come out as float32; each keeps its dtype."""
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float32), _right(params, axis, step))


@wrong("gradient")
def peer_without_gradient(params: Any, *, axis: str, step: int) -> Any:
    """No gradient passes through what arrives; leave it to lax.ppermute, whose transpose sends it
    back."""
    distance = _distance(axis, step)
    return _half(params, lambda leaf: lax.stop_gradient(hop(leaf, axis, distance)))


@wrong("communication")
def everything_gathered(params: Any, *, axis: str, step: int) -> Any:
    """The parameters of all devices are gathered, and one of them is used; send them to one device,
    with lax.ppermute."""
    n, distance = lax.axis_size(axis), _distance(axis, step)
    other = (lax.axis_index(axis) - distance) % n
    return _half(params, lambda leaf: gathered(leaf[None], axis)[other])


@wrong("communication")
def sent_as_float32(params: Any, *, axis: str, step: int) -> Any:
    """Leaves are sent as float32 whatever they are; send them in their own dtype, of which bfloat16
    takes half the bytes."""
    distance = _distance(axis, step)
    return _half(
        params, lambda leaf: hop(leaf.astype(jnp.float32), axis, distance).astype(leaf.dtype)
    )


@wrong("communication")
def sent_place_by_place(params: Any, *, axis: str, step: int) -> Any:
    """What is sent goes from neighbour to neighbour, d times; a permute reaches any device."""
    distance = _distance(axis, step)

    def arrived(leaf: Array) -> Array:
        for _ in range(distance):
            leaf = hop(leaf, axis)
        return leaf

    return _half(params, arrived)


@wrong("errors")
def any_number_of_devices(params: Any, *, axis: str, step: int) -> Any:
    """Where n is not a power of two, log2 n steps do not reach all devices; raise ValueError."""
    n = lax.axis_size(axis)
    distance = 2 ** (step % max(1, (n - 1).bit_length()))
    return _half(params, lambda leaf: hop(leaf, axis, distance))
