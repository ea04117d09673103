"""What a cell shows while it runs, and that nothing of it stays."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import nbformat
import pexpect
import pytest
from jupyter_client.manager import start_new_kernel
from nbclient import NotebookClient
from traitlets.config import Config

from labkit.notebook import live
from labkit.runtime.output import settle
from tests.support.events import HANG_SECONDS
from tests.unit.notebook.test_board import state, text_of


class Recorder:
    """A screen that keeps what it is given."""

    def __init__(self):
        self.shown = []
        self.cleared = 0

    def show(self, out, err, board, seconds, suspicion=None):
        self.shown.append((dict(out), dict(err), list(board)))

    def clear(self, *, wait):
        self.cleared += 1


# -- what is shown when -------------------------------------------------------------------------


def test_nothing_is_shown_or_asked_before_there_is_something():
    screen = Recorder()
    shown = live.Live(screen)
    shown.offer(lambda: ({0: "", 1: ""}, {}), lambda: pytest.fail("asked too early"))
    shown.clear()
    assert (screen.shown, screen.cleared) == ([], 0)


def test_output_comes_at_once_and_only_when_it_is_new():
    screen = Recorder()
    shown = live.Live(screen)
    texts = ({0: "step 1"}, {})
    for _ in range(3):
        shown.offer(lambda: texts, list)
    assert screen.shown == [(*texts, [])]
    texts = ({0: "step 1\nstep 2"}, {})
    shown.offer(lambda: texts, list)
    assert len(screen.shown) == 2
    shown.clear()
    assert screen.cleared == 1


def test_output_that_is_cleared_and_written_anew_is_shown():
    screen = Recorder()
    shown = live.Live(screen)
    for text in ("step 1", "step 2", ""):
        shown.offer(lambda text=text: ({0: text}, {}), list)
    assert [out for out, *_ in screen.shown] == [{0: "step 1"}, {0: "step 2"}, {0: ""}]


@pytest.mark.parametrize(("after", "boards"), [(-1, 0), (0, 1)])
def test_the_board_can_be_early_or_absent(after, boards):
    screen = Recorder()
    live.Live(screen, after).offer(lambda: ({0: "x"}, {}), lambda: [state(0)])
    assert [len(board) for *_, board in screen.shown] == [boards]


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("ci", "shown"), [("true", False), ("1", False), ("false", True)])
def test_only_a_ci_that_is_one_shows_nothing_in_a_terminal(monkeypatch, ci, shown):
    monkeypatch.delenv("LABKIT_LIVE", raising=False)
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(live.sys, "stdout", Terminal())
    assert (live.screen() is not None) is shown


@pytest.mark.parametrize("variable", [{"LABKIT_LIVE": "0"}, {"CI": "true"}, {}])
def test_where_nobody_looks_on_there_is_no_screen(monkeypatch, variable):
    for name in ("LABKIT_LIVE", "CI"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variable.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(live.sys, "stdout", io.StringIO())
    assert live.screen() is None


def test_a_terminal_has_one_line_that_is_written_over(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    stream = io.StringIO()
    line = live.Line(stream)
    line.show({0: "printed"}, {}, [], 0)
    assert stream.getvalue() == ""  # what is printed comes at the end, there
    board = [state(r, where="In[1], line 2", line="sleep()") for r in range(3)]
    line.show({}, {}, [*board, state(3, "waiting", detail="barrier (collective 12)")], 61)
    line.clear(wait=True)
    shown, cleared = re.findall(r"\r\x1b\[2K([^\r]*)", stream.getvalue())
    assert shown == "1:01  ranks 0–2: running In[1], line 2: sleep(); rank 3: wai"[:59]
    assert cleared == ""


@pytest.mark.slow
def test_in_a_real_terminal_the_line_is_gone_when_the_cell_has_ended(gate):
    environment = {k: v for k, v in os.environ.items() if k not in ("CI", "LABKIT_LIVE")}
    argv = ["-m", "IPython", "--simple-prompt", "--no-banner", "--colors=NoColor"]
    cell = f"rank and exec({gate.wait!r}); print('done')"
    child = pexpect.spawn(
        sys.executable,
        argv,
        env=environment | {"TERM": "xterm"},
        encoding="utf-8",
        timeout=HANG_SECONDS,
        dimensions=(40, 100),
    )
    try:
        child.expect_exact("In [1]:")
        child.sendline("import labkit; lab = labkit.start(2)")
        child.expect_exact("In [2]:")
        child.sendline(f"%px {cell}")
        child.expect(r"0:\d\d  rank 0: idle; rank 1: running In\[2\], line 1: rank and exec")
        shown = child.before + child.after
        gate.open()
        child.expect_exact("In [3]:")
        lines = (shown + child.before).split("\r\x1b[2K")
        assert all(len(line) < 100 for line in lines[1:-1])
        assert settle(lines[-1]).strip() == "\x1b[1mranks 0–1\x1b[0m: done"
        child.sendline("lab.stop(); exit()")
        child.expect(pexpect.EOF)
    finally:
        child.close(force=True)


# -- in a kernel --------------------------------------------------------------------------------


class Kernel:
    """A notebook's kernel that somebody looks at."""

    def __init__(self):
        environment = {k: v for k, v in os.environ.items() if k not in ("CI", "LABKIT_LIVE")}
        self.manager, self.client = start_new_kernel(kernel_name="python3", env=environment)

    def run(self, code, on_shown=lambda text: None):
        """Run a cell; return (kind, text) of all it showed, and what is left of it at the end.

        ``on_shown`` gets what each picture of it says, as it comes.
        """
        messages, left, clears = [], [], []

        def note(message):
            kind, content = message["msg_type"], message["content"]
            text = content.get("text") or content.get("data", {}).get("text/html", "")
            messages.append((kind, text))
            if kind.endswith("display_data"):
                on_shown(text_of(text))
            shows = kind in ("stream", "display_data", "execute_result", "error")
            if kind == "clear_output" and not content["wait"]:
                left.clear()
            elif kind == "clear_output" or (shows and clears):
                left.clear()
                clears[:] = [True] if kind == "clear_output" else []
            if shows:
                left.append((kind, text or content.get("ename", "")))

        self.client.execute_interactive(code, timeout=2 * HANG_SECONDS, output_hook=note)
        assert not clears, "what was live would stay: nothing came that clears it"
        return messages, left

    def end(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()


@pytest.fixture(scope="module")
def kernel():
    kernel = Kernel()
    try:
        kernel.run("import labkit; lab = labkit.start(2)")
        yield kernel
    finally:
        kernel.end()


TRAIN = "import time\nfor step in range(6):\n    time.sleep(0.3)\n    print('step', step)\n"


@pytest.mark.slow
def test_prints_appear_as_they_come_and_settle(kernel, tmp_path):
    """Each step ends when the page shows it; the last one when the board is there, too."""
    train = (
        "import pathlib, time\nfor step in range(6):\n    print('step', step)\n"
        f"    while not pathlib.Path({str(tmp_path)!r}, str(step)).exists(): time.sleep(0.02)\n"
    )
    shown = []

    def look(text):
        shown.append(text)
        for step in map(int, re.findall(r"step (\d)", text)):
            if step < 5 or "rank 1running" in text:
                (tmp_path / str(step)).touch()

    messages, left = kernel.run(f"%%px\n{train}", look)
    assert messages[[k for k, _ in messages].index("display_data")][0] == "display_data"
    assert [kind for kind, _ in messages].count("display_data") == 1  # then it is updated
    assert re.findall(r"step \d", shown[0]) == ["step 0"] * shown[0].count("step 0") != []
    assert "step 5" in shown[-1]
    assert re.search(r"rank 1runningIn\[\d+\], line 5: while not", shown[-1])
    steps = "".join(f"  step {i}\n" for i in range(6))
    assert left == [("stream", f"\x1b[1mranks 0–1\x1b[0m:\n{steps}")]


@pytest.mark.slow
def test_the_board_says_who_waits_for_whom_and_since_when(kernel, gate):
    who = r"rank 0waiting \d+ sIn\[\d+\], line 4: dist.barrier\(\)barrier \(collective 1\)"
    shown = []

    def look(text):
        if re.search(who, text):
            shown.append(text)
            gate.open()

    _, left = kernel.run(f"%%px\nif rank:\n    {gate.wait}\ndist.barrier()\n", look)
    assert re.search(r"rank 1runningIn\[\d+\], line 3: while not", shown[-1])
    assert re.search(r"\d MiB", shown[-1])
    assert left == []


@pytest.mark.slow
def test_an_error_and_a_deadlock_clear_it_too(kernel):
    _, left = kernel.run("%%px\nimport time; time.sleep(1.5)\n1 / 0")
    assert left == [("error", "RankError")]
    _, left = kernel.run("%%px\nimport time; time.sleep(1.5)\nif rank: dist.barrier()")
    assert left == [("error", "Deadlock")]


@pytest.mark.slow
@pytest.mark.parametrize("begin", ["print('mine')", "display(HTML('mine'))"])
def test_what_else_a_cell_has_shown_stays(kernel, begin):
    body = TRAIN.replace("\n", "\n    ")
    kernel.run(f"from IPython.display import HTML\ndef train():\n    {body}")
    messages, left = kernel.run(f"{begin}\nlab.run(train)")
    assert "clear_output" not in [kind for kind, _ in messages]
    assert left[0][1].strip() == "mine"
    messages, left = kernel.run("lab.run(train)")
    assert "clear_output" in [kind for kind, _ in messages]
    assert [kind for kind, _ in left] == ["stream", "execute_result"]


@pytest.mark.slow
@pytest.mark.parametrize("options", ["--no-stream", "--noblock", "--progress-after -1"])
def test_the_original_options_turn_it_off(kernel, options):
    messages, _ = kernel.run(f"%%px {options}\nimport time; time.sleep(1.5)")
    assert not [text for kind, text in messages if kind == "update_display_data"]
    kernel.run("%%px\n1")  # after the one that did not block


@pytest.mark.slow
def test_sixteen_ranks_with_a_thousand_lines_cost_little_and_leave_no_memory():
    """Each such cell costs the kernel less than 2 s of a processor; and what 100 of them leave in
    it is small.

    A kernel that kept the outputs, in ipyparallel's record and in ours, would grow by 1 MB a
    cell. Python's own count is compared, for what the allocator gives back varies.
    """
    kernel = Kernel()
    code = (
        "%%px\nimport time\nfor i in range(1000):\n"
        "    print(f'rank {rank} line {i} of a thousand')\n"
    )
    try:
        kernel.run("import labkit, time, tracemalloc; lab = labkit.start(16)")
        kernel.run("tracemalloc.start()")
        kept = []
        kernel.run("began = time.process_time()")
        for number in range(100):
            _, left = kernel.run(code)
            if number % 10 == 9:
                _, printed = kernel.run("print(tracemalloc.get_traced_memory()[0])")
                kept.append(int(printed[0][1]))
        assert len(left) == 16
        assert all("994 more lines" in text for _, text in left)
        _, printed = kernel.run("print(time.process_time() - began)")
        assert float(printed[0][1]) / 100 < 2
        assert max(kept) - kept[0] < 40 * 2**20, kept
        assert kept[-1] - kept[4] < 30 * 2**20, kept
    finally:
        kernel.end()


# -- in a stored notebook -----------------------------------------------------------------------

CELLS = (
    "import labkit\nlab = labkit.start(2)",
    f"%%px\n{TRAIN}",
    "%%px\nfor i in range(200):\n    print('rank', rank, 'line', i)\ntime.sleep(1.2)",
    "%%px\nfrom IPython.display import HTML\nHTML(f'<b>{rank}</b>')",
    "%%px\nfrom tqdm import tqdm\n"
    "for i in tqdm(range(9), bar_format='{bar:9}{n}'):\n    time.sleep(0.1)",
    "def train():\n    import time\n    print('in a function'); time.sleep(1.2)\nlab.run(train)",
    "lab.watch('losses')",
    "%%px\nlosses = []\nfor loss in range(14):\n    losses.append(rank + loss); time.sleep(0.1)",
    "lab.watch(); lab.stop()",
)


class Watched(NotebookClient):
    """Runs a notebook as a page does with somebody before it, who can be asked."""

    async def async_start_new_kernel_client(self):
        client = await super().async_start_new_kernel_client()
        client.allow_stdin = True
        return client


@pytest.fixture(scope="module")
def by_file() -> Iterator[Config]:
    """Let a kernel and its client meet at sockets of the file system: a port that was free when
    the client chose it may be somebody else's when the kernel comes."""
    with tempfile.TemporaryDirectory(prefix="k") as folder:
        yield Config({"KernelManager": {"transport": "ipc", "ip": f"{folder}/k"}})


@pytest.fixture(scope="module")
def stored(tmp_path_factory, by_file):
    """Run a notebook while somebody looks on, and while nobody does; return both and a path."""
    path = tmp_path_factory.mktemp("stored") / "watched.ipynb"
    notebooks = []
    for looks in (True, False):
        nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in CELLS])
        nb.metadata.kernelspec = {"name": "python3", "display_name": "Python 3"}
        environment = {k: v for k, v in os.environ.items() if k not in ("CI", "LABKIT_LIVE")}
        environment |= {} if looks else {"LABKIT_LIVE": "0"}
        runner = Watched if looks else NotebookClient
        client = runner(nb, timeout=int(HANG_SECONDS), store_widget_state=False, config=by_file)
        shown = []
        original = client.process_message
        client.process_message = lambda msg, *rest, s=original, to=shown: (
            to.append(msg["msg_type"]),
            s(msg, *rest),
        )[1]
        client.execute(env=environment)
        assert ("update_display_data" in shown) is looks
        notebooks.append(nb)
    nbformat.write(notebooks[0], path)
    return (*notebooks, path)


@pytest.mark.slow
def test_what_is_stored_is_the_same_whether_somebody_looked_on_or_not(stored):
    watched, alone, _ = stored
    for seen, unseen in zip(watched.cells, alone.cells, strict=True):
        assert seen.outputs == unseen.outputs, seen.source
    texts = json.dumps([cell.outputs for cell in watched.cells])
    assert "running" not in texts
    assert "194 more lines" not in texts  # two blocks: ten lines at each end
    assert "180 more lines" in texts


@pytest.mark.slow
def test_nbval_finds_it_as_it_is_stored(stored):
    path = stored[2]
    options = [
        "-p",
        "labkit.tools.nbval_plugin",
        "-p",
        "no:cacheprovider",
        "--nbval",
        "-W",
        "error",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--nbval-cell-timeout=120", path.name],
        cwd=path.parent,
        env={**os.environ, "PYTEST_ADDOPTS": "", "JUPYTER_PLATFORM_DIRS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(CELLS)} passed" in done.stdout


# -- pictures and watched variables -------------------------------------------------------------


def pictures_of(messages):
    """Return the texts of the displays of a cell that hold pictures or curves, as they came."""
    return [text for kind, text in messages if kind.endswith("display_data") and "<img" in text]


SHOW = """%%px
from pathlib import Path
from IPython.display import Image, clear_output, display
def picture(shade, size=(4, 4)):
    import io
    from PIL import Image as Drawn
    content = io.BytesIO()
    Drawn.new("L", size, shade).save(content, "PNG")
    return Image(content.getvalue())
def wait_until(condition):
    import time
    while not condition():
        time.sleep(0.02)
"""


@pytest.mark.slow
def test_the_newest_pictures_of_ranks_are_seen_before_the_cell_ends(kernel, tmp_path):
    """A rank goes on when its picture was seen, so each one is. The last ones stay in the order of
    the ranks, those that are equal once."""
    kernel.run(SHOW)
    code = f"""%%px
for step in range(3):
    clear_output(wait=True)
    display(picture(100 * rank + step if step < 2 else 7))
    wait_until(lambda: step == 2 or Path({str(tmp_path)!r}, str(step)).exists())
"""
    seen = []

    def look(text):
        if text == "rank 0rank 1":
            seen.append(text)
            step = "0" if not (tmp_path / "0").exists() else "1"
            (tmp_path / step).touch()

    messages, left = kernel.run(code, look)
    assert len(seen) >= 2
    assert all(text.count("<img") <= 2 for text in pictures_of(messages))
    assert [kind for kind, _ in left] == ["stream", "display_data"]
    assert "ranks 0–1" in left[0][1]


@pytest.mark.slow
def test_pictures_come_twice_a_second_at_most_and_a_handle_updates_in_its_place(kernel):
    kernel.run(SHOW)
    code = """%%px
handle = display(picture(0), display_id=True)
for step in range(60):
    handle.update(picture(step * 4, (4, 4 + rank)))
    time.sleep(0.05)
"""
    kernel.run("%px import time")
    began = time.monotonic()
    messages, left = kernel.run(code)
    seconds = time.monotonic() - began
    assert 2 <= len(pictures_of(messages)) <= 2 * seconds + 1
    ((kind, html),) = left  # both, side by side
    assert (kind, text_of(html), html.count("<img")) == ("display_data", "rank 0:rank 1:", 2)


WATCHED = """%%px
import time
losses = []
for step in range(4):
    losses.append(10.0 * rank + step)
    {wait}
"""


@pytest.mark.slow
def test_a_watched_list_is_drawn_while_the_cell_runs_and_its_picture_stays(kernel, gate):
    kernel.run("lab.watch('losses')")
    shown = []

    def look(text):
        shown.append(text)
        if "losses rank 0 0 rank 1 10" in text:
            gate.open()

    _, left = kernel.run(WATCHED.format(wait=gate.wait), look)
    assert any("losses rank 0 0 rank 1 10" in text for text in shown)
    assert [kind for kind, _ in left] == ["display_data"]
    _, left = kernel.run("%px len(losses)")  # it has not changed
    assert [kind for kind, _ in left] == ["stream"]
    kernel.run("lab.watch()")
    _, left = kernel.run(WATCHED.format(wait="pass"))
    assert left == []


@pytest.mark.slow
def test_a_list_of_a_function_is_drawn_in_lab_run_too(kernel, gate):
    kernel.run("lab.watch('values', ranks=[1])")
    _, left = kernel.run(
        "def train(condition):\n    values = [1.0, 2.0]\n    exec(condition)\n"
        "    values.append(3.0)\n"
    )
    shown = []

    def look(text):
        shown.append(text)
        if "values rank 1 2" in text:
            gate.open()

    _, left = kernel.run(f"lab.run(train, {gate.wait!r})", look)
    assert any("values rank 1 2" in text for text in shown)
    assert [kind for kind, _ in left] == ["display_data", "execute_result"]
    kernel.run("lab.watch()")


@pytest.mark.slow
def test_a_name_that_never_appears_is_one_sentence(kernel):
    kernel.run("lab.watch('lossse')")
    _, left = kernel.run("%px 1")
    assert left[-1] == ("stream", "labkit: lab.watch has found no variable lossse on ranks 0–1.\n")
    _, left = kernel.run("%px 1")
    assert len(left) == 1
    kernel.run("lab.watch()")
    _, left = kernel.run("lab.watch('losses[-1]')")
    assert left == [("error", "UsageError")]


@pytest.mark.slow
def test_a_deadlock_and_a_death_are_named_as_without_a_watch(kernel):
    """What a rank was asked meanwhile does not count as a sign that it goes on."""
    kernel.run("lab.watch('losses')")
    try:
        hang = "%%px\nlosses = [1.0, 2.0]\nimport time; time.sleep(1)\nif rank: dist.barrier()"
        _, left = kernel.run(hang)
        assert [kind for kind, _ in left] == ["display_data", "error"]
        assert left[-1] == ("error", "Deadlock")
        die = "%%px\nlosses = [3.0]\nimport os, time; time.sleep(1)\nif rank: os._exit(3)"
        _, left = kernel.run(die)
        assert [kind for kind, _ in left] == ["display_data", "error"]
        assert left[-1] == ("error", "RankDied")
    finally:
        kernel.run("lab.watch(); lab.restart()")
