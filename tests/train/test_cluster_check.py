"""`jaxpar doctor --cluster`: two processes with faults, and what follows from figures."""

import json
import queue
import re
import socket
import subprocess
import sys
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import pytest

from jaxpar.cli import cluster_doctor
from jaxpar.cost.hardware import Efficiency, find_cluster
from jaxpar.cost.models import find_model
from jaxpar.cost.planner import Job, explore
from jaxpar.train import cluster_check
from jaxpar.train.cluster import Place, explain
from jaxpar.train.cluster_check import Pair, Rates, Timing, rounds
from jaxpar.train.cluster_facts import Facts, differences, unreachable, wrong_clocks
from jaxpar.train.cluster_report import (
    OVERLAP,
    ClusterReport,
    Meeting,
    slow_links,
    slow_processes,
)

ROOT = Path(__file__).parents[2]
VERSIONS = {"python": "3.11.7", "jax": "0.10.2", "jaxlib": "0.10.2", "jaxpar": "0.1.0"}
NODE = Facts("node0", "10.0.0.1", "10.0.0.1", "eth0", 1500, VERSIONS, "gpu", "H100", 8, {})
ALONE: Any = SimpleNamespace(rank=0, count=1)
RATES = Rates({"bf16": 6e14, "fp32": 4e13}, 2e12, 1e-5, 2e10)


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """The report of two processes of two devices, and the hardware file."""
    file = tmp_path_factory.mktemp("cluster") / "lab.toml"
    options = ["--cluster", "--json", "--write", str(file)]
    code = (
        "import sys\nfrom jaxpar.train.launch import launch\n"
        "command = [sys.executable, '-m', 'tests.train.faulty_cluster', 'doctor', *sys.argv[1:]]\n"
        "sys.exit(launch(command, processes=2, devices=2, as_json=True))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, *options], cwd=ROOT, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout), file


def test_what_differs_is_named_with_its_process(reported: tuple[dict[str, Any], Path]) -> None:
    report, host = reported[0], socket.gethostname()
    found = [line for line in report["findings"] if not line.startswith("slow")]
    assert found[:2] == [
        f"jaxpar: process 1 ({host}) has 0.0.9, and process 0 ({host}) 0.1.0; make all equal",
        f"NCCL_SOCKET_IFNAME: process 1 ({host}) has eth1, and process 0 ({host}) nothing; make "
        "all equal",
    ]
    assert found[2].startswith(f"clock: that of process 1 ({host}) is 3.0 s ahead of that of proc")
    assert len(found) == 3
    offset = report["clocks"][1]
    assert abs(offset["offset_seconds"] - 3) <= offset["error_seconds"]
    assert [one["devices"] for one in report["processes"]] == [2, 2]


def test_every_collective_is_timed_at_every_size(reported: tuple[dict[str, Any], Path]) -> None:
    report = reported[0]
    sizes: dict[str, list[int]] = {}
    for row in report["collectives"]:
        sizes.setdefault(row["kind"], []).append(row["num_bytes"])
        factor = {"all_reduce": 1.5, "permute": 1}.get(row["kind"], 0.75)
        assert row["bus_bytes_per_second"] == pytest.approx(
            factor * row["algorithm_bytes_per_second"]
        )
    kinds = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "permute")
    assert sizes == {kind: [16, 2**15, 2**20, 2**21] for kind in kinds}
    (pair,) = report["pairs"]
    assert (pair["processes"], pair["num_bytes"]) == ([0, 1], [8, 2**15, 2**20, 2**21])
    assert report["fits"].keys() == {"inside a node", "between nodes"}


def test_plan_reads_the_hardware_file(reported: tuple[dict[str, Any], Path]) -> None:
    report, file = reported
    cluster = find_cluster(str(file))
    assert cluster.devices_per_node == 2
    assert cluster.efficiency == Efficiency("its own", 1.0, 1.0, 1.0, 1.0, OVERLAP)
    flops = sorted(one["flops"]["bf16"] for one in report["rates"])[0]
    assert cluster.device.peak_flops["bf16"] == pytest.approx(flops, rel=1e-3)
    link = report["links"]["between nodes"]["bytes_per_second"]
    assert cluster.between.bytes_per_second == pytest.approx(link, rel=1e-3)
    job = Job(find_model("gpt2"), cluster, devices=4, batch=4, sequence=256)
    assert explore(job, {}).plans[0].step_seconds > 0


def test_each_round_has_every_process_once_at_most() -> None:
    for count in range(1, 9):
        paired = rounds(count)
        assert sorted(pair for pairs in paired for pair in pairs) == [
            *combinations(range(count), 2)
        ]
        for pairs in paired:
            assert len({rank for pair in pairs for rank in pair}) == 2 * len(pairs)


def test_processes_that_differ_are_compared_with_most() -> None:
    other = replace(NODE, host="node2", devices=4, mtu=9000, versions=VERSIONS | {"jax": "0.10.1"})
    assert differences([NODE, NODE]) == []
    assert differences([NODE, NODE, other]) == [
        "jax: process 2 (node2) has 0.10.1, and process 0 (node0) 0.10.2; make all equal",
        "devices: process 2 (node2) has 4, and process 0 (node0) 8; make all equal",
        "MTU: process 2 (node2) has 9000, and process 0 (node0) 1500; make all equal",
    ]


def test_a_name_that_leads_back_to_its_host_is_found() -> None:
    wrong = replace(NODE, host="node1", named_address="127.0.1.1")
    (line,) = unreachable([NODE, wrong])
    assert line.startswith("interface: the name of node1 (process 1) resolves to 127.0.1.1, a loop")
    assert unreachable([wrong, wrong]) == []  # on one host it is right


def test_a_clock_is_wrong_only_beyond_the_error_of_its_measurement() -> None:
    nodes = [NODE] * 3
    (line,) = wrong_clocks(nodes, [(0, 0), (-3.2, 0.1), (3.2, 3.0)])
    assert line.startswith("clock: that of process 1 (node0) is 3.2 s behind that of process 0; ")


def pair(first: int, second: int, small: float, large: float) -> Pair:
    return Pair((first, second), (8, 2**24), (small, large))


def test_slow_links_and_processes_are_named() -> None:
    hosts = ["node0", "node0", "node1", "node2"]
    pairs = [
        pair(0, 1, 1e-6, 1e-4),  # inside a host: compared with no other
        *(pair(first, 2, 1e-5, 1e-2) for first in (0, 1)),
        *(pair(first, 3, 1e-5, 5e-2) for first in (0, 1)),
        pair(2, 3, 1e-5, 5e-2),
    ]
    lines = slow_links(pairs, hosts)
    assert lines[0].startswith(
        "slow link: between process 0 (node0) and 3 (node2) a large message takes 5.0 times as "
        "long as between process "
    )
    assert ["3 (node2) a large" in line for line in lines] == [True] * 3
    slow = replace(RATES, flops={"bf16": 6e14, "fp32": 3e13})
    (line,) = slow_processes([RATES, RATES, RATES, slow], hosts)
    assert line.startswith("slow process: process 3 (node2) takes 1.3 times the median for a")
    assert slow_processes([RATES] * 4, hosts) == []


def test_a_report_is_read_as_lines() -> None:
    report = make_report([NODE, replace(NODE, host="node1")])
    lines = "\n".join([*report.meeting.lines(), *report.lines()])
    assert "Process 0 has python 3.11.7, jax 0.10.2, jaxlib 0.10.2, jaxpar 0.1.0" in lines
    assert "node1  10.0.0.1       eth0  1500  8 x H100  +0.0 +- 0.0 ms" in lines
    # 64 MB in 10 ms: 6.4 GB/s, and of an all-reduce of 16 devices 2 * 15/16 of it on a bus.
    assert "all_reduce  64,000,000  10,000.0           6.400    12.000" in lines
    assert lines.endswith("found        nothing wrong")


def test_a_hardware_file_needs_equal_nodes() -> None:
    report = make_report([NODE, replace(NODE, host="node1", devices=4)])
    with pytest.raises(ValueError, match=r"have \[8, 4\] devices; a hardware file is of nodes"):
        report.hardware(1e9, 1e9)
    assert report.meeting.per_node is None


def test_where_the_fit_is_infinite_the_largest_message_tells_the_bandwidth(tmp_path: Path) -> None:
    sizes = cluster_check.SIZES
    flat = [Timing("permute", size, 16, 1e-3 * sizes[0] / size) for size in sizes]
    report = replace(make_report([NODE, replace(NODE, host="node1")]), between=flat)
    told = report.to_dict()
    assert told["fits"]["between nodes"]["large"]["seconds_per_byte"] == 0
    expected = flat[-1].algorithm_bytes_per_second
    assert told["links"]["between nodes"]["bytes_per_second"] == expected
    large = told["fits"]["inside a node"]["large"]["seconds_per_byte"]
    assert told["links"]["inside a node"]["bytes_per_second"] == pytest.approx(1 / large)
    file = tmp_path / "lab.toml"
    file.write_text(report.hardware(1e9, 1e9))
    written = find_cluster(str(file)).between.bytes_per_second
    assert written == pytest.approx(expected, rel=1e-3)


def test_nodes_are_hosts_where_there_are_several() -> None:
    other = replace(NODE, host="node1")
    clocks = [(0.0, 0.0)] * 3
    assert Meeting([NODE, other, NODE], clocks).nodes == [[0, 2], [1]]
    assert Meeting([NODE, NODE, NODE], clocks).nodes == [[0], [1], [2]]


def make_report(processes: list[Facts]) -> ClusterReport:
    permutes = [Timing("permute", size, 16, 1e-5 + size / 1e10) for size in cluster_check.SIZES]
    return ClusterReport(
        Meeting(processes, [(0.0, 0.0)] * len(processes)),
        [RATES] * len(processes),
        [pair(0, 1, 1e-5, 1e-3)],
        [Timing("all_reduce", 64_000_000, 16, 1e-2)],
        permutes,
        permutes,
    )


def test_a_collective_that_never_ends_ends_the_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended: queue.Queue[int] = queue.Queue()
    monkeypatch.setattr(cluster_check, "SECONDS_ALLOWED", 0.01)
    monkeypatch.setattr(cluster_check.os, "_exit", ended.put)
    with cluster_check._watched(ALONE, "permute of 8 bytes", "look"):
        assert ended.get(timeout=60) == 75
    line = "doctor: process 0 of 1 has waited 0.01 s for permute of 8 bytes; look\n"
    assert capsys.readouterr().err == line


def test_a_collective_that_fails_is_told_with_what_to_check() -> None:
    with (
        pytest.raises(
            ValueError, match=r"process 0 of 1 cannot do permute of 8 bytes: no route; look$"
        ),
        cluster_check._watched(ALONE, "permute of 8 bytes", "look"),
    ):
        raise jax.errors.JaxRuntimeError("no route\nmore")


def test_a_device_alone_has_no_link_to_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    with pytest.raises(ValueError, match="doctor: --cluster in one process with one device, whic"):
        cluster_doctor._examine(None, as_json=False)


def printed() -> dict[str, str]:
    """What is printed for the faults that docs/cluster.md lists, by the fault."""
    older = replace(NODE, host="node1", versions=VERSIONS | {"jaxpar": "0.0.9"})
    loop = replace(NODE, named_address="127.0.1.1")
    hosts = ["node0", "node1", "node2"]
    pairs = [pair(0, 1, 1.0, 1.0), pair(0, 2, 1.0, 37.1), pair(1, 2, 1.0, 1.0)]
    slow = replace(RATES, flops={"bf16": 1.0, "fp32": 4e13 / 2.8})
    exchange = "an exchange of {} bytes between processes {} and {}".format
    waited = "process {} of {} has waited {} s for {}; {}".format
    patience = cluster_check.SECONDS_ALLOWED
    return {
        "version": differences([NODE, older])[0],
        "interface": unreachable([loop, older])[0],
        "clock": wrong_clocks([NODE, older], [(0, 0), (3.2, 0)])[0],
        "link": slow_links(pairs, hosts)[0],
        "process": slow_processes([RATES, slow, RATES], hosts)[0],
        "MTU": waited(0, 2, patience, exchange(32768, 0, 1), cluster_check.LOST),
        "firewall": waited(1, 3, patience, exchange(8, 1, 2), cluster_check.UNREACHED),
        "listens": f"process 0 of 2, as the environment says, waited 60 s in vain: {listens()}",
    }


def listens() -> str:
    return explain(Place("the environment", 0, 2, "10.77.0.10:1234"))


@pytest.mark.parametrize("fault", printed())
def test_the_page_quotes_what_is_printed(fault: str) -> None:
    page = (ROOT / "docs/cluster.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("|")]
    codes = [code for row in rows for code in re.findall(r"`([^`]+)`", row)]
    quotes = [code.split("...") for code in codes if len(code) > 60]
    message = printed()[fault]
    assert any(all(part.strip() in message for part in parts) for parts in quotes), message
