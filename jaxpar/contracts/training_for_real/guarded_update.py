"""An update that all devices skip together where the norm of the gradients is not to be trusted."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax

from jaxpar.contracts.base import BadCall, Communication, Contract, Expected, Limit, wrong
from jaxpar.contracts.blocks import whole_on_all
from jaxpar.contracts.case import ArraySpec, Case, Function, Made, array_leaves
from jaxpar.contracts.draws import axis_names, mesh_of, pick
from jaxpar.contracts.hybrid.common import EVERY_KIND, held
from jaxpar.long_run.guarded import KEPT, guarded_update

Result = tuple[Any, tuple[Any, Array], Array]
_SCALAR_BYTES = 4
# `poison` tells by these factors what to do with a case.
_NAN, _INFINITY, _LOUD = (100.0, 200.0), 150.0, 1.25


def _guarded(case: Case, grads: Any, params: Any, state: Any, optimizer: Any) -> list[Expected]:
    inner, mean = state
    norm = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(grads)))
    good = jnp.isfinite(norm) & ((mean == 0) | (norm <= case.kwargs["factor"] * mean))
    updates, new_inner = optimizer.update(grads, inner, params)
    moved = jnp.where(mean == 0, norm, KEPT * mean + (1 - KEPT) * norm)
    new = optax.apply_updates(params, updates), (new_inner, moved)
    chosen = jax.tree.map(lambda x, y: jnp.where(good, x, y), new, (params, state))
    returned = (case.args["params"], case.args["state"])
    layouts = [leaf.layout for leaf in array_leaves(returned)]
    leaves = jax.tree.leaves(chosen)
    found = [Expected(held(case, x, at)) for x, at in zip(leaves, layouts, strict=True)]
    return found + whole_on_all(case, good)


def _mean_of(value: float) -> Made:
    """The running mean."""
    return Made(
        Function("jaxpar.contracts.training_for_real.common:running_mean"),
        (ArraySpec((), ""), value),
    )


def _case(mesh: str, axis: str, tree: Any, mean: float, factor: float) -> Case:
    return Case(
        mesh,
        {
            "grads": tree,
            "params": tree,
            "state": ((ArraySpec((), "", "int32", "large"), tree), _mean_of(mean)),
            "optimizer": Function("jaxpar.contracts.training_for_real.common:COUNTED"),
        },
        {"factor": factor, "axis": axis},
    )


def _leaves(axis: str, n: int, k: int, f: int, **how: Any) -> dict[str, Any]:
    """A table and layers; k rows or columns on each device."""
    return {
        "layers": [ArraySpec((n * k, f), f"d_{axis} f", **how), ArraySpec((n * k,), f"d_{axis}")],
        "table": ArraySpec((f, n * k), f"v d_{axis}", **how),
    }


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    """Low precision; one device; gradients that are not finite, on one device much larger, in many
    leaves; a mean that they move, or that is small."""
    axis, other = axis_names(rng, 2, besides=("dp", "fsdp", "tp"))
    n, k = pick(rng, (3, 5)), pick(rng, (4, 6, 7))
    few = ArraySpec((k, 3 * n), f"d f_{axis}")
    long = ArraySpec((5 * k, 18), f"d f_{axis}")
    low = _leaves(axis, n, k, 9, dtype="float16", draw="wide")
    more = mesh_of(rng, **{axis: n, other: 2})
    return (
        # The squares are more than float16 holds, and the norm is about 100 * sqrt(18 * n * k).
        _case(more, axis, low, 120 * (18 * n * k) ** 0.5, 2.25),
        _case(f"{axis}=1,{other}=2", axis, few, 0.0, 0.5),
        _case(f"{axis}=1,{other}=2", axis, [few, few], 0.75, 1.5),
        _case(f"{other}=2,{axis}=6", axis, _leaves(axis, 6, k, 5), 100.0, _NAN[0]),
        _case(f"{axis}={n}", axis, _leaves(axis, n, k, 4), 0.0, _NAN[1]),
        _case(f"{axis}={n}", axis, _leaves(axis, n, 2 * k, 3), 0.0, _INFINITY),
        _case(f"{axis}={n}", axis, _leaves(axis, n, k, 6), 1.0, 120.0),
        # Device 0 alone has a norm of 5 * sqrt(15k), the others of sqrt(15k); all six have one of
        # about 5.5 * sqrt(15k), which is above the first limit, and below the second. By their
        # own norms times sqrt(6), the others are below the first, and device 0 is above the second.
        _case(f"{axis}=6", axis, long, 3.6 / _LOUD * (15 * k) ** 0.5, _LOUD),
        _case(f"{axis}=6", axis, long, 8 / _LOUD * (15 * k) ** 0.5, _LOUD),
        _case(f"{axis}={n}", axis, [ArraySpec((2 * n,), f"d_{axis}")] * 12, 0.0, 0.5),
        _case(f"{axis}={n}", axis, [few], 0.01, 2.5),
        _case(f"{axis}={n}", axis, (few,), 1.5 * (3 * n * k) ** 0.5, 0.9),
    )


def _poison(case: Case, inputs: list[np.ndarray]) -> None:
    """Puts NaN or infinity into one gradient of one device, or makes those of device 0 larger.

    The gradients come first.
    """
    factor = case.kwargs["factor"]
    if factor in (*_NAN, _INFINITY):
        inputs[0].flat[-1] = np.inf if factor == _INFINITY else np.nan
    if factor == _LOUD:
        inputs[0][:, :3] *= 5


def _two_numbers_to_each(sizes: Any) -> float:
    return 2 * _SCALAR_BYTES * (sizes.n() - 1)


CONTRACT = Contract(
    kind="program",
    task="update, or keep everything as it was where the norm is not finite or far above its mean",
    reference=guarded_update,
    oracle=_guarded,
    cases=(
        # The norm is about 22: more than 15. That of what one device has is about 11.
        _case("fsdp=4", "fsdp", _leaves("fsdp", 4, 5, 12), 10.0, 1.5),
        _case("dp=2,tp=3", "tp", _leaves("tp", 3, 4, 10), 15.0, 2.0),
        _case("fsdp=4", "fsdp", [ArraySpec((8, 9), "d_fsdp f")], 0.0, 2.0),
    ),
    draw=_drawn,
    poison=_poison,
    sharding=False,
    communication=Communication(
        "numbers only: at most two to every other device",
        forward=((Limit(EVERY_KIND, "axis", _two_numbers_to_each),),),
    ),
    errors=(
        BadCall(_case("fsdp=4", "fsdp", _leaves("fsdp", 4, 5, 12), 10.0, 0.0), "factor is 0"),
        BadCall(_case("dp=2,tp=3", "tp", _leaves("tp", 3, 4, 10), 9.0, -1.5), "factor is below 0"),
    ),
    hints=(
        "What must all devices know before the first of them may change a parameter? Which of the "
        "results change in a step that is skipped?",
        "Add up the squares of all leaves, in float32, lax.psum them, and take the root: all "
        "devices then decide alike. A step is good if jnp.isfinite(norm), and if the mean is 0 or "
        "norm <= factor * mean.",
        "Compute the new parameters, the optimizer's new state and the new mean in any case; then "
        "jax.tree.map(lambda x, y: jnp.where(good, x, y), new, old) chooses, for all three.",
    ),
    minimal="Each device must learn something of the gradients of all others, and one number is "
    "the least.",
    harder="Count the steps skipped in a row, and return whether there are so many that the run "
    "should go back to a checkpoint.",
)


def _squares(grads: Any) -> Array:
    """The sum of squares of what this device has."""
    wide = (leaf.astype(jnp.float32) for leaf in jax.tree.leaves(grads))
    return sum((jnp.sum(leaf**2) for leaf in wide), jnp.float32(0))


def _norm(grads: Any, axis: str) -> Array:
    return jnp.sqrt(lax.psum(_squares(grads), axis))


def _is_good(norm: Array, mean: Array, factor: float) -> Array:
    if factor <= 0:
        raise ValueError("the factor is not above 0")
    return jnp.isfinite(norm) & ((mean == 0) | (norm <= factor * mean))


def _new_mean(norm: Array, mean: Array) -> Array:
    return jnp.where(mean == 0, norm, KEPT * mean + (1 - KEPT) * norm)


def _where(good: Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda x, y: jnp.where(good, x, y), new, old)


def _step(grads: Any, params: Any, state: Any, optimizer: Any, norm: Array, good: Array) -> Result:
    """The right choice, by another norm or another judgement of it."""
    inner, mean = state
    updates, new_inner = optimizer.update(grads, inner, params)
    new = optax.apply_updates(params, updates), (new_inner, _new_mean(norm, mean))
    return *_where(good, new, (params, state)), good


@wrong("values")
def devices_decide(grads, params, state, optimizer, *, factor, axis) -> Result:
    """Each device decides by its own gradients, so that some skip the step and others take it; all
    must compare the norm of all gradients."""
    norm = jnp.sqrt(_squares(grads))
    good = _is_good(norm, state[1], factor)
    params, (inner, mean), good = _step(grads, params, state, optimizer, norm, good)
    n = lax.axis_size(axis)
    together = lax.psum(good.astype(jnp.int32), axis) == n  # so that types are right
    return params, (inner, lax.pmean(mean, axis)), together


@wrong("values")
def never_skipped(grads, params, state, optimizer, *, factor, axis) -> Result:
    """Every step is taken; return the old parameters and the old state where the step is not
    good."""
    norm = _norm(grads, axis)
    good = _is_good(norm, state[1], factor)
    updates, inner = optimizer.update(grads, state[0], params)
    return optax.apply_updates(params, updates), (inner, _new_mean(norm, state[1])), good


@wrong("values")
def only_params_kept(grads, params, state, optimizer, *, factor, axis) -> Result:
    """In a skipped step only the parameters stay as they are; the optimizer's state and the running
    mean must stay, too."""
    norm = _norm(grads, axis)
    good = _is_good(norm, state[1], factor)
    updates, inner = optimizer.update(grads, state[0], params)
    new = optax.apply_updates(params, updates)
    return _where(good, new, params), (inner, _new_mean(norm, state[1])), good


@wrong("values")
def mean_moved_by_a_skip(grads, params, state, optimizer, *, factor, axis) -> Result:
    """The running mean moves in a skipped step, too; a spike then raises the limit for the next
    one, and NaN stays in the mean."""
    norm = _norm(grads, axis)
    params, (inner, _), good = _step(
        grads, params, state, optimizer, norm, _is_good(norm, state[1], factor)
    )
    return params, (inner, _new_mean(norm, state[1])), good


@wrong("values")
def count_moved_by_a_skip(grads, params, state, optimizer, *, factor, axis) -> Result:
    """The optimizer's count goes on in a skipped step; the whole of its state stays as it is."""
    inner, _ = state
    _, advanced = optimizer.update(grads, inner, params)
    params, (inner, mean), good = guarded_update(
        grads, params, state, optimizer, factor=factor, axis=axis
    )

    def count(new: Array, kept: Array) -> Array:
        return new if new.ndim == 0 else kept

    return params, (jax.tree.map(count, advanced, inner), mean), good


@wrong("values")
def gradients_zeroed(grads, params, state, optimizer, *, factor, axis) -> Result:
    """In a skipped step you give the optimizer zeros; it then still moves the parameters, by
    momentum and decay, and changes its state."""
    norm = _norm(grads, axis)
    good = _is_good(norm, state[1], factor)
    zeros = jax.tree.map(lambda g: jnp.where(good, g, jnp.zeros_like(g)), grads)
    updates, inner = optimizer.update(zeros, state[0], params)
    mean = jnp.where(good, _new_mean(norm, state[1]), state[1])
    return optax.apply_updates(params, updates), (inner, mean), good


@wrong("values")
def multiplied_by_good(grads, params, state, optimizer, *, factor, axis) -> Result:
    """You multiply what is new by 0 in a skipped step; 0 times NaN is NaN, so choose with
    jnp.where."""
    inner, mean = state
    norm = _norm(grads, axis)
    good = _is_good(norm, mean, factor)
    updates, new_inner = optimizer.update(grads, inner, params)
    new = optax.apply_updates(params, updates), (new_inner, _new_mean(norm, mean))

    def mixed(x: Array, y: Array) -> Array:
        share = good.astype(x.dtype)
        return share * x + (1 - share) * y

    return *jax.tree.map(mixed, new, (params, state)), good


@wrong("values")
def nan_is_taken(grads, params, state, optimizer, *, factor, axis) -> Result:
    """A norm that is NaN is not greater than any limit, so you take the step; ask for
    jnp.isfinite(norm) as well."""
    norm, mean = _norm(grads, axis), state[1]
    _is_good(norm, mean, factor)
    bad = jnp.isinf(norm) | ((mean > 0) & (norm > factor * mean))
    return _step(grads, params, state, optimizer, norm, ~bad)


@wrong("values")
def nan_is_taken_at_first(grads, params, state, optimizer, *, factor, axis) -> Result:
    """Where there is no mean yet, you take a step whose norm is NaN; it must be finite there,
    too."""
    norm, mean = _norm(grads, axis), state[1]
    _is_good(norm, mean, factor)
    good = ~jnp.isinf(norm) & ((mean == 0) | (norm <= factor * mean))
    return _step(grads, params, state, optimizer, norm, good)


@wrong("values")
def nan_left_out(grads, params, state, optimizer, *, factor, axis) -> Result:
    """You leave NaN out of the norm, so a step with NaN in its gradients is taken; the norm must
    be NaN then, which is not finite."""
    norm = _norm(jax.tree.map(lambda g: jnp.where(jnp.isnan(g), 0, g), grads), axis)
    return _step(grads, params, state, optimizer, norm, _is_good(norm, state[1], factor))


@wrong("values")
def infinity_is_taken(grads, params, state, optimizer, *, factor, axis) -> Result:
    """A norm that is infinite is taken in the first step, where there is no mean to compare it
    with; ask for jnp.isfinite(norm), not only for NaN."""
    norm, mean = _norm(grads, axis), state[1]
    _is_good(norm, mean, factor)
    good = ~jnp.isnan(norm) & ((mean == 0) | (norm <= factor * mean))
    return _step(grads, params, state, optimizer, norm, good)


@wrong("values")
def first_step_skipped(grads, params, state, optimizer, *, factor, axis) -> Result:
    """The first norm is compared with a mean of 0, so that no step is ever taken; where the mean is
    0, a finite norm is good."""
    norm, mean = _norm(grads, axis), state[1]
    _is_good(norm, mean, factor)
    return _step(grads, params, state, optimizer, norm, norm <= factor * mean)


@wrong("values")
def first_mean_from_zero(grads, params, state, optimizer, *, factor, axis) -> Result:
    """After the first step the mean is a tenth of its norm; it becomes the norm itself."""
    params, (inner, mean), good = guarded_update(
        grads, params, state, optimizer, factor=factor, axis=axis
    )
    first = good & (state[1] == 0)
    return params, (inner, jnp.where(first, (1 - KEPT) * mean, mean)), good


@wrong("values")
def mean_forgets_at_once(grads, params, state, optimizer, *, factor, axis) -> Result:
    """The mean becomes 0.1 times itself and 0.9 times the norm; it is the other way round."""
    norm, (inner, mean) = _norm(grads, axis), state
    good = _is_good(norm, mean, factor)
    params, (inner, kept), good = _step(grads, params, (inner, mean), optimizer, norm, good)
    moved = jnp.where(good & (mean != 0), (1 - KEPT) * mean + KEPT * norm, kept)
    return params, (inner, moved), good


@wrong("values")
def mean_not_moved(grads, params, state, optimizer, *, factor, axis) -> Result:
    """The running mean stays as it is; in a good step it moves towards the norm."""
    params, (inner, _), good = guarded_update(
        grads, params, state, optimizer, factor=factor, axis=axis
    )
    return params, (inner, state[1]), good


@wrong("values")
def good_says_the_opposite(grads, params, state, optimizer, *, factor, axis) -> Result:
    """The last result says whether the step was skipped; it must say whether it was good."""
    params, state, good = guarded_update(grads, params, state, optimizer, factor=factor, axis=axis)
    return params, state, ~good


@wrong("values")
def norm_without_root(grads, params, state, optimizer, *, factor, axis) -> Result:
    """This is the square of the norm; take its root."""
    norm = _norm(grads, axis) ** 2
    return _step(grads, params, state, optimizer, norm, _is_good(norm, state[1], factor))


@wrong("values")
def squares_averaged(grads, params, state, optimizer, *, factor, axis) -> Result:
    """The squares are averaged over the devices; these have different elements, so add them up."""
    norm = jnp.sqrt(lax.pmean(_squares(grads), axis))
    return _step(grads, params, state, optimizer, norm, _is_good(norm, state[1], factor))


@wrong("values")
def squares_of_low_precision(grads, params, state, optimizer, *, factor, axis) -> Result:
    """The squares are computed in the dtype of the leaves, and those of more than 255 are infinite
    in float16; cast each leaf to float32 first."""
    squares = sum(jnp.sum(leaf**2).astype(jnp.float32) for leaf in jax.tree.leaves(grads))
    norm = jnp.sqrt(lax.psum(squares, axis))
    return _step(grads, params, state, optimizer, norm, _is_good(norm, state[1], factor))


@wrong("values")
def updates_not_added(grads, params, state, optimizer, *, factor, axis) -> Result:
    """The optimizer returns updates, not parameters; add them with optax.apply_updates."""
    norm = _norm(grads, axis)
    good = _is_good(norm, state[1], factor)
    updates, inner = optimizer.update(grads, state[0], params)
    updates = jax.tree.map(lambda u, p: u.astype(p.dtype), updates, params)
    new = updates, (inner, _new_mean(norm, state[1]))
    return *_where(good, new, (params, state)), good


@wrong("communication")
def gradients_gathered(grads, params, state, optimizer, *, factor, axis) -> Result:
    """The gradients of all devices are gathered for the norm; the sum of the squares of each is
    enough."""
    whole = jax.tree.map(lambda g: lax.all_gather(g, axis, to="invarying"), grads)
    norm = jnp.sqrt(_squares(whole))
    return _step(grads, params, state, optimizer, norm, _is_good(norm, state[1], factor))


@wrong("communication")
def squares_added_one_by_one(grads, params, state, optimizer, *, factor, axis) -> Result:
    """The squares are added up over the devices one by one; add them up on each device first, and
    send one number."""
    wide = jax.tree.map(lambda g: g.astype(jnp.float32) ** 2, grads)
    norm = jnp.sqrt(sum(jnp.sum(leaf) for leaf in jax.tree.leaves(lax.psum(wide, axis))))
    return _step(grads, params, state, optimizer, norm, _is_good(norm, state[1], factor))


@wrong("errors")
def factor_not_checked(grads, params, state, optimizer, *, factor, axis) -> Result:
    """A factor that is not above 0 skips every step; raise ValueError."""
    norm, mean = _norm(grads, axis), state[1]
    good = jnp.isfinite(norm) & ((mean == 0) | (norm <= factor * mean))
    return _step(grads, params, state, optimizer, norm, good)
