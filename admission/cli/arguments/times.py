"""The options that say which time a report is about: from one time to another, or a calendar month or quarter."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from collections.abc import Callable


class TimeRange(NamedTuple):
    """Values of the options, as the API takes them; empty: left to the server."""

    start: str
    end: str
    month: str
    quarter: str
    timezone: str

    def params(self) -> list[tuple[str, str]]:
        """Return the parameters of a request."""
        names = ("from", "to", "month", "quarter", "timezone")
        return [(name, value) for name, value in zip(names, self, strict=True) if value]


def time_options(
    *, start: str = "", month: str = "", days: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the options to a command, which receives them as `times`. The default is either `start` or `month`.

    `days`: whether the report always has days, whose time zone is UTC then, or of `--timezone`.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        options = (
            click.option(
                "--from", "start", default="", metavar="TIME", show_default=start or False,
                help="Start: a time, a date, or a duration before now.",
            ),
            click.option("--to", "end", default="", metavar="TIME", help="End, in the same form.  [default: now]"),
            click.option(
                "--month", default="", metavar="MONTH", show_default=month or False,
                help="A calendar month, instead of --from: 2026-10, this or last.",
            ),
            click.option(
                "--quarter", default="", metavar="QUARTER",
                help="A calendar quarter, instead of --from: 2026-Q4, this or last.",
            ),
            click.option(
                "--timezone", default="", envvar=None if days else "TZ", metavar="ZONE",
                show_default="UTC" if days else "that of $TZ, else UTC",
                help="Time zone of months, quarters, days and dates, such as Europe/Berlin.",
            ),
        )  # fmt: skip

        @functools.wraps(command)
        def wrapped(*args: Any, **given: str) -> Any:
            return command(*args, times=_times(given), **given)

        for option in reversed(options):
            wrapped = option(wrapped)
        return wrapped

    def _times(given: dict[str, str]) -> TimeRange:
        """Take the values of the options out of `given`. Raises UsageError."""
        begins, end, month_, quarter, zone = (
            given.pop(name) for name in ("start", "end", "month", "quarter", "timezone")
        )
        if sum((bool(month_), bool(quarter), bool(begins or end))) > 1:
            raise click.UsageError("use only one of --month, --quarter, and --from with --to")
        if not (month_ or quarter or begins or end):
            begins, month_ = start, month
        elif end and not begins:
            begins = start
        # Whoever names no day needs no time zone, and must not be bothered with what $TZ may be.
        zoned = days or month_ or quarter or "-" in begins + end or given.get("period")
        return TimeRange(begins, end, month_, quarter, zone.removeprefix(":") if zoned else "")  # POSIX: TZ=:Europe/...

    return decorate
