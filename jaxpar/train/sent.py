"""What a step sends over each group of axes: as the formulas say, and as its program is counted.

The program of a pipeline has a branch for each kind of action in every tick, and the inspector
counts them all. The schedule says which of them a device takes.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxpar.collectives.leaves import STACKED
from jaxpar.cost.compress import Compressed
from jaxpar.cost.decoder_traffic import bytes_over_axes, decoder_traffic, teacher_traffic
from jaxpar.cost.eight_bits import block_of
from jaxpar.cost.leaf import Leaf
from jaxpar.cost.traffic import Message
from jaxpar.inspector.report import Collective, Report
from jaxpar.layout import Layout
from jaxpar.mesh import axes_of
from jaxpar.model import Settings
from jaxpar.parallel.precision import POLICIES
from jaxpar.schedules import ticks
from jaxpar.schedules.ticks import Ticks, lower
from jaxpar.train.compression import compressed, groups_of
from jaxpar.train.recipe import Recipe
from jaxpar.train.setup import leaf_layouts_of
from jaxpar.train.trained import trained


class Sent(NamedTuple):
    """The bytes that a device sends in a step over a group of axes.

    Attributes:
        axes: the axes, in mesh order.
        predicted_bytes: by the formulas of `jaxpar.cost.decoder_traffic`.
        by_schedule_bytes: by the compiled program, with the branches that the busiest device takes.
        at_most_bytes: with every branch of the program counted.
    """

    axes: tuple[str, ...]
    predicted_bytes: float
    by_schedule_bytes: float
    at_most_bytes: float


def sent_over_axes(
    report: Report, recipe: Recipe, settings: Settings, teacher: Settings | None = None
) -> tuple[Sent, ...]:
    """What a step sends over each group of axes, from what the inspector found.

    `teacher` are the settings of a decoder that teaches the one with these settings.
    """
    of_devices: dict[tuple[str, ...], np.ndarray] = {}
    for one in report.collectives:
        so_far = of_devices.get(one.axes, np.zeros(recipe.layout.pp))
        of_devices[one.axes] = so_far + times_by_schedule(one, recipe) * one.wire_bytes
    at_most = report.wire_bytes_by_axis()
    messages = predict(settings, recipe)
    if teacher:
        messages += predict_teacher(teacher, recipe, settings.sequence)
    predicted = bytes_over_axes(messages, recipe.layout, recipe.table)
    return tuple(
        Sent(
            axes,
            predicted.get(axes, 0.0),
            float(max(of_devices.get(axes, [0]))),
            at_most.get(axes, 0.0),
        )
        for axes in dict.fromkeys([*of_devices, *predicted])
    )


def predict(settings: Settings, recipe: Recipe) -> list[Message]:
    """Every collective of a step, by the formulas."""
    return decoder_traffic(
        settings.architecture,
        recipe.layout,
        leaves_of(settings, recipe.layout),
        batch=recipe.batch,
        sequence=settings.sequence,
        element_bytes=np.dtype(POLICIES[recipe.precision].params).itemsize,
        table=recipe.table,
        gathers_layers=recipe.gathers_layers,
        scaled=recipe.precision == "fp16",
        compressed=_compressed(settings, recipe),
        sync_every=recipe.sync_every,
        capacity_factor=settings.capacity_factor,
        balance=settings.balance,
    )


def predict_teacher(teacher: Settings, recipe: Recipe, sequence: int) -> list[Message]:
    """Every collective that a teacher adds to a step, by the formulas."""
    return teacher_traffic(
        teacher.architecture,
        recipe.layout,
        leaves_of(teacher, recipe.layout),
        batch=recipe.batch,
        sequence=sequence,
        element_bytes=np.dtype(POLICIES[recipe.precision].params).itemsize,
        gathers_layers=recipe.gathers_layers,
        capacity_factor=teacher.capacity_factor,
    )


def _compressed(settings: Settings, recipe: Recipe) -> list[Compressed]:
    """What is sent over dp in few bits."""
    if not recipe.compression:
        return []
    layout = recipe.layout
    shapes, layouts = leaf_layouts_of(settings, layout)
    groups = groups_of(shapes, layouts, layout.sizes, recipe.compression)
    return compressed(groups, recipe.compression, layout.dp)


def leaves_of(settings: Settings, layout: Layout) -> list[Leaf]:
    """The parameters of a decoder as the formulas know them."""
    params, layouts = leaf_layouts_of(settings, layout)
    pairs = zip(jax.tree.leaves_with_path(params), jax.tree.leaves(layouts), strict=True)
    names_of_trained = {path for path, _ in jax.tree.leaves_with_path(trained(params))}
    leaves = []
    for (path, leaf), spread in pairs:
        name = jax.tree_util.keystr(path, simple=True, separator=" ")
        is_float = jnp.issubdtype(leaf.dtype, jnp.floating)
        leaves.append(
            Leaf(
                name,
                math.prod(leaf.shape),
                axes_of(spread.used),
                spread.axes,
                layers=leaf.shape[0] if name.startswith(STACKED) else 0,
                trained=path in names_of_trained,
                element_bytes=None if is_float else leaf.dtype.itemsize,
                block=block_of(leaf.shape),
            )
        )
    return leaves


def times_by_schedule(one: Collective, recipe: Recipe) -> np.ndarray:
    """How often each stage of the pipeline runs a collective."""
    times = np.full(recipe.layout.pp, float(one.times or 0))
    if not one.branches or not recipe.table:
        return times
    keeps = recipe.keeps_inputs
    rows = lower(recipe.table, keep_inputs=keeps).ticks
    taken = _taken(rows, one.branches)
    return times * taken.sum(axis=0) / len(rows.kind)


def _taken(rows: Ticks, branches: tuple[int, ...]) -> np.ndarray:
    """In which ticks each device takes a branch of the loop in `jaxpar.parallel.pipeline`."""
    present = [kind for kind in ticks.CODES.values() if np.any(rows.kind == kind)]
    kind = present[branches[0]]
    taken = rows.kind == kind
    if len(branches) == 1:
        return taken
    # A backward action begins with the condition for the last stage. All others that hold a
    # collective are for the first; experts have conditions, too, and none of these sends anything.
    of_last = kind != ticks.FORWARD and branches[1] == 0
    return taken & ((rows.last if of_last else rows.first) == 1)
