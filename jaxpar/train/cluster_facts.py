"""What each process of a run says of itself and its host, and in what the processes differ."""

import ipaddress
import os
import platform
import re
import socket
import struct
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
from jaxlib.version import __version__ as jaxlib_version

from jaxpar import __version__
from jaxpar.train.key_value import KeyValueStore
from jaxpar.train.launch import ADDRESS, RANK

WATCHED = re.compile(r"XLA_FLAGS|LIBTPU_INIT_ARGS|(JAX|NCCL|GLOO)_.*")
OWN = {RANK, "JAX_LOCAL_DEVICE_IDS"}  # each process has its own
ROUND_TRIPS = 8
CLOCK_SECONDS = 1
SIOCGIFADDR = 0x8915  # Linux: the address of an interface


@dataclass(frozen=True)
class Facts:
    """What a process says of itself.

    Attributes:
        host: the name of its host.
        address: the address by which its host reaches process 0.
        named_address: the address that the name of its host resolves to, where others connect.
        interface: the network interface that has `address`; "" if that is unknown.
        mtu: the largest packet of this interface, in bytes; 0 if that is unknown.
        versions: of Python, jax, jaxlib and jaxpar.
        platform: what JAX computes on.
        kind: the kind of its devices.
        devices: their number.
        environment: the variables that JAX, XLA and what carries collectives read.
    """

    host: str
    address: str
    named_address: str
    interface: str
    mtu: int
    versions: Mapping[str, str]
    platform: str
    kind: str
    devices: int
    environment: Mapping[str, str]

    @property
    def compared(self) -> dict[str, str]:
        """What all processes must have alike, as text by what it is called."""
        alike = {"platform": self.platform, "device": self.kind, "devices": str(self.devices)}
        mtu = {"MTU": str(self.mtu)} if self.mtu else {}
        return {**self.versions, **alike, **mtu, **self.environment}


def look() -> Facts:
    """The facts of this process."""
    address = _address()
    interface = _interface(address)
    device = jax.local_devices()[0]
    return Facts(
        host=socket.gethostname(),
        address=address,
        named_address=_named_address(),
        interface=interface,
        mtu=_mtu(interface),
        versions={
            "python": platform.python_version(),
            "jax": jax.__version__,
            "jaxlib": jaxlib_version,
            "jaxpar": __version__,
        },
        platform=device.platform,
        kind=device.device_kind,
        devices=jax.local_device_count(),
        environment={
            name: value
            for name, value in sorted(os.environ.items())
            if WATCHED.fullmatch(name) and name not in OWN
        },
    )


def differences(processes: Sequence[Facts]) -> list[str]:
    """What is not alike, a line for each process that has not what most have."""
    lines = []
    compared = [facts.compared for facts in processes]
    for name in dict.fromkeys(name for one in compared for name in one):
        values = [one.get(name, "nothing") for one in compared]
        usual, _ = Counter(values).most_common(1)[0]
        other = values.index(usual)
        lines += [
            f"{name}: process {rank} ({processes[rank].host}) has {value}, and process {other} "
            f"({processes[other].host}) {usual}; make all equal"
            for rank, value in enumerate(values)
            if value != usual
        ]
    return lines


def unreachable(processes: Sequence[Facts]) -> list[str]:
    """Hosts whose name leads the others to themselves, a line for each; none on a single host."""
    if len({facts.host for facts in processes}) == 1:
        return []
    return [
        f"interface: the name of {facts.host} (process {rank}) resolves to {facts.named_address}, "
        "a loopback address, where no other host reaches it; give it the address of its network "
        "card in /etc/hosts or in DNS"
        for rank, facts in enumerate(processes)
        if _is_loopback(facts.named_address)
    ]


def clock_offset(store: KeyValueStore) -> tuple[float, float]:
    """By how many seconds this clock is ahead of that of process 0, and the error at most.

    Math: of several round trips the fastest, from t0 to t1 here, with time t there: the offset is
        (t0 + t1)/2 - t, and the error at most (t1 - t0)/2
    Source: Mills 1991, Internet Time Synchronization: the Network Time Protocol, section 3
    """
    if store.rank == 0:
        for rank in range(1, store.count):
            for trip in range(ROUND_TRIPS):
                store.hear(f"clock/{rank}/{trip}/asks")
                store.tell(f"clock/{rank}/{trip}/answer", time.time())
        return 0.0, 0.0
    trips = []
    for trip in range(ROUND_TRIPS):
        before = time.time()
        store.tell(f"clock/{store.rank}/{trip}/asks", None)
        there = store.hear(f"clock/{store.rank}/{trip}/answer")
        after = time.time()
        trips.append(((after - before) / 2, (before + after) / 2 - there))
    error, offset = min(trips)
    return offset, error


def wrong_clocks(processes: Sequence[Facts], offsets: Sequence[tuple[float, float]]) -> list[str]:
    """Clocks that are off by more than a second, a line for each."""
    return [
        f"clock: that of process {rank} ({processes[rank].host}) is {abs(offset):.1f} s "
        f"{'ahead of' if offset > 0 else 'behind'} that of process 0; set both by NTP "
        "(chronyc tracking), or times in logs mislead"
        for rank, (offset, error) in enumerate(offsets)
        if abs(offset) - error > CLOCK_SECONDS
    ]


def _address() -> str:
    """The address of the interface that leads to process 0; no packet is sent."""
    host = os.environ.get(ADDRESS, "").rpartition(":")[0] or _coordinator_host()
    with suppress(OSError):
        family, *_, target = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(target)
            return probe.getsockname()[0]
    return "127.0.0.1"


def _coordinator_host() -> str:
    from jax._src import distributed

    address: Any = distributed.global_state.coordinator_address
    return address.rpartition(":")[0] if address else "127.0.0.1"


def _named_address() -> str:
    with suppress(OSError):
        return socket.gethostbyname(socket.gethostname())
    return ""


def _is_loopback(address: str) -> bool:
    return bool(address) and ipaddress.ip_address(address).is_loopback


def _interface(address: str) -> str:
    """The name of the interface with this address; "" where the system does not tell."""
    with suppress(ImportError, OSError):
        import fcntl

        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            for _, name in socket.if_nameindex():
                with suppress(OSError):  # it has no IPv4 address
                    request = struct.pack("256s", name.encode())
                    reply = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, request)
                    if socket.inet_ntoa(reply[20:24]) == address:
                        return name
    return ""


def _mtu(interface: str) -> int:
    with suppress(OSError, ValueError):
        return int(Path(f"/sys/class/net/{interface}/mtu").read_text())
    return 0
