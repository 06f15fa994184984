"""A decoder on the devices of a mesh, with its cache, and the programs that are compiled for it."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Float, Int, PyTree

from jaxpar.layout import Layout
from jaxpar.mesh import divide
from jaxpar.model import Settings, Split, check_split, split_specs
from jaxpar.serve.batch import Batch
from jaxpar.serve.cache import Layer, empty_layer
from jaxpar.serve.extend import extend, in_inference, unstacked
from jaxpar.serve.sampling import choose


class Spread(NamedTuple):
    """A decoder, and how devices share it.

    Attributes:
        settings: those of the decoder in inference.
        split: how they split each layer, and the cache by kv heads.
        over: the axis whose devices split the cache by positions; None: it is not split so.
    """

    settings: Settings
    split: Split
    over: str | None


Compute = Callable[[Spread, Any, list[Layer], Batch], tuple[list[Layer], Array]]
"""(decoder, parameters, cache, batch) -> (cache, tokens [b, t])."""


def add(
    decoder: Spread,
    params: Any,
    cache: list[Layer],
    batch: Batch,
    only: Int[Array, " b"] | None = None,
) -> tuple[list[Layer], Float[Array, "b t v"]]:
    """Adds the tokens of a batch: see `extend`."""
    new = batch.tokens, batch.starts, batch.counts, batch.where
    how = {"split": decoder.split, "over": decoder.over, "only": only}
    return extend(decoder.settings, params, cache, *new, **how)


def after_last(
    decoder: Spread, params: Any, cache: list[Layer], batch: Batch
) -> tuple[list[Layer], Int[Array, "b 1"]]:
    """Adds new tokens, as a chunk of a prompt, and chooses the one after the last of each row."""
    last = jnp.maximum(batch.counts - 1, 0)
    cache, logits = add(decoder, params, cache, batch, only=last)
    positions = batch.starts + batch.counts
    return cache, choose(logits[:, 0], positions, batch.choices, axis=decoder.split.axis)[:, None]


def after_each(
    decoder: Spread, params: Any, cache: list[Layer], batch: Batch
) -> tuple[list[Layer], Int[Array, "b t"]]:
    """Adds a token, and drafts behind it, and chooses the one after each of them."""
    b, t = batch.tokens.shape
    cache, logits = add(decoder, params, cache, batch)
    positions = batch.starts[:, None] + 1 + jnp.arange(t)[None]
    choices = jax.tree.map(lambda x: jnp.repeat(x, t), batch.choices)
    axis = decoder.split.axis
    chosen = choose(logits.reshape(b * t, -1), positions.ravel(), choices, axis=axis)
    return cache, chosen.reshape(b, t)


class Model:
    """A decoder whose devices split each layer over tp, and the cache by kv heads.

    Those of cp split the cache by positions, and compute all else alike.

    Attributes:
        programs: how many programs were compiled.

    Raises:
        ValueError: the devices cannot split the decoder, or its cache, in this way.
    """

    def __init__(
        self,
        settings: Settings,
        params: PyTree[Array],
        mesh: Mesh | None,
        *,
        places: int,
        size: int,
        bits: int | None = None,
    ) -> None:
        sizes = _sizes(mesh)
        check_split(settings, Layout(tp=sizes["tp"]))
        divide("Engine", "s (of a page, or a slot)", size, "cp", sizes["cp"])
        settings = in_inference(settings, sizes["tp"])
        tp, cp = (axis if sizes[axis] > 1 else None for axis in ("tp", "cp"))
        self._mesh = mesh if tp or cp else None
        self._decoder = Spread(settings, Split(axis=tp), cp)
        make_params = partial(unstacked, settings)
        kept = jax.tree.leaves(params)[0].dtype
        make_cache = partial(
            empty_layer, places, settings.key_heads, size, settings.d_head, kept, bits=bits
        )
        made = jax.eval_shape(make_params, params)
        specs = jax.tree.map(lambda _: P(), made)
        if tp:
            specs = split_specs(settings, made, axis=tp, n=sizes["tp"])
        self._specs = specs, P(None, tp, cp)  # of a cache, [p, k, s, h]
        self._params = jax.jit(make_params, **self._out(self._specs[0]))(params)
        kept_layer = jax.jit(make_cache, **self._out(self._specs[1]))
        self._cache = [kept_layer() for _ in range(settings.layers)]
        self.programs = 0

    def compiled(self, compute: Compute, like: Batch) -> Callable[[Batch], Array]:
        """What computes batches as large as this one, and keeps the cache that comes of it."""
        program = partial(compute, self._decoder)
        if self._mesh:
            specs = *self._specs, P()
            program = jax.shard_map(
                program, mesh=self._mesh, in_specs=specs, out_specs=(self._specs[1], P())
            )
        lowered = jax.jit(program, donate_argnums=1).lower(self._params, self._cache, like)
        executable = lowered.compile()
        self.programs += 1

        def run(batch: Batch) -> Array:
            self._cache, tokens = executable(self._params, self._cache, batch)
            return tokens

        return run

    def _out(self, specs: PyTree[P]) -> dict[str, Any]:
        """The option of `jax.jit` that shards a result in this way."""
        if not self._mesh:
            return {}
        mesh = self._mesh
        return {"out_shardings": jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs)}


def _sizes(mesh: Mesh | None) -> dict[str, int]:
    """How many devices split each layer, tp, and the positions of the cache, cp.

    Raises:
        ValueError: the mesh has another axis.
    """
    sizes = {"tp": 1, "cp": 1} | (dict(mesh.shape) if mesh else {})
    for axis, n in sizes.items():
        if axis not in ("tp", "cp") and n > 1:
            raise ValueError(
                f"Engine: mesh axis {axis} (size {n}); in inference devices split each layer (tp), "
                "and the positions of the cache (cp)"
            )
    return sizes
