"""What all tests need of the process that they run in."""

from __future__ import annotations

import signal

from hypothesis import settings

# A shell that starts `make test &` in a script has it ignore Ctrl-C, which all that it starts inherits: tests that
# interrupt a command would wait for its end.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A deadline of an example would fail on a busy machine.
settings.register_profile("dynadiag", deadline=None)
settings.load_profile("dynadiag")
