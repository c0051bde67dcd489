"""Wait for a program, and pass on to it the signals that its user, its shell or its cluster sends to us."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable

__all__ = ["PASSED_ON", "SignalRelay"]

PASSED_ON = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,  # a terminal that is closed
    signal.SIGQUIT,  # Ctrl-\
    signal.SIGUSR1,  # a cluster's: write a checkpoint, the time is nearly over
    signal.SIGUSR2,
)
_MAX_INTERRUPTS = 2  # times that Ctrl-C is left to the program; the next one kills it
_SECONDS = 1.0  # between looks at a program of whose end we get no signal


class SignalRelay:
    """Passes signals on to a program from before its start until its end.

    They are blocked meanwhile and taken one by one, which tells who sent each: what the terminal sends (Ctrl-C), it has
    sent to the program too. One that was ignored when we were started (`nohup`, a shell's ``&``) is passed on as well,
    because the program may handle it, and is not counted as Ctrl-C. For the main thread only.
    """

    def __init__(self) -> None:
        self.interrupts = 0

    def __enter__(self) -> SignalRelay:
        self._interruptible = signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, {*PASSED_ON, signal.SIGCHLD})
        return self

    def __exit__(self, *_: object) -> None:
        while signal.sigtimedwait(PASSED_ON, 0) is not None:
            pass  # it was for the program, which has ended
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)

    @property
    def unblock(self) -> Callable[[], object]:
        """What the program's process calls before it becomes the program: it gets the signals as we got them."""
        before = self._before
        return lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def wait(self, process: subprocess.Popen[bytes], limit: float | None) -> int:
        """Wait for the end of the program, and kill it after ``limit`` seconds. Returns its exit code."""
        end = None if limit is None else time.monotonic() + limit
        while (code := process.poll()) is None:
            left = _SECONDS if end is None else min(_SECONDS, end - time.monotonic())
            if left <= 0:
                process.kill()
                return process.wait()
            info = signal.sigtimedwait({*PASSED_ON, signal.SIGCHLD}, left)
            if info is not None and info.si_signo != signal.SIGCHLD:
                self._pass_on(process, info)
        return code

    def _pass_on(self, process: subprocess.Popen[bytes], info: signal.struct_siginfo) -> None:
        if info.si_signo == signal.SIGINT and self._interruptible:
            self.interrupts += 1
            if self.interrupts > _MAX_INTERRUPTS:
                process.kill()
                return
        if info.si_code <= 0:  # sent by a process; the kernel's own go to the whole foreground group
            process.send_signal(info.si_signo)
