// Page "Usage": chart and table of usage by group, for some time or a month of the calendar, with quota; and CSV export.
import { serverNow } from "../lib/api.js";
import { StackedChart } from "../lib/charts.js";
import { Card, Empty, Failure, Loading, PageHead, Segments, Table } from "../lib/components.js";
import { amount, fullTime, hours, hoursName, percent, plural, resourceName, shown } from "../lib/format.js";
import { useAnswer } from "../lib/live.js";
import { queueLink, useParameter, workloadLink } from "../lib/router.js";
import { useSession } from "../lib/session.js";
import { compareResources } from "../lib/tree.js";
import { html, useMemo } from "../lib/ui.js";
import { eventsOf, INTERVAL, knownSeconds, nameIn, nominalOf, seriesOf } from "../lib/usage.js";

// `quota`: each group has quota, as the report says.
const GROUPS = {
  clusterqueue: { text: "ClusterQueue", name: (item) => item.clusterQueue, link: (item) => queueLink(item.clusterQueue), clusterQueues: true, quota: true },
  queue: { text: "LocalQueue", name: (item) => `${item.namespace}/${item.queue}`, quota: true },
  user: { text: "User", name: (item) => item.user || "unknown" },
  namespace: { text: "Namespace", name: (item) => item.namespace, quota: true },
  label: { text: "Label", name: (item) => Object.values(item.labels)[0] || "none", quota: true },
  flavor: { text: "Flavor", name: (item) => item.flavor, quota: true },
  priority: { text: "Priority", name: (item) => `priority ${item.priority}` },
  kind: { text: "Kind", name: (item) => item.kind || "unknown", kept: true },
  cluster: { text: "Cluster", name: (item) => item.cluster || "unknown", kept: true },
  workload: { text: "Workload", name: (item) => `${item.namespace}/${item.workload}`, link: (item) => workloadLink(item.namespace, item.workload), kept: true },
};
// Most groups in the table, of which the report sums up the others if they have no quota; and most of the chart.
const MOST = 100;
const MOST_DRAWN = 20;
const MOST_COLUMNS = 4;
// Groups of which it may be known what they used.
const MEASURED = ["clusterqueue", "queue", "user", "namespace", "flavor", "kind", "workload"];
const COSTS = ["clusterqueue", "queue", "user", "namespace", "label"];
const DAYS = 86400;
const PAST = [["1d", "Day"], ["7d", "Week"], ["30d", "30 days"], ["90d", "90 days"], ["365d", "Year"]];
export const RELATIVE = /^(\d{1,6})([mhdw])$/;
const MONTH = /^\d{4}-\d\d$/;
const UNITS = { m: 60, h: 3600, d: DAYS, w: 7 * DAYS };

// End of the report for the date in the field "To": that day is included. Other times (in links) are kept.
export function endOf(to) {
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

// The last twelve months, and the quarters that they are in, of the calendar.
function calendar(timezone) {
  const parts = new Intl.DateTimeFormat("en-CA", { year: "numeric", month: "2-digit", ...zoneOption(timezone) }).formatToParts(serverNow());
  const [year, month] = ["year", "month"].map((type) => Number(parts.find((part) => part.type === type).value));
  const months = Array.from({ length: 12 }, (_, index) => new Date(Date.UTC(year, month - 1 - index)));
  return {
    months: months.map((at) => ({ value: at.toISOString().slice(0, 7), text: MONTH_NAME.format(at) })),
    quarters: [...new Set(months.map((at) => `${at.getUTCFullYear()}-Q${Math.floor(at.getUTCMonth() / 3) + 1}`))],
  };
}

const MONTH_NAME = new Intl.DateTimeFormat("en-GB", { month: "long", year: "numeric", timeZone: "UTC" });
const OWN_ZONE = new Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";

// Option of Intl for a time zone of the URL; that of the browser if it is none.
function zoneOption(timeZone) {
  try {
    new Intl.DateTimeFormat("en", { timeZone });
    return { timeZone };
  } catch {
    return {};
  }
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
  const [within, setWithin] = useParameter("in");
  const [timezone, setTimezone] = useParameter("timezone");
  const [label, setLabel] = useParameter("label", "cost-center");
  const named = GROUPS[by] ? by : "clusterqueue", group = GROUPS[named];
  const grouping = named === "label" ? `label:${label}` : named, groupName = named === "label" ? label : group.text;
  const quota = group.quota && of !== "mine";
  const time = within ? { [MONTH.test(within) ? "month" : "quarter"]: within, timezone } : { from, to: end };
  const address = of === "mine" ? "/apis/sluice.dev/v1/reports/mine" : of ? `/apis/sluice.dev/v1/namespaces/${encodeURIComponent(of)}/reports/usage` : "/apis/sluice.dev/v1/reports/usage";
  const report = useAnswer(address, { ...time, by: grouping, user, ...(quota ? { quota: true } : { top: MOST }) });
  const chart = useAnswer(address, { ...time, by: grouping, user, interval: INTERVAL, top: MOST_DRAWN, quota: of === "mine" || user ? "" : true });
  const resources = useMemo(() => [...new Set((report.data?.items || []).map((item) => item.resource))].sort(compareResources), [report.data]);
  const selected = resources.includes(resource) ? resource : resources[0];
  const series = chart.data && selected && seriesOf(chart.data, selected, group.name);
  const rows = useMemo(() => rowsOf(report.data, selected, group), [report.data, selected, by]);
  const length = within ? report.data && knownSeconds(report.data) : lengthOf(from, end);
  const late = chart.data?.items.length > 0 && length - knownSeconds(chart.data) > chart.data.intervalSeconds + 60;
  const total = rows.reduce((sum, row) => sum + row.all, 0);
  const choices = useMemo(() => calendar(timezone || "UTC"), [timezone]);
  const choose = (value) => {
    setWithin(value);
    setTimezone(value ? OWN_ZONE : "");
    setFrom("30d");
    setTo("");
  };
  const withQuota = report.data?.totals && selected;
  const save = () => (withQuota ? downloadQuota(rows, resources, groupName, report.data) : download(rows, selected, groupName, report.data));
  return html`<${PageHead} title="Usage" actions=${rows.length > 0 && html`<button type="button" class="button" onClick=${save}>Download CSV</button>`}>
      What was held, for how long: from the ledger, to the second<//>
    <div class="filters" role="group" aria-label="Report">
      <label>Of <select value=${of} onChange=${(event) => setOf(event.currentTarget.value)}>${rights.usage && html`<option value="">everybody</option>`}<option value="mine">my own work</option>
        ${namespaces.slice(0, 200).map((namespace) => html`<option key=${namespace} value=${namespace}>namespace ${namespace}</option>`)}</select></label>
      <label>By <select value=${by} onChange=${(event) => setBy(event.currentTarget.value)}>${Object.entries(GROUPS).map(([value, { text }]) => html`<option key=${value} value=${value}>${text}</option>`)}</select></label>
      ${named === "label" && html`<label>Key <input type="text" value=${label} onChange=${(event) => setLabel(event.currentTarget.value.trim())} title="Of the LocalQueue, else of its namespace, else of the ClusterQueue" /></label>`}
      <${Segments} label="Time" value=${to || within ? "" : from} onChange=${(value) => { choose(""); setFrom(value); }} options=${PAST.map(([value, text]) => ({ value, text }))} />
      <select aria-label="Month or quarter" value=${within} onChange=${(event) => choose(event.currentTarget.value)}>
        <option value="">Month or quarter …</option>
        ${within && ![...choices.months.map((month) => month.value), ...choices.quarters].includes(within) && html`<option value=${within}>${within}</option>`}
        <optgroup label="Month">${choices.months.map((month) => html`<option key=${month.value} value=${month.value}>${month.text}</option>`)}</optgroup>
        <optgroup label="Quarter">${choices.quarters.map((quarter) => html`<option key=${quarter} value=${quarter}>${quarter.replace("-", " ")}</option>`)}</optgroup></select>
      ${user && html`<button type="button" class="button" aria-label=${`Not only user ${user}`} onClick=${() => setUser("")}>user <bdi>${user}</bdi> ×</button>`}
      <span class="dates" title="Whole days, which begin at 0:00 UTC"><label>From <input type="date" value=${RELATIVE.test(from) || within ? "" : from} onChange=${(event) => { setWithin(""); setTimezone(""); setFrom(event.currentTarget.value || "30d"); }} /></label>
      <label>To <input type="date" value=${to} onChange=${(event) => { setWithin(""); setTimezone(""); setTo(event.currentTarget.value); }} /></label></span>
    </div>
    <${Card} title=${selected ? resourceName(selected) : "Usage"} note=${rows.length > 0 && `In use, on average; below, hours of it${within ? ` in ${within} (${timezone || "UTC"})` : ""}`} actions=${resources.length > 1 && html`<${Segments} label="Resource" value=${selected} onChange=${setResource} options=${resources.map((each) => ({ value: each, text: resourceName(each) }))} />`}>
      ${report.data?.partial && html`<p class="notice">Only a part of ${within} is reported: from ${fullTime(report.data.from)} to ${fullTime(report.data.to)}.</p>`}
      ${report.error && !report.data ? html`<${Failure} error=${report.error} retry=${report.again} />` : !report.data ? html`<${Loading} lines=${5} />`
        : !rows.length ? html`<${Empty} title="Nothing was used in this time">Workloads are counted from their admission until their last pod is gone. Choose a longer time.<//>`
        : html`${series?.series.length > 0 && html`<${StackedChart} label=${`${resourceName(selected)} in use`} times=${series.times} series=${series.series} stepMs=${chart.data.intervalSeconds * 1000} unit=${resourceName(selected)} line=${nominalOf(chart.data, selected)} events=${eventsOf(chart.data, selected)} format=${(value) => shown(selected, value)} />`}
          <${Table} label="Usage" rows=${withQuota ? rows.slice(0, MOST) : rows} keyOf=${(row) => row.name} columns=${[
            { name: groupName, cell: (row) => (row.link && (rights.clusterQueues || !group.clusterQueues) ? html`<a href=${row.link}><bdi class="free">${row.name}</bdi></a>` : html`<bdi class="free">${row.name}</bdi>`) },
            ...(withQuota ? resources.slice(0, MOST_COLUMNS) : [selected]).map((each) => ({ name: hoursName(each), className: each === selected ? "number" : "number opt", cell: (row) => hours(each, each === selected ? row.all : row.of[each]?.amountSeconds || 0) })),
            ...(withQuota ? [] : [{ name: "Within quota", className: "number opt", cell: (row) => hours(selected, row.nominal) }]),
            { name: "Borrowed", className: "number", cell: (row) => (row.borrowed ? html`<span class="borrowed">${hours(selected, row.borrowed)}</span>` : html`<span class="soft">–</span>`) },
            ...(withQuota ? quotaColumns(report.data, selected) : [{ name: "Share", className: "number", cell: (row) => percent(row.all, total) }]),
          ]} /><p class="soft small table-note">${plural(rows.length, "row")}, ${hours(selected, total)} ${hoursName(selected)} in all.${withQuota && rows.length > MOST && ` The first ${MOST} are shown; all are in the CSV.`}
            ${withQuota && html` ${quotaSentence(report.data, selected)}`}</p>`}
      ${late && html`<p class="soft small table-note">${group.kept ? `By ${group.text.toLowerCase()}, usage is known since ${chart.data.from.slice(0, 10)}: as long as finished workloads are kept.` : `Usage is known since ${chart.data.from.slice(0, 16).replace("T", " ")} UTC.`}</p>`}
    <//>
    ${COSTS.includes(named) && of !== "mine" && html`<${Costs} address=${address.replace(/usage$/, "cost")} time=${time} by=${grouping} group=${{ ...group, text: groupName }} user=${user} />`}
    ${MEASURED.includes(named) && report.data?.measured && html`<${Idle} address=${address} time=${time} by=${grouping} group=${group} user=${user} resource=${selected} />`}`;
}

// What was held of a resource and not used, by group, and what that cost if there is a PriceBook.
function Idle({ address, time, by, group, user, resource }) {
  const found = useAnswer(address, { ...time, by, user, measured: true });
  const rows = (found.data?.items || []).filter((item) => item.resource === resource && item.measuredSeconds)
    .map((item) => ({ name: group.name(item), ...item, idle: item.measuredSeconds - item.usedSeconds })).sort((a, b) => b.idle - a.idle);
  if (!rows.length) return null;
  const idle = rows.reduce((sum, row) => sum + row.idle, 0), cost = rows.reduce((sum, row) => sum + Number(row.idleCost || 0), 0);
  const currency = rows.some((row) => row.idleCost) && found.data.currency;
  return html`<${Card} title="Held and not used" note=${`${hours(resource, idle)} ${hoursName(resource)}${currency ? `, ${money(cost, currency)} by the prices of ${found.data.book}` : ""} in all, of full hours`}>
    <${Table} label=${`Idle by ${group.text}`} rows=${rows.slice(0, MOST)} keyOf=${(row) => row.name} columns=${[
      { name: group.text, cell: (row) => html`<bdi class="free">${row.name}</bdi>` },
      { name: `Idle ${hoursName(resource)}`, className: "number", cell: (row) => hours(resource, row.idle) },
      { name: "Of measured", className: "number", cell: (row) => percent(row.idle, row.measuredSeconds) },
      { name: "Unknown", className: "number opt", cell: (row) => hours(resource, row.amountSeconds - row.measuredSeconds) },
      ...(currency ? [{ name: "Cost", className: "number", cell: (row) => (row.idleCost ? money(Number(row.idleCost), currency) : "–") }] : []),
    ]} />${found.data.books && html`<p class="soft small table-note">Without cost, as none of the PriceBooks ${found.data.books.join(", ")} has the name default.</p>`}<//>`;
}

const money = (value, currency) => `${value.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 })} ${currency}`;

// What the usage cost by the PriceBook, by group; nothing if there is no PriceBook.
function Costs({ address, time, by, group, user }) {
  const found = useAnswer(address, { ...time, by, user });
  if (!found.data?.book) return null;
  const groups = new Map();
  for (const item of found.data.items) {
    const name = nameIn(item, group.name), row = groups.get(name) || { name, cost: 0, unpriced: new Set() };
    groups.set(name, row);
    if (item.cost === null) row.unpriced.add(`${resourceName(item.resource)} of ${item.flavor}`);
    else row.cost += Number(item.cost);
  }
  const rows = [...groups.values()].sort((a, b) => b.cost - a.cost), total = rows.reduce((sum, row) => sum + row.cost, 0);
  const { currency } = found.data;
  if (!rows.length) return null;
  return html`<${Card} title="Cost" note=${`${money(total, currency)} in all, by the prices of ${found.data.book}`}>
    <${Table} label=${`Cost by ${group.text}`} rows=${rows.slice(0, MOST)} keyOf=${(row) => row.name} columns=${[
      { name: group.text, cell: (row) => html`<bdi class="free">${row.name}</bdi>` },
      { name: "Cost", className: "number", cell: (row) => money(row.cost, currency) },
      { name: "Share", className: "number", cell: (row) => percent(row.cost, total) },
      { name: "Without a price", className: "opt", cell: (row) => [...row.unpriced].join(", ") || html`<span class="soft">–</span>` },
    ]} /><//>`;
}

function rowsOf(report, resource, group) {
  const found = new Map();
  for (const item of report?.items || []) {
    if (item.resource !== resource && !report.totals) continue;
    const name = nameIn(item, group.name);
    const row = found.get(name) || { name, all: 0, nominal: 0, borrowed: 0, of: {}, others: item.others, link: item.others || !group.link ? "" : group.link(item) };
    found.set(name, row);
    row.of[item.resource] = item;
    if (item.resource !== resource) continue;
    row.all += item.amountSeconds;
    row.nominal += item.nominalSeconds;
    row.borrowed += item.borrowedSeconds;
  }
  return [...found.values()].sort((a, b) => !!a.others - !!b.others || b.all - a.all);
}

// Resource-seconds of the nodes in the time of the report; NaN if they are not known.
const ofNodes = (report, resource) => (report.capacity?.[resource] ? amount(report.capacity[resource]) * knownSeconds(report) : NaN);

function quotaColumns(report, resource) {
  const nodes = ofNodes(report, resource);
  return [
    { name: "Of quota", className: "number", cell: (row) => percent(row.all, row.of[resource]?.quotaSeconds) },
    ...(nodes ? [{ name: "Of nodes", className: "number opt", cell: (row) => percent(row.all, nodes) }] : []),
    { name: "Idle quota", className: "number", cell: (row) => (row.of[resource] ? hours(resource, row.of[resource].idleSeconds) : "–") },
  ];
}

function quotaSentence(report, resource) {
  const sum = report.totals.find((total) => total.resource === resource);
  const nodes = ofNodes(report, resource);
  return `${percent(sum.amountSeconds, sum.quotaSeconds)} of quota, as it was at the time${nodes ? `, and ${percent(sum.amountSeconds, nodes)} of the nodes that there are now` : ""}. `
    + `Idle: ${hours(resource, sum.idleSeconds)} ${hoursName(resource)} that queues did not use of their own quota; others may have borrowed them.`;
}

// Escapes cells that spreadsheets would evaluate as formulas.
const cell = (value) => {
  const text = String(value);
  const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
};

const scaleOf = (resource) => 3600 * (/memory|storage/.test(resource) ? 2 ** 30 : 1);

// Rows with quota: columns for each resource, as the command's report with --quota has them.
function downloadQuota(rows, resources, group, report) {
  const names = resources.flatMap((resource) => {
    const unit = hoursName(resource).toLowerCase(), name = resourceName(resource).toLowerCase();
    return [unit, `${unit} within quota`, `${unit} borrowed`, `${unit} of quota`, `${unit} of idle quota`, `percent of ${name} quota`, `percent of ${name} capacity`];
  });
  const cells = (item, resource) => {
    if (!item) return [0, 0, 0, 0, 0, "", ""];
    const share = (whole) => (whole ? Number(((100 * item.amountSeconds) / whole).toFixed(3)) : "");
    return [...[item.amountSeconds, item.nominalSeconds, item.borrowedSeconds, item.quotaSeconds, item.idleSeconds].map((value) => value / scaleOf(resource)),
      share(item.quotaSeconds), share(ofNodes(report, resource))];
  };
  saveCsv([[group, "from", "to", "partial", ...names],
    ...rows.map((row) => [row.name, report.from, report.to, report.partial ?? "", ...resources.flatMap((resource) => cells(row.of[resource], resource))])], "quota");
}

function download(rows, resource, group, report) {
  const unit = hoursName(resource).toLowerCase();
  const scale = scaleOf(resource);
  saveCsv([[group, "from", "to", unit, `${unit} within quota`, `${unit} borrowed`],
    ...rows.map((row) => [row.name, report.from, report.to, row.all / scale, row.nominal / scale, row.borrowed / scale])], resourceName(resource).toLowerCase());
}

function saveCsv(lines, name) {
  const url = URL.createObjectURL(new Blob([`${lines.map((line) => line.map(cell).join(",")).join("\r\n")}\r\n`], { type: "text/csv" }));
  const anchor = document.createElement("a");
  anchor.href = url;
  anchor.download = `sluice-usage-${name}.csv`;
  anchor.click();
  URL.revokeObjectURL(url);
}
