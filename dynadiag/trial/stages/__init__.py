"""Compiles one kernel for a target and hands back what it is at each stage; a process of its own.

``python -m dynadiag.trial.stages JOB RESULT``: JOB is JSON with ``language``, ``name``, ``source``, ``target``; RESULT
is written as JSON, ``{"stages": {NAME: {"text", "lines"}}, "facts": {...}, "notes": [...]}`` or ``{"error":
SENTENCE}``. Compiling a Triton kernel executes its source, which is Python: whoever starts this has asked whether the
source is to be trusted.
"""

__all__: list[str] = []
