"""Our launchers under plain ipyparallel: ipp.Cluster(engines="labkit", controller="labkit").

What ipyparallel's own tests of a cluster ask of its launchers, asked of ours.
"""

import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile

import ipyparallel as ipp
import psutil
import pytest
from traitlets.config import Config

from labkit.base import times
from labkit.launch.ipp_launchers import LabkitEngineSetLauncher
from tests.conftest import descendants
from tests.support.events import HANG_SECONDS, LONG, until

pytestmark = pytest.mark.slow

SECONDS = int(HANG_SECONDS)  # for whatever takes milliseconds on an idle machine


@pytest.fixture
def new_cluster(tmp_path):
    """Make clusters; stop what is left of them."""
    made = []

    def make(**settings):
        settings = {
            "engines": "labkit",
            "controller": "labkit",
            "n": 2,
            "profile_dir": str(tmp_path / "profile"),
            "delay": 0,
            "log_level": 40,
        } | settings
        made.append(ipp.Cluster(**settings))
        return made[-1]

    yield make
    for cluster in made:
        cluster.stop_cluster_sync()
        cluster.shutdown_atexit = False


@pytest.fixture(params=["local", "labkit"], ids=["stock controller", "labkit controller"])
def cluster(request, new_cluster):
    return new_cluster(controller=request.param, n=3, cluster_id="")


def where():
    import os
    import sys

    return os.getpid(), "torch" in sys.modules


def get_ready_for_a_signal():
    import signal

    def interrupt(*frame):
        raise KeyboardInterrupt

    signal.signal(signal.SIGUSR1, interrupt)


def say_and_sleep(folder, seconds):
    import os
    import pathlib
    import time

    pathlib.Path(folder, str(os.getpid())).touch()
    time.sleep(seconds)


def sleep(client):
    """Let every engine sleep until a signal comes; return when they do."""
    client[:].apply_sync(get_ready_for_a_signal)
    with tempfile.TemporaryDirectory() as folder:
        result = client[:].apply_async(say_and_sleep, folder, LONG)
        until(lambda: len(os.listdir(folder)) == len(client))
    return result


def interrupted(result):
    """Tell whether every engine was interrupted in its sleep."""
    with pytest.raises(ipp.error.CompositeError) as error:
        result.get(timeout=SECONDS)
    return {name for name, *_ in error.value.elist} == {"KeyboardInterrupt"}


# -- as labkit's own launcher -------------------------------------------------------------------


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
        eventually(lambda: cluster.engine_set.exits.get(1, (0, 0))[1] == -signal.SIGKILL)
        # The hub hears of it by a notice: it misses no heartbeats here.
        eventually(lambda: len(client.ids) == 2)
    finally:
        client.close()


def test_stopping_ends_every_process_and_the_folder(cluster):
    client = cluster.start_and_connect_sync()
    root = cluster.engine_set.warm.root
    before = descendants()
    assert len(before) >= 4
    client.close()
    cluster.stop_cluster_sync()
    _, alive = psutil.wait_procs(before, timeout=SECONDS)
    assert alive == []
    assert not os.path.exists(root)


def test_all_engines_gone_is_reported_as_stopped(cluster, eventually):
    client = cluster.start_and_connect_sync()
    launcher = cluster.engine_set
    launcher.signal(signal.SIGKILL)
    eventually(lambda: launcher.state == "after")
    assert launcher.stop_data["exit_code"] == -signal.SIGKILL
    client.close()


# -- as ipyparallel's own -----------------------------------------------------------------------


def test_the_controller_has_a_process_and_stops_more_than_once(new_cluster):
    async def play():
        cluster = new_cluster()
        assert cluster.controller is None
        await cluster.start_controller()
        with pytest.raises(RuntimeError, match="already running"):
            await cluster.start_controller()
        process = cluster.controller.process
        assert process.is_running()
        assert cluster.controller.poll() is None
        with await cluster.connect_client() as client:
            assert client.queue_status() == {"unassigned": 0}
        await cluster.stop_controller()
        process.wait(timeout=SECONDS)
        assert cluster.controller is None
        await cluster.stop_controller()

    asyncio.run(play())


def test_a_set_of_engines_comes_and_goes_and_the_hub_hears_of_it(cluster, eventually):
    cluster.start_controller_sync()
    first = cluster.start_engines_sync(2)
    with cluster.connect_client_sync() as client:
        client.wait_for_engines(2, timeout=SECONDS)
        assert client.ids == [0, 1]
        second = cluster.start_engines_sync(1, "second")
        client.wait_for_engines(3, timeout=SECONDS)
        assert cluster.engine_set.state == "running"
        cluster.stop_engines_sync(first)
        assert list(cluster.engines) == [second]
        eventually(lambda: client.ids == [2])
        with pytest.raises(KeyError):
            cluster.stop_engines_sync(first)


def test_restarted_engines_are_fresh_and_have_ids_of_their_own(cluster, eventually):
    with cluster as client:
        before = client[:].apply_sync(os.getpid)
        (name,) = cluster.engines
        cluster.restart_engines_sync()
        assert list(cluster.engines) == [name]
        eventually(lambda: not {0, 1, 2} & set(client.ids))
        client.wait_for_engines(3, timeout=SECONDS)
        assert not set(before) & set(client[:].apply_sync(os.getpid))
        assert client.ids == [3, 4, 5]


def test_a_signal_to_the_set_reaches_every_engine(cluster):
    with cluster as client:
        result = sleep(client)
        cluster.signal_engines_sync(signal.SIGUSR1)
        assert interrupted(result)


def test_the_users_arguments_win_and_the_output_outlives_the_engines(new_cluster):
    made = Config()
    made.EngineLauncher.engine_args = ["--log-level=10"]
    made.ControllerLauncher.controller_args = ["--log-level=20"]
    cluster = new_cluster(config=made, controller_args=["--ping=250"])
    with cluster:
        engines, controller = cluster.engine_set, cluster.controller
    text = engines.get_output()
    assert "Completed registration with id 0" in text
    assert "Completed registration with id 1" in text
    assert "Heartmonitor beating every 250ms" in controller.get_output()
    assert engines.state == controller.state == "after"


def test_an_engine_is_there_before_its_heart_has_beaten(new_cluster):
    cluster = new_cluster(controller_args=["--HeartMonitor.period=3600000"])
    with cluster as client:
        client.wait_for_engines(2, timeout=SECONDS)
        assert client[:].apply_sync(where)[1][1]


def test_an_engine_that_was_stopped_for_long_is_still_there(new_cluster, eventually):
    """As by a debugger: the end of a process is known without heartbeats."""
    seen = ["--HeartMonitor.period=1", "--log-level=20"]
    cluster = new_cluster(controller_args=seen)
    with cluster as client:
        client.wait_for_engines(2, timeout=SECONDS)
        pid, _ = client[0].apply_sync(where)
        os.kill(pid, signal.SIGSTOP)
        # More than enough for labkit's other controllers, and for ipyparallel's own.
        enough = round(times.HEARTBEATS_MISSED / times.HEARTBEAT) + 50
        missed = re.compile(rf"heartbeat::missed \S+ : {enough}\b")
        eventually(lambda: missed.search(cluster.controller.get_output()))
        os.kill(pid, signal.SIGCONT)
        assert client[0].apply_sync(where)[0] == pid
        assert client.ids == [0, 1]


def test_whoever_waits_hears_that_engines_crashed(new_cluster, tmp_path, monkeypatch):
    crash = tmp_path / "crash.py"
    crash.write_text("import os, time; time.sleep(1); os._exit(1)")
    monkeypatch.setenv("PYTHONSTARTUP", str(crash))
    cluster = new_cluster().start_cluster_sync()
    with cluster.connect_client_sync() as client, pytest.raises(ipp.error.EngineError):
        client.wait_for_engines(3, timeout=SECONDS)


# -- reached from elsewhere ---------------------------------------------------------------------


#: Finds a cluster by its file, uses it, and starts its engines afresh.
ELSEWHERE = """
import os, sys, time
import ipyparallel as ipp
cluster = ipp.Cluster.from_file(sys.argv[1])
with cluster.connect_client_sync() as client:
    print(client[:].apply_sync(os.getpid))
    print(cluster.engine_set.get_output().count("Completed registration"))
    cluster.restart_engines_sync()
    while {0, 1} & set(client.ids):  # else what waits for engines fails when these go
        time.sleep(0.01)
    client.wait_for_engines(2, timeout=120)
    print(client[:].apply_sync(os.getppid) == [cluster.engine_set.warm.process.pid] * 2)
cluster.stop_cluster_sync()
"""


def test_another_process_reaches_a_cluster_by_its_file(new_cluster, eventually):
    cluster = new_cluster()
    with cluster.start_and_connect_sync() as client:
        engines, controller = cluster.engine_set, cluster.controller
        pids = client[:].apply_sync(os.getpid)
        command = [sys.executable, "-c", ELSEWHERE, cluster.cluster_file]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.stdout.splitlines() == [str(pids), "2", "True"], done.stderr
        eventually(lambda: engines.state == controller.state == "after")


def test_a_cluster_whose_owner_has_ended_is_not_running(new_cluster, caplog):
    cluster = new_cluster()
    with cluster:
        about = cluster.to_dict()
        cluster.engine_set.warm.process.kill()
        psutil.wait_procs(descendants(), timeout=SECONDS)
        other = ipp.Cluster.from_dict(about)
    assert other.controller is None
    assert other.engines == {}
    assert "not running: Process" in caplog.text
