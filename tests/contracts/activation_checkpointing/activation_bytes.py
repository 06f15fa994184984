"""Answers to activation_bytes: right ones by other routes, and wrong ones."""

from __future__ import annotations

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
