"""`inspect` reads every kind of program, also those that are named on the command line."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jaxpar.inspector import inspect, inspect_path, load_target
from jaxpar.mesh import make_mesh, spec
from tests.inspector.corpus import short

ROOT = Path(__file__).parents[2]
SIZES = "dp=2,tp=4"


def shaped(layout: str, shape: tuple[int, ...] = (8, 16)) -> jax.ShapeDtypeStruct:
    sharding = NamedSharding(make_mesh(SIZES), spec(layout))
    return jax.ShapeDtypeStruct(shape, "float32", sharding=sharding)


def summed(x):
    mapped = jax.shard_map(
        lambda x: lax.psum(x, "tp"),
        mesh=make_mesh(SIZES),
        in_specs=spec("b_dp t_tp"),
        out_specs=spec("b_dp t"),
    )
    return mapped(x)


def kinds(function, *args) -> list[str]:
    return [one.kind for one in inspect(function, *args).collectives]


def test_one_device_sends_nothing() -> None:
    shape = jax.ShapeDtypeStruct((4, 4), "float32")
    report = inspect(lambda x: x @ x, shape)
    assert (report.collectives, report.flops, report.notes) == ((), 128, ())


def test_arrays_and_jitted_functions_are_taken_too() -> None:
    x = jax.device_put(jnp.ones((8, 16)), shaped("b_dp t_tp").sharding)
    assert inspect(jax.jit(summed), x) == inspect(summed, shaped("b_dp t_tp"))


def test_what_the_compiler_adds_to_shard_map_is_shown() -> None:
    report = inspect(lambda x: summed(x).sum(), shaped("b_dp t_tp"))
    assert short(report.collectives) == (
        ("all_reduce", "tp", "float32", 64, 96, 1),
        ("all_reduce", "dp", "float32", 4, 4, 1),
    )
    assert report.notes == ("the last 1 are not in the program: the compiler sends them for you",)


def test_axes_that_shard_map_leaves_to_the_compiler() -> None:
    """A device sums its [4, 4] of a global x [8, 16], although the body sees [8, 4]."""
    mapped = jax.shard_map(
        lambda x: lax.psum(x, "tp"),
        mesh=make_mesh(SIZES),
        in_specs=P(None, "tp"),
        out_specs=P(),
        axis_names={"tp"},
    )
    report = inspect(mapped, shaped("b_dp t_tp"))
    assert short(report.collectives) == (("all_reduce", "tp", "float32", 64, 96, 1),)
    assert "leaves axes to the compiler" in report.notes[0]


def test_two_meshes_in_one_program() -> None:
    mapped = jax.shard_map(
        lambda x: lax.pmax(x, "cp"),
        mesh=make_mesh("cp=8"),
        in_specs=spec("b_cp"),
        out_specs=spec("b"),
    )
    report = inspect(lambda x: (summed(x), mapped(x)), shaped("b t"))
    assert [one.axes for one in report.collectives] == [("tp",), ("cp",)]


def test_a_mesh_of_one_device_sends_nothing() -> None:
    mapped = jax.shard_map(
        lambda x: lax.psum(x, "dp"), mesh=make_mesh("dp=1"), in_specs=P("dp"), out_specs=P()
    )
    assert inspect(mapped, jax.ShapeDtypeStruct((4,), "float32")).collectives == ()


def test_printing_in_a_program_is_no_collective() -> None:
    def program(x):
        jax.debug.print("{}", x.sum())
        return summed(x)

    found = inspect(program, shaped("b_dp t_tp")).collectives
    assert ("all_reduce", "tp", "float32", 64, 96, 1) in short(found)


def test_a_function_that_says_itself_how_it_is_split() -> None:
    """What `custom_partitioning` makes of it is counted once it is split, as all of `jit` is."""

    @custom_partitioning
    def total(x):
        return x.sum(axis=1)

    def partition(mesh, arguments, result):
        def on_one_device(x):
            return lax.psum(x.sum(axis=1), "tp")

        rows = NamedSharding(mesh, P("dp"))
        return mesh, on_one_device, rows, (NamedSharding(mesh, P("dp", "tp")),)

    total.def_partition(
        partition,
        infer_sharding_from_operands=lambda mesh, *_: NamedSharding(mesh, P("dp")),
        sharding_rule="i j -> i",
    )
    assert kinds(jax.jit(total), shaped("b_dp t_tp")) == ["all_reduce"]


class Wrapped:
    """What `equinox.filter_jit` returns: its `lower` gives an object around JAX's own."""

    @dataclass
    class Lowered:
        lowered: jax.stages.Lowered

    def lower(self, *args) -> Lowered:
        return self.Lowered(jax.jit(summed).lower(*args))


def test_a_lowered_program_in_an_object_of_another_library() -> None:
    assert kinds(Wrapped(), shaped("b_dp t_tp")) == ["all_reduce"]


def test_arguments_may_be_trees() -> None:
    report = inspect(lambda tree: {"y": tree["x"] + 1}, {"x": shaped("b_dp t_tp")})
    assert report.collectives == ()


def test_final_hlo_that_is_not_understood_costs_only_its_notes(monkeypatch) -> None:
    def refuse(*_):
        raise ValueError("HLO 'new' is not known")

    monkeypatch.setattr("jaxpar.inspector.program.describe_changes", refuse)
    report = inspect(summed, shaped("b_dp t_tp"))
    assert len(report.collectives) == 1
    assert report.notes == ("what XLA made of it at the end is not known (HLO 'new' is not known)",)


def test_report_is_json() -> None:
    report = inspect(summed, shaped("b_dp t_tp"))
    found = json.loads(json.dumps(report.to_dict()))
    assert found["collectives"][0]["axes"] == ["tp"]
    assert found["wire_bytes_by_axis"] == [{"axes": ["tp"], "wire_bytes": 96}]
    assert found["memory"]["total_bytes"] == report.memory.total_bytes


SOURCE = """
import jax

def make():
    return (lambda x: x @ x), (jax.ShapeDtypeStruct((4, 4), "float32"),)

def wrong():
    return 7

def half():
    return (lambda x: x, jax.numpy.ones(3))

value = 3
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(SOURCE)
    return tmp_path / "program.py"


def test_a_program_named_on_the_command_line(path: Path) -> None:
    assert inspect_path(f"{path}:make").flops == 128


@pytest.mark.parametrize(
    ("end", "message"),
    [
        ("", "names no function; write it as path.py:make"),
        (":", "names no function; write it as path.py:make"),
        (":absent", "defines no function 'absent'"),
        (":value", "defines no function 'value'"),
        (":wrong", r"returned int; return \(function, args\)"),
        (":half", r"returned tuple; return \(function, args\)"),
    ],
)
def test_wrong_targets_get_one_line(path: Path, end: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        load_target(f"{path}{end}")
    assert "\n" not in str(error.value)


RAISING = """import jax.numpy as jnp


def make():
    return step, (jnp.ones(3),)


def step(x):
    return helper(x)


def helper(x):
    return x + "one"


def leave():
    raise SystemExit("enough")
"""


def test_what_the_program_raises_is_one_line_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "raising.py"
    path.write_text(RAISING)
    with pytest.raises(ValueError, match=rf"^inspect: {path}:13: TypeError: .+") as error:
        inspect_path(f"{path}:make")
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match=rf"^inspect: {path}:17: SystemExit: enough$"):
        inspect_path(f"{path}:leave")
    path.write_text("x = 1\ndef make(:\n")
    with pytest.raises(ValueError, match=rf"^inspect: {path}:2: SyntaxError: "):
        inspect_path(f"{path}:make")


COUNTING = """import jax


def make():
    raise SystemExit(len(jax.devices()))
"""
FLAG = "--xla_force_host_platform_device_count"


@pytest.mark.parametrize(
    ("environment", "head", "count"),
    [
        ({}, "", 8),
        ({"JAX_PLATFORMS": "cpu"}, "", 1),
        ({"JAX_NUM_CPU_DEVICES": "3"}, "", 3),
        ({"XLA_FLAGS": f"{FLAG}=5"}, "", 5),
        ({}, f"import os\nos.environ['XLA_FLAGS'] = '{FLAG}=6'\n", 6),
    ],
)
def test_eight_devices_unless_somebody_chooses(
    tmp_path: Path, environment: dict[str, str], head: str, count: int
) -> None:
    (tmp_path / "counting.py").write_text(head + COUNTING)
    chosen = ("XLA_FLAGS", "JAX_PLATFORMS", "JAX_NUM_CPU_DEVICES")
    kept = {name: value for name, value in os.environ.items() if name not in chosen}
    ended = subprocess.run(
        [sys.executable, "-m", "jaxpar.cli", "inspect", "counting.py:make"],
        cwd=tmp_path, env=kept | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True, text=True,
    )  # fmt: skip
    assert ended.returncode == 2
    assert f": SystemExit: {count}\n" in ended.stderr


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no\.py' is not a Python file here"):
        load_target(f"{tmp_path / 'no.py'}:make")
