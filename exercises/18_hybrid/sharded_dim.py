"""Exercise sharded_dim (lesson 18): where a leaf is sharded that other axes split.

Your task: return the dim along which the leaf is sharded, or None, and the axes that shard it.

Save it while `jaxpar` runs, or check it with `jaxpar check sharded_dim`.
"""

# What is judged (5 points; values must be right to earn the rest)
#   values        5  right for every call tried, among them random ones
#
# For example:
#   sharded_dim((8, 64, 192), (("pp",), (), ("tp",)), {"pp": 2, "fsdp": 4, "tp": 2}, ("fsdp",),
#       stacked=True) -> (1, ("fsdp",))
#   sharded_dim((258, 64), (("tp",), ()), {"pp": 2, "fsdp": 4, "tp": 2}, ("fsdp",), stacked=False)
#       -> (1, ("fsdp",))
#   sharded_dim((8, 36), (("pp",), ()), {"pp": 2, "fsdp": 4, "cp": 2, "tp": 2}, ("fsdp", "cp"),
#       stacked=True) -> (1, ("cp",))
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

from collections.abc import Mapping, Sequence


def sharded_dim(
    shape: Sequence[int],
    splits: Sequence[Sequence[str]],
    sizes: Mapping[str, int],
    axes: Sequence[str],
    *,
    stacked: bool,
) -> tuple[int | None, tuple[str, ...]]:
    """The dim along which ZeRO shards a leaf, and the axes over which it does.

    Of `axes`, those take part that have several devices and split no dim of the leaf already. The
    leaf is sharded along the first dim whose local size, that of one device while the leaf is used,
    is a multiple of the number of devices on these axes together; it may be a dim that is split. If
    there is none, the outermost of these axes is left out, and so on. If no axis is left, the
    result is (None, ()). An empty dim is not sharded.

    Source: Rajbhandari et al. 2020 (ZeRO), section 5; Zhao et al. 2023 (PyTorch FSDP), section 3

    Args:
        shape: the global shape of the leaf.
        splits: for each dim, the axes that split it while the leaf is used; they divide its size.
        sizes: the sizes of the mesh's axes.
        axes: the axes whose devices compute with equal parameters, outermost first.
        stacked: whether dim 0 has the layers, which a loop takes one by one; it is not sharded.

    Returns:
        The dim, counted in `shape`, and the axes in the order in which they are given.
    """
    raise NotImplementedError(
        "return the dim along which the leaf is sharded, or None, and the axes that shard it"
    )
