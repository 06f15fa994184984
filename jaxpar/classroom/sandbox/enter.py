"""The first thing that a confined process does: it gives up what it will not need, for good.

Started as `python -m jaxpar.classroom.sandbox.enter JSON`, which says what; then it runs a module.
"""

from __future__ import annotations

import json
import runpy
import sys


def main() -> None:
    """Confines this process as the JSON argument says, and runs the module that it names."""
    orders = json.loads(sys.argv[1])
    _limit(orders["limits"])
    if orders["landlock"]:
        from jaxpar.grading import landlock

        landlock.install(orders["readable"], orders["writable"], orders["folder"])
    from jaxpar.classroom.sandbox import seccomp

    seccomp.install()
    sys.argv = [orders["module"], *orders["arguments"]]
    runpy.run_module(orders["module"], run_name="__main__", alter_sys=True)


def _limit(limits: dict[str, int]) -> None:
    import resource

    for name, bound in limits.items():
        which = getattr(resource, f"RLIMIT_{name}")
        _, hard = resource.getrlimit(which)
        bound = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
        resource.setrlimit(which, (bound, bound))


if __name__ == "__main__":
    main()
