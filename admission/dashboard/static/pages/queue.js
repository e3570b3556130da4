// Pages of a ClusterQueue and of a LocalQueue; the latter is all that users without rights to ClusterQueues can see.
import { path } from "../lib/api.js";
import { QuotaBar, StackedChart } from "../lib/charts.js";
import { Badge, Card, conditionOf, Empty, Facts, Failure, Loading, PageHead, Segments } from "../lib/components.js";
import { amount, count, plural, resourceName, shown } from "../lib/format.js";
import { useAnswer, useCollection } from "../lib/live.js";
import { cohortLink, link, queueLink, useParameter } from "../lib/router.js";
import { useHome, useRights, useSession } from "../lib/session.js";
import { queueNode, resourcesOf, scaleOf } from "../lib/tree.js";
import { html, useMemo, useState } from "../lib/ui.js";
import { eventsOf, INTERVAL, nominalOf, PERIODS, PERIOD_OPTIONS, seriesOf } from "../lib/usage.js";
import { QuotaDialog, RollbackDialog, StopDialog } from "./change.js";
import { FairShare } from "./fairshare.js";
import { History } from "./history.js";
import { Objective } from "./objective.js";
import { Pending } from "./pending.js";
import { Planned } from "./planned.js";
import { Workloads } from "./workloads.js";

export function ClusterQueuePage({ name }) {
  const { rights: session } = useSession();
  const found = useCollection(path("clusterqueues"), { fieldSelector: `metadata.name=${name}` });
  const queue = found.items[0];
  const [dialog, setDialog] = useState(null);
  const close = () => setDialog(null);
  const rights = useRights({
    patch: { verb: "patch", resource: "clusterqueues", name }, history: { verb: "get", resource: "clusterqueues", subresource: "history", name },
    rollback: { verb: "create", resource: "clusterqueues", subresource: "rollback", name },
    pending: { verb: "get", resource: "clusterqueues", subresource: "pendingworkloads", name }, workloads: { verb: "list", resource: "workloads" },
  });
  const crumbs = [{ href: link(), text: "Overview" }];
  if (found.error) return html`<${PageHead} title=${name} crumbs=${crumbs} /><${Failure} error=${found.error} />`;
  if (!found.ready) return html`<${PageHead} title=${name} crumbs=${crumbs} /><${Card}><${Loading} lines=${6} /><//>`;
  if (!queue) return html`<${PageHead} title=${name} crumbs=${crumbs} /><${Card}><${Empty} title="There is no ClusterQueue of this name">It may have been deleted. The <a href=${link()}>overview</a> shows all that there are.<//><//>`;
  const active = queue.status.conditions?.find((condition) => condition.type === "Active");
  return html`<${PageHead} title=${name} crumbs=${crumbs} badge=${html`<${Badge} tone=${active?.status === "True" ? "ok" : "warn"}>${active?.status === "True" ? "Active" : active?.reason}<//>`} actions=${rights.patch && html`<${Actions} queue=${queue} open=${setDialog} />`}>
      ClusterQueue${queue.spec.cohortName && html` in the Cohort ${session.cohorts ? html`<a href=${cohortLink(queue.spec.cohortName)}><bdi>${queue.spec.cohortName}</bdi></a>` : html`<b><bdi>${queue.spec.cohortName}</bdi></b>`}`}, ${queue.spec.queueingStrategy}, ${plural(queue.status.admittedWorkloads, "workload")} admitted, ${count(queue.status.pendingWorkloads)} pending
    <//>
    ${active?.status === "False" && html`<p class="notice">${active.message}</p>`}
    <${Quota} queue=${queue} />
    ${session.usage && html`<${Usage} filters=${{ clusterqueue: name }} resources=${resourcesOf([queueNode(queue)])} groups=${["user", "kind", "workload", "queue", "priority"]} />`}
    <${Tabs} tabs=${[
      rights.pending && { id: "pending", text: `Pending ${count(queue.status.pendingWorkloads)}`, show: () => html`<${Pending} address=${`${path("clusterqueues", name)}/pendingworkloads`} total=${queue.status.pendingWorkloads} changes=${found.version} />` },
      rights.workloads && { id: "running", text: `Running ${count(queue.status.reservingWorkloads)}`, show: () => html`<${Running} address=${path("workloads")} fieldSelector=${`status.clusterQueue=${name},status.state!=pending,status.state!=finished`} columns=${["name", "namespace", "user", "state", "requests", "running"]} />` },
      session.usage && session.clusterQueues && queue.spec.cohortName && { id: "fair", text: "Fair share", show: () => html`<${FairShare} cohort=${queue.spec.cohortName} name=${name} />` },
      queue.spec.objective && session.usage && { id: "objective", text: "Objective", show: () => html`<${Objective} name=${name} />` },
      (queue.spec.calendar || session.reservations) && { id: "planned", text: "Planned", show: () => html`<${Planned} queue=${queue} mayListReservations=${session.reservations} />` },
      rights.history && { id: "history", text: "History", show: () => html`<${History} address=${path("clusterqueues", name)} changes=${queue.metadata.generation} mayRollBack=${rights.rollback}
        onRollback=${(version) => setDialog({ kind: "rollback", version })} />` },
    ]} />
    ${dialog?.kind === "quota" && html`<${QuotaDialog} queue=${queue} onClose=${close} />`}
    ${dialog?.kind === "stop" && html`<${StopDialog} queue=${queue} policy=${dialog.policy} onClose=${close} />`}
    ${dialog?.kind === "rollback" && html`<${RollbackDialog} address=${path("clusterqueues", name)} name=${name} version=${dialog.version} onClose=${close} />`}`;
}

function Actions({ queue, open }) {
  const stopped = queue.spec.stopPolicy && queue.spec.stopPolicy !== "None";
  const stop = (policy, text) => html`<button type="button" class="button" onClick=${() => open({ kind: "stop", policy })}>${text}</button>`;
  return html`<div class="actions"><button type="button" class="button" onClick=${() => open({ kind: "quota" })}>Edit quota</button>
    ${stopped ? stop("None", "Resume") : stop("Hold", "Stop")}${queue.spec.stopPolicy !== "HoldAndDrain" && stop("HoldAndDrain", "Drain")}</div>`;
}

export function LocalQueuePage({ namespace, name }) {
  const { rights: session } = useSession();
  const found = useCollection(path("namespaces", namespace, "localqueues"), { fieldSelector: `metadata.name=${name}` });
  const queue = found.items[0];
  const rights = useRights({
    pending: { verb: "get", resource: "localqueues", subresource: "pendingworkloads", namespace, name }, workloads: { verb: "list", resource: "workloads", namespace },
    history: { verb: "get", resource: "localqueues", subresource: "history", namespace, name }, usage: { verb: "get", resource: "reports", name: "usage", namespace },
  });
  const crumbs = [useHome()];
  if (found.error) return html`<${PageHead} title=${name} crumbs=${crumbs} /><${Failure} error=${found.error} />`;
  if (!found.ready) return html`<${PageHead} title=${name} crumbs=${crumbs} /><${Card}><${Loading} lines=${6} /><//>`;
  if (!queue) return html`<${PageHead} title=${name} crumbs=${crumbs} /><${Card}><${Empty} title="There is no LocalQueue of this name">It may have been deleted. <a href=${crumbs[0].href}>${crumbs[0].text}</a> shows all that there are in your namespaces.<//><//>`;
  const active = queue.status.conditions?.find((condition) => condition.type === "Active");
  const target = session.clusterQueues ? html`<a href=${queueLink(queue.spec.clusterQueue)}><bdi>${queue.spec.clusterQueue}</bdi></a>` : html`<bdi>${queue.spec.clusterQueue}</bdi>`;
  return html`<${PageHead} title=${name} crumbs=${crumbs} badge=${html`<${Badge} tone=${active?.status === "True" ? "ok" : "warn"}>${active?.status === "True" ? "Active" : active?.reason}<//>`}>
      LocalQueue of the namespace <b><bdi>${namespace}</bdi></b>, leads to ${target}<//>
    ${active?.status === "False" && html`<p class="notice">${active.message}${active.reason === "ClusterQueueIsInactive" && html`. What is submitted waits until the ClusterQueue ${target} admits again: it is stopped, or something that it names does not exist.`}</p>`}
    <${Card} title="In use"><${Facts} items=${(queue.status.flavorsUsage || []).flatMap((flavor) => flavor.resources.map((used) => [`${resourceName(used.name)} (${flavor.name})`, shown(used.name, amount(used.total))]))} />
      ${!(queue.status.flavorsUsage || []).length && html`<${Empty} title="Nothing is in use">What the workloads of this queue hold is shown here.<//>`}<//>
    ${rights.usage && html`<${Usage} address=${path("namespaces", namespace, "reports", "usage")} filters=${{ queue: name }} groups=${["user", "kind", "workload", "priority"]} />`}
    <${Tabs} tabs=${[
      rights.pending && { id: "pending", text: `Pending ${count(queue.status.pendingWorkloads)}`, show: () => html`<${Pending} local address=${`${path("namespaces", namespace, "localqueues", name)}/pendingworkloads`} total=${queue.status.pendingWorkloads} changes=${found.version} />` },
      rights.workloads && { id: "running", text: `Running ${count(queue.status.reservingWorkloads)}`, show: () => html`<${Running} address=${path("namespaces", namespace, "workloads")} fieldSelector=${`spec.queueName=${name},status.state!=pending,status.state!=finished`} columns=${["name", "user", "state", "requests", "running"]} />` },
      rights.history && { id: "history", text: "History", show: () => html`<${History} address=${path("namespaces", namespace, "localqueues", name)} changes=${queue.metadata.generation} />` },
    ]} />`;
}

// Tabs; the open one is in the URL.
export function Tabs({ tabs }) {
  const [chosen, setChosen] = useParameter("tab");
  const offered = tabs.filter(Boolean);
  if (!offered.length) return null;
  const open = offered.find((tab) => tab.id === chosen) || offered[0];
  const move = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = offered[(offered.indexOf(open) + step + offered.length) % offered.length];
    setChosen(next.id);
    event.currentTarget.querySelector(`#tab-${next.id}`)?.focus();
  };
  return html`<section class="card tabbed">
    <div class="tabs" role="tablist" onKeyDown=${move}>${offered.map((tab) => html`<button type="button" role="tab" key=${tab.id} id=${`tab-${tab.id}`} aria-selected=${String(tab === open)}
      aria-controls="tab-panel" tabindex=${tab === open ? 0 : -1} onClick=${() => setChosen(tab.id)}>${tab.text}</button>`)}</div>
    <div role="tabpanel" id="tab-panel" aria-labelledby=${`tab-${open.id}`} key=${open.id}>${open.show()}</div>
  </section>`;
}

function Quota({ queue }) {
  const of = useMemo(() => queueNode(queue), [queue]);
  const entries = [...of.quotas.values()];
  if (!entries.length) return html`<${Card} title="Quota"><${Empty} title="No quota">The ClusterQueue has no resource groups, so nothing can be admitted.<//><//>`;
  const limit = (value, resource) => (Number.isFinite(value) ? shown(resource, value) : html`<span class="soft">no limit</span>`);
  return html`<${Card} title="Quota"><div class="table-box" tabindex="0" role="region" aria-label="Quota by flavor"><table>
    <thead><tr><th scope="col">Flavor</th><th scope="col">Resource</th><th scope="col" class="wide opt">Use</th><th scope="col" class="number">Used</th><th scope="col" class="number">Nominal</th><th scope="col" class="number">Borrowed</th>
      <th scope="col" class="number opt">May borrow</th><th scope="col" class="number opt">May lend</th></tr></thead>
    <tbody>${entries.map((entry) => html`<tr key=${entry.flavor + entry.resource}><td><bdi>${entry.flavor}</bdi></td><td>${resourceName(entry.resource)}</td>
      <td class="wide opt"><${QuotaBar} resource=${entry.resource} totals=${entry} scale=${scaleOf(entries, entry.resource)} /></td>
      <td class="number">${shown(entry.resource, entry.used)}</td><td class="number">${shown(entry.resource, entry.nominal)}</td>
      <td class="number">${entry.borrowed ? html`<span class="borrowed">${shown(entry.resource, entry.borrowed)}</span>` : html`<span class="soft">–</span>`}</td>
      <td class="number opt">${limit(queue.spec.cohortName ? (entry.borrowingLimit ?? Infinity) : 0, entry.resource)}</td><td class="number opt">${limit(entry.lendingLimit ?? Infinity, entry.resource)}</td></tr>`)}</tbody>
  </table></div><//>`;
}

// Groups to request: more than are drawn, since each resource has other largest groups.
const MOST = 20;
const GROUPS = {
  user: { text: "User", name: (item) => item.user || "unknown" },
  queue: { text: "LocalQueue", name: (item) => `${item.namespace}/${item.queue}` },
  priority: { text: "Priority", name: (item) => `priority ${item.priority}` },
  kind: { text: "Kind", name: (item) => item.kind || "unknown" },
  workload: { text: "Workload", name: (item) => `${item.namespace}/${item.workload}` },
};

// Chart of usage over time. `resources` to choose from; by default those with usage.
export function Usage({ address = "/apis/sluice.dev/v1/reports/usage", filters, resources: given, groups }) {
  const [period, setPeriod] = useParameter("period", "day");
  const [by, setBy] = useParameter("by", groups[0]);
  const [resource, setResource] = useParameter("resource");
  const chosen = PERIODS[period] || PERIODS.day, group = groups.includes(by) ? by : groups[0];
  const report = useAnswer(address, { from: chosen.from, interval: INTERVAL, by: group, top: MOST, quota: true, ...filters }, { everyMs: 60000 });
  const resources = given || [...new Set((report.data?.items || []).map((item) => item.resource))].sort((a, b) => /gpu/.test(b) - /gpu/.test(a) || a.localeCompare(b)).map((found) => ({ name: found }));
  const selected = (resources.find((each) => each.name === resource) || resources[0])?.name;
  const series = report.data && seriesOf(report.data, selected, GROUPS[group].name);
  return html`<${Card} title="Usage over time" actions=${html`
      <${Segments} label="Resource" value=${selected} onChange=${setResource} options=${resources.map((each) => ({ value: each.name, text: resourceName(each.name) }))} />
      <select aria-label="Divided by" value=${group} onChange=${(event) => setBy(event.currentTarget.value)}>${groups.map((name) => html`<option key=${name} value=${name}>by ${GROUPS[name].text}</option>`)}</select>
      <${Segments} label="Time" options=${PERIOD_OPTIONS} value=${PERIODS[period] ? period : "day"} onChange=${setPeriod} />`}>
    ${report.error && !report.data ? html`<${Failure} error=${report.error} retry=${report.again} />`
      : !series ? html`<${Loading} />`
      : series.series.length ? html`<${StackedChart} label=${`${resourceName(selected)} in use`} times=${series.times} series=${series.series} stepMs=${report.data.intervalSeconds * 1000}
          unit=${resourceName(selected)} line=${nominalOf(report.data, selected)} events=${eventsOf(report.data, selected)} format=${(value) => shown(selected, value)} />`
      : html`<${Empty} title="Nothing was used">In this time no workload held ${resourceName(selected || "quota")}. Choose a longer time or another resource.<//>`}
  <//>`;
}

function Running({ address, fieldSelector, columns }) {
  const found = useCollection(address, { fieldSelector });
  const items = useMemo(() => [...found.items].sort((a, b) => since(a).localeCompare(since(b))), [found.items, found.version]);
  if (found.error) return html`<${Failure} error=${found.error} />`;
  if (!found.ready) return html`<${Loading} />`;
  if (!items.length) return html`<${Empty} title="Nothing runs">Workloads that hold quota are listed here, those that run for longest first.<//>`;
  return html`<${Workloads} label="Running workloads" items=${items} columns=${columns} />`;
}

const since = (workload) => conditionOf(workload, "QuotaReserved")?.lastTransitionTime || "";
