"""`small_cluster`, where process 1 has another version, a variable, and a clock 3 s ahead."""

import os
import time
from types import SimpleNamespace

from jaxpar.cli import main
from jaxpar.train import cluster_facts
from jaxpar.train.launch import RANK
from tests.train.small_cluster import hurry

if __name__ == "__main__":
    hurry()
    if os.environ[RANK] == "1":
        os.environ["NCCL_SOCKET_IFNAME"] = "eth1"
        cluster_facts.__version__ = "0.0.9"
        cluster_facts.time = SimpleNamespace(time=lambda: time.time() + 3)
    main()
