// Page "Clusters": state of each cluster, what runs and waits in it, what its nodes have, and what it holds of flavors.
import { path } from "../lib/api.js";
import { Badge, Card, Failure, Loading, PageHead, Time } from "../lib/components.js";
import { amount, count, percent, plural, resourceName, shown } from "../lib/format.js";
import { useAnswer, useCollection } from "../lib/live.js";
import { link } from "../lib/router.js";
import { useSession } from "../lib/session.js";
import { compareResources, forest, quotaByFlavor } from "../lib/tree.js";
import { html, useMemo } from "../lib/ui.js";

const EVERY_MS = 5000;
const TONES = { Active: "ok", Draining: "draining", Lost: "bad", Connecting: "warn", Disabled: "calm" };

export function Clusters() {
  const { rights } = useSession();
  const found = useAnswer(path("reports", "clusters"), {}, { everyMs: EVERY_MS });
  const queues = useCollection(rights.clusterQueues ? path("clusterqueues") : null);
  const cohorts = useAnswer(rights.cohorts ? path("cohorts") : null, {}, { everyMs: 30000 });
  const given = useMemo(() => quotaByFlavor(forest(cohorts.data?.items || [], queues.items)), [queues.items, queues.version, cohorts.data]);
  const head = html`<${PageHead} title="Clusters">Clusters that share the quota<//>`;
  if (found.error && !found.data) return html`${head}<${Failure} error=${found.error} retry=${found.again} />`;
  if (!found.data) return html`${head}<${Card}><${Loading} lines=${6} /><//>`;
  const { items } = found.data;
  return html`${head}${items.map((cluster) => html`<${ClusterCard} key=${cluster.name} cluster=${cluster} given=${given} />`)}
    ${items.length === 1 && html`<p class="soft">Another cluster joins with <code>sluice cluster join NAME --kubeconfig FILE</code>: its Jobs then share this quota.</p>`}`;
}

function ClusterCard({ cluster, given }) {
  const { name, state, since, message, labels } = cluster;
  const words = Object.entries(labels);
  const workloads = (of) => `${link("workloads")}?${new URLSearchParams({ cluster: name, state: of })}`;
  return html`<${Card} title=${name} note=${name === "local" ? "the cluster of Sluice itself" : ""} actions=${html`<${Badge} tone=${TONES[state]}>${state}<//>`}>
    ${message && html`<p class=${state === "Lost" ? "notice" : ""}>${message[0].toUpperCase() + message.slice(1)}.</p>`}
    <p><a href=${workloads("admitted")}>${plural(cluster.reservingWorkloads, "workload")} with quota</a>, <a href=${workloads("pending")}>${count(cluster.pendingWorkloads)} waiting</a>${since && html`<span class="soft"> · ${state} since <${Time} at=${since} /></span>`}</p>
    ${words.length > 0 && html`<p class="tags">${words.map(([key, value]) => html`<span class="tag" key=${key}>${key}=${value}</span>`)}</p>`}
    ${cluster.capacity && html`<${Capacity} cluster=${cluster} given=${given} /><p class="table-note">Quota by flavor</p>`}
    <${Usage} cluster=${cluster} given=${given} />
  <//>`;
}

// What the nodes of the cluster can allocate, as last seen, beside what its workloads hold of the resources that have quota.
function Capacity({ cluster, given }) {
  const { nodes, readyNodes, schedulableNodes, resources, seenAt, message } = cluster.capacity;
  if (nodes === undefined) return html`<p class="soft">Capacity unknown: ${message}.</p>`;
  const rows = resources.map((each) => ({ name: each.name, used: amount(each.used), schedulable: amount(each.schedulable), all: amount(each.allocatable) }));
  rows.sort((a, b) => compareResources(a.name, b.name));
  const counts = (row) => row.used > 0 || cluster.flavors.some((flavor) => given.get(flavor)?.resources.has(row.name));
  return html`<p class="table-note">${plural(nodes, "node")}${nodes > 0 && `: ${count(readyNodes)} ready, ${count(schedulableNodes)} get new pods`}<span class="soft"> · seen <${Time} at=${seenAt} />${message && `; ${message}`}</span></p>
    ${rows.length > 0 && html`<div class="table-box" tabindex="0" role="region" aria-label=${`Nodes of ${cluster.name}`}><table>
    <thead><tr><th scope="col">Resource</th><th scope="col" class="number">Held here</th><th scope="col" class="number">All nodes have</th><th scope="col" class="number opt">Those that get new pods</th><th scope="col" class="number opt">Share</th></tr></thead>
    <tbody>${rows.map((each) => html`<tr key=${each.name}><td><bdi>${resourceName(each.name)}</bdi></td><td class="number">${counts(each) ? shown(each.name, each.used) : "–"}</td><td class="number">${shown(each.name, each.all)}</td>
      <td class="number opt">${shown(each.name, each.schedulable)}</td><td class="number opt">${counts(each) ? percent(each.used, each.all) : "–"}</td></tr>`)}</tbody></table></div>`}`;
}

// What workloads of the cluster hold of each flavor that it has, beside the quota of the flavor and what all clusters hold.
function Usage({ cluster, given }) {
  const used = new Map(cluster.usage.map((each) => [`${each.flavor}\n${each.resource}`, amount(each.used)]));
  const keys = new Set(used.keys());
  for (const flavor of cluster.flavors) for (const resource of given.get(flavor)?.resources.keys() || []) keys.add(`${flavor}\n${resource}`);
  const rows = [...keys].map((key) => key.split("\n")).sort(([a, x], [b, y]) => a.localeCompare(b) || compareResources(x, y));
  if (!rows.length) return html`<p class="soft">No flavor with quota is in this cluster.</p>`;
  return html`<div class="table-box" tabindex="0" role="region" aria-label=${`Usage in ${cluster.name}`}><table>
    <thead><tr><th scope="col">Flavor</th><th scope="col">Resource</th><th scope="col" class="number">Used here</th><th scope="col" class="number opt">In all clusters</th><th scope="col" class="number">Quota</th><th scope="col" class="number opt">Share</th></tr></thead>
    <tbody>${rows.map(([flavor, resource]) => {
      const here = used.get(`${flavor}\n${resource}`) || 0, all = given.get(flavor)?.resources.get(resource);
      return html`<tr key=${`${flavor}\n${resource}`}><td><bdi>${flavor}</bdi></td><td>${resourceName(resource)}</td><td class="number">${shown(resource, here)}</td>
        <td class="number opt">${all ? shown(resource, all.used) : "–"}</td><td class="number">${all ? shown(resource, all.nominal) : "–"}</td><td class="number opt">${all ? percent(here, all.nominal) : "–"}</td></tr>`;
    })}</tbody></table></div>`;
}
