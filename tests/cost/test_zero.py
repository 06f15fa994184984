"""ZeRO's table 1, and what its section 7 counts."""

import pytest

from jaxpar.cost.zero import (
    ADAM_FP32,
    ADAM_MIXED,
    MIXED,
    States,
    step_wire_bytes,
    training_state_bytes,
    training_states,
)

# GB on each device in mixed precision, for stages 1, 2, 3; the paper cuts some digits off.
TABLE_1 = {
    7.5: {
        1: (120, 120, 120),
        4: (52.5, 41.3, 30),
        16: (35.6, 21.6, 7.5),
        64: (31.4, 16.6, 1.88),
        256: (30.4, 15.4, 0.47),
        1024: (30.1, 15.1, 0.12),
    },
    128: {
        1: (2048, 2048, 2048),
        4: (896, 704, 512),
        16: (608, 368, 128),
        64: (536, 284, 32),
        256: (518, 263, 8),
        1024: (513, 257, 2),
    },
}


@pytest.mark.parametrize("billions", TABLE_1)
def test_mixed_precision_takes_what_table_1_says(billions: float) -> None:
    for n, row in TABLE_1[billions].items():
        for stage, printed in enumerate(row, start=1):
            got = training_states(int(billions * 1e9), ADAM_MIXED, n, stage).total / 1e9
            last_digit = 10.0 ** -len(str(printed).partition(".")[2])
            assert abs(got - printed) <= last_digit


def test_each_stage_shards_one_state_more() -> None:
    each = States(2, 3, 5)
    held = [training_states(40, each, 4, stage) for stage in (0, 1, 2, 3)]
    assert held == [
        States(80, 120, 200),
        States(80, 120, 50),
        States(80, 30, 50),
        States(20, 30, 50),
    ]
    assert ADAM_FP32.total == ADAM_MIXED.total == 16


def test_moments_in_8_bits_are_a_code_and_a_part_of_a_scale_each() -> None:
    assert MIXED["adam8bit"].optimizer - MIXED["sgd"].optimizer == 2 * (1 + 4 / 256)


def test_stages_1_and_2_send_what_data_parallelism_sends_and_stage_3_half_as_much_again() -> None:
    sent = [step_wire_bytes(800, 8, stage) for stage in (0, 1, 2, 3)]
    assert sent == [1400, 1400, 1400, 2100]
    accumulated = [step_wire_bytes(800, 8, stage, microbatches=4) for stage in (0, 1, 2, 3)]
    assert accumulated == [1400, 1400, 3500, 8400]


def test_a_stage_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no stage 4"):
        training_states(1, ADAM_FP32, 8, 4)
    with pytest.raises(ValueError, match="there is no stage -1"):
        step_wire_bytes(1, 8, -1)


def test_states_in_one_number_are_the_sum_of_all_three() -> None:
    for stage in (0, 1, 2, 3):
        held = training_state_bytes(
            1001, devices=4, zero=stage, param_bytes=2, grad_bytes=3, state_bytes=5
        )
        assert held == training_states(1001, States(2, 3, 5), 4, stage).total
    each = {"param_bytes": 2, "grad_bytes": 2, "state_bytes": 12}
    with pytest.raises(ValueError, match="devices = 0; it must be 1 or more"):
        training_state_bytes(1000, devices=0, zero=1, **each)
    with pytest.raises(ValueError, match="there is no stage 4"):
        training_state_bytes(1000, devices=4, zero=4, **each)
