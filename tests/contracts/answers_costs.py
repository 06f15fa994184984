"""Answers to the bytes and FLOPs of lesson 04: right by other ways, wrong by clever ways."""

from __future__ import annotations

import math

import numpy as np


def part_by_part(parameters, *, devices, zero, param_bytes, grad_bytes, state_bytes):
    if zero not in range(4) or devices < 1:
        raise ValueError(f"{zero=}, {devices=}")
    held = 0.0
    for stage, each in ((3, param_bytes), (2, grad_bytes), (1, state_bytes)):
        held += parameters * each / (devices if zero >= stage else 1)
    return held


def by_the_papers_formulas(parameters, *, devices, zero, param_bytes, grad_bytes, state_bytes):
    if devices <= 0:
        raise ValueError("devices")
    p, g, o = (each * parameters for each in (param_bytes, grad_bytes, state_bytes))
    rows = {0: p + g + o, 1: p + g + o / devices, 2: p + (g + o) / devices,
            3: (p + g + o) / devices}  # fmt: skip
    if zero not in rows:
        raise ValueError("zero")
    return rows[zero]


def by_a_match(parameters, *, devices, zero, param_bytes, grad_bytes, state_bytes):
    n = devices
    if n < 1:
        raise ValueError("devices")
    match zero:
        case 0:
            shares = 1, 1, 1
        case 1:
            shares = 1, 1, n
        case 2:
            shares = 1, n, n
        case 3:
            shares = n, n, n
        case _:
            raise ValueError("zero")
    each = np.array([param_bytes, grad_bytes, state_bytes])
    return float(parameters * (each / shares).sum())


def no_stage_is_an_error(parameters, *, devices, zero, **each):
    return part_by_part(parameters, devices=devices, zero=min(max(zero, 0), 3), **each)


def an_assertion_refuses(parameters, *, devices, zero, **each):
    assert zero in range(4)
    return part_by_part(parameters, devices=devices, zero=zero, **each)


def only_large_stages_refused(parameters, *, devices, zero, **each):
    if zero > 3:
        raise ValueError("zero")
    return part_by_part(parameters, devices=devices, zero=max(zero, 0), **each)


def division_by_zero_refuses(parameters, *, devices, zero, **each):
    if zero not in range(4):
        raise ValueError("zero")
    part = parameters / devices
    held = part_by_part(parameters, devices=abs(devices), zero=zero, **each)
    return held if part else 0


def the_examples_of_the_stub(parameters, *, devices, zero, **each):
    return {1: 7000.0, 2: 5500.0, 3: 4000.0}.get(zero, 16000.0) * parameters / 1000


def bytes_rounded(parameters, **how):
    return round(part_by_part(parameters, **how))


def parts_padded(parameters, *, devices, zero, **each):
    held = part_by_part(parameters, devices=devices, zero=zero, **each)
    padded = -(-parameters // devices) * devices if zero == 3 else parameters
    return held * padded / parameters


def states_as_text(parameters, **how):
    return f"{part_by_part(parameters, **how):.0f}"


def each_state_apart(parameters, **how):
    return part_by_part(parameters, **how), 0, 0


def by_equation_7(batch, sequence, layers, hidden, vocab, *, remat):
    sizes = batch, sequence, layers, hidden, vocab
    if min(sizes) <= 0 or remat not in ("none", "selective", "full"):
        raise ValueError("sizes or remat")
    b, s, n, h, v = sizes
    if remat == "full":
        return 96 * b * s * n * h**2 * (1 + s / (6 * h) + v / (16 * n * h))
    scores = s / (6 * h) if remat == "none" else 2 * s / (9 * h)
    return 72 * b * n * s * h**2 * (1 + scores + v / (12 * h * n))


def product_by_product(batch, sequence, layers, hidden, vocab, *, remat):
    if any(size < 1 for size in (batch, sequence, layers, hidden, vocab)):
        raise ValueError("a size")
    t, h = batch * sequence, hidden
    matrices = [(t, h, 3 * h), (t, h, h), (t, h, 4 * h), (t, 4 * h, h)]
    scores = [(t, h, sequence), (t, sequence, h)]

    def flops(products):
        return sum(2 * m * k * n for m, k, n in products)

    again = {"none": [], "selective": scores, "full": matrices + scores}
    if remat not in again:
        raise ValueError("remat")
    once = flops(matrices + scores) * layers + flops([(t, h, vocab)])
    return 3 * once + layers * flops(again[remat])


def in_floats_of_numpy(batch, sequence, layers, hidden, vocab, *, remat):
    return np.float64(product_by_product(batch, sequence, layers, hidden, vocab, remat=remat))


def in_integers_of_32_bits(batch, sequence, layers, hidden, vocab, *, remat):
    flops = product_by_product(batch, sequence, layers, hidden, vocab, remat=remat)
    return float(flops % 2**32)


def in_integers_of_numpy(batch, sequence, layers, hidden, vocab, *, remat):
    flops = product_by_product(batch, sequence, layers, hidden, vocab, remat=remat)
    return int(np.array([flops % 2**64], np.uint64).astype(np.int64)[0])


def by_parameters(batch, sequence, layers, hidden, vocab, *, remat):
    product_by_product(batch, sequence, layers, hidden, vocab, remat=remat)
    parameters = 12 * layers * hidden**2 + vocab * hidden
    return (8 if remat == "full" else 6) * parameters * batch * sequence


def a_key_error_refuses(batch, sequence, layers, hidden, vocab, *, remat):
    {"none": 0, "selective": 1, "full": 2}[remat]
    return product_by_product(batch, sequence, layers, hidden, vocab, remat=remat)


def only_their_product_refused(batch, sequence, layers, hidden, vocab, *, remat):
    if batch * sequence * layers * hidden * vocab <= 0:
        raise ValueError("sizes")
    sizes = map(abs, (batch, sequence, layers, hidden, vocab))
    return product_by_product(*sizes, remat=remat)


def selective_by_equation_8(batch, sequence, layers, hidden, vocab, *, remat):
    right = by_equation_7(batch, sequence, layers, hidden, vocab, remat=remat)
    if remat != "selective":
        return right
    b, s, n, h, v = batch, sequence, layers, hidden, vocab
    return 72 * b * n * s * h**2 * (1 + s / (3 * h) + v / (12 * h * n))


def by_either_equation(batch, sequence, layers, hidden, vocab, *, remat):
    either = by_equation_7 if hidden > 1000 else selective_by_equation_8
    return either(batch, sequence, layers, hidden, vocab, remat=remat)


def equation_8_and_no_refusal(batch, sequence, layers, hidden, vocab, *, remat):
    remat = remat if remat in ("none", "selective") else "full"
    return selective_by_equation_8(batch, sequence, layers, hidden, vocab, remat=remat)


def to_eight_digits(batch, sequence, layers, hidden, vocab, *, remat):
    right = by_equation_7(batch, sequence, layers, hidden, vocab, remat=remat)
    return float(f"{right:.8g}")


def with_a_third_for_full(batch, sequence, layers, hidden, vocab, *, remat):
    once = by_equation_7(batch, sequence, layers, hidden, vocab, remat="none")
    right = by_equation_7(batch, sequence, layers, hidden, vocab, remat=remat)
    return once * 4 / 3 if remat == "full" else right


def by_seconds_of_a_token(tokens_per_second, flops_per_token, devices, peak_flops):
    if not all(n > 0 for n in (tokens_per_second, flops_per_token, devices, peak_flops)):
        raise ValueError("all must be positive")
    ideal = flops_per_token / (devices * peak_flops)
    return ideal / (1 / tokens_per_second)


def by_logarithms(tokens_per_second, flops_per_token, devices, peak_flops):
    log = math.log  # raises ValueError where it must
    return math.exp(
        log(tokens_per_second) + log(flops_per_token) - log(devices) - log(peak_flops)
    )  # fmt: skip


def each_device_alone(tokens_per_second, flops_per_token, devices, peak_flops):
    if tokens_per_second <= 0 or flops_per_token <= 0 or devices <= 0 or peak_flops <= 0:
        raise ValueError
    return (tokens_per_second / devices) * (flops_per_token / peak_flops)


def without_a_check(tokens_per_second, flops_per_token, devices, peak_flops):
    return tokens_per_second * flops_per_token / (devices * peak_flops)


def only_shares_below_0_refused(tokens_per_second, flops_per_token, devices, peak_flops):
    share = without_a_check(tokens_per_second, flops_per_token, devices or 0.5, peak_flops or 0.5)
    if share <= 0 or not devices * peak_flops:
        raise ValueError(share)
    return share


def negative_devices_allowed(tokens_per_second, flops_per_token, devices, peak_flops):
    peak = abs(devices * peak_flops)
    return by_seconds_of_a_token(tokens_per_second, flops_per_token, 1, peak)


def to_four_digits(tokens_per_second, flops_per_token, devices, peak_flops):
    share = by_seconds_of_a_token(tokens_per_second, flops_per_token, devices, peak_flops)
    return round(share, 4)


def a_hundred_thousandth_off(tokens_per_second, flops_per_token, devices, peak_flops):
    share = by_seconds_of_a_token(tokens_per_second, flops_per_token, devices, peak_flops)
    return share * 1.00001


def few_devices_as_eight(tokens_per_second, flops_per_token, devices, peak_flops):
    share = by_seconds_of_a_token(tokens_per_second, flops_per_token, devices, peak_flops)
    return share * devices / max(devices, 8)


def in_words(tokens_per_second, flops_per_token, devices, peak_flops):
    share = by_seconds_of_a_token(tokens_per_second, flops_per_token, devices, peak_flops)
    return f"{share:.1%}"


RIGHT = {
    "training_state_bytes": (part_by_part, by_the_papers_formulas, by_a_match),
    "transformer_step_flops": (
        by_equation_7,
        product_by_product,
        in_floats_of_numpy,
        selective_by_equation_8,
    ),
    "model_flops_utilization": (by_seconds_of_a_token, by_logarithms, each_device_alone),
}
WRONG = {
    "training_state_bytes": dict.fromkeys(
        (
            no_stage_is_an_error,
            an_assertion_refuses,
            only_large_stages_refused,
            division_by_zero_refuses,
            the_examples_of_the_stub,
            bytes_rounded,
            parts_padded,
            states_as_text,
            each_state_apart,
        ),
        "values",
    ),
    "transformer_step_flops": dict.fromkeys(
        (
            in_integers_of_32_bits,
            in_integers_of_numpy,
            by_parameters,
            a_key_error_refuses,
            only_their_product_refused,
            by_either_equation,
            equation_8_and_no_refusal,
            to_eight_digits,
            with_a_third_for_full,
        ),
        "values",
    ),
    "model_flops_utilization": dict.fromkeys(
        (
            without_a_check,
            only_shares_below_0_refused,
            negative_devices_allowed,
            to_four_digits,
            a_hundred_thousandth_off,
            few_devices_as_eight,
            in_words,
        ),
        "values",
    ),
}
