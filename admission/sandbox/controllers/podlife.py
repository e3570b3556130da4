"""What a pretend pod does with its life: how it starts, how long it runs, how it ends, as its annotations say."""

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

# Seconds that a container takes to stop when it is asked to, but never longer than the grace period.
_STOP = 1.0
_NEVER = float("inf")


def run_seconds(pod: Object) -> float | None:
    """How long the pod runs: as annotated, else as long as its `sleep N` command says, else until it is deleted."""
    annotated = _note(pod, RUN_SECONDS)
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
    """The exit code that the annotation asks for, 0 to 255, else 0; 1 for what is none."""
    text = _note(pod, EXIT_CODE)
    if text is None:
        return 0
    return min(int(text), 255) if text.isdecimal() and len(text) <= 3 else 1


def start_of(pod: Object) -> Start:
    """How the start goes wrong, empty if it does not."""
    text = _note(pod, START)
    return next((start for start in _STARTS if start == text), "")


def stop_seconds(pod: Object, grace: float) -> float:
    """How long after it was asked to end the pod is gone; infinity if only a forced deletion removes it.

    `grace` is the grace period in seconds that the deletion allows.
    """
    text = _note(pod, STOP_SECONDS)
    if text == "never":
        return _NEVER
    if text == "grace":
        return grace
    asked = None if text is None else _seconds(text)
    return min(_STOP, grace) if asked is None else asked


def _note(pod: Object, name: str) -> str | None:
    found: str | None = (pod["metadata"].get("annotations") or {}).get(name)
    return found


def _seconds(text: str) -> float | None:
    try:
        return max(0.0, float(text))
    except ValueError:
        return None
