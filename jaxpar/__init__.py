"""jaxpar: a course and a small library on training models too large for one device, in JAX."""

__version__ = "0.1.0"
