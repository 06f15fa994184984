"""What each device holds of a model's training states, and sends, under each stage of ZeRO.

Source: Rajbhandari et al. 2020, ZeRO: Memory Optimizations Toward Training Trillion Parameter
Models, sections 3.1, 5 and 7.
"""

from dataclasses import dataclass

from jaxpar.cost.communication import Number, wire_bytes
from jaxpar.cost.eight_bits import BLOCK, CODE_BYTES, LARGEST_BYTES
from jaxpar.layout import ZERO_STAGES as STAGES


@dataclass(frozen=True)
class States:
    """Bytes of the states of training: for one parameter, or on one device.

    Attributes:
        params: the parameters that the model computes with.
        gradients: their gradients.
        optimizer: what the optimizer keeps; for Adam two moments, and in mixed precision the
            parameters in float32, too.
        computed: a parameter while a product uses it, and an activation; None: as `params`.
        trained: the fraction of the parameters that have gradients and an optimizer's state; the
            bytes of these are means over all parameters.
    """

    params: Number
    gradients: Number
    optimizer: Number
    computed: Number | None = None
    trained: Number = 1

    @property
    def element_bytes(self) -> int:
        """Bytes of an activation."""
        return int(self.params if self.computed is None else self.computed)

    @property
    def total(self) -> Number:
        """All three together."""
        return self.params + self.gradients + self.optimizer


ADAM_FP32 = States(4, 4, 4 + 4)
ADAM_MIXED = States(2, 2, 4 + 4 + 4)
# In mixed precision, by the names of the optimizers of `jaxpar train`.
MIXED = {
    "adamw": ADAM_MIXED,
    "adam8bit": States(2, 2, 4 + CODE_BYTES + LARGEST_BYTES / BLOCK),
    "sgd": States(2, 2, 4),
}


def training_states(parameters: Number, each: States, n: int, stage: int) -> States:
    """Bytes that one device holds; stage 0 is plain data parallelism.

    Math: each * parameters; divided by n: the optimizer's from stage 1 on, gradients from stage 2
        on, parameters in stage 3
    Source: Rajbhandari et al. 2020, figure 1

    Raises:
        ValueError: there is no such stage.
    """
    _check(stage)
    return States(
        each.params * parameters / (n if stage >= 3 else 1),
        each.gradients * parameters / (n if stage >= 2 else 1),
        each.optimizer * parameters / (n if stage >= 1 else 1),
    )


def training_state_bytes(
    parameters: float,
    *,
    devices: int,
    zero: int,
    param_bytes: float,
    grad_bytes: float,
    state_bytes: float,
) -> float:
    """Bytes of parameters, gradients and optimizer states that one device holds.

    `param_bytes`, `grad_bytes` and `state_bytes` are those of one parameter: in mixed precision
    with Adam 2, 2 and 12. Each device holds an equal shard of what is sharded, not rounded. Stage 0
    of ZeRO shards nothing, stage 1 the optimizer states, stage 2 the gradients as well, and stage 3
    the parameters too.

    Source: Rajbhandari et al. 2020, figure 1

    Raises:
        ValueError: `zero` is none of 0, 1, 2 and 3, or `devices` is below 1.
    """
    if devices < 1:
        raise ValueError(
            f"training_state_bytes: devices = {devices}; it must be 1 or more; one alone is 1"
        )
    each = States(param_bytes, grad_bytes, state_bytes)
    return float(training_states(parameters, each, devices, zero).total)


def step_wire_bytes(params_bytes: Number, n: int, stage: int, microbatches: int = 1) -> Number:
    """Bytes that one device sends in a step, of gradients and of parameters.

    Gradients are as large as parameters. Stage 3 gathers the parameters in the forward and in the
    backward pass of every microbatch.

    Math: with p = params_bytes*(n-1)/n and m microbatches: stages 0 and 1 2p; 2 (m+1)p; 3 3*m*p
    Source: Rajbhandari et al. 2020, section 7

    Raises:
        ValueError: there is no such stage.
    """
    _check(stage)
    times = (2, 2, microbatches + 1, 3 * microbatches)[stage]
    return times * wire_bytes("reduce_scatter", params_bytes, n)


def _check(stage: int) -> None:
    if stage not in STAGES:
        raise ValueError(f"zero: there is no stage {stage}; use one of 0, 1, 2, 3")
