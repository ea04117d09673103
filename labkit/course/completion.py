"""Complete the ids of exercises: ``labkit.check("03`` and Tab."""

from __future__ import annotations

import re

from IPython.core.completer import (
    CompletionContext,
    SimpleCompletion,
    SimpleMatcherResult,
    context_matcher,
)

#: The call of a function that takes an id, up to the cursor; and the id so far.
_CALL = re.compile(r"""(?:^|[\W_])(?:check|hint|solution)\(\s*["']([\d-]*)$""")


@context_matcher(identifier="labkit.exercises")
def complete(context: CompletionContext) -> SimpleMatcherResult:
    """Return the ids that begin as the text before the cursor does."""
    found = _CALL.search(context.line_with_cursor[: context.cursor_position])
    if found is None:
        return SimpleMatcherResult(completions=[])
    from . import catalogue  # not when a lab starts: it takes longer than all the rest here

    every = (name for number in catalogue.numbers() for name in catalogue.ids(number))
    ids = [SimpleCompletion(name, type="id") for name in every if name.startswith(found[1])]
    return SimpleMatcherResult(
        completions=ids, matched_fragment=found[1], ordered=True, suppress=bool(ids)
    )
