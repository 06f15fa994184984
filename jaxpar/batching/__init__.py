"""Continuous batching as plain data: pages of a cache, a scheduler, and measures. No JAX."""
