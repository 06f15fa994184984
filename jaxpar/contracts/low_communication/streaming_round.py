"""DiLoCo's outer step for a fragment of the parameters at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from jaxpar.contracts.base import BadCall, Communication, Contract, Expected, Limit, wrong
from jaxpar.contracts.blocks import axis_first, mesh_order, on_every_device
from jaxpar.contracts.case import ArraySpec, Case, Function, Made, Sizes
from jaxpar.contracts.draws import all_axes, axis_names, mesh_of, pick
from jaxpar.contracts.losses import on_each_device
from jaxpar.contracts.steps import enter
from jaxpar.mesh import parse_mesh
from jaxpar.parallel import local

Fragments = Sequence[Sequence[int]]


def _due(case: Case) -> list[int]:
    """The numbers of the fragments that are synchronised: one, or none."""
    step, every, fragments = (case.kwargs[name] for name in ("step", "every", "fragments"))
    count = len(fragments)
    return [f for f in range(count) if step % every == f * every // count]


def _synchronised(
    case: Case,
    params: Any,
    anchors: Any,
    outer_states: Sequence[Any],
    outer: optax.GradientTransformation,
) -> list[Expected]:
    # [n, *sizes of the other mesh axes, *shape], of anchors and states without n
    own = [axis_first(case, leaf) for leaf in jax.tree.leaves(params)]
    others = [size for axis, size in case.sizes.items() if axis != case.kwargs["axis"]]

    def for_groups(tree: Any) -> Any:
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (*others, *leaf.shape)), tree)

    kept, states = for_groups(jax.tree.leaves(anchors)), for_groups(list(outer_states))
    for number in _due(case):
        places = case.kwargs["fragments"][number]
        old = [kept[place] for place in places]
        delta = [leaf - own[place].mean(axis=0) for leaf, place in zip(old, places, strict=True)]
        updates, states[number] = outer.update(delta, states[number], old)
        moved: Any = optax.apply_updates(old, updates)
        for place, leaf in zip(places, moved, strict=True):
            kept[place] = leaf
            own[place] = jnp.broadcast_to(leaf, own[place].shape)
    return [
        *(Expected(mesh_order(case, leaf)) for leaf in own),
        *(Expected(on_every_device(case, leaf)) for leaf in jax.tree.leaves((kept, states))),
    ]


NESTEROV = Made(Function("optax:sgd"), (0.7, 0.9, True))
DECAYING = Function("jaxpar.contracts.optimizers:MOMENTUM")
EMPTY = Made(Function("optax:EmptyState"), ())


def _leaves(tree: Any) -> list[ArraySpec]:
    """The leaves in the order of `jax.tree.leaves`."""
    if isinstance(tree, ArraySpec):
        return [tree]
    parts = [tree[key] for key in sorted(tree)] if isinstance(tree, dict) else tree
    return [leaf for part in parts for leaf in _leaves(part)]


def _case(
    mesh: str,
    axis: str,
    params: Any,
    step: int,
    fragments: Fragments,
    *,
    every: int,
    decaying: bool = False,
) -> Case:
    """The optimizer has Nesterov momentum, or one whose weights decay."""
    devices, leaves = int(np.prod([*parse_mesh(mesh).values()])), _leaves(params)
    there = [[leaves[place] for place in one if place < len(leaves)] for one in fragments]
    states = [(Made(Function("optax:TraceState"), (some,)), EMPTY) for some in there]
    return Case(
        mesh,
        {
            "params": on_each_device(params, devices, all_axes(mesh)),
            "anchors": params,
            "outer_states": tuple(there if decaying else states),
            "outer": DECAYING if decaying else NESTEROV,
        },
        {"step": step, "fragments": fragments, "every": every, "axis": axis},
    )


def _params(
    rows: int, columns: int, dtype: str = "float32", heads: tuple[int, int] = (2, 3)
) -> dict[str, Any]:
    """Five leaves, which are not written in the order in which they count: bias is the first."""
    return {
        "layers": [
            ArraySpec((rows, columns), "d f", dtype),
            ArraySpec((columns, heads[0]), "f a", dtype),
        ],
        "bias": ArraySpec((columns,), "f"),
        "scale": ArraySpec((*heads, rows), "a h d"),
        "out": {"w": ArraySpec((columns, rows), "f d", dtype)},
    }


_THREE = {
    "a": ArraySpec((16, 8), "d f"),
    "b": ArraySpec((8, 8), "d f"),
    "c": ArraySpec((16,), "d"),
}
_EACH, _MIXED = ((0,), (1,), (2,)), ((3, 1), (4,), (2, 0))


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    """bfloat16, weights that decay and other fragments; nothing due; one device."""
    axis, other = axis_names(rng, 2, besides=("dp", "tp"))
    n, others = pick(rng, ((6, 2), (5, 2), (4, 3)))
    low = _params(pick(rng, (5, 7)), pick(rng, (6, 8)), "bfloat16")
    every, rounds, f = pick(rng, (11, 13)), pick(rng, range(2, 9)), pick(rng, (1, 2, 3))
    fragments = ((4, 0), (1,), (3,), (2,))
    due = rounds * every + f * every // 4
    few = _params(4, pick(rng, (3, 5)), heads=(3, 2))
    return (
        _case(
            mesh_of(rng, **{axis: n, other: others}),
            axis, low, due, fragments, every=every, decaying=True,
        ),
        _case(f"{other}=3,{axis}=2", axis, few, 3 * every + 1, _MIXED, every=every),
        _case(f"{axis}=1,{other}=2", axis, few, 17 * every, ((0, 1, 2, 3, 4),), every=every),
    )  # fmt: skip


def _due_bytes(sizes: Sizes) -> float:
    """Wire bytes of an all-reduce of the leaves that are due, each padded to n chunks."""
    case, n = sizes.case, sizes.n()
    leaves, held = _leaves(case.args["anchors"]), sizes.leaf_bytes("anchors")
    places = [place for number in _due(case) for place in case.kwargs["fragments"][number]]
    items = {place: jnp.dtype(leaves[place].dtype).itemsize for place in places}
    return 2 * (n - 1) * sum(-(-held[i] // (n * items[i])) * items[i] for i in places)


CONTRACT = Contract(
    kind="program",
    task="synchronise the fragment that is due after `step`, if one is, and leave all others alone",
    reference=local.streaming_round,
    oracle=_synchronised,
    cases=(
        _case("dp=8", "dp", _THREE, 0, _EACH, every=7),
        _case("dp=8", "dp", _THREE, 9, _EACH, every=7),
        _case("dp=2,tp=3", "dp", _params(6, 4), 3 * 5 + 1, _MIXED, every=5),
        _case("dp=2,tp=3", "dp", _params(6, 4), 3 * 5 + 2, _MIXED, every=5),
    ),
    draw=_drawn,
    errors=(
        BadCall(_case("dp=8", "dp", _THREE, 0, _EACH, every=2), "3 fragments in 2 steps"),
        BadCall(_case("dp=8", "dp", _THREE, 0, ((0,), (2,)), every=7), "leaf 1 in no fragment"),
        BadCall(
            _case("dp=8", "dp", _THREE, 0, ((0, 1), (1, 2)), every=7), "leaf 1 in two fragments"
        ),
        BadCall(
            _case("dp=8", "dp", _THREE, 0, ((0, 1), (2, 3)), every=7), "leaf 3 of leaves 0 to 2"
        ),
    ),
    communication=Communication(
        "one all-reduce's bytes of the leaves that are due, and nothing where none is",
        forward=((Limit(("all_reduce", "all_to_all", "permute"), "axis", _due_bytes),),),
    ),
    hints=(
        "`step` is a number of Python, so which fragment is due is known while the function is "
        "traced: an `if` will do, and what is not due is not even looked at.",
        "For the leaves of the fragment: lax.pmean of the parameters, delta = anchors less that "
        "mean, outer.update(delta, outer_states[f], anchors). Parameters and anchors both become "
        "the new anchors.",
        "jax.tree.flatten gives the leaves by their places, and its structure puts them back. A "
        "new anchor is equal on all devices, and this device's parameters are not: lax.pcast it "
        "to varying where it replaces them.",
    ),
    minimal="What is due must reach all devices, (n-1)/n of it each way; and the largest fragment, "
    "not the whole model, is what the link must carry at once.",
    harder="Let a fragment take its new anchor some steps later, so that the all-reduce has time, "
    "and mix it with what this device has trained since then.",
)


def _is_due(step: int, every: int, number: int, count: int) -> bool:
    return step % every == number * every // count


def _check(params: Any, fragments: Fragments, every: int) -> None:
    places = sorted(place for fragment in fragments for place in fragment)
    if len(fragments) > every or places != [*range(len(jax.tree.leaves(params)))]:
        raise ValueError(f"{fragments=}, {every=}")


def _round(
    params: Any,
    anchors: Any,
    outer_states: Any,
    outer: Any,
    due: Sequence[int],
    fragments: Fragments,
    axis: str,
    *,
    factor: float = 1,
    local_delta: bool = False,
) -> tuple[Any, Any, Any]:
    """A right round where `due` is; mistakes change what goes in or comes out."""
    leaves, structure = jax.tree.flatten(params)
    kept, states = jax.tree.leaves(anchors), list(outer_states)
    for number in due:
        places = fragments[number]
        old, own = ([held[place] for place in places] for held in (kept, leaves))
        mean = own if local_delta else lax.pmean(own, axis)
        delta = jax.tree.map(lambda a, b: factor * (a - b), old, mean)
        updates, states[number] = outer.update(delta, states[number], old)
        moved: Any = optax.apply_updates(old, updates)
        for place, leaf in zip(places, moved, strict=True):
            kept[place] = leaf
            leaves[place] = leaf if local_delta else enter(leaf, axis)
    return structure.unflatten(leaves), structure.unflatten(kept), tuple(states)


def _due_now(step: int, every: int, fragments: Fragments) -> list[int]:
    count = len(fragments)
    return [number for number in range(count) if _is_due(step, every, number, count)]


@wrong("values")
def all_fragments_synchronised(
    params, anchors, outer_states, outer, step, *, fragments, every, axis
):
    """All fragments are synchronised in each step; only one whose turn it is may be."""
    _check(params, fragments, every)
    due = range(len(fragments))
    return _round(params, anchors, outer_states, outer, due, fragments, axis)


@wrong("values")
def all_at_the_same_time(params, anchors, outer_states, outer, step, *, fragments, every, axis):
    """All fragments are due in the same step, as in DiLoCo; fragment f is due f*every//F steps
    after the first."""
    _check(params, fragments, every)
    due = range(len(fragments)) if step % every == 0 else ()
    return _round(params, anchors, outer_states, outer, due, fragments, axis)


@wrong("values")
def a_fragment_in_each_step(params, anchors, outer_states, outer, step, *, fragments, every, axis):
    """A fragment is due in each step, one after the other; each is due once in `every` steps."""
    _check(params, fragments, every)
    due = [step % len(fragments)]
    return _round(params, anchors, outer_states, outer, due, fragments, axis)


@wrong("values")
def one_step_early(params, anchors, outer_states, outer, step, *, fragments, every, axis):
    """A fragment is synchronised one step early; it is due where step % every == f*every//F."""
    _check(params, fragments, every)
    due = _due_now(step + 1, every, fragments)
    return _round(params, anchors, outer_states, outer, due, fragments, axis)


@wrong("values")
def one_step_late(params, anchors, outer_states, outer, step, *, fragments, every, axis):
    """A fragment is synchronised one step late; it is due where step % every == f*every//F."""
    _check(params, fragments, every)
    due = _due_now(step - 1, every, fragments)
    return _round(params, anchors, outer_states, outer, due, fragments, axis)


@wrong("values")
def multiples_of_every_over_f(
    params, anchors, outer_states, outer, step, *, fragments, every, axis
):
    """Fragments are due at multiples of every//F, which drift where F does not divide `every`; they
    are due at f*every//F."""
    _check(params, fragments, every)
    count = len(fragments)
    due = [f for f in range(count) if step % every == f * (every // count)]
    return _round(params, anchors, outer_states, outer, due, fragments, axis)


@wrong("values")
def leaves_in_their_order(params, anchors, outer_states, outer, step, *, fragments, every, axis):
    """The leaves are dealt out in their own order; use the places that `fragments` lists."""
    _check(params, fragments, every)
    places, leaves = iter(range(len(jax.tree.leaves(params)))), jax.tree.leaves(anchors)
    dealt = [[next(places) for _ in fragment] for fragment in fragments]
    states = [outer.init([leaves[place] for place in fragment]) for fragment in dealt]
    due = _due_now(step, every, fragments)
    return _round(params, anchors, states, outer, due, dealt, axis)


@wrong("values")
def anchors_not_renewed(params, anchors, outer_states, outer, step, *, fragments, every, axis):
    """The anchors are returned as they came; the fragment that is due has new ones."""
    _check(params, fragments, every)
    due = _due_now(step, every, fragments)
    params, _, states = _round(params, anchors, outer_states, outer, due, fragments, axis)
    return params, anchors, states


@wrong("values")
def parameters_not_renewed(params, anchors, outer_states, outer, step, *, fragments, every, axis):
    """The devices go on from their own parameters; those of the fragment that is due become the new
    anchors."""
    _check(params, fragments, every)
    due = _due_now(step, every, fragments)
    return params, *_round(params, anchors, outer_states, outer, due, fragments, axis)[1:]


@wrong("values")
def outer_states_not_renewed(params, anchors, outer_states, outer, step, *, fragments, every, axis):
    """The outer states are returned as they came; that of the fragment that is due is a new one."""
    _check(params, fragments, every)
    due = _due_now(step, every, fragments)
    params, anchors, _ = _round(params, anchors, outer_states, outer, due, fragments, axis)
    return params, anchors, outer_states


@wrong("values")
def all_outer_states_stepped(params, anchors, outer_states, outer, step, *, fragments, every, axis):
    """The outer optimizer steps for all fragments, so that the momentum of those that are not due
    decays; leave their states alone."""
    _check(params, fragments, every)
    due = _due_now(step, every, fragments)
    params, anchors, states = _round(params, anchors, outer_states, outer, due, fragments, axis)
    leaves = jax.tree.leaves(anchors)
    stepped = [
        state
        if number in due
        else outer.update([0 * leaves[place] for place in fragments[number]], state)[1]
        for number, state in enumerate(states)
    ]
    return params, anchors, tuple(stepped)


@wrong("values")
def delta_with_other_sign(params, anchors, outer_states, outer, step, *, fragments, every, axis):
    """The outer gradient has the wrong sign; it is the anchors less the mean of the parameters."""
    _check(params, fragments, every)
    due = _due_now(step, every, fragments)
    return _round(params, anchors, outer_states, outer, due, fragments, axis, factor=-1)


@wrong("values")
def outer_without_anchors(params, anchors, outer_states, outer, step, *, fragments, every, axis):
    """`outer` is not given the anchors, so that its weights do not decay; call outer.update(delta,
    outer_states[f], anchors), of the leaves that are due."""
    _check(params, fragments, every)

    def update(updates, state, params=None):
        del params
        return outer.update(updates, state)

    forgetful = optax.GradientTransformation(outer.init, update)
    due = _due_now(step, every, fragments)
    return _round(params, anchors, outer_states, forgetful, due, fragments, axis)


@wrong("values")
def mean_without_outer_step(params, anchors, outer_states, outer, step, *, fragments, every, axis):
    """Parameters and anchors become the mean; let `outer` step towards it."""
    _check(params, fragments, every)
    leaves, structure = jax.tree.flatten(params)
    kept = jax.tree.leaves(anchors)
    for number in _due_now(step, every, fragments):
        for place in fragments[number]:
            kept[place] = lax.pmean(leaves[place], axis)
            leaves[place] = enter(kept[place], axis)
    return structure.unflatten(leaves), structure.unflatten(kept), outer_states


@wrong("values")
def each_device_for_itself(params, anchors, outer_states, outer, step, *, fragments, every, axis):
    """The outer gradient is how far this device went; take the mean of all."""
    _check(params, fragments, every)
    due = _due_now(step, every, fragments)
    return _round(params, anchors, outer_states, outer, due, fragments, axis, local_delta=True)


@wrong("values")
def deltas_added_up(params, anchors, outer_states, outer, step, *, fragments, every, axis):
    """The outer gradient is the sum of how far the devices went; take the mean."""
    _check(params, fragments, every)
    due, n = _due_now(step, every, fragments), lax.axis_size(axis)
    return _round(params, anchors, outer_states, outer, due, fragments, axis, factor=n)


@wrong("communication")
def chosen_when_it_runs(params, anchors, outer_states, outer, step, *, fragments, every, axis):
    """Every fragment is synchronised in the program, and jnp.where chooses; `step` is known while
    the function is traced, so an `if` leaves the others out."""
    _check(params, fragments, every)
    numbers = range(len(fragments))
    new = _round(params, anchors, outer_states, outer, numbers, fragments, axis)
    flags = jnp.array([number in _due_now(step, every, fragments) for number in numbers])
    of_place = {place: n for n, fragment in enumerate(fragments) for place in fragment}

    def chosen(new: Any, old: Any) -> Any:
        leaves, structure = jax.tree.flatten(new)
        pairs = zip(leaves, jax.tree.leaves(old), strict=True)
        return structure.unflatten(
            [jnp.where(flags[of_place[i]], one, other) for i, (one, other) in enumerate(pairs)]
        )

    states = [
        jax.tree.map(lambda one, other, n=n: jnp.where(flags[n], one, other), one, other)
        for n, (one, other) in enumerate(zip(new[2], outer_states, strict=True))
    ]
    return chosen(new[0], params), chosen(new[1], anchors), tuple(states)


@wrong("communication")
def due_parameters_gathered(params, anchors, outer_states, outer, step, *, fragments, every, axis):
    """The parameters of all devices are gathered and averaged on each: n/2 times the bytes of an
    all-reduce."""
    _check(params, fragments, every)
    due = _due_now(step, every, fragments)
    places = [place for number in due for place in fragments[number]]
    leaves, structure = jax.tree.flatten(params)
    for place in places:
        leaves[place] = lax.all_gather(leaves[place], axis).mean(axis=0)
    gathered = structure.unflatten(leaves)
    return _round(gathered, anchors, outer_states, outer, due, fragments, axis, local_delta=True)


@wrong("errors")
def any_fragments(params, anchors, outer_states, outer, step, *, fragments, every, axis):
    """Raise ValueError where there are more fragments than steps, or where a leaf is not in exactly
    one fragment, since it would never be synchronised, or twice."""
    last = len(jax.tree.leaves(params))
    there = [[place for place in fragment if place < last] for fragment in fragments]
    due = _due_now(step, every, fragments)[:1]
    return _round(params, anchors, outer_states, outer, due, there, axis)
