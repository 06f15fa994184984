"""What compiled training steps hold, against formulas: every strategy that the library trains."""

import math
from dataclasses import replace
from functools import cache
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

from jaxpar.cost.kept import decoder_arrays
from jaxpar.cost.memory import training_memory
from jaxpar.cost.terms import Term, total
from jaxpar.cost.zero import ADAM_FP32
from jaxpar.inspector.compiled import Compiled
from jaxpar.mesh import make_mesh
from jaxpar.model import Settings
from jaxpar.schedules.ticks import lower
from jaxpar.train import setup
from jaxpar.train.plan import Plan
from jaxpar.train.step import shardings
from tests.cost.decoders import architecture_of, layout_of

BATCH, SEQUENCE = 8, 64
SETTINGS = Settings(d_model=64, heads=4, kv_heads=2, d_ff=192, sequence=SEQUENCE)
PLANS = [
    Plan("dp=2", zero=1, microbatches=2, remat="none"),
    Plan("dp=4", zero=2, microbatches=2, remat="selective"),
    Plan("dp=2,fsdp=2", remat="segments"),
    Plan("dp=2,tp=2", remat="full"),
    Plan("tp=2", sequence_parallel=True, remat="none"),
    Plan("pp=2,dp=2", schedule="1f1b", microbatches=4),
    Plan("pp=2,tp=2", schedule="interleaved", microbatches=2, sequence_parallel=True),
    Plan("pp=2", schedule="zb-v", microbatches=4, remat="selective"),
]
every_plan = pytest.mark.parametrize(
    "plan", PLANS, ids=lambda plan: f"{plan.schedule or ''} {plan.mesh} {plan.zero} {plan.remat}"
)


@cache
def compiled(plan: Plan, layers: int) -> Any:
    """What one device of a step holds, as XLA says it; nothing is computed."""
    settings, mesh = replace(SETTINGS, layers=layers), make_mesh(plan.sizes)
    tokens = jax.ShapeDtypeStruct(
        (BATCH, SEQUENCE + 1), jnp.int32, sharding=shardings(mesh, P(plan.data_axes))
    )

    def compile_program(lowered: jax.stages.Lowered, **_: bool) -> Compiled:
        options: dict[str, str | bool] = {"xla_backend_optimization_level": "0"}
        return Compiled(lowered.compile(options), None, "")

    with (
        patch.object(setup, "_once", jax.eval_shape),
        patch.object(setup, "compile_program", compile_program),
        patch.object(setup, "_report", lambda *of: of[-1].executable.memory_analysis()),
    ):
        return setup.set_up(settings, plan, mesh, tokens, 0, None).report


def depths(plan: Plan) -> tuple[int, int]:
    """Two numbers of layers, which segments, or the stages, divide evenly."""
    if plan.remat == "segments":
        return 4, 16
    stages = plan.table.stages if plan.table else 1
    return 2 * stages, 4 * stages


def states(plan: Plan, layers: int, *, zero: int) -> dict[str, float]:
    """Bytes of the states of training, with all that is outside of the layers on every stage."""
    stages = plan.sizes.get("pp", 1)
    model = architecture_of(replace(SETTINGS, layers=layers // stages))
    layout = replace(layout_of(plan, BATCH), pp=1, zero=zero)
    terms = training_memory(model, layout, sequence=SEQUENCE, each=ADAM_FP32)
    return {term.name: term.value for term in terms}


def gradient_bytes(plan: Plan, layers: int) -> float:
    """Those found last, and with several microbatches their sum, too.

    JAX finds the gradients of all layers before any of them can be shared; but in stage 3 each
    layer's are shared as it finds them.
    """
    whole, shared = (states(plan, layers, zero=zero)["gradients"] for zero in (0, plan.stage))
    found = shared if plan.stage == 3 else whole
    return found + (shared if plan.microbatches > 1 else 0)


def kept_bytes(plan: Plan, layers: int) -> float:
    """What all layers of a device keep."""
    model, layout = architecture_of(SETTINGS), layout_of(plan, BATCH)
    arrays = decoder_arrays(model, layout, sequence=SEQUENCE, remat=plan.remat)
    kept = total(arrays)
    if plan.remat == "segments":
        segments = math.isqrt(layers)
        # In one segment the parameters and gradients of its layers stand apart.
        of_layers = 2 * states(plan, layers, zero=plan.stage)["parameters"]
        return segments * kept + (layers * kept + of_layers) / segments
    if not plan.table:
        return layers * kept
    # What one microbatch's forward or backward just made lies beside the slots.
    slots = lower(plan.table, keep_inputs=False)
    in_flight = (slots.stash_slots + 1) * kept
    if slots.half_slots > 1:
        in_flight += (slots.half_slots + 1) * half_bytes(arrays)
    return layers / plan.table.stages * in_flight


def half_bytes(arrays: list[Term]) -> float:
    """What the gradient of x leaves for that of weights: the gradient of what each made.

    Four are as large as a layer's input: of what attention and the MLP add, and of both norms.
    """
    by_name = {array.name: array.value for array in arrays}
    made = ("queries", "keys", "values", "gate", "up")
    return sum(by_name[name] for name in made) + 4 * by_name["layer input"]


@every_plan
def test_arguments_are_exact(plan: Plan) -> None:
    layers, _ = depths(plan)
    held = states(plan, layers, zero=plan.stage)
    tokens, steps = BATCH // plan.batch_parts * (SEQUENCE + 1), 1
    expected = held["parameters"] + held["optimizer"] + 4 * (tokens + steps)
    assert compiled(plan, layers).argument_size_in_bytes == expected


@every_plan
def test_more_layers_add_what_they_keep_and_their_gradients(plan: Plan) -> None:
    less, more = depths(plan)
    added = compiled(plan, more).temp_size_in_bytes - compiled(plan, less).temp_size_in_bytes
    expected = kept_bytes(plan, more) - kept_bytes(plan, less)
    gradients = gradient_bytes(plan, more) - gradient_bytes(plan, less)
    assert added - gradients == pytest.approx(expected, rel=0.1)
