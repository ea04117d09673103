"""What a rank writes and displays is collected as it comes."""

import sys
import threading

import pytest

from labkit.launch import ipyparallel_internals
from labkit.runtime import output
from labkit.runtime.output import Output, collect
from tests.support.cells import finish_cell, run_cell, send_cell


def message(kind, **content):
    return {"header": {"msg_type": kind}, "content": content}


def test_streams_are_kept_apart_and_settled():
    seen = Output()
    for name, text in [
        ("stdout", "a\n"),
        ("stderr", "50%"),
        ("stdout", "b\n"),
        ("stderr", "\r99%"),
    ]:
        seen.note(message("stream", name=name, text=text))
    assert (seen.text("stdout"), seen.text("stderr")) == ("a\nb\n", "99%")


def test_bundles_come_with_their_metadata():
    seen = Output()
    image = {"data": {"image/png": "iVBO"}, "metadata": {"image/png": {"width": 9}}}
    seen.note(message("display_data", **image, transient={"display_id": "x"}))
    seen.note(message("execute_result", **image, execution_count=3))
    seen.note(message("status", execution_state="idle"))
    assert seen.displays == [image]
    assert seen.result == image


def test_it_is_there_before_the_request_is_sent():
    class Future:
        def __init__(self):
            self.iopub_callbacks = []

    class Client:
        def create_message_futures(self, *args, **kwargs):
            return [Future(), "output"]

    client = Client()
    collect(client)
    future, _ = client.create_message_futures("id", {}, async_result=True)
    (callback,) = future.iopub_callbacks
    callback(message("stream", name="stdout", text="first"))
    assert future.labkit_output.text("stdout") == "first"


def test_reading_while_it_comes_loses_nothing():
    seen = Output()
    lines = [f"line {i}\n" for i in range(5000)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        writer = threading.Thread(
            target=lambda: [seen.note(message("stream", name="stdout", text=t)) for t in lines]
        )
        writer.start()
        while writer.is_alive():
            assert "".join(lines).startswith(seen.text("stdout"))
        writer.join()
    finally:
        sys.setswitchinterval(before)
    assert seen.text("stdout") == "".join(lines)


def test_much_output_is_not_left_to_the_collector(monkeypatch):
    collections = []
    monkeypatch.setattr(output.gc, "collect", lambda: collections.append(1))
    monkeypatch.setattr(output, "_collected", 0)
    seen = Output()
    for kind, content in [
        ("stream", {"name": "stdout", "text": "x" * (output.GARBAGE // 2)}),
        ("display_data", {"data": {"image/png": "x" * output.GARBAGE}, "metadata": {}}),
    ]:
        output.tidy()
        assert collections == []
        seen.note(message(kind, **content))
    output.tidy()
    output.tidy()
    assert collections == [1]


@pytest.mark.parametrize("how", ["tqdm", "tqdm.auto", "tqdm.notebook"])
def test_every_tqdm_on_a_rank_leaves_one_line_of_text(lab4, how, capsys):
    def train(how):
        import importlib
        import time

        tqdm = importlib.import_module(how).tqdm
        for _ in tqdm(range(3), desc="epoch", mininterval=0):
            for _ in tqdm(range(4), leave=False, mininterval=0):
                time.sleep(0.01)

    lab4.run(train, how, ranks=[0, 1])
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert len(lines) == 2
    assert all("epoch: 100%|" in line and line.endswith("it/s]") for line in lines)


def test_pyplot_on_a_rank_gives_a_picture_of_each(lab4):
    code = (
        "import matplotlib.pyplot as plt\nplt.figure(figsize=(1, 1))\n"
        "_ = plt.plot([rank, 1])\nplt.show()"
    )
    outcomes = run_cell(lab4, code, [0, 2])
    pictures = [outcome.displays[0]["data"]["image/png"] for outcome in outcomes]
    assert len(set(pictures)) == 2


def test_many_flushes_lose_nothing_and_keep_their_place(lab4):
    """Each used to be a message: they came faster than they could be read, and the end too late."""
    code = (
        "from IPython.display import display\n"
        "for _ in range(50_000):\n    print('.', end='', flush=True)\n"
        "display('between')\n"
        "for _ in range(50_000):\n    print('!', end='', flush=True)\n"
        "import sys; print('end', file=sys.stderr)\nlen('dots')"
    )
    before = []
    sent = send_cell(lab4, code, [0, 1])
    for reply in sent.replies.values():

        def watch(message, seen=reply.labkit_output):
            if message["header"]["msg_type"] == "display_data":
                before.append(seen.text("stdout"))

        ipyparallel_internals.on_output(reply, watch)
    outcomes = finish_cell(sent).outcomes
    assert [o.stdout for o in outcomes] == ["." * 50_000 + "!" * 50_000] * 2
    assert [o.stderr for o in outcomes] == ["end\n"] * 2
    assert [o.result["data"]["text/plain"] for o in outcomes] == ["4"] * 2
    assert before == ["." * 50_000] * 2
