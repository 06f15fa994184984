"""Generated schedules: their published order, limits, and what they keep in flight."""

import pytest

from jaxpar.schedules import NAMES, check, make_table, peak_in_flight, simulate

SIZES = [(1, 1), (1, 3), (2, 4), (3, 6), (4, 8), (4, 12), (5, 20)]
FEW = [(4, 1), (4, 3), (5, 2)]  # microbatches that never fill the pipeline


def row(name: str, stages: int, microbatches: int, device: int, chunks: int | None = None) -> str:
    return " ".join(make_table(name, stages, microbatches, chunks).to_rows()[device])


def test_naive_is_one_microbatch_after_the_other():
    assert row("naive", 2, 2, 1) == "1F0 1B0 1F1 1B1"


def test_gpipe_is_all_forward_then_all_backward():
    assert row("gpipe", 3, 3, 2) == "2F0 2F1 2F2 2B0 2B1 2B2"


def test_1f1b_is_as_megatron_draws_it():
    assert row("1f1b", 4, 6, 0) == "0F0 0F1 0F2 0F3 0B0 0F4 0B1 0F5 0B2 0B3 0B4 0B5"
    assert row("1f1b", 4, 6, 3) == "3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3 3F4 3B4 3F5 3B5"


def test_interleaved_is_as_megatron_draws_it():
    assert row("interleaved", 2, 4, 0) == (
        "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3"
    )
    assert (
        row("interleaved", 2, 2, 1, chunks=3) == "1F0 1F1 3F0 3F1 5F0 5B0 5F1 5B1 3B0 3B1 1B0 1B1"
    )


def test_interleaved_with_as_many_microbatches_as_devices_goes_all_forward_first():
    cells = row("interleaved", 4, 4, 0).split()
    assert [cell[1] for cell in cells] == ["F"] * 8 + ["B"] * 8


def test_breadth_first_is_chunk_after_chunk():
    assert row("breadth-first", 2, 2, 0) == "0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1"


def test_zb_h1_is_as_published():
    assert row("zb-h1", 3, 4, 0) == "0F0 0F1 0F2 0I0 0W0 0F3 0I1 0W1 0I2 0W2 0I3 0W3"
    assert row("zb-h1", 3, 4, 2) == "2F0 2I0 2F1 2I1 2F2 2I2 2W0 2F3 2I3 2W1 2W2 2W3"


def test_zb_h2_begins_with_twice_as_many_forwards():
    cells = row("zb-h2", 3, 6, 0).split()
    assert cells[:7] == ["0F0", "0F1", "0F2", "0F3", "0F4", "0I0", "0W0"]


def test_v_schedules_are_as_published():
    assert row("zb-v", 2, 4, 0) == (
        "0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0F3 0I0 0W0 3F2 3I2 3W2 0I1 0W1 3F3 3I3 3W3 "
        "0I2 0W2 0I3 0W3"
    )
    assert row("dualpipe-v", 2, 4, 0) == (
        "0F0 0F1 0F2 3F0 3I0 3W0 3F1 0F3 3B1 3F2 0B0 3B2 3F3 0B1 3B3 0I2 0W2 0I3 0W3"
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("stages", "microbatches"), [*SIZES, *FEW])
def test_every_size_that_is_taken_runs(name, stages, microbatches):
    few = {"dualpipe-v": microbatches < 2 * stages, "interleaved": microbatches % stages}
    if few.get(name):
        with pytest.raises(ValueError, match=rf"_schedule: microbatches is {microbatches}; .* use"):
            make_table(name, stages, microbatches)
        return
    table = make_table(name, stages, microbatches)
    check(table)
    assert (table.devices, table.microbatches) == (stages, microbatches)
    assert table.stages == stages * table.chunks


@pytest.mark.parametrize(("p", "m"), [*FEW, (4, 4)])
def test_few_microbatches_are_all_in_flight(p, m):
    """`test_published.py` compares sizes for which the published formulas hold."""
    assert max(peak_in_flight(make_table("zb-h1", p, m))) == m
    assert max(peak_in_flight(make_table("zb-h2", p, m))) == m
    assert max(peak_in_flight(make_table("zb-v", p, m))) <= 2 * p


@pytest.mark.parametrize("name", NAMES)
def test_a_schedule_needs_a_stage_and_a_microbatch(name):
    with pytest.raises(ValueError, match=r"_schedule: stages is 0; it must be 1 or more"):
        make_table(name, 0, 4)
    with pytest.raises(ValueError, match=r"_schedule: microbatches is -1; it must be 1 or more"):
        make_table(name, 4, -1)


def test_chunks_are_for_schedules_that_have_them():
    assert make_table("interleaved", 2, 2) == make_table("interleaved", 2, 2, 2)
    assert make_table("zb-v", 2, 4, 2) == make_table("zb-v", 2, 4)
    assert make_table("1f1b", 2, 4, 1) == make_table("1f1b", 2, 4)
    with pytest.raises(ValueError, match="chunks is 1; it must be 2 or more; with one chunk use"):
        make_table("interleaved", 2, 2, 1)
    with pytest.raises(ValueError, match="chunks is 2; gpipe has 1 on each device; leave chunks"):
        make_table("gpipe", 2, 2, 2)
    with pytest.raises(ValueError, match="chunks is 3; zb-v has 2 on each device; leave chunks"):
        make_table("zb-v", 2, 4, 3)
    with pytest.raises(ValueError, match="zb-h3 is unknown; use one of naive, gpipe, 1f1b"):
        make_table("zb-h3", 2, 4)


def test_the_largest_table_is_generated_checked_and_simulated():
    table = make_table("1f1b", 64, 1024)
    check(table)
    assert simulate(table).makespan == 3 * (1024 + 63)
