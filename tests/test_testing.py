"""Budgets of what a program sends and holds, as functions and as fixtures of pytest."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import NamedSharding

from jaxpar.mesh import make_mesh, spec
from jaxpar.testing import assert_holds, assert_sends

pytest_plugins = ["pytester"]

PAGE = Path(__file__).parents[1] / "docs" / "testing.md"
Program = tuple[Callable[..., Any], tuple[Any, ...]]


def on_mesh(body: Callable[..., Any], rows: int = 64) -> Program:
    """A program over dp=2 and tp=4 in which each device has one column of x, `rows` floats."""
    split = {"in_specs": spec("b t_dp_tp"), "out_specs": spec("b t_dp_tp")}
    program = jax.shard_map(body, mesh=make_mesh("dp=2,tp=4"), **split)
    return program, (jnp.ones((rows, 8)),)


def total(x, axis):
    return lax.pcast(lax.psum(x, axis), axis, to="varying")


def exchange(x):
    """Sends 256 bytes over dp, 2 x 256 over tp, 448 over both, and 256 over tp by a permute."""
    x = lax.all_to_all(x, "tp", 0, 0, tiled=True) + lax.all_to_all(2 * x, "tp", 0, 0, tiled=True)
    x = x + lax.psum(x, "dp") + lax.psum(x, ("dp", "tp"))
    return lax.ppermute(x, "tp", [(0, 1), (1, 0)])


WHOLE = {
    "dp": "1 all_reduce; all_reduce == 256 B",
    "tp": "2 all_to_all; all_to_all == 0.384 kB; permute <= 256 B",
    "dp,tp": "all_reduce==448B",
}


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"dp": "all_reduce <= 0.25 KiB", "dp,tp": "all_reduce <= 1 GiB"},
        {"dp": "all_reduce <= 1 MB ;all_gather <= 0 B", "pp": "nothing", "ep": "permute <= 1 B"},
        {"dp,tp": "nothing", ("tp", "dp"): "1 all_reduce"},
        {"dp,tp": "nothing", "tp, dp": "all_reduce <= 1,000 B"},
    ],
)
def test_a_program_within_its_budget(change: Any) -> None:
    assert_sends(*on_mesh(exchange), WHOLE | change)


@pytest.mark.parametrize(
    ("change", "problems"),
    [
        (
            {"dp": "all_reduce <= 255 B"},
            ["dp: all_reduce, 256 bytes; the budget is 'all_reduce <= 255 B': 1 byte too many"],
        ),
        (
            {"dp": "all_reduce == 0.3 kB; 0 all_reduce"},
            [
                "dp: all_reduce, 256 bytes; the budget is 'all_reduce == 0.3 kB': 44 bytes too few",
                "dp: all_reduce, 1 time; the budget is '0 all_reduce': 1 time too many",
            ],
        ),
        (
            {"tp": "3 all_to_all; 1 permute"},
            ["tp: all_to_all, 2 times; the budget is '3 all_to_all': 1 time too few"],
        ),
        (
            {"tp": "all_to_all <= 1 MB", "dp,tp": "nothing"},
            [
                "dp, tp: all_reduce, 448 bytes; the budget is 'nothing': 448 bytes too many",
                "tp: permute, 256 bytes; the budget is 'nothing': 256 bytes too many",
            ],
        ),
        (
            {"pp": "1 permute"},
            ["pp: permute, 0 times; the budget is '1 permute': 1 time too few"],
        ),
    ],
)
def test_what_is_over_and_by_how_much(change: Any, problems: list[str]) -> None:
    with pytest.raises(AssertionError) as raised:
        assert_sends(*on_mesh(exchange), WHOLE | change)
    said, tables = str(raised.value).split("\n\n", 1)
    assert said.splitlines()[0] == "assert_sends: not as budgeted"
    assert sorted(line.strip() for line in said.splitlines()[1:]) == sorted(problems)
    assert "Bytes over each mesh axis" in tables
    assert "test_testing.py" in tables
    assert max(map(len, tables.splitlines())) <= 92


def test_loops_multiply_and_both_branches_count() -> None:
    def scanned(x):
        return lax.scan(lambda x, _: (total(x, "tp"), None), x, length=5)[0]

    def either(x):
        take = lax.axis_index("dp") + lax.axis_index("tp") > 0
        return lax.cond(take, lambda x: total(x, "tp"), lambda x: 2 * x, x)

    assert_sends(*on_mesh(scanned), {"tp": "5 all_reduce; all_reduce == 1,920 B"})
    assert_sends(*on_mesh(either), {"tp": "1 all_reduce; all_reduce == 384 B"})


def test_parts_of_a_byte_are_as_they_are_shown() -> None:
    split = spec("b t_dp_tp")
    program = jax.shard_map(
        lambda x: total(x, "tp"), mesh=make_mesh("dp=2,tp=3"), in_specs=split, out_specs=split
    )
    args = (jnp.ones((7, 6), jnp.int8),)
    assert_sends(program, args, {"tp": "all_reduce == 9.3 B"})
    with pytest.raises(AssertionError, match=r"all_reduce, 9.3 bytes; .*: 0.2 bytes too many"):
        assert_sends(program, args, {"tp": "all_reduce <= 9.1 B"})


def test_a_loop_of_unknown_length_breaks_every_budget() -> None:
    def until(x):
        return lax.while_loop(lambda x: x[0, 0] < 9, lambda x: total(x, "dp"), x)

    for budget, unit in (("all_reduce <= 9,999 GB", "bytes"), ("9 all_reduce", "times")):
        with pytest.raises(AssertionError, match=f"all_reduce, an unknown number of {unit};"):
            assert_sends(*on_mesh(until), {"dp": budget})


def test_what_the_compiler_sends_counts() -> None:
    mesh = make_mesh("dp=8")
    x = jax.ShapeDtypeStruct((8, 16), jnp.float32, sharding=NamedSharding(mesh, spec("b_dp t")))
    added = jax.jit(lambda x: x.sum(0), out_shardings=NamedSharding(mesh, spec("t")))
    assert_sends(added, (x,), {"dp": "1 all_reduce; all_reduce == 112 B"})
    with pytest.raises(AssertionError, match="the budget is 'nothing': 112 bytes too many"):
        assert_sends(added, (x,), {})


def test_one_device_sends_nothing() -> None:
    assert_sends(lambda x: x @ x, (jnp.ones((8, 8)),), {})


def test_what_a_device_holds() -> None:
    add = jax.jit(lambda x, y: (x + y, y[:2]), donate_argnums=0)
    args = (jnp.ones(256), jnp.ones(256))
    assert_holds(add, args, "arguments == 2 KiB; outputs == 1,032 B; aliases == 1 KiB")
    assert_holds(add, args, "total <= 3 kB; temp <= 1 kB; constants == 0 B")
    for size in (
        "2.048 kB",
        "0.002048 MB",
        "0.000002048 GB",
        "0.001953125 MiB",
        "0.00000190734863 GiB",
    ):
        assert_holds(add, args, f"arguments == {size}")
    with pytest.raises(AssertionError) as raised:
        assert_holds(add, args, "arguments <= 1 kB; total <= 1 MB; aliases == 2 KiB")
    said, tables = str(raised.value).split("\n\n", 1)
    assert said.splitlines() == [
        "assert_holds: not as budgeted",
        "  arguments, 2,048 bytes; the budget is 'arguments <= 1 kB': 1,048 bytes too many",
        "  aliases, 1,024 bytes; the budget is 'aliases == 2 KiB': 1,024 bytes too few",
    ]
    assert "Bytes held" in tables


@pytest.mark.parametrize(
    ("budget", "reason"),
    [
        ("all_reduce < 8 MB", "'all_reduce < 8 MB' is no condition; write 'all_reduce <= 8 MB'"),
        ("all_reduce <= 8", "'all_reduce <= 8' is no condition"),
        ("all_reduce <= 8,4 MB", "is no condition"),
        ("all_reduce <= -8 MB", "is no condition"),
        ("all_reduce", "'all_reduce' is no condition; .*, or '2 all_reduce'"),
        ("1 all_reduce;", "'' is no condition"),
        ("nothing; 1 all_reduce", "'nothing' is no condition"),
        (8_000_000, "'8000000' is no condition"),
        ("psum <= 8 MB", "the name in 'psum <= 8 MB' is 'psum'; use one of all_reduce, "),
        ("2 psum", "use one of all_reduce, "),
        ("temp <= 8 MB", "use one of all_reduce, "),
        ("all_reduce <= 8 KB", "the unit in 'all_reduce <= 8 KB' is 'KB'; use one of B, kB, MB, "),
    ],
)
def test_a_malformed_budget_is_refused_before_anything_is_compiled(
    budget: Any, reason: str
) -> None:
    with pytest.raises(ValueError, match=f"^assert_sends: .*{reason}"):
        assert_sends(pytest.fail, (), {"dp": budget})


@pytest.mark.parametrize(
    ("budget", "reason"),
    [
        ("2 temp", "'2 temp' is no condition; write 'arguments <= 8 MB' with <= or ==, and"),
        ("", "'' is no condition"),
        ("all_reduce <= 1 MB", "use one of arguments, outputs, aliases, temp, constants, total"),
    ],
)
def test_a_malformed_budget_of_memory(budget: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^assert_holds: .*{reason}"):
        assert_holds(pytest.fail, (), budget)


def test_wrong_arguments() -> None:
    x = jnp.ones(8)
    with pytest.raises(ValueError, match=r"^assert_sends: the budget is 'nothing'; write one for"):
        assert_sends(jnp.sum, (x,), "nothing")
    with pytest.raises(ValueError, match=r"^assert_holds: args is of type \w+; give a tuple"):
        assert_holds(jnp.sum, x, "temp <= 1 MB")


def without_memory_figures(text: str) -> list[str]:
    """Lines without spaces around them, and without numbers that depend on XLA's version."""
    lines = (re.sub(r"\s+", " ", line).strip() for line in text.splitlines())
    return [re.sub(r"(intermediate results|total) [\d,]+$", r"\1", line) for line in lines]


def test_the_page_shows_what_a_user_sees(pytester: pytest.Pytester) -> None:
    """Its program, its test with fixtures that pytest finds by itself, and both outputs."""
    page = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    for name, source in zip(("step.py", "conftest.py", "test_step.py"), blocks, strict=True):
        Path(name).write_text(source)
    command = [sys.executable, "-m", "jaxpar.cli", "inspect"]

    def report(name: str) -> None:
        with Path(name).open("w") as file:
            subprocess.run([*command, "step.py:make", "--json"], stdout=file, check=True)

    report("before.json")
    pytester.runpytest_subprocess().assert_outcomes(passed=1)
    program = Path("step.py").read_text().splitlines(keepends=True)
    Path("step.py").write_text("".join(line for line in program if "pcast" not in line))
    report("after.json")
    ended = pytester.runpytest_subprocess()
    ended.assert_outcomes(failed=1)
    assert "testing.py" not in ended.stdout.str()

    failure, table = re.findall(r"^```\n([E|] .*?)^```$", page, re.MULTILINE | re.DOTALL)
    seen = "\n".join(line for line in ended.stdout.lines if line.startswith("E "))
    assert without_memory_figures(failure) == without_memory_figures(seen)
    compared = subprocess.run(
        [*command, "--diff", "before.json", "after.json"], stdout=subprocess.PIPE, text=True
    )
    assert (compared.returncode, compared.stdout) == (1, table)


def test_a_run_of_pytest_loads_nothing_heavy() -> None:
    code = "import sys, jaxpar.fixtures; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert not {"jax", "numpy", "rich", "jaxpar.inspector"} & set(loaded.stdout.split())
