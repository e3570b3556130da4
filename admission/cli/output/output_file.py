"""A file that a command writes, which appears under its name when it is complete."""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from admission.cli.errors import BadFlag, CommandError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO


@contextmanager
def output_file(file: Path) -> Iterator[BinaryIO]:
    """Context manager: a new file with mode 0600, which replaces what has its name when it is complete.

    A symbolic link stays: the file that it points to is replaced. Devices and FIFOs, such as `/dev/stdout` and
    `>(gpg ...)` of bash, are written directly. Raises BadFlag for an empty name, CommandError if writing fails.
    """
    if not file.name:
        raise BadFlag("the name of the file to write is empty; name a FILE")
    try:
        found = _status(file)
        if found is None or (stat.S_ISREG(found.st_mode) and not _is_standard_output(found)):
            with _replacing(Path(os.path.realpath(file))) as out:
                yield out
        else:
            with _direct(file, found) as out:
                yield out
    except OSError as error:
        raise CommandError(f"{file} cannot be written ({error.strerror or error}); name another FILE") from error


def _status(file: Path) -> os.stat_result | None:
    """Return the status of what the name leads to; None: it does not exist."""
    try:
        return file.stat()
    except FileNotFoundError:
        return None


def _is_standard_output(found: os.stat_result) -> bool:
    try:
        return os.path.samestat(found, os.fstat(1))
    except OSError:  # it is closed
        return False


@contextmanager
def _direct(file: Path, found: os.stat_result) -> Iterator[BinaryIO]:
    """Context manager: the device or FIFO itself, or standard output.

    Standard output keeps its position: `sluice export /dev/stdout >> FILE` loses nothing that is in the file.
    """
    descriptor = os.dup(1) if _is_standard_output(found) else os.open(file, os.O_WRONLY)
    with os.fdopen(descriptor, "wb") as out:
        yield out


@contextmanager
def _replacing(file: Path) -> Iterator[BinaryIO]:
    """Context manager: a file beside it, with which it is replaced at the end if there was no error."""
    partial = file.with_name(f"{file.name}.{os.getpid()}.partial")
    try:
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)
