"""Autograd starts before any test compiles, as in a recorded program: tests of one process come in any order."""

from __future__ import annotations

from dynadiag.torch_private.trial import start_autograd

start_autograd()
