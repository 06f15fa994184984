"""Front end 2 reads HLO text in all its spellings."""

import pytest

from jaxpar.inspector.hlo import count_hlo_flops, read_hlo
from jaxpar.inspector.hlo_text import parse_hlo
from tests.inspector.corpus import short

MESH = {"dp": 2, "tp": 4}


def hlo(body: str, computations: str = "") -> str:
    """A module in which each device has x, 8 float32, and the constants of a loop counter."""
    return f"""HloModule program, num_partitions=8

FileNames
1 "folder/program.py"

FunctionNames
1 "program"

FileLocations
1 {{file_name_id=1 function_name_id=1 line=7 end_line=7 column=4 end_column=9}}

StackFrames
1 {{file_location_id=1 parent_frame_id=1}}

%sum (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}}

{computations}
ENTRY %main (x: f32[8]) -> f32[8] {{
  %x = f32[8]{{0}} parameter(0)
  {body}
  ROOT %out = f32[8]{{0}} copy(%x)
}}
"""


def all_reduce(groups: str, rest: str = "") -> str:
    return (
        f"%r = f32[8]{{0}} all-reduce(%x), channel_id=1, replica_groups={groups}, "
        f"use_global_device_ids=true, to_apply=%sum{rest}"
    )


@pytest.mark.parametrize(
    ("groups", "axes", "size"),
    [
        ("{{0,1,2,3},{4,5,6,7}}", "tp", 4),
        ("{{4,0},{1,5},{6,2},{3,7}}", "dp", 2),
        ("{}", "dp+tp", 8),
        ("[2,4]<=[8]", "tp", 4),
        ("[4,2]<=[2,4]T(1,0)", "dp", 2),
        ("[4,2]<=[2,2,2]T(0,2,1)", "tp", 2),
        ("mesh['dp'=2,'tp'=4] {'dp'}", "dp", 2),
        ("mesh['dp'=2,'tp'=4] {'dp','tp'}", "dp+tp", 8),
        ("mesh['axis_0'=1,'axis_1'=4,'axis_2'=2] {'axis_1','axis_2'}", "dp+tp", 8),
        ("mesh['axis_0'=4,'axis_1'=2], device_ids=([2,4]T(1,0)) {'axis_1'}", "dp", 2),
        ("mesh['axis_0'=4,'axis_1'=2], device_ids=([2,4]T(1,0)) {'axis_0'}", "tp", 4),
        ("mesh['a'=8] {'a':(2)2}", "tp", 2),
        ("mesh['a'=8] {'a':(1)4}", "dp+tp", 4),
        ("mesh['a'=8] {'a':(1)2,'a':(4)2}", "dp+tp", 4),
    ],
)
def test_spellings_of_groups(groups: str, axes: str, size: int) -> None:
    (one,) = read_hlo(hlo(all_reduce(groups)), MESH)
    assert ("+".join(one.axes), one.group_size, one.operand_bytes) == (axes, size, 32)


@pytest.mark.parametrize(
    "groups",
    [
        "mesh['dp'=2,'tp'=4] {'up'}",
        "mesh['dp'=2,'tp'=4], device_ids=(7,6,5,4,3,2,1,0) {'tp'}",
        "all",
    ],
)
def test_spellings_that_are_not_known_are_refused(groups: str) -> None:
    with pytest.raises(ValueError, match="a form that is not known"):
        read_hlo(hlo(all_reduce(groups)), MESH)


@pytest.mark.parametrize("opcode", ["send", "recv", "infeed", "ragged-all-to-all", "all-foo"])
def test_what_may_communicate_is_refused(opcode: str) -> None:
    with pytest.raises(ValueError, match=f"HLO '{opcode}' is not known"):
        read_hlo(hlo(f"%y = f32[8]{{0}} {opcode}(%x), channel_id=2"), MESH)


@pytest.mark.parametrize("line", ["what is this", "%y = f32[8]{0}", "%y = f32[8]{0} add(%x, (%x"])
def test_lines_that_are_not_understood_are_refused(line: str) -> None:
    with pytest.raises(ValueError, match="has a form that is not known"):
        read_hlo(hlo(line), MESH)


def test_names_that_users_chose_are_not_read() -> None:
    """A named scope may have the name of an attribute of HLO."""
    lie = '%y = f32[8]{0} copy(%x), metadata={op_name="/*\\", replica_groups={{0}}, all-reduce("}'
    groups = 'metadata={op_name="replica_groups={{0}}" stack_frame_id=1}, channel_id=1'
    body = f"{lie}\n  %r = f32[8]{{0}} all-reduce(%x), {groups}, replica_groups=[2,4]<=[8]"
    (one,) = read_hlo(hlo(body), MESH)
    assert (one.axes, one.source) == (("tp",), "folder/program.py:7")


def test_started_and_done_count_once() -> None:
    groups = "channel_id=1, replica_groups=[2,4]<=[8]"
    pairs = "source_target_pairs={{0,1},{2,2}}"
    body = f"""%s = (f32[8]{{0}}, /*index=1*/f32[32]{{0}}) all-gather-start(%x), {groups}
  %d = f32[32]{{0}} all-gather-done(%s)
  %p = (f32[8]{{0}}, f32[8]{{0}}) collective-permute-start(%x), {pairs}
  %q = f32[8]{{0}} collective-permute-done(%p)
  %t = ((f32[8]{{0}}), f32[8]{{0}}, u32[]) async-start(%x), calls=%wrapped
  %u = f32[8]{{0}} async-done(%t)"""
    wrapped = f"""%wrapped (w: f32[8]) -> f32[8] {{
  %w = f32[8]{{0}} parameter(0)
  ROOT %a = f32[8]{{0}} all-to-all(%w), {groups}, dimensions={{0}}
}}
"""
    found = read_hlo(hlo(body, wrapped), MESH)
    assert short(found) == (
        ("all_gather", "tp", "float32", 32, 96, 1),
        ("permute", "tp", "float32", 32, 32, 1),
        ("all_to_all", "tp", "float32", 32, 24, 1),
    )


def test_a_tuple_is_summed() -> None:
    body = """%b = bf16[3]{0} convert(%x)
  %r = (f32[8]{0}, bf16[3]{0}) all-reduce(%x, %b), channel_id=1, replica_groups=[1,8]<=[8]"""
    (one,) = read_hlo(hlo(body), MESH)
    assert (one.dtype, one.operand_bytes, one.wire_bytes) == ("float32+bfloat16", 38, 66.5)


LOOP = """%body (p: (s32[], f32[8])) -> (s32[], f32[8]) {
  %p = (s32[], f32[8]{0}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %y = f32[8]{0} collective-permute(%p#1), channel_id=1, source_target_pairs={{0,1}}
  ROOT %t = (s32[], f32[8]{0}) tuple(%next, %y)
}

%condition (p: (s32[], f32[8])) -> pred[] {
  %p = (s32[], f32[8]{0}) parameter(0)
  %stop = s32[] constant(6)
  ROOT %go = pred[] compare(%p#0, %stop), direction=LT
}
"""
WHILE = """%start = s32[] constant(2)
  %t = (s32[], f32[8]{0}) tuple(%start, %x)
  %w = (s32[], f32[8]{0}) while(%t), condition=%condition, body=%body"""
NOTED = ', backend_config={"known_trip_count":{"n":"9"}}'


@pytest.mark.parametrize(
    ("loop", "body", "times"),
    [
        (LOOP, WHILE, 4),
        (LOOP, WHILE + NOTED, 9),
        (LOOP.replace("constant(6)", "parameter(1)"), WHILE, None),
        (LOOP.replace("add(%i, %one)", "multiply(%i, %one)"), WHILE, None),
        (LOOP.replace("compare(%p#0, %stop), direction=LT", "not(%stop)"), WHILE, None),
        (LOOP, WHILE.replace("tuple(%start, %x)", "copy(%x)"), None),
        (LOOP, f'{WHILE}, metadata={{op_name="{NOTED}"}}'.replace('"known', '\\"known'), 4),
    ],
)
def test_loops(loop: str, body: str, times: int | None) -> None:
    (one,) = read_hlo(hlo(body, loop), MESH)
    assert one.times == times


def test_both_branches_show() -> None:
    branch = """%{0} (p: f32[8]) -> f32[8] {{
  %p = f32[8]{{0}} parameter(0)
  ROOT %r = f32[8]{{0}} all-reduce(%p), channel_id=1, replica_groups=[2,4]<=[8]
}}

"""
    branches = branch.format("one") + branch.format("two")
    for form in (
        "branch_computations={%one, %two}",
        "true_computation=%one, false_computation=%two",
    ):
        body = f"%c = f32[8]{{0}} conditional(%x, %x, %x), {form}"
        assert [one.conditional for one in read_hlo(hlo(body, branches), MESH)] == [True, True]


def test_flops() -> None:
    body = """%a = f32[2,3,4]{2,1,0} reshape(%x)
  %b = f32[2,4,5]{2,1,0} reshape(%x)
  %d = f32[2,3,5]{2,1,0} dot(%a, %b), lhs_batch_dims={0}, lhs_contracting_dims={2}
  %i = f32[1,8,2]{2,1,0} reshape(%x)
  %k = f32[3,2,4]{2,1,0} reshape(%x)
  %c = f32[1,8,4]{2,1,0} convolution(%i, %k), window={size=3}, dim_labels=b0f_0io->b0f"""
    assert count_hlo_flops(hlo(body)) == 2 * 2 * 3 * 5 * 4 + 2 * 8 * 4 * 3 * 2


def test_a_module_without_entry_is_refused() -> None:
    with pytest.raises(ValueError, match="without an ENTRY computation"):
        parse_hlo("HloModule empty\n")
