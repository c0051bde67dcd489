"""Keys that come faster than they are handled wait for each other: one may open a prompt that the next ones are for.

Textual gives a key to the widget that has the focus when the key arrives. Of `/gelu` in one packet, from a slow line or
typed ahead, the letters would be commands of the list, because the prompt does not have the focus yet.

A terminal without bracketed paste sends a pasted text as keys. A prompt takes all of it at once. Where no prompt wants
it, it is dropped: nobody types so much ahead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from itertools import takewhile

from textual import events
from textual.app import App
from textual.message import Message

MOST_AHEAD = 200  # keys that may wait while no prompt is open
_LOST_SECONDS = 0.25  # after which a key whose widget was removed while it was handled counts as handled


class KeyQueue:
    """The keys that wait until the last one is handled, and the jump that it started has ended."""

    class Handled(Message):
        """Comes to the application after a key: it takes the same way, from the focused widget up."""

        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

    def __init__(self, app: App[int], send: Callable[[events.Key], Awaitable[None]], waits: Callable[[], bool]) -> None:
        """`send` is how the application handles a key. While `waits` is true, the next key is not sent."""
        self._app, self._send, self._waits = app, send, waits
        self._keys: deque[events.Key] = deque()
        self._number = 0  # of the last key that was sent
        self._is_handling = False

    @property
    def is_empty(self) -> bool:
        """Whether no key waits, and none is being handled."""
        return not (self._is_handling or self._keys)

    async def put(self, key: events.Key) -> None:
        """Send a key, or keep it until those before it are handled."""
        if self._is_handling:
            self._keys.append(key)
        else:
            await self._send_key(key)

    async def _send_key(self, key: events.Key) -> None:
        self._is_handling, self._number = True, self._number + 1
        number, target = self._number, self._app.focused or self._app.screen
        await self._send(key)
        if target.post_message(self.Handled(number)):
            self._app.set_timer(_LOST_SECONDS, lambda: self._lost(number))
        else:
            self.handled(number)

    def _lost(self, number: int) -> None:
        """Go on after a key of which nothing came back, unless it still runs."""
        if number == self._number and self._is_handling and not self._waits():
            self.handled(number)

    def handled(self, number: int) -> None:
        """Go on with the next key once what the last one asked for, such as the focus, has been done."""
        if number == self._number and self._is_handling:
            self._app.call_later(self._next, number)

    async def _next(self, number: int) -> None:
        if number != self._number or not self._is_handling:
            return
        if self._waits():
            self._app.call_later(self._next, number)
            return
        self._is_handling = False
        focused = self._app.focused
        text = "".join(key.character or "" for key in takewhile(lambda key: key.is_printable, self._keys))
        if focused is None or not focused.check_consume_key("a", "a"):
            if len(self._keys) > MOST_AHEAD:
                self._app.notify(f"{len(self._keys):,} keys were dropped: they came at once, and no prompt was open")
                self._keys.clear()
        elif len(text) > 1:
            focused.post_message(events.Paste(text))
            for _ in text:
                self._keys.popleft()
        if self._keys:
            await self._send_key(self._keys.popleft())
