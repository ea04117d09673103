"""The drawing of a lab says which process runs which cell, and shows the processes it is given."""

import pytest

from labkit.errors import UsageError
from labkit.figures import kernel_and_ranks as drawing
from labkit.figures.kernel_and_ranks import processes

from .drawn import check_words, draw, words


def test_the_text_says_who_runs_what_and_nothing_that_varies():
    picture = processes(["cpu"] * 3, kernel=4711, pids=[4712, 4713, 4714])
    assert picture.text == processes(["cuda:0", "cuda:1", "cuda:2"], backend="nccl").text
    assert "ranks 0–2: a %%px cell runs here, once per rank" in picture.text
    assert "47" not in picture.text
    assert "rank 0: a %%px cell" in processes(["cpu"]).text


def test_the_picture_shows_devices_backend_and_process_ids(monkeypatch):
    devices = ["cuda:0", "cuda:1"]
    figure = draw(
        monkeypatch, drawing,
        lambda: processes(devices, backend="nccl", kernel=4711, pids=[4712, 4713]),
    )  # fmt: skip
    shown = " ".join(text.get_text() for text in words(figure))
    for fact in (*devices, "(nccl)", "process 4711", "process 4712", "process 4713", "rank 1"):
        assert fact in shown


@pytest.mark.parametrize("n", range(1, 9))
@pytest.mark.parametrize("pids", [None, 4_190_000])
def test_all_words_can_be_read(monkeypatch, n, pids):
    ids = pids and [pids + rank for rank in range(n)]
    devices = [f"cuda:{rank}" for rank in range(n)]
    check_words(draw(monkeypatch, drawing, lambda: processes(devices, kernel=pids, pids=ids)))


@pytest.mark.parametrize(
    ("devices", "pids", "message"),
    [
        ([], None, "1 to 8 ranks, not 0"),
        (["cpu"] * 9, None, "1 to 8 ranks, not 9"),
        (["cpu"] * 2, [1], "pids names 1 processes, but devices has 2"),
    ],
)
def test_what_does_not_fit_is_refused(devices, pids, message):
    with pytest.raises(UsageError, match=message):
        processes(devices, pids=pids)
