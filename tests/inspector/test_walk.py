"""Operations as a run meets them: calls, branches, and what may not be walked."""

import pytest

from jaxpar.inspector.mlir import operations
from jaxpar.inspector.stablehlo import read_module
from jaxpar.inspector.walk import walk
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


def test_calls_that_grow_without_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jaxpar.inspector.walk.MAX_OPERATIONS", 10_000)
    doubled = "".join(
        function(f"f{level}", call(f"f{level + 1}", "a") + call(f"f{level + 1}", "b"))
        for level in range(60)
    )
    program = module(call("f0", "a"), doubled + function("f60", ""))
    with pytest.raises(ValueError, match="over 10000 operations with calls expanded"):
        list(walk(program))


def test_deep_nesting_is_refused() -> None:
    chain = "".join(function(f"f{level}", call(f"f{level + 1}", "a")) for level in range(150))
    with pytest.raises(ValueError, match="over 100 levels of nesting"):
        list(walk(module(call("f0", "a"), chain + function("f150", ""))))
