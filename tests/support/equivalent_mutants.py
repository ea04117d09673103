"""Mutants that do the same as the solution, so that no check can refuse them: per exercise, each
change as :mod:`tests.support.mutants` writes it, with the reason."""

from __future__ import annotations

EQUIVALENT: dict[str, dict[str, str]] = {}
