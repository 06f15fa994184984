"""Answers to transformer_step_flops: right ones by other routes, and wrong ones."""

from __future__ import annotations

import math
from fractions import Fraction

import jax.numpy as jnp
import numpy as np

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


@right
def by_equation_7(batch, sequence, layers, hidden, vocab, *, remat):
    sizes = batch, sequence, layers, hidden, vocab
    if min(sizes) <= 0 or remat not in ("none", "selective", "full"):
        raise ValueError("sizes or remat")
    b, s, n, h, v = sizes
    if remat == "full":
        return 96 * b * s * n * h**2 * (1 + s / (6 * h) + v / (16 * n * h))
    scores = s / (6 * h) if remat == "none" else 2 * s / (9 * h)
    return 72 * b * n * s * h**2 * (1 + scores + v / (12 * h * n))


@right
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


@right
def in_floats_of_numpy(batch, sequence, layers, hidden, vocab, *, remat):
    return np.float64(product_by_product(batch, sequence, layers, hidden, vocab, remat=remat))


@right
def selective_by_equation_8(batch, sequence, layers, hidden, vocab, *, remat):
    right = by_equation_7(batch, sequence, layers, hidden, vocab, remat=remat)
    if remat != "selective":
        return right
    b, s, n, h, v = batch, sequence, layers, hidden, vocab
    return 72 * b * n * s * h**2 * (1 + s / (3 * h) + v / (12 * h * n))


@right
def by_parameters_and_attention(batch, sequence, layers, hidden, vocab, *, remat):
    b, s, n, h, v = batch, sequence, layers, hidden, vocab
    if not min(b, s, n, h, v) >= 1 or remat not in {"none", "selective", "full"}:
        raise ValueError
    layer = Fraction(2) * 12 * h * h + 4 * s * h
    again = {"none": 0, "selective": 4 * s * h, "full": layer}[remat]
    return float(b * s * (n * (3 * layer + again) + 6 * h * v))


@right
def by_logs_of_terms(batch, sequence, layers, hidden, vocab, *, remat):
    logs = [math.log(size) for size in (batch, sequence, layers, hidden, vocab)]
    times = {"none": (72, 12), "selective": (72, 16), "full": (96, 16)}
    if remat not in times:
        raise ValueError(remat)
    matrices, scores = times[remat]
    exponents = [(matrices, 1, 1, 1, 2, 0), (scores, 1, 2, 1, 1, 0), (6, 1, 1, 0, 1, 1)]
    return math.fsum(
        k * math.exp(math.fsum(map(math.prod, zip(logs, powers, strict=True))))
        for k, *powers in exponents
    )


@wrong("values")
def in_integers_of_32_bits(batch, sequence, layers, hidden, vocab, *, remat):
    flops = product_by_product(batch, sequence, layers, hidden, vocab, remat=remat)
    return float(flops % 2**32)


@wrong("values")
def in_integers_of_numpy(batch, sequence, layers, hidden, vocab, *, remat):
    flops = product_by_product(batch, sequence, layers, hidden, vocab, remat=remat)
    return int(np.array([flops % 2**64], np.uint64).astype(np.int64)[0])


@wrong("values")
def by_parameters(batch, sequence, layers, hidden, vocab, *, remat):
    product_by_product(batch, sequence, layers, hidden, vocab, remat=remat)
    parameters = 12 * layers * hidden**2 + vocab * hidden
    return (8 if remat == "full" else 6) * parameters * batch * sequence


@wrong("values")
def a_key_error_refuses(batch, sequence, layers, hidden, vocab, *, remat):
    {"none": 0, "selective": 1, "full": 2}[remat]
    return product_by_product(batch, sequence, layers, hidden, vocab, remat=remat)


@wrong("values")
def only_their_product_refused(batch, sequence, layers, hidden, vocab, *, remat):
    if batch * sequence * layers * hidden * vocab <= 0:
        raise ValueError("sizes")
    sizes = map(abs, (batch, sequence, layers, hidden, vocab))
    return product_by_product(*sizes, remat=remat)


@wrong("values")
def by_either_equation(batch, sequence, layers, hidden, vocab, *, remat):
    either = by_equation_7 if hidden > 1000 else selective_by_equation_8
    return either(batch, sequence, layers, hidden, vocab, remat=remat)


@wrong("values")
def equation_8_and_no_refusal(batch, sequence, layers, hidden, vocab, *, remat):
    remat = remat if remat in ("none", "selective") else "full"
    return selective_by_equation_8(batch, sequence, layers, hidden, vocab, remat=remat)


@wrong("values")
def to_eight_digits(batch, sequence, layers, hidden, vocab, *, remat):
    right = by_equation_7(batch, sequence, layers, hidden, vocab, remat=remat)
    return float(f"{right:.8g}")


@wrong("values")
def with_a_third_for_full(batch, sequence, layers, hidden, vocab, *, remat):
    once = by_equation_7(batch, sequence, layers, hidden, vocab, remat="none")
    right = by_equation_7(batch, sequence, layers, hidden, vocab, remat=remat)
    return once * 4 / 3 if remat == "full" else right


@wrong("values")
def one_token_has_no_scores(batch, sequence, layers, hidden, vocab, *, remat):
    flops = product_by_product(batch, sequence, layers, hidden, vocab, remat=remat)
    once = 4 * batch * layers * hidden
    return flops - (3 + (remat != "none")) * once if sequence == 1 else flops


@wrong("values")
def sequences_of_131_072_at_most(batch, sequence, layers, hidden, vocab, *, remat):
    sequence = min(sequence, 131_072)
    return product_by_product(batch, sequence, layers, hidden, vocab, remat=remat)


@wrong("values")
def at_most_300_layers(batch, sequence, layers, hidden, vocab, *, remat):
    return product_by_product(batch, sequence, min(layers, 300), hidden, vocab, remat=remat)


@wrong("values")
def vocabularies_of_today(batch, sequence, layers, hidden, vocab, *, remat):
    return product_by_product(batch, sequence, layers, hidden, min(vocab, 262_144), remat=remat)


@wrong("values")
def sizes_refused_where_nothing_is_recomputed(*sizes, remat):
    if remat == "none" and min(sizes) < 1:
        raise ValueError
    known = remat in ("none", "selective", "full")
    return product_by_product(*(size or 1 for size in map(abs, sizes)), remat=remat if known else 1)


@wrong("values")
def tokens_refused_together(batch, sequence, layers, hidden, vocab, *, remat):
    if batch * sequence <= 0 or min(layers, hidden, vocab) <= 0:
        raise ValueError
    return product_by_product(abs(batch), abs(sequence), layers, hidden, vocab, remat=remat)


@wrong("values")
def no_remat_is_none(*sizes, remat):
    return product_by_product(*sizes, remat=remat or "none")


@wrong("values")
def remat_in_any_case(*sizes, remat):
    return product_by_product(*sizes, remat=remat.lower())


@wrong("values")
def remat_found_within_words(*sizes, remat):
    if remat not in "none, selective, full":
        raise ValueError
    found = next((name for name in ("selective", "full") if name in remat), "none")
    return product_by_product(*sizes, remat=found)


@wrong("values")
def in_float32_of_jax(*sizes, remat):
    return jnp.float32(product_by_product(*sizes, remat=remat))


@wrong("values")
def head_left_out_in_floats(batch, sequence, layers, hidden, vocab, *, remat):
    flops = product_by_product(batch, sequence, layers, hidden, vocab, remat=remat)
    return float(flops - 6 * batch * sequence * hidden * vocab)
