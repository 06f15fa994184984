"""Small messages between processes by the store of JAX's coordination service.

They need only the connection with process 0, so they arrive where no collective would.
"""

import json
from collections import Counter
from typing import Any

import jax
from jax._src import distributed

SECONDS = 300  # more than anything that a process measures meanwhile


class KeyValueStore:
    """The store that all processes of a run share.

    What is told by one name is heard in the same order, in every process.

    Attributes:
        rank: the number of this process.
        count: the number of processes.
    """

    def __init__(self) -> None:
        self.rank, self.count = jax.process_index(), jax.process_count()
        self._times: Counter[tuple[str, str]] = Counter()
        self._client: Any = distributed.global_state.client  # None in a process that is alone

    def tell(self, name: str, value: Any) -> None:
        """Stores a value, as data for JSON."""
        self._client.key_value_set(self._next("told", name), json.dumps(value))

    def hear(self, name: str) -> Any:
        """Waits for a value.

        Raises:
            ValueError: nobody has told it in time.
        """
        try:
            key = self._next("heard", name)
            return json.loads(self._client.blocking_key_value_get(key, SECONDS * 1000))
        except jax.errors.JaxRuntimeError as error:
            raise ValueError(
                f"key_value_store: process {self.rank} of {self.count} waited {SECONDS} s for "
                f"{name!r}: {str(error).splitlines()[0]}; look for a process that has ended, or "
                "is stuck"
            ) from None

    def gather(self, name: str, value: Any) -> list[Any]:
        """The values of all processes, in their order."""
        if self.count == 1:
            return [value]
        self.tell(f"{name}/{self.rank}", value)
        return [self.hear(f"{name}/{rank}") for rank in range(self.count)]

    def _next(self, what: str, name: str) -> str:
        """The key of a name: another one each time, since a key is set once."""
        self._times[what, name] += 1
        return f"jaxpar/{name}/{self._times[what, name]}"
