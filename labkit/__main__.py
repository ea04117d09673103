"""``python -m labkit``: the command line, also where its script is not on the path."""

from .tools.cli import app

if __name__ == "__main__":
    app(prog_name="labkit")
