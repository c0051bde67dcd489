"""The commands of dynadiag that were started in the browser. It is their only owner: screens ask it for theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tui.command_process import Command, CommandProcess


class RunningCommands:
    """Starts commands, finds them by slot (`Command.slot`) and recording, and stops them when the browser ends.

    ``on_change`` is called with a command whenever there is something new of it, until `shut_down`.
    """

    def __init__(self, on_change: Callable[[CommandProcess], None]) -> None:
        self._on_change = on_change
        self._tasks: dict[CommandProcess, asyncio.Task[None]] = {}  # in the order of their start
        self._is_shut = False

    def start(self, command: Command, subject: Path, columns: int | None = None) -> CommandProcess:
        """Start a command on a recording, in place of the last one of this slot. It is not a worker of Textual's:
        those end before the screens, and a command must be heard until it has ended, or it could not say its last.
        """
        from tui.command_process import CommandProcess  # the first screen does not need it

        def changed() -> None:
            if not self._is_shut:
                self._on_change(process)

        process = CommandProcess(command, subject.resolve(), changed, columns)
        last = self.find(command.slot, subject)
        if last is not None and last.finished:
            self.remove(last)
        self._tasks[process] = asyncio.create_task(process.run())
        changed()
        return process

    def find(self, slot: str, recording: Path) -> CommandProcess | None:
        """The last command of a slot that was started on this recording, or that writes it."""
        path = recording.resolve()
        found = (one for one in reversed(self._tasks) if one.command.slot == slot and one.belongs_to(path))
        return next(found, None)

    def running(self, slot: str) -> CommandProcess | None:
        """The command of a slot that runs, on whatever recording."""
        return next((one for one in self._tasks if one.command.slot == slot and not one.finished), None)

    def remove(self, process: CommandProcess) -> None:
        self._tasks.pop(process, None)

    async def shut_down(self) -> None:
        """Interrupt all commands, and wait for their end."""
        self._is_shut = True
        await asyncio.gather(*(process.shut_down() for process in self._tasks))
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
