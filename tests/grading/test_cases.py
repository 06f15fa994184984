"""A case survives the way to the worker."""

import json

import pytest

from jaxpar.contracts.case import ArraySpec, Case, Function, Made
from jaxpar.grading.cases import decode_case, encode


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
    assert decode_case(json.loads(json.dumps(encode(case)))) == case
    assert [name for name, _ in case.arrays()] == ["params", "params", "pair", "state"]


def test_what_json_cannot_hold_is_refused() -> None:
    with pytest.raises(TypeError, match="object"):
        encode(Case("dp=2", {"x": object()}))
