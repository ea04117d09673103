"""What a cell wrote is stored in few pieces, and no label leaves its picture."""

from __future__ import annotations

from nbformat import NotebookNode, v4

from labkit.tools.run_notebook import merge_streams


def text(text: str, name: str = "stdout") -> NotebookNode:
    return v4.new_output("stream", name=name, text=text)


def picture(what: str) -> NotebookNode:
    return v4.new_output("display_data", {"image/png": what})


def seen(outputs: list[NotebookNode]) -> list[str]:
    return [o.text if o.output_type == "stream" else o.data["image/png"] for o in outputs]


def test_a_label_stays_above_its_picture() -> None:
    made = [text("rank 0:\n"), picture("A"), text("rank 1:\n"), picture("B"), text("end\n")]
    assert seen(merge_streams(made)) == ["rank 0:\n", "A", "rank 1:\n", "B", "end\n"]


def test_text_between_two_displays_is_one_stdout_and_then_one_stderr() -> None:
    made = [text("e", "stderr"), text("a\n"), text("f\n", "stderr"), text("b\n"), picture("A")]
    made += [text("c", "stderr"), picture("B")]
    assert seen(merge_streams(made)) == ["a\nb\n", "ef\n", "A", "c", "B"]
    assert [o.get("name") for o in merge_streams(made)] == [
        "stdout",
        "stderr",
        None,
        "stderr",
        None,
    ]


def test_what_was_written_over_is_gone() -> None:
    made = [text(" 0%\r"), text(" 50%\r100%\n"), text("ab\x08\x08"), text("cd\n")]
    assert seen(merge_streams(made)) == ["100%\ncd\n"]


def test_what_it_is_given_stays_as_it_is() -> None:
    made = [text("a"), text("b")]
    merge_streams(made)
    assert seen(made) == ["a", "b"]
    assert merge_streams([]) == []
