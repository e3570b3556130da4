"""Exceptions of the command line.

CommandError
    InvalidSettings     an invalid flag, environment variable or configuration file of `sluice serve`
    Unreadable          a file that does not exist, cannot be read, or has invalid content
    BadFlag             a flag with an invalid value
    DiffFailed          any error of `sluice diff`
DemoError               the demo cannot start or cannot continue
    BadTrace            its trace file is missing or invalid (`demo.trace`)
    ChildDied           one of its processes exited unexpectedly (`demo.children`)

Other SluiceErrors, of the API client, the cluster and the database, reach `admission.cli.main` as they are.
"""

from __future__ import annotations

from typing import ClassVar

from admission.model.errors import SluiceError


class CommandError(SluiceError):
    """A command failed; the message is printed after "error: "."""

    exit_code: ClassVar[int] = 1
    """Exit code of the process: 1 if the command failed, 2 if it was used wrongly, as click's usage errors have it."""


class InvalidSettings(CommandError):
    """A setting is invalid; the message names it and its source: flag, variable or file."""


class Unreadable(CommandError):
    """A file cannot be read, or its manifests are invalid; the message has a line for each fault."""

    exit_code = 2


class BadFlag(CommandError):
    """A flag has an invalid value; the message names the flag."""

    exit_code = 2


class DiffFailed(CommandError):
    """`sluice diff` could not compare. The exit code is 2, because 1 means that there are differences."""

    exit_code = 2


class DemoError(SluiceError):
    """The demo cannot start or cannot continue."""
