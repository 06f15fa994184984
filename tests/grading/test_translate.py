"""Each error that newcomers meet, provoked inside shard_map and jax.export, then translated."""

from __future__ import annotations

import linecache
from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

from jaxpar.contracts.case import ArraySpec, Case
from jaxpar.grading.program_export import export_forward, export_gradient
from jaxpar.grading.translate import RULES, Explanation, translate
from jaxpar.mesh import make_mesh
from tests.grading.wrong_programs import PROGRAMS

FILE = "/home/learner/answer.py"
CASE = Case("dp=2,tp=2", {"x": ArraySpec((4, 3), "b_dp d")}, {"axis": "dp"})
HEAD = """import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

"""


def _define(source: str) -> Callable:
    linecache.cache[FILE] = (len(source), None, source.splitlines(True), FILE)
    names: dict = {}
    exec(compile(source, FILE, "exec"), names)
    return names["answer"]


def _explain(function: Callable) -> Explanation:
    with pytest.raises(BaseException) as caught:
        program = export_forward(function, CASE)
        export_gradient(function, CASE, ("x",), program.outputs)
    return translate(caught.value, FILE)


def _blamed(source: str) -> int | None:
    lines = source.splitlines()
    return next((i for i, line in enumerate(lines, 1) if line.endswith("# here")), None)


@pytest.mark.parametrize(("kind", "body"), PROGRAMS)
def test_error_is_explained_with_its_line(kind: str, body: str) -> None:
    source = f"{HEAD}def answer(x, *, axis):\n        {body}\n"
    explained = _explain(_define(source))
    assert explained.kind == kind, explained
    if (line := _blamed(source)) is not None:
        assert explained.line == line
    assert len(explained.message) < 400
    assert explained.message.isascii()


def test_every_rule_is_provoked() -> None:
    elsewhere = {
        "syntax", "signature", "missing", "import", "refused", "leak", "result-varying", "unknown",
        "nobody",
    }  # fmt: skip
    assert {kind for kind, _, _ in RULES} <= {kind for kind, _ in PROGRAMS} | elsewhere


def test_syntax_error_has_its_line() -> None:
    with pytest.raises(SyntaxError) as caught:
        _define("import jax\ndef answer(x:\n    return x\n")
    explained = translate(caught.value, FILE)
    assert (explained.kind, explained.line) == ("syntax", 2)


@pytest.mark.parametrize("signature", ["x, axis_name", "x, y, *, axis", "*, axis"])
def test_wrong_signature_points_at_the_definition(signature: str) -> None:
    explained = _explain(_define(f"{HEAD}def answer({signature}):\n    return x\n"))
    assert (explained.kind, explained.line) == ("signature", 7)
    assert "`answer` cannot be called" in explained.message


def test_a_value_kept_between_two_traces() -> None:
    function = _define(
        f"{HEAD}KEPT = []\ndef answer(x, *, axis):\n    KEPT.append(x)\n    return KEPT[0] + x\n"
    )
    assert _explain(function).kind == "leak"


def test_result_typed_varying_where_it_must_be_equal() -> None:
    mesh = make_mesh("dp=2")
    with pytest.raises(ValueError) as caught:
        jax.jit(jax.shard_map(lambda x: x, mesh=mesh, in_specs=P("dp"), out_specs=P()))(
            jnp.arange(2.0)
        )
    explained = translate(caught.value, __file__)
    assert explained.kind == "result-varying"
    assert explained.message.startswith("out_specs is P(): the result must be equal")
    assert "axis 'dp'" not in explained.message and "'dp'" in explained.message
    assert "check_vma" not in explained.message


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (NameError("the file defines no function named scatter"), "missing"),
        (ImportError("an answer may not import jaxpar.collectives.ring"), "import"),
        (RuntimeError("scatter: the library's own scatter is not an answer"), "refused"),
        (PermissionError("an answer may not read ring.py"), "refused"),
    ],
)
def test_refusals_of_the_worker(error: Exception, kind: str) -> None:
    assert translate(error, FILE).kind == kind


def test_unknown_error_gives_its_first_line_and_nothing_of_the_rest() -> None:
    explained = translate(OSError("disk on fire\nsecond line"), FILE)
    assert explained == Explanation("unknown", None, "OSError: disk on fire")


def test_carry_message_says_what_to_write() -> None:
    body = "return lax.fori_loop(0, 3, lambda i, c: c + x, jnp.zeros(x.shape))"
    explained = _explain(_define(f"{HEAD}def answer(x, *, axis):\n    {body}\n"))
    assert "float32[2,3], and comes out different on each, float32[2,3]{V:dp}" in explained.message
    assert 'lax.pcast(start, axis, to="varying")' in explained.message
