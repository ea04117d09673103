"""The recipe of notebook 08: what it reaches, and that it gives the same wherever it runs."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import labkit

SCRIPTS = Path(__file__).resolve().parents[2] / "notebooks" / "scripts"
RANKS = 4
TORCHRUN = (
    "-m",
    "torch.distributed.run",
    "--standalone",
    "--local-addr=localhost",
    f"--nproc-per-node={RANKS}",
)


def run_script(*launcher: str, options: tuple[str, ...] = (), limit: float = 240) -> str:
    """Run train.py in a session of its own, and end all of it after ``limit`` seconds."""
    environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
    if any(name == "lo" for _, name in socket.if_nameindex()):
        environment["GLOO_SOCKET_IFNAME"] = "lo"
    with subprocess.Popen(
        [sys.executable, *launcher, "train.py", *options],
        cwd=SCRIPTS,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=limit)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, output
    return output


def results_in(output: str) -> dict[str, Any]:
    """Read the last line of a run."""
    line = re.search(r"^result: accuracy (\S+), loss (\S+), weights (\w{8})$", output, re.MULTILINE)
    assert line, output
    return {"accuracy": float(line[1]), "loss": float(line[2]), "weights": line[3]}


def train(folder: str, *words: str) -> dict[str, Any]:
    """Run the recipe on this rank, in the lab's group."""
    import sys

    import torch.distributed as dist

    sys.path.insert(0, folder)
    try:
        import train as recipe
    finally:
        sys.path.remove(folder)
    _, results = recipe.main(words)
    assert dist.is_initialized()  # it is a guest in this group
    return results


@pytest.fixture(scope="module")
def lab() -> Iterator[labkit.Lab]:
    # Threads change the order of sums: torchrun gives each rank one, a lab its share of the cores.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        with labkit.start(RANKS, preload=["torchvision"]) as lab:
            yield lab


@pytest.fixture(scope="module")
def recipe() -> Iterator[Any]:
    """Import the script into this process."""
    sys.path.insert(0, str(SCRIPTS))
    try:
        import train

        yield train
    finally:
        sys.path.remove(str(SCRIPTS))
        sys.modules.pop("train", None)


def test_the_lab_and_torchrun_give_the_same_and_reach_95_per_cent(lab: labkit.Lab) -> None:
    here = lab.run(train, str(SCRIPTS), "--epochs=3")
    assert all(results == here[0] for results in here)
    assert here[0]["accuracy"] >= 0.95
    there = results_in(run_script(*TORCHRUN, options=("--epochs=3",)))
    if torch.cuda.is_available():  # some kernels add in any order
        assert there["accuracy"] == pytest.approx(here[0]["accuracy"], abs=0.01)
        return
    assert there == {name: here[0][name] for name in there}


def test_one_process_learns_what_all_ranks_learn(lab: labkit.Lab) -> None:
    options = ("--epochs=1", "--shift=0")
    alone = results_in(run_script(options=options))
    (together, *_) = lab.run(train, str(SCRIPTS), *options)
    assert alone["loss"] == pytest.approx(together["loss"], abs=1e-3)
    assert alone["accuracy"] == pytest.approx(together["accuracy"], abs=0.005)


def test_another_seed_gives_other_weights_and_the_same_seed_the_same(lab: labkit.Lab) -> None:
    words = ("--epochs=1", "--batch-size=400")
    first, again, other = (
        lab.run(train, str(SCRIPTS), *words, f"--seed={seed}")[0]["weights"] for seed in (0, 0, 1)
    )
    assert first == again != other


def test_every_option_of_precision_and_workers_runs(lab: labkit.Lab) -> None:
    words = ("--epochs=1", "--batch-size=400")
    for more in ("--precision=bfloat16", "--precision=float16", "--workers=1"):
        results = lab.run(train, str(SCRIPTS), *words, more)
        assert len({r["weights"] for r in results}) == 1
        assert results[0]["losses"][-1] < results[0]["losses"][0]


def test_the_checkpoint_holds_the_trained_model(
    lab: labkit.Lab, recipe: Any, tmp_path: Path
) -> None:
    path = tmp_path / "model.pt"
    words = ("--epochs=1", "--batch-size=400", f"--save={path}")
    (results, *_) = lab.run(train, str(SCRIPTS), *words)
    model = recipe.make_model()
    model.load_state_dict(torch.load(path, weights_only=True)["model"])
    assert recipe.checksum(model) == results["weights"]
    assert list(tmp_path.iterdir()) == [path]


def test_every_test_image_is_counted_once(lab: labkit.Lab) -> None:
    def count(folder: str, images: int) -> tuple[float, float, int]:
        import sys

        import torch
        from torch.utils.data import Subset

        sys.path.insert(0, folder)
        import train as recipe

        torch.manual_seed(0)
        test_set = Subset(recipe.Digits(recipe.DATA, train=False), range(images))
        return recipe.evaluate(recipe.make_model(), test_set, torch.device("cpu"))

    for images in (997, 3):
        (first, *others) = lab.run(count, str(SCRIPTS), images)
        assert first[2] == images
        assert all(other == first for other in others)


def test_the_group_is_left_when_training_fails(recipe: Any, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        recipe.main([f"--data={tmp_path}"])
    assert not dist.is_initialized()


def test_the_rate_rises_and_falls_within_its_bounds(recipe: Any) -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    schedule = recipe.make_schedule(optimizer, steps=20, warmup=5)
    rates = []
    for _ in range(20):
        rates += schedule.get_last_lr()
        optimizer.step()
        schedule.step()
    assert rates[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert rates[5:] == sorted(rates[5:], reverse=True)
    assert all(0 < rate <= 1 for rate in rates)
