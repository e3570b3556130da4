"""What can go wrong at the command line, apart from what the parts below report.

CommandError
    InvalidSettings     a flag, environment variable or configuration file of `sluice serve`
    Unreadable          a file that is not there, or does not hold what it should
    BadFlag             a flag with a value that cannot be
    DiffFailed          whatever keeps `sluice diff` from comparing
"""

from __future__ import annotations

from typing import ClassVar

from admission.model.errors import SluiceError


class CommandError(SluiceError):
    """A command cannot do what was asked; `exit_code` is what the process ends with."""

    exit_code: ClassVar[int] = 1


class InvalidSettings(CommandError):
    """A setting that cannot be used; the message names it and where it was given."""


class Unreadable(CommandError):
    """A file that cannot be read, or manifests with faults, one line for each."""

    exit_code = 2


class BadFlag(CommandError):
    """A flag with a value that cannot be; the message names it."""

    exit_code = 2


class DiffFailed(CommandError):
    """Nobody knows whether there are differences; 1 would say that there are."""

    exit_code = 2
