"""The first thing that a confined process does: it gives up for good what it will not need.

`levels` starts it as `python -m jaxpar.classroom.sandbox.enter JSON`, where the JSON says what to
give up, and which module to run then: the worker, say, or the reader.
"""

from __future__ import annotations

import json
import runpy
import sys


def main() -> None:
    """Confines this process as the JSON argument says, and runs the module that it names."""
    confinement = json.loads(sys.argv[1])
    _limit(confinement["limits"])
    if confinement["landlock"]:
        from jaxpar.grading import landlock

        landlock.install(confinement["readable"], confinement["writable"], confinement["folder"])
    from jaxpar.classroom.sandbox import seccomp

    seccomp.install()
    sys.argv = [confinement["module"], *confinement["arguments"]]
    runpy.run_module(confinement["module"], run_name="__main__", alter_sys=True)


def _limit(limits: dict[str, int]) -> None:
    import resource

    for name, bound in limits.items():
        which = getattr(resource, f"RLIMIT_{name}")
        _, hard = resource.getrlimit(which)
        bound = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
        resource.setrlimit(which, (bound, bound))


if __name__ == "__main__":
    main()
