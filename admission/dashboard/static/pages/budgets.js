// Page "Budgets": hours given, spent, reserved and left in the present period, as a tree by parent.
import { path } from "../lib/api.js";
import { BudgetBar } from "../lib/charts.js";
import { Badge, Card, Empty, Failure, Free, Loading, PageHead, Table } from "../lib/components.js";
import { amount, day, fullTime, percent, plural, resourceName, shown } from "../lib/format.js";
import { useAnswer } from "../lib/live.js";
import { useParameter } from "../lib/router.js";
import { html, useMemo } from "../lib/ui.js";

// The leader writes what Budgets have left this often; a watch would not report it.
const EVERY_MS = 10000;
const ALERT = 0.8;

export function Budgets() {
  const [find, setFind] = useParameter("find");
  const found = useAnswer(path("budgets"), {}, { everyMs: EVERY_MS });
  const all = useMemo(() => inOrder(found.data?.items || []), [found.data]);
  const head = html`<${PageHead} title="Budgets">Hours of resources, or money, that may be used in a period<//>`;
  if (found.error && !found.data) return html`${head}<${Failure} error=${found.error} retry=${found.again} />`;
  if (!found.data) return html`${head}<${Card}><${Loading} lines=${6} /><//>`;
  if (!all.length) return html`${head}<${Card}><${Empty} title="There are no Budgets yet"><p>A Budget limits the hours of a resource that a team may use in a month, beside the quota that it may use at the same time.</p>
    <pre><code>apiVersion: sluice.dev/v1${"\n"}kind: Budget${"\n"}metadata: {name: ml}${"\n"}spec:${"\n"}  scope: {namespaces: [team-a]}${"\n"}  resources: [{name: nvidia.com/gpu, hours: 2000}]${"\n"}  period: {every: Month}</code></pre><//><//>`;
  const wanted = find.toLowerCase();
  const rows = all.filter(({ object }) => object.metadata.name.toLowerCase().includes(wanted));
  return html`${head}
    <div class="filters"><input type="search" aria-label="Find a Budget" placeholder="Find a Budget" value=${find} onInput=${(event) => setFind(event.currentTarget.value)} /></div>
    <${Card} title="Present periods" note=${plural(rows.length, "Budget")}>
      <div class="table-box" tabindex="0" role="region" aria-label="Budgets"><table class="tree">
        <thead><tr><th scope="col">Budget</th><th scope="col">Resource</th><th scope="col" class="wide">Use</th><th scope="col" class="number opt">Spent</th><th scope="col" class="number opt">Reserved</th>
          <th scope="col" class="number">Left</th><th scope="col" class="number">Hours</th><th scope="col" class="number opt">Ends</th></tr></thead>
        <tbody>${rows.map((row) => html`<${Rows} key=${row.object.metadata.uid} ...${row} />`)}</tbody>
      </table></div>
      ${rows.length ? html`<p class="legend tree-legend"><span><i class="swatch bar-used"></i>spent</span><span><i class="swatch bar-lent"></i>reserved</span><span><i class="swatch bar-track"></i>left</span><span><i class="swatch bar-borrowed"></i>overdrawn</span>
        <span class="soft">Each bar is the whole Budget. Reserved is what running workloads may still use until their time limits.</span></p>`
        : html`<${Empty} title="Nothing found">No Budget has “${find}” in its name.<//>`}
    <//>
    <${Requests} />`;
}

// Requests for more hours that nobody has answered.
function Requests() {
  const found = useAnswer(path("budgetrequests"), {}, { everyMs: 60000 });
  const open = (found.data?.items || []).filter((each) => each.status.phase === "Open");
  if (!open.length) return null;
  return html`<${Card} title="Requests for more hours" note=${plural(open.length, "request")}>
    <${Table} label="Open requests" rows=${open} keyOf=${(each) => each.metadata.uid} columns=${[
      { name: "Request", cell: ({ metadata }) => html`<bdi>${metadata.namespace}/${metadata.name}</bdi>` },
      { name: "Budget", cell: ({ spec }) => html`<bdi>${spec.budget}</bdi>` },
      { name: "Hours", className: "number", cell: ({ spec }) => shown(spec.resource, amount(spec.hours)) },
      { name: "Resource", className: "opt", cell: ({ spec }) => resourceName(spec.resource) },
      { name: "For", className: "opt", cell: ({ spec }) => spec.day },
      { name: "Reason", cell: ({ spec }) => html`<${Free} text=${spec.reason} longest=${200} />` }]} />
    <p class="small soft">Answer one with <code>sluice budget grant BUDGET HOURS --request NAMESPACE/NAME --reason "..."</code>; 0 hours decline it.</p>
  <//>`;
}

// One row for each resource of a Budget; the first one has the name.
function Rows({ object: { metadata, spec, status }, depth }) {
  const resources = status?.resources || [], known = Boolean(status?.period);
  const lines = known ? resources : spec.resources;
  return lines.map((each, index) => {
    const [hours, spent, reserved, left] = ["hours", "spent", "reserved", "left"].map((field) => amount((field === "hours" ? each.hours ?? each.amount : each[field]) || 0));
    return html`<tr key=${index}>
      ${index === 0 && html`<th scope="row" rowspan=${lines.length}><span class=${`tree-name depth-${Math.min(depth, 6)}`}><span class="tree-queue"><b><bdi>${metadata.name}</bdi></b>
        <${Alert} spec=${spec} resources=${known ? resources : []} /><span class="small soft">${periodOf(spec.period)}; ${scopeOf(spec)}</span></span></span></th>`}
      <td>${resourceName(each.name)}${each.flavors?.length > 0 && html` <span class="small soft"><bdi>${each.flavors.join(", ")}</bdi></span>`}</td>
      ${known ? html`<td class="wide"><${BudgetBar} resource=${each.name} hours=${hours} spent=${spent} reserved=${reserved} /></td>
        <td class="number opt">${shown(each.name, spent)}</td><td class="number opt">${reserved > 0 ? shown(each.name, reserved) : html`<span class="soft">–</span>`}</td>
        <td class="number">${left < 0 ? html`<span class="borrowed">−${shown(each.name, -left)}</span>` : shown(each.name, left)}</td>` : html`<td class="wide soft">not counted yet</td><td class="opt"></td><td class="opt"></td><td></td>`}
      <td class="number">${shown(each.name, hours)}</td>
      <td class="number opt">${known && !spec.period.lastDays ? html`<time datetime=${status.period.end} title=${fullTime(status.period.end)}>${day(Date.parse(status.period.end))}</time>` : html`<span class="soft">–</span>`}</td>
    </tr>`;
  });
}

function Alert({ spec, resources }) {
  const used = Math.max(0, ...resources.map((each) => (amount(each.hours) > 0 ? 1 - amount(each.left) / amount(each.hours) : 1)));
  if (used >= 1) return html`<${Badge} tone=${spec.action === "Warn" ? "warn" : "bad"}>${spec.action === "Warn" ? "used up, only counted" : "used up"}<//>`;
  return used >= ALERT && html`<${Badge} tone="warn">${percent(used, 1)} used<//>`;
}

const PERIODS = { Day: "each day", Month: "each month", Quarter: "each quarter", Year: "each year" };

const periodOf = (period) => PERIODS[period.every] || (period.lastDays ? `last ${plural(period.lastDays, "day")}` : `${period.firstDay} to ${period.lastDay}`);

const LISTS = [["clusterQueues", "ClusterQueue"], ["cohorts", "Cohort"], ["namespaces", "namespace"], ["users", "user"], ["groups", "group"]];
const NAMED = 2;

// Which workloads are charged.
function scopeOf({ scope }) {
  if (!scope) return "what its parts charge";
  const lists = LISTS.filter(([field]) => scope[field]?.length);
  if (!lists.length) return "all workloads";
  return lists.map(([field, word], index) => html`${index > 0 && ", "}${scope[field].length > NAMED ? plural(scope[field].length, word) : html`${word} <bdi>${scope[field].join(", ")}</bdi>`}`);
}

// Returns [{object, depth}]: parents before their parts, and these by name.
function inOrder(budgets) {
  const known = new Set(budgets.map((each) => each.metadata.name)), parts = new Map();
  for (const each of [...budgets].sort((a, b) => a.metadata.name.localeCompare(b.metadata.name))) {
    const parent = known.has(each.spec.parent) ? each.spec.parent : "";
    parts.set(parent, [...(parts.get(parent) || []), each]);
  }
  const below = (name, depth) => (parts.get(name) || []).flatMap((object) => [{ object, depth }, ...below(object.metadata.name, depth + 1)]);
  return below("", 0);
}
