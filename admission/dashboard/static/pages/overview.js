// Page "Overview": the quota tree with usage, borrowing and lending, and problems that need attention.
import { path } from "../lib/api.js";
import { QuotaBar, Sparkline, valueAt } from "../lib/charts.js";
import { Badge, Card, Empty, Failure, HOPELESS, Icon, Loading, PageHead, Segments } from "../lib/components.js";
import { amount, count, duration, percent, plural, resourceName, seconds, shown } from "../lib/format.js";
import { useAnswer, useCollection, useNow } from "../lib/live.js";
import { cohortLink, link, localQueueLink, queueLink, useParameter, workloadLink } from "../lib/router.js";
import { useReadable, useRights, useSession } from "../lib/session.js";
import { forest, leavesOf, quotaByFlavor, resourcesOf, totals } from "../lib/tree.js";
import { html, useMemo, useState } from "../lib/ui.js";
import { INTERVAL, knownSeconds, meanOf, nominalOf, PERIODS, PERIOD_OPTIONS, seriesOf } from "../lib/usage.js";
import { shortly } from "./workloads.js";

const OPEN_QUEUES = 60;  // trees with more ClusterQueues are collapsed to their Cohorts at first

// A reason without its cause.
const shortReason = (reason) => (reason.startsWith("Deactivated") ? "Deactivated" : reason);

export function Overview() {
  const { rights } = useSession();
  const queues = useCollection(path("clusterqueues"));
  const cohorts = useCollection(rights.cohorts ? path("cohorts") : null);
  const roots = useMemo(() => forest(cohorts.items, queues.items), [queues.version, cohorts.version, queues.items, cohorts.items]);
  const leaves = useMemo(() => roots.flatMap(leavesOf), [roots]);
  const resources = useMemo(() => resourcesOf(leaves), [leaves]);
  const [resource, setResource] = useParameter("resource");
  const [flavor, setFlavor] = useParameter("flavor");
  const selected = resources.find((each) => each.name === resource) || resources[0];
  const error = queues.error || cohorts.error;
  if (error && !queues.ready) return html`<${PageHead} title="Overview" /><${Failure} error=${error} />`;
  if (!queues.ready) return html`<${PageHead} title="Overview" /><${Card}><${Loading} lines=${8} /><//>`;
  if (!leaves.length) return html`<${PageHead} title="Overview" /><${NoQueues} />`;
  const pending = leaves.reduce((sum, leaf) => sum + leaf.pending, 0), admitted = leaves.reduce((sum, leaf) => sum + leaf.admitted, 0);
  const head = html`<${PageHead} title="Overview">${plural(leaves.length, "ClusterQueue")}, ${plural(admitted, "workload")} admitted, ${count(pending)} pending<//>`;
  if (!selected) return html`${head}<${NoQuota} leaves=${leaves} />`;
  return html`${head}
    <${Tiles} roots=${roots} resources=${resources} selected=${selected} onSelect=${setResource} />
    <div class="columns-main overview">
      <${Card} title="Quota" actions=${html`
        ${resources.length > 1 && html`<${Segments} label="Resource" value=${selected.name} onChange=${setResource} options=${resources.map((each) => ({ value: each.name, text: resourceName(each.name) }))} />`}
        ${selected.flavors.length > 1 && html`<select aria-label="Flavor" value=${flavor} onChange=${(event) => setFlavor(event.currentTarget.value)}>
          <option value="">All flavors</option>${selected.flavors.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}</select>`}`}>
        <${Tree} roots=${roots} resource=${selected.name} flavor=${selected.flavors.includes(flavor) ? flavor : ""} />
        <${Legend} />
      <//>
      ${rights.pending && html`<${Attention} roots=${roots} leaves=${leaves} changes=${queues.version} />`}
    </div>`;
}

function NoQuota({ leaves }) {
  return html`<${Card} title="Quota"><${Empty} title="No quota yet"><p>Nothing can be admitted, as no ClusterQueue has resource groups.</p>
    <p>${leaves.slice(0, OPEN_QUEUES).map((leaf, index) => html`${index > 0 && ", "}<a key=${leaf.name} href=${queueLink(leaf.name)}><bdi>${leaf.name}</bdi></a>`)}</p><//><//>`;
}

function Tiles({ roots, resources, selected, onSelect }) {
  const { rights } = useSession();
  const [period, setPeriod] = useParameter("period", "day");
  const chosen = PERIODS[period] ? period : "day";
  const report = useAnswer(rights.usage ? "/apis/sluice.dev/v1/reports/usage" : null, { from: PERIODS[chosen].from, interval: INTERVAL, by: "resource", quota: true }, { everyMs: 60000 });
  const known = report.data && knownSeconds(report.data);
  const time = known && known < 0.9 * PERIODS[chosen].seconds ? `last ${duration(known)}` : `last ${chosen}`;
  return html`<section aria-label="Utilisation">
    <div class="section-head"><h2>Utilisation</h2><span class="grow"></span>
      ${rights.usage && html`<${Segments} label="Time" options=${PERIOD_OPTIONS} value=${chosen} onChange=${setPeriod} />`}</div>
    <div class="tiles">${resources.slice(0, 4).map((each) => {
      const sum = roots.map((root) => totals(root, each.name)).reduce((a, b) => ({ nominal: a.nominal + b.nominal, used: a.used + b.used }), { nominal: 0, used: 0 });
      const past = report.data && seriesOf(report.data, each.name, () => "used", 1);
      const values = past?.series[0]?.values || [];
      const { steps } = past ? nominalOf(report.data, each.name) : { steps: [] };
      const mean = past && percent(past.total / (known || 1), meanOf(steps, seconds(report.data.from) * 1000, seconds(report.data.to) * 1000));
      return html`<button type="button" key=${each.name} class="tile" aria-pressed=${String(each.name === selected.name)} onClick=${() => onSelect(each.name)}>
        <span class="tile-name">${resourceName(each.name)}</span>
        <span class="tile-value">${percent(sum.used, sum.nominal)}</span>
        <span class="tile-text">${shown(each.name, sum.used)} of ${shown(each.name, sum.nominal)} now</span>
        <span class="tile-text">${past ? `${mean} over the ${time}` : "\u00a0"}</span>
        <${Sparkline} label=${`${resourceName(each.name)} over the ${time}`} values=${values} limits=${values.map((_, index) => valueAt(steps, past.times[index] + report.data.intervalSeconds * 1000 - 1))} mean=${mean} />
      </button>`;
    })}</div>
  </section>`;
}

export function Legend() {
  return html`<p class="legend tree-legend"><span><i class="swatch bar-used"></i>used</span><span><i class="swatch bar-borrowed"></i>borrowed</span>
    <span><i class="swatch bar-lent"></i>lent</span><span><i class="swatch bar-track"></i>idle</span>
    <span class="soft">All bars have one scale; the mark is the nominal quota. What is lent is the share of each lender in what is borrowed, by its idle quota.</span></p>`;
}

export function Tree({ roots, resource, flavor }) {
  const many = roots.flatMap(leavesOf).length > OPEN_QUEUES;
  const [toggled, setToggled] = useState(new Set());
  const [filter, setFilter] = useParameter("find");
  const isOpen = (each) => filter !== "" || toggled.has(each.name) !== (!many || each.depth < 1);
  const toggle = (each) => setToggled((old) => {
    const next = new Set(old);
    if (!next.delete(each.name)) next.add(each.name);
    return next;
  });
  const wanted = filter.toLowerCase();
  const named = (each) => each.name.toLowerCase().includes(wanted);
  const matches = (each) => named(each) || each.children.some(matches);
  const rows = [];
  const add = (nodes, within = false) => {  // `within`: the members of a found Cohort are shown, too
    for (const each of nodes) {
      if (wanted && !within && !matches(each)) continue;
      const sum = totals(each, resource, flavor);
      if (!sum.any && each.kind === "ClusterQueue" && !wanted) continue;
      rows.push({ each, sum });
      if (each.children.length && isOpen(each)) add(each.children, within || named(each));
    }
  };
  add(roots);
  const scale = Math.max(0, ...rows.map(({ sum }) => Math.max(sum.nominal, sum.used)));
  const hidden = roots.flatMap(leavesOf).filter((leaf) => !totals(leaf, resource, flavor).any).length;
  return html`
    ${(many || filter !== "") && html`<label class="filter"><${Icon} name="search" /><span class="visually-hidden">Find queues</span><input type="search" placeholder="Find a Cohort or ClusterQueue" value=${filter} onInput=${(event) => setFilter(event.currentTarget.value)} /></label>`}
    <div class="table-box" tabindex="0" role="region" aria-label="Quota tree"><table class="tree">
      <thead><tr><th scope="col">Queue</th><th scope="col" class="wide">${resourceName(resource)}</th><th scope="col" class="number">Used</th><th scope="col" class="number">Nominal</th>
        <th scope="col" class="number opt">Borrowed</th><th scope="col" class="number opt">Lent</th><th scope="col" class="number">Pending</th><th scope="col" class="number opt">Admitted</th></tr></thead>
      <tbody>${rows.map(({ each, sum }) => html`<tr key=${`${each.kind}/${each.name}`} class=${each.kind === "Cohort" ? "cohort" : ""}>
        <th scope="row"><span class=${`tree-name depth-${Math.min(each.depth, 6)}`}>
          ${each.children.length ? html`<button type="button" class="twisty" aria-expanded=${String(isOpen(each))} aria-label=${`${isOpen(each) ? "Close" : "Open"} ${each.name}`} onClick=${() => toggle(each)}><${Icon} name="chevron" /></button>` : html`<span class="twisty"></span>`}
          <span class="tree-queue"><a href=${each.kind === "Cohort" ? cohortLink(each.name) : queueLink(each.name)}><bdi>${each.name}</bdi></a>
          ${each.kind === "ClusterQueue" && each.object.spec.stopPolicy && each.object.spec.stopPolicy !== "None" && html`<${Badge} tone="warn">stopped<//>`}</span>
        </span></th>
        <td class="wide"><${QuotaBar} resource=${resource} totals=${sum} scale=${scale} /></td>
        <td class="number">${shown(resource, sum.used)}</td><td class="number">${shown(resource, sum.nominal)}</td>
        <td class="number opt">${sum.borrowed > 0 ? html`<span class="borrowed">${shown(resource, sum.borrowed)}</span>` : html`<span class="soft">–</span>`}</td>
        <td class="number opt">${sum.lent > 0 ? shown(resource, sum.lent) : html`<span class="soft">–</span>`}</td>
        <td class="number">${each.pending ? count(each.pending) : html`<span class="soft">–</span>`}</td><td class="number opt">${count(each.admitted)}</td>
      </tr>`)}</tbody>
    </table></div>
    ${!rows.length && html`<${Empty} title="Nothing found">No Cohort or ClusterQueue has “${filter}” in its name.<//>`}
    ${hidden > 0 && !filter && html`<p class="soft small">${plural(hidden, "ClusterQueue")} without quota for ${resourceName(resource)} ${hidden === 1 ? "is" : "are"} not shown.</p>`}`;
}

const LISTED = 6;

// Last line of a list of which only the first entries are shown.
const More = ({ of }) => of.length > LISTED && html`<li class="soft">and ${count(of.length - LISTED)} more</li>`;

// Subscriptions whose notifications cannot be delivered.
function undelivered(subscriptions) {
  return subscriptions.map(({ metadata, status }) => ({ key: `${metadata.namespace}/${metadata.name}`, status, condition: status.conditions.find((each) => each.type === "Delivering") }))
    .filter(({ condition }) => condition?.status === "False");
}

function Undelivered({ found }) {
  return html`<h3>Notifications that are not delivered</h3><ul>${found.slice(0, LISTED).map(({ key, status, condition }) => html`<li key=${key}>
    <bdi>${key}</bdi><span class="soft clip" title=${condition.message}>${condition.message}</span><span class="grow"></span><span class="nowrap">${count(status.waitingNotifications)} waiting</span></li>`)}<${More} of=${found} /></ul>`;
}

// Notifications of the user's namespaces that cannot be delivered.
export function NamespaceNotifications() {
  const { namespaces } = useSession();
  const rights = useRights(Object.fromEntries(namespaces.slice(0, 50).map((namespace) => [namespace, { verb: "list", resource: "subscriptions", namespace }])));
  return namespaces.length > 0 && namespaces.every((namespace) => rights[namespace]) && html`<${ReadableNotifications} />`;
}

function ReadableNotifications() {
  const failing = undelivered(useReadable("subscriptions").items);
  return failing.length > 0 && html`<${Card} title="Needs attention" className="attention"><${Undelivered} found=${failing} /><//>`;
}

// Workloads that others were preempted for, and that have not started since.
function InVain({ found }) {
  const now = useNow() / 1000;
  return html`<h3>Preempted in vain</h3><ul>${found.slice(0, LISTED).map((each) => html`<li key=${`${each.namespace}/${each.name}`} class="two">
    <a href=${workloadLink(each.namespace, each.name)}><bdi>${each.name}</bdi></a><span class="soft clip" title=${each.victims.map((victim) => `${victim.namespace}/${victim.name}`).join(", ")}>${plural(each.victims.length, "workload")} stopped, it still waits</span>
    <span class="grow"></span><span class="nowrap">${duration(now - seconds(each.preemptedAt))}</span></li>`)}<${More} of=${found} /></ul>`;
}

// Objects that run without quota although they have a queue label.
function NotQueued({ found }) {
  return html`<h3>Have a queue label, but run without quota</h3><ul>${found.items.slice(0, LISTED).map(({ kind, namespace, name, message }) => html`<li key=${`${kind} ${namespace}/${name}`}>
    <span class="clip" title=${message}>${message}</span></li>`)}<${More} of=${{ length: found.count }} /></ul>`;
}

function AuditDifferences({ audit }) {
  const { rights } = useSession();
  return html`<h3>Audit differences</h3><ul>${audit.differences.map(({ problem, count: number }) => html`<li key=${problem}>
    ${rights.consistency ? html`<a href=${link("audit")}>${problem}</a>` : problem}<span class="grow"></span><${Badge} tone="bad">${count(number)}<//></li>`)}</ul>`;
}

// Workloads of one kind of trouble, by name; `all` is the address of the list of all of them.
function Troubled({ title, found, all }) {
  const now = useNow() / 1000;
  return html`<h3>${title}</h3><ul>${found.items.slice(0, LISTED).map((each) => html`<li key=${`${each.namespace}/${each.name}`} class="two">
    <a href=${workloadLink(each.namespace, each.name)} title=${`${each.namespace}/${each.name}, of ${each.user || "an unknown user"}`}><bdi>${each.name}</bdi></a><span class="soft clip" title=${each.message}>${each.reason === "Failed" ? each.message : shortly(each.message)}</span>
    <span class="grow"></span><span class="nowrap">${duration(now - seconds(each.at))}</span></li>`)}
    ${found.count > LISTED && html`<li><a href=${all}>All ${count(found.count)}</a></li>`}</ul>`;
}

// Flavors with quota of which no node has anything: [{flavor, text}].
function withoutNodes(roots, report) {
  const quotas = quotaByFlavor(roots);
  return (report?.items || []).flatMap(({ flavor, nodes, allocatable }) => {
    const missing = [...(quotas.get(flavor)?.resources || [])].filter(([resource, { nominal }]) => nominal > 0 && !amount(allocatable[resource] || 0));
    return missing.length ? [{ flavor, text: nodes ? `${plural(nodes, "node")} without ${missing.map(([resource]) => resourceName(resource)).join(", ")}` : "no node has its labels" }] : [];
  });
}

// Flavors with more quota than their nodes have: [{flavor, text}]. Many give out more on purpose: nothing is wrong with it.
function shortOfNodes(roots, report) {
  const quotas = quotaByFlavor(roots);
  return (report?.items || []).flatMap(({ flavor, allocatable }) => {
    const over = [...(quotas.get(flavor)?.resources || [])].filter(([resource, { nominal }]) => amount(allocatable[resource] || 0) > 0 && nominal > amount(allocatable[resource]));
    return over.length ? [{ flavor, text: over.map(([resource, { nominal }]) => `quota ${shown(resource, nominal)}, nodes ${shown(resource, amount(allocatable[resource]))} ${resourceName(resource)}`).join("; ") }] : [];
  });
}

const SEARCH = {
  failed: `${link("workloads")}?state=failed&from=1h`, notStarted: `${link("workloads")}?state=running&reason=PodsUnscheduled`,
  impossible: `${link("workloads")}?state=waiting`, evictedAgain: `${link("workloads")}?evicted=again`,
};

function Attention({ roots, leaves, changes }) {
  const { rights } = useSession();
  const more = useAnswer(rights.attention ? "/apis/sluice.dev/v1/reports/attention" : null, {}, { leastMs: 20000, deps: [changes], everyMs: 30000 });
  const subscriptions = useAnswer(rights.subscriptions ? "/apis/sluice.dev/v1/subscriptions" : null, {}, { everyMs: 60000 });
  const report = useAnswer("/apis/sluice.dev/v1/reports/pending", {}, { leastMs: 20000, deps: [changes], everyMs: 30000 });
  const nodes = useAnswer(rights.nodes ? "/apis/sluice.dev/v1/reports/nodes" : null, {}, { everyMs: 60000 });
  const now = useNow() / 1000;
  if (report.error && !report.data) return html`<${Card} title="Needs attention"><${Failure} error=${report.error} /><//>`;
  if (!report.data || [[rights.attention, more], [rights.nodes, nodes], [rights.subscriptions, subscriptions]].some(([may, answer]) => may && !answer.data && !answer.error)) return html`<${Card} title="Needs attention"><${Loading} /><//>`;
  const items = report.data.items, { failed, notStarted, impossible, evictedAgain } = more.data || {};
  const isStopped = (leaf) => leaf.object.status?.conditions?.some((condition) => condition.type === "Active" && condition.status === "False");
  const stopped = leaves.filter(isStopped), shut = new Set(stopped.map((leaf) => leaf.name));
  const suspended = items.filter((item) => item.reason === "Suspended" && item.clusterQueue && !shut.has(item.clusterQueue));
  const oldest = new Map();
  for (const item of items) if (item.clusterQueue && !HOPELESS.has(item.reason) && item.reason !== "Suspended" && !oldest.has(item.clusterQueue)) oldest.set(item.clusterQueue, item);
  const longest = [...oldest.values()].slice(0, LISTED);
  const nowhere = items.filter((item) => !item.clusterQueue);
  const failing = undelivered(subscriptions.data?.items || []);
  const inVain = more.data?.preemptionsInVain || [];
  const differs = more.data?.lastAudit?.differences.length > 0;
  const empty = withoutNodes(roots, nodes.data), short = shortOfNodes(roots, nodes.data);
  const unknown = [more, subscriptions, report].find((answer) => answer.error)?.error;
  const notQueued = more.data?.notQueued;
  const quiet = !notQueued && !failed?.count && !notStarted?.count && !impossible?.count && !evictedAgain?.count && !stopped.length && !suspended.length && !nowhere.length && !failing.length && !inVain.length && !differs && !empty.length
    && !more.data?.webhookFault && !more.data?.standstill;
  return html`<${Card} title="Needs attention" className="attention">
    ${unknown && html`<p class="notice">Not all is known: ${unknown.message}</p>`}
    ${quiet && !unknown && (rights.attention ? html`<${Empty} title="All is well">No queue is stopped, nothing failed in the last hour, and what was admitted has started.<//>`
      : html`<p class="soft">No queue is stopped. You may not see what failed or does not start.</p>`)}
    ${notQueued && html`<${NotQueued} found=${notQueued} />`}
    ${more.data?.webhookFault && html`<h3>The webhooks do not answer</h3><p class="small">${more.data.webhookFault}</p>`}
    ${failed?.count > 0 && html`<${Troubled} title="Failed in the last hour" found=${failed} all=${SEARCH.failed} />`}
    ${notStarted?.count > 0 && html`<${Troubled} title="Admitted, but not started" found=${notStarted} all=${SEARCH.notStarted} />`}
    ${evictedAgain?.count > 0 && html`<${Troubled} title="Evicted again and again" found=${evictedAgain} all=${SEARCH.evictedAgain} />`}
    ${impossible?.count > 0 && html`<${Troubled} title="Can never run as they are" found=${impossible} all=${SEARCH.impossible} />`}
    ${stopped.length > 0 && html`<h3>Admit nothing</h3><ul>${stopped.slice(0, LISTED).map((leaf) => {
      const condition = leaf.object.status.conditions.find((each) => each.type === "Active");
      return html`<li key=${leaf.name} class="two"><a href=${queueLink(leaf.name)}><bdi>${leaf.name}</bdi></a><span class="soft clip" title=${condition.message}>${condition.message}</span><span class="grow"></span>${leaf.pending > 0 && html`<span class="nowrap">${count(leaf.pending)} waiting</span>`}</li>`;
    })}<${More} of=${stopped} /></ul>`}
    ${suspended.length > 0 && html`<h3>LocalQueues that admit nothing</h3><ul>${suspended.slice(0, LISTED).map((item) => html`<li key=${`${item.namespace}/${item.queue}`}><a href=${localQueueLink(item.namespace, item.queue)}><bdi>${item.namespace}/${item.queue}</bdi></a><span class="grow"></span><span class="nowrap">${count(item.count)} waiting</span></li>`)}<${More} of=${suspended} /></ul>`}
    ${inVain.length > 0 && html`<${InVain} found=${inVain} />`}
    ${empty.length > 0 && html`<h3>Quota without nodes</h3><ul>${empty.slice(0, LISTED).map(({ flavor, text }) => html`<li key=${flavor} class="two"><a href=${link("flavors")}><bdi>${flavor}</bdi></a><span class="soft clip">${text}</span></li>`)}<${More} of=${empty} /></ul>`}
    ${short.length > 0 && html`<h3>More quota than nodes</h3><ul>${short.slice(0, LISTED).map(({ flavor, text }) => html`<li key=${flavor} class="two"><a href=${link("flavors")}><bdi>${flavor}</bdi></a><span class="soft clip" title=${text}>${text}</span></li>`)}<${More} of=${short} /></ul>`}
    ${differs && html`<${AuditDifferences} audit=${more.data.lastAudit} />`}
    ${failing.length > 0 && html`<${Undelivered} found=${failing} />`}
    ${nowhere.length > 0 && html`<h3>Queues that lead nowhere</h3><ul>${nowhere.slice(0, LISTED).map((item) => html`<li key=${`${item.namespace}/${item.queue}`}><bdi>${item.namespace}/${item.queue}</bdi><span class="grow"></span>${count(item.count)} waiting</li>`)}<${More} of=${nowhere} /></ul>`}
    ${longest.length > 0 && html`<h3>Wait the longest</h3><ul>${longest.map((item) => html`<li key=${item.clusterQueue}>
      <a href=${queueLink(item.clusterQueue)}><bdi>${item.clusterQueue}</bdi></a><span class="soft clip" title=${item.reason}>${shortReason(item.reason)}</span><span class="grow"></span><span class="nowrap">${duration(now - seconds(item.oldest))}</span></li>`)}</ul>`}
  <//>`;
}

function NoQueues() {
  return html`<${Card}><${Empty} title="There are no ClusterQueues yet">
    <p>A ClusterQueue gives a team quota of CPUs, memory and GPUs; a LocalQueue leads to it in a namespace. Jobs with the label <code>sluice.dev/queue-name</code> wait there until quota is free.</p>
    <pre><code>sluice create flavor default
sluice create clusterqueue team-a --nominal-quota "default:cpu=40;memory=160Gi"
sluice create localqueue batch -n team-a --clusterqueue team-a</code></pre><//><//>`;
}

// Page "Queues": the LocalQueues of those who may not list ClusterQueues.
export function LocalQueues() {
  const session = useSession();
  const queues = useReadable("localqueues");
  const head = html`<${PageHead} title="Queues">${session.namespaces.length > 0 && `LocalQueues of ${session.namespaces.length > 3 ? plural(session.namespaces.length, "namespace") : session.namespaces.join(", ")}`}<//>`;
  if (!session.namespaces.length && !session.everywhere) {
    return html`${head}<${Card}><${Empty} title="There is nothing here that you may see">
      <p>You are signed in as <b><bdi>${session.user}</bdi></b>, who has no role in any namespace with a LocalQueue.</p>
      <p>Ask an administrator for the role <code>view</code> or <code>edit</code> in the namespace of your team, or for <code>sluice-viewer</code> to see all queues. This page shows them when you load it again.</p><//><//>`;
  }
  if (queues.error) return html`${head}<${Failure} error=${queues.error} />`;
  if (!queues.ready) return html`${head}<${Card}><${Loading} /><//>`;
  const sorted = [...queues.items].sort((a, b) => `${a.metadata.namespace}/${a.metadata.name}`.localeCompare(`${b.metadata.namespace}/${b.metadata.name}`));
  if (!sorted.length) return html`${head}<${Card}><${Empty} title="No LocalQueue yet">An administrator creates a LocalQueue in your namespace, which leads to the quota of your team.<//><//>`;
  return html`${head}<div class="queue-cards">${sorted.map((queue) => html`<${LocalQueueCard} key=${queue.metadata.uid} queue=${queue} />`)}</div>`;
}

function LocalQueueCard({ queue }) {
  const { namespace, name } = queue.metadata, { status } = queue;
  const active = status.conditions?.find((condition) => condition.type === "Active");
  return html`<a class="card queue-card" href=${localQueueLink(namespace, name)}>
    <div class="card-head"><h2><bdi>${name}</bdi></h2><p><bdi>${namespace}</bdi> → ClusterQueue <bdi>${queue.spec.clusterQueue}</bdi></p><span class="grow"></span>${active?.status === "False" && html`<${Badge} tone="warn">${active.reason}<//>`}</div>
    <div class="numbers"><span><b>${count(status.pendingWorkloads)}</b> pending</span><span><b>${count(status.admittedWorkloads)}</b> admitted</span></div>
    <ul class="plain">${(status.flavorsUsage || []).flatMap((flavor) => flavor.resources.map((used) => html`<li key=${flavor.name + used.name}><span class="soft">${resourceName(used.name)} (${flavor.name})</span><span class="grow"></span>${shown(used.name, amount(used.total))}</li>`))}${!status.flavorsUsage?.length && html`<li class="soft">Nothing is in use</li>`}</ul>
    ${active?.status === "False" && html`<p class="soft small">${active.message}</p>`}
  </a>`;
}
