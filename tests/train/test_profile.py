"""What a trace says of the parts of a step and of collectives."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jaxpar.mesh import make_mesh
from jaxpar.model import Settings
from jaxpar.train.profile import (
    BACKWARD,
    COMPUTING,
    FORWARD,
    OTHER,
    PARTS,
    RECOMPUTED,
    TRACED,
    WARM_UP,
    Profile,
    check_profile,
    parts,
    spent,
)
from jaxpar.train.recipe import make_recipe
from jaxpar.train.setup import set_up

HLO = """HloModule jit_step, is_scheduled=true

%body (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  ROOT %psum.1 = f32[4]{0} all-reduce(%p), replica_groups={}, to_apply=%add
}

ENTRY %main (x: f32[4]) -> f32[4] {
  %x = f32[4]{0} parameter(0)
  %fusion.2 = f32[4]{0} fusion(%x), kind=kLoop, calls=%fused
  %gather.3 = f32[4]{0} all-gather-start(%fusion.2), dimensions={0}
  %gather.4 = f32[4]{0} all-gather-done(%gather.3)
  ROOT %loop.5 = f32[4]{0} while(%gather.4), condition=%condition, body=%body
}
"""


def event(name: str, start: float, end: float, **stats: Any) -> SimpleNamespace:
    """An operation of the program, from one microsecond to another."""
    given = {"hlo_op": name, "hlo_module": "jit_step"} | stats
    return SimpleNamespace(
        start_ns=1000 * start, duration_ns=1000 * (end - start), stats=list(given.items())
    )


def trace(**planes: list[SimpleNamespace]) -> Any:
    """A trace with one line in each plane."""
    return SimpleNamespace(
        planes=[
            SimpleNamespace(name=name, lines=[SimpleNamespace(events=events)])
            for name, events in planes.items()
        ]
    )


def test_a_collective_is_exposed_where_its_own_device_computes_nothing() -> None:
    first = [
        event("fusion.2", 0, 10),
        event("gather.3", 6, 14),  # 4 of 8 are hidden
        event("fusion.2", 9, 10),  # within the other one
        event("gather.4", 10, 14),
        event("loop.5", 14, 30),
        event("psum.1", 15, 20),
        event("psum.1", 20, 25),
        event("fusion.2", 24, 26),  # hides 1 of the 10
        event("fusion.2", 40, 90, hlo_module="jit_other"),
    ]
    second = [event("psum.1", 0, 10, device_ordinal=1), event("fusion.2", 0, 4, device_ordinal=0)]
    found = {one.kind: one for one in spent(trace(a=first, b=second), HLO, steps=2)}
    each = 1e-6 / (2 * 3)  # of two steps on three devices
    assert {kind: one[1:] for kind, one in found.items()} == {
        "all_reduce": pytest.approx((20 * each, 19 * each)),
        "all_gather": pytest.approx((8 * each, 4 * each)),
        COMPUTING: pytest.approx((16 * each, 0)),
    }


PARTS_OF_HLO = """HloModule jit_step, is_scheduled=true

ENTRY %main (x: f32[4]) -> f32[4] {
  %x = f32[4]{0} parameter(0)
  %one = f32[4]{0} fusion(%x), kind=kLoop, metadata={op_name="jit(step)/jvp(mlp)/dot_general"}
  %two = f32[4]{0} add(%x, %x), metadata={op_name="jit(step)/jvp()/while/body/attention/transpose"}
  %three = f32[4]{0} add(%x, %x), metadata={op_name="jit(step)/transpose(jvp(mlp))/mul"}
  %four = f32[4]{0} add(%x, %x), metadata={op_name="transpose(jvp())/rematted_computation/mlp/mul"}
  %five = f32[4]{0} all-gather(%x), dimensions={0}, metadata={op_name="jit(step)/jvp()/gather"}
  %six = f32[4]{0} all-gather(%x), dimensions={0}, metadata={op_name="jit(step)/fetch/gather"}
  ROOT %seven = f32[4]{0} add(%x, %x)
}
"""


def test_parts_are_scopes_and_passes() -> None:
    events = [
        event("one", 0, 4),
        event("one", 2, 6),  # 6 in all
        event("two", 0, 1),
        event("three", 10, 12),
        event("four", 10, 13),
        event("five", 20, 25),
        event("six", 30, 37),
        event("seven", 40, 48),
    ]
    each = pytest.approx
    assert parts(trace(a=events), PARTS_OF_HLO, steps=2) == [
        ("attention", FORWARD, each(0.5e-6)),
        ("mlp", FORWARD, each(3e-6)),
        ("mlp", RECOMPUTED, each(1.5e-6)),
        ("mlp", BACKWARD, each(1e-6)),
        ("fetch", None, each(3.5e-6)),
        ("all_gather", FORWARD, each(2.5e-6)),
        (OTHER, None, each(4e-6)),
    ]


def test_every_part_has_a_name_in_a_program() -> None:
    """Of two recipes, one of which gathers all parameters at once."""
    small = Settings(layers=1, d_model=16, heads=2, sequence=16)
    found = set()
    for settings, recipe in (
        (small, make_recipe("dp=2,fsdp=2", gather="step", clip=1.0)),
        (replace(small, experts=2), make_recipe("dp=2", zero=1)),
    ):
        mesh = make_mesh(recipe.layout.mesh_sizes)
        batch = jax.ShapeDtypeStruct(
            (16, 17), jnp.int32, sharding=NamedSharding(mesh, P(recipe.layout.batch_axes))
        )
        step: Any = set_up(settings, recipe, mesh, batch, 0, None).step
        found |= {word for name in re.findall(r'op_name="(.*?)"', step.as_text())
                  for word in re.findall(r"\w+", name)}  # fmt: skip
    assert set(PARTS) <= found


# On Python 3.12, the reader of traces in jaxlib makes types that it warns of, and dies of an error.
@pytest.mark.filterwarnings("ignore:builtin type .* has no __module__:DeprecationWarning")
def test_a_real_trace_tells_what_was_run(tmp_path: Path) -> None:
    mesh = make_mesh({"dp": 4})

    def step(x: jax.Array) -> jax.Array:
        return lax.psum(jnp.sin(x @ x.T), "dp")

    x = jax.device_put(jnp.ones((256, 64)), NamedSharding(mesh, P("dp")))
    sharded = jax.shard_map(step, mesh=mesh, in_specs=P("dp"), out_specs=P())
    program = jax.jit(sharded).lower(x).compile()
    profile = Profile(tmp_path, program.as_text() or "")
    for taken in range(1, WARM_UP + TRACED + 2):
        profile.before_step()
        profile.after_step(program(x))
        assert bool(profile.spent) == (taken >= WARM_UP + TRACED)
    profile.close()
    assert {one.kind for one in profile.spent} == {"all_reduce", COMPUTING}
    for one in profile.spent:
        assert one.seconds >= one.exposed >= 0
        assert one.seconds > 0


def test_a_trace_that_cannot_be_is_refused(tmp_path: Path) -> None:
    check_profile(None, make_recipe("dp=8"), 1)
    check_profile(tmp_path / "new", make_recipe("dp=8"), 5)
    (tmp_path / "file").touch()
    for folder, recipe, steps, words in (
        ("new", make_recipe("dp=8"), 4, "with --steps 4: 3 steps are traced, or rounds of them"),
        ("new", make_recipe("dp=8", sync_every=10), 40, "use --steps 50 or more"),
        ("new", make_recipe("dp=8", zero=1, offload="host"), 5, "with --offload: such a step"),
        ("file", make_recipe("dp=8"), 5, "give a folder that can be written"),
    ):
        with pytest.raises(ValueError, match=r"^train: --profile ") as error:
            check_profile(tmp_path / folder, recipe, steps)
        assert words in str(error.value)
