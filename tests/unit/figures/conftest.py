"""What tests of figures share."""

import pytest

from labkit.figures import picture


@pytest.fixture
def drawn(monkeypatch):
    """The figures that were made; they are laid out, which is quicker than to make images."""
    figures = []

    def lay_out(figure, _):
        figure.draw_without_rendering()
        figures.append(figure)
        return b"", 0

    monkeypatch.setattr(picture, "_render", lay_out)
    return figures
