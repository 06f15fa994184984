"""`jaxpar` with faults of a cluster: process 1 has another version, and a clock that is 3 s ahead.

Small messages and products only, so that a report takes seconds.
"""

import os
import time
from types import SimpleNamespace

from jaxpar.cli import main
from jaxpar.train import cluster_check, cluster_facts
from jaxpar.train.launch import RANK

if __name__ == "__main__":
    cluster_check.SIZES = (8, 2**15, 2**20, 2**21)
    cluster_check.MOST_REPETITIONS = 2
    cluster_check.LEAST_SECONDS = 0.0
    if os.environ[RANK] == "1":
        os.environ["NCCL_SOCKET_IFNAME"] = "eth1"
        cluster_facts.__version__ = "0.0.9"
        cluster_facts.time = SimpleNamespace(time=lambda: time.time() + 3)
    main()
