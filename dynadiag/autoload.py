"""What torch calls at the end of ``import torch`` (entry point group ``torch.backends``).

Where ``DYNADIAG_RECORD`` is not set this returns at once: one look-up, and nothing else of
dynadiag is loaded.
"""

from __future__ import annotations

import os


def start() -> None:
    """Record this process if its environment asks for it. Never raises: a failure is one line on stderr."""
    if os.environ.get("DYNADIAG_RECORD"):
        from dynadiag.capture.process import record_this_process

        record_this_process()
