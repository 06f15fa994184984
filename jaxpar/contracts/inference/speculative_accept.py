"""How many guessed tokens are kept, and the distribution of the token after them."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxpar.axes import parse_mesh
from jaxpar.contracts.base import BadCall, Communication, Contract, Expected, wrong
from jaxpar.contracts.case import ArraySpec, Case, Function, Made
from jaxpar.contracts.draws import all_axes, axis_names, mesh_of, pick
from jaxpar.contracts.inference import common
from jaxpar.parallel import decode

HERE = "jaxpar.contracts.inference.speculative_accept"
PARTS = 256
Result = tuple[Array, Array]


def distributions(drawn: Array, least: int) -> Array:
    """Distributions of tokens, in multiples of 1/256."""
    v = drawn.shape[-1]
    few = jnp.floor(drawn.astype(jnp.float32) * (PARTS // v))
    few = jnp.clip(few, least, PARTS // v)
    largest = jnp.argmax(drawn, axis=-1)[..., None]
    tokens = jnp.arange(v).reshape((1,) * (drawn.ndim - 1) + (v,))
    rest = (tokens == largest) * (PARTS - few.sum(-1, keepdims=True))
    return ((few + rest) / PARTS).astype(drawn.dtype)


def fractions(drawn: Array) -> Array:
    """Numbers from 0 to below 1, in multiples of 1/64."""
    return (drawn % 64).astype(jnp.float32) / 64


def _whole(case: Case, draft: Array, q: Array, p: Array, uniforms: Array) -> list[Expected]:
    """Token after token, of all rows at once."""
    rows, t = jnp.arange(len(draft)), draft.shape[1]
    accepted, going = jnp.zeros(len(draft), jnp.int32), jnp.ones(len(draft), bool)
    after = jnp.zeros_like(p[:, 0])
    for i in range(t):
        x = draft[:, i]
        keeps = uniforms[:, i] * q[rows, i, x] < p[rows, i, x]
        rest = jnp.maximum(p[:, i] - q[:, i], 0)
        total = rest.sum(1, keepdims=True)
        rest = rest / jnp.where(total > 0, total, 1)
        after = jnp.where((going & ~keeps)[:, None], rest, after)
        going = going & keeps
        accepted = accepted + going
    after = jnp.where(going[:, None], p[:, t], after)
    sizes = case.sizes.values()
    return [Expected(y.reshape(*sizes, -1, *y.shape[1:])) for y in (accepted, after)]


def _case(mesh: str, *, b: int, t: int, v: int, dtype: str = "float32", after: int = 1) -> Case:
    """Every device has b rows of its own."""
    b, at = b * math.prod(parse_mesh(mesh).values()), f"b_{all_axes(mesh)}"
    made, unit = Function(f"{HERE}:distributions"), Function(f"{HERE}:fractions")
    token = Function(f"{common.__name__}:tokens")

    def drawn(count: int, least: int) -> Made:
        spec = ArraySpec((b, count, v), f"{at} t v", dtype, "positive")
        return Made(made, (spec, least))

    return Case(
        mesh,
        {
            "draft": Made(token, (ArraySpec((b, t), f"{at} t", "int32", "large"), v)),
            "draft_probs": drawn(t, 1),
            "target_probs": drawn(t + after, 0),
            "uniforms": Made(unit, (ArraySpec((b, t), f"{at} t", "int32", "large"),)),
        },
    )


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    axis, other = axis_names(rng, 2, besides=("dp", "tp"))
    return (
        _case(f"{axis}=5", b=pick(rng, (9, 11)), t=5, v=pick(rng, (17, 19)), dtype="bfloat16"),
        _case(mesh_of(rng, **{axis: 1, other: 3}), b=pick(rng, (13, 15)), t=1, v=5),
        _case(f"{other}=2", b=12, t=pick(rng, (7, 9)), v=pick(rng, (20, 23))),
    )


def _corners(case: Case, inputs: list[np.ndarray]) -> None:
    """Lets drafts be right or wrong for certain: of equal distributions all are kept, and a token
    that the target cannot have is never kept, even if its number is 0."""
    draft, q, p, uniforms = inputs
    t, v = draft.shape[1], q.shape[2]
    draft[0] = q[0].astype(np.float32).argmax(1)
    p[0, :t] = q[0]
    for row, place in ((1, 0), (2, t - 1)):
        p[row, :t], uniforms[row] = q[row], 0
        draft[row] = q[row].astype(np.float32).argmax(1)
        p[row, place, draft[row, place]] = 0
        p[row, place, (draft[row, place] + 1) % v] = 5
    uniforms[3] = 63


CONTRACT = Contract(
    kind="program",
    task="return how many drafted tokens are accepted, and the distribution of the next one",
    reference=decode.speculative_accept,
    oracle=_whole,
    cases=(_case("dp=4", b=8, t=4, v=11), _case("dp=2,tp=3", b=10, t=2, v=8)),
    draw=_drawn,
    poison=_corners,
    communication=Communication("nothing is sent", forward=((),)),
    errors=(
        BadCall(
            _case("dp=4", b=8, t=4, v=11, after=0),
            "there is no distribution of the target after the last drafted token",
        ),
    ),
    hints=(
        "A token that the draft chooses more often than the target would must be refused now and "
        "then: with which probability? And which tokens has the draft then chosen too seldom?",
        "Read p and q of the drafted tokens with jnp.take_along_axis. Token i is kept if uniform * "
        "q < p. What comes after a refused token does not count: jnp.cumprod of what is kept, and "
        "its sum.",
        "In row r take p[r, accepted[r]], and q there. max(0, p - q) divided by its sum is the "
        "distribution after a refusal. If all are kept, there is no q: take it as 0.",
    ),
    minimal="Each row has its own drafts and numbers, and needs nothing of other rows.",
    harder="Let the draft be a tree, with several guesses for each place. Which of them may be "
    "tried after a refusal, and what is left of p?",
)


def _at(x: Array, tokens: Array) -> Array:
    return jnp.take_along_axis(x, tokens[..., None], axis=2)[..., 0]


def _normalised(rest: Array) -> Array:
    return rest / rest.sum(-1, keepdims=True)


def _accepted(
    draft: Array, q: Array, p: Array, uniforms: Array,
    *,
    check: bool = True,
    keeps: Callable[[Array, Array, Array], Array] = lambda u, q, p: u * q < p,
    count: Callable[[Array], Array] = lambda kept: jnp.cumprod(kept, axis=1).sum(1),
    where: Callable[[Array], Array] = lambda accepted: accepted,
    guessed: Callable[[Array], Array] = lambda q: jnp.concatenate([q, 0 * q[:, :1]], axis=1),
    rest: Callable[[Array, Array], Array] = lambda p, q: jnp.maximum(p - q, 0),
    divide: Callable[[Array], Array] = _normalised,
) -> Result:  # fmt: skip
    """Acceptance with one thing done in another way."""
    t, rows = draft.shape[1], jnp.arange(len(draft))
    if check and p.shape[1] != t + 1:
        raise ValueError("one more distribution of the target is needed")
    q, p = q.astype(jnp.float32), p.astype(jnp.float32)
    kept = keeps(uniforms, _at(q, draft), _at(p[:, :t], draft)).astype(jnp.int32)
    accepted = count(kept)
    at = where(accepted)
    return accepted, divide(rest(p[rows, at], guessed(q)[rows, at]))


@wrong("values")
def ratio_upside_down(draft: Array, q: Array, p: Array, uniforms: Array) -> Result:
    """Drafts are kept where the draft's probability is small, q over p; a token is kept with
    probability p / q, so if uniform * q < p."""
    return _accepted(draft, q, p, uniforms, keeps=lambda u, q, p: u * p < q)


@wrong("values")
def kept_if_equal(draft: Array, q: Array, p: Array, uniforms: Array) -> Result:
    """A token is also kept if both sides are equal, and so with the number 0 even one of
    probability 0; numbers are from 0 to below 1, so it must be less."""
    return _accepted(draft, q, p, uniforms, keeps=lambda u, q, p: u * q <= p)


@wrong("values")
def draft_probability_ignored(draft: Array, q: Array, p: Array, uniforms: Array) -> Result:
    """A draft is kept with the target's probability p; that the draft has chosen it makes it more
    likely already, so divide by q."""
    return _accepted(draft, q, p, uniforms, keeps=lambda u, q, p: u < p)


@wrong("values")
def likelier_ones_kept(draft: Array, q: Array, p: Array, uniforms: Array) -> Result:
    """A draft is kept only if p is at least q; below that it is kept with probability p / q."""
    return _accepted(draft, q, p, uniforms, keeps=lambda u, q, p: (p >= q) & (u < 1))


@wrong("values")
def kept_after_a_refusal(draft: Array, q: Array, p: Array, uniforms: Array) -> Result:
    """Tokens after a refused one are counted, too, though they were drafted to follow it; count up
    to the first refusal."""
    return _accepted(draft, q, p, uniforms, count=lambda kept: kept.sum(1))


@wrong("values")
def refused_token_counted(draft: Array, q: Array, p: Array, uniforms: Array) -> Result:
    """The refused token is counted, as the one that follows the accepted ones; count the accepted
    ones only."""
    accepted, after = _accepted(draft, q, p, uniforms)
    return accepted + 1, after


@wrong("values")
def as_few_as_the_worst_row(draft: Array, q: Array, p: Array, uniforms: Array) -> Result:
    """All rows keep as many tokens as the row that keeps fewest; each row goes on by itself."""

    def count(kept: Array) -> Array:
        each = jnp.cumprod(kept, axis=1).sum(1)
        return jnp.full_like(each, each.min())

    return _accepted(draft, q, p, uniforms, count=count)


@wrong("values")
def target_after_a_refusal(draft: Array, q: Array, p: Array, uniforms: Array) -> Result:
    """After a refusal the next token is drawn from p itself, and then the draft's tokens come too
    often; draw it from what the draft chooses too seldom, max(0, p - q)."""
    return _accepted(draft, q, p, uniforms, rest=lambda p, q: p)


@wrong("values")
def rest_not_divided(draft: Array, q: Array, p: Array, uniforms: Array) -> Result:
    """The distribution does not add up to 1; divide max(0, p - q) by its sum."""
    return _accepted(draft, q, p, uniforms, divide=lambda rest: rest)


@wrong("values")
def rest_not_clipped(draft: Array, q: Array, p: Array, uniforms: Array) -> Result:
    """p - q is taken with its negative numbers, or their absolute values; a token that the draft
    chooses too often has none left: max(0, p - q)."""
    return _accepted(draft, q, p, uniforms, rest=lambda p, q: jnp.abs(p - q))


@wrong("values")
def rest_the_other_way(draft: Array, q: Array, p: Array, uniforms: Array) -> Result:
    """What is left is computed as max(0, q - p), the tokens that the draft chooses too often; those
    that it chooses too seldom are needed, max(0, p - q)."""

    def rest(p: Array, q: Array) -> Array:
        return jnp.where((q.sum(1) > 0)[:, None], jnp.maximum(q - p, 0), p)

    return _accepted(draft, q, p, uniforms, rest=rest)


@wrong("values")
def no_token_after_the_last(draft: Array, q: Array, p: Array, uniforms: Array) -> Result:
    """If all drafts are kept, the distribution is that of the last of them; the target has
    computed one more, for the token after them."""
    t = draft.shape[1]
    return _accepted(
        draft, q, p, uniforms,
        where=lambda accepted: jnp.minimum(accepted, t - 1),
        guessed=lambda q: q,
        divide=lambda rest: rest / jnp.maximum(rest.sum(-1, keepdims=True), 1e-9),
    )  # fmt: skip


@wrong("values")
def distribution_one_place_early(draft: Array, q: Array, p: Array, uniforms: Array) -> Result:
    """The distribution is that of the last token which was kept; it is that of the place after
    it."""
    return _accepted(
        draft, q, p, uniforms,
        where=lambda accepted: jnp.maximum(accepted - 1, 0),
        divide=lambda rest: rest / jnp.maximum(rest.sum(-1, keepdims=True), 1e-9),
    )  # fmt: skip


@wrong("values")
def last_draft_subtracted(draft: Array, q: Array, p: Array, uniforms: Array) -> Result:
    """If all drafts are kept, q of the last one is subtracted from the target's next distribution;
    nothing was drafted there, so it is p as it is."""
    return _accepted(
        draft, q, p, uniforms, guessed=lambda q: jnp.concatenate([q, q[:, -1:]], axis=1)
    )


@wrong("values")
def accepted_in_16_bits(draft: Array, q: Array, p: Array, uniforms: Array) -> Result:
    """The distribution has the dtype of the probabilities; compute in float32, and return it."""
    accepted, after = _accepted(draft, q, p, uniforms)
    return accepted, after.astype(q.dtype)


@wrong("values")
def greedy_acceptance(draft: Array, q: Array, p: Array, uniforms: Array) -> Result:
    """A draft is kept if it is the target's most likely token; that is right for a temperature of
    0, and here it is kept with probability p / q."""
    best = jnp.argmax(p[:, : draft.shape[1]], axis=2) == draft
    return _accepted(draft, q, p, uniforms, keeps=lambda u, q, p: best)


@wrong("errors")
def distributions_not_counted(draft: Array, q: Array, p: Array, uniforms: Array) -> Result:
    """A missing distribution of the target is not noticed, for an index that is too large reads the
    last one; raise ValueError."""
    return _accepted(draft, q, p, uniforms, check=False)
