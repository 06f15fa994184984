"""A decoder on the devices of a mesh, with its cache, and the programs that are compiled for it."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Int, PyTree

from jaxpar.layout import Layout
from jaxpar.model import Settings, Split, check_split, split_specs
from jaxpar.serve.batch import Batch
from jaxpar.serve.cache import Layer, empty_layer
from jaxpar.serve.extend import extend, in_inference, unstacked
from jaxpar.serve.sampling import choose

HEADS = P(None, "tp")  # of a cache, [p, k, s, h]


Compute = Callable[[Settings, Split, Any, list[Layer], Batch], tuple[list[Layer], Array]]
"""(settings, split, parameters, cache, batch) -> (cache, tokens [b, t])."""


def after_last(
    settings: Settings, split: Split, params: Any, cache: list[Layer], batch: Batch
) -> tuple[list[Layer], Int[Array, "b 1"]]:
    """Adds new tokens, as a chunk of a prompt, and chooses the one after the last of each row."""
    cache, logits = extend(
        settings, params, cache, batch.tokens, batch.starts, batch.counts, batch.where,
        split=split, only=jnp.maximum(batch.counts - 1, 0),
    )  # fmt: skip
    positions = batch.starts + batch.counts
    return cache, choose(logits[:, 0], positions, batch.choices, axis=split.axis)[:, None]


def after_each(
    settings: Settings, split: Split, params: Any, cache: list[Layer], batch: Batch
) -> tuple[list[Layer], Int[Array, "b t"]]:
    """Adds a token, and drafts behind it, and chooses the one after each of them."""
    (b, t), rest = batch.tokens.shape, (batch.starts, batch.counts, batch.where)
    cache, logits = extend(settings, params, cache, batch.tokens, *rest, split=split)
    positions = batch.starts[:, None] + 1 + jnp.arange(t)[None]
    choices = jax.tree.map(lambda x: jnp.repeat(x, t), batch.choices)
    chosen = choose(logits.reshape(b * t, -1), positions.ravel(), choices, axis=split.axis)
    return cache, chosen.reshape(b, t)


class Model:
    """A decoder whose devices split each layer over tp, and its cache by kv heads.

    Attributes:
        settings: those of the decoder in inference.
        programs: how many programs were compiled.

    Raises:
        ValueError: the devices cannot split the decoder in this way.
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
        n = _devices(mesh)
        if n > 1:
            check_split(settings, Layout(tp=n))
        self.settings = settings = in_inference(settings, n)
        self._mesh, self._split = (mesh, Split(axis="tp")) if n > 1 else (None, Split())
        make_params = partial(unstacked, settings)
        kept = jax.tree.leaves(params)[0].dtype
        make_cache = partial(
            empty_layer, places, settings.key_heads, size, settings.d_head, kept, bits=bits
        )
        self._specs = self._param_specs(make_params, params, n), HEADS
        self._params = jax.jit(make_params, **self._out(self._specs[0]))(params)
        self._cache = [jax.jit(make_cache, **self._out(HEADS))() for _ in range(settings.layers)]
        self.programs = 0

    def compiled(self, compute: Compute, like: Batch) -> Callable[[Batch], Array]:
        """What computes batches as large as this one, and keeps the cache that comes of it."""
        program = partial(compute, self.settings, self._split)
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

    def _param_specs(self, make: Callable, params: PyTree[Array], n: int) -> PyTree[P]:
        made = jax.eval_shape(make, params)
        if not self._mesh:
            return jax.tree.map(lambda _: P(), made)
        return split_specs(self.settings, made, axis="tp", n=n)

    def _out(self, specs: PyTree[P]) -> dict[str, Any]:
        """The option of `jax.jit` that shards a result in this way."""
        if not self._mesh:
            return {}
        mesh = self._mesh
        return {"out_shardings": jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs)}


def _devices(mesh: Mesh | None) -> int:
    """The devices that split each layer.

    Raises:
        ValueError: the mesh has another axis.
    """
    sizes = dict(mesh.shape) if mesh else {}
    if others := {axis: n for axis, n in sizes.items() if axis != "tp" and n > 1}:
        axis, n = next(iter(others.items()))
        raise ValueError(
            f"Engine: mesh axis {axis} (size {n}); in inference devices split each layer; use tp"
        )
    return int(np.prod([n for axis, n in sizes.items() if axis == "tp"]))
