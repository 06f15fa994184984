"""Losses that answers are given, means over the examples of a batch; and arguments for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
from jax import Array

from jaxpar.contracts.case import ArraySpec, Function

SQUARED_ERROR = Function("jaxpar.contracts.losses:squared_error")
LAYERED_ERROR = Function("jaxpar.contracts.losses:layered_error")


def squared_error(params: dict[str, Array], batch: dict[str, Array]) -> Array:
    """The error of a network with one hidden layer and one output: inputs [b, d], targets [b]."""
    hidden = jnp.tanh(batch["inputs"] @ params["w_in"] + params["bias"][None])
    return jnp.mean((hidden @ params["w_out"] - batch["targets"]) ** 2)


def layered_error(params: list[dict[str, Array]], batch: tuple[Array, Array]) -> Array:
    """The error of a network given as a list of layers: inputs [b, d], targets [b, f]."""
    x, targets = batch
    for layer in params[:-1]:
        x = jnp.tanh(x @ layer["w"]) * layer["scale"][None]
    return jnp.mean((x @ params[-1]["w"] - targets) ** 2)


def network(inputs: int, hidden: int) -> dict[str, ArraySpec]:
    """The parameters of `squared_error`."""
    return {
        "w_in": ArraySpec((inputs, hidden), "d f"),
        "bias": ArraySpec((hidden,), "f"),
        "w_out": ArraySpec((hidden,), "f"),
    }


def network_batch(layout: str, examples: tuple[int, ...], inputs: int) -> dict[str, ArraySpec]:
    """A batch for `squared_error`, or microbatches: the layout and the dims of its examples."""
    return {
        "inputs": ArraySpec((*examples, inputs), f"{layout} d"),
        "targets": ArraySpec(examples, layout),
    }


def layers(inputs: int, hidden: int, outputs: int) -> list[dict[str, ArraySpec]]:
    """The parameters of `layered_error`, with two layers."""
    return [
        {"w": ArraySpec((inputs, hidden), "d f"), "scale": ArraySpec((hidden,), "f")},
        {"w": ArraySpec((hidden, outputs), "f d")},
    ]


def layers_batch(
    layout: str, examples: tuple[int, ...], inputs: int, outputs: int
) -> tuple[ArraySpec, ArraySpec]:
    """A batch for `layered_error`, or microbatches: the layout and the dims of its examples."""
    return (
        ArraySpec((*examples, inputs), f"{layout} d"),
        ArraySpec((*examples, outputs), f"{layout} f"),
    )


def squared_error_args(
    inputs: int, hidden: int, **batch: tuple[str, tuple[int, ...]]
) -> dict[str, Any]:
    """The arguments `loss_fn`, `params` and a third one: a batch, or microbatches.

    Args:
        inputs: the width of an example.
        hidden: that of the hidden layer.
        batch: by the third argument's name, the layout and the dims of its examples.
    """
    ((name, examples),) = batch.items()
    params = network(inputs, hidden)
    return {"loss_fn": SQUARED_ERROR, "params": params, name: network_batch(*examples, inputs)}


def layered_error_args(
    inputs: int, hidden: int, outputs: int, **batch: tuple[str, tuple[int, ...]]
) -> dict[str, Any]:
    """The same for `layered_error`, where a target has `outputs` elements."""
    ((name, examples),) = batch.items()
    params = layers(inputs, hidden, outputs)
    third = layers_batch(*examples, inputs, outputs)
    return {"loss_fn": LAYERED_ERROR, "params": params, name: third}


def on_each_device(tree: Any, n: int, axes: str, **how: Any) -> Any:
    """A pytree for each of n devices: dim 0 of each leaf is n times as large, and split over axes.

    Args:
        tree: what each device has, in dicts and lists.
        n: number of devices on these axes together.
        axes: the axes as in a layout, `dp` or `fsdp_tp`.
        how: other fields of each leaf, `draw` for example.
    """
    if isinstance(tree, dict):  # by hand: jax.tree.map would sort the keys
        return {key: on_each_device(leaf, n, axes, **how) for key, leaf in tree.items()}
    if isinstance(tree, list):
        return [on_each_device(leaf, n, axes, **how) for leaf in tree]
    dim, *others = tree.layout.split()
    shape = (n * tree.shape[0], *tree.shape[1:])
    return replace(tree, shape=shape, layout=" ".join([f"{dim}_{axes}", *others]), **how)
