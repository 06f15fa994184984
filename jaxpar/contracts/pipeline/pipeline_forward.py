"""Microbatches through all stages of a pipeline, one in each tick."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.contracts.base import (
    Communication,
    Contract,
    Expected,
    FlopsLimit,
    Limit,
    MemoryLimit,
    wrong,
)
from jaxpar.contracts.blocks import mesh_order
from jaxpar.contracts.case import ArraySpec, Case, Function, Sizes
from jaxpar.contracts.draws import axis_names, pick
from jaxpar.contracts.steps import Step
from jaxpar.parallel import gpipe


def _through_all_stages(
    case: Case, stage_fn: Callable, params: Any, microbatches: Array
) -> list[Expected]:
    """Device 0's microbatches through all stages: on the last device, zeros on the others."""
    n, others = Sizes(case).n(), list(case.sizes.values())[1:]
    y = microbatches.reshape(n, -1, *microbatches.shape[1:])[0]
    for i in range(n):
        stage = jax.tree.map(lambda leaf, i=i: jnp.split(leaf, n)[i], params)
        y = jax.vmap(partial(stage_fn, stage))(y)
    blocks = jnp.concatenate([jnp.zeros((n - 1, *y.shape), y.dtype), y[None]])
    blocks = blocks.reshape(n, *[1] * len(others), *y.shape)
    return [Expected(mesh_order(case, jnp.broadcast_to(blocks, (n, *others, *y.shape))))]


def _microbatches(sizes: Sizes) -> int:
    """How many microbatches device 0 has: m."""
    return sizes.case.args["microbatches"].shape[0] // sizes.n()


def _tick_count(sizes: Sizes) -> int:
    return _microbatches(sizes) + sizes.n() - 1


def _one_each_tick(sizes: Sizes) -> int:
    """Wire bytes of one microbatch in each tick."""
    return _tick_count(sizes) * sizes.bytes("microbatches") // _microbatches(sizes)


def _mlp_case(
    mesh: str, stages: int, d: int, f: int, microbatches: ArraySpec, axis: str = "pp"
) -> Case:
    """A case with a residual MLP as each stage."""
    args = {
        "stage_fn": Function("jaxpar.contracts.layers:residual_mlp"),
        "params": {
            "up": ArraySpec((stages * d, f), f"d_{axis} f"),
            "down": ArraySpec((stages * f, d), f"f_{axis} d"),
        },
        "microbatches": microbatches,
    }
    return Case(mesh, args, {"axis": axis})


def _layer_case(mesh: str, stages: int, layer: str, microbatches: ArraySpec, axis: str) -> Case:
    """A case with a square matrix and a vector as the parameters of each stage."""
    d, dtype = microbatches.shape[-1], microbatches.dtype
    params = (
        ArraySpec((stages * d, d), f"d_{axis} f", dtype),
        ArraySpec((stages * d,), f"f_{axis}", dtype),
    )
    stage_fn = Function(f"jaxpar.contracts.layers:{layer}")
    args = {"stage_fn": stage_fn, "params": params, "microbatches": microbatches}
    return Case(mesh, args, {"axis": axis})


_TO_NEXT = Limit(("permute",), "axis", _one_each_tick, times=_tick_count, neighbours=True)


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    axis, other = axis_names(rng, 2, besides=("pp", "node", "device"))
    n, m, d = pick(rng, (5, 7)), pick(rng, (7, 9, 11)), pick(rng, range(6, 10))

    # Small, and a layer that leaves little of x: the tolerance of bfloat16 grows with the size.
    several = ArraySpec((n * m, 4, d), f"m_{axis} b d", "bfloat16")
    alone = ArraySpec((3, 3, 6), f"m_{axis} b d")
    one_microbatch = ArraySpec((2 * 1, 2, 3, 5, 14), f"m_{axis} b s t d")
    return (
        _layer_case(f"{axis}={n}", n, "tanh_layer", several, axis),
        _layer_case(f"{axis}=1,{other}=2", 1, "scaled_projection", alone, axis),
        _mlp_case(f"{axis}=2", 2, d=14, f=10, microbatches=one_microbatch, axis=axis),
    )


def _spoil_all_but_first(case: Case, inputs: list[np.ndarray]) -> None:
    """Puts NaN into the microbatches of all devices but device 0."""
    microbatches = inputs[-1]
    microbatches[len(microbatches) // Sizes(case).n() :] = np.nan


CONTRACT = Contract(
    kind="program",
    task="return device 0's microbatches after all stages, on the last device: one each tick",
    reference=gpipe.pipeline_forward,
    oracle=_through_all_stages,
    cases=(
        _mlp_case("pp=4", 4, d=16, f=32, microbatches=ArraySpec((4 * 6, 2, 8, 16), "m_pp b t d")),
        Case(
            "node=3,device=2",
            {
                "stage_fn": Function("jaxpar.contracts.layers:tanh_layer"),
                "params": (ArraySpec((3 * 24, 24), "d_node f"), ArraySpec((3 * 24,), "f_node")),
                "microbatches": ArraySpec((3 * 2, 20, 24), "m_node b d"),
            },
            {"axis": "node"},
        ),
    ),
    draw=_drawn,
    poison=_spoil_all_but_first,
    gradient=("params", "microbatches"),
    communication=Communication(
        "m+n-1 permutes of one microbatch to a neighbour, and as many backward; nothing else",
        forward=((_TO_NEXT,),),
        backward=((_TO_NEXT,),),
    ),
    memory=MemoryLimit(
        "what m+n-1 ticks keep: at most twice the library's bytes of intermediate results, "
        "forward and backward",
        multiple=2,
        programs=("forward", "gradient"),
    ),
    flops=FlopsLimit(
        "one call of stage_fn in each tick: at most 1.1 times the library's flops of matrix "
        "products; a gradient may compute the forward pass again",
        multiple=1.1,
        programs=("forward", "gradient"),
        may_recompute=True,
    ),
    tolerance=2,  # each stage rounds to bfloat16, and the gradient once more
    hints=(
        "All devices do the same in a tick: take a microbatch, call stage_fn, send the result to "
        "the next device. Device 0 takes microbatch t at tick t, the others what arrived.",
        "The last device makes the result of microbatch 0 at tick n-1, that of the last one at "
        "tick m+n-2. What the devices make before and after that is of no use, and must not be "
        "returned.",
        "lax.scan over m+n-1 ticks: carry what arrived by lax.ppermute, and stack what each tick "
        "makes. The start must vary over `axis`: make it from something that does, or cast it with "
        "lax.pcast.",
    ),
    minimal="Each microbatch crosses each of the n-1 boundaries once. A loop that sends in every "
    "tick sends m+n-1 times: n-1 of them are from ticks in which a device waits.",
    harder="Let a device that waits compute nothing, by lax.cond, and look at temp bytes of the "
    "gradient: weights are kept in every tick, unless jax.checkpoint is around the cond.",
)


StageFn = Callable[[Any, Array], Array]


def to_next(x: Array, axis: str) -> Array:
    """What arrives when each device sends its x to the next one, and the last to nobody."""
    return lax.ppermute(x, axis, [(i, i + 1) for i in range(lax.axis_size(axis) - 1)])


def _on_last(y: Array, axis: str) -> Array:
    return jnp.where(lax.axis_index(axis) == lax.axis_size(axis) - 1, y, 0)


def _ticks(stage_fn: StageFn, params: Any, fed: Array, axis: str, send: Step = to_next) -> Array:
    """The results of this device, tick by tick, if device 0 takes `fed`."""

    def tick(received: Array, own: Array) -> tuple[Array, Array]:
        y = stage_fn(params, jnp.where(lax.axis_index(axis) == 0, own, received))
        return send(y, axis), y

    return lax.scan(tick, jnp.zeros_like(fed[0]), fed)[1]


def _fed(microbatches: Array, ticks: int) -> Array:
    """What device 0 takes in each tick; the last microbatch again where there is none."""
    return microbatches[jnp.minimum(jnp.arange(ticks), len(microbatches) - 1)]


def _among_zeros(microbatches: Array, ticks: int, *, first: int) -> Array:
    """What device 0 takes in each tick: microbatch 0 at tick `first`, zeros where there is none."""
    zeros = jnp.zeros_like(microbatches, shape=(ticks, *microbatches.shape[1:]))
    fed = jnp.concatenate([zeros[:first], microbatches, zeros])
    return fed[:ticks]


def _all_ticks(microbatches: Array, axis: str) -> Array:
    return _fed(microbatches, len(microbatches) + lax.axis_size(axis) - 1)


@wrong("values")
def outputs_too_early(stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str) -> Array:
    """The outputs are those of the first m ticks; the last device makes the first result at tick
    n-1, so leave out the n-1 ticks before."""
    made = _ticks(stage_fn, params, _all_ticks(microbatches, axis), axis)
    return _on_last(made[: len(microbatches)], axis)


def _results(made: Array, microbatches: Array, axis: str) -> Array:
    """The results of the last device, from that of microbatch 0 on; zeros for missing ticks."""
    made = made[lax.axis_size(axis) - 1 :]
    missing = jnp.zeros_like(microbatches, shape=(len(microbatches) - len(made), *made.shape[1:]))
    return _on_last(jnp.concatenate([made, missing]), axis)


@wrong("values")
def one_tick_too_few(stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str) -> Array:
    """The last microbatch is missing: it enters at tick m-1, and needs n-1 ticks more; run m+n-1
    ticks."""
    made = _ticks(stage_fn, params, _all_ticks(microbatches, axis)[:-1], axis)
    return _results(made, microbatches, axis)


@wrong("values")
def m_ticks_only(stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str) -> Array:
    """The loop ends when the last microbatch enters; run n-1 ticks more, until it has gone through
    all stages."""
    return _results(_ticks(stage_fn, params, microbatches, axis), microbatches, axis)


def piped(
    stage_fn: StageFn, params: Any, microbatches: Array, axis: str, send: Step = to_next
) -> Array:
    """The right results, if `send` does what `to_next` does."""
    made = _ticks(stage_fn, params, _all_ticks(microbatches, axis), axis, send)
    return _results(made, microbatches, axis)


@wrong("values")
def sends_backwards(stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str) -> Array:
    """Results go to the previous device; the pairs of lax.ppermute are (source, target), so send
    from i to i+1."""

    def send(x: Array, axis: str) -> Array:
        return lax.ppermute(x, axis, [(i + 1, i) for i in range(lax.axis_size(axis) - 1)])

    return piped(stage_fn, params, microbatches, axis, send)


@wrong("values")
def outputs_everywhere(stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str) -> Array:
    """Devices before the last return what they made for others; return zeros there, by jnp.where on
    lax.axis_index."""
    made = _ticks(stage_fn, params, _all_ticks(microbatches, axis), axis)
    return made[lax.axis_size(axis) - 1 :]


@wrong("values")
def adds_own_input(stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str) -> Array:
    """Every device feeds its own microbatches; only those of device 0 count, the others take what
    arrives."""

    def tick(received: Array, own: Array) -> tuple[Array, Array]:
        y = stage_fn(params, received + own)
        return to_next(y, axis), y

    m, n = len(microbatches), lax.axis_size(axis)
    late = jnp.zeros_like(microbatches, shape=(n - 1, *microbatches.shape[1:]))
    fed = jnp.concatenate([microbatches, late])
    made = lax.scan(tick, jnp.zeros_like(fed[0]), fed)[1]
    return _on_last(made[-m:], axis)


@wrong("values")
def feeds_the_next(stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str) -> Array:
    """The result of microbatch 0 is missing: either device 0 takes microbatch t+1 at tick t, where
    it must take microbatch t, or the results begin at tick n, where they must begin at tick n-1."""
    ticks = len(microbatches) + lax.axis_size(axis) - 1
    made = _ticks(stage_fn, params, _fed(microbatches, ticks + 1)[1:], axis)
    return _results(made, microbatches, axis)


@wrong("values")
def results_one_tick_late(
    stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str
) -> Array:
    """The results begin at tick n, which is that of microbatch 1, and end with what becomes of
    zeros; the last device makes the result of microbatch 0 at tick n-1."""
    ticks = len(microbatches) + lax.axis_size(axis)
    made = _ticks(stage_fn, params, _among_zeros(microbatches, ticks, first=0), axis)
    return _on_last(made[-len(microbatches) :], axis)


@wrong("values")
def results_without_the_first(
    stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str
) -> Array:
    """The results begin at tick n, so that of microbatch 0 is left out, and the last place has
    zeros; the last device makes the first result at tick n-1."""
    made = _ticks(stage_fn, params, _all_ticks(microbatches, axis), axis)
    missing = jnp.zeros_like(microbatches[:1])
    return _on_last(jnp.concatenate([made[lax.axis_size(axis) :], missing]), axis)


@wrong("values")
def results_one_tick_early(
    stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str
) -> Array:
    """The results begin at tick n-2, before that of microbatch 0, and the last one is missing; the
    last device makes the first result at tick n-1."""
    made = _ticks(stage_fn, params, _all_ticks(microbatches, axis), axis)
    start = max(lax.axis_size(axis) - 2, 0)
    return _on_last(made[start : start + len(microbatches)], axis)


@wrong("values")
def feeds_the_previous(stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str) -> Array:
    """Device 0 takes microbatch t-1 at tick t, and microbatch 0 twice, so the last one is not done
    in time; take microbatch t at tick t."""
    fed = _all_ticks(microbatches, axis)
    fed = jnp.concatenate([fed[:1], fed])[: len(fed)]
    return _results(_ticks(stage_fn, params, fed, axis), microbatches, axis)


@wrong("values")
def feeds_zeros_first(stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str) -> Array:
    """Device 0 takes zeros at tick 0, and microbatch t-1 at tick t, so the last one is not done in
    time; take microbatch t at tick t."""
    ticks = len(microbatches) + lax.axis_size(axis) - 1
    fed = _among_zeros(microbatches, ticks, first=1)
    return _results(_ticks(stage_fn, params, fed, axis), microbatches, axis)


@wrong("values")
def feeds_by_mask(stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str) -> Array:
    """What the other devices hold as microbatches is multiplied by 0, which NaN and infinity
    survive; replace it with jnp.where."""
    mine = microbatches * (lax.axis_index(axis) == 0).astype(microbatches.dtype)
    fed = _among_zeros(mine, len(mine) + lax.axis_size(axis) - 1, first=0)

    def tick(received: Array, own: Array) -> tuple[Array, Array]:
        y = stage_fn(params, received + own)
        return to_next(y, axis), y

    return _results(lax.scan(tick, jnp.zeros_like(fed[0]), fed)[1], microbatches, axis)


@wrong("values")
def starts_in_float32(stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str) -> Array:
    """What arrives before the first tick is zeros in float32, whatever the microbatches are in;
    make the zeros with jnp.zeros_like, or with the dtype of the microbatches."""

    def tick(received: Array, own: Array) -> tuple[Array, Array]:
        y = stage_fn(params, jnp.where(lax.axis_index(axis) == 0, own, received))
        return to_next(y, axis), y

    fed = _all_ticks(microbatches, axis)
    start = lax.pcast(jnp.zeros(fed.shape[1:]), axis, to="varying")
    return _results(lax.scan(tick, start, fed)[1], microbatches, axis)


@wrong("values")
def feeds_the_first(stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str) -> Array:
    """Device 0 takes microbatch 0 in every tick; take microbatch t at tick t."""
    fed = jnp.zeros_like(_all_ticks(microbatches, axis)) + microbatches[:1]
    return _results(_ticks(stage_fn, params, fed, axis), microbatches, axis)


@wrong("values")
def one_stage_only(stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str) -> Array:
    """The last device sends its own microbatches through its own stage; those of device 0 must go
    through all stages, from device to device."""
    return _on_last(jax.vmap(partial(stage_fn, params))(microbatches), axis)


@wrong("values")
def outputs_on_all(stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str) -> Array:
    """All devices have the outputs; they belong on the last one only, and a sum over the devices is
    not needed."""
    return lax.psum(piped(stage_fn, params, microbatches, axis), axis)


@wrong("values")
def outputs_on_first(stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str) -> Array:
    """The outputs are sent to device 0; leave them on the last device."""
    y = piped(stage_fn, params, microbatches, axis)
    return lax.ppermute(y, axis, [(lax.axis_size(axis) - 1, 0)])


@wrong("values")
def results_of_first(stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str) -> Array:
    """Device 0 returns what it made itself, and the others zeros; the results are on the last
    device, where lax.axis_index is n-1."""
    made = _ticks(stage_fn, params, _all_ticks(microbatches, axis), axis)
    return jnp.where(lax.axis_index(axis) == 0, made[lax.axis_size(axis) - 1 :], 0)


@wrong("values")
def zeros_on_all(stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str) -> Array:
    """All devices return zeros; the last one, where lax.axis_index is n-1, keeps its results."""
    made = _ticks(stage_fn, params, _all_ticks(microbatches, axis), axis)
    n = lax.axis_size(axis)
    return jnp.where(lax.axis_index(axis) == n, made[n - 1 :], 0)


@wrong("gradient")
def cuts_gradient(stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str) -> Array:
    """No gradient goes from a stage to the one before it; remove stop_gradient from what is
    sent."""

    def send(x: Array, axis: str) -> Array:
        return to_next(lax.stop_gradient(x), axis)

    return piped(stage_fn, params, microbatches, axis, send)


@wrong("gradient")
def misses_ramp(stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str) -> Array:
    """What enters in the first n-1 ticks gets no gradient; differentiate all m+n-1 ticks."""

    def tick(received: Array, own: Array) -> tuple[Array, Array]:
        y = stage_fn(params, jnp.where(lax.axis_index(axis) == 0, own, received))
        return to_next(y, axis), y

    fed, ramp = _all_ticks(microbatches, axis), lax.axis_size(axis) - 1
    full, _ = lax.scan(tick, jnp.zeros_like(fed[0]), fed[:ramp])
    return _on_last(lax.scan(tick, lax.stop_gradient(full), fed[ramp:])[1], axis)


@wrong("flops")
def stage_on_both(stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str) -> Array:
    """stage_fn runs twice in each tick, on device 0's microbatch and on what arrived, and one
    result is thrown away; choose between the two before you call it."""

    def tick(received: Array, own: Array) -> tuple[Array, Array]:
        first = lax.axis_index(axis) == 0
        y = jnp.where(first, stage_fn(params, own), stage_fn(params, received))
        return to_next(y, axis), y

    fed = _all_ticks(microbatches, axis)
    return _results(lax.scan(tick, jnp.zeros_like(fed[0]), fed)[1], microbatches, axis)


@wrong("communication")
def every_stage_everywhere(
    stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str
) -> Array:
    """The parameters of all stages are gathered, and every device computes all of them; leave each
    stage where it is, and send activations."""
    y = lax.all_gather(microbatches, axis)[0]
    stages = lax.all_gather(params, axis)
    y, _ = lax.scan(lambda y, stage: (jax.vmap(partial(stage_fn, stage))(y), None), y, stages)
    return _on_last(y, axis)


def _through_all(stage_fn: StageFn, params: Any, x: Array, axis: str) -> Array:
    """Sends x through one stage after the other."""
    x, _ = lax.scan(
        lambda x, _: (to_next(stage_fn(params, x), axis), None),
        jnp.where(lax.axis_index(axis) == 0, x, 0),
        length=lax.axis_size(axis) - 1,
    )
    return _on_last(stage_fn(params, x), axis)


@wrong("communication")
def one_after_the_other(stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str) -> Array:
    """A microbatch starts when the one before it has left the last stage, which sends m(n-1) times;
    let one start in every tick."""
    return lax.map(lambda x: _through_all(stage_fn, params, x, axis), microbatches)


@wrong("communication")
def one_large_batch(stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str) -> Array:
    """All microbatches go from stage to stage together, and one device works at a time; send one
    microbatch in a tick."""

    def stage(params: Any, x: Array) -> Array:
        return jax.vmap(partial(stage_fn, params))(x)

    return _through_all(stage, params, microbatches, axis)


@wrong("communication")
def gathers_stage_outputs(
    stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str
) -> Array:
    """Every device gets the results of all by an all-gather; it needs that of the previous device
    only, which lax.ppermute sends."""

    def send(x: Array, axis: str) -> Array:
        return lax.all_gather(x, axis)[lax.axis_index(axis) - 1]

    return piped(stage_fn, params, microbatches, axis, send)


@wrong("communication")
def sends_by_sum(stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str) -> Array:
    """Results are padded with zeros and summed over the devices; lax.ppermute sends one array to
    one device."""

    def send(x: Array, axis: str) -> Array:
        n, rank = lax.axis_size(axis), lax.axis_index(axis)
        slots = jnp.where((jnp.arange(n) == rank).reshape(-1, *[1] * x.ndim), x[None], 0)
        total = lax.pcast(lax.psum(slots, axis), axis, to="varying")
        return total[rank - 1]

    return piped(stage_fn, params, microbatches, axis, send)


@wrong("communication")
def through_first_device(
    stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str
) -> Array:
    """Every result goes back to device 0, which sends it out again; send it from each device
    directly to the next."""
    n, rank = lax.axis_size(axis), lax.axis_index(axis)
    y = jnp.where(rank == 0, microbatches, 0)
    for i in range(n):
        here = lax.ppermute(y, axis, [(0, i)])
        made = jax.vmap(partial(stage_fn, params))(here)
        y = lax.ppermute(made, axis, [(i, 0 if i < n - 1 else i)])
    return y
