"""A mean over the devices that is sent in 8 or 4 bits, with error feedback in both halves."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.contracts.base import BadCall, Communication, Contract, Expected, Limit, wrong
from jaxpar.contracts.blocks import mesh_order, on_every_device
from jaxpar.contracts.case import ArraySpec, Case, Function, Made, Sizes
from jaxpar.contracts.draws import all_axes, axis_names, mesh_of, pick
from jaxpar.contracts.low_communication.common import first_above, given, groups, held, where_in
from jaxpar.contracts.steps import gathered
from jaxpar.mesh import parse_mesh
from jaxpar.parallel import compress
from jaxpar.quantize import dequantize_blocks, quantize_blocks

# Of the largest magnitude of a block: what float32 loses in right answers is a tenth of this, and
# what a mistake loses is a rounding of 8 bits at least, 200 times as much.
ROUNDING = 2e-5


def _rounded(x: Array, block: int, bits: int) -> Array:
    """Each number as the nearest multiple of its block's scale."""
    blocks = x.reshape(*x.shape[:-1], -1, block)
    scales = jnp.abs(blocks).max(axis=-1, keepdims=True) / (2 ** (bits - 1) - 1)
    return (jnp.round(blocks / jnp.where(scales == 0, 1, scales)) * scales).reshape(x.shape)


def _averaged(case: Case, x: Array, error: Array, second_error: Array) -> list[Expected]:
    """One right result of many: that of rounding to the nearest."""
    lossy = partial(_rounded, block=case.kwargs["block"], bits=case.kwargs["bits"])
    corrected = groups(case, x) + groups(case, error)
    sent = lossy(corrected)
    seconds = groups(case, second_error)
    parts = sent.mean(axis=0).reshape(*sent.shape[1:-1], len(sent), -1)
    parts = jnp.moveaxis(parts, -2, 0) + seconds  # [n, *others, part]
    mean = lossy(parts)
    whole = jnp.moveaxis(mean, 0, -2).reshape(*sent.shape[1:])
    results = mesh_order(case, corrected - sent), mesh_order(case, parts - mean)
    return [Expected(on_every_device(case, whole)), *map(Expected, results)]


def _law(case: Case, inputs: list[np.ndarray], outputs: list[np.ndarray]) -> str | None:
    """Nothing is lost or made up, and no error is larger than rounding makes it."""
    x, error, second = (given(case, array) for array in inputs)
    mean, new_error, new_second = (held(case, array) for array in outputs)
    corrected = x + error
    sent = corrected - new_error
    parts = _cut(sent.mean(axis=0), len(sent)) + second  # what device i rounds of its part
    step, second_step = (_step(case, before) for before in (corrected, parts))
    for name, rounding, largest in (
        ("error", new_error, step),
        ("second error", new_second, second_step),
    ):
        at = first_above(np.abs(rounding), 1.001 * largest)
        if at:
            return (
                f"{where_in(case, at)} of the new {name} is {rounding[at]:.6g}, where a step of "
                f"its block is {largest[at]:.6g}: rounding loses no more than one step"
            )
    total = corrected.mean(axis=0) + _joined(second)
    kept = new_error.mean(axis=0) + _joined(new_second)
    size = _largest(case, corrected).mean(axis=0) + _largest(case, _joined(second))
    missing = np.abs(mean + kept - total)
    at = first_above(
        missing, _but_for_few(missing, ROUNDING * size, step.mean(axis=0) + _joined(second_step))
    )
    if at:
        return (
            f"{where_in(case, at)} of the result is {mean[at]:.6g}, and the new errors keep "
            f"{kept[at[1:]]:.6g} of the mean; together they must be {total[at[1:]]:.6g}, the mean "
            "of x + error, plus second_error"
        )
    return None


def _but_for_few(missing: np.ndarray, bound: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """The bound on what is missing of each number: few of a device's may miss whole steps as well.

    XLA compiles a rounding twice, into what is sent and into the error, and no barrier hinders it.
    LLVM then fuses the multiplication by 1 / scale with the addition of noise in one of the two
    alone. They differ by up to 3/2 units in the last place of 127, 2**-17 each, and go to either
    side of an integer with that probability, which in n + 1 roundings on 8 devices is 1e-4. Ten
    times as many are few, and 2 where there are less than a thousand numbers.
    """
    above = ~(missing <= bound)
    few = above.sum(axis=-1, keepdims=True) <= 2 + missing.shape[-1] / 1000
    return bound + few * steps


def _cut(whole: np.ndarray, n: int) -> np.ndarray:
    """The n parts, each on its device: [*others, N] to [n, *others, N/n]."""
    return np.moveaxis(whole.reshape(*whole.shape[:-1], n, -1), -2, 0)


def _joined(parts: np.ndarray) -> np.ndarray:
    """The parts of all devices one after the other: [n, *others, N/n] to [*others, N]."""
    return np.moveaxis(parts, 0, -2).reshape(*parts.shape[1:-1], -1)


def _step(case: Case, x: np.ndarray) -> np.ndarray:
    """For each number the scale of its block: what its code counts."""
    return _largest(case, x) / (2 ** (case.kwargs["bits"] - 1) - 1)


def _largest(case: Case, x: np.ndarray) -> np.ndarray:
    """For each number the largest magnitude of its block."""
    block = case.kwargs["block"]
    return np.abs(x).reshape(*x.shape[:-1], -1, block).max(axis=-1).repeat(block, axis=-1)


def _case(mesh: str, axis: str, blocks: int, block: int, bits: int, dtype: str = "float32") -> Case:
    """Each device has n times so many blocks, some of which are 100 times as large as others."""
    sizes, over = parse_mesh(mesh), all_axes(mesh)
    devices, part = int(np.prod([*sizes.values()])), blocks * block
    x = ArraySpec((devices * sizes[axis] * blocks, block), f"b_{over} d", dtype, "peaked")
    return Case(
        mesh,
        {
            "x": Made(Function("jaxpar.contracts.low_communication.common:flat"), (x,)),
            "error": ArraySpec((devices * sizes[axis] * part,), f"d_{over}"),
            "second_error": ArraySpec((devices * part,), f"d_{over}"),
        },
        {"axis": axis, "block": block, "bits": bits},
    )


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    """4 bits, of bfloat16; 8 bits on three devices; one device."""
    axis, other = axis_names(rng, 2, besides=("dp", "tp"))
    n, others = pick(rng, ((6, 2), (5, 2), (3, 3)))
    blocks = [pick(rng, range(5, 9)) for _ in range(3)]
    return (
        _case(mesh_of(rng, **{axis: n, other: others}), axis, blocks[0], 16, 4, "bfloat16"),
        _case(f"{other}=2,{axis}=3", axis, blocks[1], pick(rng, (24, 40)), 8),
        _case(f"{axis}=1,{other}=2", axis, blocks[2], 48, pick(rng, (4, 8))),
    )


def _with_blocks_of_zeros(case: Case, inputs: list[np.ndarray]) -> None:
    """Puts zeros into the first block of each device's x and of its errors, which have no scale."""
    for array in inputs:
        devices = array.reshape(int(np.prod([*case.sizes.values()])), -1, case.kwargs["block"])
        devices[:, 0] = 0


def _wire_bytes(sizes: Sizes) -> float:
    n, numbers = sizes.n(), sizes.bytes("error") / 4
    whole = numbers * (sizes.case.kwargs["bits"] / 8 + 4 / sizes.case.kwargs["block"])
    return 2 * (n - 1) / n * whole


_FIRST = _case("dp=8", "dp", 16, 64, 8)

CONTRACT = Contract(
    kind="program",
    task="return the mean of x over `axis`, sent in `bits` bits, and what rounding lost each time",
    reference=compress.quantized_all_reduce,
    oracle=_averaged,
    law=_law,
    cases=(_FIRST, _case("dp=4,tp=2", "dp", 48, 32, 8)),
    draw=_drawn,
    poison=_with_blocks_of_zeros,
    errors=(
        BadCall(_case("dp=6", "dp", 3, 10, 6), "bits = 6"),
        BadCall(replace(_FIRST, kwargs={**_FIRST.kwargs, "block": 60}), "8,192 / 60"),
        BadCall(replace(_FIRST, kwargs={**_FIRST.kwargs, "block": 2048}), "8,192 / (8 * 2,048)"),
    ),
    communication=Communication(
        "an all-to-all and an all-gather of integers of `bits` bits and of the scales of their "
        "blocks",
        forward=((Limit(("all_to_all", "permute", "all_gather"), "axis", _wire_bytes),),),
    ),
    imports=(
        "jaxpar.quantize.quantize_blocks",
        "jaxpar.quantize.dequantize_blocks",
    ),
    hints=(
        "An all-reduce is a reduce-scatter and an all-gather. Integers of 8 bits cannot be added "
        "up on the way, so the first half is an exchange: each device gets its part of all the "
        "others, and adds them up itself.",
        "What a device returns as an error is what it wanted to send, less what the others read: "
        "v - dequantize_blocks(*quantize_blocks(v, ...)), where v is x + error in the first half, "
        "and this device's part of the mean, plus second_error, in the second.",
        "Reshape x + error to [n, -1]; lax.all_to_all(codes, axis, 0, 0), and the same of the "
        "scales; the mean over dim 0 is this device's part. Then lax.all_gather of both.",
    ),
    minimal="Each number leaves a device once in the first half and arrives once in the second, in "
    "`bits` bits, and each block brings its scale, without which nobody can read it.",
    harder="Rotate x by a random orthogonal matrix before it is rounded, and back after, so that "
    "no block has one number that is much larger than the others.",
)


def _exchanged(parts: Array, block: int, bits: int, axis: str) -> tuple[Array, Array]:
    """What arrives of [n, part] from all devices, and what rounding lost here."""
    codes, scales = quantize_blocks(parts, block=block, bits=bits)
    arrived = [lax.all_to_all(sent, axis, 0, 0) for sent in (codes, scales)]
    return dequantize_blocks(*arrived), parts - dequantize_blocks(codes, scales)


def _published(part: Array, block: int, bits: int, axis: str) -> tuple[Array, Array]:
    """The parts of all devices, and what rounding lost of this one."""
    codes, scales = quantize_blocks(part, block=block, bits=bits)
    whole = dequantize_blocks(*(lax.all_gather(sent, axis) for sent in (codes, scales)))
    return whole.reshape(-1), part - dequantize_blocks(codes, scales)


def _in_parts(x: Array, axis: str) -> Array:
    return x.reshape(lax.axis_size(axis), -1)


def _reduced(x: Array, error: Array, second_error: Array, axis: str, block: int, bits: int) -> Any:
    """A right answer, of which mistakes change what goes in or comes out."""
    arrived, error = _exchanged(_in_parts(x + error, axis), block, bits, axis)
    mean, second_error = _published(arrived.mean(axis=0) + second_error, block, bits, axis)
    return mean, error.reshape(-1), second_error


@wrong("values")
def feedback_never_added(x, error, second_error, *, axis, block, bits):
    """The errors of the step before are returned anew and never added; add `error` to x, and
    `second_error` to this device's part of the mean, before you round."""
    return _reduced(x, 0 * error, 0 * second_error, axis, block, bits)


@wrong("values")
def first_feedback_never_added(x, error, second_error, *, axis, block, bits):
    """`error` is never added: what the first half lost in the step before is lost for good; round
    x + error."""
    return _reduced(x, 0 * error, second_error, axis, block, bits)


@wrong("values")
def second_feedback_never_added(x, error, second_error, *, axis, block, bits):
    """`second_error` is never added: what the second half lost in the step before is lost for good;
    add it to this device's part of the mean before you round that."""
    return _reduced(x, error, 0 * second_error, axis, block, bits)


@wrong("values")
def errors_dropped(x, error, second_error, *, axis, block, bits):
    """The new errors are zeros; return what rounding lost, so that the next step can send it."""
    mean, error, second_error = _reduced(x, error, second_error, axis, block, bits)
    return mean, 0 * error, 0 * second_error


@wrong("values")
def first_error_dropped(x, error, second_error, *, axis, block, bits):
    """The new `error` is zeros; return what rounding lost of x + error."""
    mean, error, second_error = _reduced(x, error, second_error, axis, block, bits)
    return mean, 0 * error, second_error


@wrong("values")
def second_error_dropped(x, error, second_error, *, axis, block, bits):
    """The new `second_error` is zeros; the second half rounds as well, so return what it lost of
    this device's part."""
    mean, error, second_error = _reduced(x, error, second_error, axis, block, bits)
    return mean, error, 0 * second_error


@wrong("values")
def errors_unchanged(x, error, second_error, *, axis, block, bits):
    """The errors are returned as they came; what was added to x has been sent, and what is left is
    what this step's rounding lost."""
    return _reduced(x, error, second_error, axis, block, bits)[0], error, second_error


@wrong("values")
def errors_with_other_sign(x, error, second_error, *, axis, block, bits):
    """The errors have the wrong sign; they are what was wanted less what was sent."""
    mean, error, second_error = _reduced(x, error, second_error, axis, block, bits)
    return mean, -error, -second_error


@wrong("values")
def errors_pile_up(x, error, second_error, *, axis, block, bits):
    """The old errors are added to the new ones, though they were sent with x; return only what this
    step lost."""
    mean, new_error, new_second = _reduced(x, error, second_error, axis, block, bits)
    return mean, error + new_error, second_error + new_second


@wrong("values")
def error_of_x_alone(x, error, second_error, *, axis, block, bits):
    """The new `error` is x less what was sent; it must be x + error less that."""
    mean, new_error, second_error = _reduced(x, error, second_error, axis, block, bits)
    return mean, new_error - error, second_error


@wrong("values")
def error_against_the_mean(x, error, second_error, *, axis, block, bits):
    """The new `error` is what this device wanted less the mean of all devices; it is what it wanted
    less what it sent itself."""
    mean, _, new_second = _reduced(x, error, second_error, axis, block, bits)
    return mean, x + error - mean, new_second


@wrong("values")
def nothing_sent(x, error, second_error, *, axis, block, bits):
    """Nothing is sent, and all of x is kept as an error; an error is what rounding lost, at most
    one step of its block."""
    return 0 * x.astype(error.dtype), x + error, second_error


@wrong("values")
def sum_for_mean(x, error, second_error, *, axis, block, bits):
    """What arrives is added up and not divided by the number of devices."""
    arrived, error = _exchanged(_in_parts(x + error, axis), block, bits, axis)
    total, second_error = _published(arrived.sum(axis=0) + second_error, block, bits, axis)
    return total, error.reshape(-1), second_error


@wrong("values")
def constant_n(x, error, second_error, *, axis, block, bits):
    """The number of devices is a constant, 8; lax.axis_size(axis) is the size of the axis."""
    arrived, error = _exchanged(_in_parts(x + error, axis), block, bits, axis)
    part = arrived.sum(axis=0) / 8 + second_error
    mean, second_error = _published(part, block, bits, axis)
    return mean, error.reshape(-1), second_error


@wrong("values")
def receivers_scales(x, error, second_error, *, axis, block, bits):
    """Integers are multiplied by the receiver's own scales; send the scales as well, and multiply
    by the sender's."""
    parts = _in_parts(x + error, axis)
    codes, scales = quantize_blocks(parts, block=block, bits=bits)
    arrived = dequantize_blocks(lax.all_to_all(codes, axis, 0, 0), scales)
    error = parts - dequantize_blocks(codes, scales)
    mean, second_error = _published(arrived.mean(axis=0) + second_error, block, bits, axis)
    return mean, error.reshape(-1), second_error


@wrong("values")
def own_parts_averaged(x, error, second_error, *, axis, block, bits):
    """Each device averages its own n parts; exchange them first, with lax.all_to_all."""
    parts = _in_parts(x + error, axis)
    sent = dequantize_blocks(*quantize_blocks(parts, block=block, bits=bits))
    mean, second_error = _published(sent.mean(axis=0) + second_error, block, bits, axis)
    return mean, (parts - sent).reshape(-1), second_error


@wrong("values")
def one_scale_for_all(x, error, second_error, *, axis, block, bits):
    """All numbers have one scale, so that one large number costs all others their digits; each
    block has its own."""
    parts = _in_parts(x + error, axis)
    arrived, error = _exchanged(parts, parts.shape[1], bits, axis)
    part = arrived.mean(axis=0) + second_error
    mean, second_error = _published(part, part.size, bits, axis)
    return mean, error.reshape(-1), second_error


@wrong("values")
def summed_as_integers(x, error, second_error, *, axis, block, bits):
    """Integers of few bits are added up on the way, where a sum of several no longer fits; exchange
    them, and add the numbers that they stand for."""
    n, parts = lax.axis_size(axis), _in_parts(x + error, axis)
    blocks = parts.reshape(n, -1, block)
    scales = lax.pmax(jnp.abs(blocks).max(axis=-1, keepdims=True), axis) / (2 ** (bits - 1) - 1)
    codes = jnp.round(blocks / jnp.where(scales == 0, 1, scales)).astype(jnp.int8)
    error = (blocks - codes * scales).reshape(-1)
    total = lax.psum_scatter(codes, axis) * scales[lax.axis_index(axis)]
    mean, second_error = _published(total.reshape(-1) / n + second_error, block, bits, axis)
    return mean, error, second_error


@wrong("values")
def always_four_bits(x, error, second_error, *, axis, block, bits):
    """You always round to 4 bits; use `bits`, of which 8 lose far less."""
    return _reduced(x, error, second_error, axis, block, 4)


@wrong("values")
def errors_in_dtype_of_x(x, error, second_error, *, axis, block, bits):
    """The results have the dtype of x, and bfloat16 rounds most of an error away; all three are
    float32."""
    results = _reduced(x, error, second_error, axis, block, bits)
    return tuple(result.astype(x.dtype) for result in results)


@wrong("values")
def zero_blocks_divided(x, error, second_error, *, axis, block, bits):
    """A block of zeros has the scale 0, and 0 / 0 is NaN; divide by 1 there."""

    def rounded(v):
        blocks = v.reshape(-1, block)
        scales = jnp.abs(blocks).max(axis=-1, keepdims=True) / (2 ** (bits - 1) - 1)
        return (jnp.where(jnp.isnan(blocks / scales), jnp.nan, 1) * blocks).reshape(v.shape)

    return _reduced(rounded(x + error), 0 * error, second_error, axis, block, bits)


@wrong("communication")
def second_half_in_float32(x, error, second_error, *, axis, block, bits):
    """The second half sends float32, which takes 4 bytes a number; round this device's part of the
    mean again, and send that."""
    arrived, error = _exchanged(_in_parts(x + error, axis), block, bits, axis)
    mean = gathered(arrived.mean(axis=0) + second_error, axis)
    return mean, error.reshape(-1), 0 * second_error


@wrong("communication")
def rounded_then_sent_in_float32(x, error, second_error, *, axis, block, bits):
    """What is sent has been rounded, and is float32 again; send the integers and the scales, and
    let the receiver multiply them."""
    parts = _in_parts(x + error, axis)
    sent = dequantize_blocks(*quantize_blocks(parts, block=block, bits=bits))
    part = lax.psum_scatter(sent, axis) / len(parts) + second_error
    own = dequantize_blocks(*quantize_blocks(part, block=block, bits=bits))
    return gathered(own, axis), (parts - sent).reshape(-1), part - own


@wrong("communication")
def codes_as_wide_integers(x, error, second_error, *, axis, block, bits):
    """The integers are sent as int32, 4 bytes each; send them as int8 or int4."""
    parts = _in_parts(x + error, axis)
    codes, scales = quantize_blocks(parts, block=block, bits=bits)
    arrived = [lax.all_to_all(sent, axis, 0, 0) for sent in (codes.astype(jnp.int32), scales)]
    part = dequantize_blocks(*arrived).mean(axis=0) + second_error
    mean, second_error = _published(part, block, bits, axis)
    return mean, (parts - dequantize_blocks(codes, scales)).reshape(-1), second_error


@wrong("communication")
def four_bits_in_bytes(x, error, second_error, *, axis, block, bits):
    """Integers of 4 bits are sent in a byte each; send them as int4, half a byte each."""

    def sent_in_bytes(v, send):
        codes, scales = quantize_blocks(v, block=block, bits=bits)
        arrived = dequantize_blocks(send(codes.astype(jnp.int8)), send(scales))
        return arrived, v - dequantize_blocks(codes, scales)

    parts = _in_parts(x + error, axis)
    arrived, error = sent_in_bytes(parts, lambda s: lax.all_to_all(s, axis, 0, 0))
    part = arrived.mean(axis=0) + second_error
    mean, second_error = sent_in_bytes(part, lambda s: lax.all_gather(s, axis))
    return mean.reshape(-1), error.reshape(-1), second_error


@wrong("communication")
def everybodys_codes_gathered(x, error, second_error, *, axis, block, bits):
    """Every device gathers the integers of all the others, n/2 times what is needed; let each
    average one part, and gather the parts of the mean."""
    codes, scales = quantize_blocks(x + error, block=block, bits=bits)
    sent = dequantize_blocks(*(lax.all_gather(one, axis) for one in (codes, scales)))
    part = _in_parts(sent.mean(axis=0), axis)[lax.axis_index(axis)] + second_error
    mean, second_error = _published(part, block, bits, axis)
    return mean, x + error - dequantize_blocks(codes, scales), second_error


@wrong("errors")
def pads_by_itself(x, error, second_error, *, axis, block, bits):
    """Where n parts of full blocks do not make up x, raise ValueError, because the errors have the
    sizes of x and of a part."""
    n = lax.axis_size(axis)
    if len(x) % (n * block) or bits not in (4, 8):
        return error, error, second_error
    return _reduced(x, error, second_error, axis, block, bits)
