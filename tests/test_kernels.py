"""The kernels that JAX keeps compute attention, and a checkpointed layer keeps their results.

Splash attention is interpreted here; what needs a GPU or a TPU runs where one is found.
"""

import os
import subprocess
import sys
from functools import partial
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, P

from jaxpar import kernels, nn
from jaxpar.mesh import make_mesh
from jaxpar.model.attention import on_one_device
from jaxpar.parallel import remat
from tests.parallel.calls import assert_close

B, A, K, T, H = 2, 4, 2, 256, 128
SEAM = partial(on_one_device("flash"), documents=None)
INTERPRETED = partial(kernels.by_splash, interpret=True)
GPU = SimpleNamespace(platform="gpu", compute_capability="8.0")
TPU = SimpleNamespace(platform="tpu")
ROOT = Path(__file__).parents[1]


def arguments(dtype: str = "float32", t: int = T, h: int = H) -> tuple[Array, Array, Array]:
    draw = np.random.default_rng(0).standard_normal
    q, k, v = (jnp.asarray(draw((B, heads, t, h)), dtype) for heads in (A, K, K))
    return q, k, v


def both_passes(function, q, k, v):
    y, pull = jax.vjp(function, q, k, v)
    return y, pull(jnp.cos(y))


def test_splash_attention_is_attention() -> None:
    args = arguments()
    assert_close(both_passes(INTERPRETED, *args), both_passes(nn.attention, *args))


def test_the_seam_attends_by_what_this_device_has() -> None:
    args = arguments()
    assert_close(both_passes(SEAM, *args), both_passes(nn.attention, *args))


@pytest.mark.parametrize(("policy", "times"), [("products", 1), ("full", 2)])
def test_a_policy_keeps_what_a_kernel_returns(policy: str, times: int) -> None:
    """Otherwise the forward kernel runs once more for the gradient."""

    def loss(q: Array, k: Array, v: Array) -> Array:
        layer = remat.checkpointed(lambda _, x: INTERPRETED(x, k, v) * x, policy)
        return layer(None, q).sum()

    text = str(jax.make_jaxpr(jax.grad(loss))(*arguments()))
    backward = 2  # a kernel for the queries, and one for keys and values
    assert text.count("pallas_call[") == times + backward


@pytest.mark.parametrize(
    ("device", "dtype", "sizes", "expected"),
    [
        (GPU, "bfloat16", {}, kernels.by_cudnn),
        (GPU, "float16", {"t": 100, "h": 40}, kernels.by_cudnn),
        (GPU, "float32", {}, None),
        (GPU, "bfloat16", {"h": 12}, None),
        (GPU, "bfloat16", {"h": 256}, None),
        (SimpleNamespace(platform="gpu", compute_capability="7.5"), "bfloat16", {}, None),
        (SimpleNamespace(platform="gpu", compute_capability="gfx90a"), "bfloat16", {}, None),
        (TPU, "float32", {}, kernels.by_splash),
        (TPU, "bfloat16", {"h": 64}, None),
        (TPU, "bfloat16", {"t": 200}, None),
        (SimpleNamespace(platform="cpu"), "bfloat16", {}, None),
    ],
)
def test_a_device_has_a_kernel_for_some_sizes(device, dtype, sizes, expected) -> None:
    assert kernels.kernel_for(device, arguments(dtype, **sizes)[0]) is expected


def test_there_is_no_splash_attention_where_types_are_checked() -> None:
    """`jax.shard_map` refuses it there; if it no longer does, the kernel can be used there too."""
    found = []

    def run(*args: Array) -> Array:
        found.append(kernels.kernel_for(TPU, args[0]))
        return INTERPRETED(*args)

    mapped = jax.shard_map(run, mesh=make_mesh("dp=2"), in_specs=P("dp"), out_specs=P("dp"))
    with pytest.raises(ValueError, match="manual_axis_type"):
        jax.eval_shape(mapped, *arguments())
    assert found == [None]


# Simulated devices are CPUs, so what needs another device has a process of its own.
ON_A_DEVICE = """
import jax, sys
if jax.default_backend() == "cpu":
    sys.exit("no other device")
from tests import test_kernels
test_kernels.attend_by_kernel()
"""


@pytest.mark.skipif(
    not (entry_points(group="jax_plugins") or find_spec("libtpu")),
    reason="JAX has nothing here that finds a GPU or a TPU",
)
def test_a_device_attends_by_its_kernel() -> None:
    environment = {name: x for name, x in os.environ.items() if name != "JAX_PLATFORMS"}
    command = [sys.executable, "-c", ON_A_DEVICE]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if "no other device" in done.stderr:
        pytest.skip("no GPU and no TPU is found")
    assert done.returncode == 0, done.stderr


def attend_by_kernel() -> None:
    """Attention on this process's first device, by its kernel."""
    args = arguments("bfloat16")
    assert kernels.kernel_for(jax.devices()[0], args[0])
    found = jax.jit(partial(both_passes, SEAM))(*args)
    expected = both_passes(nn.attention, *(x.astype(jnp.float32) for x in args))
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one.astype(np.float32), other, rtol=0.05, atol=0.05)
