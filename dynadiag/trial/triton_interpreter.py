"""The ``triton`` rung on a machine without a GPU: Inductor generates Triton kernels, and Triton's interpreter runs
them.

It needs a process of its own, because Triton reads ``TRITON_INTERPRET`` when it is imported, and because everything in
the process is compiled by the Triton code generator from then on. Each kernel that runs is reported once per trial: a
program whose graphs call only library kernels says nothing about this rung, even if it passes.
"""

from __future__ import annotations

from dynadiag.torch_private import interpreter_patches as torch_private
from dynadiag.trial import libdevice
from dynadiag.trial.context import TRIAL
from dynadiag.trial.events import KernelLaunched

_reported: set[str] = set()


def install() -> None:
    """Make this process generate Triton kernels for the CPU and interpret them."""
    torch_private.generate_triton_for_cpu()
    torch_private.route_libdevice(libdevice.find_function)
    torch_private.match_gpu_numerics()
    torch_private.patch_language_once_per_launch()
    torch_private.watch_launches(_report_launch)
    TRIAL.on_start(_reported.clear)


def _report_launch(kernel: str) -> None:
    if kernel not in _reported:
        _reported.add(kernel)
        TRIAL.send(KernelLaunched(kernel))
