// Fair share: entitlement by weight and actual usage of the members of a Cohort.
import { path } from "../lib/api.js";
import { Empty, Failure, Loading, Segments, Table } from "../lib/components.js";
import { hours, hoursName, percent, resourceName, seconds, shown } from "../lib/format.js";
import { useAnswer } from "../lib/live.js";
import { queueLink, useParameter } from "../lib/router.js";
import { queueNode, resourcesOf, totals } from "../lib/tree.js";
import { html } from "../lib/ui.js";

const PERIODS = [{ value: "1d", text: "Day" }, { value: "7d", text: "Week" }, { value: "30d", text: "30 days" }];

export function FairShare({ cohort, name }) {
  const [from, setFrom] = useParameter("fair", "7d");
  const [resource, setResource] = useParameter("resource");
  const members = useAnswer(path("clusterqueues"), { fieldSelector: `spec.cohortName=${cohort}` }, { everyMs: 60000 });
  const used = useAnswer("/apis/sluice.dev/v1/reports/usage", { from, by: "clusterqueue" }, { everyMs: 60000 });
  const error = members.error || used.error;
  if (error && !(members.data && used.data)) return html`<${Failure} error=${error} />`;
  if (!members.data || !used.data) return html`<${Loading} />`;
  const nodes = members.data.items.map(queueNode), resources = resourcesOf(nodes);
  const selected = (resources.find((each) => each.name === resource) || resources[0])?.name;
  if (!selected) return html`<${Empty} title="No quota">The members of the Cohort have no quota that could be shared.<//>`;
  const past = seconds(used.data.to) - seconds(used.data.from);
  const rows = nodes.map((node) => {
    const items = used.data.items.filter((item) => item.clusterQueue === node.name && item.resource === selected);
    return { name: node.name, weight: Number(node.object.spec.fairSharing?.weight ?? 1), nominal: totals(node, selected).nominal,
      all: items.reduce((sum, item) => sum + item.amountSeconds, 0), borrowed: items.reduce((sum, item) => sum + item.borrowedSeconds, 0) };
  });
  const weights = rows.reduce((sum, row) => sum + row.weight, 0), borrowed = rows.reduce((sum, row) => sum + row.borrowed, 0);
  return html`<div class="filters"><${Segments} label="Resource" value=${selected} onChange=${setResource} options=${resources.map((each) => ({ value: each.name, text: resourceName(each.name) }))} />
      <${Segments} label="Time" value=${from} onChange=${setFrom} options=${PERIODS} /></div>
    <${Table} label=${`Fair share in the Cohort ${cohort}`} rows=${rows.sort((a, b) => b.borrowed - a.borrowed || a.name.localeCompare(b.name))} keyOf=${(row) => row.name} columns=${[
      { name: "ClusterQueue", cell: (row) => (row.name === name ? html`<b><bdi>${row.name}</bdi></b>` : html`<a href=${queueLink(row.name)}><bdi>${row.name}</bdi></a>`) },
      { name: "Nominal", className: "number opt", cell: (row) => shown(selected, row.nominal) },
      { name: "In use on average", className: "number opt", cell: (row) => shown(selected, row.all / past) },
      { name: "Weight", className: "number opt", cell: (row) => row.weight },
      { name: "Entitled", className: "number", cell: (row) => percent(row.weight, weights) },
      { name: "Received", className: "number", cell: (row) => percent(row.borrowed, borrowed) },
      { name: `Borrowed ${hoursName(selected)}`, className: "number", cell: (row) => hours(selected, row.borrowed) },
    ]} />
    <p class="soft small table-note">Nominal quota is each queue's own. What is borrowed beyond it in the Cohort <bdi>${cohort}</bdi> is shared: <b>entitled</b> is the part by weight, if all members wanted to borrow,${" "}
      <b>received</b> the part of what was borrowed in this time. A queue that asked for less than its part leaves it to the others.</p>`;
}
