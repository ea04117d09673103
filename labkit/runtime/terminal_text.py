"""Read a text as a terminal would show it: progress bars write over themselves."""

from __future__ import annotations

import re

#: What moves the cursor or erases; colours (which end in m) only dress the next character.
MOVES = re.compile(r"[\r\b]|\x1b\[[0-9;?]*[A-HJKSTfhl]")
#: An escape sequence whose rest is still to come.
_CUT = re.compile(r"\x1b(?:\[[0-9;?]*)?$")
_TOKENS = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|(.)", re.DOTALL)
#: Lines above the end that the cursor may go back to: nested progress bars are few.
REACH = 12


class Screen:
    """A text that grows, as it looks on a screen without end.

    Knows carriage return, backspace, cursor up, down and forward, and erasing in a line: what
    tqdm and its like use. Colours stay with the characters that they dress.
    """

    def __init__(self) -> None:
        self._above: list[str] = []  # lines that nothing can change any more, with their ends
        self._open = ""  # raw text of the rest
        self._cut = ""
        self._new: list[str] = []  # what was written since
        self._length = 0  # of it

    def write(self, text: str) -> None:
        """Write at the cursor."""
        self._new.append(text)
        self._length += len(text)
        if self._length > len(self._open):  # else a long line would be read with each of its dots
            self._take()

    def _take(self) -> None:
        """Read what is new."""
        text = "".join(self._new)
        self._new, self._length = [], 0
        raw = (self._open + self._cut + text).replace("\r\n", "\n")  # as terminals end lines
        self._cut = "".join(_CUT.findall(raw))
        raw = raw.removesuffix(self._cut)
        if MOVES.search(raw):
            lines, up, column = _draw(raw)
            texts = _join(lines)
            fixed = max(0, len(lines) - max(REACH, up + 1))
            self._above += [text + "\n" for text in texts[:fixed]]
            raw = "\n".join(texts[fixed:])
            # Not at the end, or behind spaces that are not kept:
            if up or column != len(lines[-1]) or "".join(lines[-1]).endswith(" "):
                raw += f"\x1b[{up}A" * (up > 0) + "\r" + f"\x1b[{column}C" * (column > 0)
        else:
            fixed_text, *reach = raw.rsplit("\n", REACH)
            if len(reach) == REACH:
                self._above.append(fixed_text + "\n")
                raw = "\n".join(reach)
        self._open = raw

    def __str__(self) -> str:
        self._take()
        rest = self._open
        if MOVES.search(rest):
            rest = "\n".join(_join(_draw(rest)[0]))
        self._above = ["".join(self._above)]
        return self._above[0] + rest


def settle(text: str) -> str:
    """Return what is left on the screen when a text has been written."""
    screen = Screen()
    screen.write(text)
    return str(screen)


def _draw(text: str) -> tuple[list[list[str]], int, int]:
    """Write a text on an empty screen.

    Returns
    -------
    lines, up, column
        The characters of each line; how many lines above the last one the cursor is; its column.
    """
    lines: list[list[str]] = [[]]
    row = column = 0
    dress = ""
    for numbers, command, character in _TOKENS.findall(text):
        if command == "m":
            dress += f"\x1b[{numbers}m"
        elif command:
            count = int(numbers) if numbers.isdigit() else 1
            if command == "A":
                row = max(0, row - count)
            elif command == "B":
                row = min(len(lines) - 1, row + count)
            elif command == "C":
                column += count
            elif command == "K":
                lines[row] = [] if numbers == "2" else lines[row][:column]
        elif character == "\r":
            column = 0
        elif character == "\b":
            column = max(0, column - 1)
        elif character == "\n":
            _dress_end(lines[row], dress)  # it ends with its line
            row, column, dress = row + 1, 0, ""
            if row == len(lines):
                lines.append([])
        else:
            line = lines[row]
            line += [" "] * (column - len(line))
            line[column : column + 1] = [dress + character]
            column, dress = column + 1, ""
    _dress_end(lines[row], dress)
    return lines, len(lines) - 1 - row, column


def _join(lines: list[list[str]]) -> list[str]:
    return ["".join(line).rstrip(" ") for line in lines]


def _dress_end(line: list[str], dress: str) -> None:
    if dress:  # on an empty line it needs a place: what has no width would move what follows
        line[-1:] = [line[-1] + dress if line else dress + " "]
