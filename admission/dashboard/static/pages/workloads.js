// Tables of workloads, for several pages.
import { Age, Free, StateBadge, VirtualTable } from "../lib/components.js";
import { amount, resourceName, shown } from "../lib/format.js";
import { workloadLink } from "../lib/router.js";
import { html } from "../lib/ui.js";

export function conditionOf(workload, type) {
  return workload.status.conditions?.find((condition) => condition.type === type);
}

// Total requests of a workload's pods, or its reserved quota: {resource: amount}.
export function requestsOf(workload) {
  const sums = {};
  const held = workload.status.admission?.podSetAssignments;
  const parts = held ? held.map((each) => [each.resourceUsage, 1]) : workload.spec.podSets.map((each) => [each.requests, each.count]);
  for (const [quantities, times] of parts) {
    for (const [resource, quantity] of Object.entries(quantities)) sums[resource] = (sums[resource] || 0) + amount(quantity) * times;
  }
  return sums;
}

export function Requests({ requests }) {
  const entries = Object.entries(requests);
  return html`<span class="requests">${entries.length ? entries.map(([resource, value]) => html`<span key=${resource}><b>${shown(resource, value)}</b> ${resourceName(resource)}</span>`) : "–"}</span>`;
}

export const WorkloadName = ({ workload }) => html`<a class="name" title=${workload.spec.object.name} href=${workloadLink(workload.metadata.namespace, workload.spec.object.name)}><bdi>${workload.spec.object.name}</bdi></a>`;

const COLUMNS = {
  name: { name: "Name", className: "main", cell: (workload) => html`<${WorkloadName} workload=${workload} />` },
  namespace: { name: "Namespace", cell: (workload) => html`<bdi title=${workload.metadata.namespace}>${workload.metadata.namespace}</bdi>` },
  queue: { name: "Queue", cell: (workload) => html`<bdi title=${workload.spec.queueName}>${workload.spec.queueName}</bdi>` },
  user: { name: "User", cell: (workload) => html`<span title=${workload.spec.user}><${Free} text=${workload.spec.user || "–"} longest=${Infinity} /></span>` },
  state: { name: "State", cell: (workload) => html`<${StateBadge} workload=${workload} />` },
  requests: { name: "Requests", className: "wide", cell: (workload) => html`<${Requests} requests=${requestsOf(workload)} />` },
  running: { name: "For", className: "number age", cell: (workload) => html`<${Age} since=${conditionOf(workload, "Admitted")?.lastTransitionTime || conditionOf(workload, "QuotaReserved")?.lastTransitionTime} />` },
  waiting: { name: "Waits", className: "number age", cell: (workload) => html`<${Age} since=${workload.status.queuedAt} />` },
  ended: { name: "Ended", className: "number age", cell: (workload) => html`<${Age} since=${conditionOf(workload, "Finished")?.lastTransitionTime} />` },
};

export function Workloads({ label, items, columns, highest }) {
  return html`<${VirtualTable} label=${label} total=${items.length} rowAt=${(index) => items[index]} keyOf=${(workload) => workload.metadata.uid}
    columns=${columns.map((name) => COLUMNS[name])} highest=${highest} />`;
}
