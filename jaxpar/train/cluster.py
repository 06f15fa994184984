"""Joining the other processes of a run, or saying within a stated time why that failed."""

import os
import socket
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

import jax

from jaxpar.train.launch import ADDRESS, COUNT, RANK


@dataclass(frozen=True)
class Place:
    """The place of this process among the processes of a run.

    Attributes:
        starter: what started the processes, as error messages name it.
        rank: the number of this process; None where only JAX can find it out.
        count: the number of processes; None where only JAX can find it out.
        address: the host:port where process 0 listens; None where JAX chooses one.
    """

    starter: str
    rank: int | None
    count: int | None
    address: str | None

    def __str__(self) -> str:
        """How error messages name this process."""
        number = "" if self.rank is None else f" {self.rank} of {self.count}"
        return f"process{number}, as {self.starter} says,"


def find_place(environment: Mapping[str, str]) -> Place | None:
    """The place that the environment gives this process; None if it is alone.

    Raises:
        ValueError: the environment describes a place only in part, or an impossible one.
    """
    address = environment.get(ADDRESS)
    if COUNT in environment or RANK in environment:
        number, count = _numbers(environment, RANK, COUNT)
        return _checked(Place("the environment", number, count, address))
    for starter, mark, rank, count in (
        ("Slurm", "SLURM_STEP_NODELIST", "SLURM_PROCID", "SLURM_NTASKS"),
        ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ):
        if mark in environment and environment.get(count, "1") != "1":
            number, total = _numbers(environment, rank, count)
            return Place(starter, number, total, address)
    if {"KUBERNETES_SERVICE_HOST", "JOB_COMPLETION_INDEX"} <= environment.keys():
        return Place("Kubernetes", None, None, address)
    if address:
        _numbers(environment, RANK, COUNT)
    return None


def join(place: Place | None, timeout_seconds: int) -> None:
    """Connects this process with the others; does nothing if there are none.

    Raises:
        ValueError: the others do not connect in time, or process 0 cannot listen.
    """
    if place is None:
        return
    if place.rank == 0 and place.address:
        _check_port(place.address)
    _keep_standard_output()
    failures: list[Exception] = []
    thread = threading.Thread(target=_connect, args=(place, timeout_seconds, failures), daemon=True)
    thread.start()
    thread.join(timeout_seconds)
    if thread.is_alive():
        raise ValueError(
            f"join_processes: {place} waited {timeout_seconds} s in vain: {explain(place)}"
        )
    if failures:
        raise ValueError(
            f"join_processes: {place} could not start: {str(failures[0]).splitlines()[0]}; set "
            f"{ADDRESS}=host:port, the same for all: the host of process 0, and a free port there"
        )


def explain(place: Place) -> str:
    """Says how this process tried to reach the others, and what to check."""
    all_started = (
        f"check that all {place.count or 'the'} processes were started, each with its own number"
    )
    if place.address is None:
        return (
            f"JAX took the address of process 0 from {place.starter}; {all_started}, that they "
            "reach each other, and that the port is free (JAX_COORDINATOR_PORT sets another)"
        )
    if place.rank == 0:
        return f"it listens at {place.address}, and others did not come; {all_started}"
    host, _, port = place.address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=2).close()
    except OSError as error:
        return (
            f"nobody answers at {place.address} ({error.strerror or error}); check that process 0 "
            "was started, that this is its address, and that no firewall is between"
        )
    return (
        f"somebody answers at {place.address}, and others did not come; {all_started}, and that "
        "this is the address of process 0"
    )


def leave(code: int, place: Place | None) -> NoReturn:
    """Ends this process with an exit code.

    If it is one of several and has failed, it ends at once: an orderly exit would wait for the
    others, which wait for this process.
    """
    if code and place:
        sys.stdout.flush()
        sys.stderr.flush()
        if place.rank == 0:
            time.sleep(1)  # its end ends all the others, so one that failed gets time to say why
        os._exit(code)
    sys.exit(code)


def _keep_standard_output() -> None:
    """Keeps stdout for Python: what Gloo prints, among our lines or JSON, goes to stderr."""
    sys.stdout.flush()
    sys.stdout = os.fdopen(os.dup(1), "w", encoding=sys.stdout.encoding)
    os.dup2(2, 1)


def _check_port(address: str) -> None:
    """Checks that the port is free, because XLA crashes if it is taken."""
    port = int(address.rpartition(":")[2])
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    try:
        socket.create_server(("", port), family=family, dualstack_ipv6=both).close()
    except OSError as error:
        raise ValueError(
            f"join_processes: process 0 cannot listen at {address} "
            f"({os.strerror(error.errno or 0)}); no other program may have this port; set "
            f"{ADDRESS} to a free one, the same for all processes"
        ) from None


def _connect(place: Place, timeout_seconds: int, failures: list[Exception]) -> None:
    """Connects by JAX, and adds an error to `failures`.

    JAX ends the whole process after its own timeout, which is therefore later than ours.
    """
    try:
        jax.distributed.initialize(
            place.address,
            place.count,
            place.rank,
            initialization_timeout=timeout_seconds + 60,
            cluster_detection_method="deactivate" if place.starter == "the environment" else None,
        )
    except Exception as error:  # whatever a cluster's detection raises
        failures.append(error)


def _numbers(environment: Mapping[str, str], *names: str) -> list[int]:
    """The values of environment variables, each of which must be set to a whole number."""
    found = [environment.get(name, "") for name in names]
    if not all(value.isdecimal() for value in found):
        given = ", ".join(f"{name}={value}" for name, value in zip(names, found, strict=True))
        raise ValueError(
            f"find_place: the environment has {given}; each must be a number; set both"
        )
    return [int(value) for value in found]


def _checked(place: Place) -> Place:
    host, colon, port = (place.address or "").rpartition(":")
    if not (host and colon and port.isdecimal() and 0 < int(port) < 2**16):
        raise ValueError(
            f"find_place: {ADDRESS} is {place.address!r}; it must be host:port, where process 0 "
            "listens"
        )
    assert place.rank is not None and place.count is not None
    if place.rank >= place.count:
        raise ValueError(
            f"find_place: {RANK} is {place.rank} of {place.count} processes; "
            f"use a number from 0 to {place.count - 1}"
        )
    return place
