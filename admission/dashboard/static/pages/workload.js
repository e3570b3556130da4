// Page of a workload: its state with the explanation, its pods, and its history.
import { path } from "../lib/api.js";
import { Age, Badge, Card, conditionOf, Dialog, Empty, Facts, Failure, Free, HOPELESS, Loading, PageHead, StateBadge, stateWord, Table, Time } from "../lib/components.js";
import { amount, count, duration, fullTime, hours, hoursName, plural, resourceName, seconds, shown } from "../lib/format.js";
import { useAnswer, useCollection, useNow } from "../lib/live.js";
import { localQueueLink, queueLink, topologyLink, workloadLink } from "../lib/router.js";
import { useHome, useSession } from "../lib/session.js";
import { html, useEffect, useMemo, useState } from "../lib/ui.js";
import { Actions } from "./act.js";
import { Requests, requestsOf } from "./workloads.js";

export function WorkloadPage({ namespace, name }) {
  const { rights } = useSession();
  const address = path("namespaces", namespace, "workloads", name);
  const first = useAnswer(address);
  const uid = first.data?.metadata.uid;
  const live = useCollection(uid ? path("namespaces", namespace, "workloads") : null, { fieldSelector: `metadata.uid=${uid}` });
  const workload = live.items[0] || first.data;
  const crumbs = [useHome()];
  if (workload) crumbs.push({ href: localQueueLink(namespace, workload.spec.queueName), text: `${namespace}/${workload.spec.queueName}` });
  const version = workload?.metadata.resourceVersion;
  const history = useAnswer(uid ? `${address}/history` : null, {}, { deps: [version], leastMs: 500 });
  const explained = useExplanation(uid ? address : null, version, workload?.status.state);
  if (first.error && !workload) return html`<${PageHead} title=${name} crumbs=${crumbs} /><${Failure} error=${first.error} retry=${first.again} />`;
  if (!workload) return html`<${PageHead} title=${name} crumbs=${crumbs} /><${Card}><${Loading} lines=${6} /><//>`;
  const { spec, status } = workload, queue = status.clusterQueue;
  return html`<${PageHead} title=${spec.object.name} crumbs=${crumbs} badge=${html`<${StateBadge} workload=${workload} />`} actions=${html`<${Actions} workloads=${[workload]} /><${CopyLink} />`}>
      ${spec.object.kind} of <b><${Free} text=${spec.user || "an unknown user"} longest=${100} /></b> in the namespace <bdi>${namespace}</bdi><//>
    <div class="columns-main">
      <div class="stack">
        ${status.state === "pending" ? html`<${Why} explained=${explained} />` : html`<${Standing} workload=${workload} />`}
        <${Dependencies} namespace=${namespace} workload=${workload} why=${explained.data} />
        <${Pods} namespace=${namespace} name=${workload.metadata.name} version=${version} state=${status.state} />
        <${Story} history=${history} />
      </div>
      <div class="stack">
        <${Card} title="What it asks for">
          <${Facts} items=${[
            ["Together", html`<${Requests} requests=${requestsOf(workload)} />`],
            ...spec.podSets.map((podSet) => [`Pod set ${podSet.name}`, html`${count(podSet.count)} × <${Requests} requests=${Object.fromEntries(Object.entries(podSet.requests).map(([resource, quantity]) => [resource, amount(quantity)]))} />`]),
            ["ClusterQueue", queue && (rights.clusterQueues ? html`<a href=${queueLink(queue)}><bdi>${queue}</bdi></a>` : html`<bdi>${queue}</bdi>`)],
            ["LocalQueue", html`<a href=${localQueueLink(namespace, spec.queueName)}><bdi>${spec.queueName}</bdi></a>`],
            ["Cluster", (status.clusterName || spec.cluster) && html`<bdi>${status.clusterName || spec.cluster}</bdi>`],
            ["Priority", spec.priorityClassName ? html`${spec.priority} <span class="soft">(${spec.priorityClassName})</span>` : String(spec.priority)],
            ["Created", html`<${Time} at=${workload.metadata.creationTimestamp} />`],
            ["Evictions", status.requeueState?.count],
          ]} />
          ${rights.flavors && status.state === "admitted" && html`<${Places} admission=${status.admission} />`}
        <//>
        <${Checks} checks=${status.admissionChecks} />
        <${Held} history=${history} />
      </div>
    </div>`;
}

// Links to the maps of the nodes on which its pods are, for flavors with a Topology.
function Places({ admission }) {
  const flavors = useAnswer(path("resourceflavors"));
  const used = new Set((admission?.podSetAssignments || []).flatMap((each) => Object.values(each.flavors || {})));
  const placed = (flavors.data?.items || []).filter((flavor) => used.has(flavor.metadata.name) && flavor.spec?.topologyName);
  return placed.map(({ metadata }) => html`<p class="small table-note" key=${metadata.name}><a href=${topologyLink(metadata.name)}>Map of the nodes of <bdi>${metadata.name}</bdi></a></p>`);
}

function CopyLink() {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(location.origin + location.pathname);
      setCopied(true);
      setTimeout(() => setCopied(false), 2000);
    } catch {
      setCopied(false);  // pages without TLS cannot use the clipboard; the address bar has the same link
    }
  };
  return html`<button type="button" class="button" onClick=${copy}>${copied ? "Copied" : "Copy link"}</button>`;
}

// Why a workload waits, and its dependencies. It is asked for again while it waits, or others wait for it.
function useExplanation(address, version, state) {
  const [changes, setChanges] = useState(true);
  const explained = useAnswer(address && `${address}/explain`, {}, { deps: [version], leastMs: 1000, everyMs: changes ? 15000 : 0 });
  const why = explained.data, isNew = explained.error?.status === 404 && !why;
  useEffect(() => setChanges(state === "pending" || why?.waitedForBy !== undefined), [state, why]);
  useEffect(() => {
    const timer = isNew && setTimeout(explained.again, 2000);
    return () => clearTimeout(timer);
  }, [explained.error]);
  return { ...explained, isNew };
}

function Why({ explained }) {
  const why = explained.data;
  if (explained.isNew) return html`<${Card} title="Why it waits"><p class="soft">${explained.error.message}</p><//>`;
  if (explained.error && !why) return html`<${Card} title="Why it waits"><${Failure} error=${explained.error} retry=${explained.again} /><//>`;
  if (!why) return html`<${Card} title="Why it waits"><${Loading} /><//>`;
  const lacks = why.lacks || [], [headline, ...beside] = why.sentences;
  return html`<${Card} title="Why it waits" className="why-card">
    <p class="why-reason"><${Badge} tone=${HOPELESS.has(why.reason) ? "bad" : "wait"}>${why.reason || "Evaluating"}<//></p>
    <p class="why-text"><${Free} text=${headline} longest=${1000} /></p>
    ${why.notBefore && html`<p>It is not tried again before <${Time} at=${why.notBefore} />.</p>`}
    ${lacks.length > 0 && html`<${Table} label="What is missing" rows=${lacks} columns=${[
      { name: "Resource", cell: (lack) => resourceName(lack.resource) }, { name: "Flavor", cell: (lack) => html`<bdi>${lack.flavor}</bdi>` },
      { name: "Needs", className: "number", cell: (lack) => quantity(lack, "asked") }, { name: "Free now", className: "number", cell: (lack) => quantity(lack, "free") },
      { name: "Of", className: "number", cell: (lack) => quantity(lack, "most") },
      { name: "Own queue uses", className: "number opt", cell: (lack) => quantity(lack, "used") }, { name: "Others use", className: "number opt", cell: (lack) => quantity(lack, "usedByOthers") },
    ]} />`}
    ${beside.map((text) => html`<${Paragraph} key=${text} text=${text} />`)}
    ${why.details.length > 0 && html`<details class="more"><summary>More</summary>${why.details.map((text) => html`<${Paragraph} key=${text} text=${text} />`)}</details>`}
  <//>`;
}

// A paragraph of an explanation; its indented lines are a list.
function Paragraph({ text }) {
  const [first, ...items] = text.split("\n  ");
  return html`<p><${Free} text=${first} longest=${1000} /></p>${items.length > 0 && html`<ul class="bullets">${items.map((item) => html`<li key=${item}><${Free} text=${item} longest=${500} /></li>`)}</ul>`}`;
}

// Whether what an arrow of the graph stands for has come about: "met", "never", or "open".
function progress({ state, outcome, condition }) {
  if (state !== "finished") return "open";
  return condition === "Ended" || outcome === "Succeeded" ? "met" : "never";
}

// Graph of what a workload starts after, itself, and what starts after it (annotation `sluice.dev/after`).
function Dependencies({ namespace, workload, why }) {
  const { waitsFor = [], waitedForBy = [], waitedForByOthers: others } = why || {};
  if (!waitsFor.length && !waitedForBy.length) return null;
  const { state } = workload.status, outcome = state === "finished" ? conditionOf(workload, "Finished")?.reason : "";
  const leaving = waitedForBy.map(({ condition }) => progress({ state, outcome, condition }));
  return html`<${Card} title="Dependencies">
    <div class="graph">
      ${waitsFor.length > 0 && html`<h3>It starts after</h3><${Nodes} label="It starts after" namespace=${namespace} links=${waitsFor} /><${Fan} kinds=${waitsFor.map(progress)} />`}
      <p class="graph-own"><b><bdi>${workload.spec.object.name}</bdi></b> <${StateBadge} workload=${workload} /></p>
      ${waitedForBy.length > 0 && html`<${Fan} kinds=${leaving} out /><h3>These wait for it</h3><${Nodes} label="These wait for it" namespace=${namespace} links=${waitedForBy} />`}
    </div>
    ${others > 0 && html`<p class="small soft">${plural(others, "more workload")} wait for it.</p>`}
  <//>`;
}

function Nodes({ label, namespace, links }) {
  return html`<ul aria-label=${label}>${links.map((each, index) => {
    const { name, object, objectKind, condition, state, outcome } = each;
    const tone = progress(each) === "never" ? "bad" : { pending: "wait", admitted: "good", evicting: "warn" }[state] || "calm";
    return html`<li key=${index}><div>
      ${name ? html`<a href=${workloadLink(namespace, name)} title=${objectKind}><bdi>${object}</bdi></a>` : html`<bdi>${object}</bdi>`} <${Badge} tone=${tone}>${name ? stateWord(outcome || state) : "Does not exist"}<//>
      <span class="small soft">${condition === "Succeeded" ? "after success" : "after any end"}</span></div></li>`;
  })}</ul>`;
}

// Lines between one box and those at its left or, with `out`, right, which are equally high.
function Fan({ kinds, out }) {
  return html`<svg viewBox="0 0 100 100" preserveAspectRatio="none" aria-hidden="true">${kinds.map((kind, index) => {
    const y = (100 * (index + 0.5)) / kinds.length, [from, to] = out ? [50, y] : [y, 50];
    return html`<path class=${kind} d=${`M0 ${from}C50 ${from} 50 ${to} 100 ${to}`} />`;
  })}</svg>`;
}

const quantity = (lack, name) => (lack[name] === undefined ? "–" : shown(lack.resource, amount(lack[name])));

// Estimated start: a median and a bound, and how many of such estimates held.
export function Estimate({ estimate }) {
  const now = useNow() / 1000, { p50, p90, shareHeld } = estimate;
  const [half, most] = [p50, p90].map((at) => seconds(at) - now);
  const title = `Half of such workloads start before ${fullTime(p50)}, nine of ten before ${fullTime(p90)}.`;
  const held = shareHeld !== undefined && html` <span class="soft">(${Math.round(100 * shareHeld)} % of past estimates held)</span>`;
  if (most <= 0) return html`<span title=${title}>Late: nine of ten with its estimate would have started${held}</span>`;
  return html`<span title=${title}>Starts probably ${half > 0 ? html`in <b>${duration(half)}</b>, at <b><${Time} at=${p50} /></b>` : "soon"}; nine of ten within <b>${duration(most)}</b>${held}</span>`;
}

function Standing({ workload }) {
  const { status } = workload;
  const finished = conditionOf(workload, "Finished"), admitted = conditionOf(workload, "Admitted"), reserved = conditionOf(workload, "QuotaReserved");
  const ready = conditionOf(workload, "PodsReady")?.status === "True", waits = admitted?.status === "False";
  const title = { admitted: waits ? "It has quota, and waits for checks" : ready ? "It runs" : "It is started", evicting: "It is being stopped", finished: "It has ended" }[status.state] || status.state;
  const told = status.conditions || [];
  return html`<${Card} title=${title}>
    <div class="numbers">
      ${reserved?.lastTransitionTime && html`<span>waited <b>${duration(seconds(reserved.lastTransitionTime) - seconds(status.queuedAt))}</b></span>`}
      ${(admitted || reserved) && status.state !== "finished" && html`<span>holds quota for <b><${Age} since=${(admitted || reserved).lastTransitionTime} /></b></span>`}
      ${finished && html`<span><b>${finished.reason}</b> <${Time} at=${finished.lastTransitionTime} /></span>`}
    </div>
    <ul class="conditions">${told.map((condition) => html`<li key=${condition.type}><${Badge} tone=${condition.reason === "Failed" ? "bad" : condition.status === "True" ? "ok" : "calm"}>${condition.type === "Finished" ? condition.reason : condition.type}<//> <${Free} text=${condition.message || condition.reason} longest=${500} /></li>`)}</ul>
  <//>`;
}

function Checks({ checks }) {
  if (!checks?.length) return null;
  return html`<${Card} title="Admission checks"><ul class="conditions">${checks.map((check) => html`<li key=${check.name}><${Badge} tone=${check.state === "Ready" ? "ok" : check.state === "Rejected" ? "bad" : "wait"}>${check.state}<//> <b><bdi>${check.name}</bdi></b> <${Free} text=${check.message} /></li>`)}</ul><//>`;
}

const CONTAINER_TONES = { running: "good", waiting: "wait", terminated: "calm" };

// Pods of the workload, if the user has the right to list pods in the cluster.
function Pods({ namespace, name, version, state }) {
  const wanted = state === "admitted" || state === "evicting" || state === "finished";
  const address = `/session/namespaces/${encodeURIComponent(namespace)}/workloads/${encodeURIComponent(name)}`;
  const found = useAnswer(wanted ? `${address}/pods` : null, {}, { deps: [version], leastMs: 2000, everyMs: state === "finished" ? 0 : 10000 });
  const [log, setLog] = useState(null);
  if (!wanted || found.error?.status === 403) return null;
  if (found.error && !found.data) return html`<${Card} title="Pods"><p class="soft">${found.error.message}</p><//>`;
  if (!found.data) return html`<${Card} title="Pods"><${Loading} /><//>`;
  const pods = found.data.items;
  return html`<${Card} title="Pods" note=${pods.length ? count(pods.length + (found.data.metadata.remainingItemCount || 0)) : ""}>
    ${!pods.length ? html`<${Empty} title="No pods">${state === "finished" ? "They are gone: Kubernetes deletes them with what made them, or by its time limit." : "They are made once it is started, which takes some seconds."}<//>`
      : html`<${Table} label="Pods of the workload" rows=${pods} keyOf=${(pod) => pod.name} columns=${[
        { name: "Name", cell: (pod) => html`<bdi class="free">${pod.name}</bdi>` },
        { name: "State", cell: (pod) => html`<${Badge} tone=${{ Running: "good", Failed: "bad", Pending: "wait" }[pod.phase] || "calm"}>${pod.isEnding ? "Ending" : pod.phase}<//>` },
        { name: "Containers", cell: (pod) => pod.containers.map((each) => html`<div key=${each.name}><${Badge} tone=${CONTAINER_TONES[each.state]}>${each.reason || each.state}<//> <bdi>${each.name}</bdi>${each.exitCode > 0 && html` <span class="soft">exit code ${each.exitCode}</span>`}${each.restarts > 0 && html` <span class="soft">${count(each.restarts)} restarts</span>`} <${Free} text=${each.message} longest=${160} /></div>`) },
        { name: "Node", className: "opt", cell: (pod) => html`<bdi>${pod.node || "–"}</bdi>${pod.cluster && pod.cluster !== "local" && html` <span class="soft">in <bdi>${pod.cluster}</bdi></span>`}` },
        { name: "Log", cell: (pod) => html`<button type="button" class="text-button" aria-label=${`Log of ${pod.name}`} onClick=${() => setLog({ pod: pod.name, container: pod.containers[0]?.name })}>Last lines</button>` },
      ]} />`}
    ${log && html`<${PodLog} address=${`${address}/log`} pod=${log.pod} container=${log.container} onClose=${() => setLog(null)} />`}
  <//>`;
}

function PodLog({ address, pod, container, onClose }) {
  const found = useAnswer(address, { pod, container }, { everyMs: 5000 });
  return html`<${Dialog} title=${`Last lines of ${pod}`} onClose=${onClose}>
    ${found.error && !found.data ? html`<${Failure} error=${found.error} retry=${found.again} />` : !found.data ? html`<${Loading} />`
      : found.data.text ? html`<pre class="log" tabindex="0">${found.data.text}</pre>` : html`<${Empty} title="No lines yet">What the container writes to its standard output appears here.<//>`}
  <//>`;
}

const TITLES = { pending: "Waits", admitted: "Admitted", evicting: "Being stopped", finished: "Ended" };
const MARKS = { pending: "wait", admitted: "good", evicting: "warn", finished: "calm" };

function Story({ history }) {
  const now = useNow() / 1000;
  const items = history.data?.items;
  if (history.error && !items) return html`<${Card} title="What happened"><${Failure} error=${history.error} retry=${history.again} /><//>`;
  if (!items) return html`<${Card} title="What happened"><${Loading} /><//>`;
  const folds = history.data.folds || [];
  return html`<${Card} title="What happened" note="Newest first">
    ${items.length ? html`<ol class="timeline">${items.map((item, index) => {
      const fold = folds.find(({ first, last }) => first <= index && index <= last);
      if (fold) return fold.first === index && html`<li key="fold" class="warn">
        <p><b>Admitted and evicted ${plural(fold.rounds, "time")}</b> <span class="soft"><${Time} at=${item.at} /> to <${Time} at=${items[fold.last].at} /></span></p>
        ${fold.preemptors > 0 && html`<p class="soft">Preempted for ${plural(fold.preemptors, "different workload")}.</p>`}</li>`;
      const next = items[index + 1], last = item.state === "finished";
      const lasted = (next ? seconds(next.at) : now) - seconds(item.at);
      return html`<li key=${`${item.at}${index}`} class=${MARKS[item.state] || "calm"}>
        <p><b>${TITLES[item.state] || item.state}</b> ${item.reason && item.reason !== TITLES[item.state] && html`<span class="tag">${item.reason}</span>`} <span class="soft"><${Time} at=${item.at} />${!last && html`, for ${duration(lasted)}${next ? "" : " so far"}`}</span></p>
        ${item.message && html`<p class="soft"><${Free} text=${item.message} longest=${400} /></p>`}
      </li>`;
    }).reverse()}</ol>` : html`<${Empty} title="Nothing yet">Each change of its state is kept here, with the reason.<//>`}
  <//>`;
}

// Admissions of the workload from the ledger, with total usage.
function Held({ history }) {
  const now = useNow() / 1000;
  const rows = history.data?.admissions;
  const sums = useMemo(() => {
    const found = {};
    for (const row of rows || []) if (row.resource) found[row.resource] = (found[row.resource] || 0) + amount(row.amount) * ((row.to ? seconds(row.to) : now) - seconds(row.from));
    return found;
  }, [rows, Math.floor(now / 10)]);
  if (!rows?.length) return null;
  return html`<${Card} title="What it has used">
    <${Facts} items=${Object.entries(sums).map(([resource, sum]) => [hoursName(resource), hours(resource, sum)])} />
    <h3>Quota that it held</h3>
    <ul class="held">${turnsOf(rows).map((turn) => html`<li key=${turn.key}>
      <p><${Time} at=${turn.from} />, for <${Age} since=${turn.from} until=${turn.to} /> <span class="tag">${turn.to ? turn.endReason || "Ended" : "still held"}</span></p>
      ${turn.parts.map(([flavor, requests]) => html`<p key=${flavor}><${Requests} requests=${requests} /> <span class="soft">on <bdi>${flavor}</bdi></span></p>`)}</li>`)}</ul>
  <//>`;
}

// Groups rows of the ledger by time: [{from, to, endReason, parts: [[flavor, {resource: amount}]]}].
function turnsOf(rows) {
  const turns = new Map();
  for (const { from, to, endReason, flavor, resource, amount: quantity } of rows) {
    const key = `${from} ${to || ""}`;
    if (!turns.has(key)) turns.set(key, { key, from, to, endReason, flavors: new Map() });
    const { flavors } = turns.get(key);
    if (!flavors.has(flavor)) flavors.set(flavor, {});
    if (resource) flavors.get(flavor)[resource] = (flavors.get(flavor)[resource] || 0) + amount(quantity);
  }
  return [...turns.values()].map(({ flavors, ...turn }) => ({ ...turn, parts: [...flavors] })).reverse();
}
