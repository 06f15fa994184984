"""Programs for which naive counts are wrong."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from jaxpar.inspector import Memory, Report, inspect
from jaxpar.inspector.compiled import Compiled, compile_program, read_memory
from jaxpar.inspector.hlo import read_hlo
from tests.inspector.corpus import Program, short
from tests.inspector.programs import shift

MESH = {"dp": 2, "tp": 4}


def compiled(function, **fields) -> Compiled:
    program = Program("program", function, (), **fields)
    return compile_program(program.jitted().lower(*program.shapes()))


def report(function, **fields) -> Report:
    program = Program("program", function, (), **fields)
    return inspect(program.jitted(), *program.shapes())


def test_the_final_hlo_of_a_cpu_promotes_bfloat16() -> None:
    fields = {"out": "b_dp t", "arrays": (((8, 16), "bfloat16", "b_dp t_tp"),)}

    def program(x):
        return lax.psum(x, "tp")

    final = read_hlo(compiled(program, **fields).final, MESH)
    assert short(final) == (("all_reduce", "tp", "float32", 64, 96, 1),)
    found = report(program, **fields)
    assert short(found.collectives) == (("all_reduce", "tp", "bfloat16", 32, 48, 1),)
    assert found.notes == (
        "XLA sends bfloat16 as float32 on this backend; the tables count bfloat16",
    )


def test_counting_text_misses_loops_and_combined_tuples() -> None:
    def program(x):
        x = lax.scan(shift, x, None, length=5)[0]
        return sum(lax.psum((x, x[:1]), "tp"))

    text = compiled(program, out="b_dp t").final
    assert (text.count(" collective-permute("), text.count(" all-reduce(")) == (1, 1)
    found = report(program, out="b_dp t")
    assert sorted((one.kind, one.times) for one in found.collectives) == [
        ("all_reduce", 1),
        ("all_reduce", 1),
        ("permute", 5),
    ]
    assert found.notes == ("all_reduce over tp: 2 counted, 1 run: XLA combined several into one",)


def test_duplicates_and_loop_invariants_count_as_written() -> None:
    def program(x):
        def body(c, _):
            return jnp.sin(c + lax.all_gather(x, "tp", tiled=True).sum()), None

        return lax.scan(body, x, None, length=5)[0]

    found = report(program)
    assert [one.times for one in found.collectives] == [5]
    assert found.notes == (
        "all_gather over tp: 5 counted, 1 run: XLA moved some out of a loop, or removed them",
    )
    twice = report(lambda x: lax.psum(x, "tp") + 2 * lax.psum(x, "tp"), out="b_dp t")
    assert len(twice.collectives) == 2


def test_memory_is_per_device_and_the_same_at_every_compile() -> None:
    def program(x):  # x [4, 4] a device
        return lax.all_gather(jnp.sin(x), "tp", tiled=True)

    memory = report(program).memory
    assert memory == report(program).memory
    assert memory is not None
    assert (memory.arguments_bytes, memory.outputs_bytes) == (64, 256)


def test_optimizing_machine_code_changes_no_memory() -> None:
    program = Program("program", lambda x: lax.psum(x @ x, "tp") + x, ())
    lowered = program.jitted().lower(*program.shapes())
    plain = lowered.compile()
    assert read_memory(compile_program(lowered)) == read_memory(
        Compiled(plain, None, plain.as_text())
    )


def test_the_peak_of_a_cpu_leaves_temporaries_out() -> None:
    program = compiled(lambda x: jnp.sin(jnp.sin(x @ x) @ x).T @ x)
    memory = read_memory(program)
    assert memory.temp_bytes > 0
    peak = program.executable.memory_analysis().peak_memory_in_bytes
    assert peak < memory.total_bytes


def test_aliases_are_lost_in_exported_programs() -> None:
    add = jax.jit(lambda x: x + 1, donate_argnums=0)
    shape = jax.ShapeDtypeStruct((1024,), "float32")
    memory = inspect(add, shape).memory
    assert memory == Memory(4096, 4096, 4096, 0, 0)
    assert memory.total_bytes == 4096
    exported = jax.jit(jax.export.export(add)(shape).call)
    assert inspect(exported, shape).memory.aliases_bytes == 0


@pytest.mark.parametrize("results", [0, 1, 3])
def test_pointers_to_several_outputs_are_not_counted(results: int) -> None:
    shape = jax.ShapeDtypeStruct((16,), "float32")
    memory = inspect(lambda x: tuple(x + i for i in range(results)), shape).memory
    assert memory.outputs_bytes == 64 * results


def test_constants_are_held_though_no_figure_of_xla_says_so() -> None:
    table = jnp.sin(jnp.arange(1000.0))
    memory = inspect(lambda x: x * table, jax.ShapeDtypeStruct((1000,), "float32")).memory
    assert memory.temp_bytes == 0
    assert memory.constants_bytes == 4000


@pytest.mark.parametrize("remat", [False, True])
def test_remat_shows_as_flops_and_under_scan_as_memory(remat: bool) -> None:
    def layer(h, w):
        return jnp.sin(jnp.sin(h @ w)), None

    def loss(w, x):
        return lax.scan(jax.checkpoint(layer) if remat else layer, x, w)[0].sum()

    shapes = (jax.ShapeDtypeStruct(shape, "float32") for shape in ((8, 64, 64), (512, 64)))
    found = inspect(jax.grad(loss), *shapes)
    product = 2 * 512 * 64 * 64
    assert found.flops == 8 * (4 if remat else 3) * product
    activations = 8 * 512 * 64 * 4  # kept once for each layer, or twice and more
    assert (found.memory.temp_bytes < 2 * activations) == remat
