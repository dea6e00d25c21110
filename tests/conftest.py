"""How the tests share a machine: a worker for each core, one thread for each worker."""

import os

import nanogpt  # noqa: F401 (it puts the chapters' folders on the path)

# Before torch is imported, here and in every worker and script that the tests start: two workers
# with two threads each would wait for each other, and the models of the tests are tiny anyway.
os.environ.setdefault("OMP_NUM_THREADS", "1")

MOST = 8  # workers; each holds a torch of its own, about 0.5 GB


def pytest_xdist_auto_num_workers(config):
    """The `auto` of `-n auto`: the cores that this process may use, hyperthreads too."""
    cores = getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))(0)
    return min(len(cores), MOST)
