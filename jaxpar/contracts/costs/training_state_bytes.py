"""The bytes of the training states on one device, for each stage of ZeRO."""

from __future__ import annotations

from itertools import product

import numpy as np

from jaxpar.contracts.base import Call, Contract, wrong
from jaxpar.contracts.costs.common import log_spread
from jaxpar.cost.zero import STAGES, training_state_bytes

# Parameters, devices, stage: table 1 of the ZeRO paper.
_TABLE_1 = tuple(product((75 * 10**8, 128 * 10**9, 10**12), (1, 4, 16, 64, 256, 1024), (1, 2, 3)))


def _states(rng: np.random.Generator) -> list[Call]:
    """A few parameters, the paper's table, any numbers, then what is refused."""

    def call(parameters: float, devices: int, zero: int, each: tuple = (2, 2, 12)) -> Call:
        names = ("param_bytes", "grad_bytes", "state_bytes")
        how = {"devices": devices, "zero": zero}
        return (parameters,), how | dict(zip(names, each, strict=True))

    calls = [call(1000, 4, stage) for stage in (1, 2, 3)]
    calls += [call(*row) for row in _TABLE_1]
    for stage in STAGES:
        # One device; more devices than parameters, and no parameters; no state, as of SGD, nothing
        # but frozen parameters in 4 bits, large bytes; more parameters and devices than there are.
        calls += [call(1000, 1, stage), call(3, 8, stage), call(0, 8, stage)]
        calls += [call(1000, 7, stage, each) for each in ((4, 4, 0), (0.5, 0, 0), (8, 0.25, 80))]
        calls += [call(10**14, 10**6, stage, (0, 4, 8.125)), call(7.5e9, 3, stage)]
    drawn = zip(
        (*STAGES, *STAGES, *STAGES),
        log_spread(rng, 1e2, 1e13, 12),
        log_spread(rng, 2, 1e5, 12),
        strict=True,
    )
    for stage, parameters, devices in drawn:
        each = (int(rng.integers(1, 5)), int(rng.integers(2, 9)), float(rng.integers(1, 32)) / 2)
        calls.append(call(int(parameters), int(devices), stage, each))
    refused = [(1000, 4, 4), (1000, 4, -1), (1000, 0, 1), (1000, -4, 0)]
    refused += [(1000, 4, stage) for stage in (5, -2, -3, -4, -5)]
    refused += [(1000, devices, stage) for devices in (0, -1, -4) for stage in STAGES]
    refused += [(1000, 1, 4), (0, 4, -1), (0, 0, 3), (1000, 0, 4)]
    return [*calls, *(call(*row) for row in refused)]


CONTRACT = Contract(
    kind="value",
    task="return the bytes of training states on one device, as in figure 1 of the ZeRO paper",
    reference=training_state_bytes,
    oracle=training_state_bytes,
    values=_states,
    hints=(
        "Write down the bytes of parameters, gradients and optimizer states separately: each is "
        "the number of parameters times the bytes for one. Which of the three does each stage "
        "divide by the number of devices?",
        "Each stage shards what the stage before it shards, and one thing more: with zero >= 1 the "
        "optimizer states are divided, with zero >= 2 the gradients as well, and with zero >= 3 "
        "the parameters too.",
        "parameters * (param_bytes / (devices if zero >= 3 else 1) + ...), after ValueError for "
        "devices < 1 and for zero not in (0, 1, 2, 3).",
    ),
    minimal="What is sharded is held once, by all devices together; only what every device needs "
    "whole is replicated.",
    harder="Find the stage that fits into a given memory and sends the fewest bytes.",
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
    """The result is an eighth of the right one; param_bytes, grad_bytes and state_bytes are in
    bytes already, so do not divide them by 8."""
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
def states_never_sharded(parameters: float, **how) -> float:
    """`zero` changes nothing in your answer; divide by `devices` what its stage shards."""
    return _sharded_from(dict.fromkeys(_SHARDED_FROM, 4), parameters, how)


@wrong("values")
def states_always_sharded(parameters: float, **how) -> float:
    """You divide everything by `devices` in every stage, which is right for stage 3 only; look at
    `zero`."""
    return _sharded_from(dict.fromkeys(_SHARDED_FROM, 0), parameters, how)


@wrong("values")
def stage_one_late(parameters: float, **how) -> float:
    """Each of your stages shards what the stage before it should; stage 1 shards the optimizer
    states, stage 2 the gradients as well, and stage 3 the parameters too."""
    return _sharded_from({name: s + 1 for name, s in _SHARDED_FROM.items()}, parameters, how)


@wrong("values")
def stage_one_early(parameters: float, **how) -> float:
    """Each of your stages shards what the next one should; stage 0 shards nothing, and stage 1 the
    optimizer states alone."""
    return _sharded_from({name: s - 1 for name, s in _SHARDED_FROM.items()}, parameters, how)


@wrong("values")
def parameters_sharded_first(parameters: float, **how) -> float:
    """Your stage 1 shards the parameters; the optimizer states come first, then the gradients, then
    the parameters."""
    first = {"param_bytes": 1, "grad_bytes": 2, "state_bytes": 3}
    return _sharded_from(first, parameters, how)


@wrong("values")
def gradients_sharded_first(parameters: float, **how) -> float:
    """Your stage 1 shards the gradients; the optimizer states come first."""
    first = {"param_bytes": 3, "grad_bytes": 1, "state_bytes": 2}
    return _sharded_from(first, parameters, how)


@wrong("values")
def one_state_sharded(parameters: float, **how) -> float:
    """Each of your stages shards only one of the three; it must also shard what the stages before
    it do."""
    first = {name: 0 if how["zero"] == s else 4 for name, s in _SHARDED_FROM.items()}
    return _sharded_from(first, parameters, how)


@wrong("values")
def only_parameters_at_3(parameters: float, **how) -> float:
    """Your stage 3 shards the parameters only; it must also shard gradients and optimizer states,
    as the stages before it do."""
    if how["zero"] == 3:
        return _sharded_from({"param_bytes": 0, "grad_bytes": 4, "state_bytes": 4}, parameters, how)
    return training_state_bytes(parameters, **how)


@wrong("values")
def weights_counted_twice(parameters: float, **how) -> float:
    """You count the weights twice: as parameters, and once more among the optimizer states;
    state_bytes includes any float32 copy of them already, so add nothing."""
    how["state_bytes"] = how["state_bytes"] + how["param_bytes"]
    return training_state_bytes(parameters, **how)


@wrong("values")
def gradients_not_counted(parameters: float, **how) -> float:
    """You leave the gradients out; add grad_bytes for each parameter."""
    return training_state_bytes(parameters, **how | {"grad_bytes": 0})


@wrong("values")
def always_adam_mixed(parameters: float, **how) -> float:
    """You always use 2, 2 and 12 bytes, those of mixed precision with Adam; use the three
    arguments."""
    each = {"param_bytes": 2, "grad_bytes": 2, "state_bytes": 12}
    return training_state_bytes(parameters, **how | each)


@wrong("values")
def states_of_all_devices(parameters: float, **how) -> float:
    """This is what all devices hold together; return what one holds."""
    return how["devices"] * training_state_bytes(parameters, **how)


@wrong("values")
def whole_parameters(parameters: float, **how) -> float:
    """You round a device's number of parameters down; use / in place of //."""
    part = parameters // how["devices"]
    training_state_bytes(parameters, **how)
    return sum(
        how[name] * (part if how["zero"] >= s else parameters) for name, s in _SHARDED_FROM.items()
    )


@wrong("values")
def states_none_is_default(parameters: float, **how) -> float:
    """You take 0 bytes for none given; they are a number like others, as SGD keeps no state."""
    usual = {"param_bytes": 2, "grad_bytes": 2, "state_bytes": 12}
    each = {name: how[name] or usual[name] for name in usual}
    return training_state_bytes(parameters, **how | each)


@wrong("values")
def one_parameter_at_least(parameters: float, **how) -> float:
    """You give each device a whole number of parameters, rounded up; the shards are equal, and not
    rounded."""
    training_state_bytes(parameters, **how)  # raises where it must
    part = -(-parameters // how["devices"])
    return sum(
        how[name] * (part if how["zero"] >= s else parameters) for name, s in _SHARDED_FROM.items()
    )


@wrong("values")
def unknown_stage_is_3(parameters: float, **how) -> float:
    """Raise ValueError where `zero` is none of 0, 1, 2 and 3."""
    zero = how.pop("zero")
    return training_state_bytes(parameters, zero=zero if zero in (0, 1, 2) else 3, **how)


@wrong("values")
def no_devices_taken_for_one(parameters: float, **how) -> float:
    """Raise ValueError where `devices` is below 1."""
    devices = max(1, how.pop("devices"))
    return training_state_bytes(parameters, devices=devices, **how)
