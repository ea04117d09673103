"""Merge the pieces of text that a cell has written, without moving any past a display."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

from nbformat import NotebookNode

#: What a carriage return and a backspace take back, as nbval has it, which compares the result.
_TAKEN_BACK = re.compile(r".*\r(?=[^\n])")
_BACKSPACE = re.compile(r"[^\n]\x08")


def merge(outputs: Sequence[NotebookNode]) -> list[NotebookNode]:
    """Return outputs in which all text between two displays is one stdout and one stderr.

    nbclient's own ``coalesce_streams`` merges the text of the whole cell: labels of pictures then
    stand together before the first picture, and a later cell's update of a display misses it.
    """
    merged: list[NotebookNode] = []
    for is_text, stretch in groupby(outputs, lambda output: output.output_type == "stream"):
        if not is_text:
            merged += stretch
            continue
        texts: dict[str, NotebookNode] = {}
        for output in stretch:
            if output.name in texts:
                texts[output.name].text += output.text
            else:
                texts[output.name] = output.copy()
        # They come by ways of their own: which of them is first is chance.
        for name in sorted(texts, reverse=True):
            texts[name].text = _read(texts[name].text)
            merged.append(texts[name])
    return merged


def _read(text: str) -> str:
    """Return what is left of a text on a screen."""
    before = ""
    while before != text:
        before, text = text, _BACKSPACE.sub("", text)
    return _TAKEN_BACK.sub("", text)
