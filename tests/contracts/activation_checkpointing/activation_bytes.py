"""Answers to activation_bytes: right ones by other routes, and wrong ones."""

from __future__ import annotations

import numpy as np
from jax import numpy as jnp

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


@right
def as_the_papers_rows(b, s, h, heads, layers, *, tp, sequence_parallel, remat):
    rows = {
        ("none", False): s * b * h * (10 + 24 / tp + 5 * heads * s / (h * tp)),
        ("none", True): s * b * h / tp * (34 + 5 * heads * s / h),
        ("selective", False): s * b * h * (10 + 24 / tp),
        ("selective", True): 34 * s * b * h / tp,
        ("full", False): 2 * s * b * h,
        ("full", True): 2 * s * b * h,
    }
    if (remat, sequence_parallel) not in rows:
        raise ValueError(f"remat is {remat}")
    return layers * rows[remat, sequence_parallel]


@right
def array_by_array(b, s, h, heads, layers, *, tp, sequence_parallel, remat):
    if remat not in ("none", "selective", "full"):
        raise ValueError(f"{remat=}")
    x, scores, mask = 2 * s * b * h, 2 * s * s * b * heads, s * b * h
    outside = [x, x, x, x, mask, mask]
    inside = [x, x, x, x, 4 * x, 4 * x]
    if remat == "none":
        inside += [scores, scores // 2, scores]
    if remat == "full":
        outside, inside = [x], []
        sequence_parallel = False
    per_layer = sum(outside) / (tp if sequence_parallel else 1) + sum(inside) / tp
    return per_layer * layers


@right
def by_counts_of_a_token(b, s, h, heads, layers, *, tp, sequence_parallel, remat):
    counts = {"none": (10, 24, 5), "selective": (10, 24, 0), "full": (2, 0, 0)}
    if remat not in counts:
        raise ValueError(remat)
    outside, inside, scores = counts[remat]
    whole = tp if sequence_parallel and remat != "full" else 1
    token = outside * h / whole + (inside * h + scores * heads * s) / tp
    return b * s * layers * token


@right
def as_a_product_of_numpy(b, s, h, heads, layers, *, tp, sequence_parallel, remat):
    match remat, sequence_parallel:
        case "none", _:
            kept = np.array([10.0, 24.0, 5 * heads * s / h])
        case "selective", _:
            kept = np.array([10.0, 24.0, 0.0])
        case "full", _:
            kept = np.array([2.0, 0.0, 0.0])
        case _:
            raise ValueError(remat)
    first = tp if sequence_parallel and remat != "full" else 1
    return np.dot(kept, 1 / np.array([first, tp, tp])) * b * s * h * layers


@wrong("values")
def by_a_key_error(b, s, h, heads, layers, *, tp, sequence_parallel, remat):
    of = {"none": 5 * heads * s * s * b, "selective": 0, "full": None}[remat]
    if of is None:
        return layers * 2 * s * b * h
    return layers * (10 * s * b * h / (tp if sequence_parallel else 1) + (24 * s * b * h + of) / tp)


@wrong("values")
def heads_and_width_swapped(b, s, h, heads, layers, **split):
    return as_the_papers_rows(b, s, heads, h, layers, **split)


@wrong("values")
def in_gib(*sizes, **split):
    return as_the_papers_rows(*sizes, **split) / 2**30


@wrong("values")
def in_a_text(*sizes, **split):
    return str(as_the_papers_rows(*sizes, **split))


@wrong("values")
def in_the_words_of_an_error(*sizes, remat, **split):
    if remat not in ("none", "selective", "full"):
        return "raises ValueError"
    return as_the_papers_rows(*sizes, remat=remat, **split)


@wrong("values")
def larger_than_any_float(*sizes, **split):
    return 10**400


@wrong("values")
def always_split_by_tp(*sizes, tp, sequence_parallel, remat):
    return as_the_papers_rows(*sizes, tp=1, sequence_parallel=True, remat=remat) / tp


@wrong("values")
def no_remat_is_none(*sizes, remat, **split):
    return as_the_papers_rows(*sizes, remat=remat or "none", **split)


@wrong("values")
def remat_found_within_words(*sizes, remat, **split):
    if not any(name in remat for name in ("none", "selective", "full")):
        raise ValueError(remat)
    remat = next(name for name in ("full", "selective", "none") if name in remat)
    return as_the_papers_rows(*sizes, remat=remat, **split)


@wrong("values")
def remat_checked_without_sequence_parallelism(*sizes, sequence_parallel, remat, **split):
    if sequence_parallel and remat not in ("none", "selective", "full"):
        remat = "full"
    return as_the_papers_rows(*sizes, sequence_parallel=sequence_parallel, remat=remat, **split)


@wrong("values")
def whole_on_a_device_alone(b, s, h, heads, layers, *, tp, **how):
    kept = as_the_papers_rows(b, s, h, heads, layers, tp=tp, **how)
    return kept + (2 * s * b * h if tp == 1 else 0)


@wrong("values")
def at_most_16_devices(*sizes, tp, **how):
    return as_the_papers_rows(*sizes, tp=min(tp, 16), **how)


@wrong("values")
def scores_of_two_tokens_at_least(b, s, h, heads, layers, *, tp, **how):
    kept = as_the_papers_rows(b, s, h, heads, layers, tp=tp, **how)
    scores = 5 * heads * b * layers / tp
    return kept - scores if s == 1 and how["remat"] == "none" else kept


@wrong("values")
def heads_of_128(b, s, h, heads, layers, **how):
    heads = h // 128 if h % 128 == 0 else heads
    return as_the_papers_rows(b, s, h, heads, layers, **how)


@wrong("values")
def in_float32_of_jax(*sizes, tp, **how):
    return jnp.float32(as_the_papers_rows(*sizes, tp=tp, **how))
