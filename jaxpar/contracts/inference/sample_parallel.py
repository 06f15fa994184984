"""A token for each row, at random, of logits that are split over the devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.axes import parse_mesh
from jaxpar.contracts.base import Communication, Contract, Expected, Limit, wrong
from jaxpar.contracts.blocks import on_every_device, ring_bytes
from jaxpar.contracts.case import ArraySpec, Case, Function, Made
from jaxpar.contracts.draws import axis_names, mesh_of, pick
from jaxpar.contracts.steps import gathered
from jaxpar.mesh import vary
from jaxpar.parallel import decode

HERE = "jaxpar.contracts.inference.sample_parallel"
MASKED = -np.inf


def on_a_grid(x: Array, steps: float) -> Array:
    """Multiples of a power of two, so that sums are exact, and some are equal."""
    found = jnp.round(x * steps) / steps
    # -0 would be smaller than 0 for some functions, and equal to it for others.
    return jnp.where(found == 0, 0, found)


def temperatures(drawn: Array) -> Array:
    """0 or a power of two from 1/4 to 4."""
    powers = jnp.array([0.25, 0.5, 1, 2, 4], jnp.float32)
    return jnp.where(drawn % 4 == 0, 0, powers[drawn % 5])


def _whole(case: Case, logits: Array, noise: Array, temperature: Array) -> list[Expected]:
    tokens = jnp.argmax(logits + temperature[:, None] * noise, axis=1).astype(jnp.int32)
    others = [size for name, size in case.sizes.items() if name != case.kwargs["axis"]]
    return [Expected(on_every_device(case, tokens.reshape(*others, -1)))]


def _case(
    mesh: str,
    axis: str,
    *,
    b: int = 24,
    v: int = 13,
    dtype: str = "float32",
    draw: Any = "normal",
    steps: float = 4,
) -> Case:
    """Rows are split over all other axes; b and v are of one device."""
    others = [name for name in parse_mesh(mesh) if name != axis]
    rows = "_".join(["b", *others])
    for name in others:
        b *= parse_mesh(mesh)[name]
    shape, layout = (b, parse_mesh(mesh)[axis] * v), f"{rows} v_{axis}"
    grid = Function(f"{HERE}:on_a_grid")
    args = {
        "logits": Made(grid, (ArraySpec(shape, layout, dtype, draw), steps)),
        "noise": Made(grid, (ArraySpec(shape, layout), max(4.0, steps))),
        "temperature": Made(
            Function(f"{HERE}:temperatures"), (ArraySpec((b,), rows, "int32", "large"),)
        ),
    }
    return Case(mesh, args, {"axis": axis})


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    axis, other = axis_names(rng, 2, besides=("tp", "dp", "tpx"))
    n, mesh = pick(rng, (5, 7)), mesh_of(rng, **{axis: 4, other: 3})
    wide = {"b": pick(rng, (29, 31)), "v": pick(rng, (17, 19)), "steps": 1.0, "draw": "shifted"}
    return (
        _case(f"{axis}={n}", axis, dtype="bfloat16", **wide),
        _case(mesh, axis, b=pick(rng, (33, 37)), v=2, steps=1.0),
        _case(mesh_of(rng, **{axis: 1, other: 2}), axis, b=27, v=pick(rng, (51, 53))),
    )


def _masked(case: Case, inputs: list[np.ndarray]) -> None:
    """Gives logits of minus infinity to all tokens of some devices, which are never chosen; and a
    temperature of 0 to rows of which all logits are equal."""
    logits, noise, temperature = inputs
    n = case.sizes[case.kwargs["axis"]]
    parts = logits.reshape(len(logits), n, -1)
    parts[1::3, : n - 1] = MASKED
    parts[2::3, 1:] = MASKED
    parts[:, :, 1:][4::5] = MASKED
    temperature[:3] = 0
    logits[0] = logits[0].min() if np.isfinite(logits[0]).all() else 0
    noise[0, -1] = 8


CONTRACT = Contract(
    kind="program",
    task="return the token of each row with the largest logit + temperature * noise",
    reference=decode.sample_parallel,
    oracle=_whole,
    cases=(_case("tp=8", "tp"), _case("dp=2,tpx=3", "tpx", b=20, v=16, steps=4096)),
    draw=_drawn,
    poison=_masked,
    communication=Communication(
        "all-reduces of two numbers for each row; no logit",
        forward=((Limit(("all_reduce",), "axis", ring_bytes(4, "temperature")),),),
    ),
    hints=(
        "Each device can say which of its own tokens is best, and how good it is. What must all "
        "devices know of these, so that they name the same token?",
        "The token's number in the whole vocabulary is lax.axis_index(axis) * (tokens of a device) "
        "+ its place. The largest sum of all devices is lax.pmax of the largest sum of each.",
        "Those devices whose best is as good as the largest propose their token, the others a "
        "number that is larger than any token: jnp.iinfo(jnp.int32).max. lax.pmin of the proposals "
        "is the first of the best.",
    ),
    minimal="Who has the largest sum depends on all devices, and the token is one number more: two "
    "numbers for each row, however large the vocabulary is.",
    harder="Let each row choose among its k most likely tokens only. How many numbers of each "
    "device are enough to know the k-th largest logit?",
)


def _found(
    logits: Array, noise: Array, temperature: Array, axis: str,
    *,
    score: Callable[[Array, Array, Array], Array] = lambda logits, noise, t: logits + t * noise,
    offset: Callable[[str, int], Any] = lambda axis, v: lax.axis_index(axis) * v,
    choose: Callable[[Array], Array] = lambda scores: jnp.argmax(scores, axis=1),
    best: Callable[[Array, str], Array] = lax.pmax,
    one: Callable[[Array, Array, str], Array] | None = None,
) -> Array:  # fmt: skip
    """A token for each row, with one thing done in another way."""
    temperature = vary(temperature, (axis,))
    scores = score(logits.astype(jnp.float32), noise, temperature[:, None])
    token = offset(axis, scores.shape[1]) + choose(scores)
    largest = scores.max(axis=1)
    wins = largest == best(largest, axis)
    return (one or _first)(wins, token, axis).astype(jnp.int32)


def _first(wins: Array, token: Array, axis: str) -> Array:
    return lax.pmin(jnp.where(wins, token, jnp.iinfo(jnp.int32).max), axis)


@wrong("values")
def place_on_the_device(logits: Array, noise: Array, temperature: Array, *, axis: str) -> Array:
    """The token is counted from the first one of its device; add lax.axis_index(axis) times the
    number of tokens of a device."""
    return _found(logits, noise, temperature, axis, offset=lambda axis, v: 0)


@wrong("values")
def token_of_each_device(logits: Array, noise: Array, temperature: Array, *, axis: str) -> Array:
    """Each device returns the best of its own tokens; all must return the best of all."""
    return _found(logits, noise, temperature, axis, one=lambda wins, token, axis: token)


@wrong("values")
def tokens_of_a_tie_added(logits: Array, noise: Array, temperature: Array, *, axis: str) -> Array:
    """Where devices have equal sums, their tokens are added; take the first of them, by
    lax.pmin."""

    def one(wins: Array, token: Array, axis: str) -> Array:
        return lax.psum(jnp.where(wins, token, 0), axis)

    return _found(logits, noise, temperature, axis, one=one)


@wrong("values")
def last_device_of_a_tie(logits: Array, noise: Array, temperature: Array, *, axis: str) -> Array:
    """Where devices have equal sums, the token of the last one is taken; take the first."""

    def one(wins: Array, token: Array, axis: str) -> Array:
        return lax.pmax(jnp.where(wins, token, -1), axis)

    return _found(logits, noise, temperature, axis, one=one)


@wrong("values")
def last_token_of_a_tie(logits: Array, noise: Array, temperature: Array, *, axis: str) -> Array:
    """Of equal sums on a device, the last is taken; take the first, as jnp.argmax does."""

    def choose(scores: Array) -> Array:
        return scores.shape[1] - 1 - jnp.argmax(jnp.flip(scores, 1), axis=1)

    return _found(logits, noise, temperature, axis, choose=choose)


@wrong("values")
def devices_that_lose_propose_zero(
    logits: Array, noise: Array, temperature: Array, *, axis: str
) -> Array:
    """Devices whose best is not the largest propose token 0, which is smaller than any other; let
    them propose a number that is larger than any token."""

    def one(wins: Array, token: Array, axis: str) -> Array:
        return lax.pmin(jnp.where(wins, token, 0), axis)

    return _found(logits, noise, temperature, axis, one=one)


@wrong("values")
def always_the_most_likely(logits: Array, noise: Array, temperature: Array, *, axis: str) -> Array:
    """The most likely token is taken, whatever the temperature is; add temperature * noise to the
    logits."""
    return _found(logits, noise, temperature, axis, score=lambda logits, noise, t: logits + 0 * t)


@wrong("values")
def noise_not_scaled(logits: Array, noise: Array, temperature: Array, *, axis: str) -> Array:
    """The noise is added as it is; multiply it by the temperature of the row."""
    score = lambda logits, noise, t: logits + noise + 0 * t  # noqa: E731
    return _found(logits, noise, temperature, axis, score=score)


@wrong("values")
def logits_times_temperature(
    logits: Array, noise: Array, temperature: Array, *, axis: str
) -> Array:
    """The logits are multiplied by the temperature, so that a high one makes likely tokens still
    more likely; multiply the noise by it."""
    score = lambda logits, noise, t: jnp.where(t > 0, logits * t, 0) + noise  # noqa: E731
    return _found(logits, noise, temperature, axis, score=score)


@wrong("values")
def divided_by_temperature(logits: Array, noise: Array, temperature: Array, *, axis: str) -> Array:
    """The logits are divided by a temperature that may be 0, and are then infinite or NaN; the
    largest logit / temperature + noise is that of logit + temperature * noise, which has no
    division."""
    score = lambda logits, noise, t: logits / t + noise  # noqa: E731
    return _found(logits, noise, temperature, axis, score=score)


@wrong("values")
def whole_rows_divided(logits: Array, noise: Array, temperature: Array, *, axis: str) -> Array:
    """Rows with a temperature of 0 are divided by it, and become infinite or NaN; logit +
    temperature * noise is right for them, too, and no logit need be gathered."""
    scores = logits / vary(temperature, (axis,))[:, None] + noise
    return jnp.argmax(gathered(scores, axis, 1), axis=1).astype(jnp.int32)


@wrong("values")
def noise_divided(logits: Array, noise: Array, temperature: Array, *, axis: str) -> Array:
    """The noise is divided by the temperature; it is the logits that may be divided by it, or the
    noise multiplied."""

    def score(logits: Array, noise: Array, t: Array) -> Array:
        return logits + jnp.where(t > 0, noise / jnp.where(t > 0, t, 1), 0)

    return _found(logits, noise, temperature, axis, score=score)


@wrong("values")
def noise_on_probabilities(logits: Array, noise: Array, temperature: Array, *, axis: str) -> Array:
    """The noise is added to probabilities; it belongs to logits, as Gumbel noise turns a largest
    logit into a sample of the softmax."""

    def score(logits: Array, noise: Array, t: Array) -> Array:
        warm = jnp.where(t > 0, t, 1)
        return jnp.where(t > 0, jax.nn.softmax(logits / warm, axis=1) + noise, logits)

    return _found(logits, noise, temperature, axis, score=score)


@wrong("values")
def temperature_of_the_first_row(
    logits: Array, noise: Array, temperature: Array, *, axis: str
) -> Array:
    """All rows have the temperature of the first one; each has its own."""
    return _found(logits, noise, jnp.full_like(temperature, temperature[0]), axis)


@wrong("values")
def sums_in_16_bits(logits: Array, noise: Array, temperature: Array, *, axis: str) -> Array:
    """The sums are in the dtype of the logits; with 16 bits much of the noise is rounded off. Add
    in float32."""

    def score(wide: Array, noise: Array, t: Array) -> Array:
        own = wide.astype(logits.dtype)
        return own + (t * noise).astype(logits.dtype)

    return _found(logits, noise, temperature, axis, score=score)


@wrong("communication")
def logits_gathered(logits: Array, noise: Array, temperature: Array, *, axis: str) -> Array:
    """The logits of all devices are gathered; each device can find its own best first, and two
    numbers of it are enough."""
    scores = logits.astype(jnp.float32) + vary(temperature, (axis,))[:, None] * noise
    return jnp.argmax(gathered(scores, axis, 1), axis=1).astype(jnp.int32)


@wrong("communication")
def best_of_each_gathered(logits: Array, noise: Array, temperature: Array, *, axis: str) -> Array:
    """The best of each device are gathered, n numbers for each row; an all-reduce of a maximum
    sends less than two."""
    scores = logits.astype(jnp.float32) + vary(temperature, (axis,))[:, None] * noise
    token = lax.axis_index(axis) * scores.shape[1] + jnp.argmax(scores, axis=1)
    largest, token = lax.all_gather((scores.max(axis=1), token), axis)
    first = jnp.argmax(largest, axis=0)
    return jnp.take_along_axis(token, first[None], axis=0)[0].astype(jnp.int32)
