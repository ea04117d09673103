"""A learner's copy of the course: delivered, updated, and never written over."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import nbformat
import pytest

import labkit
from labkit.course import delivery, material
from tests.support.others import as_nobody, as_root, open_folder, reachable

ONE, TWO, DATA = "notebooks/one.ipynb", "notebooks/two.ipynb", "data/digits/raw.idx"


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small course in place of the real one, with the left-overs of somebody who ran it."""
    folder = tmp_path / "source"
    for name in (
        ONE,
        TWO,
        DATA,
        "notebooks/.ipynb_checkpoints/one-checkpoint.ipynb",
        "notebooks/one.executed.ipynb",
        "data/full/MNIST/raw/train",
        "data/__pycache__/make.pyc",
        "labkit/code.py",
    ):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"first {name}")
    monkeypatch.setattr(material, "root", lambda: folder)
    return folder


@pytest.fixture
def work(source: Path, tmp_path: Path) -> Path:
    """A learner's folder that has just been given the course."""
    folder = tmp_path / "a" / "work"
    delivery.new_course(folder)
    return folder


def files(folder: Path) -> dict[str, str]:
    """Return every file below a folder, the course's record left out: name -> text."""
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in folder.rglob("*")
        if path.is_file() and path.name != delivery.RECORD
    }


def test_the_real_course_is_found() -> None:
    root = material.root()
    assert (root / "data" / "MNIST").is_dir()
    assert root / "notebooks" / "00_start_here.ipynb" in material.notebooks()


def test_the_wheel_puts_the_course_where_it_is_looked_for() -> None:
    import tomllib

    text = (Path(labkit.__file__).parent.parent / "pyproject.toml").read_text()
    wheel = tomllib.loads(text)["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["sources"] == {part: f"labkit/_course/{part}" for part in delivery.PARTS}
    assert set(delivery.PARTS) < set(wheel["only-include"])


def test_root_of_an_installed_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages" / "labkit"
    package.mkdir(parents=True)
    monkeypatch.setattr(material, "__file__", str(package / "course" / "material.py"))
    with pytest.raises(labkit.LabError, match="came without the course"):
        material.root()
    (package / "_course" / "notebooks").mkdir(parents=True)
    assert material.root() == package / "_course"


def test_a_new_folder_gets_the_course_and_nothing_else(source: Path, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    done = delivery.new_course(tmp_path / "work")
    assert sorted(done.new) == sorted([ONE, TWO, DATA])
    assert files(tmp_path / "work") == {name: f"first {name}" for name in (ONE, TWO, DATA)}
    assert str(done) == f"Course in {tmp_path / 'work'}: 3 new, 0 as before."


def test_the_second_time_changes_nothing(work: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in work.rglob("*")}
    done = delivery.new_course(work)
    assert sorted(done.unchanged) == sorted([ONE, TWO, DATA])
    assert (done.new, done.updated, done.kept) == ([], [], {})
    assert {path: path.stat().st_mtime_ns for path in work.rglob("*")} == before


BESIDE, BESIDE_2 = "notebooks/one.new.ipynb", "notebooks/one.new-2.ipynb"
MINE, SECOND, THIRD = ("work", ONE, "mine"), ("source", ONE, "second"), ("source", ONE, "third")


@pytest.mark.parametrize(
    ("changes", "left", "said"),
    [
        ([SECOND], {ONE: "second"}, "1 updated"),
        ([("work", ONE, "")], {}, "1 new"),  # deleted: it comes back
        ([MINE], {ONE: "mine"}, "nothing new"),
        ([MINE, SECOND], {ONE: "mine", BESIDE: "second"}, f"its newer version is {BESIDE}."),
        # The learner has seen enough of the newer version: it is delivered once.
        ([MINE, SECOND, ("work", BESIDE, "")], {ONE: "mine"}, "nothing new"),
        ([MINE, SECOND, THIRD], {ONE: "mine", BESIDE: "third"}, f"its newer version is {BESIDE}."),
        # What the learner wrote into the one beside is kept, too.
        ([MINE, SECOND, ("work", BESIDE, "and this"), THIRD],
         {ONE: "mine", BESIDE: "and this", BESIDE_2: "third"},
         f"You changed {ONE}; its newer version is {BESIDE_2}."),
        # A touched file that becomes the newer one is updated again.
        ([("work", ONE, "second"), SECOND, THIRD], {ONE: "third"}, "1 updated"),
    ],
)  # fmt: skip
def test_an_untouched_file_is_updated_and_a_touched_one_kept(
    tmp_path: Path, work: Path, changes: list[tuple[str, str, str]], left: dict[str, str], said: str
) -> None:
    for whose, name, text in changes:
        path = (work if whose == "work" else tmp_path / "source") / name
        path.write_text(text)
        if not text:
            path.unlink()
        done = str(delivery.new_course(work))
    assert said in done
    assert files(work) == {name: f"first {name}" for name in (ONE, TWO, DATA)} | left


@pytest.mark.parametrize("text", ["", "{", "[]", '{"delivered": 1}'])
def test_a_damaged_record_loses_nothing(source: Path, work: Path, text: str) -> None:
    """Without checksums, every file that differs counts as the learner's."""
    (work / delivery.RECORD).write_text(text)
    (source / ONE).write_text("second")
    assert delivery.new_course(work).kept == {ONE: BESIDE}
    assert (work / ONE).read_text() == f"first {ONE}"
    assert ONE in json.loads((work / delivery.RECORD).read_text())["delivered"]


def test_a_copy_that_was_cut_short_is_taken_up(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = delivery.write_whole

    def full_disk(path: Path, content: bytes) -> None:
        if path.name == "two.ipynb":
            raise OSError(28, "No space left on device")
        write(path, content)

    monkeypatch.setattr(delivery, "write_whole", full_disk)
    with pytest.raises(labkit.LabError, match=r"cannot be copied to .* \(No space left"):
        delivery.new_course(tmp_path / "work")
    monkeypatch.setattr(delivery, "write_whole", write)
    assert TWO in delivery.new_course(tmp_path / "work").new
    assert files(tmp_path / "work") == {name: f"first {name}" for name in (ONE, TWO, DATA)}


# -- the learner's edition ----------------------------------------------------------------------


def notebook(*exercises: str, text: str = "# Add up") -> str:
    """Return a solved notebook with some exercises in it, as a file has it."""
    cells = [nbformat.v4.new_markdown_cell(text, id="text")]
    for name in exercises:
        answer = "def f():\n    ### BEGIN SOLUTION\n    return 41 + 1\n    ### END SOLUTION"
        passed = [nbformat.v4.new_output("stream", text=f"{name} passed.\n")]
        cells += [
            nbformat.v4.new_code_cell(answer, id=f"answer-{name}", execution_count=1),
            nbformat.v4.new_code_cell(
                f'labkit.check("{name}")', id=f"check-{name}", outputs=passed, execution_count=2
            ),
        ]
    return nbformat.writes(nbformat.v4.new_notebook(cells=cells))


@pytest.fixture
def exercises(source: Path, tmp_path: Path) -> Path:
    """A learner's folder that has just been given a course with two exercises."""
    (source / ONE).write_text(notebook("03-1", "03-2"))
    folder = tmp_path / "work"
    delivery.new_course(folder)
    return folder


def test_a_learner_gets_stubs_and_no_solution(exercises: Path, source: Path) -> None:
    text = (exercises / ONE).read_text()
    assert "41 + 1" not in text
    assert "SOLUTION" not in text
    assert "passed" not in text
    assert text.count("# Your turn: about 1 line.") == 2
    assert "41 + 1" in (source / ONE).read_text()
    delivered = json.loads((exercises / delivery.RECORD).read_text())["delivered"]
    assert delivered[ONE] == hashlib.sha256(text.encode()).hexdigest()
    assert delivery.new_course(exercises).unchanged == [ONE, TWO, DATA]


def test_an_untouched_edition_is_updated_but_not_for_a_new_solution(
    exercises: Path, source: Path
) -> None:
    (source / ONE).write_text(notebook("03-1", "03-2").replace("41 + 1", "6 * 7"))
    assert ONE in delivery.new_course(exercises).unchanged
    (source / ONE).write_text(notebook("03-1", "03-2", "03-3"))
    done = delivery.new_course(exercises)
    assert (done.updated, done.exercises) == ([ONE], ["03-3"])
    assert "41 + 1" not in (exercises / ONE).read_text()


def test_a_half_done_folder_keeps_the_learners_work(exercises: Path, source: Path) -> None:
    """One stub of two is filled in when the course gets a third exercise and another text."""
    mine = (exercises / ONE).read_text().replace('"    ..."', '"    return 6 * 7"', 1)
    assert mine.count("6 * 7") == 1
    (exercises / ONE).write_text(mine)
    assert delivery.new_course(exercises).kept == {}
    (source / ONE).write_text(notebook("03-1", "03-2", "03-3", "03-4", text="# Add up, again"))
    done = delivery.new_course(exercises)
    assert done.kept == {ONE: BESIDE}
    assert str(done).splitlines()[1:] == [
        f"You changed {ONE}; its newer version is {BESIDE}.",
        "New exercises: 03-3, 03-4.",
    ]
    assert (exercises / ONE).read_text() == mine
    theirs = (exercises / BESIDE).read_text()
    assert "again" in theirs
    assert "41 + 1" not in theirs
    assert theirs.count("# Your turn") == 4
    assert delivery.new_course(exercises).kept == {}


def test_a_badly_marked_solution_is_not_delivered(source: Path, tmp_path: Path) -> None:
    (source / ONE).write_text(notebook("03-1").replace("### END SOLUTION", "# end"))
    with pytest.raises(labkit.LabError, match="not marked well"):
        delivery.new_course(tmp_path / "work")
    assert not (tmp_path / "work").exists()


# -- folders that cannot take it ----------------------------------------------------------------


def refused(folder: Path) -> str:
    """Return the sentence with which a folder is refused."""
    with pytest.raises(labkit.LabError) as caught:
        delivery.new_course(folder)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


def test_a_folder_with_other_things_in_it(source: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "draft.tex").write_text("mine")
    assert "choose a new or an empty folder" in refused(tmp_path / "thesis")
    assert files(tmp_path / "thesis") == {"draft.tex": "mine"}


def test_a_file(source: Path, tmp_path: Path) -> None:
    (tmp_path / "work").write_text("mine")
    assert "Not a directory" in refused(tmp_path / "work")
    assert "Not a directory" in refused(tmp_path / "work" / "below")
    assert (tmp_path / "work").read_text() == "mine"


def test_a_folder_where_a_file_belongs(source: Path, work: Path) -> None:
    (work / TWO).unlink()
    (work / TWO).mkdir()
    (source / ONE).write_text("second")
    assert "is in the way of a file of the course" in refused(work)
    assert (work / ONE).read_text() == f"first {ONE}"  # nothing was begun


def test_a_place_that_cannot_be_written_to(source: Path) -> None:
    if not Path("/proc/self").is_dir():
        pytest.skip("needs a file system that nobody can write to, such as Linux's /proc")
    assert "cannot be copied to" in refused(Path("/proc/labkit-course"))


def test_the_course_itself(source: Path) -> None:
    assert "choose a folder outside it" in refused(source / "notebooks")
    assert "choose a folder outside it" in refused(source / "data" / "work")
    assert "is no copy of the course" in refused(source)


@as_root
def test_links_that_somebody_else_has_laid(source: Path, tmp_path: Path) -> None:
    """In a folder for all: what is written through them would be written elsewhere."""
    precious = tmp_path / "precious"
    precious.mkdir()
    shared = open_folder(reachable(tmp_path) / "class")
    as_nobody("ln", "-s", precious, shared / "work")
    assert "class/work is a link that was made by user" in refused(shared / "work")
    (shared / "mine").mkdir()
    (shared / "mine").chmod(0o777)
    delivery.new_course(shared / "mine")
    shutil.rmtree(shared / "mine" / "notebooks")
    as_nobody("ln", "-s", precious, shared / "mine" / "notebooks")
    assert "mine/notebooks is a link that was made by user" in refused(shared / "mine")
    assert list(precious.iterdir()) == []


def test_the_last_notebook_ends_with_what_one_has_done(source: Path, tmp_path: Path) -> None:
    for name in ("21_the_bill", "23_rendezvous"):
        (source / "notebooks" / f"{name}.ipynb").write_text(notebook("21-1"))
    work = tmp_path / "learner"
    delivery.new_course(work)
    cells = {
        number: nbformat.read(work / "notebooks" / name, as_version=4).cells
        for number, name in ((21, "21_the_bill.ipynb"), (23, "23_rendezvous.ipynb"))
    }
    assert [cell.source for cell in cells[21][-1:]] == ["labkit.progress()"]
    assert cells[21][-2].source.startswith("## What you have done")
    assert len(cells[23]) == len(cells[21]) - 2
    nbformat.validate(nbformat.read(work / "notebooks" / "21_the_bill.ipynb", as_version=4))
    assert delivery.new_course(work).updated == []  # the same file each time
