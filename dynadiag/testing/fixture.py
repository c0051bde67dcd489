"""The fixture ``dynadiag``: explain a call in a test, and hold it to one graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import dynadiag
from dynadiag.explanation.explanation import Explanation
from dynadiag.render.report import Report, explanation_text
from dynadiag.testing.item_recording import ItemRecording, hide_trace
from dynadiag.testing.session import RECORDING


class CompileChecker:
    """What torch.compile does in one test."""

    def __init__(self, recording: ItemRecording) -> None:
        self._recording = recording
        self._explained: Explanation | None = None

    @classmethod
    @contextmanager
    def of(cls, item: pytest.Item) -> Iterator[CompileChecker]:
        """The checker of a test, which is recorded from here on unless it is already."""
        running = item.stash.get(RECORDING, None)
        if running is not None:
            yield cls(running)
            return
        hide_trace(item.config)
        own = ItemRecording(item.nodeid)
        own.start()
        try:
            yield cls(own)
        finally:
            own.stop()
            own.remove()

    def explain(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Report:
        """Compile ``fn``, call it once, and say what torch.compile did, as `dynadiag.explain`."""
        made = dynadiag.explain(fn, *args, **kwargs)
        self._explained = made
        return made

    def assert_one_graph(self) -> None:
        """Fail unless what was explained last, or else what this test has compiled so far, is one graph."""
        __tracebackhide__ = True
        found = self._explained or self._recording.explain_so_far()
        if found is None:
            pytest.fail("nothing was compiled: no function that torch.compile returned was called", pytrace=False)
        if found.break_count or not found.graph_count or found.graph_count - found.recompile_count > 1:
            pytest.fail(explanation_text(found), pytrace=False)
