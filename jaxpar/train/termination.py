"""Ending a run in time: a scheduler that takes a machine away sends SIGTERM some seconds before."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import jax
from jax.experimental import multihost_utils


class Terminated(Exception):
    """The run was asked to end, and has: its last step is done, and saved if it saves any."""


@contextmanager
def termination() -> Iterator[Callable[[int], bool]]:
    """Holds SIGTERM back, and yields a function that says after each step whether to end there.

    That function takes the number of the step. In several processes JAX takes the signal, which
    may reach only one of them, and they agree on a step, at which it is true on all.
    """
    if jax.process_count() > 1:
        yield multihost_utils.reached_preemption_sync_point
        return
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # others get no signals
        yield lambda step: False
        return
    before = signal.signal(signal.SIGTERM, lambda *_: asked.set())
    try:
        yield lambda step: asked.is_set()
    finally:
        signal.signal(signal.SIGTERM, before)
