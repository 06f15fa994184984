"""Contract of lesson 10: shardings from which the compiler makes FSDP."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jaxpar.contracts import shardings_mistakes as mistakes
from jaxpar.contracts.base import Contract, MemoryLimit
from jaxpar.contracts.case import Array, Case, fill
from jaxpar.mesh import make_mesh
from jaxpar.parallel import fsdp

_BATCH, _SEQUENCE = 4, 8  # examples on a device, tokens in one


def _training_step(case: Case, specs: list[P]) -> jax.stages.Lowered:
    """A step of AdamW written for one device, for the compiler to split by these specs."""
    mesh = make_mesh(case.mesh)
    batch = NamedSharding(mesh, P(mesh.axis_names))
    optimizer = optax.adamw(1e-3)

    def step(params: Any, state: Any, tokens: jax.Array) -> tuple[Any, Any]:
        gradients = jax.grad(_loss)(params, tokens, batch)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for _, leaf in case.arrays()]
    params = fill(case.args["params"], iter(shapes))
    state = jax.eval_shape(optimizer.init, params)
    lie = fill(case.args["params"], iter([NamedSharding(mesh, spec) for spec in specs]))
    whole = NamedSharding(mesh, P())
    state_lies = optax.tree_map_params(
        optimizer, lambda _, own: own, state, lie, transform_non_params=lambda _: whole
    )
    jitted = jax.jit(step, in_shardings=(lie, state_lies, batch), out_shardings=(lie, state_lies))
    tokens = jax.ShapeDtypeStruct((mesh.size * _BATCH, _SEQUENCE + 1), jnp.int32)
    return jitted.lower(params, state, tokens)


def _loss(params: dict[str, Any], tokens: jax.Array, batch: NamedSharding) -> jax.Array:
    """Predicts the last token of each row from the mean of those before it."""

    def split(x: jax.Array) -> jax.Array:
        return lax.with_sharding_constraint(x, batch)  # else the compiler may split dim d

    def layer(x: jax.Array, params: dict[str, jax.Array]) -> tuple[jax.Array, None]:
        hidden = split(jnp.tanh((x * params["scale"][None]) @ params["up"]))
        return split(x + hidden @ params["down"]), None

    x = split(params["embedding"][tokens[:, :-1]].mean(axis=1))
    x, _ = lax.scan(jax.checkpoint(layer, prevent_cse=False), x, params["layers"])
    head = params["head"] if "head" in params else params["embedding"].T
    logits = split((x * params["norm"][None]) @ head)
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, -1]).mean()


def _model(vocabulary: int, d: int, f: int, layers: int, *, tied: bool) -> dict[str, Any]:
    model = {
        "embedding": Array((vocabulary, d), "v d"),
        "layers": {
            "scale": Array((layers, d), "l d"),
            "up": Array((layers, d, f), "l d f"),
            "down": Array((layers, f, d), "l f d"),
        },
        "norm": Array((d,), "d"),
    }
    return model if tied else model | {"head": Array((d, vocabulary), "d v")}


FSDP_SHARDINGS = Contract(
    id="fsdp_shardings",
    kind="specs",
    task="return a partition spec for each leaf: large ones shared over `axis`, small ones whole",
    reference=fsdp.fsdp_shardings,
    oracle=fsdp.fsdp_shardings,
    partitioned=_training_step,
    cases=(
        Case(
            "fsdp=4",
            {"params": _model(130, 64, 96, 8, tied=False)},
            {"axis": "fsdp", "minimum_size": 64 * 130},
        ),
        Case(
            "pp=2,dp=3",
            {"params": _model(96, 45, 57, 6, tied=True)},
            {"axis": "dp", "minimum_size": 4 * 45},
        ),
    ),
    hidden=(
        Case(
            "tp=2,fsdp=2",
            {"params": _model(110, 50, 84, 5, tied=False)},
            {"axis": "fsdp", "minimum_size": 5 * 51},
        ),
    ),
    memory=MemoryLimit(
        "parameters and AdamW's state take 1/n of their bytes, small leaves apart; intermediate "
        "results at most 1.5 times the library's"
    ),
    sharding=True,
    mistakes=mistakes.FSDP_SHARDINGS,
    hints=(
        "A spec has an entry for each dim: None, or the axis that splits it. P() is a whole leaf, "
        "P(None, 'fsdp') one whose second dim is split over fsdp.",
        "mesh.shape[axis] is n. Take any dim that n divides; under params['layers'] not the first: "
        "the compiler would gather all layers, in every turn of the loop.",
        "jax.tree.map over params['layers'] and over the rest, with the number of dims to pass "
        "over as the difference; leaf.size tells the elements.",
    ),
    minimal="Every element of a large leaf is on one device of `axis`. Small leaves would save "
    "bytes, too, but each would cost two collectives more, and a message has its latency.",
    harder="Split small leaves over no axis, and the embedding over two.",
)

CONTRACTS = (FSDP_SHARDINGS,)
