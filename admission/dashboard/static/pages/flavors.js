// Page "Flavors and nodes": nodes of each ResourceFlavor, and quota compared with the nodes' capacity.
import { path } from "../lib/api.js";
import { QuotaBar } from "../lib/charts.js";
import { Badge, Card, Empty, Failure, Loading, PageHead } from "../lib/components.js";
import { amount, plural, resourceName, shown } from "../lib/format.js";
import { useAnswer, useCollection } from "../lib/live.js";
import { queueLink, topologyLink } from "../lib/router.js";
import { useSession } from "../lib/session.js";
import { forest, quotaByFlavor } from "../lib/tree.js";
import { html, useMemo } from "../lib/ui.js";

export function Flavors() {
  const { rights } = useSession();
  const flavors = useCollection(path("resourceflavors"));
  const queues = useCollection(rights.clusterQueues ? path("clusterqueues") : null);
  const cohorts = useAnswer(rights.cohorts ? path("cohorts") : null, {}, { everyMs: 30000 });
  const nodes = useAnswer(rights.nodes ? "/apis/sluice.dev/v1/reports/nodes" : null, {}, { everyMs: 30000 });
  const given = useMemo(() => quotaByFlavor(forest(cohorts.data?.items || [], queues.items)), [queues.items, queues.version, cohorts.data]);
  const head = html`<${PageHead} title="Flavors and nodes">Kinds of nodes that quota is given in<//>`;
  if (flavors.error) return html`${head}<${Failure} error=${flavors.error} />`;
  if (!flavors.ready) return html`${head}<${Card}><${Loading} lines=${6} /><//>`;
  if (!flavors.items.length) return html`${head}<${Card}><${Empty} title="There are no ResourceFlavors yet"><p>A ResourceFlavor names the labels of the nodes that quota is for; one without labels means any node.</p><pre><code>sluice create flavor a100 --node-labels pool=a100</code></pre><//><//>`;
  const sorted = [...flavors.items].sort((a, b) => a.metadata.name.localeCompare(b.metadata.name));
  return html`${head}${nodes.error && html`<p class="notice">${nodes.error.message}</p>`}
    ${sorted.map((flavor) => html`<${FlavorCard} key=${flavor.metadata.uid} flavor=${flavor} quota=${given.get(flavor.metadata.name)} capacity=${nodes.data?.items.find((item) => item.flavor === flavor.metadata.name)} />`)}`;
}

function FlavorCard({ flavor, quota, capacity }) {
  const labels = Object.entries(flavor.spec?.nodeLabels || {}), taints = flavor.spec?.nodeTaints || [];
  const resources = [...(quota?.resources || [])];
  const allocatable = (resource) => (capacity ? amount(capacity.allocatable[resource] || 0) : null);
  const over = resources.filter(([resource, sum]) => capacity && sum.nominal > allocatable(resource));
  return html`<${Card} title=${flavor.metadata.name} note=${capacity ? plural(capacity.nodes, "node") : ""} actions=${capacity && (capacity.nodes === 0 ? html`<${Badge} tone="bad">No node has these labels<//>` : over.length > 0 && html`<${Badge} tone="warn">More quota than nodes<//>`)}>
    <p class="tags">${labels.length ? labels.map(([key, value]) => html`<span class="tag" key=${key}>${key}=${value}</span>`) : html`<span class="soft">any node</span>`}${taints.map((taint) => html`<span class="tag" key=${taint.key}>taint ${taint.key}${taint.value ? `=${taint.value}` : ""}:${taint.effect}</span>`)}</p>
    ${flavor.spec?.topologyName && html`<p><a href=${topologyLink(flavor.metadata.name)}>Topology <bdi>${flavor.spec.topologyName}</bdi></a></p>`}
    ${resources.length ? html`<div class="table-box" tabindex="0" role="region" aria-label=${`Quota in ${flavor.metadata.name}`}><table>
      <thead><tr><th scope="col">Resource</th><th scope="col" class="wide opt">Use of quota</th><th scope="col" class="number">Used</th><th scope="col" class="number">Quota</th>${capacity && html`<th scope="col" class="number">Nodes have</th>`}</tr></thead>
      <tbody>${resources.map(([resource, sum]) => html`<tr key=${resource}><td>${resourceName(resource)}</td><td class="wide opt"><${QuotaBar} resource=${resource} totals=${sum} scale=${Math.max(sum.nominal, sum.used)} /></td>
        <td class="number">${shown(resource, sum.used)}</td><td class="number">${shown(resource, sum.nominal)}</td>${capacity && html`<td class="number">${shown(resource, allocatable(resource))}${sum.nominal > allocatable(resource) && html` <span class="borrowed short">(${shown(resource, sum.nominal - allocatable(resource))} short)</span>`}</td>`}</tr>`)}</tbody></table></div>
      <p class="soft small table-note">Quota of ${quota.queues.size > 6 ? plural(quota.queues.size, "ClusterQueue") : html`${[...quota.queues].sort().map((name, index) => html`${index > 0 && ", "}<a key=${name} href=${queueLink(name)}><bdi>${name}</bdi></a>`)}`}</p>`
      : html`<${Empty} title="Not used">No ClusterQueue has quota in this flavor.<//>`}
  <//>`;
}
