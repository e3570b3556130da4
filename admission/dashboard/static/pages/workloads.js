// Tables of workloads, for several pages.
import { Age, Badge, conditionOf, Free, HOPELESS, StateBadge, Time, VirtualTable } from "../lib/components.js";
import { amount, resourceName, shown } from "../lib/format.js";
import { queueLink, workloadLink } from "../lib/router.js";
import { html } from "../lib/ui.js";

const OBSTACLES = [["QuotaReserved", "False"], ["Evicted", "True"], ["Admitted", "False"], ["PodsReady", "False"]];

// The condition that says why a workload does not run, or how it ended; undefined if it runs.
export function obstacleOf(workload) {
  const found = OBSTACLES.map(([type, status]) => workload.status.conditions?.find((each) => each.type === type && each.status === status)).find(Boolean);
  return found || conditionOf(workload, "Finished");
}

// Messages about missing quota begin so (`admission/model/sentences.py`).
const NEEDS = /^Needs (.+?)(?:: less is free|\. It can)/;

// Messages about a pod begin with its name.
const OF_A_POD = /^Its pod \S+ (cannot|does|is)/;

// A message in a few words that end with the number that counts, for tables; the whole one is the title.
export function shortly(message) {
  const found = NEEDS.exec(message ?? "");
  return found ? `needs ${found[1]}` : message?.replace(OF_A_POD, "$1");
}

export function Obstacle({ workload }) {
  const found = obstacleOf(workload);
  if (!found) return html`<span class="soft nothing">–</span>`;
  const isStated = ["admitted", "finished"].includes(workload.status.state) || found.reason.startsWith("Deactivated");  // the badge of its state says the same
  return html`<span class="reason" title=${found.message}>${!isStated && html`<${Badge} tone=${HOPELESS.has(found.reason) ? "bad" : "calm"}>${found.reason}<//> `}<span class="soft"><${Free} text=${shortly(found.message)} longest=${120} /></span></span>`;
}

// Total requests of a workload's pods, or its reserved quota: {resource: amount}.
export function requestsOf(workload) {
  const sums = {};
  const held = workload.status.admission?.podSetAssignments;
  const parts = held ? held.map((each) => [each.resourceUsage, 1]) : workload.spec.podSets.flatMap((each) => [[each.requests, each.count], [each.sharedRequests || {}, 1]]);
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

// A LocalQueue, which breaks behind the namespace if there is little room.
export const QueueName = ({ namespace, name }) => html`<bdi title=${`${namespace}/${name}`}>${namespace}/<wbr />${name}</bdi>`;

export const COLUMNS = {
  name: { name: "Name", className: "main", cell: (workload) => html`<${WorkloadName} workload=${workload} />` },
  namespace: { name: "Namespace", cell: (workload) => html`<bdi title=${workload.metadata.namespace}>${workload.metadata.namespace}</bdi>` },
  queue: { name: "Queue", className: "queue opt", cell: ({ metadata, spec }) => html`<${QueueName} namespace=${metadata.namespace} name=${spec.queueName} />` },
  clusterqueue: { name: "ClusterQueue", cell: (workload) => workload.status.clusterQueue && html`<a href=${queueLink(workload.status.clusterQueue)}><bdi>${workload.status.clusterQueue}</bdi></a>` },
  kind: { name: "Kind", cell: (workload) => workload.spec.object.kind },
  cluster: { name: "Cluster", cell: ({ spec, status }) => html`<bdi>${status.clusterName || spec.cluster || "local"}</bdi>` },
  priority: { name: "Priority", className: "number", cell: (workload) => workload.spec.priority },
  why: { name: "Reason", className: "widest", cell: (workload) => html`<${Obstacle} workload=${workload} />` },
  time: { name: "Time", className: "number when", cell: (workload) => html`<${Elapsed} workload=${workload} />` },
  user: { name: "User", className: "person", cell: (workload) => html`<span title=${workload.spec.user}><${Free} text=${workload.spec.user || "–"} longest=${Infinity} /></span>` },
  state: { name: "State", className: "state", cell: (workload) => html`<${StateBadge} workload=${workload} />` },
  requests: { name: "Requests", className: "wide", cell: (workload) => html`<${Requests} requests=${requestsOf(workload)} />` },
  running: { name: "For", className: "number age", cell: (workload) => html`<${Age} since=${conditionOf(workload, "Admitted")?.lastTransitionTime || conditionOf(workload, "QuotaReserved")?.lastTransitionTime} />` },
  waiting: { name: "Waits", className: "number age", cell: (workload) => html`<${Age} since=${workload.status.queuedAt} />` },
  ended: { name: "Ended", className: "number age", cell: (workload) => html`<${Age} since=${conditionOf(workload, "Finished")?.lastTransitionTime} />` },
};

// How long a workload waits or runs, or when it ended.
function Elapsed({ workload }) {
  const { state, queuedAt } = workload.status, finished = conditionOf(workload, "Finished");
  if (finished) return html`<${Time} at=${finished.lastTransitionTime} />`;
  return state === "pending" ? html`<span class="soft">waits</span> <${Age} since=${queuedAt} />` : html`<span class="soft">for</span> <${Age} since=${(conditionOf(workload, "Admitted") || conditionOf(workload, "QuotaReserved"))?.lastTransitionTime} />`;
}

export function Workloads({ label, items, columns, highest }) {
  return html`<${VirtualTable} label=${label} total=${items.length} rowAt=${(index) => items[index]} keyOf=${(workload) => workload.metadata.uid}
    columns=${columns.map((name) => COLUMNS[name])} highest=${highest} narrowHeight=${columns.includes("why") ? 116 : undefined} />`;
}
