"""How much the loss of a small decoder rises when its matrices take fewer bits, or are pruned.

One decoder is trained on the sources of Python's library. Then the matrices of its layers are made
smaller in one way after another, and the loss on held-out text is taken; the embedding, the head
and the norms stay as they are. `--write` records the losses, which lesson 22 shows.
"""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks import Row
from jaxpar.cost.quantized import quantized_bits
from jaxpar.course.smaller_losses import FILE, Smaller, to_toml
from jaxpar.mesh import make_mesh, simulate_devices
from jaxpar.microscaling import BLOCK, mx_dequantize, mx_quantize
from jaxpar.model import Settings, init, loss_fn
from jaxpar.post_training import round_columns
from jaxpar.prune import prune_2_4, prune_smallest
from jaxpar.quantize import nf4_dequantize, nf4_quantize
from jaxpar.train.text import batches, read_library

SETTINGS = Settings(layers=2, d_model=128, heads=4, sequence=64)
BATCH, STEPS, CALL, SEED = 32, 900, 50, 0
HELD_OUT = 16  # batches
GROUP, NF4_BLOCK = 32, 64
FULL_BITS = 16  # of a number as models are kept

Bits = Callable[[int, int], float]
"""The bits of a number, by the rows and the columns of its matrix."""


class Way(NamedTuple):
    """A way to make a matrix smaller.

    Attributes:
        name: what it is.
        change: the matrix that is computed with, from one [d, f].
        bits: what a number takes.
    """

    name: str
    change: Callable[[Array], Array]
    bits: Bits


def ways() -> Iterator[Way]:
    """All that are tried, the matrices as they are first."""
    yield Way("as trained", lambda w: w, lambda d, f: 32)
    for bits in (8, 4, 3):
        name = f"int{bits}"
        yield Way(f"{name}, per tensor", partial(_one_scale, bits=bits), _of(bits, _all))
        yield Way(f"{name}, per column", partial(_rounded, bits=bits), _of(bits, _column))
        in_groups = partial(_in_groups, bits=bits)
        yield Way(f"{name}, groups of {GROUP}", in_groups, _of(bits, lambda d, f: GROUP))
    yield Way(f"NF4, blocks of {NF4_BLOCK}", _nf4, _of(4, lambda d, f: NF4_BLOCK))
    yield Way("fp8 e4m3", partial(_cast, dtype=jnp.float8_e4m3fn), lambda d, f: 8)
    yield Way("fp8 e5m2", partial(_cast, dtype=jnp.float8_e5m2), lambda d, f: 8)
    for name, bits, dtype in (("MXFP8", 8, jnp.float8_e4m3fn), ("MXFP4", 4, jnp.float4_e2m1fn)):
        yield Way(name, partial(_mx, dtype=dtype), _of(bits, lambda d, f: BLOCK, scale_bits=8))
    for percent in (30, 50, 70):
        pruned = partial(prune_smallest, fraction=percent / 100)
        # A bit of each number tells whether it is kept.
        yield Way(
            f"{percent}% pruned", pruned, lambda d, f, p=percent: FULL_BITS * (1 - p / 100) + 1
        )
    # Two of four numbers, each with its place of two bits.
    yield Way("2:4 pruned", prune_2_4, lambda d, f: (FULL_BITS + 2) / 2)


def _rounded(w: Array, *, bits: int) -> Array:
    codes, scales = round_columns(w, bits=bits)
    return codes.astype(w.dtype) * scales[None]


def _one_scale(w: Array, *, bits: int) -> Array:
    return _rounded(w.reshape(-1, 1), bits=bits).reshape(w.shape)


def _in_groups(w: Array, *, bits: int) -> Array:
    groups = w.reshape(-1, GROUP, w.shape[1])
    return jax.vmap(partial(_rounded, bits=bits))(groups).reshape(w.shape)


def _nf4(w: Array) -> Array:
    flat = w.reshape(-1)
    return nf4_dequantize(*nf4_quantize(flat, block=NF4_BLOCK)).reshape(w.shape)


def _cast(w: Array, *, dtype: Any) -> Array:
    return w.astype(dtype).astype(w.dtype)


def _mx(w: Array, *, dtype: Any) -> Array:
    """Blocks along dim d, which the product sums over."""
    return mx_dequantize(*mx_quantize(w.T, dtype=dtype), dtype=w.dtype).T


def _all(d: int, f: int) -> int:
    return d * f


def _column(d: int, f: int) -> int:
    return d


def _of(bits: int, group: Callable[[int, int], int], scale_bits: int = 32) -> Bits:
    return lambda d, f: quantized_bits(bits, group=group(d, f), scale_bits=scale_bits)


class Trial:
    """A decoder that has been trained, and the text that is held out of its training."""

    def __init__(self, settings: Settings = SETTINGS, steps: int = STEPS) -> None:
        self.loss = jax.jit(loss_fn(settings))
        text = read_library()
        last = len(text) // 10
        whole = NamedSharding(make_mesh({"dp": 1}), P())
        read = partial(batches, batch=BATCH, sequence=settings.sequence, seed=SEED)
        held_out = read(text[-last:], whole)
        self.held_out = [next(held_out) for _ in range(HELD_OUT)]
        self.params = _trained(settings, read(text[:-last], whole), steps)

    def loss_of(self, way: Way) -> Smaller:
        """The loss of the decoder made smaller in a way, and the bits of a number."""
        leaves, structure = jax.tree.flatten(self.params["layers"])
        change = jax.jit(lambda matrices: lax.map(way.change, matrices))
        smaller = [change(leaf) if leaf.ndim == 3 else leaf for leaf in leaves]  # norms: [l, d]
        sizes = [leaf.shape for leaf in leaves if leaf.ndim == 3]
        params = {**self.params, "layers": structure.unflatten(smaller)}
        loss = np.mean([self.loss(params, tokens) for tokens in self.held_out])
        bits = sum(layers * d * f * way.bits(d, f) for layers, d, f in sizes)
        bits /= sum(math.prod(size) for size in sizes)
        return Smaller(way.name, bits, float(loss))


def _trained(settings: Settings, text: Iterator[Array], steps: int) -> Any:
    loss, optimizer = loss_fn(settings), optax.adamw(2e-3, b2=0.99)

    def step(carry: Any, tokens: Array) -> tuple[Any, None]:
        params, state = carry
        updates, state = optimizer.update(jax.grad(loss)(params, tokens), state, params)
        return (optax.apply_updates(params, updates), state), None

    some_steps = jax.jit(lambda carry, tokens: lax.scan(step, carry, tokens)[0])
    params = init(settings, jax.random.key(SEED))
    carry = params, optimizer.init(params)
    for _ in range(steps // CALL):
        carry = some_steps(carry, jnp.stack([next(text) for _ in range(CALL)]))
    return carry[0]


def measured() -> Iterator[Smaller]:
    """What every way loses."""
    trial = Trial()
    for way in ways():
        yield trial.loss_of(way)


def rows() -> list[Row]:
    """The rise of the loss by each way."""
    simulate_devices(1)
    return described(list(measured()))


def described(found: Sequence[Smaller]) -> list[Row]:
    """A row for each way, beside the decoder as it was trained, which is the first."""
    trained, *others = found
    whole = Row("as trained: loss, bits of a number", "reported", f"{trained.loss:.4f}, 32")
    return [whole] + [
        Row(
            f"{one.way}: rise of the loss, bits of a number",
            "reported",
            f"{one.loss - trained.loss:.4f}, {one.bits:.2f}",
        )
        for one in others
    ]


if __name__ == "__main__":
    simulate_devices(1)
    taken = []
    for one in measured():
        taken.append(one)
        print(one.way, f"{one.bits:.2f}", f"{one.loss:.4f}", sep=" | ", flush=True)
    if "--write" in sys.argv:
        FILE.write_text(to_toml(taken), "utf-8")
