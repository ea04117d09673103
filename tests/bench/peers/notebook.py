"""Look at what a notebook's reader gets when two ranks display a picture, or stop in a debugger."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..child import Child
from .cells import PICTURES, SHOW, STOP
from .measure import COLOURS
from .peer import Peer

#: What a person types at a debugger's prompt, and what shows that it was answered.
REPLIES, SECRET = ("p secret", "c"), "41"
#: The messages that bring displays.
DISPLAYS = ("display_data", "execute_result", "update_display_data")
#: Seconds for all of it in one kernel.
SECONDS = 300.0


@dataclass(frozen=True)
class Seen:
    """What a notebook's reader gets."""

    pictures: int  #: of the two
    carriers: list[str]  #: the MIME types in which they come
    displayed: str  #: the text that comes with them or in their place
    prompts: list[str]  #: of ``breakpoint()`` on rank 1
    answered: bool  #: whether the debugger at the prompt knew rank 1's variable
    stopped: str  #: the text that came meanwhile
    #: values of the same variable on the ranks that JupyterLab's debugger has stopped
    debugger: dict[str, str] = field(default_factory=dict)


def look(peer: Peer, env: Mapping[str, str]) -> Seen:
    """Run a peer's cells in a kernel of its own and return what its reader gets."""
    assert peer.cells is not None
    cells = peer.cells
    with Child(peer.notebook(), seconds=SECONDS, env=env) as child:
        line = {
            "start": list(cells.start),
            "show": cells.cell(SHOW),
            "stop": cells.cell(STOP),
            "replies": REPLIES,
        }
        show, stop = child.ask(json.dumps(line)), child.answer()
        debugger = child.answer() if cells.program == "in_lab" else {}
        child.process.kill()
    return judge(show, stop, debugger)


def judge(show: Mapping[str, Any], stop: Mapping[str, Any], debugger: dict[str, str]) -> Seen:
    """Return what the messages of both cells hold for a reader."""
    bundles = [m["content"]["data"] for m in show["messages"] if m["type"] in DISPLAYS]
    found = {
        (picture, mime)
        for data in bundles
        for mime, value in data.items()
        for picture in PICTURES
        if picture in json.dumps(value)
    }
    stopped = text_of(stop["messages"])
    return Seen(
        pictures=len({picture for picture, _ in found}),
        carriers=sorted({mime for _, mime in found}),
        displayed=text_of(show["messages"]),
        prompts=stop["prompts"],
        answered=bool(stop["prompts"]) and SECRET in stopped,
        stopped=stopped,
        debugger=debugger,
    )


def text_of(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the text of a cell's messages, in which a display is as it was shown last."""
    parts: dict[str, str] = {}
    for number, message in enumerate(messages):
        content = message["content"]
        key = content.get("transient", {}).get("display_id") or str(number)
        if message["type"] == "stream":
            parts[key] = content["text"]
        elif message["type"] == "error":
            parts[key] = f"{content['ename']}: {content['evalue']}\n"
        elif message["type"] in DISPLAYS and "text/plain" in content["data"]:
            parts[key] = content["data"]["text/plain"] + "\n"
    return COLOURS.sub("", "".join(parts.values())).strip()
