"""An all-to-all, which is a transpose across devices, built from permutes."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Shaped

from jaxpar import collectives
from jaxpar.contracts.base import Communication, Contract, Expected, Limit, wrong
from jaxpar.contracts.blocks import axis_first, mesh_order, ring_bytes
from jaxpar.contracts.case import ArraySpec, Case
from jaxpar.contracts.draws import all_axes, axis_names, pick
from jaxpar.contracts.steps import hop
from jaxpar.contracts.variants import Variant


def _exchanged(case: Case, x: Array) -> list[Expected]:
    blocks = axis_first(case, x)  # [n, *others, n, ...]
    return [Expected(mesh_order(case, jnp.swapaxes(blocks, 0, len(case.sizes))))]


def all_to_all_by_permutes(x: Shaped[Array, "n ..."], *, axis: str) -> Shaped[Array, "n ..."]:
    """Chunk j of x to device n-1-j, in n - 1 steps: in step k, device i sends to device i + k.

    Math: y[j] = x_j[n-1-i] on device i
    """
    return collectives.all_to_all_by_permutes(x[::-1], axis=axis)


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    """The axis first in its mesh, of one device, and of more devices than in the stub."""
    axis, other = axis_names(rng, 2, besides=("dp", "tp"))
    n, many = pick(rng, (5, 6)), pick(rng, range(9, 13))
    mesh, wide = f"{axis}={n},{other}=2", pick(rng, (7, 9, 11))
    several = ArraySpec((2 * n * n, 5, 3, wide), f"n_{all_axes(mesh)} h t d", "bfloat16")
    alone = ArraySpec((2,), f"n_{axis}_{other}", "int32", "large")  # a chunk is a scalar
    wider = ArraySpec((many * many, wide), f"n_{axis} d", "int32", "large")
    return (
        Case(mesh, {"x": several}, {"axis": axis}),
        Case(f"{axis}=1,{other}=2", {"x": alone}, {"axis": axis}),
        Case(f"{axis}={many}", {"x": wider}, {"axis": axis}),
    )


CONTRACT = Contract(
    kind="program",
    task="send chunk j of x to device j by lax.ppermute only; y[j] came from device j",
    reference=collectives.all_to_all_by_permutes,
    oracle=_exchanged,
    cases=(
        Case("dp=8", {"x": ArraySpec((8 * 8, 6), "n_dp d")}, {"axis": "dp"}),
        Case("dp=2,tp=3", {"x": ArraySpec((6 * 3, 4, 2), "n_dp_tp t d")}, {"axis": "tp"}),
    ),
    draw=_drawn,
    gradient=("x",),
    communication=Communication(
        "permutes only, (n-1)/n of x in all",
        forward=((Limit(("permute",), "axis", ring_bytes(1)),),),
        backward="forward",
    ),
    hints=(
        "Draw 4 devices with 4 chunks each. In one permute every device sends one chunk.",
        "In step k, let every device i send to device (i + k) % n: which chunk of x is that?",
        "Send x[(i + k) % n]; the chunk that you receive came from device (i - k) % n, so store it "
        "in y at that index.",
    ),
    minimal="n-1 of the n chunks belong to other devices, and each crosses the wire once.",
    harder="For n a power of two, let device i exchange chunks with device i ^ k in step k, so "
    "that both directions of a link are used.",
    variants=(
        Variant(
            all_to_all_by_permutes,
            "send chunk j of x to device n-1-j by lax.ppermute only; y[j] came from device j",
            before=jnp.flipud,
        ),
    ),
)


@wrong("values")
def in_arrival_order(x: Array, *, axis: str) -> Array:
    """Chunks are stacked in the order of the steps; the one from device j goes to y[j]."""
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    arrived = [x[i]]
    for k in range(1, n):
        arrived.append(hop(x[(i + k) % n], axis, k))
    return jnp.stack(arrived)


def _steps(x: Array, axis: str, towards: int, back: int) -> Array:
    """In step k, chunk i + towards * k is sent k places on; what arrives is put at i + back * k."""
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    y = jnp.zeros_like(x).at[i].set(x[i])
    for k in range(1, n):
        chunk = hop(x[(i + towards * k) % n], axis, k)
        y = y.at[(i + back * k) % n].set(chunk)
    return y


@wrong("values")
def chunk_for_another(x: Array, *, axis: str) -> Array:
    """Step k sends chunk i-k to device i+k, and it ends up on the wrong device; device i+k gets
    chunk i+k."""
    return _steps(x, axis, towards=-1, back=-1)


@wrong("values")
def placed_by_target(x: Array, *, axis: str) -> Array:
    """You store the chunk received in step k at y[i+k], by the device that you sent to; it came
    from device i-k, so store it at y[i-k]."""
    return _steps(x, axis, towards=1, back=1)


@wrong("values")
def own_chunk_to_all(x: Array, *, axis: str) -> Array:
    """Each device sends its chunk i to all the others; send chunk j to device j."""
    return _steps(x, axis, towards=0, back=-1)


@wrong("values")
def chunk_by_step(x: Array, *, axis: str) -> Array:
    """In step k every device sends its chunk k; device i must send chunk i+k, to device i+k."""
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    y = jnp.zeros_like(x)
    for k in range(n):
        y = y.at[(i - k) % n].set(hop(x[k], axis, k))
    return y


@wrong("values")
def keeps_nothing(x: Array, *, axis: str) -> Array:
    """You leave y[i] on device i empty; a device keeps its own chunk there."""
    y = _steps(x, axis, towards=1, back=-1)
    return y.at[lax.axis_index(axis)].set(0)


@wrong("values")
def eight_devices_at_most(x: Array, *, axis: str) -> Array:
    """Chunks from more than seven steps away are missing; an axis may have more than eight devices,
    so take n - 1 steps."""
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    y = jnp.zeros_like(x).at[i].set(x[i])
    for k in range(1, min(n, 8)):
        y = y.at[(i - k) % n].set(hop(x[(i + k) % n], axis, k))
    return y


@wrong("values")
def collects_in_float32(x: Array, *, axis: str) -> Array:
    """The result is collected in float32, whatever the dtype of x; make it with jnp.zeros_like(x)
    or jnp.stack."""
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    y = jnp.zeros(x.shape).at[i].set(x[i].astype(jnp.float32))
    for k in range(1, n):
        y = y.at[(i - k) % n].set(hop(x[(i + k) % n], axis, k).astype(jnp.float32))
    return y


@wrong("values")
def needs_a_step(x: Array, *, axis: str) -> Array:
    """On an axis of one device no chunk arrives, and this fails; the device keeps its own chunk."""
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    arrived = jnp.stack([hop(x[(i + k) % n], axis, k) for k in range(1, n)])
    return jnp.roll(jnp.concatenate([x[i][None], arrived])[::-1], i + 1, axis=0)


@wrong("gradient")
def exchange_cuts_gradient(x: Array, *, axis: str) -> Array:
    """The gradient does not come back with the chunks; each returns to the device that sent it."""
    return _steps(lax.stop_gradient(x), axis, towards=1, back=-1)


@wrong("communication")
def one_collective(x: Array, *, axis: str) -> Array:
    """lax.all_to_all does it in one call; build it from lax.ppermute here."""
    return lax.all_to_all(x, axis, split_axis=0, concat_axis=0)


@wrong("communication")
def gathers_everything(x: Array, *, axis: str) -> Array:
    """Every device's whole x is gathered for one chunk of each: n times the bytes needed, and not
    by permutes."""
    return lax.all_gather(x, axis)[:, lax.axis_index(axis)]


@wrong("communication")
def whole_x_each_step(x: Array, *, axis: str) -> Array:
    """Each step sends all of x where one chunk is wanted: n times the bytes needed."""
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    y = jnp.zeros_like(x).at[i].set(x[i])
    for k in range(1, n):
        y = y.at[(i - k) % n].set(hop(x, axis, k)[i])
    return y
