"""Inference: a cache of keys and values, a scheduler, and the engine that answers requests."""
