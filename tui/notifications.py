"""The messages that come over the screen for some seconds."""

from __future__ import annotations

from dataclasses import dataclass

from textual.app import App
from textual.notifications import Notification, Notify, SeverityLevel

_LEAST_SECONDS = 0.1  # that a message is shown for


@dataclass
class _Message(Notification):
    """A message whose time is never over before it is shown.

    Textual looks whether it is, and makes the message's timer later. A timer of less than no time never returns.
    """

    @property
    def time_left(self) -> float:
        return max(super().time_left, _LEAST_SECONDS)

    @property
    def has_expired(self) -> bool:
        return super().time_left <= 0


class NotifyingApp(App[int]):
    """Shows each message once at a time: one that comes with every key would fill the screen."""

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = True,
    ) -> None:
        """Show a message, unless the same one is shown."""
        made = _Message(message, title, severity, self.NOTIFICATION_TIMEOUT if timeout is None else timeout, markup)
        if not any((one.message, one.title) == (message, title) for one in self._notifications):
            self.post_message(Notify(made))
