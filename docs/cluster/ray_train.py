"""Trains on a Ray cluster: an actor for each process, and all start again when one has died.

    ray job submit -- python ray_train.py --processes 2 --gpus 8 --checkpoint /shared/run1 \
        -- --mesh fsdp=16 --steps 20000 --every 200

The folder is on a file system that all nodes share. Each actor runs `jaxpar train` as a process of
its own, since JAX can join the others only once in a process. SIGTERM makes the run save and end
with 143; the same command goes on with it.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import ray
from ray.util.placement_group import PlacementGroup, placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from jaxpar.train.launch import ADDRESS, BAD_USE, COUNT, FOLLOWS, RANK, TERMINATED
from jaxpar.train.manifest import newest_whole


@ray.remote
class Process:
    """One process of the run, on a node of its own."""

    def address(self) -> str:
        """The host and a free port of this node."""
        with socket.socket() as listener:
            listener.bind(("", 0))
            return f"{ray.util.get_node_ip_address()}:{listener.getsockname()[1]}"

    def train(self, place: dict[str, str], arguments: list[str]) -> int:
        """Runs `jaxpar train` to its end, and returns its exit code."""
        command = [sys.executable, "-m", "jaxpar.cli", "train", *arguments]
        # It ends with this actor: FOLLOWS makes it end when its standard input is closed.
        environment = os.environ | place | {FOLLOWS: "1"}
        self.child = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE)
        return self.child.wait()

    def terminate(self) -> None:
        """Asks the run to save and end; JAX tells the other processes."""
        self.child.send_signal(signal.SIGTERM)


def attempt(group: PlacementGroup, gpus: int, arguments: list[str], asked: list[int]) -> int:
    """Runs all processes, and returns the exit code of the first that does not end well."""
    count = group.bundle_count
    actors = [
        Process.options(
            num_cpus=1,
            num_gpus=gpus,
            max_concurrency=2,  # `terminate` comes while `train` runs
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, bundle),
        ).remote()
        for bundle in range(count)
    ]
    address = ray.get(actors[0].address.remote())
    running = [
        actor.train.remote({ADDRESS: address, COUNT: str(count), RANK: str(rank)}, arguments)
        for rank, actor in enumerate(actors)
    ]
    code = 0
    try:
        while running and code in (0, TERMINATED):
            done, running = ray.wait(running, timeout=1)
            code = code or next(filter(None, ray.get(done)), 0)
            if asked:
                asked.clear()
                actors[0].terminate.remote()
    except ray.exceptions.RayActorError as error:  # a node is lost
        print(error, file=sys.stderr)
        code = 1
    finally:
        for actor in actors:
            ray.kill(actor)
    return code


def main() -> int:
    """Tries until the run is done, or an attempt has saved nothing new."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, required=True)
    parser.add_argument("--gpus", type=int, default=0, help="of each process")
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("arguments", nargs="*", help="options of jaxpar train, after --")
    options = parser.parse_args()
    asked: list[int] = []
    ray.init()
    # After ray.init, which sets a handler of its own.
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    bundle = {"CPU": 1, "GPU": options.gpus} if options.gpus else {"CPU": 1}
    # All processes at once or none; on different nodes, if there are as many.
    group = placement_group([bundle] * options.processes, strategy="SPREAD")
    ray.get(group.ready())
    saving = ["--checkpoint", str(options.checkpoint), "--watchdog", "600"]
    while True:
        before = newest_whole(options.checkpoint)
        resume = [] if before is None else ["--resume"]
        code = attempt(group, options.gpus, [*options.arguments, *saving, *resume], asked)
        if code in (0, BAD_USE, TERMINATED):
            return code
        if newest_whole(options.checkpoint) == before:
            print(f"The run ended with {code} and has saved nothing new.", file=sys.stderr)
            return code


if __name__ == "__main__":
    sys.exit(main())
