"""What a rank writes and displays is collected as it comes."""

import pytest

from labkit import RankError
from labkit.launch import ipyparallel_internals
from tests.support.cells import finish_cell, run_cell, send_cell


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

        importlib.import_module(how)
        tqdm = eval(f"{how}.tqdm", {"tqdm": importlib.import_module("tqdm")})  # as in a cell
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
