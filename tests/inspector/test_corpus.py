"""The corpus, counted by both front ends, from exported bytes, and by the profiler."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import pytest

from jaxpar.inspector import inspect
from jaxpar.inspector.compiled import compile_program
from jaxpar.inspector.hlo import read_hlo
from jaxpar.inspector.hlo_text import parse_hlo
from jaxpar.inspector.mlir import parse
from jaxpar.inspector.stablehlo import read_module
from jaxpar.mesh import make_mesh, parse_mesh
from tests.inspector.corpus import Program, short
from tests.inspector.programs import BY_THE_COMPILER, PER_SHARD

Executed = Callable[[Program], list[Counter[str]]]

KINDS = {
    "all-reduce": "all_reduce",
    "reduce-scatter": "reduce_scatter",
    "all-gather": "all_gather",
    "all-to-all": "all_to_all",
    "collective-permute": "permute",
}


@pytest.mark.parametrize("program", PER_SHARD, ids=str)
def test_written_collectives(program: Program) -> None:
    lowered = program.jitted().lower(*program.shapes())
    written = read_module(lowered.compiler_ir("stablehlo"))
    assert sorted(short(written)) == sorted(program.sent)
    exported = jax.export.export(program.jitted())(*program.shapes())
    module = parse(exported.mlir_module_serialized)
    assert short(read_module(module, parse_mesh(program.mesh))) == short(written)
    partitioned = compile_program(lowered).partitioned
    after = read_hlo(partitioned, parse_mesh(program.mesh))
    assert sorted(short(after)) == sorted(program.sent)


@pytest.mark.parametrize("program", BY_THE_COMPILER, ids=str)
def test_collectives_of_the_compiler(program: Program) -> None:
    report = inspect(program.jitted(), *program.shapes())
    assert short(report.collectives) == program.sent
    assert "the compiler makes every collective" in report.notes[0]


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Executed:
    """How often each kind of collective of a program ran, on each device, in one profile."""
    folder = tmp_path_factory.mktemp("profile")
    programs = [*PER_SHARD, *BY_THE_COMPILER]
    compiled = {one.name: one.jitted().lower(*one.shapes()).compile() for one in programs}
    data = {one.name: one.data() for one in programs}
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with jax.profiler.trace(str(folder), profiler_options=options):
        for name, program in compiled.items():
            jax.block_until_ready(program(*data[name]))
    ran = list(instructions_run(folder))

    def of(program: Program) -> list[Counter[str]]:
        kinds = {
            instruction.name: KINDS[instruction.opcode]
            for computation in parse_hlo(compiled[program.name].as_text()).computations.values()
            for instruction in computation.instructions.values()
            if instruction.opcode in KINDS
        }
        counted = [Counter[str]() for _ in range(make_mesh(program.mesh).size)]
        for module, device, name in ran:
            if module == f"jit_{program.name}" and name in kinds:
                counted[device][kinds[name]] += 1
        return counted

    return of


def instructions_run(folder: Path) -> Iterator[tuple[str, int, str]]:
    """Module, device and name of every HLO instruction in the profile."""
    (path,) = folder.rglob("*.xplane.pb")
    for plane in jax.profiler.ProfileData.from_file(str(path)).planes:
        for line in plane.lines:
            for event in line.events:
                stats = dict(event.stats)
                if "hlo_op" in stats:
                    yield stats["hlo_module"], stats["device_ordinal"], stats["hlo_op"]


# The binding's own type has no module, which Python 3.12 warns of.
@pytest.mark.filterwarnings("ignore:builtin type event_stats:DeprecationWarning")
@pytest.mark.parametrize("program", [*PER_SHARD, *BY_THE_COMPILER], ids=str)
def test_the_profiler_saw_the_same(program: Program, executed: Executed) -> None:
    on_each_device = executed(program)
    assert on_each_device == [program.executions()] * len(on_each_device)
