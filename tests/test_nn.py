import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpar import nn
from tests.model import numpy_decoder

RANDOM = np.random.default_rng(0)


def random(*shape: int) -> jax.Array:
    return jnp.asarray(RANDOM.standard_normal(shape, np.float32))


def test_norms() -> None:
    x, scale, bias = random(2, 3, 4), random(4), random(4)
    for ours, params in [
        (nn.rms_norm(x, scale), {"scale": scale}),
        (nn.layer_norm(x, scale, bias), {"scale": scale, "bias": bias}),
    ]:
        theirs = np.apply_along_axis(numpy_decoder.norm, -1, x, params)
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_matmul_of_any_rank() -> None:
    w = random(4, 5)
    for shape in [(4,), (3, 4), (2, 3, 4)]:
        x = random(*shape)
        np.testing.assert_allclose(nn.matmul(x, w), x @ w, rtol=1e-5, atol=1e-6)


def test_embed() -> None:
    table = random(5, 3)
    np.testing.assert_array_equal(nn.embed(table, jnp.array([[4, 0]])), table[jnp.array([[4, 0]])])


class TestRotary:
    def test_only_the_distance_counts(self) -> None:
        q, k = random(1, 1, 1, 6), random(1, 1, 1, 6)

        def score(t: int, s: int) -> jax.Array:
            return jnp.vdot(nn.rotary(q, jnp.array([t])), nn.rotary(k, jnp.array([s])))

        np.testing.assert_allclose(score(2, 5), score(9, 12), rtol=1e-5)
        assert abs(score(2, 5) - score(2, 6)) > 1e-3

    def test_position_0_is_not_turned(self) -> None:
        x = random(2, 3, 1, 4)
        np.testing.assert_array_equal(nn.rotary(x, jnp.array([0])), x)


class TestAttention:
    def test_nothing_comes_from_the_future(self) -> None:
        q, k, v = random(2, 4, 3, 5), random(2, 2, 3, 5), random(2, 2, 3, 5)
        before = nn.attention(q, k, v)
        after = nn.attention(q, k.at[:, :, 2].set(7), v.at[:, :, 2].set(7))
        np.testing.assert_array_equal(after[:, :, :2], before[:, :, :2])
        assert jnp.all(after[:, :, 2] != before[:, :, 2])

    def test_neighbours_share_a_kv_head(self) -> None:
        q, k, v = random(2, 4, 3, 5), random(2, 2, 3, 5), random(2, 2, 3, 5)
        every_head = nn.attention(q, k.repeat(2, axis=1), v.repeat(2, axis=1))
        np.testing.assert_allclose(nn.attention(q, k, v), every_head, rtol=1e-5)

    def test_heads_that_cannot_be_shared_out(self) -> None:
        q, k = random(1, 4, 2, 2), random(1, 3, 2, 2)
        with pytest.raises(ValueError, match=r"4 heads and 3 kv heads; .* use 1 or 2 or 4"):
            nn.attention(q, k, k)


class TestCrossEntropy:
    def test_is_minus_the_log_probability(self) -> None:
        logits, targets = random(2, 3, 7), jnp.array([[0, 6, 3], [1, 1, 2]])
        ours = nn.cross_entropy(logits, targets)
        probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        chosen = np.take_along_axis(probabilities, np.asarray(targets)[..., None], -1)[..., 0]
        np.testing.assert_allclose(ours, -np.log(chosen), rtol=1e-5)

    def test_is_float32(self) -> None:
        logits = jnp.array([[8.0, 0.0]], jnp.bfloat16)
        loss = nn.cross_entropy(logits, jnp.array([1]))
        assert loss.dtype == jnp.float32
        np.testing.assert_allclose(loss, np.log1p(np.exp(8)), rtol=1e-6)


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
        assert nn.cross_entropy(random(2, 3).astype(dtype), jnp.array([0, 1])).dtype == jnp.float32
