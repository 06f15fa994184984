"""Where one device's functions take more than the decoder gives them: rank, precision, errors.

`tests/model/test_decoder.py` compares all of them with numpy, in values and gradient.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpar import nn

RANDOM = np.random.default_rng(0)


def random(*shape: int) -> jax.Array:
    return jnp.asarray(RANDOM.standard_normal(shape, np.float32))


def test_matmul_of_any_rank() -> None:
    w = random(4, 5)
    for shape in [(4,), (3, 4), (2, 3, 4)]:
        x = random(*shape)
        np.testing.assert_allclose(nn.matmul(x, w), x @ w, rtol=1e-5, atol=1e-6)


def test_heads_that_cannot_be_shared_out() -> None:
    q, k = random(1, 4, 2, 2), random(1, 3, 2, 2)
    with pytest.raises(ValueError, match=r"4 heads and 3 kv heads; .* use 1 or 2 or 4"):
        nn.attention(q, k, k)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
class TestLowPrecision:
    """The result is rounded once, from float32, and its sums are not rounded on the way."""

    def test_norms_of_what_has_no_square_in_float16(self, dtype: jnp.dtype) -> None:
        x, scale, bias = (array.astype(dtype) for array in (random(2, 64), random(64), random(64)))
        for size in (1.0, 1000.0, 1 / 64):
            large = (x * size).astype(dtype)
            for norm, weights in ((nn.rms_norm, (scale,)), (nn.layer_norm, (scale, bias))):
                right = norm(*(array.astype(jnp.float32) for array in (large, *weights)))
                got = norm(large, *weights)
                assert got.dtype == dtype
                np.testing.assert_array_equal(got, right.astype(dtype))

    def test_gelu_of_what_has_no_cube_in_float16(self, dtype: jnp.dtype) -> None:
        x = jnp.array([-100.0, -1.0, 0.5, 100.0], dtype)
        got, slope = jax.vmap(jax.value_and_grad(lambda x: nn.gelu(x[None])[0]))(x)
        assert got.dtype == slope.dtype == dtype
        np.testing.assert_array_equal(got, nn.gelu(x.astype(jnp.float32)).astype(dtype))
        np.testing.assert_allclose(slope.astype(jnp.float32)[::3], [0, 1])

    def test_attention_is_a_mean_with_weights_in_float32(self, dtype: jnp.dtype) -> None:
        q, k, v = (random(1, 2, 300, 4).astype(dtype) for _ in range(3))
        got = nn.attention(0 * q, k, v)
        assert got.dtype == dtype
        np.testing.assert_allclose(
            got[:, :, -1].astype(jnp.float32), v.astype(jnp.float32).mean(2), atol=2e-2
        )

    def test_the_gradient_of_a_table_loses_no_token(self, dtype: jnp.dtype) -> None:
        """In float16, 2048 + 1 is 2048; in bfloat16, 256 + 1 is 256."""
        tokens = jnp.zeros(4000, int)
        gradient = jax.grad(lambda t: nn.embed(t, tokens).astype(jnp.float32).sum())
        assert gradient(jnp.ones((2, 1), dtype)).tolist() == [[jnp.asarray(4000, dtype)], [0]]

    def test_cross_entropy_is_float32(self, dtype: jnp.dtype) -> None:
        loss = nn.cross_entropy(jnp.array([[8.0, 0.0]], dtype), jnp.array([1]))
        assert loss.dtype == jnp.float32
        np.testing.assert_allclose(loss, np.log1p(np.exp(8)), rtol=1e-6)
