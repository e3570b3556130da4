"""Runs breaks instead of tests: pytest collects once, and each break lives in a fork of that process.

There the tests run that call the broken function, the quickest and most successful first, until one fails. So a break
that is noticed costs some hundredths of a second, and one that is not as much as all the tests that could have.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import signal
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
from _pytest.runner import runtestprotocol

if TYPE_CHECKING:
    from types import CodeType, FrameType

    from tests.mutation.breaks import Break

_FAILED, _ENDLESS, _USELESS = 1, 2, 3
_MEMORY = 4 << 30
_QUICK = 0.022
_QUICK_PROPERTY = 0.08
_SMALL = 40_000
_EXAMPLES = 8


@dataclass(frozen=True, slots=True)
class Tests:
    """Which tests are run: those that take some milliseconds, among them small recorded scenarios.

    Of properties only a few examples are tried; with them, all but the state machines are quick.
    """

    thorough: bool = False
    """All of them, instead, as they are."""

    def prepare(self, item: pytest.Item) -> bool:
        """Whether it may be run, and whatever it takes to have it so."""
        path = (
            item.callspec.params.get("path")
            if isinstance(item, pytest.Function) and hasattr(item, "callspec")
            else None
        )
        if not self.thorough and isinstance(path, Path) and path.stat().st_size > _SMALL:
            return False
        _tame(item, None if self.thorough else _EXAMPLES)
        return True


class Run:
    """The plugin of pytest. A line of JSON for each break is appended to the report."""

    def __init__(self, chosen: list[Break], report: Path, tests: Tests) -> None:
        self._chosen = chosen
        self._report = report
        self._tests = tests
        self._seconds: dict[pytest.Item, float] = {}
        self._callers: defaultdict[CodeType, list[pytest.Item]] = defaultdict(list)
        self._kills: Counter[pytest.Item] = Counter()
        self._in_fork = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """Be done with the first failure, before it is reported at length."""
        if call.excinfo is not None and not call.excinfo.errisinstance(pytest.skip.Exception):
            if self._in_fork:
                os._exit(_FAILED)
            pytest.exit(f"{item.nodeid} fails although nothing is broken: {call.excinfo.value!r}", returncode=3)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try the tests out, then judge all breaks."""
        gc.collect()
        gc.freeze()  # or a collection makes some test look slow
        for item in session.items:
            if self._tests.prepare(item):
                self._try_out(item)
        print(f"{len(self._chosen)} breaks, {len(self._seconds)} tests, of {sum(self._seconds.values()):.1f} s")
        gc.collect()
        gc.freeze()
        with self._report.open("a") as report:
            for one in self._chosen:
                verdict, by = self._judge(one)
                print(json.dumps({"name": one.name, "verdict": verdict, "by": by, "diff": one.diff}), file=report)
                report.flush()
        return True

    def _try_out(self, item: pytest.Item) -> None:
        """Measure a test, and note which functions it calls."""
        start = time.process_time()
        runtestprotocol(item, log=False, nextitem=None)
        seconds = time.process_time() - start
        if seconds > (_QUICK if _settings(item) is None else _QUICK_PROPERTY) and not self._tests.thorough:
            return
        self._seconds[item] = seconds
        called: set[CodeType] = set()

        def note(frame: FrameType, event: str, _: object) -> None:
            if event == "call":
                called.add(frame.f_code)

        sys.setprofile(note)
        runtestprotocol(item, log=False, nextitem=None)
        sys.setprofile(None)
        for code in called:
            self._callers[code].append(item)

    def _judge(self, one: Break) -> tuple[str, str]:
        """The verdict, and by which test."""
        items = sorted(
            self._callers[one.function.__code__], key=lambda item: self._seconds[item] / (1 + self._kills[item])
        )
        reader, writer = os.pipe()
        pid = os.fork()
        if not pid:
            self._suffer(one, items, writer)
        os.close(writer)
        _, status = os.waitpid(pid, 0)
        begun = len(os.read(reader, 1 << 16))
        os.close(reader)
        code = os.waitstatus_to_exitcode(status)
        assert code != _USELESS, f"{one.name} cannot be put into place"
        if code == 0:
            return "survived", ""
        last = items[max(begun - 1, 0)]
        self._kills[last] += 1
        return "killed" if code == _FAILED else "killed by a limit", last.nodeid

    def _suffer(self, one: Break, items: list[pytest.Item], writer: int) -> None:
        """In the fork: run the tests until one fails. Never returns."""
        code = _USELESS
        with contextlib.suppress(BaseException):
            self._in_fork = True
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
            signal.signal(signal.SIGVTALRM, lambda *_: os._exit(_ENDLESS))
            one.apply()
            code = _ENDLESS
            for item in items:
                os.write(writer, b".")
                signal.setitimer(signal.ITIMER_VIRTUAL, 1 + 10 * self._seconds[item])
                runtestprotocol(item, log=False, nextitem=None)
            code = 0
        os._exit(code)


def _settings(item: pytest.Item) -> tuple[Any, str, hypothesis.settings] | None:
    """Where a property has its settings, and what they are."""
    cases = (getattr(item, "cls", None), "settings"), (getattr(item, "obj", None), "_hypothesis_internal_use_settings")
    for holder, name in cases:
        found = getattr(holder, name, None)
        if isinstance(found, hypothesis.settings):
            return holder, name, found
    return None


def _tame(item: pytest.Item, most: int | None) -> None:
    """Let a property be tried with the same examples each time, at `most` so many, and look for no smaller ones."""
    found = _settings(item)
    if found is not None:
        holder, name, known = found
        tamed = hypothesis.settings(
            known,
            max_examples=known.max_examples if most is None else min(known.max_examples, most),
            derandomize=True,
            database=None,
            phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        setattr(holder, name, tamed)
