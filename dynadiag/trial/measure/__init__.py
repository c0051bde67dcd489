"""Measures how long each call of a generated module takes, on random inputs, in a process of its own.

``python -m dynadiag.trial.measure JOB RESULT``: JOB is JSON with ``modules``, each with its ``event``, ``source`` and
the ``lines`` of its calls (1-based), and the ``seconds`` to spend on each. RESULT gets ``device``, ``torch``,
``peaks``, ``times`` (``{event: {line: {"seconds", "kernels"}}}``) and ``errors`` (``{event: why}``).
"""

from __future__ import annotations
