"""The Overview screen: what happened, and what to look at first."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.geometry import Size
from textual.widget import Widget

from tui.location import Location
from tui.run_header import run_lines
from tui.styled_text import Line, line, one_line
from tui.views.base import View
from tui.widgets.ground import Columns
from tui.widgets.lines import Lines
from tui.widgets.styled_lines import StyledLines

MIN_DETAILED = 110  # columns from which on the details are shown
MIN_WIDE = 150  # columns from which on names are shortened less
_OTHER_ROWS = 4  # rows of the terminal outside this screen
_OTHER_COLUMNS = 6  # columns beside the text: borders, marks, and a scrollbar


class OverviewView(View):
    """Shows the run at once, and the rest when a worker has read it."""

    def __init__(self) -> None:
        super().__init__()
        self._filled = False
        self._read_for = Size()  # the size of the terminal when it was read

    def compose(self) -> ComposeResult:
        first = [*run_lines(self.session.run, live=self.session.live), Line(), line(("reading ...", "dim"))]
        with Columns():
            yield StyledLines(first, id="overview-lines", wrap=True)
            yield StyledLines(id="overview-detail", classes="detail", wrap=True)

    @property
    def lines(self) -> StyledLines:
        return self.query_one("#overview-lines", StyledLines)

    @property
    def details(self) -> StyledLines:
        """The selected finding: its source, cause and advice. A narrow terminal does not show it."""
        return self.query_one("#overview-detail", StyledLines)

    def first_focus(self) -> Widget:
        return self.lines

    def on_resize(self) -> None:
        if self._filled and self._read_for != self.app.size:
            self.load()

    def load(self) -> None:
        self._read_for = self.app.size
        self.fetch("overview", self._read, self._show)

    def _read(self) -> list[Line]:
        from dynadiag.explanation.search import read_search  # imported in a worker, as all that follows
        from tui.kernel_summary import MIN_ROWS
        from tui.overview import overview_lines

        session = self.session
        finding = read_search(session.recording, running=session.live)
        explanation, trials = session.explanation(), len(session.recording.trials())
        width, height = self._read_for
        beside = width >= MIN_DETAILED and bool(explanation.findings)
        kernels = 0 if explanation.findings or not session.kernel_count else MIN_ROWS + 1
        return overview_lines(
            explanation,
            session.kernel_count,
            trials,
            live=session.live,
            finding=finding,
            beside=beside,
            wide=width >= MIN_WIDE,
            columns=width // (2 if beside else 1) - _OTHER_COLUMNS,
            rows=height - _OTHER_ROWS - kernels,
            source=session.recording.source,
        )

    def show_problem(self, reason: str) -> None:
        head = run_lines(self.session.run, live=self.session.live)
        left = line("What can still be read of it is on the other screens, the log itself on ", ("9", "key"), ".")
        self.lines.show([*head, Line(), line((one_line(reason), "error")), left])
        self.details.add_class("hidden")

    def _show(self, lines: list[Line]) -> None:
        explanation = self.session.known_explanation
        self.details.set_class(explanation is None or not explanation.findings, "hidden")
        self.details.border_title = "finding"
        self.lines.show(lines, keep=self._filled)
        if not self._filled:
            self._filled = True
            # What happened comes before what can be done.
            places = [number for number, item in enumerate(self.lines.lines) if item.target]
            happened = (number for number in places if (to := self.lines.lines[number].target) and to.view != "trials")
            first = next(happened, (places or [0])[0])
            if first < self.app.size.height - _OTHER_ROWS:
                self.lines.move_to(first)
        self.debounce(self._describe)
        self.browser.update_counts()
        rows = self._read_for.height - _OTHER_ROWS - self.lines.count - 1
        columns = self._read_for.width - _OTHER_COLUMNS

        def read() -> list[Line]:
            """The kernels. The Kernels screen, which needs them too, opens at once then."""
            from tui.kernel_summary import read_kernel_summary  # as above

            return read_kernel_summary(self.session, rows, columns)

        def add(kernels: list[Line]) -> None:
            if kernels:
                self.lines.show([*lines, Line(), *kernels], keep=True)

        self.fetch("kernels", read, add)

    def cursor_moved(self, lines: Lines) -> None:
        if lines is self.lines:
            self.debounce(self._describe)

    def _describe(self) -> None:
        """Show the finding under the cursor."""
        explanation = self.session.known_explanation
        if explanation is not None and self.details.display:
            from tui.overview import finding_detail

            self.details.show(finding_detail(explanation, self.lines.target, self.details.columns))

    def location(self) -> Location:
        return Location(self.NAME, line=self.lines.cursor + 1)

    def go_to(self, place: Location) -> None:
        if place.line is not None:
            self.lines.move_to(place.line - 1)

    def line_chosen(self, lines: Lines) -> None:  # noqa: ARG002 - the detail pane leads where its finding does
        self.browser.go_to(self.lines.target)
