"""Compiles one kernel for a target and returns its code at each stage, in a process of its own.

``python -m dynadiag.trial.stages JOB RESULT``: JOB is JSON with ``language``, ``name``, ``source``, ``target``. RESULT
is written as JSON: ``{"stages": {NAME: {"text", "lines"}}, "facts": {...}, "notes": [...]}`` or ``{"error":
SENTENCE}``. Compiling a Triton kernel executes its source, which is Python: the caller must have asked whether it is
trusted.
"""

__all__: list[str] = []
