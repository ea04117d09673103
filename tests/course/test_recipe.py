"""The script of notebook 09: what it reaches, and that it gives the same wherever it runs."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import torch.distributed as dist

import labkit
from tests.conftest import descendants

SCRIPTS = Path(__file__).resolve().parents[2] / "notebooks" / "scripts"
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--local-addr=localhost")
#: A script that has train.py's functions at hand, and ends by calling it.
AROUND = """\
import os, signal, sys
sys.path.insert(0, {scripts!r})
import train
{change}
train.record(train.train)(train.read_options())
"""
#: Dropout draws other numbers on other ranks.
NO_DROPOUT = "train.make_model = lambda make=train.make_model: make()[:-2].append(make()[-1])"


def run_script(
    *launcher: str, script: str = "train.py", options: tuple[str, ...] = (), limit: float = 240
) -> str:
    """Run a script, and end it with all its processes after ``limit`` seconds."""
    environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
    # Without it, processes that torchrun starts again may find addresses of those before (torch
    # issue 135712).
    environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    environment["OMP_NUM_THREADS"] = "1"  # threads change the order of sums
    if any(name == "lo" for _, name in socket.if_nameindex()):
        environment["GLOO_SOCKET_IFNAME"] = "lo"
    with subprocess.Popen(
        [sys.executable, *launcher, script, *options],
        cwd=SCRIPTS,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=limit)
        finally:
            if process.poll() is None:
                workers = descendants(process.pid)  # each in a session of its own
                process.kill()
                for worker in workers:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        worker.kill()
    assert process.returncode == 0, output
    return output


@pytest.fixture
def changed(tmp_path: Path) -> Callable[[str], str]:
    """Give the path of a script that runs train.py with a change."""

    def write(change: str) -> str:
        path = tmp_path / "changed.py"
        path.write_text(AROUND.format(scripts=str(SCRIPTS), change=change))
        return str(path)

    return write


@pytest.fixture(scope="module")
def recipe() -> Iterator[Any]:
    """Import the script into this process, where it trains with one thread."""
    sys.path.insert(0, str(SCRIPTS))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        import train

        yield train
    finally:
        torch.set_num_threads(threads)
        sys.path.remove(str(SCRIPTS))
        for name in ("train", "digits"):
            sys.modules.pop(name, None)


@pytest.fixture
def run(
    recipe: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    few: str,
) -> Callable[..., list[str]]:
    """Train in this process, on 400 images; gives what was printed."""
    before = signal.getsignal(signal.SIGTERM), torch.get_float32_matmul_precision()

    def train(*words: str) -> list[str]:
        monkeypatch.setattr(sys, "argv", ["train.py", "--batch-size=40", few, *words])
        capsys.readouterr()
        try:
            recipe.train(recipe.read_options())
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()
            signal.signal(signal.SIGTERM, before[0])
            torch.set_float32_matmul_precision(before[1])
        return capsys.readouterr().out.splitlines()

    return train


@pytest.fixture(scope="module")
def few(recipe: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write a folder with a tenth of the images, and return the option for it."""
    folder = tmp_path_factory.mktemp("data")
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for part, images in (("train", 400), ("t10k", 100)):
        for name, size, header in (("images-idx3", 784, 16), ("labels-idx1", 1, 8)):
            content = (recipe.DATA / "MNIST" / "raw" / f"{part}-{name}-ubyte").read_bytes()
            (raw / f"{part}-{name}-ubyte").write_bytes(content[: header + size * images])
    return f"--data={folder}"


class Killed(Exception):
    """The end of a process, at a point that the test chooses."""


def dies_after_saving(recipe: Any, patch: pytest.MonkeyPatch, run: Any, *words: str) -> None:
    """Train until the first checkpoint is written."""

    def save_and_die(*given: Any) -> None:
        save(*given)
        raise Killed

    save = recipe.save
    with patch.context() as inside:
        inside.setattr(recipe, "save", save_and_die)
        with pytest.raises(Killed):
            run(*words)


def equal(one: Any, other: Any) -> bool:
    """Compare two states, tensors bit for bit."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other)


def read(path: Path) -> dict[str, Any]:
    state: dict[str, Any] = torch.load(path, weights_only=True)
    return state


def losses(lines: list[str] | str) -> list[float]:
    """Read the mean loss of each stretch of steps."""
    text = lines if isinstance(lines, str) else "\n".join(lines)
    return [float(loss) for loss in re.findall(r"^step [\d,]+: loss (\d+\.\d{4}),", text, re.M)]


def results_in(lines: list[str] | str) -> list[tuple[float, float]]:
    """Read the loss and the accuracy in per cent of each test."""
    text = lines if isinstance(lines, str) else "\n".join(lines)
    found = re.findall(r"^epoch \S+: test loss (\S+), accuracy (\S+)%$", text, re.MULTILINE)
    return [(float(loss), float(accuracy)) for loss, accuracy in found]


# -- what it reaches ----------------------------------------------------------------------------


def test_three_epochs_on_four_ranks_reach_95_per_cent() -> None:
    output = run_script(*TORCHRUN, "--nproc-per-node=4", options=("--epochs=3",))
    assert output.splitlines()[0].endswith("4 ranks on cpu, 0 of 186 steps done"), output
    results = results_in(output)
    assert len(results) == 3
    assert results[-1][1] >= 95


def test_four_ranks_learn_what_one_process_learns(changed: Callable[[str], str]) -> None:
    words = ("--epochs=0.5", "--log-every=1")
    one = run_script(script=changed(NO_DROPOUT), options=words)
    four = run_script(*TORCHRUN, "--nproc-per-node=4", script=changed(NO_DROPOUT), options=words)
    assert len(losses(one)) == 31
    assert losses(four) == pytest.approx(losses(one), abs=2e-3)
    assert results_in(four)[-1] == pytest.approx(results_in(one)[-1], abs=0.5)


def test_it_tells_loss_norm_speed_and_waiting(run: Any) -> None:
    first, *lines = run("--epochs=2", "--log-every=5")
    assert first == "1 ranks on cpu, 0 of 20 steps done"
    step = (
        r"step {}: loss \d\.\d{{4}}, gradient norm \d+\.\d\d, [\d,]+ examples/s, "
        r"\d+% waiting for data"
    )
    epoch = r"epoch {}: test loss \d\.\d{{4}}, accuracy \d+\.\d\d%"
    expected = [step.format(5), step.format(10), epoch.format(1)]
    expected += [step.format(15), step.format(20), epoch.format(2)]
    assert len(lines) == len(expected)
    for line, pattern in zip(lines, expected, strict=True):
        assert re.fullmatch(pattern, line), line
    shorter = run("--epochs=1.25", "--log-every=50")  # each epoch ends with a line
    assert [line.split(":")[0] for line in shorter[1:]] == [
        "step 10",
        "epoch 1",
        "step 12",
        "epoch 1.2",
    ]


def test_the_used_share_of_a_gpu_is_its_operations_in_a_second(
    recipe: Any, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A product of filter and image counts as two operations; backward takes two such products, of
    # which the first layer needs one.
    filters = (16 * 9) * 26 * 26, (32 * 16 * 9) * 11 * 11, 800 * 10
    operations = 2 * (3 * sum(filters) - filters[0])
    data = torch.utils.data.TensorDataset(torch.zeros(1, 1, 28, 28), torch.zeros(1).long())
    model = recipe.make_model()
    assert recipe.flops_of(model, data, torch.device("cpu")) == operations
    assert all(p.grad is None for p in model.parameters())
    ticks = iter(range(1_000_000))
    monkeypatch.setattr(recipe.time, "perf_counter", lambda: next(ticks))
    (line,) = [line for line in run("--epochs=1", "--peak-tflops=0.001") if "MFU" in line]
    speed = int(line.split(" examples/s")[0].split()[-1].replace(",", ""))
    share = float(line.split("MFU ")[1].rstrip("%")) / 100
    assert share == pytest.approx(speed * operations / 1e9, rel=0.6, abs=0.001)


def test_a_trace_of_three_steps_is_written(run: Any, tmp_path: Path) -> None:
    run("--epochs=2", f"--profile={tmp_path / 'traces'}")
    (trace,) = (tmp_path / "traces").iterdir()
    assert trace.name.startswith("rank0.")
    assert trace.read_text().count('"ProfilerStep#') >= 3


@pytest.mark.skipif(not shutil.which("g++"), reason="torch.compile needs a compiler")
def test_compiled_it_learns_the_same(few: str, changed: Callable[[str], str]) -> None:
    words = (few, "--batch-size=40", "--epochs=1", "--log-every=2")
    script = changed(NO_DROPOUT)
    plain, compiled = (run_script(script=script, options=(*words, *w)) for w in ([], ["--compile"]))
    assert losses(compiled) == pytest.approx(losses(plain), abs=1e-3)


def test_bfloat16_and_workers_learn_as_well(run: Any) -> None:
    plain, loaded, half = (
        losses(run("--epochs=2", "--log-every=5", *more))
        for more in ([], ["--workers=1"], ["--precision=bfloat16"])
    )
    assert loaded == plain
    assert half == pytest.approx(plain, abs=0.1)
    assert half != plain


# -- a checkpoint is the whole state ------------------------------------------------------------


@pytest.mark.parametrize(
    "more", [(), ("--precision=bfloat16",), ("--workers=1", "--accumulate=2")], ids=" ".join
)
def test_a_run_that_goes_on_ends_like_one_that_was_not_interrupted(
    recipe: Any, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    words = ("--epochs=3", "--save-every=7", *more)  # of 10 steps per epoch
    whole, stopped = tmp_path / "whole.pt", tmp_path / "stopped.pt"
    lines = run(*words, f"--save={whole}")
    dies_after_saving(recipe, monkeypatch, run, *words, f"--save={stopped}")
    assert read(stopped)["step"] == 7
    torch.rand(7)  # what random numbers this process has drawn does not matter
    again = run(*words, f"--save={stopped}")
    assert again[0] == "1 ranks on cpu, 7 of 30 steps done"
    assert results_in(again) == results_in(lines)
    assert equal(read(stopped), read(whole))
    assert run(*words, f"--save={stopped}") == ["1 ranks on cpu, 30 of 30 steps done"]
    assert equal(read(stopped), read(whole))


def test_a_run_can_be_made_longer(run: Any, tmp_path: Path) -> None:
    words = (f"--save={tmp_path / 'digits.pt'}", "--log-every=10")
    before = run("--epochs=1", *words)
    after = run("--epochs=2", *words)
    assert after[0] == "1 ranks on cpu, 10 of 20 steps done"
    assert losses(after)[0] < losses(before)[0]
    assert read(tmp_path / "digits.pt")["step"] == 20


def test_sigterm_saves_and_leaves_and_no_step_is_lost(
    recipe: Any, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, whole = tmp_path / "digits.pt", tmp_path / "whole.pt"
    words = ("--epochs=2", "--log-every=4", "--save-every=1000")
    steps = []

    def reseed(seed: int, step: int, rank: int) -> None:
        steps.append(step)
        if len(steps) == 6:
            os.kill(os.getpid(), signal.SIGTERM)
        original(seed, step, rank)

    original = recipe.reseed
    monkeypatch.setattr(recipe, "reseed", reseed)
    lines = run(*words, f"--save={path}")
    assert lines[-1] == "SIGTERM: stopped after step 8."
    assert steps == list(range(1, 9))
    assert read(path)["step"] == 8
    run(*words, f"--save={path}")
    run(*words, f"--save={whole}")
    assert equal(read(path), read(whole))


def test_one_rank_that_gets_sigterm_stops_all(
    few: str, changed: Callable[[str], str], tmp_path: Path
) -> None:
    change = (
        "def reseed(seed, step, rank, original=train.reseed):\n"
        "    original(seed, step, rank)\n"
        "    if (step, rank) == (6, 1): os.kill(os.getpid(), signal.SIGTERM)\n"
        "train.reseed = reseed"
    )
    output = run_script(
        *TORCHRUN,
        "--nproc-per-node=2",
        script=changed(change),
        options=(few, "--batch-size=40", "--log-every=4", f"--save={tmp_path / 'digits.pt'}"),
    )
    assert output.splitlines()[-1] == "SIGTERM: stopped after step 8."
    assert read(tmp_path / "digits.pt")["step"] == 8


def test_a_killed_rank_costs_the_steps_since_the_last_checkpoint(
    few: str, changed: Callable[[str], str], tmp_path: Path
) -> None:
    """One rank is killed; torchrun starts all of them again."""
    words = (few, "--batch-size=40", "--epochs=3", "--save-every=5")
    two = (*TORCHRUN, "--nproc-per-node=2")
    run_script(*two, options=(*words, f"--save={tmp_path / 'whole.pt'}"))
    change = (
        "def reseed(seed, step, rank, original=train.reseed):\n"
        "    original(seed, step, rank)\n"
        "    if (step, rank, os.environ['TORCHELASTIC_RESTART_COUNT']) == (13, 1, '0'):\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "train.reseed = reseed"
    )
    output = run_script(
        *two,
        "--max-restarts=1",
        script=changed(change),
        options=(*words, f"--save={tmp_path / 'killed.pt'}"),
    )
    begun = re.findall(r"(\d+) of 30 steps done$", output, re.MULTILINE)
    assert begun == ["0", "10"]
    if not torch.cuda.is_available():  # some kernels add in any order
        assert equal(read(tmp_path / "killed.pt"), read(tmp_path / "whole.pt"))


def test_another_number_of_ranks_goes_on(
    few: str, changed: Callable[[str], str], tmp_path: Path
) -> None:
    words = (few, "--batch-size=40", "--log-every=1", "--epochs=2")
    saved = (*words, "--save-every=12", f"--save={tmp_path / 'digits.pt'}")
    whole = run_script(script=changed(NO_DROPOUT), options=words)
    ends = (
        "def reseed(seed, step, rank, original=train.reseed):\n"
        "    if step == 13: raise SystemExit\n"
        "    original(seed, step, rank)\n"
        "train.reseed = reseed"
    )
    run_script(script=changed(f"{NO_DROPOUT}\n{ends}"), options=saved)
    two = (*TORCHRUN, "--nproc-per-node=2")
    then = run_script(*two, script=changed(NO_DROPOUT), options=saved)
    assert "2 ranks on cpu, 12 of 20 steps done" in then
    assert len(losses(then)) == 8
    assert losses(then) == pytest.approx(losses(whole)[12:], abs=2e-3)


def test_a_file_that_is_not_finished_costs_nothing(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(state: Any, file: Any) -> None:
        file.write(b"half of a file")
        raise Killed

    path = tmp_path / "digits.pt"
    run("--epochs=1", f"--save={path}")
    before = path.read_bytes()
    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(Killed):
        run("--epochs=2", f"--save={path}")
    assert path.read_bytes() == before


def test_a_checkpoint_of_other_options_is_refused(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "digits.pt"
    run("--epochs=1", f"--save={path}")
    before = path.read_bytes()
    expected = rf"^{path} is of {{.*'lr': 0\.003,.*}}: go on with these, or name another\.$"
    with pytest.raises(SystemExit, match=expected):
        run("--epochs=2", f"--save={path}", "--lr=0.1")
    assert path.read_bytes() == before
    run("--epochs=2", f"--save={path}", "--workers=1", "--accumulate=4")  # how it is run may change


# -- ranks --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lab() -> Iterator[labkit.Lab]:
    with labkit.start(4, preload=["torchvision"]) as lab:
        yield lab


def test_every_test_image_is_counted_once_with_the_buffers_of_rank_0(lab: labkit.Lab) -> None:
    def tested(folder: str, images: int) -> tuple[list[float], list[float], bool]:
        import sys
        from contextlib import nullcontext

        import torch
        import torch.distributed as dist
        from torch.utils.data import Subset

        sys.path.insert(0, folder)
        import train as recipe

        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.BatchNorm2d(1), *recipe.make_model())
        model[0].running_mean.fill_(dist.get_rank())
        data = Subset(recipe.read_digits("t10k"), range(images))
        results = recipe.evaluate(model, data, torch.device("cpu"), nullcontext)
        return results, model[0].running_mean.tolist(), model.training

    def alone(folder: str, images: int) -> list[float]:
        import sys

        import torch

        sys.path.insert(0, folder)
        import train as recipe

        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.BatchNorm2d(1), *recipe.make_model()).eval()
        pixels, labels = recipe.read_digits("t10k")[:images]
        with torch.no_grad():
            sums = recipe.sums_of(model, (pixels, labels), torch.device("cpu"))
        return [float(part) / images for part in sums]

    for images in (997, 3):
        reference = lab.run(alone, str(SCRIPTS), images)[0]
        for results, mean, training in lab.run(tested, str(SCRIPTS), images):
            assert results == pytest.approx(reference, abs=1e-5)
            assert mean == [0.0]
            assert training


@pytest.mark.parametrize(
    ("variables", "gpus", "sentence"),
    [
        (
            {"SLURM_STEP_NUM_TASKS": "2"},
            0,
            r"Each of these processes would train alone: start one torchrun per node\.",
        ),
        (
            {"OMPI_COMM_WORLD_SIZE": "2"},
            1,
            r"Each of these processes would train alone: start one torchrun per node\.",
        ),
        (
            {"RANK": "0", "LOCAL_WORLD_SIZE": "4"},
            1,
            r"4 processes on this node, but this one sees 1 GPUs: let each see all, start fewer, "
            r"or set CUDA_VISIBLE_DEVICES=''\.",
        ),
    ],
)
def test_what_would_go_wrong_silently_is_refused(
    recipe: Any,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    gpus: int,
    sentence: str,
) -> None:
    monkeypatch.delenv("RANK", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    with pytest.raises(SystemExit, match=f"^{sentence}$"):
        recipe.join()
    assert not dist.is_initialized()


@pytest.mark.parametrize("words", [["--batch-size=0"], ["--batch-size=30", "--accumulate=4"]])
def test_a_batch_that_cannot_be_divided_is_refused(run: Any, words: list[str]) -> None:
    with pytest.raises(SystemExit, match=r"^--batch-size must be a multiple of \d and at most 400"):
        run(*words)


def test_a_batch_beyond_the_data_is_refused(run: Any) -> None:
    with pytest.raises(SystemExit, match=r"and at most 400\.$"):
        run("--batch-size=401")


# -- a step -------------------------------------------------------------------------------------


def test_micro_batches_give_the_step_of_the_whole_batch_with_one_all_reduce(
    recipe: Any, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reduced: list[int] = []

    def count(bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        reduced.append(bucket.index())
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    def wrap(model: torch.nn.Module, **options: Any) -> Any:
        net = torch.nn.parallel.DistributedDataParallel(model[:-2].append(model[-1]), **options)
        net.register_comm_hook(None, lambda _, bucket: count(bucket))
        return net

    monkeypatch.setattr(recipe, "DDP", wrap)  # without dropout
    found, calls = [], []
    for parts in (1, 4):
        reduced.clear()
        found.append(losses(run("--epochs=1", "--log-every=1", f"--accumulate={parts}")))
        calls.append(len(reduced))
    assert len(found[0]) == 10
    assert found[1] == pytest.approx(found[0], abs=1e-3)
    assert calls == [10, 10]


def test_the_rate_rises_stays_and_falls(
    recipe: Any, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[torch.optim.Optimizer] = []
    rates: list[float] = []

    def clip(*given: Any, **named: Any) -> torch.Tensor:
        rates.extend({group["lr"] for group in made[-1].param_groups})
        return original(*given, **named)

    def make(model: torch.nn.Module) -> torch.optim.Optimizer:
        made.append(make_optimizer(model))
        return made[-1]

    original, make_optimizer = torch.nn.utils.clip_grad_norm_, recipe.make_optimizer
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", clip)
    monkeypatch.setattr(recipe, "make_optimizer", make)
    run("--epochs=12", "--lr=0.001", "--lr-batch=10")  # 40 images a step: twice the rate
    assert len(rates) == 120
    assert rates[: recipe.WARMUP] == pytest.approx([0.002 * i / 30 for i in range(1, 31)])
    assert rates[recipe.WARMUP : -recipe.COOLDOWN] == pytest.approx([0.002] * 30)
    assert rates[-recipe.COOLDOWN :] == pytest.approx([0.002 * i / 60 for i in range(60, 0, -1)])


def test_only_matrices_and_filters_decay(recipe: Any) -> None:
    decayed, kept = recipe.make_optimizer(recipe.make_model()).param_groups
    assert [p.dim() for p in decayed["params"]] == [4, 4, 2]
    assert [p.dim() for p in kept["params"]] == [1, 1, 1]
    assert decayed["weight_decay"] > 0 == kept["weight_decay"]


def test_no_two_steps_ranks_and_runs_have_the_same_random_numbers(recipe: Any) -> None:
    def drawn(*numbers: int) -> float:
        recipe.reseed(*numbers)
        return torch.rand((), dtype=torch.float64).item()

    where = [
        (seed, step, rank) for seed in (0, 1) for step in (1, 2, 1000) for rank in (0, 1, 1000)
    ]
    assert len({drawn(*numbers) for numbers in where}) == len(where)
    assert drawn(3, 2, 1) == drawn(3, 2, 1)


def test_tf32_is_asked_for_by_one_switch(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(torch, "set_float32_matmul_precision", seen.append)
    run("--epochs=0.1")
    run("--epochs=0.1", "--precision=tf32")
    assert [name for name in seen if name != "highest"] == ["high"]
