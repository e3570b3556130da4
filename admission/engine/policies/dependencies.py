"""Dependencies between workloads of a namespace: one starts when others have succeeded, or have ended in any way.

As Slurm's afterok and afterany. A workload is named by its name alone, or by kind and name; of several that had the
name, the last one counts. One that does not exist is waited for, as it may be created later. A dependency that cannot
be met any more, or that is part of a cycle, keeps the workload pending, as in Slurm, until it is changed or deleted.

Also sets of workloads, of which only so many are admitted at once, as Slurm's job arrays with `%`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from admission.engine.policies.contract import AdmissionPolicy, PolicyEvent, Refusal
from admission.engine.vocabulary import DEPENDENCY, SET_LIMIT_REACHED
from admission.model import sentences

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from admission.engine.clusterqueue import Held
    from admission.engine.events import QueueObjectChanged, QueueObjectDeleted
    from admission.engine.policies.contract import EngineView
    from admission.engine.tree import FlavorResource
    from admission.model.terms import Dependency
    from admission.model.workload import Workload

_SEARCHED: Final = 100
"""Names among those that wait for each other which are visited to show a circle."""


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Configuration: none, as workloads say what they wait for. Without such a workload it is idle."""

    def start(self, view: EngineView) -> Waiting:
        """Create the policy's state, with no workload."""
        return Waiting(view)


@dataclass(frozen=True, slots=True)
class DependencyFound(PolicyEvent):
    """A workload was found that waits for others."""


class Waiting(AdmissionPolicy):
    """The policy: refuses workloads until those that they wait for have ended, or while their set is full."""

    def __init__(self, view: EngineView) -> None:
        self._view = view
        self.idle = True
        self._admitted: Counter[tuple[str, str]] = Counter()
        """By namespace and set."""
        self._tangles: dict[str, dict[str, frozenset[str]]] = {}
        """By namespace and name: the names that wait for each other with it, as of `_tangled_at`."""
        self._tangled_at = 0

    def observe(self, event: PolicyEvent | QueueObjectChanged | QueueObjectDeleted) -> None:
        """Work from the first workload on that waits for others."""
        if isinstance(event, DependencyFound):
            self.idle = False

    def events(self) -> Iterable[PolicyEvent]:
        """Return that it is not idle, if so."""
        return () if self.idle else (DependencyFound(),)

    def filter(
        self,
        workload: Workload,
        cluster_queue: str,
        usage: Mapping[FlavorResource, int],
        victims: Collection[Held] = (),
    ) -> Refusal | None:
        """Refuse a workload whose dependencies are not met."""
        del cluster_queue, usage, victims
        if workload.terms.at_most is not None:
            name, most = workload.terms.at_most
            admitted = self._admitted[workload.namespace, name]
            if admitted >= most:
                return Refusal(SET_LIMIT_REACHED, sentences.set_is_full(name, admitted, most))
        unmet = [each for each in workload.terms.after if not self._is_met(workload, each)]
        if not unmet:
            return None
        if circle := self._circle(workload):
            return Refusal(DEPENDENCY, sentences.depends_on_itself(circle))
        failed = [each.target for each in unmet if self._outcome(workload, each) is False]
        if failed:
            return Refusal(DEPENDENCY, sentences.never_met(failed))
        return Refusal(DEPENDENCY, sentences.waits_for_others([(each.target, each.ok) for each in unmet]))

    def charge(self, held: Held, *, restored: bool) -> None:
        """Count the workload in its set."""
        del restored
        if held.workload.terms.at_most is not None:
            self._admitted[held.workload.namespace, held.workload.terms.at_most[0]] += 1

    def release(self, held: Held) -> None:
        """Stop counting the workload in its set."""
        if held.workload.terms.at_most is not None:
            key = held.workload.namespace, held.workload.terms.at_most[0]
            self._admitted[key] -= 1
            if not self._admitted[key]:
                del self._admitted[key]

    def _outcome(self, workload: Workload, dependency: Dependency) -> bool | None:
        """Whether the workload that is depended on has succeeded; None: it has not ended, as far as is known."""
        ended = self._view.ended.get((workload.namespace, dependency.name), {})
        last = ended.get(dependency.kind) if dependency.kind else max(ended.values(), default=None)
        return None if last is None else last[1]

    def _is_met(self, workload: Workload, dependency: Dependency) -> bool:
        outcome = self._outcome(workload, dependency)
        return outcome is not None and (outcome or not dependency.ok)

    def _circle(self, workload: Workload) -> list[str]:
        """Return names that wait for each other, from this one to this one, or so far if they are many; empty: none."""
        name, waits_for = workload.name, partial(self._view.waits_for, workload.namespace)
        members = self._tangle(workload.namespace, name)
        path, seen = [name], set[str]()
        open_names = [iter(waits_for(name))]
        while open_names:
            for each in open_names[-1]:
                if each == name:
                    return [*path, each]
                if each in members and each not in seen:
                    seen.add(each)
                    path.append(each)
                    if len(seen) == _SEARCHED:
                        return path
                    open_names.append(iter(waits_for(each)))
                    break
            else:
                open_names.pop()
                path.pop()
        return []

    def _tangle(self, namespace: str, start: str) -> frozenset[str]:
        """Return the names of workloads that wait for each other, this one among them (Tarjan's components).

        A chain may be thousands of workloads long, each of which asks: so without recursion, and once for all of them.
        """
        if self._tangled_at != self._view.dependency_changes:
            self._tangled_at = self._view.dependency_changes
            self._tangles.clear()
        known = self._tangles.setdefault(namespace, {})
        if start in known:
            return known[start]
        waits_for = partial(self._view.waits_for, namespace)
        number, lowest, loose = {start: 0}, {start: 0}, [start]
        open_names = [(start, iter(waits_for(start)))]
        while open_names:
            name, others = open_names[-1]
            for each in others:
                if each in known:
                    continue
                if each not in number:
                    number[each] = lowest[each] = len(number)
                    loose.append(each)
                    open_names.append((each, iter(waits_for(each))))
                    break
                lowest[name] = min(lowest[name], number[each])
            else:
                open_names.pop()
                if open_names:
                    before = open_names[-1][0]
                    lowest[before] = min(lowest[before], lowest[name])
                if lowest[name] == number[name]:
                    at = len(loose) - 1
                    while loose[at] != name:
                        at -= 1
                    members = frozenset(loose[at:])
                    del loose[at:]
                    known.update(dict.fromkeys(members, members))
        return known[start]
