"""One GPU: steps of training, of decoding and of attention, in a way that the command line names.

The decoder has the sizes of GPT-2's smallest, with our parts, and is computed in 16 bits.
"""

import sys
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from benchmarks.sides import our_decode
from benchmarks.sides.our_step import random_tokens, take_steps
from benchmarks.sides.race import serve
from jaxpar.flash import flash_attention, usual_tile
from jaxpar.kernels import fused_attention
from jaxpar.model import Settings
from jaxpar.train.recipe import make_recipe

SETTINGS = Settings(vocabulary=50304, layers=12, d_model=768, heads=12, sequence=1024)
BATCH = 16
# Attention: examples, heads, the numbers of a head, and passes in a step.
EXAMPLES, HEADS, SIZE, PASSES = 4, 16, 128, 10
NUDGE = 1e-3  # times its gradient is added to an array before the next pass
WAYS: dict[str, Callable[..., Array]] = {
    "fused": fused_attention,
    "tiles": lambda q, k, v: flash_attention(q, k, v, tile=usual_tile(q.shape[2])),
}


def train(remat: str) -> None:
    take_steps(make_recipe("dp=1", batch=BATCH, precision="bf16", remat=remat), SETTINGS)


def train_by_torch(how: str) -> None:
    import torch  # pyright: ignore[reportMissingImports]

    from benchmarks.sides.torch_step import Decoder, adamw, tensor

    torch.set_default_device("cuda")
    decoder = Decoder(settings=SETTINGS)
    optimizer = adamw(decoder)
    model = torch.compile(decoder) if how == "compiled" else decoder
    tokens = tensor(random_tokens(BATCH, SETTINGS.sequence, SETTINGS.vocabulary)).long().cuda()

    def step() -> float:
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        optimizer.step()
        return loss.item()

    serve(step)


def decode(b: str) -> None:
    length, context = our_decode.PROMPT, our_decode.CONTEXT
    our_decode.decode(int(b), None, length, context, SETTINGS, "bfloat16")


def decode_by_torch(b: str) -> None:
    import torch  # pyright: ignore[reportMissingImports]

    from benchmarks.sides import torch_decode

    torch.set_default_device("cuda")
    torch.set_default_dtype(torch.bfloat16)
    torch.backends.cuda.enable_cudnn_sdp(False)  # it plans anew for every number of keys
    torch_decode.decode(int(b), SETTINGS)


def attend(way: str, t: str) -> None:
    """Both passes, again and again, each on the result of the one before."""
    keys = jax.random.split(jax.random.key(0), 3)
    shape = (EXAMPLES, HEADS, int(t), SIZE)
    q, k, v = (jax.random.normal(key, shape, jnp.bfloat16) for key in keys)

    @jax.jit
    def passes(q: Array, k: Array, v: Array) -> Array:
        for _ in range(PASSES):
            y, pull = jax.vjp(WAYS[way], q, k, v)
            q, k, v = (x + NUDGE * dx for x, dx in zip((q, k, v), pull(y), strict=True))
        return q.astype(jnp.float32).sum()

    serve(lambda: float(passes(q, k, v)))


def attend_by_torch(t: str) -> None:
    import torch  # pyright: ignore[reportMissingImports]
    from torch.nn import functional  # pyright: ignore[reportMissingImports]

    shape = (EXAMPLES, HEADS, int(t), SIZE)
    first = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3)]

    def step() -> float:
        qkv = first
        for _ in range(PASSES):
            qkv = [x.detach().requires_grad_() for x in qkv]
            y = functional.scaled_dot_product_attention(*qkv, is_causal=True)
            gradients = torch.autograd.grad(y, qkv, y.detach())
            qkv = [x + NUDGE * dx for x, dx in zip(qkv, gradients, strict=True)]
        return qkv[0].float().sum().item()

    serve(step)


SIDES: dict[str, Callable[..., None]] = {
    "train": train,
    "torch_train": train_by_torch,
    "decode": decode,
    "torch_decode": decode_by_torch,
    **{way: partial(attend, way) for way in WAYS},
    "torch_attend": attend_by_torch,
}

if __name__ == "__main__":
    side, *arguments = sys.argv[1:]
    SIDES[side](*arguments)
