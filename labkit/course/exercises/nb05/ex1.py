"""Exercise 05-1: turn the environment variables of torchrun into the arguments of
init_process_group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...answers import body, edit
from ...exercise import Exercise, Here, Mistake, Wrong
from ...mistakes import parts


def _environment(rank: int, world_size: int) -> dict[str, str]:
    """Return what torchrun would have set on two hosts, so that LOCAL_RANK is not RANK."""
    return {
        "MASTER_ADDR": "10.0.0.7",
        "MASTER_PORT": "23456",
        "WORLD_SIZE": str(2 * world_size),
        "RANK": str(world_size + rank),
        "LOCAL_WORLD_SIZE": str(world_size),
        "LOCAL_RANK": str(rank),
    }


def trial(answer: Callable[[dict[str, str]], dict[str, Any]], here: Here) -> list[Any]:
    """Return the arguments, in a list of fixed order, and the names of others."""
    given = answer(_environment(here.rank, here.world_size))
    if not isinstance(given, dict):
        raise TypeError(f"join_arguments returned {type(given).__name__}, not a dict")
    found = [given.get(name) for name in ("init_method", "rank", "world_size")]
    return [*found, *sorted(set(given) - {"init_method", "rank", "world_size"})]


def expected(world_size: int) -> list[list[Any]]:
    """Return address, rank and world size of each rank of the second host."""
    return [
        ["tcp://10.0.0.7:23456", world_size + rank, 2 * world_size] for rank in range(world_size)
    ]


EXERCISE = Exercise(
    id="05-1",
    title="Read what torchrun sets",
    answer="join_arguments",
    trial=trial,
    expected=expected,
    mistakes=(
        Mistake(
            "You read LOCAL_RANK, which counts within one machine; RANK counts all of them.",
            when=lambda yours, expected, n: (
                [str(part) for part in parts(yours, 1)] == [str(r) for r in range(n)]
            ),
            shown_by={"takes the local rank": edit('"RANK"', '"LOCAL_RANK"')},
        ),
        Mistake(
            "The world size is that of one machine: WORLD_SIZE counts the ranks of all.",
            when=lambda yours, expected, n: bool(
                {str(part) for part in parts(yours, 2)} & {str(n)}
            ),
            shown_by={"takes the local world size": edit("WORLD_SIZE", "LOCAL_WORLD_SIZE")},
        ),
        Mistake(
            "Environment variables are text. rank and world_size are numbers: wrap them in int(…).",
            when=lambda yours, expected, n: any(
                isinstance(part, str) for part in parts(yours, 1) + parts(yours, 2)
            ),
            shown_by={
                "leaves the numbers text": edit(
                    '"rank": int(environment["RANK"]),',
                    '"rank": environment["RANK"],',
                    '"world_size": int(environment["WORLD_SIZE"]),',
                    '"world_size": environment["WORLD_SIZE"],',
                )
            },
        ),
        Mistake(
            "The port is missing in init_method: it is tcp://, the address, a colon, the port.",
            when=lambda yours, expected, n: any(
                "23456" not in str(part) and "tcp://" in str(part) for part in parts(yours, 0)
            ),
            shown_by={
                "forgets the port": edit(
                    'address, port = environment["MASTER_ADDR"], environment["MASTER_PORT"]',
                    "",
                    '"init_method": f"tcp://{address}:{port}",',
                    '"init_method": "tcp://" + environment["MASTER_ADDR"],',
                )
            },
        ),
        Mistake(
            "init_method has to be an address that begins with tcp://.",
            when=lambda yours, expected, n: any(
                not str(part).startswith("tcp://") for part in parts(yours, 0)
            ),
            shown_by={
                "leaves out tcp://": body("""
                    return {
                        "init_method": environment["MASTER_ADDR"]
                        + ":"
                        + environment["MASTER_PORT"],
                        "rank": int(environment["RANK"]),
                        "world_size": int(environment["WORLD_SIZE"]),
                    }
                """),
            },
        ),
    ),
    also_wrong={
        "asks for a variable that nobody sets": Wrong(
            body('return {"rank": int(environment["MASTER_RANK"])}'), says="KeyError"
        ),
    },
    another=body("""
        numbers = {name.lower(): int(environment[name]) for name in ("RANK", "WORLD_SIZE")}
        url = "tcp://{MASTER_ADDR}:{MASTER_PORT}".format(**environment)
        return dict(numbers, init_method=url)
    """),
    hints=(
        "Four variables make three arguments: address and port go into one URL.",
        "What you read from the environment is text; rank and world_size have to be numbers.",
        'Return {"init_method": f"tcp://{address}:{port}", "rank": int(…), "world_size": int(…)}.',
    ),
)
