"""Checks, counts, compiles and runs exported programs, in the reader's process only.

`reader` passes the judge's requests to `ProgramReader.answer`, and sends back what it returns.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from jaxpar.contracts.base import Contract
from jaxpar.contracts.case import Case
from jaxpar.grading import partition_specs, reader_messages
from jaxpar.grading.allowlist import Refused, check_program
from jaxpar.grading.communication import describe
from jaxpar.grading.messages import Output, ProgramKey
from jaxpar.grading.program_export import (
    Interface,
    export_forward,
    export_gradient,
    forward_interface,
    gradient_interface,
    template,
)
from jaxpar.grading.reader_messages import Author, Facts, MistakeName, OurAuthor
from jaxpar.inspector.compiled import Compiled, compile_program, read_memory
from jaxpar.inspector.hlo import read_hlo
from jaxpar.inspector.mlir import parse
from jaxpar.inspector.notes import unexplained
from jaxpar.inspector.repeated_sums import repeated_sums
from jaxpar.inspector.report import Collective, Memory
from jaxpar.inspector.stablehlo import read_module, read_products

MAX_RUN_BYTES = 2e9

Compile = Callable[[bytes, Interface], Compiled]
"""Compiles the bytes of a program that was checked."""


@dataclass(frozen=True)
class CheckedProgram:
    """A program that was checked and counted; it is compiled only if it is measured or run."""

    blob: bytes
    interface: Interface
    collectives: tuple[Collective, ...]


def compile_exported(
    blob: bytes,
    interface: Interface,
    header: Callable[[Interface], jax.export.Exported] = template,
) -> Compiled:
    """Compiles the bytes of a program that was checked against this interface.

    `header` makes an exported program of the same interface. Its bytes are replaced by these, so
    that nothing in a stranger's header is used.
    """
    with jax.enable_x64(_is_wide(interface)):
        exported = dataclasses.replace(header(interface), mlir_module_serialized=blob)
        jitted = jax.jit(
            exported.call,
            in_shardings=tuple(a.sharding for a in interface.inputs),
            out_shardings=[r.sharding for r in interface.results],
        )
        return compile_program(jitted.lower(*interface.inputs))


@dataclass
class ProgramReader:
    """Reads and runs the programs of one exercise.

    Attributes:
        contract: the exercise.
        compile: compiles a program, and remembers those that it has compiled.
        programs: what was read so far, by author.
    """

    contract: Contract
    compile: Compile = field(default_factory=lambda: cache(compile_exported))
    programs: dict[tuple[Author, ProgramKey], CheckedProgram] = field(default_factory=dict)

    def answer(
        self, request: reader_messages.ReaderRequest, blobs: list[bytes]
    ) -> tuple[reader_messages.ReaderReply, list[bytes]]:
        """Answers one request.

        Args:
            request: what is asked.
            blobs: the raw bytes that followed it.

        Returns:
            The reply, which may say why a program is refused, and the raw bytes that follow it.

        Raises:
            ValueError: the contract has no mistake of the name that is asked for.
        """
        try:
            match request:
                case reader_messages.ReadProgram(program, outputs):
                    facts = self._count("answer", program, outputs, blobs[0])
                    return self._measure("answer", program, facts), []
                case reader_messages.ExportOurs(program, author):
                    return self._export(author, program), []
                case reader_messages.PartitionProgram(index, specs):
                    return self._partition(index, specs), []
                case reader_messages.RunProgram(program, author):
                    results = self._run(author, program, blobs)
                    return reader_messages.RunResults(len(results)), results
        except (Refused, jax.errors.JaxRuntimeError) as error:
            return reader_messages.ProgramRefused(str(error).splitlines()[0]), []

    def _count(
        self, author: Author, program: ProgramKey, outputs: tuple[Output, ...], blob: bytes
    ) -> Facts:
        """Checks an exported program, and counts what it sends."""
        case, interface = self._case(program), self._interface(program, outputs)
        try:
            module = parse(blob)
            check_program(module, case, interface)
            collectives = read_module(module, case.sizes)
            # The diagnosis asks for these of the answer only.
            repeated = repeated_sums(module, case.sizes) if author == "answer" else ()
            products = read_products(module)
        except ValueError as error:
            raise Refused(str(error)) from None
        self.programs[author, program] = CheckedProgram(blob, interface, collectives)
        return Facts(
            collectives=collectives,
            flops=products.flops,
            products=products.number,
            product_dtypes=products.dtypes,
            memory=None,
            unexplained=(),
            repeated=repeated,
            outputs=outputs,
        )

    def _measure(self, author: Author, program: ProgramKey, facts: Facts) -> Facts:
        """Compiles a program; adds what it holds, and the collectives that the compiler added."""
        checked, sizes = self.programs[author, program], self._case(program).sizes
        compiled = self.compile(checked.blob, checked.interface)
        held = _memory(compiled)
        total = held.total_bytes * math.prod(sizes.values())
        if total > MAX_RUN_BYTES:
            raise Refused(f"the program needs {total / 1e9:.1f} GB on all devices; at most 2 GB")
        sent = read_hlo(compiled.partitioned or "", sizes)
        added = unexplained(checked.collectives, sent)
        return dataclasses.replace(
            facts, memory=held, unexplained=tuple(describe([one]) for one in added)
        )

    def _export(self, author: OurAuthor, program: ProgramKey) -> Facts:
        """Exports and reads the reference or a mistake, which are our own code."""
        function, case = self._function(author), self._case(program)
        try:
            exported = export_forward(function, case)
            if program[0] == "gradient":
                exported = export_gradient(function, case, self.contract.gradient, exported.outputs)
        except Exception as error:
            name = author.mistake if isinstance(author, MistakeName) else author
            raise Refused(f"{name}: {type(error).__name__}: {error}") from None
        facts = self._count(author, program, exported.outputs, exported.module)
        return facts if self.contract.memory is None else self._measure(author, program, facts)

    def _partition(self, index: int, specs: partition_specs.Specs) -> Facts:
        """Returns what a device sends and holds in our own program, split as the specs say."""
        assert self.contract.partitioned
        case = self.contract.cases[index]
        try:
            compiled = compile_program(
                self.contract.partitioned(case, partition_specs.to_partition_specs(specs))
            )
            sent = read_hlo(compiled.partitioned or "", case.sizes)
        except ValueError as error:
            raise Refused(str(error)) from None
        return Facts(
            collectives=sent,
            flops=None,
            products=None,
            product_dtypes=(),
            memory=_memory(compiled),
            unexplained=(),
            repeated=(),
            outputs=(),
        )

    def _run(self, author: Author, program: ProgramKey, blobs: list[bytes]) -> list[bytes]:
        """Runs a program that was read on these inputs, and returns its raw results."""
        checked = self.programs[author, program]
        compiled = self.compile(checked.blob, checked.interface)
        arrays = []
        with jax.enable_x64(_is_wide(checked.interface)):
            for struct, blob in zip(checked.interface.inputs, blobs, strict=True):
                data = np.frombuffer(blob, struct.dtype).reshape(struct.shape)
                arrays.append(jax.device_put(data, struct.sharding))
            results = compiled.executable(*arrays)
        return [np.ascontiguousarray(r).tobytes() if r.size else b"" for r in results]

    def _case(self, program: ProgramKey) -> Case:
        return self.contract.cases[program[1]]

    def _interface(self, program: ProgramKey, outputs: tuple[Output, ...]) -> Interface:
        case = self._case(program)
        if program[0] == "forward":
            return forward_interface(case, outputs)
        return gradient_interface(case, self.contract.gradient, outputs)

    def _function(self, author: OurAuthor) -> Callable:
        if author == "reference":
            return self.contract.reference
        by_name = {mistake.name: mistake.function for mistake in self.contract.mistakes}
        if author.mistake not in by_name:
            raise ValueError(
                f"ProgramReader: a mistake {author.mistake!r} of {self.contract.id}; it has "
                f"{', '.join(by_name) or 'none'}; use one of these names"
            )
        return by_name[author.mistake]


def _is_wide(interface: Interface) -> bool:
    """Whether a result has 64 bits, which JAX would make 32; it is wrong, and said to be so."""
    return any(jnp.dtype(r.dtype).itemsize == 8 for r in interface.results)


def _memory(compiled: Compiled) -> Memory:
    held = read_memory(compiled)
    if held is None:
        raise Refused("the compiler does not say how much memory the program needs")
    return held
