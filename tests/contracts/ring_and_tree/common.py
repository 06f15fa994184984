"""What answers to several exercises are made of."""

from __future__ import annotations


def steps_to_reach(n):
    return (n - 1).bit_length()
