"""What-if questions of the API: each is answered by a child process, one at a time."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import orjson

from admission.api.errors import TooManyRequests, Unanswered
from admission.cli.serve.estimates import child_configuration, child_environment
from admission.model.errors import InvalidObject

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from admission.cli.configuration.settings import Settings

_LINE: Final = 2**26
"""Maximum bytes of an answer, which has some 200 for each user and ClusterQueue."""

_RETRY_SECONDS: Final = 10
"""Seconds after which a question may be asked again while another one is being answered."""


class WhatIfs:
    """Starts the child processes."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._busy = False

    async def ask(self, question: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """Yield the lines of the process: `progress` (0 to 1), and the `answer` at the end.

        Raises TooManyRequests while another question is being answered, InvalidObject, and Unanswered.
        """
        if self._busy:
            raise TooManyRequests(
                "another what-if question is being answered, and each takes a processor; try again when it is done",
                retry_after=_RETRY_SECONDS,
            )
        self._busy = True
        try:
            async for line in self._lines(question):
                if "invalid" in line:
                    raise InvalidObject([("", line["invalid"])])
                if "error" in line:
                    raise Unanswered(f"the database does not answer: {line['error']}")
                yield line
        finally:
            self._busy = False

    async def _lines(self, question: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "admission.cli.serve.what_if_process",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=child_environment(),
            start_new_session=True,  # Ctrl-C is handled by `serve`, which then ends this process
            limit=_LINE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            for line in (child_configuration(self._settings), question):
                process.stdin.write(orjson.dumps(line) + b"\n")
            await process.stdin.drain()
            answered = False
            while line_of_process := await process.stdout.readline():
                document: dict[str, Any] = orjson.loads(line_of_process)
                answered = answered or "progress" not in document
                yield document
            if not answered:
                raise Unanswered("the process that replays the period has ended; see the log of `sluice serve`")
        except (OSError, ValueError) as error:
            raise Unanswered(f"the process that replays the period failed: {error!r}") from error
        finally:
            with suppress(ProcessLookupError):
                process.kill()  # it has no state that could be lost
            await process.wait()
