"""Joining other processes: which place is found, and the error if others do not connect."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from jaxpar.train.cluster import Place, explain, find_place

ROOT = Path(__file__).parents[2]
OURS = {
    "JAX_COORDINATOR_ADDRESS": "host:1234",
    "JAX_NUM_PROCESSES": "2",
    "JAX_PROCESS_ID": "1",
}
SLURM = {"SLURM_STEP_NODELIST": "n[1-2]", "SLURM_NTASKS": "2", "SLURM_PROCID": "1"}
MPI = {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "3"}
KUBERNETES = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({}, None),
        (OURS, Place("the environment", 1, 2, "host:1234")),
        (SLURM | OURS, Place("the environment", 1, 2, "host:1234")),
        (SLURM, Place("Slurm", 1, 2, None)),
        (SLURM | {"SLURM_NTASKS": "1"}, None),
        ({"SLURM_NTASKS": "2", "SLURM_PROCID": "0"}, None),  # a batch script, outside srun
        (MPI, Place("Open MPI", 3, 4, None)),
        (MPI | {"JAX_COORDINATOR_ADDRESS": "h:1"}, Place("Open MPI", 3, 4, "h:1")),
        (MPI | {"OMPI_COMM_WORLD_SIZE": "1"}, None),
        (KUBERNETES, None),  # any pod, such as a notebook's
        (KUBERNETES | {"JOB_COMPLETION_INDEX": "0"}, Place("Kubernetes", None, None, None)),
    ],
)
def test_the_environment_tells_the_place(environment: dict, place: Place | None) -> None:
    assert find_place(environment) == place


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"JAX_PROCESS_ID": ""}, "JAX_PROCESS_ID=, JAX_NUM_PROCESSES=2; each must be a number"),
        ({"JAX_PROCESS_ID": "2"}, "JAX_PROCESS_ID is 2 of 2 processes; use a number from 0 to 1"),
        ({"JAX_COORDINATOR_ADDRESS": "1234"}, "is '1234'; it must be host:port"),
        ({"JAX_COORDINATOR_ADDRESS": "host:0"}, "is 'host:0'; it must be host:port"),
    ],
)
def test_half_a_place_is_refused(change: dict, line: str) -> None:
    with pytest.raises(ValueError, match=line):
        find_place(OURS | change)


def test_a_number_of_tasks_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="SLURM_PROCID=1, SLURM_NTASKS=two; each must be"):
        find_place(SLURM | {"SLURM_NTASKS": "two"})


def test_an_address_alone_is_half_a_place() -> None:
    with pytest.raises(ValueError, match="JAX_PROCESS_ID=, JAX_NUM_PROCESSES=; each must be"):
        find_place({"JAX_COORDINATOR_ADDRESS": "host:1"})


def joined(address: str, rank: int) -> subprocess.CompletedProcess[str]:
    """The end of one process of two, which waits for the other for only a second."""
    code = (
        "import os\n"
        "from jaxpar.train.cluster import find_place, join, leave\n"
        "place = find_place(os.environ)\n"
        "try: join(place, 1)\n"
        "except ValueError as error: print(error); leave(2, place)"
    )
    place = {"JAX_COORDINATOR_ADDRESS": address, "JAX_PROCESS_ID": str(rank)}
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | OURS | place,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_taken_port_and_a_missing_process_are_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        taken = joined(address, 0)
    missing = joined(address, 0)
    assert (taken.returncode, missing.returncode) == (2, 2)
    in_use = f"join_processes: process 0 cannot listen at {address} (Address already in use); no "
    assert taken.stdout.startswith(in_use)
    waited = "process 0 of 2, as the environment says, waited 1 s in vain"
    assert missing.stdout.startswith(
        f"join_processes: {waited}: it listens at {address}, and others did"
    )
    assert "check that all 2 processes were started" in missing.stdout


def test_a_wrong_address_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        assert f"somebody answers at {address}" in told(address)
    assert f"nobody answers at {address} (Connection refused); check that" in told(address)
    assert "the address of process 0 from Slurm" in told(None)


def told(address: str | None) -> str:
    """The error of process 1 of 2 at its timeout."""
    return explain(Place("Slurm", 1, 2, address))
