"""What a rank writes and displays is collected as it comes."""

import sys
import threading

import pytest

from labkit import RankError
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


def display(text, name=None, kind="display_data"):
    transient = {"display_id": name} if name else {}
    return message(kind, data={"text/plain": text}, metadata={}, transient=transient)


def texts_of(seen):
    return [bundle["data"]["text/plain"] for bundle in seen.displays]


def test_clear_output_clears_now_or_when_the_next_output_comes():
    for wait in (False, True):
        seen = Output()
        for name in ("stdout", "stderr"):
            seen.note(message("stream", name=name, text="old"))
        seen.note(display("old"))
        seen.note(message("clear_output", wait=wait))
        assert (seen.text("stdout"), texts_of(seen)) == (("old", ["old"]) if wait else ("", []))
        seen.note(display("unseen", "elsewhere", kind="update_display_data"))  # is no output
        assert (seen.text("stderr"), texts_of(seen)) == (("old", ["old"]) if wait else ("", []))
        seen.note(message("stream", name="stdout", text="new"))
        assert (seen.text("stdout"), seen.text("stderr"), texts_of(seen)) == ("new", "", [])
    seen.note(message("clear_output", wait=True))
    seen.note(display("42", kind="execute_result"))
    assert seen.text("stdout") == ""
    assert seen.result["data"]["text/plain"] == "42"


def test_an_update_changes_the_displays_of_its_name():
    seen = Output()
    for text, name in [("a", "x"), ("b", "y"), ("c", None), ("d", "x")]:
        seen.note(display(text, name))
    assert texts_of(seen) == ["d", "b", "c", "d"]
    seen.note(display("new", "x", kind="update_display_data"))
    seen.note(display("later", "z", kind="update_display_data"))
    assert texts_of(seen) == ["new", "b", "c", "new"]
    outcome = seen.outcome(3)
    assert outcome.names == ["x", "y", "", "x"]
    assert outcome.updates["z"]["data"] == {"text/plain": "later"}
    assert seen.shown() == "new\nb\nc\nnew"


def test_ranks_clear_and_update_what_they_show(lab4):
    code = (
        "from IPython.display import clear_output, display, update_display\n"
        "print('first'); display('gone')\nclear_output(wait=True)\nprint('of', rank)\n"
        "handle = display('0 %', display_id=True)\nhandle.update('100 %')"
    )
    outcomes = run_cell(lab4, code, [1, 3])
    assert [o.stdout for o in outcomes] == ["of 1\n", "of 3\n"]
    assert [[b["data"]["text/plain"] for b in o.displays] for o in outcomes] == [["'100 %'"]] * 2
    (later,) = run_cell(lab4, "handle.update('again')", [3])
    assert later.displays == []
    assert [b["data"]["text/plain"] for b in later.updates.values()] == ["'again'"]
    assert list(later.updates) == outcomes[1].names


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


def test_text_with_lone_surrogates_is_shown(lab4):
    """Its messages could not be packed: output was lost, and an error's reply never came."""
    (outcome,) = run_cell(
        lab4,
        "class Odd:\n    def __repr__(self): return '<\\udc80>'\n"
        "from IPython.display import HTML, display\n"
        "print('a\\ud800')\ndisplay(HTML('<b>\\udcff</b>'))\nOdd()",
        [1],
    )
    assert outcome.stdout == "a\\ud800\n"
    assert outcome.displays[0]["data"]["text/html"] == "<b>\\udcff</b>"
    assert outcome.result["data"]["text/plain"] == "<\\udc80>"
    ended = finish_cell(send_cell(lab4, "raise ValueError('b\\ud800')", [0, 1]))
    assert str(ended.error) == "ranks 0–1: ValueError: b\\ud800"

    def fail():
        raise ValueError("c\ud800")

    with pytest.raises(RankError) as caught:
        lab4.run(fail)
    assert str(caught.value) == "ranks 0–3: ValueError: c\\ud800"
    assert lab4.run(lambda: "d\ud800", ranks=[0]) == ["d\ud800"]
