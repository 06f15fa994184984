"""What a program that cannot be right is told: no process is needed to see it."""

import textwrap

import pytest

from tests.in_process import InProcessPool, judged_source

POOL = InProcessPool("jaxpar.contracts.collectives:mean_over_devices")
HEAD = "import jax.numpy as jnp\nfrom jax import lax\ndef mean_over_devices(x, *, axis):\n"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("return lax.pmean(x, axis) + 0 * jnp.ones(1 << 31).sum()", "2147483648"),
        ("return lax.pmean(x, axis).astype(jnp.bfloat16)", "bfloat16"),
        ("return lax.pmean(x, axis), x", "2 arrays"),
        ("return lax.pmean(x, axis)[..., None]", "shape"),
        ("return x / 0 - x / 0", "nan"),
        ("return x + 0 * jnp.linalg.qr(jnp.ones((3, 3)))[0].sum()", "custom_call"),
    ],
)
def test_the_message_says_what_is_wrong(body: str, says: str) -> None:
    verdict = judged_source(HEAD + textwrap.indent(body, "    "), POOL)
    first = verdict.first_failure()
    assert first is not None
    assert says in first.message
    assert (verdict.status, verdict.score) == ("fail", 0)
