"""Read the text of an answer: is it Python, and which of its lines say anything?"""

from __future__ import annotations

#: What files end with that are answers: of Python, and of a shell that Slurm starts.
ENDINGS = (".py", ".sbatch")


def is_python(answer: str) -> bool:
    """Tell whether an answer is Python, by its name: that of a function, a class or a file."""
    return "." not in answer or answer.endswith(".py")


def says_something(line: str) -> bool:
    """Tell whether a line says anything to a machine. Slurm reads comments that begin with
    ``#SBATCH``."""
    return bool(line.strip()) and (line.startswith("#SBATCH") or not line.lstrip().startswith("#"))
