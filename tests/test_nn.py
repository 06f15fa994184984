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
