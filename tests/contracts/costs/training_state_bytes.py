"""Answers to training_state_bytes: right ones by other routes, and wrong ones."""

from __future__ import annotations

from fractions import Fraction

import jax.numpy as jnp
import numpy as np

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


@right
def part_by_part(parameters, *, devices, zero, param_bytes, grad_bytes, state_bytes):
    if zero not in range(4) or devices < 1:
        raise ValueError(f"{zero=}, {devices=}")
    held = 0.0
    for stage, each in ((3, param_bytes), (2, grad_bytes), (1, state_bytes)):
        held += parameters * each / (devices if zero >= stage else 1)
    return held


@right
def by_the_papers_formulas(parameters, *, devices, zero, param_bytes, grad_bytes, state_bytes):
    if devices <= 0:
        raise ValueError("devices")
    p, g, o = (each * parameters for each in (param_bytes, grad_bytes, state_bytes))
    rows = {
        0: p + g + o,
        1: p + g + o / devices,
        2: p + (g + o) / devices,
        3: (p + g + o) / devices,
    }
    if zero not in rows:
        raise ValueError("zero")
    return rows[zero]


@right
def by_a_match(parameters, *, devices, zero, param_bytes, grad_bytes, state_bytes):
    n = devices
    if n < 1:
        raise ValueError("devices")
    match zero:
        case 0:
            split = 1, 1, 1
        case 1:
            split = 1, 1, n
        case 2:
            split = 1, n, n
        case 3:
            split = n, n, n
        case _:
            raise ValueError("zero")
    each = np.array([param_bytes, grad_bytes, state_bytes])
    return float(parameters * (each / split).sum())


@right
def by_an_index(parameters, *, devices, zero, param_bytes, grad_bytes, state_bytes):
    if devices < 1 or zero < 0 or zero >= 4:
        raise ValueError
    each = [state_bytes, grad_bytes, param_bytes]
    return sum(each[:zero]) * parameters / devices + sum(each[zero:]) * parameters


@right
def in_fractions(parameters, *, devices, zero, param_bytes, grad_bytes, state_bytes):
    if devices < 1 or zero not in (0, 1, 2, 3):
        raise ValueError
    shard, held = Fraction(parameters) / devices, Fraction(0)
    for stage, each in enumerate((state_bytes, grad_bytes, param_bytes), 1):
        held += Fraction(each) * (shard if stage <= zero else Fraction(parameters))
    return float(held)


@wrong("values")
def no_stage_is_an_error(parameters, *, devices, zero, **each):
    return part_by_part(parameters, devices=devices, zero=min(max(zero, 0), 3), **each)


@wrong("values")
def an_assertion_refuses(parameters, *, devices, zero, **each):
    assert zero in range(4)
    return part_by_part(parameters, devices=devices, zero=zero, **each)


@wrong("values")
def only_large_stages_refused(parameters, *, devices, zero, **each):
    if zero > 3:
        raise ValueError("zero")
    return part_by_part(parameters, devices=devices, zero=max(zero, 0), **each)


@wrong("values")
def division_by_zero_refuses(parameters, *, devices, zero, **each):
    if zero not in range(4):
        raise ValueError("zero")
    part = parameters / devices
    held = part_by_part(parameters, devices=abs(devices), zero=zero, **each)
    return held if part else 0


@wrong("values")
def the_examples_of_the_stub(parameters, *, devices, zero, **each):
    return {1: 7000.0, 2: 5500.0, 3: 4000.0}.get(zero, 16000.0) * parameters / 1000


@wrong("values")
def bytes_rounded(parameters, **how):
    return round(part_by_part(parameters, **how))


@wrong("values")
def parts_padded(parameters, *, devices, zero, **each):
    held = part_by_part(parameters, devices=devices, zero=zero, **each)
    padded = -(-parameters // devices) * devices if zero == 3 else parameters
    return held * padded / parameters


@wrong("values")
def states_as_text(parameters, **how):
    return f"{part_by_part(parameters, **how):.0f}"


@wrong("values")
def each_state_apart(parameters, **how):
    return part_by_part(parameters, **how), 0, 0


@wrong("values")
def an_index_refuses(parameters, *, devices, zero, param_bytes, grad_bytes, state_bytes):
    p, g, o = (each * parameters for each in (param_bytes, grad_bytes, state_bytes))
    if devices < 1 or zero > 3:
        raise ValueError
    n = devices
    return [p + g + o, p + g + o / n, p + (g + o) / n, (p + g + o) / n][zero]


@wrong("values")
def devices_checked_where_they_divide(parameters, *, devices, zero, **each):
    if zero in (1, 2, 3) and devices < 1:
        raise ValueError
    return part_by_part(parameters, devices=max(devices, 1), zero=zero, **each)


@wrong("values")
def no_parameters_refused(parameters, **how):
    if parameters <= 0:
        raise ValueError
    return part_by_part(parameters, **how)


@wrong("values")
def whole_bytes_of_each(parameters, *, param_bytes, grad_bytes, **how):
    whole = {"param_bytes": max(1, param_bytes), "grad_bytes": max(1, grad_bytes)}
    return part_by_part(parameters, **whole, **how)


@wrong("values")
def at_most_as_many_devices(parameters, *, devices, zero, **each):
    part_by_part(parameters, devices=devices, zero=zero, **each)
    devices = max(1, min(devices, parameters))
    return part_by_part(parameters, devices=devices, zero=zero, **each)


@wrong("values")
def nothing_to_shard_alone(parameters, *, devices, zero, **each):
    if devices == 1:
        return parameters * sum(each.values())
    return part_by_part(parameters, devices=devices, zero=zero, **each)


@wrong("values")
def at_most_4096_devices(parameters, *, devices, **how):
    return part_by_part(parameters, devices=min(devices, 4096), **how)


@wrong("values")
def in_float32_of_jax(parameters, *, devices, zero, **each):
    part_by_part(parameters, devices=devices, zero=zero, **each)
    sizes = jnp.array([each[name] for name in ("state_bytes", "grad_bytes", "param_bytes")], float)
    parts = jnp.where(jnp.arange(3) < zero, 1 / devices, 1.0)
    return jnp.sum(parts * sizes) * float(parameters)
