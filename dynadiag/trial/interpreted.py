"""The process of the ``triton`` rung on a machine without a GPU: Inductor's Triton kernels, interpreted by Triton.

It is a process of its own because Triton asks ``TRITON_INTERPRET`` when it is imported, and because everything in it
is compiled by the Triton code generator from then on. Each kernel that was run is told, once a trial: a program whose
graphs are nothing but library calls has not been at this rung, however well it ended.
"""

from __future__ import annotations

from dynadiag.torch_private import interpreter as torch_private
from dynadiag.trial import libdevice
from dynadiag.trial.runtime import TRIAL

__all__ = ["install"]

_launched: set[str] = set()


def install() -> None:
    """Turns this process into one that generates Triton kernels for the CPU and interprets them."""
    torch_private.generate_triton_for_cpu()
    torch_private.route_libdevice(libdevice.function)
    torch_private.same_numbers_as_a_gpu()
    torch_private.patch_once_a_launch()
    torch_private.watch_launches(_told)
    TRIAL.on_start(_launched.clear)


def _told(kernel: str) -> None:
    if kernel not in _launched:
        _launched.add(kernel)
        TRIAL.send("launch", name=kernel)
