"""What long work prints on stderr."""

from __future__ import annotations

import io

from dynadiag.commands.progress import ProgressPrinter


def test_a_trial_is_told_in_words() -> None:
    stream = io.StringIO()
    with ProgressPrinter(stream) as progress:
        progress.on_trial(1, "as written", "same", 0.5)
        progress.on_trial(2, "eager", "pass", 0.25)
    assert stream.getvalue().splitlines() == [
        "trial 1: as written: same failure (0.5 s)",
        "trial 2: eager: pass (0.2 s)",
    ]
