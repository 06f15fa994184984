"""A mean over the real tokens of all microbatches and devices, and its gradient."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.contracts.base import Communication, Contract, Expected, Limit, MemoryLimit, wrong
from jaxpar.contracts.blocks import whole_on_all
from jaxpar.contracts.case import Case, Sizes
from jaxpar.contracts.data_parallel.common import (
    ITEM_BYTES,
    Loss,
    Result,
    divided,
    leaf_by_leaf,
    own_examples_only,
    parameter_counts,
)
from jaxpar.contracts.draws import axis_names, mesh_of, pick
from jaxpar.contracts.token_losses import cross_entropies_args, squared_errors_args
from jaxpar.mesh import zeros
from jaxpar.parallel import hybrid


def _mean_of_real(
    case: Case, loss_fn: Loss, params: Any, batches: Any, masks: Array
) -> list[Expected]:
    batch, mask = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), (batches, masks))

    def mean(params: Any) -> Array:
        return jnp.where(mask, loss_fn(params, batch), 0).sum() / mask.sum()

    return whole_on_all(case, jax.value_and_grad(mean)(params))


def _one_all_reduce(sizes: Sizes) -> float:
    """Wire bytes of total, count and gradients in float32, each leaf padded to a chunk a device."""
    n = math.prod(sizes.case.sizes[axis] for axis in sizes.case.kwargs["axes"])
    padded = sum(-(-size // n) * n for size in parameter_counts(sizes))
    return 2 * (n - 1) / n * ITEM_BYTES * (2 + padded)


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    """Many microbatches; and one alone, on one device, with parameters of low precision."""
    first, second = axis_names(rng, 2, besides=("dp", "cp", "fsdp", "tp"))
    n, others = pick(rng, ((4, 3), (3, 4), (5, 2)))
    many = pick(rng, (13, 15, 17)), n * pick(rng, (3, 4)), others * pick(rng, (6, 7))
    alone = 1, 5, pick(rng, range(10, 14))
    return (
        Case(
            mesh_of(rng, **{first: n, second: others}),
            squared_errors_args(
                (pick(rng, (7, 9)), pick(rng, (13, 15))),
                masks=(f"m b_{first} t_{second}", many, "holes"),
            ),
            {"axes": (second, first)},
        ),
        Case(
            f"{first}=1,{second}=2",
            cross_entropies_args(
                (pick(rng, (11, 13)), pick(rng, (9, 12)), pick(rng, (17, 19))),
                "bfloat16",
                masks=(f"m b_{first} t", alone, "holes"),
            ),
            {"axes": (first,)},
        ),
    )


def _spoil_padding(case: Case, inputs: list[np.ndarray]) -> None:
    """Makes the losses of padding NaN and infinite, by the penalties of the batch."""
    draws = [leaf.draw for _, leaf in case.arrays()]
    penalties, mask = inputs[draws.index("positive")], inputs[-1]
    penalties[~mask] = np.nan
    penalties[..., ::2][~mask[..., ::2]] = np.inf


CONTRACT = Contract(
    kind="program",
    task="return the mean loss of the real tokens of all devices and microbatches, and gradients",
    reference=hybrid.masked_gradients,
    oracle=_mean_of_real,
    cases=(
        # The second half of all microbatches is padding: all that half of the devices have.
        Case(
            "dp=2,cp=4",
            cross_entropies_args((16, 8, 32), masks=("m_dp b t_cp", (2 * 3, 8, 4 * 8), "padded")),
            {"axes": ("dp", "cp")},
        ),
        Case(
            "fsdp=3,tp=2",
            squared_errors_args((6, 16), masks=("m b_fsdp t", (2, 3 * 2, 5), "holes")),
            {"axes": ("fsdp",)},
        ),
    ),
    draw=_drawn,
    poison=_spoil_padding,
    communication=Communication(
        "one all-reduce's bytes of the gradients, a total and a count over all `axes` together, "
        "however many microbatches",
        forward=((Limit(("all_reduce", "all_to_all", "permute"), None, _one_all_reduce),),),
    ),
    memory=MemoryLimit(
        "one microbatch's activations, one gradient, one accumulator: at most 1.5 times the "
        "library's bytes of intermediate results",
    ),
    flops=own_examples_only(),
    hints=(
        "The mean is one total divided by one count, and so is its gradient: no microbatch and no "
        "device may divide by a count of its own.",
        "Differentiate the total of a microbatch's real losses, jnp.where(mask, losses, 0).sum(). "
        "Add up total, count and gradient in lax.scan, and divide after the loop.",
        "lax.pcast params to varying before the loop; inside, JAX would sum each gradient over the "
        "devices. After it, one lax.psum over `axes` of all three, and one division.",
    ),
    minimal="A device knows the gradient of its own real tokens only; the sums over the devices "
    "are one all-reduce of the gradients and of two numbers.",
    harder="Return the mean loss of each microbatch as well, with one collective in all.",
)


Sums = tuple[tuple[Array, Array], Any]
"""The total of losses, their count, and the gradient of the total."""
Measure = Callable[[Array, Array], tuple[Array, Array]]
"""Makes a total and a count of a microbatch's losses and its mask."""


def _real(losses: Array, mask: Array) -> tuple[Array, Array]:
    return jnp.where(mask, losses, 0).sum(), mask.sum(dtype=losses.dtype)


def _as_it_is(sums: Sums) -> Sums:
    return sums


def _cast(params: Any, axes: tuple[str, ...]) -> Any:
    """The parameters, typed as different on the devices, so that gradients stay on each."""
    return lax.pcast(params, axes, to="varying")


def _of_microbatch(
    loss_fn: Loss, params: Any, batch: Any, mask: Array, measure: Measure = _real
) -> Sums:
    """What a microbatch adds; JAX sums a gradient over devices that params are equal on by type."""
    return jax.value_and_grad(lambda p: measure(loss_fn(p, batch), mask), has_aux=True)(params)


def _add_up(
    loss_fn: Loss,
    params: Any,
    batches: Any,
    masks: Array,
    *,
    measure: Measure = _real,
    changed: Callable[[Sums], Any] = _as_it_is,
) -> Any:
    """The sum over the microbatches of what `changed` makes of the sums of each."""

    def part(batch: Any, mask: Array) -> Any:
        return changed(_of_microbatch(loss_fn, params, batch, mask, measure))

    return _scan(part, batches, masks)


def _scan(part: Callable[[Any, Array], Any], batches: Any, masks: Array) -> Any:
    """The sum over the microbatches of what `part` makes of each."""
    given = batches, masks
    one = jax.eval_shape(lambda: part(*jax.tree.map(lambda leaf: leaf[0], given)))

    def add(total: Any, given: Any) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, part(*given)), None

    return lax.scan(add, jax.tree.map(zeros, one), given)[0]


def _mean(sums: Sums) -> Result:
    """Total and gradient divided by the count; a gradient keeps its dtype."""
    (total, count), gradients = sums
    return total / count, jax.tree.map(lambda g: (g / count).astype(g.dtype), gradients)


def _mean_or_zero(sums: Sums) -> Result:
    """The same; 0 where nothing is real."""
    (total, count), gradients = sums
    return _mean(((total, jnp.maximum(count, 1)), gradients))


@wrong("values")
def mean_of_device_means(
    loss_fn: Loss, params: Any, batches: Any, masks: Array, *, axes: tuple[str, ...]
) -> Result:
    """You average the means of the devices, though they have different numbers of real tokens; sum
    totals, counts and gradients over the devices, then divide."""
    return lax.pmean(_mean_or_zero(_add_up(loss_fn, _cast(params, axes), batches, masks)), axes)


@wrong("values")
def mean_of_microbatch_means(
    loss_fn: Loss, params: Any, batches: Any, masks: Array, *, axes: tuple[str, ...]
) -> Result:
    """Each microbatch is divided by its own count on its device, and the means are averaged, though
    they are of different numbers of real tokens; divide once, by the count of all."""
    means = _add_up(loss_fn, _cast(params, axes), batches, masks, changed=_mean_or_zero)
    return lax.pmean(divided(means, len(masks)), axes)


@wrong("values")
def mean_over_each_microbatch(
    loss_fn: Loss, params: Any, batches: Any, masks: Array, *, axes: tuple[str, ...]
) -> Result:
    """Each microbatch is divided by its count on all devices, and the m means are averaged; divide
    once, after the loop, by the count of all microbatches."""

    def changed(sums: Sums) -> Result:
        return _mean_or_zero(lax.psum(sums, axes))

    means = _add_up(loss_fn, _cast(params, axes), batches, masks, changed=changed)
    return divided(means, len(masks))


@wrong("values")
def nan_of_an_empty_device(
    loss_fn: Loss, params: Any, batches: Any, masks: Array, *, axes: tuple[str, ...]
) -> Result:
    """Each device divides by its own count, and one without a real token computes 0/0, a nan that
    spoils all; sum totals, counts and gradients over the devices, then divide."""
    return lax.pmean(_mean(_add_up(loss_fn, _cast(params, axes), batches, masks)), axes)


@wrong("values")
def nan_of_an_empty_microbatch(
    loss_fn: Loss, params: Any, batches: Any, masks: Array, *, axes: tuple[str, ...]
) -> Result:
    """Each microbatch is divided by its own count, which is 0/0, a nan, where nothing is real; add
    up totals and counts in the loop, and divide after it."""
    means = _add_up(loss_fn, _cast(params, axes), batches, masks, changed=_mean)
    return lax.pmean(divided(means, len(masks)), axes)


@wrong("values")
def empty_counts_as_one(
    loss_fn: Loss, params: Any, batches: Any, masks: Array, *, axes: tuple[str, ...]
) -> Result:
    """A microbatch without a real token counts as if it had one; it must add 0 to the count, and
    you divide by no count of one microbatch."""

    def measure(losses: Array, mask: Array) -> tuple[Array, Array]:
        total, count = _real(losses, mask)
        return total, jnp.maximum(count, 1)

    sums = _add_up(loss_fn, _cast(params, axes), batches, masks, measure=measure)
    return _mean(lax.psum(sums, axes))


@wrong("values")
def local_count(
    loss_fn: Loss, params: Any, batches: Any, masks: Array, *, axes: tuple[str, ...]
) -> Result:
    """You sum totals and gradients over the devices, but divide by the count of real tokens on this
    device; sum the counts, too."""
    (total, count), gradients = _add_up(loss_fn, _cast(params, axes), batches, masks)
    total, gradients = lax.psum((total, gradients), axes)
    return _mean_or_zero(((total, count), gradients))


@wrong("values")
def padding_in_the_loss(
    loss_fn: Loss, params: Any, batches: Any, masks: Array, *, axes: tuple[str, ...]
) -> Result:
    """The losses of padding are in the total; leave them out with jnp.where."""

    def measure(losses: Array, mask: Array) -> tuple[Array, Array]:
        return losses.sum(), mask.sum(dtype=losses.dtype)

    sums = _add_up(loss_fn, _cast(params, axes), batches, masks, measure=measure)
    return _mean(lax.psum(sums, axes))


@wrong("values")
def padding_in_the_count(
    loss_fn: Loss, params: Any, batches: Any, masks: Array, *, axes: tuple[str, ...]
) -> Result:
    """You divide by the number of all tokens; count the real ones only."""
    (total, _), gradients = _add_up(loss_fn, _cast(params, axes), batches, masks)
    return lax.pmean(divided((total, gradients), masks.size), axes)


@wrong("values")
def mask_not_used(
    loss_fn: Loss, params: Any, batches: Any, masks: Array, *, axes: tuple[str, ...]
) -> Result:
    """The mask is not used: padding is averaged with the real tokens."""
    (total, _), gradients = _add_up(loss_fn, _cast(params, axes), batches, jnp.ones_like(masks))
    return lax.pmean(divided((total, gradients), masks.size), axes)


@wrong("values")
def padding_multiplied(
    loss_fn: Loss, params: Any, batches: Any, masks: Array, *, axes: tuple[str, ...]
) -> Result:
    """The losses of padding are multiplied by 0, which NaN and infinity survive; leave them out
    with jnp.where."""

    def measure(losses: Array, mask: Array) -> tuple[Array, Array]:
        weights = jnp.where(mask, 1.0, 0.0)  # XLA makes a jnp.where of a product with the mask
        return (losses * weights).sum(), weights.sum()

    sums = _add_up(loss_fn, _cast(params, axes), batches, masks, measure=measure)
    return _mean(lax.psum(sums, axes))


@wrong("values")
def summed_twice(
    loss_fn: Loss, params: Any, batches: Any, masks: Array, *, axes: tuple[str, ...]
) -> Result:
    """JAX has already summed the gradients, because `params` were not cast, and you sum the equal
    sums once more: n times too large. First lax.pcast params to varying."""
    return _mean(lax.psum(_add_up(loss_fn, params, batches, masks), axes))


@wrong("values")
def only_loss_weighted(
    loss_fn: Loss, params: Any, batches: Any, masks: Array, *, axes: tuple[str, ...]
) -> Result:
    """The loss is right, but the gradients are averaged over microbatches and devices, as if all
    had as many real tokens; they are divided by the same count as the loss."""
    loss, _ = _mean(lax.psum(_add_up(loss_fn, _cast(params, axes), batches, masks), axes))
    _, gradients = mean_of_microbatch_means(loss_fn, params, batches, masks, axes=axes)
    return loss, gradients


@wrong("values")
def gradients_not_divided(
    loss_fn: Loss, params: Any, batches: Any, masks: Array, *, axes: tuple[str, ...]
) -> Result:
    """The loss is divided by the count, and the gradient is not: it is that of the total."""
    sums = lax.psum(_add_up(loss_fn, _cast(params, axes), batches, masks), axes)
    return _mean(sums)[0], sums[1]


@wrong("values")
def nothing_divided(
    loss_fn: Loss, params: Any, batches: Any, masks: Array, *, axes: tuple[str, ...]
) -> Result:
    """This is the total of the real losses and its gradient; divide both by the count."""
    (total, _), gradients = _add_up(loss_fn, _cast(params, axes), batches, masks)
    return lax.psum((total, gradients), axes)


@wrong("values")
def totals_averaged(
    loss_fn: Loss, params: Any, batches: Any, masks: Array, *, axes: tuple[str, ...]
) -> Result:
    """You divide the means of the devices' totals and gradients by the count on all devices, so
    that the result is n times too small; take the sums."""
    (total, count), gradients = _add_up(loss_fn, _cast(params, axes), batches, masks)
    total, gradients = lax.pmean((total, gradients), axes)
    return _mean(((total, lax.psum(count, axes)), gradients))


@wrong("values")
def last_microbatch_only(
    loss_fn: Loss, params: Any, batches: Any, masks: Array, *, axes: tuple[str, ...]
) -> Result:
    """Only the last microbatch counts; add up totals, counts and gradients of all m."""
    last, mask = jax.tree.map(lambda leaf: leaf[-1], (batches, masks))
    sums = lax.psum(_of_microbatch(loss_fn, _cast(params, axes), last, mask), axes)
    return _mean_or_zero(sums)


@wrong("values")
def mean_stays_local(
    loss_fn: Loss, params: Any, batches: Any, masks: Array, *, axes: tuple[str, ...]
) -> Result:
    """Each device returns the mean of its own real tokens; sum totals, counts and gradients over
    the devices, then divide."""
    return _mean_or_zero(_add_up(loss_fn, _cast(params, axes), batches, masks))


@wrong("values")
def summed_over_the_first_axis(
    loss_fn: Loss, params: Any, batches: Any, masks: Array, *, axes: tuple[str, ...]
) -> Result:
    """You sum over the first of `axes` only; lax.psum takes a tuple of axes, and sums over all."""
    sums = _add_up(loss_fn, _cast(params, axes), batches, masks)
    return _mean_or_zero(lax.psum(sums, axes[0]))


@wrong("values")
def gradients_in_float32(
    loss_fn: Loss, params: Any, batches: Any, masks: Array, *, axes: tuple[str, ...]
) -> Result:
    """A gradient of bfloat16 becomes float32 when you divide it by a count of float32; give it the
    dtype of its parameter again."""
    (total, count), gradients = lax.psum(
        _add_up(loss_fn, _cast(params, axes), batches, masks), axes
    )
    return total / count, jax.tree.map(lambda g: g / count, gradients)


@wrong("communication")
def hidden_in_loop(
    loss_fn: Loss, params: Any, batches: Any, masks: Array, *, axes: tuple[str, ...]
) -> Result:
    """`params` are not cast, so JAX sums the gradients over the devices in every microbatch;
    lax.pcast them before the loop, and reduce once after it."""
    sums, gradients = _add_up(loss_fn, params, batches, masks)
    return _mean((lax.psum(sums, axes), gradients))


@wrong("communication")
def reduces_each_microbatch(
    loss_fn: Loss, params: Any, batches: Any, masks: Array, *, axes: tuple[str, ...]
) -> Result:
    """The sums are reduced in every microbatch, m times; add them up on each device, and reduce
    once, after the loop."""

    def changed(sums: Sums) -> Sums:
        return lax.psum(sums, axes)

    return _mean(_add_up(loss_fn, _cast(params, axes), batches, masks, changed=changed))


@wrong("communication")
def counts_in_loop(
    loss_fn: Loss, params: Any, batches: Any, masks: Array, *, axes: tuple[str, ...]
) -> Result:
    """Total and count are reduced in every microbatch; keep them on the device, and reduce their
    sums once, after the loop."""

    def changed(sums: Sums) -> Sums:
        return lax.psum(sums[0], axes), sums[1]

    sums, gradients = _add_up(loss_fn, _cast(params, axes), batches, masks, changed=changed)
    return _mean((sums, lax.psum(gradients, axes)))


@wrong("communication")
def one_axis_after_another(
    loss_fn: Loss, params: Any, batches: Any, masks: Array, *, axes: tuple[str, ...]
) -> Result:
    """The gradients are all-reduced over one axis after the other, which sends more than one
    all-reduce over all of them; give lax.psum the whole tuple."""
    sums = _add_up(loss_fn, _cast(params, axes), batches, masks)
    for axis in axes:
        sums = lax.psum(sums, axis)
    return _mean(sums)


@wrong("communication")
def gathers_batches(
    loss_fn: Loss, params: Any, batches: Any, masks: Array, *, axes: tuple[str, ...]
) -> Result:
    """The tokens of all devices are gathered, and every device computes all of them; let each
    compute its own, and reduce the gradients."""
    whole = jax.tree.map(
        lambda leaf: lax.all_gather(leaf, axes, axis=1, tiled=True), (batches, masks)
    )
    return _mean(_add_up(loss_fn, _cast(params, axes), *whole))


@wrong("memory")
def unrolls_microbatches(
    loss_fn: Loss, params: Any, batches: Any, masks: Array, *, axes: tuple[str, ...]
) -> Result:
    """A Python loop puts all m microbatches into one program, and the compiler holds what many of
    them need at once; use lax.scan."""
    each = []
    for i in range(len(masks)):
        batch, mask = jax.tree.map(lambda leaf, i=i: leaf[i], (batches, masks))
        each.append(_of_microbatch(loss_fn, _cast(params, axes), batch, mask))
    return _mean(lax.psum(jax.tree.map(lambda *leaves: sum(leaves), *each), axes))


@wrong("memory")
def vmaps_microbatches(
    loss_fn: Loss, params: Any, batches: Any, masks: Array, *, axes: tuple[str, ...]
) -> Result:
    """vmap computes all microbatches at once, so the activations and gradients of all m are held;
    use lax.scan."""
    local = _cast(params, axes)
    each = jax.vmap(lambda *given: _of_microbatch(loss_fn, local, *given))(batches, masks)
    return _mean(lax.psum(jax.tree.map(lambda leaf: leaf.sum(axis=0), each), axes))


@wrong("memory")
def stacks_gradients(
    loss_fn: Loss, params: Any, batches: Any, masks: Array, *, axes: tuple[str, ...]
) -> Result:
    """The gradients of all m microbatches are kept and added at the end; add each to one
    accumulator, the carry of lax.scan."""
    local = _cast(params, axes)
    each = lax.map(lambda given: _of_microbatch(loss_fn, local, *given), (batches, masks))
    return _mean(lax.psum(jax.tree.map(lambda leaf: leaf.sum(axis=0), each), axes))


@wrong("memory")
def keeps_every_microbatch(
    loss_fn: Loss, params: Any, batches: Any, masks: Array, *, axes: tuple[str, ...]
) -> Result:
    """One backward pass over all microbatches keeps the activations of all m; differentiate inside
    the loop, one microbatch at a time."""

    def sums(params: Any) -> tuple[Array, Array]:
        each = lax.map(lambda given: _real(loss_fn(params, given[0]), given[1]), (batches, masks))
        return each[0].sum(), each[1].sum()

    return _mean(lax.psum(jax.value_and_grad(sums, has_aux=True)(_cast(params, axes)), axes))


@wrong("flops")
def differentiates_leaf_by_leaf(
    loss_fn: Loss, params: Any, batches: Any, masks: Array, *, axes: tuple[str, ...]
) -> Result:
    """You differentiate once for each leaf of params, and compute the forward pass anew each time;
    jax.value_and_grad gives the total and the gradients of all leaves at once."""
    local = _cast(params, axes)

    def part(batch: Any, mask: Array) -> Sums:
        def total(params: Any, batch: Any) -> Array:
            return _real(loss_fn(params, batch), mask)[0]

        return _real(loss_fn(local, batch), mask), leaf_by_leaf(total, local, batch)

    return _mean(lax.psum(_scan(part, batches, masks), axes))
