"""What answers to several exercises are made of."""

from __future__ import annotations


def check(num_bytes, sizes, *links):
    if num_bytes < 0 or min(sizes) < 1:
        raise ValueError("bytes or a size")
    for latency, bandwidth in links:
        if latency < 0 or bandwidth <= 0:
            raise ValueError("a link")
