"""Any schedule gives the gradient of one device, sends two permutes a tick, and keeps what it says.

`tests/train/test_pipeline.py` trains a decoder by each schedule.
"""

from collections import Counter
from collections.abc import Iterator
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxpar import backward
from jaxpar.inspector.compiled import Compiled, compile_program
from jaxpar.inspector.hlo import walk_hlo
from jaxpar.inspector.hlo_text import parse_hlo
from jaxpar.inspector.mlir import ir
from jaxpar.inspector.program import inspect_compiled
from jaxpar.inspector.walk import Site, walk
from jaxpar.mesh import make_mesh
from jaxpar.parallel import pipeline
from jaxpar.schedules import NAMES, Table, make_table
from jaxpar.schedules.ticks import lower
from tests.arrays import random
from tests.comm_lines import comm, evaluate, measured, memory, stated
from tests.parallel.calls import elements

P = jax.P
PARAM_SPECS = P(), P("pp")
LAYERS, ROWS, D = 12, 4, 8
X_BYTES = 4 * ROWS * D


class Run(NamedTuple):
    """A schedule for a number of devices and microbatches."""

    name: str
    sizes: str
    microbatches: int
    chunks: int | None = None
    keep_inputs: bool = False

    @property
    def table(self) -> Table:
        return make_table(self.name, make_mesh(self.sizes).shape["pp"], *self[2:4])


ENDS = {"in": random(3, D) / 4, "tied": random(5, D) / 4, "scale": np.float32(1.5)}
STACK = {"up": random(LAYERS, D, 8), "bias": random(LAYERS, 8), "down": random(LAYERS, 8, D)}
STACK = {name: leaf / 4 for name, leaf in STACK.items()}


def first_fn(ends: Any, microbatch: Any) -> jax.Array:
    return microbatch["x"] @ ends["in"] + ends["tied"][microbatch["token"]]


def layer_fn(layer: Any, x: jax.Array) -> jax.Array:
    y = x @ layer["up"]
    return x + jnp.tanh(y + jnp.broadcast_to(layer["bias"], y.shape)) @ layer["down"]


def last_fn(ends: Any, y: jax.Array, microbatch: Any) -> jax.Array:
    scores = ends["scale"] * y @ ends["tied"].T
    return -jnp.take_along_axis(jax.nn.log_softmax(scores), microbatch["token"][:, None], 1).mean()


def batch(m: int, rows: int = ROWS) -> dict[str, np.ndarray]:
    tokens = np.random.default_rng(m).integers(0, 5, (m, rows))
    return {"x": random(m, rows, 3) / 4, "token": tokens.astype(np.int32)}


@jax.jit
@partial(jax.vmap, in_axes=(None, 0))
@jax.value_and_grad
def one_device(params: Any, microbatch: Any) -> jax.Array:
    x = first_fn(params[0], microbatch)
    x, _ = lax.scan(lambda x, layer: (layer_fn(layer, x), None), x, params[1])
    return last_fn(params[0], x, microbatch)


def lowered(
    run: Run, layers: Any, microbatches: Any, table: Table | None = None, scale: Any = 1.0
) -> jax.stages.Lowered:
    """The mean loss and its gradient, times `scale`, with the sums that are left to the caller."""
    mesh = make_mesh(run.sizes)
    others = tuple(mesh.axis_names)[1:]

    def gradients(params: Any, microbatches: Any) -> Any:
        if others:
            params = jax.tree.map(lambda leaf: lax.pcast(leaf, others, to="varying"), params)
        loss, (ends, layers) = pipeline.pipeline_gradients(
            first_fn,
            layer_fn,
            last_fn,
            params,
            microbatches,
            table or run.table,
            keep_inputs=run.keep_inputs,
            axis="pp",
            scale=scale,
        )
        found = lax.psum(loss, "pp"), (lax.psum(ends, "pp"), layers)
        return jax.tree.map(lambda leaf: lax.pmean(leaf, others), found) if others else found

    mapped = jax.shard_map(
        gradients, mesh=mesh, in_specs=(PARAM_SPECS, P(None, others)), out_specs=(P(), PARAM_SPECS)
    )
    return jax.jit(mapped).lower((ENDS, layers), microbatches)


@cache
def compiled(run: Run) -> tuple[jax.stages.Lowered, Compiled]:
    rows = ROWS * make_mesh(run.sizes).size // make_mesh(run.sizes).shape["pp"]
    order = pipeline.layer_order(run.table, LAYERS)
    layers = jax.tree.map(lambda leaf: leaf[order], STACK)
    program = lowered(run, layers, batch(run.microbatches, rows))
    return program, compile_program(program)


RUNS = (
    Run("naive", "pp=2", 3),
    Run("gpipe", "pp=4", 8),
    Run("1f1b", "pp=1", 2),
    Run("1f1b", "pp=4", 8),
    Run("1f1b", "pp=3,dp=2", 5, keep_inputs=True),
    Run("interleaved", "pp=2", 4, 3),
    Run("interleaved", "pp=3,dp=2", 3, 2, keep_inputs=True),
    Run("breadth-first", "pp=2,dp=2", 3, 2),
    Run("zb-h1", "pp=4", 8),
    Run("zb-h1", "pp=3,dp=2", 5, keep_inputs=True),
    Run("zb-h2", "pp=3", 7),
    Run("zb-v", "pp=2,dp=2", 3, keep_inputs=True),
    Run("dualpipe-v", "pp=2,dp=2", 4),
    Run("dualpipe-v", "pp=3", 6, keep_inputs=True),
)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run.name} {run.sizes} m={run[2]}")
def test_gradients_equal_one_device(run: Run) -> None:
    mesh = make_mesh(run.sizes)
    whole = batch(run.microbatches, ROWS * mesh.size // mesh.shape["pp"])
    order = pipeline.layer_order(run.table, LAYERS)
    layers = jax.tree.map(lambda leaf: leaf[order], STACK)
    found = compiled(run)[1].executable((ENDS, layers), whole)
    loss, (ends, layers) = jax.tree.map(
        lambda leaf: leaf.mean(axis=0), one_device((ENDS, STACK), whole)
    )
    expected = loss, (ends, jax.tree.map(lambda leaf: leaf[order], layers))
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_every_schedule_is_run() -> None:
    assert {run.name for run in RUNS} == {*NAMES}


@pytest.mark.parametrize("kind", [float, jnp.float32])
def test_scale_multiplies_the_gradients_and_not_the_loss(kind: Any) -> None:
    """As a number, and as an array such as a loss scale; 8 changes no rounding."""
    run = Run("zb-h1", "pp=4", 8)
    whole = batch(run.microbatches)
    program = lowered(run, STACK, whole, scale=kind(8))
    loss, gradients = compile_program(program).executable((ENDS, STACK), whole)
    expected, unscaled = compiled(run)[1].executable((ENDS, STACK), whole)
    np.testing.assert_allclose(loss, expected, rtol=1e-6)
    jax.tree.map(
        lambda one, other: np.testing.assert_allclose(one, 8 * other, rtol=1e-5, atol=1e-7),
        gradients,
        unscaled,
    )


def test_loss_and_gradients_of_ends_are_where_they_are_found() -> None:
    """The last device has the loss; the first and the last have parts of the ends' gradients."""
    run = Run("1f1b", "pp=4", 4)

    def parts(params: Any, microbatches: Any) -> Any:
        loss, (ends, _) = pipeline.pipeline_gradients(
            first_fn, layer_fn, last_fn, params, microbatches, run.table, keep_inputs=False,
            axis="pp",
        )  # fmt: skip
        return jax.tree.map(lambda leaf: leaf[None], (loss, ends))

    mapped = jax.shard_map(
        parts, mesh=make_mesh(run.sizes), in_specs=(PARAM_SPECS, P()), out_specs=P("pp")
    )
    loss, ends = jax.jit(mapped)((ENDS, STACK), batch(run.microbatches))
    nonzero = {name: [bool(jnp.any(part)) for part in leaf] for name, leaf in ends.items()}
    assert [bool(part) for part in loss] == [False, False, False, True]
    assert nonzero == {
        "in": [True, False, False, False],
        "tied": [True, False, False, True],
        "scale": [False, False, False, True],
    }


@pytest.mark.parametrize("run", [Run("1f1b", "pp=4", 8), Run("dualpipe-v", "pp=3", 6, None, True)])
def test_it_sends_and_holds_what_it_says(run: Run) -> None:
    program, _ = compiled(run)
    n = make_mesh(run.sizes).shape["pp"]
    ticks = len(lower(run.table, keep_inputs=run.keep_inputs).ticks.kind)
    ends, layers = (sum(leaf.size for leaf in jax.tree.leaves(part)) for part in (ENDS, STACK))
    names = {"ticks": ticks, "x": ROWS * D, "ends": ends, "layers": layers // n}
    sums_of_caller = Counter({("all_reduce", "pp"): ends + 1})
    assert measured(program) == sums_of_caller + stated(
        pipeline.pipeline_gradients, "forward", {"axis": "pp"}, names
    )
    assert comm(pipeline.pipeline_gradients, "backward") is None
    held = elements(program.out_info, (P(), PARAM_SPECS), make_mesh(run.sizes))
    assert held == evaluate(memory(pipeline.pipeline_gradients), names)

    order = pipeline.layer_order(run.table, LAYERS)
    assert order.size == evaluate(memory(pipeline.layer_order), {"layers": LAYERS})


def written(program: jax.stages.Lowered) -> Iterator[Site]:
    module = program.compiler_ir("stablehlo")
    assert isinstance(module, ir.Module)
    yield from walk(module)


@pytest.mark.parametrize("name", ["1f1b", "zb-h1"])
def test_the_program_is_as_long_for_any_number_of_microbatches(name: str) -> None:
    few, many = (
        [site.op.name for site in written(lowered(Run(name, "pp=2", m), STACK, batch(m)))]
        for m in (2, 32)
    )
    assert few == many


@pytest.mark.parametrize("run", [Run("1f1b", "pp=4", 8), Run("zb-h1", "pp=4", 8)])
def test_an_idle_cell_costs_no_arithmetic(run: Run) -> None:
    program, ready = compiled(run)
    stated = [s.branches for s in written(program) if s.op.name == "stablehlo.dot_general"]
    left = [
        site.conditional
        for site in walk_hlo(parse_hlo(ready.final))
        if site.instruction.opcode == "dot"
    ]
    assert stated and all(stated)
    assert left and all(left)


def temp_bytes(run: Run) -> int:
    memory = inspect_compiled(*compiled(run)).memory
    assert memory
    return memory.temp_bytes


@pytest.mark.full
@pytest.mark.parametrize("keep_inputs", [False, True])
def test_memory_of_gpipe_grows_and_that_of_1f1b_does_not(keep_inputs: bool) -> None:
    """Their memory differs by the slots of their ticks, to the byte."""
    stage = jax.tree.map(lambda leaf: leaf[: LAYERS // 4], STACK)
    _, kept = jax.eval_shape(partial(backward.forward, layer_fn), stage, random(ROWS, D))
    kept_bytes = sum(4 * leaf.size for leaf in kept)
    for m in (8, 16):
        runs = [Run(name, "pp=4", m, None, keep_inputs) for name in ("1f1b", "gpipe")]
        few, many = (lower(run.table, keep_inputs=keep_inputs) for run in runs)
        assert many.slots - few.slots >= m - 2
        assert (many.stash_slots > few.stash_slots) == (not keep_inputs)
        more = (many.slots - few.slots) * X_BYTES
        more += (many.stash_slots - few.stash_slots) * kept_bytes
        assert temp_bytes(runs[1]) - temp_bytes(runs[0]) == more
    numbers = 8 * 2 * 4 * 24  # which name the actions of eight more microbatches
    short, long = (Run("1f1b", "pp=4", m, None, keep_inputs) for m in (8, 16))
    assert temp_bytes(long) - temp_bytes(short) < numbers


@pytest.mark.parametrize("name", NAMES)
def test_a_buffer_is_as_large_as_the_most_in_flight(name: str) -> None:
    for p, m in ((2, 4), (3, 6), (4, 8), (4, 12)):
        table = make_table(name, p, m)
        found = lower(table, keep_inputs=False)
        assert found.stash_slots - 1 == max(map(peak, table.rows))
        # What arrives waits for its turn, not until the backward, and W needs no more than F kept.
        assert lower(table, keep_inputs=True).stash_slots == 1
        assert found.half_slots <= found.stash_slots


def peak(row: Any) -> int:
    kept = np.cumsum([(a.kind == "F") - (a.kind in "BW") for a in row if a])
    return int(kept.max())


@pytest.mark.parametrize(("name", "chunks"), [("zb-v", 8), ("dualpipe-v", 9)])
def test_v_schedules_keep_what_is_published(name: str, chunks: int) -> None:
    for m in (8, 12, 16):
        assert lower(make_table(name, 4, m), keep_inputs=False).stash_slots - 1 == chunks


@pytest.mark.parametrize("keep_inputs", [False, True])
@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "interleaved"])
def test_frozen_parameters_of_layers_have_no_gradients(name: str, keep_inputs: bool) -> None:
    run = Run(name, "pp=2", 4)
    order = pipeline.layer_order(run.table, LAYERS)
    layers = jax.tree.map(lambda leaf: leaf[order], STACK)
    new = {"bias": layers.pop("bias")}
    ends = jax.tree.map(jnp.asarray, ENDS)

    def gradients(new: Any, frozen: Any, microbatches: Any) -> Any:
        return pipeline.pipeline_gradients(
            lambda _, microbatch: first_fn(ends, microbatch),
            lambda new, x, frozen: layer_fn(new | frozen, x),
            lambda _, y, microbatch: last_fn(ends, y, microbatch),
            ({}, new),
            microbatches,
            run.table,
            keep_inputs=keep_inputs,
            axis="pp",
            frozen=(frozen,),
        )[1]

    mapped = jax.shard_map(
        gradients,
        mesh=make_mesh(run.sizes),
        in_specs=(P("pp"), P("pp"), P()),
        out_specs=P("pp"),
    )
    of_ends, found = jax.jit(mapped)(new, layers, batch(4))
    _, (_, expected) = one_device((ENDS, STACK), batch(4))
    assert of_ends == {} and [*found] == ["bias"]
    np.testing.assert_allclose(
        found["bias"], expected["bias"].mean(axis=0)[order], rtol=1e-4, atol=1e-6
    )


def test_wrong_sizes_are_refused() -> None:
    run = Run("1f1b", "pp=2", 4)
    with pytest.raises(ValueError, match="a schedule of 4 microbatches on 2 devices for 3 micro"):
        lowered(run, STACK, batch(3))
    with pytest.raises(ValueError, match=r"pipeline: 12 layers in 8 stages; .*multiple of 8"):
        pipeline.layer_order(make_table("gpipe", 8, 2), LAYERS)
    uneven = Table.parse([["0F0", "1F0", "1B0", "0B0"], ["2F0", "2B0"]])
    with pytest.raises(ValueError, match=r"stages are on devices \[0, 0, 1\]"):
        pipeline.layer_order(uneven, LAYERS)


def test_stages_must_be_neighbours() -> None:
    apart = Table.parse([["0F0", "0B0"], ["2F0", "2B0"], ["1F0", "1B0"], ["3F0", "3B0"]])
    with pytest.raises(ValueError, match="stage 1 is on device 2 and stage 0 on device 0"):
        lowered(Run("1f1b", "pp=4", 1), STACK, batch(1), apart)


def test_a_pipeline_may_have_no_ends() -> None:
    gradients = partial(
        pipeline.pipeline_gradients,
        lambda _, microbatch: microbatch,
        layer_fn,
        lambda _, y, __: (y**2).mean(),
        table=make_table("zb-h1", 4, 2),
        keep_inputs=False,
        axis="pp",
    )
    mapped = jax.shard_map(
        lambda *args: jax.tree.map(jnp.atleast_1d, gradients(*args)),
        mesh=make_mesh("pp=4"),
        in_specs=(PARAM_SPECS, P()),
        out_specs=P("pp"),
    )
    loss, (ends, _) = jax.eval_shape(mapped, ((), STACK), random(2, ROWS, D))
    assert loss.shape == (4,) and ends == ()
