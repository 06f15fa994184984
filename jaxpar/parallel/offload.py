"""Offload: keeps the optimizer's state in host memory or on disk, and fetches it leaf by leaf.

An elementwise optimizer updates a leaf of the parameters from its own gradient and its own state.
So the state of one leaf is fetched, used and written back before that of the next: a device holds
the state of only one leaf at a time (Rajbhandari et al. 2021, ZeRO-Infinity, section 5). AdamW in
fp32 has 8 bytes of state for each parameter. In a step, 16 bytes therefore cross the link between
host and device; with a disk, as many are read and written. ZeRO-Offload (Ren et al. 2021, section
3) sends less, because there the host's processors run the update: 2 bytes of gradient leave the
device, and 2 bytes of the new parameter come back, in half precision.

The bytes are counted from shapes; only real hardware shows how long they take. On a CPU both
memories are the same chips, although arrays in `pinned_host` are buffers of their own, and
arithmetic that mixes the two is refused, as on a GPU. A GPU reads page-locked ("pinned") memory by
itself, at the speed of PCIe; XLA uses at most 64 GB of it, or what
XLA_PJRT_GPU_HOST_MEMORY_LIMIT_GB says. Nothing overlaps here, and a device needs memory for one
leaf; with memory for two, the next leaf could be fetched while this one is used, as ZeRO-Infinity
does.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import optax
from jax import Array
from jax.sharding import Sharding
from jaxtyping import PyTree

HOST = "pinned_host"  # arithmetic moves arrays of the other kind, unpinned_host, to the device

LeafType = jax.ShapeDtypeStruct
"""The shape, dtype and sharding of a leaf."""


class Transfers(NamedTuple):
    """The bytes of state that one update moves to and from one device.

    Attributes:
        to_device_bytes: read from the store.
        to_store_bytes: written back to the store.
        held_bytes: the most that the device holds at a time.
    """

    to_device_bytes: int
    to_store_bytes: int
    held_bytes: int


@runtime_checkable
class Store(Protocol):
    """Keeps the leaves of a state between updates."""

    def put(self, key: str, leaf: Array) -> None:
        """Stores a leaf, in place of an older one; it is stored when the call returns."""
        ...

    def get(self, key: str, like: LeafType) -> Array:
        """Returns the leaf as a global array with the sharding of `like`."""
        ...

    def seal(self) -> None:
        """Records that all leaves belong to the same step, until the next `put`."""
        ...


class OffloadedState:
    """The state of an elementwise optimizer, in a store.

    A part of a tree is the same tree with only one of its leaves. The others are replaced by
    `optax.MaskedNode`, as in `optax.masked`, so that the optimizer's names and masks still apply. A
    transformation that looks at several leaves at once, such as clipping by the global norm, has to
    be applied to the gradients before.

    Source: Rajbhandari et al. 2021 (ZeRO-Infinity), section 5
    """

    def __init__(
        self,
        store: Store,
        init: Callable[[Any], Any],
        params: PyTree[Array],
        *,
        resume: bool = False,
    ) -> None:
        """Initializes the state of one leaf after the other, and stores it.

        Args:
            store: where the state is kept.
            init: `init(params)` is the state for any part of the parameters, with its shardings.
            params: the parameters.
            resume: whether to continue with the state that the store already holds.

        Raises:
            ValueError: the state is on other devices than the parameters, or the store fails.
        """
        self._store = store
        self._types: list[PyTree[LeafType]] = []
        for i, part in enumerate(parts(params)):
            state = init(part)
            _check_devices(state, part)
            self._types.append(jax.tree.map(_type_of, state))
            if resume:
                self._get(i)  # so that a store that does not fit is refused at once
            else:
                self._put(i, state)
            del state  # frees its memory before the next one is made
        if not resume:
            store.seal()
        self._is_consistent = True

    def update(
        self,
        update: Callable[[Any, Any, Any], tuple[Any, Any]],
        gradients: PyTree[Array],
        params: PyTree[Array],
    ) -> tuple[PyTree[Array], Transfers]:
        """Updates the parameters, one leaf after the other.

        `update(gradients, state, params) -> (params, state)` is called with each part. It should
        be jitted, and should donate its arguments.

        Memory: all parameters and gradients, and the state of the largest leaf.

        Raises:
            ValueError: the store fails, or an earlier update did not finish.
        """
        self._check_consistent()
        self._is_consistent = False
        treedef = jax.tree.structure(params)
        leaves = []
        pairs = zip(parts(gradients), parts(params), strict=True)
        for i, (gradient, part) in enumerate(pairs):
            part, state = update(gradient, self._get(i), part)
            self._put(i, state)
            del state  # frees its memory before the next one is fetched
            leaves += jax.tree.leaves(part)
        self._seal()
        return treedef.unflatten(leaves), self.transfers

    @property
    def transfers(self) -> Transfers:
        """The bytes that each update moves."""
        sizes = [
            sum(_device_bytes(leaf) for leaf in jax.tree.leaves(types)) for types in self._types
        ]
        return Transfers(sum(sizes), sum(sizes), max(sizes))

    def load(self) -> PyTree[Array]:
        """The full state, as `optimizer.init(params)` has it, as global arrays in host memory.

        Raises:
            ValueError: the store fails, or an update did not finish.
        """
        self._check_consistent()
        parts = [self._get(i, on_host=True) for i in range(len(self._types))]
        return jax.tree.map(_first_unmasked, *parts, is_leaf=_is_masked)

    def save(self, state: PyTree[Any]) -> None:
        """Replaces the stored state by a full state, which has the form that `load` returns."""
        self._is_consistent = False
        for i, types in enumerate(self._types):
            part = jax.tree.map(
                lambda type_, leaf: type_ if _is_masked(type_) else leaf,
                types, state, is_leaf=_is_masked,
            )  # fmt: skip
            self._put(i, part)
        self._seal()

    def _seal(self) -> None:
        self._store.seal()
        self._is_consistent = True

    def _check_consistent(self) -> None:
        if not self._is_consistent:
            raise ValueError(
                "offload: an update ended midway, so the leaves of the state are of two steps; go "
                "on from a checkpoint"
            )

    def _get(self, i: int, *, on_host: bool = False) -> Any:
        types, treedef = jax.tree.flatten(self._types[i])
        if on_host:
            types = [leaf.update(sharding=_on_host(leaf.sharding)) for leaf in types]
        return treedef.unflatten(self._store.get(f"{i}.{j}", leaf) for j, leaf in enumerate(types))

    def _put(self, i: int, state: PyTree[Any]) -> None:
        pairs = zip(jax.tree.leaves(self._types[i]), jax.tree.leaves(state), strict=True)
        for j, (type_, leaf) in enumerate(pairs):
            self._store.put(f"{i}.{j}", jax.device_put(leaf, type_.sharding))


class HostStore:
    """A store in host memory: each device's shards are kept by its own host.

    Source: Ren et al. 2021 (ZeRO-Offload), section 3

    Raises:
        ValueError: the devices cannot address such memory.
    """

    def __init__(self) -> None:
        self._leaves: dict[str, Array] = {}

    def put(self, key: str, leaf: Array) -> None:
        """Copies the leaf to the host."""
        on_host = jax.device_put(leaf, _on_host(leaf.sharding))
        self._leaves[key] = jax.block_until_ready(on_host)

    def get(self, key: str, like: LeafType) -> Array:
        """Copies the leaf to the sharding of `like`; the host keeps its own copy."""
        if key not in self._leaves:
            raise ValueError(
                f"offload: leaf {key} is not in host memory, which ends with its process; begin "
                "anew, or from a checkpoint"
            )
        return jax.device_put(self._leaves[key], like.sharding)

    def seal(self) -> None:
        """Does nothing, because host memory does not outlive the process."""


def parts(tree: PyTree[Any]) -> Iterator[PyTree[Any]]:
    """Yields the tree once for each leaf, with all other leaves replaced by `optax.MaskedNode`.

    Math: y_i = tree without the leaves j != i
    Comm:
        forward: nothing
        backward: nothing
    Memory: tree
    Source: Rajbhandari et al. 2021 (ZeRO-Infinity), section 5
    """
    leaves, treedef = jax.tree.flatten(tree)
    for i in range(len(leaves)):
        yield treedef.unflatten(
            leaf if i == j else optax.MaskedNode() for j, leaf in enumerate(leaves)
        )


def _is_masked(node: Any) -> bool:
    return isinstance(node, optax.MaskedNode)


def _first_unmasked(*parts: Any) -> Any:
    """The leaf of the part that has it; a scalar that all parts have is the same in all."""
    return next((part for part in parts if not _is_masked(part)), parts[0])


def _type_of(leaf: Array) -> LeafType:
    return LeafType(leaf.shape, leaf.dtype, sharding=leaf.sharding)


def _check_devices(state: PyTree[Array], params: PyTree[Array]) -> None:
    devices = set().union(*(leaf.sharding.device_set for leaf in jax.tree.leaves(params)))
    for leaf in jax.tree.leaves(state):
        if leaf.sharding.device_set != devices:
            raise ValueError(
                f"offload: init puts a leaf of shape {leaf.shape} on "
                f"{len(leaf.sharding.device_set)} devices; the parameters are on {len(devices)}; "
                "give out_shardings to the jit of init"
            )


def _device_bytes(leaf: LeafType) -> int:
    return math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize


def _on_host(sharding: Sharding) -> Sharding:
    """The same sharding, in host memory."""
    device = next(iter(sharding.addressable_devices))
    kinds = [memory.kind for memory in device.addressable_memories()]
    if HOST not in kinds:
        raise ValueError(
            f"offload: a device of kind {device.device_kind} addresses memory of kinds {kinds}; "
            f"offload to the host needs {HOST}; offload to the disk, or not at all"
        )
    return sharding.with_memory_kind(HOST)
