// Page "Usage": chart and table of usage by group, and CSV export.
import { serverNow } from "../lib/api.js";
import { StackedChart } from "../lib/charts.js";
import { Card, Empty, Failure, Loading, PageHead, Segments, Table } from "../lib/components.js";
import { hours, hoursName, percent, plural, resourceName, shown } from "../lib/format.js";
import { useAnswer } from "../lib/live.js";
import { queueLink, useParameter, workloadLink } from "../lib/router.js";
import { useSession } from "../lib/session.js";
import { html, useMemo } from "../lib/ui.js";
import { INTERVAL, knownSeconds, nameIn, seriesOf } from "../lib/usage.js";

const GROUPS = {
  clusterqueue: { text: "ClusterQueue", name: (item) => item.clusterQueue, link: (item) => queueLink(item.clusterQueue), clusterQueues: true },
  queue: { text: "LocalQueue", name: (item) => `${item.namespace}/${item.queue}` },
  user: { text: "User", name: (item) => item.user || "unknown" },
  namespace: { text: "Namespace", name: (item) => item.namespace },
  flavor: { text: "Flavor", name: (item) => item.flavor },
  priority: { text: "Priority", name: (item) => `priority ${item.priority}` },
  kind: { text: "Kind", name: (item) => item.kind || "unknown", kept: true },
  workload: { text: "Workload", name: (item) => `${item.namespace}/${item.workload}`, link: (item) => workloadLink(item.namespace, item.workload), kept: true },
};
// Most groups in the table; the report sums up the others.
const MOST = 100;
const DAYS = 86400;
const PAST = [["1d", "Day"], ["7d", "Week"], ["30d", "30 days"], ["90d", "90 days"], ["365d", "Year"]];
const RELATIVE = /^(\d{1,6})([mhdw])$/;
const UNITS = { m: 60, h: 3600, d: DAYS, w: 7 * DAYS };

// End of the report for the date in the field "To": that day is included. Other times (in links) are kept.
function endOf(to) {
  const midnight = /^\d{4}-\d\d-\d\d$/.test(to) ? Date.parse(to) : NaN;
  return Number.isFinite(midnight) && midnight < Date.parse("9999-12-31") ? new Date(midnight + DAYS * 1000).toISOString().slice(0, 10) : to;
}

function lengthOf(from, to) {
  const at = (text) => {
    const relative = RELATIVE.exec(text);
    return relative ? serverNow() / 1000 - relative[1] * UNITS[relative[2]] : Date.parse(text) / 1000;
  };
  return (to ? at(to) : serverNow() / 1000) - at(from);
}

// `address`: URL of the report: of the cluster, of a namespace, or of the user's own workloads.
export function UsageReport() {
  const { rights, namespaces } = useSession();
  const [by, setBy] = useParameter("by", rights.usage ? "clusterqueue" : "queue");
  const [from, setFrom] = useParameter("from", "30d");
  const [to, setTo] = useParameter("to");
  const end = endOf(to);
  const [resource, setResource] = useParameter("resource");
  const [user, setUser] = useParameter("user");
  const [of, setOf] = useParameter("of", rights.usage ? "" : "mine");
  const group = GROUPS[by] || GROUPS.clusterqueue;
  const length = lengthOf(from, end);
  const address = of === "mine" ? "/apis/sluice.dev/v1/reports/mine" : of ? `/apis/sluice.dev/v1/namespaces/${encodeURIComponent(of)}/reports/usage` : "/apis/sluice.dev/v1/reports/usage";
  const report = useAnswer(address, { from, to: end, by: GROUPS[by] ? by : "clusterqueue", interval: INTERVAL, user, top: MOST });
  const resources = useMemo(() => [...new Set((report.data?.items || []).map((item) => item.resource))].sort((a, b) => /gpu/.test(b) - /gpu/.test(a) || a.localeCompare(b)), [report.data]);
  const selected = resources.includes(resource) ? resource : resources[0];
  const series = report.data && selected && seriesOf(report.data, selected, group.name);
  const rows = useMemo(() => rowsOf(report.data, selected, group), [report.data, selected, by]);
  const late = report.data && length - knownSeconds(report.data) > report.data.intervalSeconds + 60;
  const total = rows.reduce((sum, row) => sum + row.all, 0);
  return html`<${PageHead} title="Usage" actions=${rows.length > 0 && html`<button type="button" class="button" onClick=${() => download(rows, selected, group.text, report.data)}>Download CSV</button>`}>
      What was held, for how long: from the ledger, to the second<//>
    <div class="filters" role="group" aria-label="Report">
      <label>Of <select value=${of} onChange=${(event) => setOf(event.currentTarget.value)}>${rights.usage && html`<option value="">everybody</option>`}<option value="mine">my own work</option>
        ${namespaces.slice(0, 200).map((namespace) => html`<option key=${namespace} value=${namespace}>namespace ${namespace}</option>`)}</select></label>
      <label>By <select value=${by} onChange=${(event) => setBy(event.currentTarget.value)}>${Object.entries(GROUPS).map(([value, { text }]) => html`<option key=${value} value=${value}>${text}</option>`)}</select></label>
      <${Segments} label="Time" value=${to ? "" : from} onChange=${(value) => { setTo(""); setFrom(value); }} options=${PAST.map(([value, text]) => ({ value, text }))} />
      ${user && html`<button type="button" class="button" aria-label=${`Not only user ${user}`} onClick=${() => setUser("")}>user <bdi>${user}</bdi> ×</button>`}
      <span class="dates" title="Whole days, which begin at 0:00 UTC"><label>From <input type="date" value=${RELATIVE.test(from) ? "" : from} onChange=${(event) => setFrom(event.currentTarget.value || "30d")} /></label>
      <label>To <input type="date" value=${to} onChange=${(event) => setTo(event.currentTarget.value)} /></label></span>
    </div>
    <${Card} title=${selected ? resourceName(selected) : "Usage"} note=${rows.length > 0 && "In use, on average; below, hours of it"} actions=${resources.length > 1 && html`<${Segments} label="Resource" value=${selected} onChange=${setResource} options=${resources.map((each) => ({ value: each, text: resourceName(each) }))} />`}>
      ${report.error && !report.data ? html`<${Failure} error=${report.error} retry=${report.again} />` : !report.data ? html`<${Loading} lines=${5} />`
        : !rows.length ? html`<${Empty} title="Nothing was used in this time">Workloads are counted from their admission until their last pod is gone. Choose a longer time.<//>`
        : html`<${StackedChart} label=${`${resourceName(selected)} in use`} times=${series.times} series=${series.series} stepMs=${report.data.intervalSeconds * 1000} format=${(value) => shown(selected, value)} />
          <${Table} label="Usage" rows=${rows} keyOf=${(row) => row.name} columns=${[
            { name: group.text, cell: (row) => (row.link && (rights.clusterQueues || !group.clusterQueues) ? html`<a href=${row.link}><bdi class="free">${row.name}</bdi></a>` : html`<bdi class="free">${row.name}</bdi>`) },
            { name: hoursName(selected), className: "number", cell: (row) => hours(selected, row.all) },
            { name: "Within quota", className: "number opt", cell: (row) => hours(selected, row.nominal) },
            { name: "Borrowed", className: "number", cell: (row) => (row.borrowed ? html`<span class="borrowed">${hours(selected, row.borrowed)}</span>` : html`<span class="soft">–</span>`) },
            { name: "Share", className: "number", cell: (row) => percent(row.all, total) },
          ]} /><p class="soft small table-note">${plural(rows.length, "row")}, ${hours(selected, total)} ${hoursName(selected)} in all.</p>`}
      ${late && html`<p class="soft small table-note">${group.kept ? `By ${group.text.toLowerCase()}, usage is known since ${report.data.from.slice(0, 10)}: as long as finished workloads are kept.` : `Usage is known since ${report.data.from.slice(0, 16).replace("T", " ")} UTC.`}</p>`}
    <//>`;
}

function rowsOf(report, resource, group) {
  const found = new Map();
  for (const item of report?.items || []) {
    if (item.resource !== resource) continue;
    const name = nameIn(item, group.name);
    const row = found.get(name) || { name, all: 0, nominal: 0, borrowed: 0, others: item.others, link: item.others || !group.link ? "" : group.link(item) };
    row.all += item.amountSeconds;
    row.nominal += item.nominalSeconds;
    row.borrowed += item.borrowedSeconds;
    found.set(name, row);
  }
  return [...found.values()].sort((a, b) => !!a.others - !!b.others || b.all - a.all);
}

// Escapes cells that spreadsheets would evaluate as formulas.
const cell = (value) => {
  const text = String(value);
  const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
};

function download(rows, resource, group, report) {
  const unit = hoursName(resource).toLowerCase();
  const scale = 3600 * (/memory|storage/.test(resource) ? 2 ** 30 : 1);
  const lines = [[group, "from", "to", unit, `${unit} within quota`, `${unit} borrowed`],
    ...rows.map((row) => [row.name, report.from, report.to, row.all / scale, row.nominal / scale, row.borrowed / scale])];
  const url = URL.createObjectURL(new Blob([`${lines.map((line) => line.map(cell).join(",")).join("\r\n")}\r\n`], { type: "text/csv" }));
  const anchor = document.createElement("a");
  anchor.href = url;
  anchor.download = `sluice-usage-${resourceName(resource).toLowerCase()}.csv`;
  anchor.click();
  URL.revokeObjectURL(url);
}
