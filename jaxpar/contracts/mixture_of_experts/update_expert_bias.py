"""The bias by which experts with little to do are chosen more often, without any loss."""

from __future__ import annotations

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.axes import parse_mesh
from jaxpar.contracts.base import Communication, Contract, Expected, Limit, wrong
from jaxpar.contracts.case import ArraySpec, Case, Function, Made, Sizes
from jaxpar.contracts.draws import axis_names, mesh_of, pick
from jaxpar.contracts.mixture_of_experts.common import (
    EVERY_KIND,
    axes_of_call,
    devices_of,
    drawn_choices,
    in_groups,
    load,
    on_devices,
)
from jaxpar.mesh import Axis, entry_axes
from jaxpar.parallel import expert
from jaxpar.parallel.expert import update_expert_bias


def large_loads(drawn: Array, count: int) -> Array:
    """Expert 0 has 5 of 16 tokens, three others about the mean, 2 of 16, and the last ones less.

    About one token in 256 may choose any, so that loads near the mean are not equal to it.
    """
    experts = jnp.array([0] * 5 + [1, 1, 2, 2, 3, 3, 4, 4, 5, 6, 7])
    turn = jnp.tile(experts, len(drawn) // len(experts))[:, None]
    return jnp.where(drawn % 256 == 0, drawn // 256 % count, turn).astype(jnp.int32)


def _case(
    mesh: str,
    axis: Axis,
    *,
    t: int,
    e: int,
    top_k: int,
    rate: float,
    chosen: int = 0,
    dtype: str = "float32",
) -> Case:
    """Every device has tokens of its own; the bias is equal along `axis`, and no other axis.

    Where `e` divides all choices, so that a load may be the mean, it is a power of 2: divisions by
    others may be rounded.
    """
    sizes = parse_mesh(mesh)
    others = [name for name in sizes if name not in entry_axes(axis)]
    rows = math.prod(sizes[name] for name in others) * e
    args = {
        "bias": ArraySpec((rows,), "_".join(["e", *others]), dtype),
        "experts": drawn_choices(mesh, t, top_k, chosen or e),
    }
    return Case(mesh, args, {"rate": rate, "axis": axis})


def _case_of_large_loads(mesh: str, axis: str, t: int) -> Case:
    """Loads of 8 experts that 16 bits do not hold: integers wrap round, floats are too coarse.

    The mean is about 2**15, and the largest load is above 2**16.
    """
    e = 8
    case = _case(mesh, axis, t=t, e=e, top_k=1, rate=0.5, dtype="bfloat16")
    drawn = ArraySpec((math.prod(case.sizes.values()) * t, 1), f"t_{axis} k", "int32", "large")
    experts = Made(Function(f"{__name__}:large_loads"), (drawn, e))
    return replace(case, args={**case.args, "experts": experts})


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    """Two of three axes; in bfloat16; one device, where most experts have nothing; large loads.

    Where loads are large the bias is in bfloat16, too: they must not be counted in its dtype.
    """
    a, b, c = axis_names(rng, 3, besides=("dp", "ep", "cp", "pp"))
    mesh = mesh_of(rng, **{a: 3, b: 2, c: 2})
    low = {"dtype": "bfloat16", "rate": pick(rng, (0.75, 1.25))}
    return (
        _case(mesh, (b, a), t=5, e=12, top_k=3, rate=pick(rng, (0.125, 0.375))),
        _case(f"{c}=5", c, t=pick(rng, (211, 223)), e=pick(rng, (9, 11)), top_k=4, **low),
        _case(f"{b}=1,{a}=2", b, t=6, e=15, top_k=2, rate=0.03125, chosen=4),
        _case_of_large_loads(f"{a}=4", a, t=pick(rng, (65536, 65552))),
    )


def _against_the_load(case: Case, bias: Array, experts: Array) -> list[Expected]:
    """Each group moves its bias up where the load times e is below all choices, else down."""
    axes = axes_of_call(case)

    def of_group(bias: Array, experts: Array) -> Array:
        missing = experts.size - load(experts, len(bias)) * len(bias)
        moved = bias + case.kwargs["rate"] * jnp.sign(missing).astype(bias.dtype)
        return jnp.broadcast_to(moved, (len(experts), len(bias)))

    tokens = in_groups(case, axes, experts)
    moved = jax.vmap(of_group)(bias.reshape(len(tokens), -1), tokens)
    return [Expected(on_devices(case, axes, moved))]


def _a_number_an_expert(sizes: Sizes) -> float:
    (_, bias), *_ = sizes.case.arrays()
    n = devices_of(sizes)
    others = math.prod(sizes.case.sizes.values()) // n
    return 2 * (n - 1) / n * (bias.shape[0] // others) * 4


CONTRACT = Contract(
    kind="program",
    task="return the bias, moved by `rate` up or down against the load of the tokens of all "
    "devices",
    reference=expert.update_expert_bias,
    oracle=_against_the_load,
    cases=(
        _case("dp=4", "dp", t=8, e=8, top_k=2, rate=0.25),
        _case("ep=2,cp=3", ("ep", "cp"), t=7, e=5, top_k=1, rate=0.5),
        _case("pp=2,dp=3", "dp", t=10, e=7, top_k=2, rate=0.0625, chosen=4),
    ),
    draw=_drawn,
    communication=Communication(
        "one all-reduce of one number for each expert",
        forward=((Limit(EVERY_KIND, None, _a_number_an_expert),),),
    ),
    hints=(
        "All devices must move the bias alike, so the load is that of the tokens of all of them.",
        "jnp.bincount(experts.reshape(-1), length=e) counts this device's choices; lax.psum over "
        "the axis counts all.",
        "jnp.sign(load.mean() - load) is 1, 0 or -1: up where the load is below the mean. The bias "
        "keeps its dtype.",
    ),
    minimal="Which experts have less than the mean depends on the choices of all devices, which "
    "must be added up: e numbers.",
    harder="In a pipeline the choices of a step are those of several microbatches. Where do you "
    "add them up, and how often do you send?",
)


def _moved(bias: Array, direction: Array, rate: float) -> Array:
    return bias + rate * direction.astype(bias.dtype)


def _load_of_all(bias: Array, experts: Array, axis: Axis) -> Array:
    return lax.psum(load(experts, len(bias)), axis)


@wrong("values")
def load_of_own_tokens(bias: Array, experts: Array, *, rate: float, axis: Axis) -> Array:
    """The load is that of this device's tokens, so that the biases of devices drift apart; sum it
    over the devices."""
    own = load(experts, len(bias))
    return _moved(bias, jnp.sign(own.mean() - own), rate)


@wrong("values")
def mean_of_signs(bias: Array, experts: Array, *, rate: float, axis: Axis) -> Array:
    """Each device finds a direction of its own, and you average these; sum the load over the
    devices, then take the sign."""
    own = load(experts, len(bias))
    return _moved(bias, lax.pmean(jnp.sign(own.mean() - own), axis), rate)


@wrong("values")
def sum_of_signs(bias: Array, experts: Array, *, rate: float, axis: Axis) -> Array:
    """Each device finds a direction of its own, and you add them up; sum the load over the devices,
    then take the sign."""
    own = load(experts, len(bias))
    return _moved(bias, lax.psum(jnp.sign(own.mean() - own), axis), rate)


@wrong("values")
def sign_turned(bias: Array, experts: Array, *, rate: float, axis: Axis) -> Array:
    """The bias of busy experts rises, so that they get even more; raise that of the others."""
    return update_expert_bias(bias, experts, rate=-rate, axis=axis)


@wrong("values")
def by_how_much(bias: Array, experts: Array, *, rate: float, axis: Axis) -> Array:
    """The bias moves by the difference of the loads; it moves by `rate`, whatever that is."""
    total = _load_of_all(bias, experts, axis)
    return _moved(bias, total.mean() - total, rate)


@wrong("values")
def by_relative_load(bias: Array, experts: Array, *, rate: float, axis: Axis) -> Array:
    """The bias moves by the difference divided by the mean load; it moves by `rate`, whatever the
    difference."""
    total = _load_of_all(bias, experts, axis)
    return _moved(bias, 1 - total / total.mean(), rate)


@wrong("values")
def mean_load_is_too_much(bias: Array, experts: Array, *, rate: float, axis: Axis) -> Array:
    """The bias of an expert with exactly the mean load is lowered; it stays, as jnp.sign(0) is
    0."""
    total = _load_of_all(bias, experts, axis)
    return _moved(bias, jnp.where(total < total.mean(), 1.0, -1.0), rate)


@wrong("values")
def mean_load_is_too_little(bias: Array, experts: Array, *, rate: float, axis: Axis) -> Array:
    """The bias of an expert with exactly the mean load is raised; it stays, as jnp.sign(0) is 0."""
    total = _load_of_all(bias, experts, axis)
    return _moved(bias, jnp.where(total > total.mean(), -1.0, 1.0), rate)


@wrong("values")
def mean_of_own_load(bias: Array, experts: Array, *, rate: float, axis: Axis) -> Array:
    """The load of all devices is compared with the mean load of one; take the mean of the same
    load."""
    total = _load_of_all(bias, experts, axis)
    return _moved(bias, jnp.sign(experts.size / len(bias) - total), rate)


@wrong("values")
def idle_experts_left_out(bias: Array, experts: Array, *, rate: float, axis: Axis) -> Array:
    """Experts without any token are left out of the mean, or of the change; they need it most."""
    total = _load_of_all(bias, experts, axis)
    busy = total > 0
    return _moved(bias, jnp.where(busy, jnp.sign(total.mean(where=busy) - total), 0), rate)


@wrong("values")
def counts_in_16_bits(bias: Array, experts: Array, *, rate: float, axis: Axis) -> Array:
    """The load is summed in int16, in which a load above 32767 becomes a negative one; sum it in
    int32."""
    own = load(experts, len(bias)).astype(jnp.int16)
    total = lax.psum(own, axis).astype(jnp.int32)
    return _moved(bias, jnp.sign(total.mean() - total), rate)


@wrong("values")
def bias_of_first_choices(bias: Array, experts: Array, *, rate: float, axis: Axis) -> Array:
    """Only first choices are counted; a token loads all of its k experts."""
    return update_expert_bias(bias, experts[:, :1], rate=rate, axis=axis)


@wrong("values")
def median_for_mean(bias: Array, experts: Array, *, rate: float, axis: Axis) -> Array:
    """The load is compared with the median; compare it with the mean."""
    total = _load_of_all(bias, experts, axis)
    return _moved(bias, jnp.sign(jnp.median(total) - total), rate)


@wrong("values")
def mean_change_subtracted(bias: Array, experts: Array, *, rate: float, axis: Axis) -> Array:
    """The mean of all changes is subtracted, as in torchtitan; here a bias moves by `rate`, or
    stays."""
    total = _load_of_all(bias, experts, axis)
    change = rate * jnp.sign(total.mean() - total).astype(bias.dtype)
    return bias + change - change.mean()


@wrong("values")
def bias_begun_anew(bias: Array, experts: Array, *, rate: float, axis: Axis) -> Array:
    """The old bias is forgotten; add to it."""
    return update_expert_bias(0 * bias, experts, rate=rate, axis=axis)


@wrong("values")
def bias_in_float32(bias: Array, experts: Array, *, rate: float, axis: Axis) -> Array:
    """The result is in float32; keep the dtype of the bias."""
    wide = update_expert_bias(bias.astype(jnp.float32), experts, rate=rate, axis=axis)
    return wide.astype(jnp.float32)


@wrong("values")
def load_of_whole_mesh(bias: Array, experts: Array, *, rate: float, axis: Axis) -> Array:
    """The load is summed over all axes of the mesh; sum it over those that `axis` names."""
    names = jax.sharding.get_abstract_mesh().axis_names
    return update_expert_bias(bias, experts, rate=rate, axis=names)


@wrong("values")
def load_over_first_axis(bias: Array, experts: Array, *, rate: float, axis: Axis) -> Array:
    """The load is summed over one axis; `axis` may be several of them."""
    return update_expert_bias(bias, experts, rate=rate, axis=entry_axes(axis)[0])


@wrong("communication")
def loads_gathered(bias: Array, experts: Array, *, rate: float, axis: Axis) -> Array:
    """The loads of all devices are gathered, and added up then; an all-reduce adds them up on the
    way."""
    everyone = lax.all_gather(load(experts, len(bias)), axis)
    total = everyone.sum(axis=0)
    return _moved(bias, jnp.sign(total.mean() - total), rate)


@wrong("communication")
def choices_gathered(bias: Array, experts: Array, *, rate: float, axis: Axis) -> Array:
    """The choices of all tokens are gathered; count on each device first."""
    total = load(lax.all_gather(experts, axis, tiled=True), len(bias))
    return _moved(bias, jnp.sign(total.mean() - total), rate)


@wrong("communication")
def a_sum_for_each_axis(bias: Array, experts: Array, *, rate: float, axis: Axis) -> Array:
    """The load is summed over one axis after the other, which sends more than one sum over all:
    lax.psum takes a tuple of axes."""
    total = load(experts, len(bias))
    for one in entry_axes(axis):
        total = lax.psum(total, one)
    return _moved(bias, jnp.sign(total.mean() - total), rate)
