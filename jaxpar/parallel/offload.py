"""Offload: the optimizer's state lies in host memory or on disk, and visits the devices in parts.

An elementwise optimizer updates a leaf of the parameters from its own gradient and its own state.
So the state of one leaf comes, is used and goes back before the next one comes: a device holds
the state of one leaf at a time (Rajbhandari et al. 2021, ZeRO-Infinity, section 5). AdamW in fp32
has 8 bytes of state for each parameter: in a step, 16 bytes cross the link between host and
device, and with a disk as many are read and written. ZeRO-Offload (Ren et al. 2021, section 3)
sends less, because there the host's processors run the update: 2 bytes of gradient go out, and 2
of the new parameter come back, in half precision.

The bytes are counted from shapes. How long they take, only real hardware shows: on a CPU both
memories are the same chips, although arrays in `pinned_host` are other buffers, and arithmetic
that mixes the two is refused, as on a GPU. A GPU fetches page-locked ("pinned") memory itself, at
the speed of PCIe; XLA takes 64 GB of it at most, or what XLA_PJRT_GPU_HOST_MEMORY_LIMIT_GB says.
Nothing here overlaps, so that one leaf is the bound: with room for two, the next could come while
this one is used, as ZeRO-Infinity does.
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

Like = jax.ShapeDtypeStruct
"""Shape, dtype and layout of a leaf."""


class Moved(NamedTuple):
    """What one update moved; bytes of one device.

    Attributes:
        to_device_bytes: state that came from the store.
        to_store_bytes: state that went back.
        held_bytes: the most state that came at a time.
    """

    to_device_bytes: int
    to_store_bytes: int
    held_bytes: int


@runtime_checkable
class Store(Protocol):
    """Where the leaves of a state lie between updates."""

    def put(self, key: str, leaf: Array) -> None:
        """Keeps a leaf in place of the one that was there; done when it returns."""
        ...

    def get(self, key: str, like: Like) -> Array:
        """The leaf, as a global array where `like` wants it."""
        ...

    def seal(self) -> None:
        """Says that all leaves are of one step, until the next `put`."""
        ...


class Offloaded:
    """The state of an elementwise optimizer, in a store.

    A part of a tree is the tree with one leaf: the others are `optax.MaskedNode`, as in
    `optax.masked`, so that names and masks of the optimizer stay as they are. An optimizer that
    looks at several leaves at once (clipping by the global norm) has to do so before.

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
        """Makes the state of one leaf after the other, and stores it.

        Args:
            store: where it will lie.
            init: params -> state, for any part, laid out over the devices as it shall be.
            params: the parameters.
            resume: go on with the state that the store holds.

        Raises:
            ValueError: the state lies on other devices than the parameters, or the store refuses.
        """
        self._store = store
        self._likes: list[PyTree[Like]] = []
        for i, part in enumerate(parts(params)):
            state = init(part)
            _check_devices(state, part)
            self._likes.append(jax.tree.map(_like, state))
            if resume:
                self._get(i)  # refused now rather than later
            else:
                self._put(i, state)
            del state  # before the next one is made
        if not resume:
            store.seal()
        self._whole = True

    def update(
        self,
        update: Callable[[Any, Any, Any], tuple[Any, Any]],
        gradients: PyTree[Array],
        params: PyTree[Array],
    ) -> tuple[PyTree[Array], Moved]:
        """Updates the parameters, one leaf after the other.

        `update(gradients, state, params) -> (params, state)` is called with each part. It should
        be jitted, and give the memory of its arguments away.

        Memory: all parameters and gradients, and the state of the largest leaf.

        Raises:
            ValueError: the store refuses, or has since an update that did not end.
        """
        self._check_whole()
        self._whole = False
        treedef = jax.tree.structure(params)
        leaves = []
        pairs = zip(parts(gradients), parts(params), strict=True)
        for i, (gradient, part) in enumerate(pairs):
            part, state = update(gradient, self._get(i), part)
            self._put(i, state)
            del state  # before the next one comes
            leaves += jax.tree.leaves(part)
        self._seal()
        return treedef.unflatten(leaves), self.moved

    @property
    def moved(self) -> Moved:
        """What each update moves."""
        sizes = [
            sum(_device_bytes(like) for like in jax.tree.leaves(likes)) for likes in self._likes
        ]
        return Moved(sum(sizes), sum(sizes), max(sizes))

    def load(self) -> PyTree[Array]:
        """The whole state, as `optimizer.init(params)` has it: global arrays in host memory.

        Raises:
            ValueError: the store refuses, or an update did not end.
        """
        self._check_whole()
        parts = [self._get(i, _host) for i in range(len(self._likes))]
        return jax.tree.map(_first, *parts, is_leaf=_is_masked)

    def save(self, state: PyTree[Any]) -> None:
        """Stores a whole state, as `load` gives it, in place of what is there."""
        self._whole = False
        for i, likes in enumerate(self._likes):
            part = jax.tree.map(
                lambda like, leaf: like if _is_masked(like) else leaf,
                likes, state, is_leaf=_is_masked,
            )  # fmt: skip
            self._put(i, part)
        self._seal()

    def _seal(self) -> None:
        self._store.seal()
        self._whole = True

    def _check_whole(self) -> None:
        if not self._whole:
            raise ValueError(
                "offload: an update ended midway, so the leaves of the state are of two steps; go "
                "on from a checkpoint"
            )

    def _get(self, i: int, place: Callable[[Sharding], Sharding] = lambda same: same) -> Any:
        likes, treedef = jax.tree.flatten(self._likes[i])
        there = (like.update(sharding=place(like.sharding)) for like in likes)
        return treedef.unflatten(self._store.get(f"{i}.{j}", like) for j, like in enumerate(there))

    def _put(self, i: int, state: PyTree[Any]) -> None:
        pairs = zip(jax.tree.leaves(self._likes[i]), jax.tree.leaves(state), strict=True)
        for j, (like, leaf) in enumerate(pairs):
            self._store.put(f"{i}.{j}", jax.device_put(leaf, like.sharding))


class HostStore:
    """The memory of each device's own host.

    Source: Ren et al. 2021 (ZeRO-Offload), section 3

    Raises:
        ValueError: the devices reach no such memory.
    """

    def __init__(self) -> None:
        self._leaves: dict[str, Array] = {}

    def put(self, key: str, leaf: Array) -> None:
        """Copies the leaf to the host."""
        there = jax.device_put(leaf, _host(leaf.sharding))
        self._leaves[key] = jax.block_until_ready(there)

    def get(self, key: str, like: Like) -> Array:
        """Copies the leaf to where it is wanted; the host keeps its own."""
        if key not in self._leaves:
            raise ValueError(
                f"offload: leaf {key} is not in host memory, which ends with its process; begin "
                "anew, or from a checkpoint"
            )
        return jax.device_put(self._leaves[key], like.sharding)

    def seal(self) -> None:
        """Nothing: what lies in memory ends with the process."""


def parts(tree: PyTree[Any]) -> Iterator[PyTree[Any]]:
    """The tree with one of its leaves, for each; the others are `optax.MaskedNode`.

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


def _first(*parts: Any) -> Any:
    """The leaf that one of the parts has; a scalar, which all have, is the same in all."""
    return next((part for part in parts if not _is_masked(part)), parts[0])


def _like(leaf: Array) -> Like:
    return Like(leaf.shape, leaf.dtype, sharding=leaf.sharding)


def _check_devices(state: PyTree[Array], params: PyTree[Array]) -> None:
    devices = set().union(*(leaf.sharding.device_set for leaf in jax.tree.leaves(params)))
    for leaf in jax.tree.leaves(state):
        if leaf.sharding.device_set != devices:
            raise ValueError(
                f"offload: init puts a leaf of shape {leaf.shape} on "
                f"{len(leaf.sharding.device_set)} devices; the parameters lie on {len(devices)}; "
                "give out_shardings to the jit of init"
            )


def _device_bytes(like: Like) -> int:
    return math.prod(like.sharding.shard_shape(like.shape)) * like.dtype.itemsize


def _host(sharding: Sharding) -> Sharding:
    """The same layout in host memory."""
    device = next(iter(sharding.addressable_devices))
    kinds = [memory.kind for memory in device.addressable_memories()]
    if HOST not in kinds:
        raise ValueError(
            f"offload: a device of kind {device.device_kind} reaches memory of kinds {kinds}; "
            f"offload to the host needs {HOST}; offload to the disk, or not at all"
        )
    return sharding.with_memory_kind(HOST)
