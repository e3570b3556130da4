// What is planned for a ClusterQueue: changes of quota by its calendar, and Reservations.
import { path } from "../lib/api.js";
import { Badge, Empty, Failure, Loading, Time } from "../lib/components.js";
import { amount, plural, resourceName, shown } from "../lib/format.js";
import { useAnswer } from "../lib/live.js";
import { html } from "../lib/ui.js";

const TONES = { Active: "ok", Pending: "info", Ended: "", Released: "" };

export function Planned({ queue, mayListReservations }) {
  const { name } = queue.metadata;
  return html`${queue.spec.calendar && html`<${Calendar} name=${name} version=${queue.metadata.generation} />`}
    ${mayListReservations && html`<${Reservations} queue=${name} />`}`;
}

function Calendar({ name, version }) {
  const found = useAnswer(`${path("clusterqueues", name)}/calendar`, { limit: 10 }, { deps: [version] });
  if (found.error && !found.data) return html`<${Failure} error=${found.error} retry=${found.again} />`;
  if (!found.data) return html`<${Loading} />`;
  const { changes, impact } = found.data;
  const evicted = impact?.counts.evicted || 0;
  return html`<h3>Quota by the calendar</h3>
    ${changes.length ? html`<div class="table-box" tabindex="0" role="region" aria-label="Coming changes of quota"><table>
      <thead><tr><th scope="col">When</th><th scope="col">Quota</th><th scope="col" class="number">From</th><th scope="col" class="number">To</th><th scope="col">Entry</th></tr></thead>
      <tbody>${changes.flatMap(({ at, quotas }) => quotas.map((each) => html`<tr key=${`${at} ${each.flavor} ${each.resource}`}>
        <th scope="row"><${Time} at=${at} /></th><td>${resourceName(each.resource)} <span class="small soft"><bdi>${each.flavor}</bdi></span></td>
        <td class="number">${shown(each.resource, amount(each.from))}</td><td class="number">${shown(each.resource, amount(each.to))}</td>
        <td>${each.entry ? html`<bdi>${each.entry}</bdi>` : html`<span class="soft">as usual</span>`}</td></tr>`))}</tbody></table></div>
      ${evicted > 0 && html`<p class="notice">The next change would evict ${plural(evicted, "workload")} of those that run now.</p>`}`
      : html`<${Empty} title="No change is coming">No entry of the calendar begins or ends within a year.<//>`}`;
}

function Reservations({ queue }) {
  const found = useAnswer(path("reservations"), { fieldSelector: `spec.clusterQueue=${queue}` }, { everyMs: 30000 });
  if (found.error && !found.data) return html`<${Failure} error=${found.error} retry=${found.again} />`;
  if (!found.data) return html`<${Loading} />`;
  const items = [...found.data.items].sort((a, b) => a.spec.start.localeCompare(b.spec.start));
  return html`<h3>Reservations</h3>
    ${items.length ? html`<div class="table-box" tabindex="0" role="region" aria-label="Reservations"><table>
      <thead><tr><th scope="col">Reservation</th><th scope="col">Keeps</th><th scope="col">For</th><th scope="col">From</th><th scope="col">To</th></tr></thead>
      <tbody>${items.map(({ metadata, spec, status }) => html`<tr key=${metadata.uid}>
        <th scope="row"><b><bdi>${metadata.name}</bdi></b> <${Badge} tone=${TONES[status.phase]}>${status.phase.toLowerCase()}<//></th>
        <td>${spec.quotas.map((each, index) => html`${index > 0 && ", "}${shown(each.resource, amount(each.amount))} ${resourceName(each.resource)} <span class="small soft"><bdi>${each.flavor}</bdi></span>`)}${spec.topology && html`<br /><span class="small soft"><bdi>${spec.topology.domains?.join(", ") || `${spec.topology.count || 1} of ${spec.topology.level}`}</bdi></span>`}</td>
        <td>${holdersOf(spec.holders)}</td><td><${Time} at=${status.start} /></td><td><${Time} at=${status.end} /></td></tr>`)}</tbody></table></div>`
      : html`<${Empty} title="No Reservations">A Reservation keeps quota of this queue for some of its workloads for a time: <code>sluice reserve</code>.<//>`}`;
}

const LISTS = [["users", "user"], ["namespaces", "namespace"], ["localQueues", "LocalQueue"]];

function holdersOf(holders) {
  const lists = LISTS.filter(([field]) => holders?.[field]?.length);
  if (!lists.length) return "all workloads of the queue";
  return lists.map(([field, word], index) => html`${index > 0 && ", "}${word} <bdi>${holders[field].join(", ")}</bdi>`);
}
