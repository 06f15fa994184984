"""The bytes of the training states on one device, for each stage of ZeRO."""

from __future__ import annotations

from itertools import product

import numpy as np

from jaxpar.contracts.base import Call, Contract, wrong
from jaxpar.contracts.costs.common import log_uniform
from jaxpar.cost.zero import STAGES, training_state_bytes

# Parameters, devices, stage: table 1 of the ZeRO paper.
_TABLE_1 = tuple(product((75 * 10**8, 128 * 10**9, 10**12), (1, 4, 16, 64, 256, 1024), (1, 2, 3)))


def _states(rng: np.random.Generator) -> list[Call]:
    """A few parameters, the paper's table, any numbers, then what is refused."""

    def call(parameters: int, devices: int, zero: int, each: tuple = (2, 2, 12)) -> Call:
        names = ("param_bytes", "grad_bytes", "state_bytes")
        how = {"devices": devices, "zero": zero}
        return (parameters,), how | dict(zip(names, each, strict=True))

    calls = [call(1000, 4, stage) for stage in (1, 2, 3)]
    calls += [call(*row) for row in _TABLE_1]
    for stage in (*STAGES, *STAGES, *STAGES):
        parameters, devices = int(log_uniform(rng, 1e2, 1e12)), int(rng.integers(2, 4000))
        each = (int(rng.integers(1, 5)), int(rng.integers(2, 9)), float(rng.integers(1, 32)) / 2)
        calls.append(call(parameters, devices, stage, each))
    refused = ((1000, 4, 4), (1000, 4, -1), (1000, 0, 1), (1000, -4, 0))
    return [*calls, *(call(*row) for row in refused)]


CONTRACT = Contract(
    kind="value",
    task="return the bytes of states that one device holds, by figure 1 of the ZeRO paper",
    reference=training_state_bytes,
    oracle=training_state_bytes,
    values=_states,
    hints=(
        "Write down parameters, gradients and optimizer states apart: bytes of one parameter times "
        "parameters. Which of the three is divided by the number of devices, in each stage?",
        "A stage shares what the stage before it shares, and one thing more: with zero >= 1 the "
        "optimizer states are divided, with zero >= 2 the gradients, with zero >= 3 parameters.",
        "parameters * (param_bytes / (devices if zero >= 3 else 1) + ...), after ValueError for "
        "devices < 1 and for zero not in (0, 1, 2, 3).",
    ),
    minimal="What is divided is held once in all. Only what every device must have whole stays.",
    harder="Find the stage that fits into a given memory, and sends least.",
)


@wrong("values")
def states_in_gib(parameters: float, **how) -> float:
    """The result is in GiB; return bytes."""
    return training_state_bytes(parameters, **how) / 2**30


@wrong("values")
def states_in_gb(parameters: float, **how) -> float:
    """The result is in GB; return bytes."""
    return training_state_bytes(parameters, **how) / 1e9


@wrong("values")
def states_in_bits(parameters: float, **how) -> float:
    """The result is eight times too large: it is in bits; return bytes."""
    return 8 * training_state_bytes(parameters, **how)


@wrong("values")
def states_given_in_bits(parameters: float, **how) -> float:
    """The result is an eighth of the right one; param_bytes, grad_bytes and state_bytes are bytes
    already, so divide by nothing."""
    return training_state_bytes(parameters, **how) / 8


# The stage from which on each of the three is sharded.
_SHARDED_FROM = {"param_bytes": 3, "grad_bytes": 2, "state_bytes": 1}


def _sharded_from(first: dict[str, int], parameters: float, how: dict) -> float:
    """The bytes of all three, if each is sharded from the stage that `first` names on."""
    training_state_bytes(parameters, **how)  # raises where it must
    parts = (
        parameters * how[name] / (how["devices"] if how["zero"] >= stage else 1)
        for name, stage in first.items()
    )
    return sum(parts)


@wrong("values")
def states_never_shared(parameters: float, **how) -> float:
    """`zero` changes nothing; divide by devices what its stage shares."""
    return _sharded_from(dict.fromkeys(_SHARDED_FROM, 4), parameters, how)


@wrong("values")
def states_always_shared(parameters: float, **how) -> float:
    """Everything is divided by devices in every stage; that is stage 3, so look at `zero`."""
    return _sharded_from(dict.fromkeys(_SHARDED_FROM, 0), parameters, how)


@wrong("values")
def stage_one_late(parameters: float, **how) -> float:
    """Each stage shares what the one before it should; stage 1 shares the optimizer states, 2 the
    gradients too, and 3 the parameters too."""
    return _sharded_from({name: s + 1 for name, s in _SHARDED_FROM.items()}, parameters, how)


@wrong("values")
def stage_one_early(parameters: float, **how) -> float:
    """Each stage shares what the next one should; stage 0 shares nothing, and stage 1 the optimizer
    states alone."""
    return _sharded_from({name: s - 1 for name, s in _SHARDED_FROM.items()}, parameters, how)


@wrong("values")
def parameters_shared_first(parameters: float, **how) -> float:
    """Stage 1 divides the parameters; the optimizer states come first, then gradients, then
    parameters."""
    first = {"param_bytes": 1, "grad_bytes": 2, "state_bytes": 3}
    return _sharded_from(first, parameters, how)


@wrong("values")
def gradients_shared_first(parameters: float, **how) -> float:
    """Stage 1 divides the gradients; the optimizer states come first."""
    first = {"param_bytes": 3, "grad_bytes": 1, "state_bytes": 2}
    return _sharded_from(first, parameters, how)


@wrong("values")
def one_state_shared(parameters: float, **how) -> float:
    """Each stage divides one of the three only; it divides what the stage before it does as
    well."""
    first = {name: 0 if how["zero"] == s else 4 for name, s in _SHARDED_FROM.items()}
    return _sharded_from(first, parameters, how)


@wrong("values")
def weights_counted_twice(parameters: float, **how) -> float:
    """The weights are counted twice, beside the parameters with the optimizer states, too;
    state_bytes has any float32 copy of them already, so add nothing."""
    how["state_bytes"] = how["state_bytes"] + how["param_bytes"]
    return training_state_bytes(parameters, **how)


@wrong("values")
def gradients_not_counted(parameters: float, **how) -> float:
    """Gradients are left out; add grad_bytes for each parameter."""
    return training_state_bytes(parameters, **how | {"grad_bytes": 0})


@wrong("values")
def always_adam_mixed(parameters: float, **how) -> float:
    """The bytes are always 2, 2 and 12, those of mixed precision with Adam; use the three
    arguments."""
    each = {"param_bytes": 2, "grad_bytes": 2, "state_bytes": 12}
    return training_state_bytes(parameters, **how | each)


@wrong("values")
def states_of_all_devices(parameters: float, **how) -> float:
    """This is what all devices hold together; return what one holds."""
    return how["devices"] * training_state_bytes(parameters, **how)


@wrong("values")
def whole_parameters(parameters: float, **how) -> float:
    """The parameters of a device are rounded down; use / in place of //."""
    part = parameters // how["devices"]
    training_state_bytes(parameters, **how)
    return sum(
        how[name] * (part if how["zero"] >= s else parameters) for name, s in _SHARDED_FROM.items()
    )


@wrong("values")
def unknown_stage_is_3(parameters: float, **how) -> float:
    """A `zero` that is none of 0, 1, 2, 3 must raise ValueError."""
    zero = how.pop("zero")
    return training_state_bytes(parameters, zero=zero if zero in (0, 1, 2) else 3, **how)


@wrong("values")
def no_devices_taken_for_one(parameters: float, **how) -> float:
    """With no devices, or fewer, ValueError must be raised."""
    devices = max(1, how.pop("devices"))
    return training_state_bytes(parameters, devices=devices, **how)
