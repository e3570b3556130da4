// Fair share: what the members of a Cohort were entitled to and received, and who lent to whom.
import { Empty, Failure, Loading, Segments, Table } from "../lib/components.js";
import { count, hours, hoursName, percent, resourceName } from "../lib/format.js";
import { useAnswer } from "../lib/live.js";
import { cohortLink, queueLink, useParameter } from "../lib/router.js";
import { compareResources } from "../lib/tree.js";
import { html } from "../lib/ui.js";

// What the report sums up: the key of such lenders, and that of such borrowers.
const OTHERS = ["Others/", ""];
// Rows of ClusterQueues, and lenders and borrowers, beside the ClusterQueue of the page; what is beyond them is summed up.
const MOST = 20, MOST_LOANS = 10;
const SUMS = ["demandSeconds", "entitledSeconds", "receivedSeconds", "borrowedSeconds", "lentSeconds"];
const PERIODS = [{ value: "1d", text: "Day" }, { value: "7d", text: "Week" }, { value: "30d", text: "30 days" }];

export function FairShare({ cohort, name }) {
  const [from, setFrom] = useParameter("fair", "30d");
  const [resource, setResource] = useParameter("resource");
  const found = useAnswer("/apis/sluice.dev/v1/reports/fairness", { cohort, from, including: name }, { everyMs: 300000 });
  if (found.error && !found.data) return html`<${Failure} error=${found.error} retry=${found.again} />`;
  if (!found.data) return html`<${Loading} />`;
  const resources = [...new Set(found.data.items.map((item) => item.resource))].sort(compareResources);
  const selected = resources.includes(resource) ? resource : resources[0];
  if (!selected) return html`<${Empty} title="No quota">The members of the Cohort have no quota that could be shared.<//>`;
  const rows = found.data.items.filter((item) => item.resource === selected).sort((a, b) => b.demandSeconds - a.demandSeconds || a.clusterQueue.localeCompare(b.clusterQueue));
  const loans = found.data.loans.filter((loan) => loan.resource === selected);
  const [first, others] = folded(rows, MOST, (row) => row.clusterQueue === name);
  const listed = others.length ? [...first, { others: others.length, ...Object.fromEntries(SUMS.map((field) => [field, others.reduce((sum, row) => sum + row[field], 0)])) }] : first;
  const scale = Math.max(...first.map((row) => Math.max(row.demandSeconds, row.entitledSeconds)));
  const shown = (seconds) => hours(selected, seconds);
  return html`<div class="filters"><${Segments} label="Resource" value=${selected} onChange=${setResource} options=${resources.map((each) => ({ value: each, text: resourceName(each) }))} />
      <${Segments} label="Time" value=${from} onChange=${setFrom} options=${PERIODS} /></div>
    <${Table} label=${`Fair share in the Cohort ${cohort}`} rows=${listed} keyOf=${(row) => row.clusterQueue || ""} columns=${[
      { name: "ClusterQueue", cell: (row) => (row.others ? html`<span class="soft">${count(row.others)} others</span>` : row.clusterQueue === name ? html`<b><bdi>${row.clusterQueue}</bdi></b>` : html`<a href=${queueLink(row.clusterQueue)}><bdi>${row.clusterQueue}</bdi></a>`) },
      { name: "Received of demand", className: "wide opt", cell: (row) => !row.others && html`<${ShareBar} row=${row} scale=${scale} shown=${shown} />` },
      { name: "Demand", className: "number opt", cell: (row) => shown(row.demandSeconds) },
      { name: "Entitled", className: "number", cell: (row) => shown(row.entitledSeconds) },
      { name: "Received", className: "number", cell: (row) => shown(row.receivedSeconds) },
      { name: "Of entitled", className: "number", cell: (row) => percent(row.receivedSeconds, row.entitledSeconds) },
      { name: "Borrowed", className: "number opt", cell: (row) => shown(row.borrowedSeconds) },
      { name: "Lent", className: "number opt", cell: (row) => shown(row.lentSeconds) },
    ]} />
    <p class="soft small table-note">In ${hoursName(selected)}. A queue is <b>entitled</b> to its nominal quota as far as its workloads used or waited for it, and to a share by weight of what the others in its tree left.${" "}
      It may have <b>received</b> more: what nobody else wanted.${others.length > 0 && html` <code>sluice report fairness --cohort ${cohort}</code> lists the others.`}</p>
    <${Loans} loans=${loans} resource=${selected} cohort=${cohort} name=${name} shown=${shown} />`;
}

// Of sorted rows those that are shown, the first ones and that of the page's ClusterQueue; and the others.
function folded(rows, most, isOwn) {
  const kept = rows.filter((row, index) => index < most || isOwn(row));
  return [kept, rows.filter((row) => !kept.includes(row))];
}

// What was received, of what there was demand for; the mark is what the queue was entitled to.
function ShareBar({ row, scale, shown }) {
  const width = (value) => `${(100 * value) / (scale || 1)}%`;
  return html`<svg class="quota-bar" role="img" aria-label=${`${shown(row.receivedSeconds)} received, ${shown(row.entitledSeconds)} entitled, ${shown(row.demandSeconds)} wanted`} width="100%" height="16" preserveAspectRatio="none">
    <rect class="bar-track" x="0" y="3" width=${width(row.demandSeconds)} height="10" rx="2" />
    <rect class="bar-used" x="0" y="3" width=${width(row.receivedSeconds)} height="10" rx="2" />
    <rect class="bar-nominal" x=${width(row.entitledSeconds)} y="0" width="1.5" height="16" /></svg>`;
}

function Loans({ loans, resource, cohort, name, shown }) {
  if (!loans.length) return html`<p class="soft">Nothing was lent in this time.</p>`;
  const lenders = new Map(), borrowers = new Map();
  for (const { lenderKind, lender, borrower, amountSeconds } of loans) {
    const key = `${lenderKind}/${lender}`;
    if (!lenders.has(key)) lenders.set(key, { key, lenderKind, lender, sum: 0, to: {} });
    if (!borrowers.has(borrower)) borrowers.set(borrower, { key: borrower, sum: 0 });
    const of = lenders.get(key);
    of.to[borrower] = (of.to[borrower] || 0) + amountSeconds;
    of.sum += amountSeconds;
    borrowers.get(borrower).sum += amountSeconds;
  }
  const named = ({ lenderKind, lender }) => (lenderKind === "Cohort" ? html`Cohort <a href=${cohortLink(lender)}><bdi>${lender}</bdi></a>`
    : lender ? html`<a href=${queueLink(lender)}><bdi>${lender}</bdi></a>` : html`<span class="soft">over quota</span>`);
  // Lines of the table, each with those it sums up: the largest, and one for all others.
  const lines = (all, own, title) => {
    const isRest = (each) => OTHERS.includes(each.key), rest = [...all.values()].filter(isRest);
    const sorted = [...all.values()].filter((each) => !isRest(each)).sort((a, b) => b.sum - a.sum || a.key.localeCompare(b.key));
    const [first, beyond] = folded(sorted, MOST_LOANS, (each) => each.key === own), others = [...beyond, ...rest];
    const found = first.map((each) => ({ key: each.key, title: title(each), of: [each] }));
    return others.length ? [...found, { key: "", title: html`<span class="soft">${!rest.length && count(others.length)} others</span>`, of: others }] : found;
  };
  const rows = lines(lenders, name ? `ClusterQueue/${name}` : `Cohort/${cohort}`, named), columns = lines(borrowers, name, (each) => html`<bdi>${each.key}</bdi>`);
  const amount = (row, column) => row.of.reduce((all, lender) => column.of.reduce((sum, borrower) => sum + (lender.to[borrower.key] || 0), all), 0);
  const isFolded = !rows[rows.length - 1].key || !columns[columns.length - 1].key;
  return html`<h3>Who lent to whom</h3><div class="table-box" tabindex="0" role="region" aria-label="Who lent to whom"><table>
    <thead><tr><th scope="col">Lender</th>${columns.map((column) => html`<th key=${column.key} scope="col" class="number">${column.title}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${row.key}><th scope="row">${row.title}</th>
      ${columns.map((column) => html`<td key=${column.key} class="number">${amount(row, column) ? shown(amount(row, column)) : html`<span class="soft">–</span>`}</td>`)}</tr>`)}</tbody>
  </table></div><p class="soft small table-note">In ${hoursName(resource)}. What was borrowed counts as lent by the Cohorts' own quota first, then by the other queues in proportion to their idle quota in that hour.${
    isFolded && html` <code>sluice report fairness --loans --cohort ${cohort}</code> lists more of them.`}</p>`;
}
