"""Ways to split training over devices, one technique in each file.

Every public function works on one device's part of its arrays, inside `jax.shard_map`. Docstrings
state what is sent and held in the grammar of `jaxpar.collectives`; there the name of a pytree
stands for the number of its elements on one device.
"""
