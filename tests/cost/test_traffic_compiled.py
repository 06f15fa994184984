"""What the library's own steps send is what `step_traffic` says, collective by collective.

They are read from the lowered step, for the inspector counts code in `shard_map` as it was written,
compiled or not. Where our program does other than Megatron-LM, DeepSpeed and FSDP do, `ours` says
what and why.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import patch

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jaxpar.inspector.report import Collective, Report
from jaxpar.inspector.stablehlo import read_module
from jaxpar.mesh import make_mesh
from jaxpar.model import Settings
from jaxpar.schedules import NAMES
from jaxpar.schedules.ticks import lower
from jaxpar.train import setup
from jaxpar.train.plan import Plan
from tests.cost.own_traffic import BATCH, Entry, entry, expected, ours

LLAMA = Settings(vocabulary=64, layers=4, d_model=32, heads=8, d_ff=96, sequence=16)
GPT = Settings(
    vocabulary=64, layers=4, d_model=32, heads=8, kv_heads=2, d_ff=96, sequence=16,
    norm="layer", positions="learned", mlp="gelu", tied=True,
)  # fmt: skip
Sent = tuple[str, tuple[str, ...], float]
"""Kind, axes, and bytes that a device gives in."""


def written(plan: Plan, settings: Settings) -> tuple[Collective, ...]:
    """The collectives of a step that is lowered, and not compiled."""

    def report(_plan: Plan, lowered: jax.stages.Lowered, _compiled: object) -> Report:
        return Report(read_module(lowered.compiler_ir("stablehlo")))

    nothing = SimpleNamespace(executable=None)
    with patch.multiple(setup, _report=report, compile_program=lambda *_, **__: nothing):
        return reported(plan, settings)


def reported(plan: Plan, settings: Settings) -> tuple[Collective, ...]:
    """The collectives of a step whose parameters have no values."""
    mesh = make_mesh(plan.sizes)
    lie = NamedSharding(mesh, P(plan.data_axes))
    batch = jax.ShapeDtypeStruct((BATCH, settings.sequence + 1), jnp.int32, sharding=lie)
    with patch.object(setup, "_once", jax.eval_shape):
        return setup.set_up(settings, plan, mesh, batch, 0, None).report.collectives


def found(plan: Plan, settings: Settings) -> Counter[Sent]:
    """How often a step sends what, without losses, and whether all is finite."""
    times: Counter[Sent] = Counter()
    for one in written(plan, settings):
        if one.operand_bytes > 4 or one.dtype not in ("float32", "int32"):
            times[one.kind, one.axes, one.operand_bytes] += one.times
    return times


def show(plan: Plan) -> str:
    told = (plan.schedule, plan.remat, plan.precision, plan.sequence_parallel and "sequence")
    return " ".join(filter(None, (plan.mesh, plan.stage and f"zero={plan.stage}", *told)))


def compare(plan: Plan, settings: Settings, entries: Iterable[Entry]) -> None:
    """Activations one by one; of parameters and gradients bytes and number for each axis."""
    rest, states = found(plan, settings), Counter()
    for one in entries:
        if one.arrays is None:
            rest[one.kind, one.axes, one.operand_bytes] -= one.times
        else:
            states[one.kind, one.axes, "bytes"] += one.times * one.operand_bytes
            states[one.kind, one.axes, "number"] += one.times * one.arrays
    assert min(rest.values()) >= 0, rest
    got = Counter()
    for (kind, axes, operand_bytes), times in rest.items():
        got[kind, axes, "bytes"] += times * operand_bytes
        got[kind, axes, "number"] += times
    assert +got == +states


@pytest.mark.parametrize(
    "plan",
    [
        Plan("dp=8", microbatches=2),
        Plan("dp=8", precision="bf16"),
        Plan("dp=8", zero=1, microbatches=2),
        Plan("dp=8", zero=2, microbatches=2, precision="bf16"),
        Plan("dp=8", zero=2, precision="fp16"),
        Plan("dp=2,fsdp=4", zero=1, precision="bf16"),
        Plan("dp=2,fsdp=4", zero=2, microbatches=2),
        Plan("tp=8", remat="none", microbatches=4, precision="bf16"),
        Plan("tp=4", remat="selective", sequence_parallel=True),
        Plan("dp=2,tp=4", microbatches=2),
        Plan("dp=4,tp=2", remat="selective", precision="bf16"),
        Plan("dp=4,tp=2", sequence_parallel=True),
    ],
    ids=show,
)
def test_most_strategies_send_what_the_standard_way_sends(plan: Plan) -> None:
    settings = GPT if plan.sizes.get("tp", 1) <= GPT.key_heads else LLAMA
    compare(plan, settings, (entry(one, settings) for one in expected(plan, settings)))


@pytest.mark.parametrize(
    "plan",
    [
        Plan("dp=8", zero=3, microbatches=2),
        Plan("fsdp=8", remat="full", precision="bf16"),
        Plan("dp=2,fsdp=4", microbatches=2),
        Plan("fsdp=4", remat="segments"),
        Plan("tp=4", remat="full"),
        Plan("tp=4", remat="segments", precision="bf16"),
        Plan("tp=4", remat="full", sequence_parallel=True, precision="bf16"),
        Plan("dp=2,tp=4", remat="segments", sequence_parallel=True),
        Plan("dp=2,tp=4", sequence_parallel=True, microbatches=2, precision="bf16"),
        Plan("tp=8", microbatches=2),
        Plan("pp=4", microbatches=8, precision="bf16"),
        Plan("pp=2,dp=2,tp=2", microbatches=4, remat="full", precision="bf16"),
    ],
    ids=show,
)
def test_some_strategies_differ_as_is_said_here(plan: Plan) -> None:
    for settings in (LLAMA, GPT):
        compare(plan, settings, ours(plan, settings))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("remat", ["products", "full"])
def test_pipelines_send_in_every_tick(name: str, remat: str) -> None:
    plan = Plan("pp=2,dp=2,tp=2", schedule=name, microbatches=4, remat=remat)
    compare(plan, LLAMA, ours(plan, LLAMA))


@pytest.mark.parametrize("name", NAMES)
def test_of_these_arrays_a_stage_between_others_needs_what_the_standard_way_sends(
    name: str,
) -> None:
    plan = Plan("pp=4", schedule=name, microbatches=8)
    settings = replace(LLAMA, layers=8)
    permutes = [one for one in expected(plan, settings) if one.kind == "permute"]
    assert plan.table
    needed = lower(plan.table, keep_inputs=False).transfers
    assert [2 * one.times for one in permutes] == [needed, needed]


@pytest.mark.parametrize(
    "plan",
    [
        Plan("pp=2,tp=2", microbatches=2, sequence_parallel=True),
        Plan("pp=2,tp=2", microbatches=4, sequence_parallel=True, remat="full", precision="bf16"),
        Plan("pp=2,tp=2", microbatches=4, sequence_parallel=True, schedule="zb-h1"),
    ],
    ids=show,
)
def test_stages_may_share_positions(plan: Plan) -> None:
    compare(plan, LLAMA, ours(plan, LLAMA))


def test_a_compiled_step_reports_the_same() -> None:
    small = Settings(layers=1, d_model=16, heads=2, sequence=8, vocabulary=32)
    plan = Plan("dp=2,tp=2", remat="full")
    assert reported(plan, small) == written(plan, small)
