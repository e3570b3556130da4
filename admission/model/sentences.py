"""Messages for users: why a workload is pending, was evicted, or does not run, and what helps.

`sluice why`, `get -o wide`, the REST API, conditions, Kubernetes Events, the log and the Python client show the same
text unchanged. The docstring of a function says when its message applies. A message that is stored contains no number
that changes while its reason stays: the quota that is free now, and the queue position, are shown by `sluice why` only.

Amounts are integers as in `admission.model.quantity`, times are Unix times (s).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from admission.model.durations import format_duration
from admission.model.names import listed
from admission.model.pod_set_names import subject
from admission.model.quantity import format_amount
from admission.model.text import clean
from admission.model.workload import SERVICE_ACCOUNTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from admission.model.base import LabelSelector
    from admission.model.workload import Admission, PodSet, Workload

_NAMED: Final = 5
"""Obstacles, flavors or names that one message lists at most."""

_MAX_QUOTED: Final = 300
"""Characters of an author's name, and of the reason an author gives, that a message quotes at most."""

NOT_TRIED: Final = "It has only just arrived, or quota has only just become free: it is evaluated in a moment."
BEHIND_PREEMPTOR: Final = "It fits, but its ClusterQueue first admits a workload for which others are being stopped."
BEHIND_OVERDUE: Final = (
    "It fits, but comes after a workload that has waited so long that none overtakes it (aging.strictAfter of the "
    "ClusterQueue)."
)
KEPT_FOR_PREEMPTOR: Final = "It fits, but what is free is kept for a workload for which others are being stopped."
YIELDS: Final = (
    "It fits, but would be preempted at once: a workload that may take its quota waits for others to be stopped."
)
BEHIND_UNREADY: Final = (
    "It waits until the pods of all workloads that are admitted are ready (waitForPodsReady.blockAdmission)."
)
ON_HOLD: Final = "It is on hold and does not queue. Release it to let it queue again."


def standstill(*, silent: bool, unwritable: bool) -> str:
    """The leader cannot decide: API server `silent` (or refuses its token), or database `unwritable`; empty: it can."""
    if not (silent or unwritable):
        return ""
    api_server = "the API server does not answer, or rejects Sluice's credentials"
    cause = api_server if silent else "the database does not answer, or takes no writes"
    return (
        f"Sluice makes no decisions at the moment, because {cause}: nothing is started, and new objects may not be "
        "known yet. It continues by itself when that is over."
    )


NO_LEADER: Final = "No Sluice was running that could decide"


def outage(*, silent: bool, unwritable: bool) -> str:
    """Why nothing was decided, for the record of an outage; empty: it could be."""
    if silent:
        return "The API server did not answer, or rejected Sluice's credentials"
    return "The database did not answer, or took no writes" if unwritable else ""


def time(seconds: float) -> str:
    """Format a Unix time like the API: `2026-01-02T12:05:30Z`."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def minute(seconds: float) -> str:
    """Format a Unix time for a sentence: `2026-01-02 12:05 UTC`."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


# --- queues that are missing, stopped or not usable


def no_local_queue(namespace: str, name: str) -> str:
    """The queue label names a LocalQueue that does not exist."""
    return (
        f"LocalQueue {namespace}/{name} does not exist. Correct the queue label, or have the LocalQueue created; "
        f"`sluice get localqueues -n {namespace}` lists those that exist."
    )


def no_cluster_queue(local_queue: str, name: str) -> str:
    """The LocalQueue points to a ClusterQueue that does not exist."""
    return (
        f"LocalQueue {local_queue} points to ClusterQueue {name}, which does not exist. "
        "Use another LocalQueue, or have an admin create the ClusterQueue."
    )


def stopped(kind: str, namespace: str, name: str, policy: str, reason: str = "") -> str:
    """A LocalQueue or ClusterQueue admits nothing, by its `stopPolicy`; `reason`: why, as given by its admin."""
    return (
        f"{kind} {name} is stopped{_why(reason)} (stopPolicy {policy}). "
        f"An admin can open it with {_resume(kind, namespace, name)}, or by setting stopPolicy to None."
    )


def drained(kind: str, namespace: str, name: str, reason: str = "") -> str:
    """It was evicted because its LocalQueue or ClusterQueue was stopped with `stopPolicy: HoldAndDrain`."""
    return (
        f"{kind} {name} is stopped{_why(reason)} (stopPolicy HoldAndDrain). The workload queues again when "
        f"an admin opens the queue with {_resume(kind, namespace, name)}, or sets stopPolicy to None."
    )


def _resume(kind: str, namespace: str, name: str) -> str:
    place = f" -n {namespace}" if namespace else ""
    return f"`sluice resume {kind.lower()}/{name}{place}`"


def incomplete(cluster_queue: str, fault: str) -> str:
    """A ClusterQueue is inactive; `fault` follows its name: `names ResourceFlavor spot, which does not exist`."""
    return f"ClusterQueue {cluster_queue} {fault}, so that it admits nothing. An admin has to correct that."


def namespace_not_matched(
    cluster_queue: str, selector: LabelSelector | None, namespace: str, labels: Mapping[str, str] | None
) -> str:
    """The ClusterQueue does not accept workloads of the namespace; `labels` is None if there is no such namespace."""
    if labels is None:
        return f"Namespace {namespace} is not known yet, or is gone."
    if selector is None:
        return (
            f"ClusterQueue {cluster_queue} has no namespaceSelector, and so accepts no namespace. "
            "An admin has to set it; {} accepts all."
        )
    unmet = [f"{key}={value}" for key, value in selector.match_labels.items() if labels.get(key) != value]
    keys = [key for key, value in selector.match_labels.items() if labels.get(key) != value]
    for requirement in selector.match_expressions:
        if not requirement.matches(labels):
            values = f" ({', '.join(requirement.values)})" if requirement.values else ""
            unmet.append(f"{requirement.key} {requirement.operator}{values}")
            keys.append(requirement.key)
    has = [f"{key}={labels[key]}" for key in dict.fromkeys(keys) if key in labels]
    lacks = [key for key in dict.fromkeys(keys) if key not in labels]
    is_so = ([f"has {listed(has)}"] if has else []) + ([f"has no label {listed(lacks)}"] if lacks else [])
    return (
        f"ClusterQueue {cluster_queue} accepts only namespaces with {listed(unmet)} (its namespaceSelector), and "
        f"namespace {namespace} {' and '.join(is_so)}. Use another LocalQueue, or have an admin label the namespace "
        "or change the selector."
    )


# --- obstacles: parts of a message, one for each flavor that was tried


def too_little_free(flavor: str, needed: str) -> str:
    """Less than `needed` (`4 CPU and 2 GPU`) is free now, or could ever be used."""
    return f"flavor {flavor} has too little: {needed} would be needed"


def untolerated(flavor: str, taint: str) -> str:
    """The pods do not tolerate a taint of the flavor; `taint` as kubectl writes it: `gpu=true:NoSchedule`."""
    return f"flavor {flavor} has the taint {taint}, which the pods do not tolerate"


def in_other_clusters(flavor: str, clusters: Sequence[str], cluster: str) -> str:
    """The flavor is not in the cluster of the workload's object."""
    where = f"in {listed(clusters, limit=_NAMED)}" if clusters else "in no cluster that has joined"
    return f"flavor {flavor} is {where}, and the workload is in the cluster {cluster}"


def cluster_closed(cluster: str, why: str) -> str:
    """Nothing is started in the cluster of a workload."""
    return f"The cluster {cluster} {why}. It waits until the cluster is open again."


def in_each_cluster(messages: Sequence[tuple[str, str]]) -> str:
    """Why a workload is in none of the clusters that it may be dispatched to: (cluster, why not there)."""
    by_text: dict[str, list[str]] = {}
    for cluster, text in messages:
        by_text.setdefault(text, []).append(cluster)
    return " ".join(f"In {listed(clusters, limit=_NAMED)}: {text}" for text, clusters in by_text.items())


def requires_clusters(required: str) -> str:
    """A workload's cluster affinity does not permit a cluster."""
    return f"this workload requires {required}"


def tried_from(at: str) -> str:
    """A cluster is one of the further ones, for workloads that have waited."""
    return f"it is tried from {at}"


def lost_since(at: str) -> str:
    """A cluster is closed: it is certain neither how it is nor when it comes back; `at`: `2026-01-02 14:05 UTC`."""
    return f"it is lost since {at}"


def is_not_active(state: str) -> str:
    """A cluster is closed; `state`: Connecting, Draining or Disabled."""
    return f"it is {'not connected yet' if state == 'Connecting' else state.lower()}"


def lent(flavor: str, cluster: str, amount: str, cluster_queue: str, borrowers: Sequence[str]) -> str:
    """Other ClusterQueues use quota of that of a workload; `amount`: `2 CPU`, `borrowers`: `team-x borrows 2 CPU`."""
    where = f" in cluster {cluster}" if cluster else ""
    whom = f": {listed(borrowers, limit=_NAMED)}" if borrowers else " to other ClusterQueues"
    return f"{amount} ({flavor}) of the quota of ClusterQueue {cluster_queue}{where} are lent{whom}."


def needs_in(cluster: str, needed: str) -> str:
    """What is missing in a further cluster that a workload may be dispatched to: `1 CPU (in-c): 0 of 2 free`."""
    return f"In cluster {cluster} it needs {needed}."


def passed_over(cluster: str, why: str, *, has_room: bool = False) -> str:
    """Why a workload is not tried in a cluster."""
    return f"Cluster {cluster} has room, but {why}." if has_room else f"Not in cluster {cluster}: {why}."


def no_required_cluster(why: str) -> str:
    """Why a workload can be dispatched to none of the clusters that are open: `this workload requires a`."""
    return f"It can be dispatched to none of the clusters that are open: {why}. It waits until such a cluster is."


def dispatched_from(hub: str) -> str:
    """An object in another cluster than the hub is to run elsewhere."""
    return f"its managedBy says that it runs in another cluster, and only those in the cluster {hub} do: remove it"


def dispatched_with_autoscaler(path: str) -> str:
    """An object is to run elsewhere, and would get more pods there by itself. `path`: of the field that says so."""
    return (
        f"{path}: its autoscaler would add pods in another cluster, where they do not wait for quota: remove this "
        "field, or create it without managedBy, to run in the hub"
    )


def not_dispatching(local_queue: str) -> str:
    """An object is to run elsewhere, and its ClusterQueue does not dispatch, or is not known."""
    return (
        f"its managedBy says that it runs in another cluster, and there is no LocalQueue {local_queue}, or one whose "
        "ClusterQueue does not dispatch: use another LocalQueue, create it without managedBy, or have an admin set "
        "spec.dispatch"
    )


def no_destination(refusals: Sequence[str]) -> str:
    """A workload is to run in another cluster, and can in none now; `refusals`: messages of those that were tried."""
    if not refusals:
        return "No other cluster that it could run in is open now. It waits until one is."
    return f"{' '.join(refusals)} It is tried again some minutes later."


def refused_in(cluster: str, cause: str) -> str:
    """A cluster does not accept the copy of a workload."""
    return f"The cluster {cluster} refuses it: {cause.rstrip('.')}."


def lacks(cluster: str, namespace: str, needs: Sequence[str]) -> str:
    """A cluster has not what the pods of a workload need: `Secret token`."""
    where = "there" if needs == [f"namespace {namespace}"] else f"in the namespace {namespace} there"
    return f"The cluster {cluster} lacks what its pods need: {listed(needs)}. Create it {where}."


def pods_request_more(cluster: str, more: str, namespace: str) -> str:
    """The LimitRanges or RuntimeClasses of a cluster would let pods request more than in the hub; `more`: `2 cpu`."""
    return (
        f"In the cluster {cluster} each of its pods would request {more}, which is more than its quota counts: a "
        f"LimitRange of the namespace {namespace}, or a RuntimeClass, differs from that in the hub. Request it in the "
        "pod template, or let both clusters have the same."
    )


PODS_ADDED_AT_CREATION: Final = "its admission control gives the copy more pods than Sluice asks for"


def marks_taken(label: str, annotation: str) -> str:
    """Labels or annotations by which Sluice knows a copy were gone after its creation."""
    return f"its admission control takes the label {label} or the annotation {annotation} from the copy"


def copy_not_created(cluster: str, cause: str) -> str:
    """The API server of a cluster answers that it failed to create the copy of a workload, which is tried again."""
    return f"The cluster {cluster} fails to create its copy, and is asked again: {cause.rstrip('.')}."


def copy_not_deleted(cluster: str, cause: str) -> str:
    """The API server of a cluster answers that it does not delete the copy of a workload, which is tried again."""
    return f"The cluster {cluster} does not delete its copy, and is asked again: {cause.rstrip('.')}."


def namespace_of_sluice(cluster: str) -> str:
    """A workload would run in the namespace of a cluster in which Sluice has its ServiceAccount."""
    return f"Sluice itself has its account in this namespace of the cluster {cluster}: nothing else runs there."


def not_copied(need: str, cause: str) -> str:
    """An object that is to be copied along cannot be; `need`: `Secret token`."""
    return f"{need} cannot be copied along: {cause.rstrip('.')}"


def name_taken(cluster: str, kind: str) -> str:
    """Another object has the name of the copy."""
    return f"The cluster {cluster} has another {kind} of its name, which Sluice has not created there."


def no_more_elsewhere(more: int, cluster: str) -> str:
    """The object of a dispatched workload asks for more pods than its copy has."""
    return f"It asks for {more} more pods, which its copy in the cluster {cluster} does not get while it runs."


def suspended_in_hub(cluster: str) -> str:
    """A user has suspended the object of a workload whose copy runs."""
    return (
        f"It was suspended by others: its copy in the cluster {cluster} is deleted, and it queues again. To keep it "
        "from running, put it on hold."
    )


def number_refused(cluster: str, cause: str) -> str:
    """A cluster does not accept that a copy gets more or fewer pods."""
    refused = f"The cluster {cluster} does not accept the changed number of pods of its copy: {cause.rstrip('.')}."
    return f"{refused} It runs on as it is; the next change is tried again."


def copy_deleted(cluster: str) -> str:
    """Others have deleted the copy."""
    return f"Its copy in the cluster {cluster} was deleted. It queues again."


def cluster_lost(cluster: str, lasted: str) -> str:
    """The cluster that it was dispatched to has been lost for too long. `lasted`: for how long, such as "15m"."""
    return (
        f"The cluster {cluster} has been lost for {lasted}: it queues again, to run elsewhere. Whether it "
        "still runs there is not known; what does is stopped when the cluster is back."
    )


def stops_former_copies(count: int) -> str:
    """A cluster is back; continues a sentence about it."""
    was, run = ("was", "runs") if count == 1 else ("were", "run")
    which = f"{_workloads(count)} that {was} queued again meanwhile"
    return f"is back, and {which} still {run} there and {was} not stopped yet"


def holds_in_lost(cluster: str, why: str, since: str) -> str:
    """The cluster of a workload with quota does not answer, or is just back; `why` as in `cluster_closed`."""
    return f"The cluster {cluster} {why} (since {since}). It holds its quota meanwhile, and may run on there."


def other_label(flavor: str, key: str, value: str, wanted: str) -> str:
    """A node label of the flavor has another value than the pods' nodeSelector."""
    return f"flavor {flavor} has the node label {key}={value}, and the pods ask for {key}={wanted}"


def no_affinity(flavor: str, labels: Sequence[str]) -> str:
    """The pods' required node affinity rules out node labels of the flavor, such as `zone=a`."""
    return f"flavor {flavor} has {listed(labels, limit=_NAMED)}, which the required node affinity of the pods rules out"


def undeclared(resource: str) -> str:
    """The ClusterQueue has no quota at all for a resource."""
    return f"there is no quota for {resource}"


# --- workloads that do not fit: whole messages


def does_not_fit(cluster_queue: str, pod_set: str, obstacles: Sequence[str]) -> str:
    """A pod set gets no flavor; `obstacles` are texts of the functions above."""
    named = "; ".join(dict.fromkeys(obstacles[:_NAMED]))
    more = f"; and {len(obstacles) - _NAMED} more" if len(obstacles) > _NAMED else ""
    return f"{subject(pod_set)} not fit in ClusterQueue {cluster_queue}: {named}{more}."


def waits_for_quota(needed: str, fewest: int, wanted: int) -> str:
    """WaitingForQuota for `needed` (`8 GPU (a100)`); it may be admitted with `fewest` of the `wanted` pods."""
    text = f"Needs {needed}: less is free. It starts as soon as enough becomes free"
    return f"{text}, with at least {fewest} of its {wanted} pods." if fewest < wanted else f"{text}."


def placed_again(lost: set[str], new: set[str]) -> str:
    """The pods on failed nodes are placed elsewhere; `new`: nodes that the workload did not have before."""
    where = listed(sorted(new)) if new else "its other nodes"
    return f"Node {listed(sorted(lost))} has failed; its pods are placed on {where}."


NO_PLACE_EVER: Final = (
    "Even if nothing else ran on these nodes there would be no such place: request a wider level of the topology, or "
    "fewer or smaller pods, or have nodes added."
)
"""Help for TopologyPlacementFailed."""


def limit_of(refused_by: str) -> str:
    """Turn `Cohort research: nominalQuota` into `the nominalQuota of Cohort research`."""
    node, _, limit = refused_by.rpartition(": ")
    return f"the {limit} of {node}"


def exceeds_quota(needed: str, raises: str) -> str:
    """ExceedsMaxQuota. `needed`: with what there is at most; `raises`: the limits to raise; empty: that is no help."""
    return f"Needs {needed}. {ask_for_less(raises)}"


def ask_for_less(raises: str) -> str:
    """Help for ExceedsMaxQuota, with the limits to raise; empty: that is no help."""
    text = "It can never start like this: ask for less"
    return f"{text}, or have an admin {raises}." if raises else f"{text}."


CHANGE_THE_PODS: Final = (
    "It can never start like this: change nodeSelector, affinity or tolerations of its pods, or use another LocalQueue."
)
ASK_FOR_OTHERS: Final = "It can never start like this: ask only for what has quota there, or have an admin add it."


def fits_behind_others(cluster_queue: str) -> str:
    """It would fit, but a StrictFIFO queue tries the workloads before it first."""
    return (
        f"It would fit now, but ClusterQueue {cluster_queue} is StrictFIFO: the workloads in front of it come first, "
        "even those that cannot start."
    )


def preempting(count: int) -> str:
    """It waits until `count` workloads, preempted for it or for another workload, have stopped."""
    return f"It has quota as soon as {_workloads(count)} being preempted {'has' if count == 1 else 'have'} stopped."


def backing_off(until: float) -> str:
    """It was evicted, and its requeue backoff ends at `until`."""
    return f"It was evicted and pauses before it queues again: it takes part again at {time(until)}."


def _workloads(count: int) -> str:
    return "1 workload" if count == 1 else f"{count} workloads"


# --- dependencies on other workloads (annotation sluice.dev/after)


def waits_for_others(targets: Sequence[tuple[str, bool]]) -> str:
    """It waits for workloads: (name, whether they have to succeed)."""
    parts = [f"{name} has {'succeeded' if ok else 'ended'}" for name, ok in targets[:_NAMED]]
    more = [f"{len(targets) - _NAMED} more have ended"] if len(targets) > _NAMED else []
    return f"It starts when {' and '.join([*parts, *more])} (annotation sluice.dev/after)."


def set_is_full(name: str, admitted: int, most: int) -> str:
    """As many workloads of its set are admitted as may be."""
    return f"{admitted} of at most {most} workloads of the set {name} are admitted (annotation sluice.dev/at-most)."


def whose_limit(user: str | None, limit: str) -> str:
    """Whose workloads a UserLimit counts: those of a user (empty: not recorded), or of all who share it (None)."""
    if user is None:
        return f"UserLimit {limit}"
    if user.startswith(SERVICE_ACCOUNTS):
        return f"service accounts and controllers in namespace {user.removeprefix(SERVICE_ACCOUNTS)}"
    return f"user {user}" if user else "workloads without a recorded user"


def limit_reached(whose: str, number: int, most: int, state: str, queue: str) -> str:
    """A UserLimit permits no more workloads in a state (`admitted`, `pending` or `submitted`)."""
    return f"{whose}: {number} of at most {most} workloads are {state} {_where(queue)}"


def in_use(whose: str, resource: str, amounts: tuple[int, int, int], queue: str) -> str:
    """A UserLimit permits less than a workload requests; `amounts`: what is in use, may be, and is needed."""
    used, most, needed = (format_amount(resource, amount) for amount in amounts)
    return f"{whose}: {used} of at most {most} {resource} are in use {_where(queue)}, this needs {needed}"


def _where(queue: str) -> str:
    return f"in ClusterQueue {queue}" if queue else "in all ClusterQueues"


def reserved(
    name: str, amounts: Mapping[tuple[str, str], int], cluster_queue: str, window: tuple[str, str, str]
) -> str:
    """A Reservation keeps quota for others: `amounts` by flavor and resource, `window`: start, end and time zone."""
    kept = [f"{format_amount(what, amount)} {what} of {flavor}" for (flavor, what), amount in amounts.items()]
    start, end = (each.replace("T", " ") for each in window[:2])
    place = f"in ClusterQueue {cluster_queue}"
    return f"Reservation {name} keeps {listed(kept, limit=_NAMED)} {place} from {start} to {end} ({window[2]})."


def reserved_domains(name: str, level: str, domains: Sequence[str], window: tuple[str, str, str]) -> str:
    """A Reservation keeps domains of a topology for others; `window`: start, end and time zone."""
    start, end = (each.replace("T", " ") for each in window[:2])
    places = listed([f"{level} {each}" for each in domains], limit=_NAMED)
    return f"Reservation {name} keeps the nodes of {places} from {start} to {end} ({window[2]})."


def in_the_way(kept: str, names: Sequence[str], *, evicted: bool) -> str:
    """Workloads have pods in reserved domains, and may still run at the start; `kept`: what is kept."""
    then = "They are evicted then" if evicted else "They run on, and their nodes are not free until they end"
    count = "1 workload has" if len(names) == 1 else f"{len(names)} workloads have"
    return f"{kept} {count} pods there and may not have ended then: {listed(names, limit=_NAMED)}. {then}."


def runs_while_reserved(kept: str, *, evicted: bool) -> str:
    """It runs in reserved domains, and may still run at the start; `kept`: what is kept."""
    return f"It runs there. {kept} It {'is evicted then' if evicted else 'may run until it ends'}."


def no_such_domains(name: str, level: str, domains: Sequence[str]) -> str:
    """A Reservation names domains that have no node."""
    return f"Reservation {name} keeps no nodes: there is no {level} {' or '.join(domains)} with a node of its flavors."


def no_level_to_reserve(name: str, level: str, flavors: Sequence[str]) -> str:
    """A Reservation is of a level that no topology of its flavors has."""
    return (
        f"Reservation {name} keeps no nodes: of {listed(flavors)} no flavor has a Topology with the level {level}, and "
        "with kubernetes.io/hostname as its last one."
    )


def too_few_domains(name: str, level: str, count: int, found: int) -> str:
    """A Reservation wants more domains than there are."""
    return (
        f"Reservation {name} keeps no nodes yet: it needs {count} of {level}, each with room for its part of what is "
        f"reserved and in no other Reservation of that time; there are {found}."
    )


def runs_into_reservation(max_seconds: int | None) -> str:
    """Why a Reservation that has not begun concerns a workload, after `reserved`; it begins with a space."""
    if max_seconds is None:
        return " This has no time limit that would end before: set the label sluice.dev/max-exec-time-seconds."
    return f" This may run until then: its time limit is {format_duration(max_seconds)}."


def reservation_short(
    name: str, kept: tuple[str, str, int, int], at: float, others: Sequence[tuple[str, bool]], *, preempts: bool
) -> str:
    """A Reservation has less than it keeps; `kept`: flavor, resource, amount, and what lacks; `others`: who is in the
    way, and whether by a time limit."""
    flavor, resource, amount, lacks = kept
    short = f"{format_amount(resource, lacks)} of {format_amount(resource, amount)} {resource} of {flavor}"
    text = f"Reservation {name}: {short} may not be free at {time(at)}"
    if not others:
        return f"{text}; the quota is less than what is in use and reserved"
    names = listed([key if has_limit else f"{key} (without a time limit)" for key, has_limit in others], limit=_NAMED)
    return f"{text}, because of {names}{'; as many as needed are evicted then' if preempts else ''}"


def never_met(names: Sequence[str]) -> str:
    """Workloads have failed that it waits for to succeed."""
    have = "has" if len(names) == 1 else "have"
    return (
        f"It can not start: {listed(names, limit=_NAMED)} {have} not succeeded, for which it waits. "
        "Run that again under the same name, change the annotation sluice.dev/after, or delete it."
    )


def depends_on_itself(circle: Sequence[str]) -> str:
    """Workloads wait for each other; `circle`: from it to it again."""
    shown = " after ".join(circle[:10])
    return f"It can not start: it waits for itself ({shown}). Change the annotation sluice.dev/after."


# --- orders of users, admins and other controllers


def gated_by(controllers: str) -> str:
    """Other controllers gate its admission, by Kueue's annotation."""
    return (
        f"Admission is gated by {controllers}: it queues when each of these has removed its name from the annotation "
        "kueue.x-k8s.io/admission-gated-by."
    )


def held_by_admin(author: str, reason: str) -> str:
    """It is pending and an admin has put it on hold."""
    return f"It was put on hold{_by(author, reason)}. Ask an admin to release it with `sluice release`."


def put_on_hold(author: str, reason: str) -> str:
    """It was evicted because an admin has put it on hold."""
    return f"It was put on hold{_by(author, reason)}."


def _by(author: str, reason: str) -> str:
    """Return ` by ada: the reason`, without the parts that are not known."""
    by = f" by {clean(author, longest=_MAX_QUOTED)}" if author else ""
    return by + _why(reason)


def _why(reason: str) -> str:
    text = clean(reason, longest=_MAX_QUOTED).strip().rstrip(".")
    return f": {text}" if text else ""


def kind_off(integration: str) -> str:
    """The integration for objects of its kind is not enabled. `integration`: `batch/job`."""
    return f"{integration} is not among the enabled integrations: its object is left as it is. An admin can enable it."


def kind_unlisted(integration: str) -> str:
    """Sluice cannot list objects of its kind. `integration`: `jobset.x-k8s.io/jobset`."""
    return (
        f"Sluice is not allowed to list {integration}, or listing fails: its object is left as it is. "
        "An admin finds the cause in the log; `sluice kinds rbac` prints the rights that it needs."
    )


HELD_BY_LABEL: Final = "It is on hold by its label or annotation sluice.dev/hold."
HELD_BY_USER: Final = f"{HELD_BY_LABEL} Remove that, or use `sluice release`, to let it queue."
BEING_DELETED: Final = "It is being deleted and does not queue any more."
POD_WITHOUT_QUOTA: Final = "It ran without quota, and was deleted: only Sluice may remove its scheduling gate."
RUNS_WITHOUT_QUOTA: Final = "It runs without quota: it is being stopped first, and queues then."
START_CAME_LATE: Final = "It was started after its eviction: it is being stopped and restored as it was."


def deactivated(cause: str = "", *, author: str = "", reason: str = "") -> str:
    """It is out of the queue until an admin activates it. `cause` follows `because`; empty: `author` did it."""
    because = f" because {cause}" if cause else _by(author, reason)
    return (
        f"It was deactivated{because}. It does not queue before an admin releases it with `sluice release`; "
        "or delete it and submit it again."
    )


# --- evictions


def not_deleted(cause: str) -> str:
    """A deletion that was ordered failed."""
    return f"It was not deleted: {cause}"


def ended_by_force(node: str, seconds: float) -> str:
    """A pod stayed terminating on an unreachable node, for so many seconds since its deletion."""
    return (
        f"Taken for ended {seconds:.0f} s after its deletion: node {node} is unreachable, and an annotation says that "
        "the pod is safe to forcefully delete."
    )


def idle(held: Mapping[str, float], seconds: float, below: float) -> str:
    """A workload has used less than a share of what it holds, by resource, for so long."""
    amounts = ", ".join(f"{format_amount(name, round(amount))} {name}" for name, amount in held.items())
    minutes = f"{seconds / 60:.0f} min" if seconds >= 60 else f"{max(seconds, 1):.0f} s"
    time = f"{seconds / 3600:.1f} h" if seconds >= 3600 else minutes
    return f"It holds {amounts}, and has used less than {below:.0%} of that for {time}."


def moved(local_queue: str) -> str:
    """It was moved to another LocalQueue while it held quota."""
    return f"It was moved to LocalQueue {local_queue}, and queues there."


def claims_grown(resource: str) -> str:
    """Its ResourceClaims were replaced by larger ones while it held quota."""
    return f"Its ResourceClaims ask for more {resource} than it has quota for; it queues again with what they ask for."


def taken_back(text: str) -> str:
    """It was evicted by a decision of the engine; `text`: the engine's message, in Kueue's words, without full stop."""
    return f"{text}. It queues again by itself."


def moves(flavor: str, better: str, queue: str) -> str:
    """It is evicted to be admitted in a flavor that its ClusterQueue prefers."""
    return f"It moves from flavor {flavor} to {better}, which ClusterQueue {queue} prefers; it queues again by itself."


def drained_flavor(flavor: str, start: str | None, reason: str) -> str:
    """It must not start in a flavor that is drained."""
    limit = "" if start is None else f": only what ends before {start}, by its time limit, starts there"
    return f"flavor {flavor} is drained{_why(reason)}{limit}"


def waits_for_drain(drained: Sequence[str]) -> str:
    """It waits as flavors are drained."""
    text = listed(drained)
    return f"{text[0].upper()}{text[1:]}."


def waits_for_nodes(nodes: Sequence[str], reason: str) -> str:
    """It has quota, but may not end before nodes are maintained on which it would have room."""
    return f"Nodes are drained on which it would not have ended in time ({listed(nodes)}){_why(reason)}."


def evicted_by_drain(name: str, reason: str) -> str:
    """It was evicted at the deadline of a Drain."""
    return f"The deadline of Drain {name} has passed{_why(reason)}. It queues again by itself, and starts elsewhere."


def runs_while_drained(name: str, deadline: str | None, reason: str) -> str:
    """It runs where nothing starts any more."""
    until = "it may run until it ends" if deadline is None else f"it is evicted at {deadline} if it still runs"
    return f"What it runs on is drained by Drain {name}{_why(reason)}; {until}."


def would_move(flavors: Sequence[str], queue: str, not_before: float | None) -> str:
    """It is admitted, and would rather be in one of these flavors."""
    names = " or ".join(flavors)
    later = "" if not_before is None else f", but not before {time(not_before)} (minimumRuntime)"
    return f"It moves to flavor {names}, which ClusterQueue {queue} prefers, as soon as it fits there{later}."


def runs_on_idle_quota(spent: str) -> str:
    """It is lowered by a Budget; `spent`: which one, and until when."""
    return (
        f"{spent}. Until hours are left it runs on idle quota only: it is ordered behind all others, nothing is "
        "preempted for it, and it is preempted first."
    )


def protected(until: float, *, is_preempted_often: bool) -> str:
    """It is not preempted for some time."""
    often = "It was preempted repeatedly: " if is_preempted_often else ""
    text = f"{often}it is protected from preemption until {time(until)} (preemptionProtection of its ClusterQueue)."
    return text[0].upper() + text[1:]


def others_later(until: float) -> str:
    """Workloads that it might preempt are protected, or have their time slice."""
    return f"Others may be preempted for it later, the first of them at {time(until)}."


def gives_way(at: float) -> str:
    """Its time slice ends, or has ended."""
    return (
        f"From {time(at)} on workloads of the same priority may preempt it (preemption.timeSlice of its ClusterQueue)."
    )


BEING_STOPPED: Final = "Its pods are being stopped; then its quota is free."


def left_pods(namespace: str, names: Sequence[str], cluster: str = "") -> str:
    """Pods whose controller is gone hold the quota of a workload that is being stopped. `cluster`: not the hub."""
    command = f"`kubectl delete pod -n {namespace} {' '.join(names[:_NAMED])}`"
    command += f" in the cluster {cluster}" if cluster else ""
    if len(names) == 1:
        why = f"Nothing stops its pod {names[0]}: its controller was deleted without it."
        return f"{why} It holds the quota until it ends; {command} ends it now."
    why = f"Nothing stops its pods {listed(names, limit=_NAMED)}: their controllers were deleted without them."
    return f"{why} They hold the quota until they end; {command} ends them now."


REQUEUED: Final = "It queues again."
EDITED: Final = "It was edited after it had been admitted, and queues again as it is now."
FINISHED_WITH_PODS: Final = "It has finished; its pods hold the quota until they have terminated."
DELETED_WITH_PODS: Final = "It was deleted; its pods hold the quota until they have terminated."
DELETED_WITHOUT_PODS: Final = "It is being deleted, and has no pods any more."
NOT_DELETED_BEFORE_RESTART: Final = (
    "It was not deleted: Sluice was ended before it had asked the cluster for that. Cancel it again."
)
HELD: Final = "It was put on hold by its label or annotation sluice.dev/hold."


def cluster_left(cluster: str) -> str:
    """The cluster of a workload has no Cluster object any more."""
    return f"Its cluster {cluster} has left: it is not managed any more."


UNLABELLED: Final = "Its queue label was removed: it is not managed any more."
UNLABELLED_POD: Final = f"{UNLABELLED} It keeps its scheduling gate: label it again, or recreate it without label."


def pods_not_ready(seconds: float, *, recovering: bool) -> str:
    """Not all pods were ready in time."""
    again = "again " if recovering else ""
    return f"Not all of its pods were ready {again}within {seconds:g} s (waitForPodsReady); it queues again."


TOO_MANY_REQUEUES: Final = "its pods were not ready in time more often than waitForPodsReady.requeuingStrategy allows"


def more_pods_than_declared(pod_set: str, pods: int, declared: int) -> str:
    """An AppWrapper has more pods than quota, which only its pods show; the text follows `because`."""
    return (
        f"{pods} pods of its pod set {pod_set} ran, and it declares {declared}: declare all of them in podSets, and "
        "scale no object in it"
    )


RAN_TOO_LONG: Final = "it ran as long as its maximum execution time allows"


def rejected(checks: Sequence[tuple[str, str]]) -> str:
    """Admission checks (name, message) have rejected it; the text follows `because`."""
    return f"the admission check{'s' if len(checks) > 1 else ''} {_named_checks(checks)} rejected it"


def retried(checks: Sequence[tuple[str, str]]) -> str:
    """Admission checks (name, message) ask to try again later."""
    noun, verb = ("Admission check", "asks") if len(checks) == 1 else ("Admission checks", "ask")
    return f"{noun} {_named_checks(checks)} {verb} to try again: its quota is released, and it queues again."


def _named_checks(checks: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{name} ({message})" if message else name for name, message in checks)


# --- admitted


def admitted(workload: Workload, admission: Admission) -> str:
    """It was admitted; with fewer pods than it requests, if there was no quota for more."""
    flavors = sorted({flavor for assigned in admission.pod_sets for flavor in assigned.flavors.values()})
    admitted_pods = sum(assigned.count for assigned in admission.pod_sets)
    wanted = sum(pod_set.count for pod_set in workload.pod_sets)
    named = listed(flavors, limit=_NAMED) if len(flavors) > 1 else "".join(flavors) or "no flavor"
    where = f" in the cluster {admission.cluster}" if admission.cluster else ""
    text = f"Admitted by ClusterQueue {admission.cluster_queue} on {named}{where}."
    if admitted_pods < wanted:
        text += f" It was given {admitted_pods} of {wanted} pods, because there was no quota for more."
    if more := requests_more(workload.pod_sets):
        text += f" {more}"
    return text


def requests_more(pod_sets: Sequence[PodSet]) -> str:
    """Its pods request more than their templates; empty if they do not, as far as is known."""
    parts = [
        f"{each.name} {', '.join(f'{format_amount(name, value)} {name}' for name, value in each.learned.items())}"
        for each in pod_sets
        if each.learned
    ]
    if not parts:
        return ""
    more = listed(parts, limit=_NAMED)
    return f"Each of its pods requests more than its template, by what its operator or a webhook adds: {more}."


ASKS: Final = "It asks for"


def waits_for_more(pods: int, why: str = "") -> str:
    """It runs, and requests `pods` more than it holds quota for; `why`: message of an obstacle other than quota."""
    if why:
        return f"{ASKS} {_more_pods(pods)}, and gets none as it is: {why}"
    return f"{ASKS} {_more_pods(pods)}: as soon as there is quota, without a restart."


def runs_elsewhere(local_queue: str, cluster_queue: str) -> str:
    """Its LocalQueue now points to another ClusterQueue than the one whose quota it holds."""
    return (
        f"LocalQueue {local_queue} now points to ClusterQueue {cluster_queue}. "
        "Hold it and release it (`sluice hold`, `sluice release`) to have all of it queue there."
    )


def no_more_with_checks(pods: int) -> str:
    """It runs and requests more pods, which its admission checks have not been asked about."""
    return (
        f"{ASKS} {_more_pods(pods)}, and gets none: the admission checks of its ClusterQueue were not asked about them."
    )


def _more_pods(pods: int) -> str:
    return f"{pods} more pod{'s' if pods > 1 else ''}"


def checks_pending(names: Sequence[str]) -> str:
    """It holds quota, and some admission checks are not ready."""
    return f"Quota is reserved. It starts when all admission checks are ready: {listed(names)}."


PODS_READY: Final = "All pods are ready, or have succeeded."
POD_LOST: Final = "At least one pod is not ready any more."


def change_refused(change: str, why: str) -> str:
    """It holds quota, and the API server refuses the PATCH to `change` it; `why`: the API server's message."""
    return f"The API server refuses to {change}: {why.rstrip('.')}. It keeps its quota, and that is tried again."


def no_pods(kind: str, said: str) -> str:
    """An object has no pods some time after its start. `said`: what its controller says, empty if nothing."""
    text = f"It was started, but its controller has created no pods; `kubectl describe` of the {kind} shows its Events"
    return f"{text}. Its status says: {said}" if said else f"{text}."


def no_pods_of_copy(kind: str, warning: str, *, suspended: bool) -> str:
    """The copy of an object has no pods some time after its start. `warning`: what Kubernetes says of it, or empty.

    `suspended`: whether others have suspended it.
    """
    if suspended:
        return f"Its copy, a {kind}, was suspended by others in the cluster in which it is."
    return f"The controller of its copy, a {kind}, has created no pods. {warning}".rstrip()


def warned(kind: str, name: str, text: str) -> str:
    """Kubernetes warns of an object by an Event; `text`: its reason and message."""
    return f"Kubernetes warns of the {kind} {name}: {text}"


def unscheduled(pod: str, count: int, wanted: int, scheduler: str, selectors: Sequence[tuple[str, str]]) -> str:
    """The Kubernetes scheduler finds no node for some of its pods.

    `pod`: one of them; `scheduler`: the scheduler's message about it; `selectors`: its node selector as `pool=gpu`, and
    the flavor that it comes from, empty if it is the pod's own.
    """
    pods = f"{count} of {wanted} pods, such as {pod}," if wanted > 1 else f"Its pod {pod}"
    text = f"{pods} cannot be scheduled: {scheduler}"
    if not selectors:
        return text
    named = [f"{label} (of flavor {flavor})" if flavor else f"{label} (its own)" for label, flavor in selectors]
    return f"{text.rstrip('.')}. Node selector: {listed(named, limit=_NAMED)}."


def not_started(count: int, wanted: int, container: str, why: str) -> str:
    """The kubelet cannot start a container of some of its pods; `why`: its reason, such as `ImagePullBackOff`."""
    pods = f"{count} of {wanted} pods do" if wanted > 1 else "Its pod does"
    return f"{pods} not start: container {container} waits ({why})"
