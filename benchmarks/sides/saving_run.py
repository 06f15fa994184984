"""The seconds of a step of a run that saves every so many steps, or never."""

import sys
import tempfile
import time
from pathlib import Path

from jaxpar.mesh import make_mesh, simulate_devices
from jaxpar.model import Settings
from jaxpar.train.checkpoint import Keeping
from jaxpar.train.recipe import make_recipe
from jaxpar.train.run import begin
from jaxpar.train.text import read_library

WARM_UP, STEPS = 10, 40


def step_seconds(keeping: Keeping | None) -> float:
    """By the clock, from one step to the next, with all that is done between them."""
    simulate_devices(8)
    recipe = make_recipe("fsdp=8", batch=16)
    mesh = make_mesh(recipe.layout.mesh_sizes)
    run = begin(Settings(), recipe, mesh, read_library(), seed=0, keeping=keeping)
    start = 0.0
    for number, _ in enumerate(run.proceed(WARM_UP + STEPS), 1):
        if number == WARM_UP:
            start = time.perf_counter()
    seconds = (time.perf_counter() - start) / STEPS
    run.close()
    return seconds


if __name__ == "__main__":
    every = int(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        print(step_seconds(Keeping(Path(folder), every) if every else None))
