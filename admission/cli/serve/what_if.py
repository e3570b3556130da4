"""What-if questions of the API: each is answered by a child process, one at a time."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

import orjson

from admission.api.errors import TooManyRequests, Unanswered
from admission.cli.serve.simulating import simulating
from admission.model.errors import InvalidObject

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from admission.cli.configuration.settings import Settings

_LINE: Final = 2**26
"""Maximum bytes of an answer, which has some 200 for each user and ClusterQueue."""

_RETRY_SECONDS: Final = 10
"""Seconds after which a question may be asked again while another one is being answered."""


class WhatIfProcesses:
    """Starts the child processes."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._busy = False

    async def ask(self, question: dict[str, Any]) -> AsyncGenerator[dict[str, Any]]:
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
            async with aclosing(self._lines(question)) as lines:
                async for line in lines:
                    if "invalid" in line:
                        raise InvalidObject([("", line["invalid"])])
                    if "error" in line:
                        raise Unanswered(f"the database does not answer: {line['error']}")
                    yield line
        finally:
            self._busy = False

    async def _lines(self, question: dict[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        process = await simulating("admission.cli.serve.what_if_process", self._settings, limit=_LINE)
        try:
            await process.ask(question)
            answered = False
            while line := await process.answers.readline():
                document: dict[str, Any] = orjson.loads(line)
                answered = answered or "progress" not in document
                yield document
            if not answered:
                raise Unanswered("the process that replays the period has ended; see the log of `sluice serve`")
        except (OSError, ValueError) as error:
            raise Unanswered(f"the process that replays the period failed: {error!r}") from error
        finally:
            await process.end()
