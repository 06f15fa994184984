"""The sum of each gradient over the axes that its type names, and its partition spec does not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import PartitionSpec as P

from jaxpar.collectives import leaves
from jaxpar.contracts.base import Communication, Contract, Expected, Limit, wrong
from jaxpar.contracts.case import ArraySpec, Case, Function, Made, Sizes, fill
from jaxpar.contracts.draws import axis_names, mesh_of, pick
from jaxpar.contracts.hybrid.common import EVERY_KIND, held
from jaxpar.contracts.losses import on_each_device
from jaxpar.mesh import axes_of, entry_axes, spec, vary, varying_axes


@dataclass(frozen=True)
class Parts:
    """A gradient of which devices have parts.

    Attributes:
        total: the sum of the parts.
        over: the axes along which they are added up, as in a layout; empty if that is done.
    """

    total: ArraySpec
    over: str = ""

    def on_devices(self, sizes: dict[str, int]) -> ArraySpec:
        """The argument: each device has a part of its own."""
        n = math.prod(sizes[axis] for axis in self.over.split("_") if axis)
        return on_each_device(self.total, n, self.over) if self.over else self.total

    def spec_layout(self) -> str:
        """The layout of the total, up to the last dim that is split."""
        dims = self.total.layout.split()
        while dims and "_" not in dims[-1]:
            dims.pop()
        return " ".join(dims)


@dataclass(frozen=True, repr=False)
class Specs(Made):
    """A pytree of partition specs, which a stub shows as it is."""

    def __repr__(self) -> str:
        return repr(fill(self, iter(())))

    def __hash__(self) -> int:
        return hash(repr(self))


def _case(mesh: str, parts: Any) -> Case:
    sizes = Case(mesh, {}).sizes
    grads = jax.tree.map(lambda one: one.on_devices(sizes), parts)
    layouts = jax.tree.map(lambda one: one.spec_layout(), parts)
    specs = Specs(Function("jax.tree:map"), (Function("jaxpar.mesh:spec"), layouts))
    return Case(mesh, {"grads": grads}, {"specs": specs})


def _missing(case: Case) -> list[list[str]]:
    """For each gradient, the axes over which its parts must be added up."""
    specs = jax.tree.leaves(fill(case.kwargs["specs"], iter(())))
    return [
        [axis for axis in axes_of(spec(leaf.layout)) if axis not in axes_of(of_sum)]
        for (_, leaf), of_sum in zip(case.arrays(), specs, strict=True)
    ]


def _summed(case: Case, grads: Any) -> list[Expected]:
    return [
        Expected(held(case, x, leaf.layout, axes))
        for x, (_, leaf), axes in zip(
            jax.tree.leaves(grads), case.arrays(), _missing(case), strict=True
        )
    ]


def _one_all_reduce_each(sizes: Sizes) -> float:
    groups = [math.prod(sizes.case.sizes[axis] for axis in axes) for axes in _missing(sizes.case)]
    return sum(
        2 * (n - 1) / n * leaf_bytes
        for n, leaf_bytes in zip(groups, sizes.leaf_bytes("grads"), strict=True)
    )


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    """Three other axes, dims that two of them split, low precision; one device; nothing to sum."""
    a, b, c = axis_names(rng, 3, besides=("dp", "ep", "pp", "tp"))
    k = pick(rng, (17, 19, 23))
    low = "bfloat16"
    many = [
        {
            "w": Parts(ArraySpec((k, 4 * (k + 1)), f"d f_{a}_{b}", low), c),
            "gain": Parts(ArraySpec((k + 2,), "d", low), f"{a}_{b}_{c}"),
        },
        (
            Parts(ArraySpec((3 * k, k + 3, 2 * k), f"e_{c} d f_{b}"), a),
            Parts(ArraySpec((k, k + 1), "d f"), f"{c}_{a}"),
            Parts(ArraySpec((2 * k, k + 4), f"v_{a} d", low), f"{b}_{c}"),
        ),
        Parts(ArraySpec((k + 5, k), "d f")),
        Parts(ArraySpec((k, 6 * k), f"d f_{c}_{a}", low)),
        Parts(ArraySpec((6 * k, 3), f"v_{b}_{c} d"), a),
    ]
    alone = {
        "w": Parts(ArraySpec((k, k + 6), f"d f_{b}"), a),
        "gain": Parts(ArraySpec((k + 7,), "d"), f"{a}_{b}"),
        "experts": Parts(ArraySpec((2 * k, 5), f"e_{a} f"), b),
    }
    done = [Parts(ArraySpec((5 * k, 7), f"d_{b} f")), Parts(ArraySpec((k, 9), "d f"))]
    return (
        _case(mesh_of(rng, **{a: 2, b: 2, c: 3}), many),
        _case(mesh_of(rng, **{a: 2, b: 1}), alone),
        _case(f"{b}=5", done),
    )


CONTRACT = Contract(
    kind="program",
    task="sum each gradient over the axes over which its type varies and which its spec lacks",
    reference=leaves.sum_gradients,
    oracle=_summed,
    cases=(
        _case(
            "dp=2,ep=2,tp=2",
            {
                "w": Parts(ArraySpec((6, 8), "d f_tp"), "dp_ep"),
                "gains": [
                    Parts(ArraySpec((6,), "d"), "dp_ep_tp"),
                    Parts(ArraySpec((10,), "d"), "dp_ep"),
                ],
                "experts": Parts(ArraySpec((4, 6, 5), "e_ep d f"), "dp"),
                "table": Parts(ArraySpec((14, 6), "v_tp d"), "dp_ep"),
                "summed": {
                    "w": Parts(ArraySpec((6, 12), "d f_tp")),
                    "gain": Parts(ArraySpec((6,), "d")),
                },
            },
        ),
        _case(
            "pp=2,dp=3",
            {
                "ends": [
                    Parts(ArraySpec((9, 4), "v d"), "pp_dp"),
                    Parts(ArraySpec((12, 4), "v_pp_dp d")),
                    Parts(ArraySpec((4,), "d"), "dp"),
                ],
                "layers": {
                    "w": Parts(ArraySpec((4, 4, 7), "l_pp d f"), "dp"),
                    "gain": Parts(ArraySpec((4, 8), "l_pp d"), "dp"),
                },
            },
        ),
    ),
    draw=_drawn,
    communication=Communication(
        "one all-reduce of each gradient, over those axes together; nothing for what is summed",
        forward=((Limit(EVERY_KIND, None, _one_all_reduce_each),),),
    ),
    hints=(
        "What differs along an axis is split along it, or is a part of a sum. The type of a "
        "gradient says along which axes it differs, and its spec which of them split it.",
        "varying_axes(x) of jaxpar.mesh, or jax.typeof(x).manual_axis_type.varying, is a set of "
        "axes. An entry of a spec is None, an axis, or a tuple of axes.",
        "jax.tree.map(f, grads, specs) calls f with each gradient and its spec. lax.psum(x, axes) "
        "takes a tuple of axes, and sums over all of them at once; leave it out if there is none.",
    ),
    minimal="A part of each other device of the group must reach a device, added up on the way: "
    "(n-1)/n of a gradient to those that add it up, and as much for the sums to come back.",
    harder="With ZeRO each device needs its shard of a sum alone. Which of the axes do you "
    "reduce-scatter over, and when?",
)


def _sums(grads: Any, specs: Any, axes_for: Any, add: Any = lax.psum) -> Any:
    """Each gradient added up over the axes that a function of it and of its spec names."""

    def of_leaf(x: Array, spec: P) -> Array:
        axes = tuple(axis for axis in _axes() if axis in axes_for(x, spec))
        return add(x, axes) if axes else x

    return jax.tree.map(of_leaf, grads, specs)


def _add_alike(x: Array, axes: tuple[str, ...]) -> Array:
    """The sum over axes by some of which x may be equal; lax.psum refuses a mixture of both."""
    return lax.psum(vary(x, axes), axes)


def _axes() -> tuple[str, ...]:
    return jax.sharding.get_abstract_mesh().axis_names


def _not_in_spec(x: Array, spec: P) -> frozenset[str]:
    return varying_axes(x) - set(axes_of(spec))


@wrong("values")
def not_summed(grads: Any, specs: Any) -> Any:
    """Each device returns its own parts; sum them over the axes that are not in the spec."""
    return grads


@wrong("values")
def types_ignored(grads: Any, specs: Any) -> Any:
    """Each gradient is summed over all axes that its spec lacks. Where it is equal already, the sum
    is n times too large; sum only over axes by which its type varies."""
    return _sums(grads, specs, lambda x, spec: set(_axes()) - set(axes_of(spec)), _add_alike)


@wrong("values")
def specs_ignored(grads: Any, specs: Any) -> Any:
    """Each gradient is summed over all axes by which its type varies, also over those that split
    it: different experts over ep, different columns over tp. Leave out the axes in its spec."""
    return _sums(grads, specs, lambda x, spec: varying_axes(x))


@wrong("values")
def one_list_of_axes(grads: Any, specs: Any) -> Any:
    """All gradients are summed over the same axes; each has its own, by its type and its spec."""
    missing = jax.tree.leaves(jax.tree.map(_not_in_spec, grads, specs))
    return _sums(grads, specs, lambda x, spec: frozenset().union(*missing), _add_alike)


@wrong("values")
def over_axes_that_split_no_leaf(grads: Any, specs: Any) -> Any:
    """An axis that splits some gradient is left out for all of them. A gain that each device of tp
    computes from its own tokens is a part of a sum over tp, too."""
    split = {axis for spec in jax.tree.leaves(specs) for axis in axes_of(spec)}
    return _sums(grads, specs, lambda x, spec: varying_axes(x) - split)


@wrong("values")
def whole_leaves_only(grads: Any, specs: Any) -> Any:
    """A gradient whose spec names an axis is not summed at all; sum it over the other axes."""
    return _sums(grads, specs, lambda x, spec: () if axes_of(spec) else varying_axes(x))


@wrong("values")
def over_one_axis(grads: Any, specs: Any) -> Any:
    """Each gradient is summed over one axis only; there may be several."""
    return _sums(grads, specs, _not_in_spec, lambda x, axes: lax.psum(x, axes[0]))


@wrong("values")
def averaged(grads: Any, specs: Any) -> Any:
    """The gradients are averaged; they are parts of a sum."""
    return _sums(grads, specs, _not_in_spec, lax.pmean)


@wrong("values")
def first_dim_only(grads: Any, specs: Any) -> Any:
    """Only the first entry of a spec is read; an axis may split any dim."""
    return _sums(grads, specs, lambda x, spec: varying_axes(x) - set(entry_axes((*spec, None)[0])))


@wrong("values")
def tuples_in_specs_ignored(grads: Any, specs: Any) -> Any:
    """An entry of a spec may be a tuple of several axes, all of which split the dim; yours counts
    as none of them."""
    return _sums(grads, specs, lambda x, spec: varying_axes(x) - set(spec))


@wrong("values")
def first_of_tuples_in_specs(grads: Any, specs: Any) -> Any:
    """Of an entry of a spec that is a tuple of axes, the first one is read; all of them split the
    dim."""
    read = lambda spec: {axis for entry in spec for axis in entry_axes(entry)[:1]}  # noqa: E731
    return _sums(grads, specs, lambda x, spec: varying_axes(x) - read(spec))


@wrong("communication")
def gathered_and_added(grads: Any, specs: Any) -> Any:
    """The parts of all devices are gathered, and added up then: n/2 times the bytes of an
    all-reduce."""
    return _sums(grads, specs, _not_in_spec, lambda x, axes: lax.all_gather(x, axes).sum(axis=0))


@wrong("communication")
def one_axis_after_the_other(grads: Any, specs: Any) -> Any:
    """A gradient is summed over one axis after the other. That sends more than one sum over all of
    them: lax.psum takes a tuple of axes."""

    def add(x: Array, axes: tuple[str, ...]) -> Array:
        for axis in axes:
            x = lax.psum(x, axis)
        return x

    return _sums(grads, specs, _not_in_spec, add)


@wrong("communication")
def equal_ones_averaged(grads: Any, specs: Any) -> Any:
    """What is equal on all devices of an axis is summed over it, and divided by their number. The
    value is right, and nothing had to be sent."""

    def of_leaf(x: Array, spec: P) -> Array:
        axes = tuple(axis for axis in _axes() if axis not in axes_of(spec))
        copies = lax.axis_size(tuple(set(axes) - varying_axes(x)))
        return _add_alike(x, axes) / copies if axes else x

    return jax.tree.map(of_leaf, grads, specs)


@wrong("communication")
def summed_in_float32(grads: Any, specs: Any) -> Any:
    """Gradients are sent as float32 whatever they are; send them in their own dtype, of which
    bfloat16 takes half the bytes."""

    def add(x: Array, axes: tuple[str, ...]) -> Array:
        return lax.psum(x.astype(jnp.float32), axes).astype(x.dtype)

    return _sums(grads, specs, _not_in_spec, add)
