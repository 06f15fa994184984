"""Hosts on one machine: network namespaces on a bridge, each with a name and an /etc/hosts."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Sets the name of the host, shows it the file of names in $1, and becomes the command after that.
ENTER = 'hostname "$0" && mount --bind "$1" /etc/hosts && shift && exec "$@"'


def ip(*arguments: str) -> None:
    """Runs `ip`."""
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def available() -> bool:
    """Whether this process may make network namespaces."""
    tools = all(map(shutil.which, ("ip", "tc", "unshare")))
    return tools and os.geteuid() == 0 and not subprocess.call(["unshare", "-n", "true"])


class Network:
    """Hosts node0, node1, ... with the addresses 10.77.0.10, 10.77.0.11, ...

    Attributes:
        folder: where the hosts' files of names are.
    """

    def __init__(self, folder: Path, count: int) -> None:
        self.folder, self._count = folder, count
        self._prefix = f"jaxpar-{os.getpid()}"
        self.bridge = f"{self._prefix}-bridge"
        ip("netns", "add", self.bridge)
        ip("-n", self.bridge, "link", "add", "bridge", "type", "bridge")
        ip("-n", self.bridge, "link", "set", "bridge", "up")
        for rank in range(count):
            here = self.namespace(rank)
            ip("netns", "add", here)
            peer = ["peer", "name", f"port{rank}", "netns", self.bridge]
            ip("link", "add", "eth0", "netns", here, "type", "veth", *peer)
            ip("-n", self.bridge, "link", "set", f"port{rank}", "master", "bridge", "up")
            ip("-n", here, "address", "add", f"10.77.0.1{rank}/24", "dev", "eth0")
            for link in ("lo", "eth0"):
                ip("-n", here, "link", "set", link, "up")

    def namespace(self, rank: int) -> str:
        """The network namespace of a host."""
        return f"{self._prefix}-{rank}"

    def run(self, *arguments: str, loopback_names: bool = False) -> list[str]:
        """What `jaxpar` prints on each host, with standard error after standard output.

        With `loopback_names` each host's own name leads to 127.0.1.1, as Debian's installer has it.
        """
        started = []
        for rank in range(self._count):
            lines = ["127.0.0.1 localhost"]
            for other in range(self._count):
                own = loopback_names and other == rank
                lines.append(f"{'127.0.1.1' if own else f'10.77.0.1{other}'} node{other}")
            names = self.folder / f"hosts{rank}"
            names.write_text("\n".join(lines) + "\n")
            enter = ["ip", "netns", "exec", self.namespace(rank), "unshare", "--uts", "--mount"]
            shell = ["bash", "-c", ENTER, f"node{rank}", str(names)]
            command = [sys.executable, "-m", "tests.train.small_cluster", *arguments]
            place = {
                "JAX_COORDINATOR_ADDRESS": "10.77.0.10:1234",
                "JAX_NUM_PROCESSES": str(self._count),
                "JAX_PROCESS_ID": str(rank),
                "JAX_PLATFORMS": "cpu",
                "JAX_NUM_CPU_DEVICES": "1",
            }
            started.append(
                subprocess.Popen(
                    [*enter, *shell, *command],
                    cwd=ROOT,
                    env=os.environ | place,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        return ["".join(process.communicate(timeout=300)) for process in started]

    def close(self) -> None:
        """Removes the namespaces, and all in them."""
        for name in (self.bridge, *map(self.namespace, range(self._count))):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


@contextmanager
def network(folder: Path, count: int) -> Iterator[Network]:
    """A network of so many hosts."""
    made = Network(folder, count)
    try:
        yield made
    finally:
        made.close()
