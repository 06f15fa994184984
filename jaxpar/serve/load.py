"""Loads a server with OpenAI's completions, as clients that do not wait for one another. No JAX.

A request is sent at the time at which it was planned, whatever became of those before it, and its
time to the first token counts from then. A server that is slow, or a client that is late, is seen
so; clients that wait for answers before they ask again would hide both.
"""

import asyncio
import json
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np

from jaxpar.serve.measures import LEFT, Outcome
from jaxpar.serve.workload import Planned

LETTERS = (32, 127)  # tokens of prompts: printable where tokens are bytes
DATA, DONE = "data: ", "[DONE]"
SECONDS_TO_ANSWER = 10.0


@dataclass(frozen=True)
class Kill:
    """The death of a replica.

    Attributes:
        replica: its number.
        seconds: when, after the run began.
    """

    replica: int
    seconds: float

    def __str__(self) -> str:
        return f"--kill {self.replica}@{self.seconds:g}s"


@dataclass(frozen=True)
class Loaded:
    """What a run found.

    Attributes:
        outcomes: what became of each request, in the order of their arrival.
        late_seconds: how late the last of all requests was sent at most; far above 0, the machine
            of the clients is too slow for this load.
        cpu_seconds: processor time of the clients.
    """

    outcomes: list[Outcome]
    late_seconds: float
    cpu_seconds: float


def run_load(
    url: str,
    planned: Sequence[Planned],
    *,
    seed: int = 0,
    kill: Kill | None = None,
    timeout_seconds: float = 600.0,
) -> Loaded:
    """Sends requests to the server at a URL, and waits for all ends.

    Raises:
        ValueError: there is no such server there, or it kills no replicas.
    """
    base = url.rstrip("/").removesuffix("/v1")
    return asyncio.run(_run(base, planned, seed, kill, timeout_seconds))


async def _run(
    base: str, planned: Sequence[Planned], seed: int, kill: Kill | None, timeout_seconds: float
) -> Loaded:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(base_url=base, limits=limits, timeout=timeout_seconds) as client:
        model = await _model(client)
        if kill:
            await _check_kill(client, kill)
        draw = np.random.default_rng(seed)
        prompts = [draw.integers(*LETTERS, one.prompt).tolist() for one in planned]
        before, start = time.process_time(), time.perf_counter()
        senders = [
            _Sender(client, model, one, prompt, start)
            for one, prompt in zip(planned, prompts, strict=True)
        ]
        sent = asyncio.gather(*(sender.outcome() for sender in senders))
        if kill:
            await asyncio.gather(sent, _kill(client, kill))
        return Loaded(
            await sent,
            max(sender.late_seconds for sender in senders),
            time.process_time() - before,
        )


class _Sender:
    """Sends one request at its time, and notes when parts of the answer come."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        model: str,
        planned: Planned,
        prompt: list[int],
        start: float,
    ) -> None:
        self._client, self._planned, self._start = client, planned, start
        self._body = {
            "model": model, "prompt": prompt, "max_tokens": planned.output, "temperature": 0,
            "stream": True, "stream_options": {"include_usage": True},
        }  # fmt: skip
        self._times: list[float] = []
        self._tokens, self.late_seconds = 0, 0.0

    async def outcome(self) -> Outcome:
        """What became of it."""
        await asyncio.sleep(self._planned.arrival - self._now())
        self.late_seconds = self._now() - self._planned.arrival
        try:
            failed = await self._answer()
        except httpx.TimeoutException:
            failed = "timed out"
        except httpx.ConnectError:
            failed = "not connected"
        except httpx.HTTPError:
            failed = "broken off"
        except (ValueError, TypeError, LookupError, AttributeError):  # some other JSON, or none
            failed = "not understood"
        arrival, times = self._planned.arrival, tuple(self._times)
        return Outcome(arrival, times, self._tokens or len(times), self._now(), failed)

    async def _answer(self) -> str | None:
        """Reads the answer; returns why it is not whole, or None."""
        if self._planned.leaves_after == 0:
            return LEFT
        async with self._client.stream("POST", "/v1/completions", json=self._body) as response:
            if response.status_code != httpx.codes.OK:
                await response.aread()
                return f"HTTP {response.status_code}"
            whole = False
            lines: Any = response.aiter_lines()
            async with aclosing(lines):
                async for line in lines:
                    if not line.startswith(DATA):
                        continue
                    if line.endswith(DONE):
                        return None if whole and self._times else "broken off"
                    part = json.loads(line.removeprefix(DATA))
                    if "error" in part:
                        return "error in the stream"
                    whole |= self._note(part)
                    if len(self._times) == self._planned.leaves_after:
                        return LEFT
            return "broken off"

    def _note(self, part: dict[str, Any]) -> bool:
        """Notes a part of an answer; returns whether it is the last with text."""
        if counts := part.get("usage"):
            self._tokens = counts["completion_tokens"]
        choices = part.get("choices")
        if not choices:
            return False
        self._times.append(self._now())
        return choices[0].get("finish_reason") is not None

    def _now(self) -> float:
        return time.perf_counter() - self._start


async def _model(client: httpx.AsyncClient) -> str:
    """The name of the first model of a server."""
    try:
        response = await client.get("/v1/models", timeout=SECONDS_TO_ANSWER)
        return response.raise_for_status().json()["data"][0]["id"]
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, LookupError, TypeError) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise ValueError(
            f"load: {client.base_url}: no server with OpenAI's completions is there ({reason}); "
            "start one, as with jaxpar serve"
        ) from None


async def _check_kill(client: httpx.AsyncClient, kill: Kill) -> None:
    """Refuses to begin where the server would refuse to kill."""
    health = (await client.get("/health", timeout=SECONDS_TO_ANSWER)).json()
    replicas = len(health.get("replicas", ()))
    if not health.get("kill"):
        raise ValueError(
            f"load: {kill}: this server kills no replicas; start jaxpar serve with --allow-kill"
        )
    if kill.replica >= replicas:
        raise ValueError(
            f"load: {kill}: the server has {replicas} replicas; use 0 to {replicas - 1}"
        )


async def _kill(client: httpx.AsyncClient, kill: Kill) -> None:
    await asyncio.sleep(kill.seconds)
    try:
        (await client.post(f"/replicas/{kill.replica}/kill", json={})).raise_for_status()
    except httpx.HTTPError as error:
        raise ValueError(
            f"load: {kill}: the server did not do so ({error}); look at what it prints"
        ) from None
