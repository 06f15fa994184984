"""A step of Adam whose moments are kept in 8 bits, slice by slice."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.contracts.base import Communication, Contract, Expected, MemoryLimit, wrong
from jaxpar.contracts.case import ArraySpec, Case, Function, Made
from jaxpar.contracts.draws import all_axes, axis_names, mesh_of, pick
from jaxpar.contracts.smaller_models.common import first_beyond, on_devices, place_in
from jaxpar.mesh import parse_mesh, varying_axes
from jaxpar.parallel import adam8bit
from jaxpar.parallel.adam8bit import Adam8bitState
from jaxpar.quantize import decode_blocks, dynamic_codebook, encode_blocks

SIGNED, UNSIGNED = dynamic_codebook(signed=True), dynamic_codebook(signed=False)
# What float32 loses of a move, over the sizes of what is added up for it, and of a moment, over the
# largest of its block: a tenth of this. Rounding to 8 bits before use loses 40 times as much.
MOVE, MOMENT = 1e-4, 1e-5
Kept = tuple[Array, Array]
"""What is kept of a moment of a leaf: its codes, and the largest of each block."""


def early_state(count: Array, *held: Any) -> Adam8bitState:
    """The state after fewer than four steps, where the corrections of the bias are large."""
    return Adam8bitState(count % 4, *held)


def _stepped(case: Case, grads: Any, state: Adam8bitState) -> list[Expected]:
    """One right result of several: a number next to a border may have the code of either side."""
    moves, new = _by_leaf(_leaf, grads, state, **case.kwargs)
    sizes = tuple(case.sizes.values())

    def on_each(leaf: Array) -> Expected:
        blocks = leaf.reshape(*sizes, -1, *leaf.shape[1:]) if leaf.ndim else leaf
        return Expected(jnp.broadcast_to(blocks, blocks.shape or sizes))

    return [*map(on_each, jax.tree.leaves((moves, new)))]


def _law(case: Case, inputs: list[np.ndarray], outputs: list[np.ndarray]) -> str | None:
    """Moves are those of Adam in float32, and moments are rounded to the nearest numbers."""
    b1, b2, eps = (case.kwargs[name] for name in ("b1", "b2", "eps"))
    names = sorted(case.args["grads"])
    k = len(names)  # arrays are in the order of grads, count, m_codes, m_largest and so on
    t = int(inputs[k]) % 4 + 1
    if np.any(outputs[k] != t):
        return f"the new count is {outputs[k].flat[0]}; it must be {t}"
    given = [on_devices(case, array) if array.ndim else array for array in inputs]
    for place, name in enumerate(names):
        grad, old, new = given[place], given[k + 1 + place :: k], outputs[k + 1 + place :: k]
        m, v = _numbers(old[:2], SIGNED), _numbers(old[2:], UNSIGNED)
        size = b1 * np.abs(m) + (1 - b1) * np.abs(grad)
        m, v = b1 * m + (1 - b1) * grad, b2 * v + (1 - b2) * grad**2
        over = (1 - b1**t) * (np.sqrt(v / (1 - b2**t)) + eps)
        at = first_beyond(np.abs(outputs[place] - m / over), MOVE * size / over)
        if at:
            return (
                f"{place_in(case, at)} of the moves of {name} is {outputs[place][at]:.6g}; it must "
                f"be {(m / over)[at]:.6g}, of moments that are not rounded yet"
            )
        complaint = _rounding(case, f"m of {name}", m, size, new[:2], SIGNED) or _rounding(
            case, f"v of {name}", v, v, new[2:], UNSIGNED
        )
        if complaint:
            return complaint
    return None


def _numbers(kept: list[np.ndarray], book: np.ndarray) -> np.ndarray:
    """The moments that codes and the largest of their blocks stand for, in float64."""
    codes, largest = kept[0], np.asarray(kept[1], np.float64)
    if codes.shape == largest.shape:
        return largest
    block = codes.shape[-1] // largest.shape[-1]
    return book.astype(np.float64)[codes.astype(int)] * largest.repeat(block, axis=-1)


def _rounding(
    case: Case,
    what: str,
    right: np.ndarray,
    size: np.ndarray,
    kept: list[np.ndarray],
    book: np.ndarray,
) -> str | None:
    """The first number of a moment that is not kept as the nearest of its block, in words.

    `size` are the magnitudes of what has been added up for each number, together.
    """
    largest = kept[1]
    block = right.shape[-1] // largest.shape[-1]
    most, lost = (
        np.abs(one).reshape(*largest.shape, block).max(axis=-1) for one in (right, MOMENT * size)
    )
    at = first_beyond(np.abs(np.abs(largest) - most), lost)
    if at:
        return (
            f"{place_in(case, at)} of the largest magnitudes of {what} is {largest[at]:.6g}; it "
            f"must be {most[at]:.6g}"
        )
    scale = most.repeat(block, axis=-1)
    nearest = right if block == 1 else scale * _nearest(right / np.where(scale, scale, 1), book)
    got = _numbers(kept, book)
    # Next to a border both sides are the nearest, but for what float32 loses.
    at = first_beyond(np.abs(got - right), np.abs(nearest - right) + lost.repeat(block, axis=-1))
    if at:
        return (
            f"{place_in(case, at)} of {what}, {right[at]:.6g}, is kept as {got[at]:.6g}; the "
            f"nearest number of its block is {nearest[at]:.6g}"
        )
    return None


def _nearest(x: np.ndarray, book: np.ndarray) -> np.ndarray:
    """The nearest numbers of a sorted codebook."""
    places = np.clip(np.searchsorted(book, x), 1, len(book) - 1)
    below, above = book[places - 1].astype(np.float64), book[places].astype(np.float64)
    return np.where(x - below < above - x, below, above)


def _case(
    mesh: str, leaves: dict[str, tuple[tuple[int, ...], int]], *,
    b1: float, b2: float, eps: float, dtype: str = "float32",
) -> Case:  # fmt: skip
    """What each device has of each leaf, and the block of that; all devices have others."""
    axes, devices = all_axes(mesh), math.prod(parse_mesh(mesh).values())

    def arrays(dtype: str, draw: Any, *, blocks: bool = False) -> dict[str, ArraySpec]:
        found = {}
        for name, (shape, block) in leaves.items():
            first, *others = (*shape[:-1], shape[-1] // (block if blocks else 1))
            layout = f"l_{axes} d f" if others[1:] else f"d_{axes} f" if others else f"d_{axes}"
            signed = blocks and draw == "any" and block == 1
            how = ("normal" if signed else "positive") if draw == "any" else draw
            found[name] = ArraySpec((devices * first, *others), layout, dtype, how)
        return found

    held = (
        arrays("uint8", "large"),
        arrays("float32", "any", blocks=True),
        arrays("uint8", "large"),
        arrays("float32", "positive", blocks=True),
    )
    state = Made(
        Function("jaxpar.contracts.smaller_models.adam8bit_update:early_state"),
        (ArraySpec((), "", "int32"), *held),
    )
    grads = arrays(dtype, "normal")
    return Case(mesh, {"grads": grads, "state": state}, {"b1": b1, "b2": b2, "eps": eps})


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    """Blocks that are no power of two, gradients in bfloat16, and one device."""
    one, two = axis_names(rng, 2, besides=("dp", "fsdp", "tp"))
    rows, columns = pick(rng, (9, 10, 11)), pick(rng, (5, 6, 7))
    few = {"scale": ((pick(rng, (21, 22)),), 1), "table": ((rows, 48 * columns), 48)}
    other = {"a": ((2, columns, 40), 20), "z": ((rows, 24), 1)}
    return (
        _case(mesh_of(rng, **{one: 3, two: 2}), few, b1=0.85, b2=0.97, eps=3e-3, dtype="bfloat16"),
        _case(f"{two}=1,{one}=2", other, b1=0.6, b2=0.75, eps=pick(rng, (2e-2, 3e-2))),
    )


def _with_blocks_of_zeros(case: Case, inputs: list[np.ndarray]) -> None:
    """Puts zeros into the first row of each leaf's gradient and moments, whose largest is 0."""
    devices, k = math.prod(case.sizes.values()), len(case.args["grads"])
    for array in (*inputs[:k], *inputs[2 * k + 1 : 3 * k + 1], *inputs[4 * k + 1 :]):
        array.reshape(devices, -1, *array.shape[1:])[:, 0] = 0


CONTRACT = Contract(
    kind="program",
    task="return the moves of Adam and the new state in 8 bits, a slice of each leaf at a time",
    reference=adam8bit.adam8bit_update,
    oracle=_stepped,
    law=_law,
    cases=(
        _case(
            "dp=4",
            {"gain": ((75,), 1), "matrix": ((64, 4096), 256)},
            b1=0.9,
            b2=0.95,
            eps=1e-3,
        ),
        _case(
            "fsdp=2,tp=3",
            {"layers": ((2, 12, 64), 16), "table": ((40, 96), 32), "gain": ((30,), 1)},
            b1=0.8,
            b2=0.9,
            eps=1e-2,
        ),
    ),
    draw=_drawn,
    poison=_with_blocks_of_zeros,
    communication=Communication("nothing is sent", forward=((),)),
    memory=MemoryLimit(
        "moments in float32 of a slice at a time, not of a whole leaf: at most twice the "
        "library's bytes of intermediate results, whose slices have 16,384 numbers",
        multiple=2,
    ),
    imports=(
        "jaxpar.parallel.adam8bit.Adam8bitState",
        "jaxpar.quantize.dynamic_codebook",
        "jaxpar.quantize.encode_blocks",
        "jaxpar.quantize.decode_blocks",
    ),
    hints=(
        "Decode both moments with decode_blocks, one with the signed codebook and one with the "
        "unsigned; make Adam's step with float32; encode what it gives. The move is of the moments "
        "before they are encoded, and t counts this step, too.",
        "The state of a leaf says how long blocks are: codes.shape[-1] // largest.shape[-1]. "
        "Where that is 1, `largest` is the moment, and codes stay as they are.",
        "Reshape gradient, codes and largest of a leaf to [slices, blocks, -1], and lax.map a "
        "function of one slice over them. Any slice of some ten thousand numbers will do.",
    ),
    minimal="Each device has its own shard of everything: gradients, codes and the largest of each "
    "block. What is in float32 at a time is a slice.",
    harder="Round at random, to one of the two nearest numbers with such probabilities that the "
    "mean is right. Does the loss come nearer to that of float32?",
)


def _by_leaf(
    function: Callable[..., tuple[Array, ...]], grads: Any, state: Adam8bitState, **rule: float
) -> tuple[Any, Adam8bitState]:
    """The moves and the new state, where a function takes what there is of one leaf."""
    tree, count = jax.tree.structure(grads), state.count + 1
    leaves = zip(*map(jax.tree.leaves, (grads, *state[1:])), strict=True)
    moved = [function(*leaf, count, **rule) for leaf in leaves]
    moves, *held = (tree.unflatten(part) for part in zip(*moved, strict=True))
    return moves, Adam8bitState(count, *held)


def decoded(codes: Array, largest: Array, book: np.ndarray = SIGNED) -> Array:
    """A moment in float32."""
    return largest if codes.shape == largest.shape else decode_blocks(codes, largest, book)


def encoded(x: Array, codes: Array, largest: Array, book: np.ndarray = SIGNED) -> Kept:
    """A moment as it is kept; `codes` and `largest` are those before, of the same shapes."""
    if codes.shape == largest.shape:
        return codes, x
    return encode_blocks(x, book, block=x.shape[-1] // largest.shape[-1])


def _mean(old: Array, new: Array, decay: float) -> Array:
    return decay * old + (1 - decay) * new


def _move(m: Array, v: Array, t: Array, b1: float, b2: float, eps: float) -> Array:
    return m / (1 - b1**t) / (jnp.sqrt(v / (1 - b2**t)) + eps)


def _leaf(
    grad: Array, m_codes: Array, m_largest: Array, v_codes: Array, v_largest: Array, t: Array,
    *, b1: float, b2: float, eps: float, second: np.ndarray = UNSIGNED,
    move: Callable[..., Array] = _move, encode: Callable[..., Kept] = encoded,
) -> tuple[Array, ...]:  # fmt: skip
    """A right answer for one leaf, all of it at once, with one step done in another way."""
    grad, t = grad.astype(m_largest.dtype), t.astype(m_largest.dtype)
    m = _mean(decoded(m_codes, m_largest), grad, b1)
    v = _mean(decoded(v_codes, v_largest, second), grad**2, b2)
    kept = *encode(m, m_codes, m_largest), *encode(v, v_codes, v_largest, second)
    return move(m, v, t, b1, b2, eps), *kept


@wrong("values")
def linear_codes(grads, state, *, b1, b2, eps):
    """Codes are multiples of 1/127 and 1/255 of the largest, so that small variances become 0; use
    the codebooks of dynamic_codebook, whose small numbers are as precise as large ones."""

    def encode(x, codes, largest, book=SIGNED):
        if codes.shape == largest.shape:
            return codes, x
        blocks = x.reshape(*largest.shape, -1)
        most = jnp.abs(blocks).max(axis=-1)
        scaled = blocks / jnp.where(most == 0, 1, most)[..., None]
        parts = jnp.round(127 * scaled) + 127 if book[0] < 0 else jnp.round(255 * scaled)
        return parts.reshape(x.shape).astype(jnp.uint8), most

    return _by_leaf(partial(_leaf, encode=encode), grads, state, b1=b1, b2=b2, eps=eps)


@wrong("values")
def one_largest_a_leaf(grads, state, *, b1, b2, eps):
    """All blocks of a leaf are divided by the largest number of the leaf, so that one large number
    costs all others their digits; each block has a largest of its own."""

    def encode(x, codes, largest, book=SIGNED):
        if codes.shape == largest.shape:
            return codes, x
        codes, one = encode_blocks(x.reshape(-1), book, block=x.size)
        return codes.reshape(x.shape), jnp.broadcast_to(one.reshape(()), largest.shape)

    return _by_leaf(partial(_leaf, encode=encode), grads, state, b1=b1, b2=b2, eps=eps)


@wrong("values")
def squares_in_signed_codes(grads, state, *, b1, b2, eps):
    """The mean square is decoded and encoded with the signed codebook, half of whose numbers it
    never needs; use the unsigned one."""
    return _by_leaf(partial(_leaf, second=SIGNED), grads, state, b1=b1, b2=b2, eps=eps)


@wrong("values")
def rounded_before_use(grads, state, *, b1, b2, eps):
    """The move is of moments that have been rounded already, where small variances may be 0; make
    it of those in float32, and encode them after that."""

    def leaf(*given, **rule):
        _, m_codes, m_largest, v_codes, v_largest = _leaf(*given, **rule)
        m, v = decoded(m_codes, m_largest), decoded(v_codes, v_largest, UNSIGNED)
        kept = m_codes, m_largest, v_codes, v_largest
        return _move(m, v, given[-1].astype(jnp.float32), **rule), *kept

    return _by_leaf(leaf, grads, state, b1=b1, b2=b2, eps=eps)


@wrong("values")
def bias_of_the_step_before(grads, state, *, b1, b2, eps):
    """The corrections of the bias take the count of the steps before; the first step has t = 1."""

    def move(m, v, t, *rule):
        return _move(m, v, t - 1, *rule)

    return _by_leaf(partial(_leaf, move=move), grads, state, b1=b1, b2=b2, eps=eps)


@wrong("values")
def bias_not_corrected(grads, state, *, b1, b2, eps):
    """The moments begin with zeros, and are too small in the first steps; divide them by 1 - b1**t
    and 1 - b2**t."""

    def move(m, v, t, b1, b2, eps):
        return m / (jnp.sqrt(v) + eps)

    return _by_leaf(partial(_leaf, move=move), grads, state, b1=b1, b2=b2, eps=eps)


@wrong("values")
def corrected_means_kept(grads, state, *, b1, b2, eps):
    """The moments are kept after the correction of their bias, which the next step corrects again;
    encode them as they were."""

    def leaf(grad, m_codes, m_largest, v_codes, v_largest, t, **rule):
        before = m_codes, m_largest, v_codes, v_largest
        move, *_ = _leaf(grad, *before, t, **rule)
        wide = grad.astype(jnp.float32)
        m = _mean(decoded(m_codes, m_largest), wide, b1) / (1 - b1**t)
        v = _mean(decoded(v_codes, v_largest, UNSIGNED), wide**2, b2) / (1 - b2**t)
        kept = *encoded(m, *before[:2]), *encoded(v, v_codes, v_largest, UNSIGNED)
        return move, *kept

    return _by_leaf(leaf, grads, state, b1=b1, b2=b2, eps=eps)


@wrong("values")
def count_not_raised(grads, state, *, b1, b2, eps):
    """The count of steps stays; return one more."""
    moves, new = _by_leaf(_leaf, grads, state, b1=b1, b2=b2, eps=eps)
    return moves, new._replace(count=state.count)


@wrong("values")
def decays_exchanged(grads, state, *, b1, b2, eps):
    """b1 and b2 are exchanged: b1 is the decay of the mean, b2 that of the mean square."""
    return _by_leaf(_leaf, grads, state, b1=b2, b2=b1, eps=eps)


@wrong("values")
def eps_under_the_root(grads, state, *, b1, b2, eps):
    """eps is added to the mean square, under the root; Adam adds it to the root."""

    def move(m, v, t, b1, b2, eps):
        return m / (1 - b1**t) / jnp.sqrt(v / (1 - b2**t) + eps)

    return _by_leaf(partial(_leaf, move=move), grads, state, b1=b1, b2=b2, eps=eps)


@wrong("values")
def largest_of_the_step_before(grads, state, *, b1, b2, eps):
    """The new moments are divided by the largest magnitudes of the old ones, which they may exceed;
    each step finds them anew."""

    def encode(x, codes, largest, book=SIGNED):
        if codes.shape == largest.shape:
            return codes, x
        blocks = x.reshape(*largest.shape, -1)
        scaled = jnp.clip(blocks / jnp.where(largest == 0, 1, largest)[..., None], -1, 1)
        one = jnp.concatenate([scaled, jnp.ones_like(scaled[..., :1])], axis=-1)
        codes, _ = encode_blocks(one, book, block=one.shape[-1])
        return codes[..., :-1].reshape(x.shape), largest

    return _by_leaf(partial(_leaf, encode=encode), grads, state, b1=b1, b2=b2, eps=eps)


@wrong("values")
def next_code_below(grads, state, *, b1, b2, eps):
    """Numbers are rounded down to the next number of the codebook, so that means shrink with each
    step; round to the nearest."""

    def encode(x, codes, largest, book=SIGNED):
        codes, most = encoded(x, codes, largest, book)
        if codes.shape == most.shape:
            return codes, most
        above = decode_blocks(codes, most, book) > x
        return codes - above.astype(jnp.uint8), most

    return _by_leaf(partial(_leaf, encode=encode), grads, state, b1=b1, b2=b2, eps=eps)


@wrong("values")
def state_in_float32(grads, state, *, b1, b2, eps):
    """The moments are returned in float32, 8 bytes a parameter; encode them again."""

    def encode(x, codes, largest, book=SIGNED):
        return x, jnp.ones_like(largest)

    return _by_leaf(partial(_leaf, encode=encode), grads, state, b1=b1, b2=b2, eps=eps)


@wrong("values")
def moves_in_dtype_of_gradients(grads, state, *, b1, b2, eps):
    """The moves have the dtype of the gradients, and bfloat16 keeps fewer than three digits; return
    float32."""
    moves, new = adam8bit.adam8bit_update(grads, state, b1=b1, b2=b2, eps=eps)
    return jax.tree.map(lambda move, grad: move.astype(grad.dtype), moves, grads), new


@wrong("values")
def zero_blocks_divided(grads, state, *, b1, b2, eps):
    """A block of zeros has the largest 0, and 0 / 0 is NaN; divide by 1 there."""
    moves, new = adam8bit.adam8bit_update(grads, state, b1=b1, b2=b2, eps=eps)

    def divided(codes, most):
        return jnp.where(most == 0, jnp.nan, most) if codes.shape != most.shape else most

    return moves, new._replace(
        m_largest=jax.tree.map(divided, new.m_codes, new.m_largest),
        v_largest=jax.tree.map(divided, new.v_codes, new.v_largest),
    )


@wrong("values")
def small_leaves_encoded(grads, state, *, b1, b2, eps):
    """Where blocks have one number, the moment is rounded to -0.993 or 1 times its magnitude; it is
    kept in place of the largest magnitude, as it is."""

    def encode(x, codes, largest, book=SIGNED):
        return encode_blocks(x, book, block=x.shape[-1] // largest.shape[-1])

    return _by_leaf(partial(_leaf, encode=encode), grads, state, b1=b1, b2=b2, eps=eps)


@wrong("communication")
def gradients_of_all(grads, state, *, b1, b2, eps):
    """The gradients of all devices are gathered, and each device takes its own again; it has them,
    so send nothing."""

    def own(leaf):
        axes = tuple(sorted(varying_axes(leaf)))
        return lax.all_gather(leaf, axes)[lax.axis_index(axes)]

    return _by_leaf(_leaf, jax.tree.map(own, grads), state, b1=b1, b2=b2, eps=eps)


@wrong("memory")
def whole_leaves(grads, state, *, b1, b2, eps):
    """The moments of a whole leaf are in float32 at once, which is what 8 bits should save; let
    lax.map go through slices of the leaf."""
    return _by_leaf(_leaf, grads, state, b1=b1, b2=b2, eps=eps)
