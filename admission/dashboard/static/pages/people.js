// Page "Users and namespaces": running and pending workloads now, and recent usage, of each.
import { path } from "../lib/api.js";
import { Card, Empty, Failure, Free, Loading, PageHead, Segments, Table } from "../lib/components.js";
import { count, hours, hoursName, percent, resourceName } from "../lib/format.js";
import { useAnswer } from "../lib/live.js";
import { link, useParameter } from "../lib/router.js";
import { html, useMemo } from "../lib/ui.js";

const PERIODS = [{ value: "1d", text: "Day" }, { value: "7d", text: "Week" }, { value: "30d", text: "30 days" }];

export function People() {
  const [from, setFrom] = useParameter("from", "7d");
  const [find, setFind] = useParameter("find");
  const used = useAnswer("/apis/sluice.dev/v1/reports/usage", { from, by: "user,namespace" }, { everyMs: 60000 });
  const pending = useAnswer("/apis/sluice.dev/v1/reports/pending", {}, { everyMs: 15000 });
  const pendingUsers = useAnswer("/apis/sluice.dev/v1/reports/pending", { by: "user" }, { everyMs: 15000 });
  const resources = useMemo(() => [...new Set((used.data?.items || []).map((item) => item.resource))].sort((a, b) => /gpu/.test(b) - /gpu/.test(a) || a.localeCompare(b)).slice(0, 2), [used.data]);
  const wanted = find.toLowerCase();
  const users = useMemo(() => withPending(sums(used.data, (item) => item.user), pendingUsers.data, (item) => item.user), [used.data, pendingUsers.data]);
  const namespaces = useMemo(() => withPending(sums(used.data, (item) => item.namespace), pending.data, (item) => item.namespace), [used.data, pending.data]);
  const head = html`<${PageHead} title="Users and namespaces">What they used, and how many of their workloads wait<//>`;
  const error = used.error || pending.error || pendingUsers.error;
  if (error && !used.data) return html`${head}<${Failure} error=${error} retry=${used.again} />`;
  if (!used.data) return html`${head}<${Card}><${Loading} lines=${6} /><//>`;
  const sorted = (rows) => [...rows.values()].filter((row) => row.name.toLowerCase().includes(wanted)).sort((a, b) => (b.by[resources[0]] || 0) - (a.by[resources[0]] || 0) || b.pending - a.pending || a.name.localeCompare(b.name)).slice(0, 500);
  const amounts = resources.map((resource) => ({ name: hoursName(resource), className: "number", cell: (row) => (row.by[resource] ? hours(resource, row.by[resource]) : html`<span class="soft">–</span>`) }));
  const waiting = { name: "Pending", className: "number", cell: (row) => (row.pending ? count(row.pending) : html`<span class="soft">–</span>`) };
  const people = sorted(users), spaces = sorted(namespaces), [first] = resources;
  // Of all usage, which both tables divide.
  const whole = [...namespaces.values()].reduce((sum, row) => sum + (row.by[first] || 0), 0);
  const share = first ? [{ name: `Share of ${resourceName(first)}`, className: "number opt", cell: (row) => percent(row.by[first] || 0, whole) }] : [];
  return html`${head}<div class="filters"><input type="search" aria-label="Find a user or namespace" placeholder="User or namespace" value=${find} onInput=${(event) => setFind(event.currentTarget.value)} />
      <${Segments} label="Time" value=${from} onChange=${setFrom} options=${PERIODS} /></div>
    <div class="columns-two">
      <${Card} title="Users" note=${count(people.length)}>${people.length ? html`<${Table} label="Usage of each user" rows=${people} keyOf=${(row) => row.name} columns=${[
        { name: "User", className: "subject", cell: (row) => html`<a href=${`${link("usage")}?by=queue&user=${encodeURIComponent(row.name)}`}><${Free} text=${row.name} longest=${80} /></a>` }, waiting, ...amounts, ...share]} />`
        : html`<${Empty} title="Nobody">No user used quota in this time, and nobody waits.<//>`}<//>
      <${Card} title="Namespaces" note=${count(spaces.length)}>${spaces.length ? html`<${Table} label="Usage of each namespace" rows=${spaces} keyOf=${(row) => row.name} columns=${[
        { name: "Namespace", cell: (row) => html`<a href=${`${link("usage")}?by=user&of=${encodeURIComponent(row.name)}`}><bdi>${row.name}</bdi></a>` }, waiting, ...amounts, ...share]} />`
        : html`<${Empty} title="None">No namespace used quota in this time, and nothing waits.<//>`}<//>
    </div>
    <${Limits} />`;
}

// UserLimits: who may have how much running and waiting.
function Limits() {
  const found = useAnswer(path("userlimits"), {}, { everyMs: 60000 });
  const limits = found.data?.items || [];
  if (!limits.length) return null;
  return html`<${Card} title="Limits of people" note=${count(limits.length)}>
    <${Table} label="UserLimits" rows=${limits} keyOf=${(each) => each.metadata.uid} columns=${[
      { name: "UserLimit", cell: ({ metadata }) => html`<bdi>${metadata.name}</bdi>` },
      { name: "For", cell: ({ spec }) => html`<${Free} text=${whose(spec)} longest=${120} />` },
      { name: "In", className: "opt", cell: ({ spec }) => (spec.clusterQueue ? html`<bdi>${spec.clusterQueue}</bdi>` : "all ClusterQueues") },
      ...["running", "pending", "submitted"].map((field) => ({ name: field[0].toUpperCase() + field.slice(1), className: "number", cell: ({ spec }) => (field in spec ? count(spec[field]) : html`<span class="soft">–</span>`) })),
      { name: "Resources", className: "opt", cell: ({ spec }) => Object.entries(spec.resources || {}).map(([name, most]) => `${resourceName(name)} ${most}`).join(", ") }]} />
  <//>`;
}

function whose({ users = [], groups = [], together }) {
  const names = [...users, ...groups.map((name) => `group ${name}`)].join(", ") || "everybody";
  return together ? `${names}, together` : `${names}, each`;
}

function sums(report, nameOf) {
  const found = new Map();
  for (const item of report?.items || []) {
    const row = rowOf(found, nameOf(item));
    row.by[item.resource] = (row.by[item.resource] || 0) + item.amountSeconds;
  }
  return found;
}

function withPending(rows, report, nameOf) {
  for (const item of report?.items || []) rowOf(rows, nameOf(item)).pending += item.count;
  return rows;
}

function rowOf(rows, name) {
  const key = name || "unknown";
  if (!rows.has(key)) rows.set(key, { name: key, by: {}, pending: 0 });
  return rows.get(key);
}
