"""The optimizer of a run: which leaves decay, and the learning rate of each step."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import PyTree

from jaxpar.collectives.leaves import STACKED, LeafLayouts
from jaxpar.cost.eight_bits import block_of
from jaxpar.long_run.learning_rates import cosine_schedule, wsd_schedule
from jaxpar.mesh import entry_axes
from jaxpar.model import is_dropped, is_load
from jaxpar.parallel.adam8bit import scale_by_adam8bit

# Without moments, a wrong scale of the gradients shows in the loss; with Adam's, it does not.
RATES = {"adamw": 1e-3, "adam8bit": 1e-3, "sgd": 0.1}
ADAMS = ("adamw", "adam8bit")  # which decay weights, and by whose rates muP goes
WEIGHT_DECAY = 0.01  # as PyTorch's AdamW has it
DECAYS = ("none", "cosine", "wsd")
FINAL = 0.1  # the last rate over the peak: Hoffmann et al. 2022 (Chinchilla), section 3.1
DECAYING = 0.1  # the part of a run in which wsd decays: Hu et al. 2024 (MiniCPM), section 4.3


@dataclass(frozen=True)
class Optimization:
    """What updates the parameters.

    Attributes:
        name: one of `RATES`.
        peak: the highest learning rate; None: that of `RATES`.
        warmup: over so many steps the rate rises to the peak, by equal parts.
        decay: "none"; "cosine", down to a tenth over all steps that follow; or "wsd", which stays
            at the peak and decays linearly to a tenth over the last tenth of the steps.
        steps: the steps of a run that decays.
        weight_decay: by how much AdamW, in 8 bits as well, shrinks matrices in each step, over the
            rate.
        width: how many times as wide as the base of muP the model is; the matrices of layers have
            a rate that is so many times smaller. Their weight decay stays.
    """

    name: str = "adamw"
    peak: float | None = None
    warmup: int = 0
    decay: str = "none"
    steps: int = 0
    weight_decay: float = WEIGHT_DECAY
    width: float = 1.0

    def __str__(self) -> str:
        """The optimizer in words, which differ where the optimizers do."""
        words = f"{self.name} at {self._highest:g}"
        if self.name in ADAMS:
            words += f", weight decay {self.weight_decay:g}"
        if self.warmup:
            words += f", warm-up of {self.warmup} steps"
        return words if self.decay == "none" else f"{words}, {self.decay} over {self.steps} steps"

    @property
    def rate(self) -> float | optax.Schedule:
        """The learning rate: a number, or a function of the steps taken so far."""
        peak = self._highest
        if self.decay == "none" and not self.warmup:
            return peak
        count = max(self.steps, self.warmup + 1)
        rates = jnp.array([self._rate_of(step, peak) for step in range(count)])
        return lambda taken: rates[jnp.minimum(taken, count - 1)]

    @property
    def constant_until(self) -> int:
        """After how many steps the rate begins to fall, before which `steps` says nothing."""
        if self.decay != "wsd":
            return 0
        return max(self.warmup, self.steps - max(1, round(DECAYING * self.steps)))

    @property
    def _highest(self) -> float:
        return RATES[self.name] if self.peak is None else self.peak

    def _rate_of(self, step: int, peak: float) -> float:
        rest, final = self.steps - self.warmup, FINAL * peak
        given = {"step": step, "peak": peak, "warmup": self.warmup}
        match self.decay:
            case "cosine":
                return cosine_schedule(**given, decay=rest, final=final)
            case "wsd":
                decay = self.steps - self.constant_until
                return wsd_schedule(**given, stable=rest - decay, decay=decay, final=final)
            case _:
                return wsd_schedule(**given, stable=1, decay=0, final=peak)


def make_optimization(
    name: str,
    learning_rate: float | None,
    warmup: int,
    decay: str,
    weight_decay: float | None,
    steps: int,
) -> Optimization:
    """What the options of `jaxpar train` ask for.

    Raises:
        ValueError: a number is out of its range, or options do not go together.
    """
    if learning_rate is not None and not learning_rate > 0:
        raise ValueError(f"train: --learning-rate is {learning_rate}; use a number above 0")
    if weight_decay is not None and not weight_decay >= 0:
        raise ValueError(f"train: --weight-decay is {weight_decay}; use 0 or more")
    if weight_decay is not None and name not in ADAMS:
        raise ValueError(
            f"train: --weight-decay {weight_decay} with --optimizer {name}: only adamw and "
            "adam8bit decay weights; use one of these, or leave it out"
        )
    if decay != "none" and warmup >= steps:
        raise ValueError(
            f"train: --decay {decay} with --warmup {warmup} and --steps {steps}: the learning rate "
            f"falls after its warm-up; use more steps, or a shorter warm-up"
        )
    return Optimization(
        name,
        learning_rate,
        warmup,
        decay,
        steps if decay != "none" else 0,
        WEIGHT_DECAY if weight_decay is None else weight_decay,
    )


def make_optimizer(optimization: Optimization) -> optax.GradientTransformation:
    """The optimizer as optax has it."""
    if optimization.name == "sgd":
        return optax.sgd(optimization.rate)
    if optimization.name == "adamw" and optimization.width == 1:
        return optax.adamw(
            optimization.rate, weight_decay=optimization.weight_decay, mask=decaying_leaves
        )
    return optax.chain(
        scale_by_adam8bit() if optimization.name == "adam8bit" else optax.scale_by_adam(),
        by_width(optimization.width),
        optax.add_decayed_weights(optimization.weight_decay, decaying_leaves),
        optax.scale_by_learning_rate(optimization.rate),
    )


def check_blocks(
    params: PyTree[Any], layouts: PyTree[LeafLayouts], sizes: Mapping[str, int]
) -> None:
    """Raises a ValueError if a block of a leaf's state in 8 bits would straddle devices."""
    pairs = zip(jax.tree.leaves_with_path(params), jax.tree.leaves(layouts), strict=True)
    for (path, leaf), layout in pairs:
        last = layout.owned[-1] if len(layout.owned) == len(leaf.shape) > 0 else None
        parts = math.prod(sizes[axis] for axis in entry_axes(last))
        blocks = leaf.shape[-1] // block_of(leaf.shape) if leaf.shape else 1
        if blocks % parts:
            name = jax.tree_util.keystr(path, simple=True, separator=" ")
            raise ValueError(
                f"train: --optimizer adam8bit: {parts} devices split the last dim of {name}, of "
                f"size {leaf.shape[-1]:,}, which has {blocks} blocks; no block may straddle two "
                f"devices; let fewer devices split it, a divisor of {blocks}, or use adamw"
            )


def by_width(width: float) -> optax.GradientTransformation:
    """Divides what Adam moves the matrices of layers by, which grow in both dims, by the width.

    Source: Yang et al. 2022 (Tensor Programs V), table 8
    """

    def divide(updates: PyTree[Any], _: PyTree[Any]) -> PyTree[Any]:
        return jax.tree_util.tree_map_with_path(
            lambda path, move: move / width if _grows_in_both_dims(path) else move, updates
        )

    return optax.stateless(divide)


def _grows_in_both_dims(path: tuple[Any, ...]) -> bool:
    """Whether a leaf of the parameters is a matrix of layers, and not a table, bias or gain."""
    keys = [getattr(key, "key", "") for key in path]
    if keys[0] != STACKED or _is_bias(path):
        return False
    return not ("norm" in keys[1] or is_load(path) or is_dropped(path))


def _is_bias(path: tuple[Any, ...]) -> bool:
    """Whether a leaf is a bias of a matrix."""
    return getattr(path[-1], "key", "").endswith("_bias") and not is_load(path)


def decaying_leaves(params: PyTree[Any]) -> PyTree[bool]:
    """Which parameters decay: all but the gains and the biases of norms, and other biases."""

    def decays(path: tuple[Any, ...], _: Any) -> bool:
        return "norm" not in jax.tree_util.keystr(path) and not _is_bias(path)

    return jax.tree_util.tree_map_with_path(decays, params)
