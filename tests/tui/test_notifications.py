"""Messages over the screen."""

from __future__ import annotations

from pathlib import Path

from textual.widgets._toast import Toast

from tests.tui.conftest import browsing, press, settle


async def test_a_message_whose_time_is_over_while_it_is_made_does_not_stop_the_browser(program: Path) -> None:
    """Textual gives the message's timer the time that is left, and one of less than no time never returns."""
    async with browsing(program) as pilot:
        pilot.app.notify("copied")
        await settle(pilot)
        (message,) = pilot.app._notifications
        message.raised_at -= message.timeout + 1
        assert message.has_expired
        assert message.time_left > 0
        await pilot.app.screen.mount(late := Toast(message))
        while late.is_attached:
            await pilot.pause(0.05)
        assert not list(pilot.app._notifications)


async def test_a_message_that_is_shown_is_not_shown_again(program: Path) -> None:
    async with browsing(program) as pilot:
        await press(pilot, *"yyyy")
        assert [one.message for one in pilot.app._notifications] == ["line copied"]
        await press(pilot, *"YL")
        assert len(list(pilot.app._notifications)) == 3
        pilot.app.clear_notifications()
        await press(pilot, "y")
        assert [one.message for one in pilot.app._notifications] == ["line copied"]
