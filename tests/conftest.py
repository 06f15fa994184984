"""Every test runs on simulated CPU devices and refuses numpy's silent rank promotion."""

import jax

from jaxpar.mesh import simulate_devices

simulate_devices(16)
jax.config.update("jax_numpy_rank_promotion", "raise")
