"""The same decoding in eager PyTorch, into keys and values that stay where they are."""

import sys

import torch  # pyright: ignore[reportMissingImports]
from torch import Tensor  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

from benchmarks.sides.our_decode import CONTEXT, PROMPT, SETTINGS, TOKENS, prompts
from benchmarks.sides.race import serve
from benchmarks.sides.torch_step import Decoder
from jaxpar.model import Settings


class Cache:
    """The keys and values [b, a, s, h] of a layer, of which the first `length` are there."""

    def __init__(self, b: int, settings: Settings) -> None:
        shape = (b, settings.heads, CONTEXT, settings.d_head)
        self.keys, self.values = torch.zeros(2, *shape)
        self.length = 0

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Adds keys and values, and attends to all that are there."""
        start, self.length = self.length, self.length + q.shape[2]
        self.keys[:, :, start : self.length] = k
        self.values[:, :, start : self.length] = v
        k, v = (x[:, :, : self.length] for x in (self.keys, self.values))
        return functional.scaled_dot_product_attention(q, k, v, is_causal=q.shape[2] > 1)


def decode(b: int, settings: Settings = SETTINGS) -> None:
    """Each step generates some tokens of every request; what it tells for a loss is their sum."""
    model = Decoder(range(CONTEXT), settings=settings)
    caches = [Cache(b, settings) for _ in model.layers]
    for layer, cache in zip(model.layers, caches, strict=True):
        layer.attend = cache.attend

    def extend(tokens: Tensor) -> Tensor:
        """The tokens after these, [b, 1]."""
        start = caches[0].length
        places = slice(start, start + tokens.shape[1])
        x = model.embedding(tokens)
        for layer in model.layers:
            x = layer(x, model.cos[places], model.sin[places])
        return model.head(model.norm(x[:, -1:])).argmax(dim=-1)

    with torch.inference_mode():
        newest = extend(torch.tensor(prompts(b, PROMPT)))

        def step() -> float:
            nonlocal newest
            total = 0
            for _ in range(TOKENS):
                newest = extend(newest)
                total += int(newest.sum())  # which a server must read to send it
            return float(total)

        serve(step)


if __name__ == "__main__":
    decode(int(sys.argv[1]))
