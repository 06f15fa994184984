"""The judge's side of one reader process.

Each method sends a request and returns the reply. The reader may have been taken over by crafted
bytes, so every reply is checked before the judge sees it.
"""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from jaxpar.contracts.base import Contract
from jaxpar.contracts.case import Case
from jaxpar.grading import messages, reader_messages
from jaxpar.grading.channel import ProtocolError
from jaxpar.grading.deadline import Deadline
from jaxpar.grading.evidence import devices_needed
from jaxpar.grading.messages import Output, ProgramKey
from jaxpar.grading.partition_specs import Specs
from jaxpar.grading.processes import READER, ChildEnded, ChildPool
from jaxpar.grading.reader_messages import Author, Facts, OurAuthor

MAX_RESULT_BYTES = 1e8

Reply = messages.Ready | reader_messages.ReaderReply


class Refusal(ValueError):
    """The reader will not read or run a program; the message says why."""


class ReaderClient:
    """One reader process, to which the judge sends its requests."""

    def __init__(
        self, pool: ChildPool, where: str, contract: Contract, filename: str | None = None
    ) -> None:
        """Starts the reader on a contract; it loads while the worker exports.

        Args:
            pool: where the process comes from.
            where: the module of the contract, and `@` with a number where it is a variant.
            contract: the same contract, with drawn cases.
            filename: the name of the answer's file; source locations in other files are dropped.
        """
        self._pool, self._contract, self._filename = pool, contract, filename
        self._reader = pool.take(READER)
        self._deadline = Deadline(pool.limits.wall_seconds)
        job = reader_messages.ReaderJob(
            **pool.limits.job(),
            where=where,
            drawn=contract.cases[len(contract.visible) :],
            devices=devices_needed(contract),
        )
        self._reader.send(messages.encode(job))
        self._started = False
        self._unanswered: deque[reader_messages.ReaderRequest] = deque()
        self._early: dict[reader_messages.ReaderRequest, Reply] = {}

    def close(self) -> None:
        """Ends the process."""
        self._pool.end(self._reader)

    def set_time_left(self, seconds: float) -> None:
        """Sets how much time is left for all requests that follow."""
        self._deadline = Deadline(seconds)

    def begin_exports(self, programs: Iterable[ProgramKey]) -> None:
        """Lets the reader export these programs of the reference; `export` returns the facts.

        It does so while the worker exports the answer. If it dies, the next request says so.
        """
        with contextlib.suppress(ChildEnded):
            for program in programs:
                request = reader_messages.ExportOurs(program, "reference")
                if request not in self._unanswered:
                    self._send(request)

    def read(self, program: ProgramKey, outputs: Sequence[Output], blob: bytes) -> Facts:
        """Reads one program of the answer.

        Raises:
            Refusal: the reader will not run this program.
        """
        facts = self._facts(reader_messages.ReadProgram(program, tuple(outputs)), [blob])
        return replace(self._located(facts), outputs=tuple(outputs))

    def begin_reads(self, programs: Mapping[ProgramKey, tuple[Sequence[Output], bytes]]) -> None:
        """Lets the reader read these programs of the answer; `read` returns the facts."""
        with contextlib.suppress(ChildEnded):
            for program, (outputs, blob) in programs.items():
                self._send(reader_messages.ReadProgram(program, tuple(outputs)), [blob])

    def export(self, author: OurAuthor, program: ProgramKey) -> Facts:
        """Exports and reads a program of the reference, or of a mistake.

        Raises:
            Refusal: it cannot be exported.
        """
        return self._facts(reader_messages.ExportOurs(program, author))

    def partition(self, index: int, specs: Specs) -> Facts:
        """Returns the facts of the contract's program, which the compiler splits by these specs.

        Raises:
            Refusal: the compiler does not accept them.
        """
        plain = (
            tuple(e if e is None or isinstance(e, str) else tuple(e) for e in spec)
            for spec in specs
        )
        return self._located(self._facts(reader_messages.PartitionProgram(index, tuple(plain))))

    def run(
        self,
        author: Author,
        program: ProgramKey,
        inputs: Sequence[np.ndarray],
        results: Sequence[Output],
    ) -> list[np.ndarray]:
        """Runs a program that was read; results are checked against their declared types.

        Raises:
            Refusal: it cannot be run, or its results are too large to be held here.
        """
        mesh = tuple(self._contract.cases[program[1]].sizes.values())
        shapes = [mesh + result.shape for result in results]
        dtypes = [jnp.dtype(result.dtype) for result in results]
        size = sum(
            math.prod(shape) * dtype.itemsize for shape, dtype in zip(shapes, dtypes, strict=True)
        )
        if size > MAX_RESULT_BYTES:
            raise Refusal(f"the results take {size / 1e9:.1f} GB on all devices; at most 0.1 GB")
        blobs = [np.ascontiguousarray(array).tobytes() for array in inputs]
        reply = self._ask(reader_messages.RunProgram(program, author, len(blobs)), blobs)
        if reply != reader_messages.RunResults(len(results)):
            raise ChildEnded("protocol", "not as many results as the program has")
        raw = [self._reader.receive(self._deadline) for _ in results]
        try:
            return [
                np.frombuffer(blob, dtype).reshape(shape)
                for shape, dtype, blob in zip(shapes, dtypes, raw, strict=True)
            ]
        except (TypeError, ValueError) as error:
            raise ChildEnded("protocol", str(error)) from None

    def _located(self, facts: Facts) -> Facts:
        """Keeps the source locations only that are lines of the answer's own file."""
        collectives, repeated = (
            tuple(replace(one, source=self._line(one.source)) for one in found)
            for found in (facts.collectives, facts.repeated)
        )
        return replace(facts, collectives=collectives, repeated=repeated)

    def _line(self, source: str | None) -> str | None:
        name, _, line = (source or "").rpartition(":")
        return f"line {line}" if name == self._filename and line.isdigit() else None

    def _facts(self, request: reader_messages.ReaderRequest, blobs: Sequence[bytes] = ()) -> Facts:
        reply = self._ask(request, blobs)
        if not isinstance(reply, Facts):
            raise ChildEnded("protocol", "other than facts where facts must be")
        return reply

    def _ask(self, request: reader_messages.ReaderRequest, blobs: Sequence[bytes]) -> Reply:
        """Returns the reply to a request, which may have been sent before."""
        while not self._started:
            self._started = isinstance(self._receive(), reader_messages.Started)
        if request not in self._early and request not in self._unanswered:
            self._send(request, blobs)
        while request not in self._early:  # the replies come in the order of the requests
            self._early[self._unanswered.popleft()] = self._receive()
        reply = self._early.pop(request)
        if isinstance(reply, reader_messages.ProgramRefused):
            raise Refusal(reply.refused)
        return reply

    def _send(self, request: reader_messages.ReaderRequest, blobs: Sequence[bytes] = ()) -> None:
        self._reader.send(messages.encode(request), list(blobs))
        self._unanswered.append(request)

    def _receive(self) -> Reply:
        """Returns the next message; crafted bytes may have taken the reader over.

        Raises:
            ChildEnded: there is none, or it is of no known kind.
        """
        try:
            return messages.decode(Reply, self._reader.receive(self._deadline))
        except ProtocolError as error:
            raise ChildEnded("protocol", str(error)) from None


def cotangent_inputs(case: Case, outputs: Sequence[Output], drawn: Sequence) -> list[np.ndarray]:
    """Returns the cotangents c_i of the float outputs as a gradient program takes them.

    An output whose type does not vary over an axis is one value for that axis, so its cotangents
    are summed over it here on the host.
    """
    arrays = []
    for output, cotangent in zip(outputs, drawn, strict=True):
        if cotangent is not None:
            invariant = tuple(i for i, axis in enumerate(case.sizes) if axis not in output.varying)
            arrays.append(cotangent.sum(axis=invariant).astype(jnp.dtype(output.dtype)))
    return arrays
