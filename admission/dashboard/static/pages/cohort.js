// Page of a Cohort: quota of its own and of all below it, the tree of its members, fair share and history.
import { path } from "../lib/api.js";
import { QuotaBar } from "../lib/charts.js";
import { Card, Empty, Failure, Loading, PageHead, Segments } from "../lib/components.js";
import { count, plural, resourceName, shown } from "../lib/format.js";
import { useCollection } from "../lib/live.js";
import { cohortLink, link, useParameter } from "../lib/router.js";
import { useRights, useSession } from "../lib/session.js";
import { forest, leavesOf, resourcesOf, scaleOf, walk } from "../lib/tree.js";
import { html, useMemo, useState } from "../lib/ui.js";
import { RollbackDialog } from "./change.js";
import { FairShare } from "./fairshare.js";
import { History } from "./history.js";
import { Legend, Tree } from "./overview.js";
import { Tabs } from "./queue.js";

export function CohortPage({ name }) {
  const { rights: session } = useSession();
  const queues = useCollection(path("clusterqueues"));
  const cohorts = useCollection(path("cohorts"));
  const roots = useMemo(() => forest(cohorts.items, queues.items), [queues.version, cohorts.version, queues.items, cohorts.items]);
  const rights = useRights({ history: { verb: "get", resource: "cohorts", subresource: "history", name }, rollback: { verb: "create", resource: "cohorts", subresource: "rollback", name } });
  const [version, setVersion] = useState(null);
  const crumbs = [{ href: link(), text: "Overview" }];
  const error = queues.error || cohorts.error;
  if (error) return html`<${PageHead} title=${name} crumbs=${crumbs} /><${Failure} error=${error} />`;
  if (!queues.ready || !cohorts.ready) return html`<${PageHead} title=${name} crumbs=${crumbs} /><${Card}><${Loading} lines=${6} /><//>`;
  const cohort = [...walk(roots)].find((each) => each.kind === "Cohort" && each.name === name);
  if (!cohort) return html`<${PageHead} title=${name} crumbs=${crumbs} /><${Card}><${Empty} title="There is no Cohort of this name">It may have been deleted. The <a href=${link()}>overview</a> shows all that there are.<//><//>`;
  const leaves = leavesOf(cohort);
  return html`<${PageHead} title=${name} crumbs=${crumbs}>
      Cohort${cohort.parent && html` in the Cohort <a href=${cohortLink(cohort.parent)}><bdi>${cohort.parent}</bdi></a>`}, ${plural(leaves.length, "ClusterQueue")}, ${plural(cohort.admitted, "workload")} admitted, ${count(cohort.pending)} pending<//>
    ${!cohort.object && html`<p class="notice">No object of this Cohort exists: its members name it. It has no quota of its own, and no limits.</p>`}
    <${Quota} cohort=${cohort} />
    <${Members} cohort=${cohort} />
    <${Tabs} tabs=${[
      session.usage && leaves.some((leaf) => leaf.parent === name) && { id: "fair", text: "Fair share", show: () => html`<${FairShare} cohort=${name} name="" />` },
      rights.history && cohort.object && { id: "history", text: "History", show: () => html`<${History} address=${path("cohorts", name)} changes=${cohort.object.metadata.generation} mayRollBack=${rights.rollback} onRollback=${setVersion} />` },
    ]} />
    ${version && html`<${RollbackDialog} address=${path("cohorts", name)} name=${name} version=${version} onClose=${() => setVersion(null)} />`}`;
}

function Quota({ cohort }) {
  const entries = [...cohort.quotas];
  if (!entries.length) return html`<${Card} title="Quota"><${Empty} title="No quota">Neither the Cohort nor its members have resource groups.<//><//>`;
  const limit = (value, resource) => (Number.isFinite(value) ? shown(resource, value) : html`<span class="soft">no limit</span>`);
  return html`<${Card} title="Quota" note="Of the Cohort and all below it"><div class="table-box" tabindex="0" role="region" aria-label="Quota by flavor"><table>
    <thead><tr><th scope="col">Flavor</th><th scope="col">Resource</th><th scope="col" class="wide opt">Use</th><th scope="col" class="number">Used</th><th scope="col" class="number">Nominal</th><th scope="col" class="number opt">Its own</th>
      <th scope="col" class="number">Borrowed</th><th scope="col" class="number opt">May borrow</th><th scope="col" class="number opt">May lend</th></tr></thead>
    <tbody>${entries.map(([key, entry]) => html`<tr key=${key}><td><bdi>${entry.flavor}</bdi></td><td>${resourceName(entry.resource)}</td>
      <td class="wide opt"><${QuotaBar} resource=${entry.resource} totals=${entry} scale=${scaleOf(cohort.quotas.values(), entry.resource)} /></td>
      <td class="number">${shown(entry.resource, entry.used)}</td><td class="number">${shown(entry.resource, entry.nominal)}</td><td class="number opt">${cohort.own.get(key) ? shown(entry.resource, cohort.own.get(key)) : html`<span class="soft">–</span>`}</td>
      <td class="number">${entry.borrowed ? html`<span class="borrowed">${shown(entry.resource, entry.borrowed)}</span>` : html`<span class="soft">–</span>`}</td>
      <td class="number opt">${limit(cohort.parent ? (entry.borrowingLimit ?? Infinity) : 0, entry.resource)}</td><td class="number opt">${limit(entry.lendingLimit ?? Infinity, entry.resource)}</td></tr>`)}</tbody>
  </table></div><//>`;
}

function Members({ cohort }) {
  const resources = resourcesOf([cohort]);
  const [resource, setResource] = useParameter("resource");
  const selected = (resources.find((each) => each.name === resource) || resources[0])?.name;
  if (!selected) return null;
  return html`<${Card} title="Members" actions=${resources.length > 1 && html`<${Segments} label="Resource" value=${selected} onChange=${setResource} options=${resources.map((each) => ({ value: each.name, text: resourceName(each.name) }))} />`}>
    <${Tree} roots=${[cohort]} resource=${selected} flavor="" /><${Legend} /><//>`;
}
