"""How much of the time a training run makes progress, where devices fail and states are saved.

Sources: Young 1974, A First Order Approximation to the Optimum Checkpoint Interval; Daly 2006, A
higher order estimate of the optimum checkpoint interval for restart dumps; Grattafiori et al. 2024,
The Llama 3 Herd of Models, sections 3.3.1 and 3.3.4: 419 unexpected interruptions in 54 days on
16,384 H100, and storage of 2 TB/s.
"""

import math
from dataclasses import dataclass

HOUR = 3600.0
DEVICE_MTBF_HOURS = 54 * 24 * 16_384 / 419
STORAGE_BYTES_PER_SECOND = 2e12 / 16_384  # a device's part
RESTART_SECONDS = 600.0  # assumed, as in Daly's figures 3 to 5


def young_daly_interval(checkpoint_seconds: float, mtbf_seconds: float) -> float:
    """The time of work between two checkpoints that loses least, to first order.

    A checkpoint of C seconds after every t seconds of work costs a fraction C/t of the time. A
    failure every M seconds, on average, loses half an interval, which is a fraction t/(2M). The sum
    of both is least at this t.

    Source: Young 1974; Daly 2006, section 2

    Raises:
        ValueError: a time is negative or NaN.
    """
    for name, seconds in (("checkpoint", checkpoint_seconds), ("mtbf", mtbf_seconds)):
        if not seconds >= 0:
            raise ValueError(
                f"young_daly_interval: {name}_seconds = {seconds}; a time is 0 or more; give it in "
                "seconds"
            )
    return math.sqrt(2 * checkpoint_seconds * mtbf_seconds)


@dataclass(frozen=True)
class Failures:
    """Failures and checkpoints of a run.

    Attributes:
        mtbf_seconds: the mean time between two failures of any device.
        checkpoint_seconds: the time of a checkpoint, in which nothing is computed.
        restart_seconds: the time from a failure until work goes on.
    """

    mtbf_seconds: float
    checkpoint_seconds: float
    restart_seconds: float = RESTART_SECONDS

    @property
    def interval_seconds(self) -> float:
        """The time of work between two checkpoints, by Young and Daly."""
        return young_daly_interval(self.checkpoint_seconds, self.mtbf_seconds)

    @property
    def goodput(self) -> float:
        """The fraction of time that is work which is not lost, at this interval."""
        return self.goodput_at(self.interval_seconds)

    def goodput_at(self, interval_seconds: float) -> float:
        """The fraction of time that is work which is not lost.

        Failures come at random, at any time, also during a checkpoint or a restart.

        Math: t / (M e^(R/M) (e^((t + C)/M) - 1)), where t is the interval, C a checkpoint's time, R
            a restart's, and M the time between failures
        Source: Daly 2006, its complete cost function
        """
        turn = (interval_seconds + self.checkpoint_seconds) / self.mtbf_seconds
        # Written with e^-turn, because e^turn overflows where failures leave no time for work.
        lost = math.exp(-turn - self.restart_seconds / self.mtbf_seconds) / -math.expm1(-turn)
        return interval_seconds / self.mtbf_seconds * lost


def failures(state_bytes: float, devices: int, device_mtbf_hours: float) -> Failures:
    """The failures of a run whose checkpoint writes `state_bytes`, over all devices.

    Raises:
        ValueError: the mean time between failures is not from 1e-6 to 1e12 hours.
    """
    if not 1e-6 <= device_mtbf_hours <= 1e12:
        raise ValueError(
            f"failures: {device_mtbf_hours} hours between failures of a device; it is a number "
            f"above 0, from 1e-6 to 1e12; Llama 3's devices had {DEVICE_MTBF_HOURS:,.0f}"
        )
    return Failures(
        mtbf_seconds=device_mtbf_hours * HOUR / devices,
        checkpoint_seconds=state_bytes / (STORAGE_BYTES_PER_SECOND * devices),
    )
