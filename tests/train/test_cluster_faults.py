"""Faults of a network, each brought about between hosts in namespaces, and named by the doctor."""

import re
import subprocess
from pathlib import Path

import pytest

from jaxpar.train.cluster_check import LOST
from tests.train.network import available, ip, network

pytestmark = [
    pytest.mark.full,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not available(), reason="network namespaces need root on Linux"),
]
DOCTOR = ("doctor", "--cluster")


def test_a_slow_link_is_named(tmp_path: Path) -> None:
    with network(tmp_path, 3) as hosts:
        shape = ["tbf", "rate", "50mbit", "burst", "64kbit", "latency", "400ms"]
        shaped = ["ip", "netns", "exec", hosts.namespace(2), "tc", "qdisc", "add", "dev", "eth0"]
        subprocess.run([*shaped, "root", *shape], check=True)
        report, *_ = hosts.run(*DOCTOR)
    assert "Processes: 3, hosts: 3" in report
    slow = re.findall(r"slow link: between process (\d) \S+ and (\d) \S+ a large message", report)
    assert slow == [("0", "2"), ("1", "2")], report


def test_packets_that_a_switch_drops_are_told(tmp_path: Path) -> None:
    with network(tmp_path, 2) as hosts:
        for rank in (0, 1):
            ip("-n", hosts.namespace(rank), "link", "set", "eth0", "mtu", "9000")
        ip("-n", hosts.bridge, "link", "set", "port0", "mtu", "9000")  # and port1 has 1500
        told = hosts.run(*DOCTOR)
    # One gives up, and its end may be what the other tells of.
    assert any("has waited 20 s for an exchange of 32768 bytes" in text for text in told), told
    assert all("exchange of 32768 bytes between processes 0 and 1" in text for text in told), told
    assert all(LOST in text for text in told)


def test_names_that_lead_back_are_told_before_nothing_connects(tmp_path: Path) -> None:
    with network(tmp_path, 2) as hosts:
        told = hosts.run(*DOCTOR, loopback_names=True)
    assert (
        "interface: the name of node0 (process 0) resolves to 127.0.1.1, a loopback ad" in told[0]
    )
    assert any(
        "for an exchange of 8 bytes between processes 0 and 1; all reach process 0, and not" in text
        or "cannot do an exchange of 8 bytes between processes 0 and 1: " in text
        for text in told
    ), told


def test_a_firewall_between_two_hosts_is_told_by_these_two(tmp_path: Path) -> None:
    with network(tmp_path, 3) as hosts:
        ip("-n", hosts.namespace(1), "route", "add", "unreachable", "10.77.0.12/32")
        told = hosts.run(*DOCTOR)
    named = "an exchange of 8 bytes between processes 1 and 2"
    assert [named in text for text in told[1:]] == [True, True], told
    assert "between processes 0 and" not in "".join(told)
