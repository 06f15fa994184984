"""Techniques that parallelize training, one in each file.

Every public function works on one device's shards, inside `jax.shard_map`, unless it says
otherwise. Docstrings state what is sent and held in the grammar of `jaxpar.collectives`, in which
the name of a pytree stands for the number of its elements on one device. In a signature, the name
of a dim that is split ends with the axis: in "b t f_tp" each device holds a shard of dim f. The
suffix only marks the dim: the axis is the one that the argument `axis` names.
"""
