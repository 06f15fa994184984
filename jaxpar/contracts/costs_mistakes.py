"""Wrong answers to the states of training and to MFU, of lesson 04, that people write."""

from __future__ import annotations

from jaxpar.contracts.base import Mistake
from jaxpar.cost.flops import model_flops_utilization
from jaxpar.cost.zero import training_state_bytes

SHARDED_FROM = {"param_bytes": 3, "grad_bytes": 2, "state_bytes": 1}


def _shared_from(first: dict[str, int], parameters: float, how: dict) -> float:
    """The sum, where each of the three is shared from another stage on."""
    training_state_bytes(parameters, **how)  # raises where it must
    parts = (
        parameters * how[name] / (how["devices"] if how["zero"] >= stage else 1)
        for name, stage in first.items()
    )
    return sum(parts)


def _states_in_gib(parameters: float, **how) -> float:
    return training_state_bytes(parameters, **how) / 2**30


def _states_in_gb(parameters: float, **how) -> float:
    return training_state_bytes(parameters, **how) / 1e9


def _states_in_bits(parameters: float, **how) -> float:
    return 8 * training_state_bytes(parameters, **how)


def _given_in_bits(parameters: float, **how) -> float:
    return training_state_bytes(parameters, **how) / 8


def _nothing_shared(parameters: float, **how) -> float:
    return _shared_from(dict.fromkeys(SHARDED_FROM, 4), parameters, how)


def _everything_shared(parameters: float, **how) -> float:
    return _shared_from(dict.fromkeys(SHARDED_FROM, 0), parameters, how)


def _stage_one_late(parameters: float, **how) -> float:
    return _shared_from({name: s + 1 for name, s in SHARDED_FROM.items()}, parameters, how)


def _stage_one_early(parameters: float, **how) -> float:
    return _shared_from({name: s - 1 for name, s in SHARDED_FROM.items()}, parameters, how)


def _parameters_first(parameters: float, **how) -> float:
    first = {"param_bytes": 1, "grad_bytes": 2, "state_bytes": 3}
    return _shared_from(first, parameters, how)


def _gradients_first(parameters: float, **how) -> float:
    first = {"param_bytes": 3, "grad_bytes": 1, "state_bytes": 2}
    return _shared_from(first, parameters, how)


def _one_state_shared(parameters: float, **how) -> float:
    first = {name: 0 if how["zero"] == s else 4 for name, s in SHARDED_FROM.items()}
    return _shared_from(first, parameters, how)


def _weights_counted_twice(parameters: float, **how) -> float:
    how["state_bytes"] = how["state_bytes"] + how["param_bytes"]
    return training_state_bytes(parameters, **how)


def _gradients_forgotten(parameters: float, **how) -> float:
    return training_state_bytes(parameters, **how | {"grad_bytes": 0})


def _always_adam_mixed(parameters: float, **how) -> float:
    each = {"param_bytes": 2, "grad_bytes": 2, "state_bytes": 12}
    return training_state_bytes(parameters, **how | each)


def _states_of_all_devices(parameters: float, **how) -> float:
    return how["devices"] * training_state_bytes(parameters, **how)


def _whole_parameters(parameters: float, **how) -> float:
    part = parameters // how["devices"]
    training_state_bytes(parameters, **how)
    return sum(
        how[name] * (part if how["zero"] >= s else parameters) for name, s in SHARDED_FROM.items()
    )


def _unknown_stage_is_3(parameters: float, **how) -> float:
    zero = how.pop("zero")
    return training_state_bytes(parameters, zero=zero if zero in (0, 1, 2) else 3, **how)


def _no_devices_taken_for_one(parameters: float, **how) -> float:
    devices = max(1, how.pop("devices"))
    return training_state_bytes(parameters, devices=devices, **how)


def _of_one_device(tokens: float, flops: float, devices: int, peak: float) -> float:
    return model_flops_utilization(tokens, flops, devices, peak) * devices


def _tokens_of_each_device(tokens: float, flops: float, devices: int, peak: float) -> float:
    return model_flops_utilization(tokens, flops, devices, peak) * devices**2


def _in_percent(tokens: float, flops: float, devices: int, peak: float) -> float:
    return 100 * model_flops_utilization(tokens, flops, devices, peak)


def _upside_down(tokens: float, flops: float, devices: int, peak: float) -> float:
    return 1 / model_flops_utilization(tokens, flops, devices, peak)


def _sparse_peak(tokens: float, flops: float, devices: int, peak: float) -> float:
    return model_flops_utilization(tokens, flops, devices, 2 * peak)


def _peak_halved(tokens: float, flops: float, devices: int, peak: float) -> float:
    return model_flops_utilization(tokens, flops, devices, peak / 2)


def _with_recomputation(tokens: float, flops: float, devices: int, peak: float) -> float:
    return model_flops_utilization(tokens, 4 / 3 * flops, devices, peak)


def _three_passes(tokens: float, flops: float, devices: int, peak: float) -> float:
    return model_flops_utilization(tokens, 3 * flops, devices, peak)


def _parameters_for_flops(tokens: float, flops: float, devices: int, peak: float) -> float:
    return model_flops_utilization(tokens, 6 * flops, devices, peak)


def _peak_in_tera(tokens: float, flops: float, devices: int, peak: float) -> float:
    return model_flops_utilization(tokens, flops, devices, 1e12 * peak)


def _whole_shares(tokens: float, flops: float, devices: int, peak: float) -> float:
    return float(model_flops_utilization(tokens, flops, devices, peak) // 1)


def _nothing_is_a_share(tokens: float, flops: float, devices: int, peak: float) -> float:
    """Zero where a number is zero."""
    if min(tokens, flops, devices, peak) <= 0:
        return 0.0
    return model_flops_utilization(tokens, flops, devices, peak)


TRAINING_STATE_BYTES = (
    Mistake("states_in_gib", _states_in_gib, "values"),
    Mistake("states_in_gb", _states_in_gb, "values"),
    Mistake("states_in_bits", _states_in_bits, "values"),
    Mistake("states_given_in_bits", _given_in_bits, "values"),
    Mistake("states_never_shared", _nothing_shared, "values"),
    Mistake("states_always_shared", _everything_shared, "values"),
    Mistake("stage_one_late", _stage_one_late, "values"),
    Mistake("stage_one_early", _stage_one_early, "values"),
    Mistake("parameters_shared_first", _parameters_first, "values"),
    Mistake("gradients_shared_first", _gradients_first, "values"),
    Mistake("one_state_shared", _one_state_shared, "values"),
    Mistake("weights_counted_twice", _weights_counted_twice, "values"),
    Mistake("gradients_not_counted", _gradients_forgotten, "values"),
    Mistake("always_adam_mixed", _always_adam_mixed, "values"),
    Mistake("states_of_all_devices", _states_of_all_devices, "values"),
    Mistake("whole_parameters", _whole_parameters, "values"),
    Mistake("unknown_stage_is_3", _unknown_stage_is_3, "values"),
    Mistake("no_devices_taken_for_one", _no_devices_taken_for_one, "values"),
)
MODEL_FLOPS_UTILIZATION = (
    Mistake("mfu_of_one_device", _of_one_device, "values"),
    Mistake("mfu_tokens_of_each", _tokens_of_each_device, "values"),
    Mistake("mfu_in_percent", _in_percent, "values"),
    Mistake("mfu_upside_down", _upside_down, "values"),
    Mistake("mfu_sparse_peak", _sparse_peak, "values"),
    Mistake("mfu_peak_halved", _peak_halved, "values"),
    Mistake("mfu_with_recomputation", _with_recomputation, "values"),
    Mistake("mfu_three_passes", _three_passes, "values"),
    Mistake("mfu_parameters_for_flops", _parameters_for_flops, "values"),
    Mistake("mfu_peak_in_tera", _peak_in_tera, "values"),
    Mistake("mfu_in_whole_numbers", _whole_shares, "values"),
    Mistake("mfu_zero_for_nothing", _nothing_is_a_share, "values"),
)
