"""Annotations that control a simulated pod: how it starts, how long it runs, how it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from admission.sandbox.apiserver.objects import Object

RUN_SECONDS = "sandbox.sluice.dev/run-seconds"
EXIT_CODE = "sandbox.sluice.dev/exit-code"
START = "sandbox.sluice.dev/start"
STOP_SECONDS = "sandbox.sluice.dev/stop-seconds"

Start = Literal["unscheduled", "unpullable", "fails", "unready", ""]
_STARTS: tuple[Start, ...] = ("unscheduled", "unpullable", "fails", "unready")

# Seconds between SIGTERM and a container's end, limited by the grace period.
_STOP = 1.0
_NEVER = float("inf")


def run_seconds(pod: Object) -> float | None:
    """Return the pod's run time: from the annotation, else from a command `sleep N`; None: until it is deleted."""
    annotated = _annotation(pod, RUN_SECONDS)
    if annotated is not None:
        return _seconds(annotated)
    main = pod["spec"]["containers"][0]
    words = [*main.get("command", ()), *main.get("args", ())]
    if len(words) == 3 and words[1] == "-c":  # sh -c "sleep 30"
        words = words[2].split()
    if len(words) == 2 and words[0].rpartition("/")[2] == "sleep":
        return _seconds(words[1].removesuffix("s"))
    return None


def exit_code(pod: Object) -> int:
    """Return the exit code from the annotation, 0 to 255; 0 without it, 1 if it is invalid."""
    text = _annotation(pod, EXIT_CODE)
    if text is None:
        return 0
    return min(int(text), 255) if text.isdecimal() and len(text) <= 3 else 1


def start_fault(pod: Object) -> Start:
    """Return how the pod's start fails, empty if it does not."""
    text = _annotation(pod, START)
    return next((start for start in _STARTS if start == text), "")


def stop_seconds(pod: Object, grace: float) -> float:
    """Return the seconds between SIGTERM and the pod's end; infinity if only a forced deletion removes it.

    `grace` is the grace period of the deletion in seconds.
    """
    text = _annotation(pod, STOP_SECONDS)
    if text == "never":
        return _NEVER
    if text == "grace":
        return grace
    configured = None if text is None else _seconds(text)
    return min(_STOP, grace) if configured is None else configured


def _annotation(pod: Object, name: str) -> str | None:
    found: str | None = (pod["metadata"].get("annotations") or {}).get(name)
    return found


def _seconds(text: str) -> float | None:
    try:
        return max(0.0, float(text))
    except ValueError:
        return None
