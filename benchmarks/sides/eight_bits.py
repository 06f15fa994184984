"""Numbers in few bits in one process: `python -m benchmarks.sides.eight_bits SIDE WHAT [error]`.

SIDE is ours or theirs, which is bitsandbytes; WHAT is one of `WHATS`. What stands for a loss is one
of the results. With `error`, the relative error of numbers that are rounded and read again.
"""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
import optax

from benchmarks.sides.race import serve
from jaxpar import quantize
from jaxpar.train.optimizer import Optimization, make_optimizer

WHATS = ("quantize", "dequantize", "nf4", "nf4_back", "adam")
NUMBERS, BLOCK, NF4_BLOCK = 1 << 20, 256, 64
PARAMETERS = (3, 1024, 1024)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def our_way(nf4: bool) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """What rounds numbers, and what reads them again."""
    if nf4:
        return partial(quantize.nf4_quantize, block=NF4_BLOCK), quantize.nf4_dequantize
    book = quantize.dynamic_codebook(signed=True)
    return (
        partial(quantize.encode_blocks, codebook=book, block=BLOCK),
        partial(quantize.decode_blocks, codebook=book),
    )


def ours(what: str) -> Callable[[], float]:
    """A step of ours."""
    if what == "adam":
        return _our_adam()
    rounds, reads = map(jax.jit, our_way(what.startswith("nf4")))
    x = jax.numpy.asarray(numbers(NUMBERS))
    codes, largest = rounds(x)
    if what in ("quantize", "nf4"):
        return lambda: float(np.asarray(rounds(x)[1])[0])
    return lambda: float(np.asarray(reads(codes, largest))[0])


def _our_adam() -> Callable[[], float]:
    optimizer = make_optimizer(Optimization("adam8bit"))

    @partial(jax.jit, donate_argnums=(0, 1))
    def update(params: Any, state: Any, gradients: Any) -> Any:
        moves, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, moves), state

    params = {"w": jax.numpy.zeros(PARAMETERS)}
    gradients = {"w": jax.numpy.asarray(numbers(*PARAMETERS))}
    taken = [params, optimizer.init(params)]

    def step() -> float:
        taken[:] = update(*taken, gradients)
        return float(np.asarray(taken[0]["w"])[0, 0, 0])

    return step


def their_way(nf4: bool) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The same of bitsandbytes."""
    from bitsandbytes import functional  # pyright: ignore[reportMissingImports]

    if nf4:
        rounds = partial(functional.quantize_4bit, blocksize=NF4_BLOCK, quant_type="nf4")
        return rounds, functional.dequantize_4bit
    return partial(functional.quantize_blockwise, blocksize=BLOCK), functional.dequantize_blockwise


def theirs(what: str) -> Callable[[], float]:
    """A step of theirs."""
    import torch  # pyright: ignore[reportMissingImports]

    if what == "adam":
        return _their_adam()
    rounds, reads = their_way(what.startswith("nf4"))
    x = torch.from_numpy(numbers(NUMBERS))
    codes, state = rounds(x)
    if what in ("quantize", "nf4"):
        return lambda: rounds(x)[1].absmax[0].item()
    return lambda: reads(codes, state).flatten()[0].item()


def _their_adam() -> Callable[[], float]:
    import torch  # pyright: ignore[reportMissingImports]
    from bitsandbytes.optim import AdamW8bit  # pyright: ignore[reportMissingImports]

    w = torch.nn.Parameter(torch.zeros(PARAMETERS))
    w.grad = torch.from_numpy(numbers(*PARAMETERS))
    optimizer = AdamW8bit([w])

    def step() -> float:
        optimizer.step()
        return w[0, 0, 0].item()

    return step


def error(side: str, nf4: bool) -> float:
    """The mean error over the mean magnitude."""
    x = numbers(NUMBERS)
    if side == "ours":
        rounds, reads = our_way(nf4)
        again = np.asarray(reads(*rounds(jax.numpy.asarray(x))))
    else:
        import torch  # pyright: ignore[reportMissingImports]

        rounds, reads = their_way(nf4)
        again = reads(*rounds(torch.from_numpy(x))).flatten().numpy()
    return float(np.abs(again - x).mean() / np.abs(x).mean())


if __name__ == "__main__":
    side, what, *more = sys.argv[1:]
    if more:
        print("error", error(side, what.startswith("nf4")))
    else:
        serve({"ours": ours, "theirs": theirs}[side](what))
