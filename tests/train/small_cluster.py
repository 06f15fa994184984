"""`jaxpar` whose `doctor --cluster` takes seconds: few sizes and repetitions, little patience."""

from jaxpar.cli import main
from jaxpar.train import cluster_check


def hurry() -> None:
    """Leaves out what tests of a report do not need."""
    cluster_check.SIZES = (8, 2**15, 2**20, 2**21)
    cluster_check.MOST_REPETITIONS = 2
    cluster_check.LEAST_SECONDS = 0.0
    cluster_check.SECONDS_ALLOWED = 20


if __name__ == "__main__":
    hurry()
    main()
