"""Start the system's Chromium under Playwright, and leave nothing of it behind."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import psutil
from playwright.sync_api import Browser, BrowserContext, sync_playwright

from tests.support import system

#: For a machine without a display; what else an unattended browser needs Playwright adds itself.
FLAGS = ("--disable-gpu", "--disable-quic", "--disable-sync")
#: Milliseconds that any single step in a page may take.
STEP_MS = 120_000
STOP_SECONDS = 120


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Start a browser with an empty profile.

    Raises
    ------
    AssertionError
        If a process of it is still there at the end.
    """
    me = psutil.Process()
    before = me.children()
    with sync_playwright() as playwright:
        (driver,) = [child for child in me.children() if child not in before]
        browser = playwright.chromium.launch(
            executable_path=system.find("chromium"), args=list(FLAGS), timeout=STEP_MS
        )
        try:
            yield browser
        finally:
            family = [driver, *driver.children(recursive=True)]
            browser.close()
    _, alive = psutil.wait_procs(family, STOP_SECONDS)
    assert not alive, f"left after the browser has ended: {alive}"


@contextlib.contextmanager
def window(
    browser: Browser, width: int = 1280, height: int = 900, *, sharp: bool = False
) -> Iterator[BrowserContext]:
    """Open a window; a ``sharp`` one has two pixels for each in width and height."""
    context = browser.new_context(
        viewport={"width": width, "height": height}, device_scale_factor=2 if sharp else 1
    )
    context.set_default_timeout(STEP_MS)
    try:
        yield context
    finally:
        context.close()
