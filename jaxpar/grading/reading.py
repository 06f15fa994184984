"""Exported programs, checked, counted, compiled and run: in the reader's process only."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import asdict, dataclass, field

import jax
import numpy as np

from jaxpar.contracts.base import Contract
from jaxpar.contracts.case import Case
from jaxpar.grading import specs
from jaxpar.grading.allowlist import Refused, check_program
from jaxpar.grading.communication import describe
from jaxpar.grading.program import (
    Interface,
    Output,
    export_forward,
    export_gradient,
    forward_interface,
    gradient_interface,
    template,
)
from jaxpar.inspector.compiled import Compiled, compile_program, read_memory
from jaxpar.inspector.hlo import read_hlo
from jaxpar.inspector.mlir import parse
from jaxpar.inspector.notes import unexplained
from jaxpar.inspector.report import Collective
from jaxpar.inspector.stablehlo import count_flops, product_dtypes, read_module

MAX_RUN_BYTES = 2e9


@dataclass
class Loaded:
    """A program that was checked and counted; compiled only if it is measured or run."""

    blob: bytes
    interface: Interface
    collectives: tuple[Collective, ...]
    compiled: Compiled | None = None


@dataclass
class Reader:
    """What one exercise needs: its contract, and the programs read so far."""

    contract: Contract
    loaded: dict[str, Loaded] = field(default_factory=dict)

    def answer(self, request: dict, blobs: list[bytes]) -> tuple[dict, list[bytes]]:
        """Answers one request; what cannot be answered says why under `refused`."""
        try:
            if "program" in request:
                outputs = [Output(tuple(o["shape"]), o["dtype"], tuple(o["varying"]))
                           for o in request["outputs"]]  # fmt: skip
                counted = self._count(request["key"], request["program"], outputs, blobs[0])
                return counted | self._measure(request["key"], request["program"]), []
            if "specs" in request:
                return self._partition(request["case"], request["specs"]), []
            if "mistake" in request:
                return self._export(request), []
            return self._run(request["run"], blobs)
        except (Refused, jax.errors.JaxRuntimeError) as error:
            return {"refused": str(error).splitlines()[0]}, []

    def compile(self, program: Loaded) -> Compiled:
        """Compiles a program that was checked."""
        inputs, results = program.interface.inputs, program.interface.results
        header = template(program.interface)
        exported = dataclasses.replace(header, mlir_module_serialized=program.blob)
        jitted = jax.jit(
            exported.call,
            in_shardings=tuple(a.sharding for a in inputs),
            out_shardings=[r.sharding for r in results],
        )
        return compile_program(jitted.lower(*inputs))

    def _case(self, program: list) -> Case:
        return self.contract.cases[program[1]]

    def _count(self, key: str, program: list, outputs: list[Output], blob: bytes) -> dict:
        """Checks an exported program, and counts what it sends."""
        case, interface = self._case(program), self._interface(program, outputs)
        try:
            module = parse(blob)
            check_program(module, case, interface)
            collectives = read_module(module, case.sizes)
        except ValueError as error:
            raise Refused(str(error)) from None
        self.loaded[key] = Loaded(blob, interface, collectives)
        return {
            "collectives": [asdict(c) for c in collectives],
            "flops": count_flops(module),
            "product_dtypes": product_dtypes(module),
            "memory": None,
            "hidden": [],
        }

    def _measure(self, key: str, program: list) -> dict:
        """Compiles a program: what it holds, and what it sends beyond what it says."""
        loaded, case = self.loaded[key], self._case(program)
        loaded.compiled = self.compile(loaded)
        held = read_memory(loaded.compiled)
        if held is None:
            raise Refused("the compiler does not say how much memory the program needs")
        total = held.total_bytes * math.prod(case.sizes.values())
        if total > MAX_RUN_BYTES:
            raise Refused(f"the program needs {total / 1e9:.1f} GB on all devices; at most 2 GB")
        sent = read_hlo(loaded.compiled.partitioned or "", case.sizes)
        hidden = unexplained(loaded.collectives, sent)
        return {"memory": asdict(held), "hidden": [describe([c]) for c in hidden]}

    def _interface(self, program: list, outputs: list[Output]) -> Interface:
        case = self._case(program)
        if program[0] == "forward":
            return forward_interface(case, outputs)
        return gradient_interface(case, self.contract.gradient, outputs)

    def _export(self, request: dict) -> dict:
        """Exports and reads the reference or a named mistake, our own code."""
        name, program, key = request["mistake"], request["of"], request["key"]
        functions = {m.name: m.function for m in self.contract.mistakes}
        function = functions.get(name, self.contract.reference)
        case = self._case(program)
        try:
            exported = export_forward(function, case)
            if program[0] == "gradient":
                exported = export_gradient(function, case, self.contract.gradient, exported.outputs)
        except Exception as error:
            raise Refused(f"{name}: {type(error).__name__}: {error}") from None
        facts = self._count(key, program, list(exported.outputs), exported.module)
        if self.contract.memory is not None:
            facts |= self._measure(key, program)
        return facts | {"outputs": [asdict(o) for o in exported.outputs]}

    def _partition(self, index: int, lie: list) -> dict:
        """What a device sends and holds of a program of ours that is split as specs say."""
        assert self.contract.partitioned
        case = self.contract.cases[index]
        try:
            compiled = compile_program(
                self.contract.partitioned(case, specs.to_partition_specs(lie))
            )
            sent = read_hlo(compiled.partitioned or "", case.sizes)
        except ValueError as error:
            raise Refused(str(error)) from None
        held = read_memory(compiled)
        if held is None:
            raise Refused("the compiler does not say how much memory the program needs")
        return {
            "collectives": [asdict(c) for c in sent],
            "flops": None,
            "product_dtypes": [],
            "memory": asdict(held),
            "hidden": [],
        }

    def _run(self, key: str, blobs: list[bytes]) -> tuple[dict, list[bytes]]:
        loaded = self.loaded[key]
        loaded.compiled = loaded.compiled or self.compile(loaded)
        arrays = []
        for struct, blob in zip(loaded.interface.inputs, blobs, strict=True):
            data = np.frombuffer(blob, struct.dtype).reshape(struct.shape)
            arrays.append(jax.device_put(data, struct.sharding))
        results = [np.asarray(r) for r in loaded.compiled.executable(*arrays)]
        return {"results": len(results)}, [np.ascontiguousarray(r).tobytes() for r in results]
