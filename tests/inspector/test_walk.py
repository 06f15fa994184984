"""The walk reaches operations as a run does: calls, branches, and programs that are refused."""

import pytest

from jaxpar.inspector.mlir import ir, operations
from jaxpar.inspector.stablehlo import read_module
from jaxpar.inspector.walk import _called, walk
from tests.inspector.modules import PAIR, module, permute, written


def function(name: str, body: str) -> str:
    return f"func.func private @{name}(%x: {PAIR}) -> {PAIR} {{ {body} return %x : {PAIR} }}\n"


def call(name: str, result: str) -> str:
    return f"%{result} = func.call @{name}(%x) : ({PAIR}) -> {PAIR}\n"


def test_a_called_function_counts_for_each_call() -> None:
    twice = call("inner", "a") + call("inner", "b")
    functions = function("inner", permute()) + function("outer", twice)
    body = call("outer", "a") + call("outer", "b") + permute()
    assert len(read_module(module(body, functions))) == 5


def test_a_function_that_nobody_calls_does_not_run() -> None:
    program = module("", function("unused", permute()))
    assert read_module(program) == ()
    assert "stablehlo.collective_permute" in {op.name for op in operations(program.operation)}


def test_a_composite_runs_its_decomposition() -> None:
    body = f"""%a = stablehlo.composite "my.op" %x {{decomposition = @inner}}
        : ({PAIR}) -> {PAIR}"""
    assert len(read_module(module(body, function("inner", permute())))) == 1


@pytest.mark.parametrize("opcode", ["if", "case"])
def test_both_branches_show_and_are_conditional(opcode: str) -> None:
    condition = "i1" if opcode == "if" else "i32"
    body = f"""%go = stablehlo.constant dense<1> : tensor<{condition}>
        %a = "stablehlo.{opcode}"(%go) ({{
          %then = {permute()}
          stablehlo.return %then : {PAIR}
        }}, {{
          %else = {permute()}
          stablehlo.return %else : {PAIR}
        }}) : (tensor<{condition}>) -> {PAIR}
        {permute()}"""
    found = read_module(module(body))
    assert [one.conditional for one in found] == [True, True, False]
    assert [one.branches for one in found] == [(0,), (0,), ()]
    assert [one.times for one in found] == [1, 1, 1]


def test_a_collective_for_each_element_is_refused() -> None:
    body = f"""%zero = stablehlo.constant dense<0.0> : tensor<f32>
        %r = "stablehlo.reduce"(%x, %zero) <{{dimensions = array<i64: 0>}}> ({{
          ^bb0(%a: tensor<f32>, %b: tensor<f32>):
            %p = {permute("%a").replace(PAIR, "tensor<f32>")}
            stablehlo.return %p : tensor<f32>
        }}) : ({PAIR}, tensor<f32>) -> tensor<f32>"""
    with pytest.raises(ValueError, match="in the body of a reduction"):
        read_module(module(body))


def test_a_program_without_main_is_refused() -> None:
    with pytest.raises(ValueError, match="no function 'main'"):
        read_module(written(function("other", "")))


def test_a_function_that_calls_itself_is_refused() -> None:
    functions = function("ping", call("pong", "a")) + function("pong", call("ping", "a"))
    with pytest.raises(ValueError, match="'ping' calls itself"):
        read_module(module(call("ping", "a"), functions))


def doubling(levels: int) -> str:
    """Functions f0, f1 and so on, each of which calls the next one twice."""
    calls = (call(f"f{i + 1}", "a") + call(f"f{i + 1}", "b") for i in range(levels))
    return "".join(function(f"f{i}", twice) for i, twice in enumerate(calls))


def test_calls_that_grow_without_end_are_refused_after_one_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[str] = []

    def called(op: ir.Operation, calls: tuple[str, ...]) -> str | None:
        looks.append(op.name)
        return _called(op, calls)

    monkeypatch.setattr("jaxpar.inspector.walk._called", called)
    program = module(call("f0", "a"), doubling(60) + function("f60", ""))
    with pytest.raises(ValueError, match="over 1000000 operations with calls expanded"):
        next(walk(program))
    written = [op for op in operations(program.operation) if "module" not in op.name]
    assert len(looks) < len(written) < 300


@pytest.mark.parametrize(("most", "fits"), [(4 + 3 * 15 + 2 * 16, True), (80, False)])
def test_operations_are_counted_for_each_call(
    most: int, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = module(call("f0", "a"), doubling(4) + function("f4", permute()))
    monkeypatch.setattr("jaxpar.inspector.walk.MAX_OPERATIONS", most)
    if fits:
        assert len(list(walk(program))) == most
    else:
        with pytest.raises(ValueError, match="over 80 operations"):
            next(walk(program))


def test_levels_are_counted_wherever_a_function_was_read_first() -> None:
    chain = "".join(function(f"f{level}", call(f"f{level + 1}", "a")) for level in range(60))
    outer = "".join(function(f"g{level}", call(f"g{level + 1}", "a")) for level in range(50))
    functions = chain + function("f60", "") + outer + function("g50", call("f0", "a"))
    assert len(list(walk(module(call("f0", "a"), functions)))) > 0
    with pytest.raises(ValueError, match="over 100 levels of nesting"):
        next(walk(module(call("f0", "a") + call("g0", "b"), functions)))


def test_deep_nesting_is_refused() -> None:
    chain = "".join(function(f"f{level}", call(f"f{level + 1}", "a")) for level in range(150))
    with pytest.raises(ValueError, match="over 100 levels of nesting"):
        list(walk(module(call("f0", "a"), chain + function("f150", ""))))
