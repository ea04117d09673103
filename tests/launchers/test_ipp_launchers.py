"""Our launcher under plain ipyparallel: ipp.Cluster(engines="labkit")."""

import os
import signal
import time

import ipyparallel as ipp
import psutil
import pytest

from labkit.launch.ipp_launchers import LabkitEngineSetLauncher
from tests.conftest import descendants

pytestmark = pytest.mark.slow


@pytest.fixture(params=["stock controller", "labkit controller"])
def cluster(request, tmp_path):
    made = ipp.Cluster(
        engines="labkit",
        controller="labkit" if request.param == "labkit controller" else "local",
        n=3,
        profile_dir=str(tmp_path / "profile"),
        cluster_id="",
        delay=0,
        log_level=40,
    )
    yield made
    made.stop_cluster_sync()
    made.shutdown_atexit = False


def where():
    import os
    import sys

    return os.getpid(), "torch" in sys.modules


def test_it_works_by_name_alone(cluster, eventually):
    client = cluster.start_and_connect_sync()
    try:
        assert isinstance(cluster.engine_set, LabkitEngineSetLauncher)
        answers = client[:].apply_sync(where)
        assert len({pid for pid, _ in answers}) == 3
        assert all(loaded for _, loaded in answers)
        assert {psutil.Process(pid).ppid() for pid, _ in answers} == {
            cluster.engine_set.warm.process.pid
        }
        # A signal through ipyparallel reaches the engine without a nanny.
        client.send_signal(signal.SIGKILL, targets=[1], block=True)
        start = time.monotonic()
        eventually(lambda: cluster.engine_set.exits.get(1, (0, 0))[1] == -signal.SIGKILL, 2)
        # The hub hears of it long before ten heartbeats are missed.
        eventually(lambda: len(client.ids) == 2, 2)
        assert time.monotonic() - start < 2
    finally:
        client.close()


def test_stopping_ends_every_process_and_the_folder(cluster):
    client = cluster.start_and_connect_sync()
    root = cluster.engine_set.warm.root
    before = descendants()
    assert len(before) >= 4
    client.close()
    cluster.stop_cluster_sync()
    _, alive = psutil.wait_procs(before, timeout=5)
    assert alive == []
    assert not os.path.exists(root)


def test_all_engines_gone_is_reported_as_stopped(cluster, eventually):
    client = cluster.start_and_connect_sync()
    launcher = cluster.engine_set
    launcher.signal(signal.SIGKILL)
    eventually(lambda: launcher.state == "after", 3)
    assert launcher.stop_data["exit_code"] == -signal.SIGKILL
    client.close()
