"""Messages arrive as they were sent, and nothing else is taken for a message."""

import json
import math
from typing import Any

import pytest

from jaxpar.contracts.case import ArraySpec, Case, Function, Made
from jaxpar.grading.channel import ProtocolError
from jaxpar.grading.messages import (
    BadCallOutcome,
    Call,
    Done,
    DrawnCases,
    ExportedProgram,
    ExportFailure,
    Output,
    RaisedByCall,
    ReturnedValue,
    WorkerReply,
    decode,
    encode,
)
from jaxpar.grading.reader_messages import (
    ExportOurs,
    Facts,
    MistakeName,
    PartitionProgram,
    ProgramRefused,
    ReaderReply,
    ReaderRequest,
    ReadProgram,
    RunProgram,
    RunResults,
    Started,
)
from jaxpar.inspector.report import Collective, Memory, RepeatedSum

OUTPUT = Output((2, 3), "float32", ("tp",), "['w']")
FACTS = Facts(
    (
        Collective(
            "permute", ("tp",), 4, "float32", 8, 6.5, None, True, (1, 0), ((0, 1), (1, 2)), "a.py:3"
        ),
    ),
    None,
    12,
    ("bfloat16",),
    Memory(1, 2, 3, 4, 5),
    ("1 x all_reduce",),
    (RepeatedSum(("dp", "tp"), ("tp",), 4, False, "a.py:4"),),
    (OUTPUT,),
)


def _arrived(kind: Any, message: Any) -> Any:
    return decode(kind, json.loads(json.dumps(encode(message))))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (WorkerReply, ExportedProgram(("forward", 1), (OUTPUT,))),
        (WorkerReply, ExportFailure(("load", 0), "syntax", "line 1", "SyntaxError")),
        (WorkerReply, BadCallOutcome(2, None, False, False)),
        (WorkerReply, ReturnedValue(0, [1, {"a": None}])),
        (WorkerReply, RaisedByCall(0, "name", "line 2", "NameError", False)),
        (WorkerReply, Done()),
        (ReaderRequest, ReadProgram(("gradient", 0), (OUTPUT,))),
        (ReaderRequest, ExportOurs(("forward", 0), "reference")),
        (ReaderRequest, ExportOurs(("forward", 0), MistakeName("sum_not_mean"))),
        (ReaderRequest, PartitionProgram(1, ((None, "tp"), (("dp", "tp"),), ()))),
        (ReaderRequest, RunProgram(("forward", 0), "answer", 3)),
        (ReaderReply, FACTS),
        (ReaderReply, RunResults(2)),
        (ReaderReply, ProgramRefused("no")),
        (ReaderReply, Started()),
        (DrawnCases, DrawnCases((Case("tp=2", {"x": 1}),), 2)),
        (Call, Call((1, (2, [3])), {"n": 4})),
    ],
)
def test_a_message_comes_back(kind: Any, message: Any) -> None:
    assert _arrived(kind, message) == message


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (WorkerReply, {}),
        (WorkerReply, {"done": 1}),
        (WorkerReply, {"done": True, "score": 10}),
        (WorkerReply, {"value": 0}),
        (WorkerReply, {"value": True, "result": 0}),
        (WorkerReply, {"value": 0.0, "result": 0}),
        (WorkerReply, {"program": ["forward", 0, 0], "outputs": []}),
        (WorkerReply, {"program": ["reference", 0], "outputs": []}),
        (WorkerReply, {"program": ["forward", 0], "outputs": {"0": 1}}),
        (WorkerReply, {"failure": ["value", 0], "kind": "x", "message": "x"}),
        (WorkerReply, {"error": 0, "raised": [], "is_value_error": True}),
        (WorkerReply, {"error": 0, "raised": None, "is_value_error": 1}),
        (Output, {"shape": "12", "dtype": "bool", "varying": []}),
        (Output, {"shape": [True], "dtype": "bool", "varying": []}),
        (Output, {"shape": [1], "dtype": "bool", "varying": "tp"}),
        (ReaderRequest, {"export": ["forward", 0], "author": "answer"}),
        (ReaderRequest, {"export": ["forward", 0], "author": {"mistake": 1}}),
        (ReaderRequest, {"run": ["forward", 0], "author": "sum_not_mean", "inputs": 0}),
        (ReaderReply, {"refused": None}),
        (ReaderReply, encode(FACTS) | {"hidden": []}),
        (DrawnCases, {"cases": [{"mesh": "tp=2", "args": {"sets": []}}], "first": 2}),
        (Call, {"args": {"set": []}, "kwargs": {"dict": {}}}),
    ],
)
def test_everything_else_is_refused(kind: Any, data: Any) -> None:
    with pytest.raises(ProtocolError):
        decode(kind, data)


def test_a_case_comes_back() -> None:
    case = Case(
        "dp=2,tp=3",
        {
            "loss": Function("jaxpar.mesh:spec"),
            "params": {
                "w": ArraySpec((4, 6), "d f_tp"),
                "b": [ArraySpec((6,), "f_tp", "bfloat16")],
            },
            "pair": (ArraySpec((2,), "b_dp", draw="ties"), None),
            "scale": 0.5,
            "state": Made(Function("optax:ScaleByAdamState"), (ArraySpec((), "", "int32"), [0.5])),
        },
        {"axis": "tp", "root": 2},
    )
    assert _arrived(Case, case) == case
    assert [name for name, _ in case.arrays()] == ["params", "params", "pair", "state"]


def test_numbers_that_json_has_not_come_back() -> None:
    arrived = _arrived(Call, Call((math.nan, [math.inf]), {"n": -math.inf}))
    assert math.isnan(arrived.args[0])
    assert (arrived.args[1:], arrived.kwargs) == (([math.inf],), {"n": -math.inf})


def test_what_json_cannot_hold_is_refused() -> None:
    with pytest.raises(TypeError, match="of type object"):
        encode(Case("dp=2", {"x": object()}))
