"""Measures a run's cluster: links between processes, collectives, and what each process reaches.

Every process calls these functions in the same order, and gets the same results.
"""

import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxpar.collectives.primitives import all_gather, all_to_all, permute
from jaxpar.collectives.reductions import all_reduce, reduce_scatter
from jaxpar.cost.communication import Kind, wire_bytes
from jaxpar.train.key_value import KeyValueStore
from jaxpar.train.launch import HUNG

SIZES = (2**3, 2**15, 2**20, 2**22, 2**24)
"""Bytes of a message, and of the whole array of a collective."""
FLOAT_BYTES = 4
MOST_REPETITIONS, MEASURED_SECONDS = 20, 0.5
SECONDS_ALLOWED = 60  # for the repetitions of one collective
PACKET_BYTES = 1000  # a message up to here is a single packet on every network
AXIS = "all"
UNREACHED = (
    "all reach process 0, and not each other: check what each host's name resolves to, the "
    "interfaces, and firewalls between them"
)
LOST = (
    "one packet came through before, and packets of full size are lost: compare the MTU of all "
    "interfaces and of the switches between them (ping -M do -s 8972 HOST, or 1472 without jumbo "
    "frames); else look for a process that is stuck"
)
LEAST_SECONDS = 0.02  # what a product or a copy takes at least, so that its start does not count
DTYPES: Mapping[str, Any] = {"bf16": jnp.bfloat16, "fp32": jnp.float32}


@dataclass(frozen=True)
class Timing:
    """How long a message or a collective takes on the slowest process.

    Attributes:
        kind: the collective.
        num_bytes: of the whole array: what a device has after an all-gather, and before the others.
        devices: how many take part.
        seconds: the median of several calls.
    """

    kind: Kind
    num_bytes: int
    devices: int
    seconds: float

    @property
    def algorithm_bytes_per_second(self) -> float:
        """Bytes of the whole array, over the time."""
        return self.num_bytes / self.seconds

    @property
    def bus_bytes_per_second(self) -> float:
        """Bytes that a device sends at least, over the time: what a link between them carries.

        Source: NVIDIA/nccl-tests, doc/PERFORMANCE.md
        """
        gathers = self.kind == "all_gather"
        operand = self.num_bytes / self.devices if gathers else self.num_bytes
        return wire_bytes(self.kind, operand, self.devices) / self.seconds


@dataclass(frozen=True)
class Pair:
    """The link between two processes, which all devices of both use at once.

    Attributes:
        processes: their numbers.
        num_bytes: the sizes of messages, over all devices, in one direction.
        seconds: the time of an exchange of each size: the fastest of several, on the slower side.
    """

    processes: Sequence[int]
    num_bytes: Sequence[int]
    seconds: Sequence[float]

    @property
    def latency_seconds(self) -> float:
        """The time of the smallest message."""
        return self.seconds[0]

    @property
    def bytes_per_second(self) -> float:
        """In one direction, by the largest message."""
        return self.num_bytes[-1] / self.seconds[-1]


@dataclass(frozen=True)
class Rates:
    """What a device of a process reaches while all devices of all processes are busy.

    Attributes:
        flops: of a matrix product, in a second, by dtype.
        memory_bytes_per_second: read and written by an addition.
        host_latency_seconds: the time to copy 4 bytes from the host.
        host_bytes_per_second: to copy from the host to the device.
    """

    flops: Mapping[str, float]
    memory_bytes_per_second: float
    host_latency_seconds: float
    host_bytes_per_second: float


def measure_collectives(store: KeyValueStore, devices: Sequence[Any]) -> Iterator[Timing]:
    """Times every kind of collective over all devices, at each size; a permute goes to the next."""
    n = len(devices)
    for kind in BODIES:
        for size in SIZES:
            elements = max(1, size // FLOAT_BYTES // n) * n
            yield _timing(store, kind, devices, elements, shift=1)


def measure_permutes(
    store: KeyValueStore, devices: Sequence[Any], per_node: int
) -> tuple[list[Timing], list[Timing]]:
    """Times permutes that stay inside nodes, and permutes that go to the next node.

    All devices send at once. `devices` are sorted by node, with `per_node` on each; the list is
    empty where a node has one device, or there is one node.
    """
    inside, between = [], []
    for size in SIZES:
        elements = max(1, size // FLOAT_BYTES)
        if per_node > 1:
            inside.append(_timing(store, "permute", devices, elements, shift=1, within=per_node))
        if per_node < len(devices):
            between.append(_timing(store, "permute", devices, elements, shift=per_node))
    return inside, between


def measure_pairs(store: KeyValueStore) -> list[Pair]:
    """Times exchanges of each two processes, of pairs that have no process in common at once."""
    mine = []
    for pairs in rounds(store.count):
        store.gather("ready for a round", None)  # so that the pair that fails is named, no other
        mine += [_exchange(store, pair) for pair in pairs if store.rank in pair]
    told = [Pair(**one) for theirs in store.gather("pairs", mine) for one in theirs]
    told.sort(key=lambda pair: tuple(pair.processes))
    both = zip(told[::2], told[1::2], strict=True)  # each pair as seen from either side
    return [
        replace(one, seconds=tuple(map(max, one.seconds, other.seconds))) for one, other in both
    ]


def measure_rates(store: KeyValueStore) -> list[Rates]:
    """What the devices of each process compute and move, all at the same time."""
    store.gather("ready to compute", None)
    mesh = Mesh(np.array(jax.local_devices()), (AXIS,))
    copied = 2**26
    host = np.ones(copied // FLOAT_BYTES, np.float32)
    memory = _memory_rate(mesh)
    mine = Rates(
        {name: _product_rate(mesh, dtype) for name, dtype in DTYPES.items()},
        memory,
        _copy_seconds(host[:1]),
        min(memory, copied / _copy_seconds(host)),  # a CPU may take the array as it is
    )
    return [Rates(**one) for one in store.gather("rates", vars(mine))]


def rounds(count: int) -> list[list[tuple[int, int]]]:
    """Every pair of `count` numbers once, in rounds in which no number comes twice.

    Source: the circle method of round-robin tournaments
    """
    numbers: list[int | None] = [*range(count), *([None] if count % 2 else [])]
    found = []
    for _ in range(len(numbers) - 1):
        half = len(numbers) // 2
        opposite = zip(numbers[:half], reversed(numbers[half:]), strict=True)
        found.append(
            [(min(a, b), max(a, b)) for a, b in opposite if a is not None and b is not None]
        )
        numbers[1:] = [numbers[-1], *numbers[1:-1]]
    return found


def _all_reduce(x: Array, shift: int, within: int) -> Array:
    return all_reduce(x, axis=AXIS)


def _all_gather(x: Array, shift: int, within: int) -> Array:
    return all_gather(x[: len(x) // within], axis=AXIS)


def _reduce_scatter(x: Array, shift: int, within: int) -> Array:
    return reduce_scatter(x.reshape(within, -1), axis=AXIS)


def _all_to_all(x: Array, shift: int, within: int) -> Array:
    return all_to_all(x.reshape(within, -1), axis=AXIS)


def _permute(x: Array, shift: int, within: int) -> Array:
    n = jax.lax.axis_size(AXIS)
    if within == n:
        return permute(x, axis=AXIS, shift=shift)
    pairs = [(i, i - i % within + (i + shift) % within) for i in range(n)]
    return jax.lax.ppermute(x, AXIS, pairs)


BODIES: Mapping[Kind, Callable[[Array, int, int], Array]] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "permute": _permute,
}


def _exchange(store: KeyValueStore, pair: tuple[int, int]) -> dict[str, Any]:
    """Times messages of each size in both directions at once, between all devices of two processes.

    Returns the fields of a `Pair`.
    """
    sides = [[it for it in jax.devices() if it.process_index == rank] for rank in pair]
    each = min(map(len, sides))
    devices = [device for side in sides for device in side[:each]]
    sizes, seconds = [], []
    for size in SIZES:
        elements = max(1, size // FLOAT_BYTES // each)
        program, x = _program("permute", devices, elements, shift=each)
        name = f"an exchange of {size} bytes between processes {pair[0]} and {pair[1]}"
        seconds.append(min(_seconds(store, name, pair, program, x)))
        sizes.append(elements * FLOAT_BYTES * each)
    return {"processes": pair, "num_bytes": sizes, "seconds": seconds}


def _timing(
    store: KeyValueStore,
    kind: Kind,
    devices: Sequence[Any],
    elements: int,
    *,
    shift: int,
    within: int | None = None,
) -> Timing:
    """Times a collective over all devices, or a permute inside groups of `within` of them."""
    program, x = _program(kind, devices, elements, shift=shift, within=within)
    num_bytes = elements * FLOAT_BYTES
    name = f"{kind} of {num_bytes} bytes, shift {shift} within {within or len(devices)}"
    own = statistics.median(_seconds(store, name, range(store.count), program, x))
    return Timing(kind, num_bytes, len(devices), max(store.gather(name, own)))


def _program(
    kind: Kind, devices: Sequence[Any], elements: int, *, shift: int, within: int | None = None
) -> tuple[Callable[[Array], Array], Array]:
    """The compiled collective, and its operand: so many float32 on each device."""
    n = len(devices)
    mesh = Mesh(np.array(devices), (AXIS,))
    body = BODIES[kind]
    x = _ones(mesh, (n * elements,), jnp.float32)
    sharded = jax.shard_map(
        lambda x: body(x, shift, within or n), mesh=mesh, in_specs=P(AXIS), out_specs=P(AXIS)
    )
    return jax.jit(sharded).lower(x).compile(), x


def _seconds(
    store: KeyValueStore,
    name: str,
    members: Sequence[int],
    program: Callable[[Array], Array],
    x: Array,
) -> list[float]:
    """The times of several calls, which all members make equally often."""
    advice = UNREACHED if x.nbytes // x.sharding.num_devices <= PACKET_BYTES else LOST
    with _watched(store, name, advice):
        _timed(program, x)  # connects the processes
        once = _timed(program, x)
    if len(members) > 1:
        if store.rank == members[0]:
            store.tell(f"{name}/once", once)
        once = store.hear(f"{name}/once")
    repetitions = max(1, min(MOST_REPETITIONS, int(MEASURED_SECONDS / once)))
    with _watched(store, name, advice):
        return [_timed(program, x) for _ in range(repetitions)]


def _timed(program: Callable[[Array], Array], x: Array) -> float:
    before = time.perf_counter()
    jax.block_until_ready(program(x))
    return time.perf_counter() - before


@contextmanager
def _watched(store: KeyValueStore, what: str, advice: str) -> Iterator[None]:
    """Says what is wrong where a collective fails, or never ends: then it ends the process, too.

    Raises:
        ValueError: the collective fails.
    """
    process = f"process {store.rank} of {store.count}"
    timer = threading.Timer(SECONDS_ALLOWED, _give_up, [process, what, advice])
    timer.daemon = True
    timer.start()
    try:
        yield
    except (jax.errors.JaxRuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"measure_cluster: {process} cannot do {what}: {reason}; {advice}"
        ) from None
    finally:
        timer.cancel()


def _give_up(process: str, what: str, advice: str) -> None:
    waited = f"doctor: {process} has waited {SECONDS_ALLOWED} s for {what}"
    print(f"{waited}; {advice}", file=sys.stderr, flush=True)
    os._exit(HUNG)


def _product_rate(mesh: Mesh, dtype: Any) -> float:
    """FLOPs in a second on each device, of the smallest square product that takes long enough."""

    def product(n: int) -> tuple[float, float]:
        x = _ones(mesh, (mesh.size * n, n), dtype)
        body = jax.shard_map(lambda x: x @ x, mesh=mesh, in_specs=P(AXIS), out_specs=P(AXIS))
        return 2 * n**3, _best(body, x)

    return _rate(product, 256, 8192)


def _memory_rate(mesh: Mesh) -> float:
    """Bytes in a second that each device reads and writes."""

    def addition(n: int) -> tuple[float, float]:
        return 2 * n * FLOAT_BYTES, _best(
            lambda x: x + 1, _ones(mesh, (mesh.size * n,), jnp.float32)
        )

    return _rate(addition, 2**20, 2**28)


def _rate(work: Callable[[int], tuple[float, float]], least: int, most: int) -> float:
    """Amount over time, at the smallest of doubled sizes that takes long enough."""
    size = least
    while True:
        amount, seconds = work(size)
        if seconds >= LEAST_SECONDS or size >= most:
            return amount / seconds
        size *= 2


def _best(function: Callable[[Array], Array], x: Array) -> float:
    program = jax.jit(function).lower(x).compile()
    _timed(program, x)
    return min(_timed(program, x) for _ in range(3))


def _copy_seconds(array: np.ndarray) -> float:
    device = jax.local_devices()[0]
    times = []
    for _ in range(4):
        before = time.perf_counter()
        jax.block_until_ready(jax.device_put(array, device))
        times.append(time.perf_counter() - before)
    return min(times[1:])


def _ones(mesh: Mesh, shape: tuple[int, ...], dtype: Any) -> Array:
    def part(index: Any) -> np.ndarray:
        sizes = [len(range(*one.indices(n))) for one, n in zip(index, shape, strict=True)]
        return np.ones(sizes, dtype)

    return jax.make_array_from_callback(shape, NamedSharding(mesh, P(AXIS)), part)
