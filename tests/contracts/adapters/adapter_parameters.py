"""Answers to adapter_parameters: right ones by other routes, and wrong ones."""

from __future__ import annotations

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


def _refused(numbers, method):
    if method not in ("lora", "prefix", "p_tuning_v2", "bitfit", "prompt") or min(numbers) < 1:
        raise ValueError("method or number")


@right
def by_a_list_of_matrices(
    layers, hidden, heads, kv_heads, head_size, ffn, *, gated, biases, method, rank, prefix
):
    _refused((layers, hidden, heads, kv_heads, head_size, ffn, rank, prefix), method)
    q, k = heads * head_size, kv_heads * head_size
    matrices = [(hidden, q), (hidden, k), (hidden, k), (q, hidden), (ffn, hidden)]
    matrices += [(hidden, ffn)] * (1 + gated)
    if method == "lora":
        return layers * sum(rank * i + rank * o for i, o in matrices)
    if method == "bitfit":
        norms = (2 * layers + 1) * hidden
        return layers * sum(o for _, o in matrices) + norms if biases else 0
    return prefix * (hidden if method == "prompt" else 2 * k * layers)


@wrong("values")
def in_millions(*sizes, **how):
    return by_a_list_of_matrices(*sizes, **how) / 1e6


@wrong("values")
def in_floats(*sizes, **how):
    return float(by_a_list_of_matrices(*sizes, **how)) * (1 + 1e-7)


@wrong("values")
def of_square_matrices(
    layers, hidden, heads, kv_heads, head_size, ffn, *, gated, biases, method, rank, prefix
):
    sizes = (layers, hidden, heads, heads, hidden // heads or 1, 4 * hidden)
    how = {"gated": gated, "biases": biases, "method": method, "rank": rank, "prefix": prefix}
    _refused((layers, hidden, heads, kv_heads, head_size, ffn, rank, prefix), method)
    return by_a_list_of_matrices(*sizes, **how)


@wrong("values")
def without_the_output_of_attention(*sizes, **how):
    right = by_a_list_of_matrices(*sizes, **how)
    layers, hidden, heads, _, head_size, _ = sizes
    lora = how["method"] == "lora"
    return right - lora * layers * how["rank"] * (hidden + heads * head_size)
