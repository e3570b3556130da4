"""Display of the demo in a terminal: a few lines redrawn in place; one line every few seconds if not interactive."""

from __future__ import annotations

import os
import shutil
import textwrap
from typing import TYPE_CHECKING, Final, Self, TextIO

from admission.cli.demo.account import Phase
from admission.cli.demo.closing import name_of, plain, shown

if TYPE_CHECKING:
    from types import TracebackType

    from admission.cli.demo.account import ObservedTeam, SceneAccount
    from admission.cli.demo.closing import Closing

_USED, _BORROWED, _FREE, _REST = "█", "▓", "░", "·"
_BAR: Final = 40
"""Width of a bar in characters."""
_COLOURS: Final = {
    "used": "36",
    "borrowed": "33",
    "done": "32",
    "bad": "31",
    "dim": "2",
    "bold": "1",
    **{
        f"run{number}": f"30;{code}"
        for number, code in enumerate((41, 42, 43, 44, 45, 46, 101, 102, 103, 104, 105, 106))
    },
}
RUN_STYLES: Final = tuple(style for style in _COLOURS if style.startswith("run"))
"""Styles that tell runs apart which are drawn beside each other."""
_INTERVAL: Final = {True: 0.2, False: 5.0}
"""Minimum seconds between updates, of an interactive terminal and of other output."""


class Terminal:
    """Shows an Account on `out`. As a context manager it hides the cursor of an interactive terminal."""

    def __init__(self, out: TextIO, *, interactive: bool, colour: bool) -> None:
        self._out = out
        self.interactive = interactive
        """Whether lines can be drawn again in place."""
        self._colour = colour
        self._drawn = 0
        self._last = float("-inf")

    @classmethod
    def of(cls, out: TextIO) -> Self:
        """Return a Terminal with the features that `out` supports and NO_COLOR and TERM=dumb allow."""
        interactive = out.isatty() and os.environ.get("TERM") != "dumb"
        return cls(out, interactive=interactive, colour=interactive and not os.environ.get("NO_COLOR"))

    def __enter__(self) -> Self:
        self._last = float("-inf")  # of a former scene
        if self.interactive:
            self._write("\x1b[?25l")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.interactive:
            self._write("\x1b[?25h")

    def say(self, line: str = "") -> None:
        """Print a permanent line; the next update is drawn below it."""
        self._drawn = 0
        self._write(f"{line}\n")

    def tell(self, line: str) -> None:
        """Print a permanent line above what is drawn in place."""
        if self._drawn:
            self._write(f"\x1b[{self._drawn}A\x1b[J")
        self.say(line)

    def draw(self, account: SceneAccount, elapsed: float, *, force: bool = False) -> None:
        """Show the state `elapsed` seconds after the start; unless `force`, skip it shortly after the last update."""
        if not force and elapsed - self._last < _INTERVAL[self.interactive]:
            return
        self._last = elapsed
        if not self.interactive:
            self._write(_one_line(account, elapsed) + "\n")
            return
        self.redraw(self._lines(account, elapsed))

    def redraw(self, shown: list[tuple[str, int]]) -> None:
        """Replace the lines that were drawn last by these, given with their visible lengths; omit those too long."""
        columns = shutil.get_terminal_size().columns
        lines = [line for line, length in shown if length <= columns]
        if not self.interactive:
            self._write("".join(f"{line.rstrip()}\n" for line in lines))
            return
        up = f"\x1b[{self._drawn}A" if self._drawn else ""
        self._write(up + "".join(f"\x1b[2K{line}\n" for line in lines) + "\x1b[J")
        self._drawn = len(lines)

    def close(self, closing: Closing) -> None:
        """Print the closing table, the figures and the promises."""
        self.say()
        widths = [max(map(len, column)) for column in zip(closing.columns, *closing.rows, strict=True)]
        self.say(self.paint("bold", _aligned(closing.columns, widths)))
        for row in closing.rows:
            self.say(_aligned(row, widths))
        for line in textwrap.wrap(closing.note, 80):
            self.say(self.paint("dim", line))
        self.say()
        width = max(len(what) for what, _ in closing.figures)
        for what, figure in closing.figures:
            self.say(f"{what:{width}}  {figure}")
        self.say()
        for kept, sentence in closing.promises:
            self.say(self.paint("done", f"✓ {sentence}") if kept else self.paint("bad", f"✗ BROKEN: {sentence}"))

    def _lines(self, account: SceneAccount, elapsed: float) -> list[tuple[str, int]]:
        """Return each line with its visible length, without the escape sequences of colours."""
        waiting, running, done = (account.count(phase) for phase in (Phase.WAITING, Phase.RUNNING, Phase.DONE))
        what = account.plan.noun.capitalize()
        text = f"{elapsed:4.0f} s   {what}: {waiting:5} waiting {running:5} running {done:5} done"
        failed = account.count(Phase.FAILED)
        alarm = (f" {failed} FAILED" if failed else "") + (" QUOTA EXCEEDED" if account.live.broken else "")
        lines = [("", 0), (self.paint("bold", text) + self.paint("bad", alarm), len(text + alarm)), ("", 0)]
        name = max(len("together"), *map(len, account.teams))
        for resource in account.plan.shown:
            total = account.plan.total(resource)
            for seen in account.teams.values():
                used, nominal = seen.used[resource], seen.team.nominal[resource]
                tail = f"{shown(resource, used):>6} of {shown(resource, nominal)} {name_of(resource)}"
                tail += f", {shown(resource, used - nominal)} borrowed" if used > nominal else ""
                bar = self._team_bar(seen, resource, limit=account.plan.limit(seen.team, resource), total=total)
                lines.append((f"{seen.team.name:{name}} {bar}{tail}", name + 1 + _BAR + len(tail)))
            used = account.used(resource)
            bar = self.bar((("done", _USED, used), ("dim", _FREE, total)), total)
            tail = f"{shown(resource, used):>6} of {shown(resource, total)} {name_of(resource)}"
            lines += [(f"{'together':{name}} {bar}{tail}", name + 1 + _BAR + len(tail)), ("", 0)]
        legend = f"{_USED} used  {_BORROWED} borrowed  {_FREE} idle  {_REST} may borrow"
        lines.append((self.paint("dim", legend), len(legend)))
        return lines

    def _team_bar(self, seen: ObservedTeam, resource: str, *, limit: int, total: int) -> str:
        used, nominal = seen.used[resource], seen.team.nominal[resource]
        parts = (("used", _USED, min(used, nominal)), ("dim", _FREE, nominal), ("borrowed", _BORROWED, used))
        return self.bar((*parts, ("dim", _REST, limit)), total)

    def bar(self, parts: tuple[tuple[str, str, int], ...], total: int) -> str:
        """Return a bar in which each part (style, cell, amount) extends to its amount; `total` is the full width."""
        bar, filled = "", 0
        for colour, cell, amount in parts:
            end = min(_BAR, round(_BAR * amount / max(1, total)))
            if end > filled:
                bar += self.paint(colour, cell * (end - filled))
                filled = end
        return bar + " " * (_BAR - filled)

    def paint(self, style: str, text: str) -> str:
        """Return the text in a style of `_COLOURS`, if the terminal has colours."""
        return f"\x1b[{_COLOURS[style]}m{text}\x1b[0m" if self._colour and text else text

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def _one_line(account: SceneAccount, elapsed: float) -> str:
    waiting, running, done = (account.count(phase) for phase in (Phase.WAITING, Phase.RUNNING, Phase.DONE))
    usage = []
    for resource in account.plan.shown:
        teams = ", ".join(
            f"{seen.team.name} {plain(resource, seen.used[resource]):.0f}/"
            f"{plain(resource, seen.team.nominal[resource]):.0f}"
            for seen in account.teams.values()
        )
        used, total = plain(resource, account.used(resource)), plain(resource, account.plan.total(resource))
        usage.append(f"{name_of(resource)} {used:.0f}/{total:.0f} ({teams})")
    return f"{elapsed:4.0f} s  {waiting} waiting, {running} running, {done} done; {'; '.join(usage)}"


def _aligned(cells: tuple[str, ...], widths: list[int]) -> str:
    first, *others = (
        cell.ljust(width) if not i else cell.rjust(width)
        for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join((first, *others)).rstrip()
