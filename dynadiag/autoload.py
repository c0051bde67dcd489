"""What torch calls at the end of ``import torch`` (entry point group ``torch.backends``).

Where ``DYNADIAG_RECORD`` is not set this returns at once: one look-up, and nothing else of
dynadiag is loaded.
"""

from __future__ import annotations

import os
import sys


def start() -> None:
    """Record this process if its environment asks for it. Never raises: a failure is one line on stderr."""
    if not os.environ.get("DYNADIAG_RECORD"):
        return
    try:
        from dynadiag.capture.process import record_this_process

        record_this_process()
    except Exception as error:  # noqa: BLE001 - torch would refuse to be imported, and the program could not run
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        print(f"dynadiag: this process is not recorded: {reason}", file=sys.stderr)  # noqa: T201 - the only place to say it
