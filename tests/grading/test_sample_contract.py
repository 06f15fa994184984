"""What later lessons need is there: pytrees, functions, memory, results that must be split."""

from __future__ import annotations

import textwrap

import pytest

from jaxpar.grading.in_process import InProcessPool, judged_source
from jaxpar.grading.verdict import Verdict

POOL = InProcessPool("tests.grading.sample_contract")
HEAD = """\
import jax
import jax.numpy as jnp
from jax import lax

def sharded_gradients(loss_fn, params, batch, *, axis):
    n = lax.axis_size(axis)
    params = jax.tree.map(lambda leaf: lax.pcast(leaf, axis, to="varying"), params)
    loss, gradients = jax.value_and_grad(loss_fn)(params, batch)
    loss = lax.pmean(loss, axis)
"""


def statuses(verdict: Verdict) -> dict[str, str]:
    return {p.name: p.status for p in verdict.properties}


def verdict_on(body: str) -> Verdict:
    return judged_source(HEAD + textwrap.indent(textwrap.dedent(body), "    "), POOL)


@pytest.mark.parametrize(
    "body",
    [
        """
        scatter = lambda g: lax.psum_scatter(g / n, axis, tiled=True)
        return loss, jax.tree.map(scatter, gradients)
        """,
        """
        both = jnp.concatenate([gradients["b"][None], gradients["w"]]).reshape(-1)
        rows = {"b": gradients["b"].reshape(n, -1), "w": gradients["w"].reshape(n, -1)}
        flat = jnp.concatenate([rows["b"], rows["w"]], axis=1)
        mine = lax.psum_scatter(flat, axis) / n
        b, w = jnp.split(mine, [rows["b"].shape[1]])
        return loss, {"b": b, "w": w.reshape(-1, gradients["w"].shape[1])}
        """,
        """
        w = lax.psum_scatter(gradients["w"], axis, tiled=True) / n
        return [loss, {"w": w, "b": lax.psum_scatter(gradients["b"], axis, tiled=True) / n}]
        """,
    ],
)
def test_sensible_routes_pass_in_full(body: str) -> None:
    verdict = verdict_on(body)
    assert verdict.passed, verdict.first_failure()
    assert verdict.score == 10


def test_the_result_is_the_same_pytree() -> None:
    verdict = verdict_on("return loss, *(lax.psum_scatter(g / n, axis, tiled=True) "
                         "for g in jax.tree.leaves(gradients))")  # fmt: skip
    assert verdict.properties[0].message == (
        "an array is returned as result[1]; it must be result[1]['b']"
    )
    assert verdict.score == 0


def test_whole_results_have_right_values_alone() -> None:
    verdict = verdict_on("return loss, jax.tree.map(lambda g: lax.pmean(g, axis), gradients)")
    assert statuses(verdict) | {"memory": ""} == {
        "values": "pass", "sharding": "fail", "communication": "fail", "memory": "",
        "flops": "pass",
    }  # fmt: skip


def test_a_program_that_holds_more_fails_memory_alone() -> None:
    verdict = verdict_on(
        """
        copies = jnp.stack([gradients["w"] * (i + 1) for i in range(16)])
        w = lax.sort(copies, dimension=0)[:1] * 0
        scatter = lambda g: lax.psum_scatter(g, axis, tiled=True) / n
        gradients["w"] = gradients["w"] + w[0]
        return loss, jax.tree.map(scatter, gradients)
        """
    )
    assert statuses(verdict) == {
        "values": "pass", "sharding": "pass", "communication": "pass", "memory": "fail",
        "flops": "pass",
    }  # fmt: skip
    assert verdict.score == 9


def test_a_second_forward_pass_fails_flops_alone() -> None:
    verdict = verdict_on(
        """
        again = loss_fn(params, jax.tree.map(lambda leaf: leaf * 2, batch))
        scatter = lambda g: lax.psum_scatter(g, axis, tiled=True) / n
        return loss + 0 * lax.pmean(again, axis), jax.tree.map(scatter, gradients)
        """
    )
    assert {name for name, status in statuses(verdict).items() if status == "fail"} == {"flops"}


def test_constants_in_the_program_count_as_held() -> None:
    verdict = verdict_on(
        """
        import numpy as np
        table = jnp.asarray(np.random.default_rng(0).normal(size=(200_000,)).astype("float32"))
        w = lax.dynamic_slice(table, (lax.axis_index(axis),), (1,))
        scatter = lambda g: lax.psum_scatter(g, axis, tiled=True) / n
        return loss + 0 * lax.pmean(w[0], axis), jax.tree.map(scatter, gradients)
        """
    )
    assert statuses(verdict)["memory"] == "fail"


def test_the_number_of_results_is_told() -> None:
    verdict = verdict_on("return loss")
    assert "1 array; it must return 3" in verdict.properties[0].message
