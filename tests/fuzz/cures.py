"""Test of the fuzz test: reverts a fix in a copy of Sluice and measures how long the fuzz takes to find the defect.

`python -m tests.fuzz.cures` tries all fixes one after the other, with words as arguments those whose name contains
one of them. It does not change this checkout.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_PARTS = ("admission", "webhooks", "alembic", "tests")
_MINUTES = 6


@dataclass(frozen=True)
class Cure:
    """A fix: `changes` are (file, present text, text without the fix), `title` is a part of the expected finding's."""

    name: str
    title: str
    changes: tuple[tuple[str, str, str], ...]
    database: str = "sqlite"
    about: str = ""
    """Option of the fuzz by which most moves concern the code of the fix."""


CURES: tuple[Cure, ...] = (
    Cure(
        "suspend flip resumes beside old pods",
        "quota",
        (
            (
                "admission/controller/state/lifecycle.py",
                "Step.START if seen.suspended and not pods_remain else",
                "Step.START if seen.suspended else",
            ),
            ("admission/kinds/job.py", 'if obj["spec"].get(_REPLACEMENT) == _BESIDE_TERMINATING:', "if False:"),
        ),
    ),
    Cure(
        "admissions are taken back, and rest",
        "preempted again",
        (
            (
                "admission/engine/engine.py",
                "if not evict.preemption_reason or evict.preemptor is None:",
                "if True:",
            ),
        ),
    ),
    Cure(
        "parallelism raised on a running Job",
        "quota",
        (("webhooks/review.py", "                _limit_pods(new, old, kind, answer)\n", ""),),
    ),
    Cure(
        "owner reference exempts",
        "quota",
        (
            (
                "admission/kinds/base.py",
                'return "" if metadata.get("namespace") in self.conventions.excluded_namespaces else queue',
                'return "" if metadata.get("ownerReferences") else queue',
            ),
        ),
    ),
    Cure(
        "queue label removed and unsuspended in one",
        "quota",
        (("webhooks/review.py", "            if was_queued or is_queued:\n", "            if is_queued:\n"),),
    ),
    Cure(
        "manualSelector hides pods from the drain",
        "quota",
        (("admission/kinds/job.py", 'if obj["spec"].get("manualSelector"):  #', "if False:  #"),),
    ),
    Cure(
        "runtimeClassName that does not exist",
        "",
        (
            ("admission/store/database/dialects.py", "    if not rows:\n        return\n", ""),
            ("admission/store/workloads/loading.py", "shapes.get(shape, ())", "shapes[shape]"),
        ),
    ),
    Cure(
        "control character in a message",
        "",
        (
            ("admission/model/text.py", "    if len(text) <= longest and text.isprintable():", "    if True:"),
            # Without this, faults that a Job has before it joins a queue are rejected.
            (
                "webhooks/review.py",
                "kind.faults(old) if old is not None and kind.queue_name(old) else []",
                "kind.faults(old) if old is not None else []",
            ),
        ),
        database="postgresql",
    ),
    Cure(
        "amounts beyond 64 bits",
        "",
        (
            (
                "admission/model/quantity.py",
                "min(total.get(resource, 0) + amount, UNLIMITED)",
                "total.get(resource, 0) + amount",
            ),
            ("admission/model/quantity.py", "min(amount * count, UNLIMITED) for", "amount * count for"),
        ),
    ),
    Cure(
        "labels and submitted-by through jobs/status",
        "",
        (("webhooks/registration.py", '[f"{kind.plural}/status"] if "UPDATE" in operations else []', "[]"),),
    ),
    Cure(
        "other pods of a running RayCluster",
        "quota",
        (
            (
                "admission/kinds/declared.py",
                "if scaling.has_other_pods(before, after) or _loses_labels(old, before, new, after):",
                "if False:",
            ),
        ),
        about="--kinds",
    ),
    Cure(
        "raised number beside pods that end",
        "quota",
        (
            (
                "admission/controller/workloads/scaling.py",
                "if count.name not in surplus and count.wanted",
                "if count.wanted",
            ),
        ),
        about="--kinds",
    ),
    Cure(
        "places that are taken",
        "node is exceeded",
        (
            ("admission/engine/topology/state.py", "                        add(leaf.free, amounts, -times)\n", ""),
            ("admission/kinds/ranks.py", "            free[values] -= 1\n", "            pass\n"),
        ),
        about="--topology",
    ),
)


def main() -> int:
    wanted = [cure for cure in CURES if not sys.argv[1:] or any(word in cure.name for word in sys.argv[1:])]
    print(f"{'reverted fix':45} found as")
    missed = 0
    for cure in wanted:
        found = _measure(cure)
        missed += found is None
        print(f"{cure.name:45} {found or f'NOT FOUND in {_MINUTES} minutes'}", flush=True)
    return 1 if missed else 0


def _measure(cure: Cure) -> str | None:
    with tempfile.TemporaryDirectory(prefix="sluice-cures-") as folder:
        for part in _PARTS:
            shutil.copytree(_ROOT / part, Path(folder) / part, ignore=shutil.ignore_patterns("__pycache__"))
        for file, text, without in cure.changes:
            path = Path(folder) / file
            content = path.read_text()
            if content.count(text) != 1:
                raise SystemExit(
                    f"{cure.name}: {file} has {text!r} {content.count(text)} times; see tests/fuzz/cures.py"
                )
            path.write_text(content.replace(text, without))
        command = [sys.executable, "-m", "tests.fuzz", "--seed", "1", f"--minutes={_MINUTES}", "--until", cure.title]
        command += ["--database", cure.database, *filter(None, [cure.about])]
        # The current folder precedes the installed Sluice in the module search path.
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        games = re.findall(r"^game (\d+): (\d+) moves, (\d+) s, .* cpu  (.*)$", done.stdout, re.MULTILINE)
        if not games or not re.search(r"^seed .* minutes: ", done.stdout, re.MULTILINE):
            raise SystemExit(f"{cure.name}: the games were not played to their end\n{done.stdout}\n{done.stderr}")
        number, _, _, title = games[-1]
        if not title or cure.title not in title:
            return None
        moves, seconds = (sum(int(game[place]) for game in games) for place in (1, 2))
        return f"{title}: game {int(number) + 1}, after {moves} moves, {seconds} s"


if __name__ == "__main__":
    sys.exit(main())
