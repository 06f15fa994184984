"""The roofline against figures of the scaling book."""

import pytest

from jaxpar.cost.roofline import attainable_flops, product_intensity


def test_a_product_reads_two_matrices_and_writes_one() -> None:
    assert product_intensity(2, 3, 5, element_bytes=1) == 60 / 31
    assert product_intensity(1024, 1024, 1024) == pytest.approx(1024 / 3)


def test_few_rows_have_about_one_flop_for_each_byte_of_16_bits_a_row() -> None:
    assert product_intensity(1, 8192, 8192) == pytest.approx(1, rel=3e-4)
    assert product_intensity(240, 8192, 8192) == pytest.approx(240, rel=0.06)


def test_a_v5e_is_bound_by_memory_below_240_rows() -> None:
    peak, bandwidth = 197e12, 819e9
    assert attainable_flops(100, peak, bandwidth) == 100 * bandwidth
    assert attainable_flops(240, peak, bandwidth) < peak
    assert attainable_flops(241, peak, bandwidth) == peak
