// The quota tree: Cohorts and ClusterQueues with nominal, used, borrowed and lent amounts by flavor and resource.
import { amount } from "./format.js";

const UNKNOWN = { nominal: 0, used: 0, borrowed: 0, lent: 0, lendable: 0 };

function node(kind, name, object, parent) {
  return { kind, name, object, parent, children: [], quotas: new Map(), pending: 0, admitted: 0, depth: 0 };
}

function quota(of, flavor, resource) {
  const key = `${flavor}\u0000${resource}`;
  if (!of.quotas.has(key)) of.quotas.set(key, { flavor, resource, ...UNKNOWN });
  return of.quotas.get(key);
}

function readSpec(of, spec) {
  for (const group of spec?.resourceGroups || []) {
    for (const flavor of group.flavors) {
      for (const given of flavor.resources) {
        const entry = quota(of, flavor.name, given.name);
        entry.nominal = amount(given.currentQuota ?? given.nominalQuota);
        entry.lendingLimit = given.lendingLimit === undefined ? Infinity : amount(given.lendingLimit);
        entry.borrowingLimit = given.borrowingLimit === undefined ? Infinity : amount(given.borrowingLimit);
      }
    }
  }
}

// Node of a single ClusterQueue, outside of a tree.
export function queueNode(item) {
  const found = node("ClusterQueue", item.metadata.name, item, item.spec.cohortName || "");
  readSpec(found, item.spec);
  found.pending = item.status?.pendingWorkloads || 0;
  found.admitted = item.status?.admittedWorkloads || 0;
  for (const flavor of item.status?.flavorsUsage || []) {
    for (const used of flavor.resources) {
      const entry = quota(found, flavor.name, used.name);
      entry.used = amount(used.total);
      entry.borrowed = amount(used.borrowed || 0);
    }
  }
  return found;
}

// Returns the roots with their subtrees, including Cohorts without an object that are only named by their members.
export function forest(cohorts, queues) {
  const named = new Map();
  for (const item of cohorts) {
    const found = node("Cohort", item.metadata.name, item, item.spec?.parentName || "");
    readSpec(found, item.spec);
    named.set(found.name, found);
  }
  const leaves = queues.map(queueNode);
  for (const each of [...named.values(), ...leaves]) {
    if (each.parent && !named.has(each.parent)) named.set(each.parent, node("Cohort", each.parent, null, ""));
  }
  const roots = [];
  const byName = (a, b) => (a.kind === b.kind ? a.name.localeCompare(b.name) : a.kind === "Cohort" ? -1 : 1);
  for (const each of [...named.values(), ...leaves].sort(byName)) (each.parent ? named.get(each.parent).children : roots).push(each);
  for (const root of roots) {
    sumUp(root, 0, new Set());
    for (const key of root.quotas.keys()) lend(root, key);
  }
  return roots;
}

function sumUp(of, depth, above) {
  of.depth = depth;
  of.own = new Map([...of.quotas].map(([key, entry]) => [key, entry.nominal]));
  if (above.has(of)) return;
  for (const child of of.children) {
    sumUp(child, depth + 1, new Set([...above, of]));
    of.pending += child.pending;
    of.admitted += child.admitted;
    for (const [, entry] of child.quotas) {
      const sum = quota(of, entry.flavor, entry.resource);
      sum.nominal += entry.nominal;
      sum.used += entry.used;
    }
  }
  if (of.kind === "Cohort") for (const entry of of.quotas.values()) entry.borrowed = Math.max(0, entry.used - entry.nominal);
}

export function leavesOf(of) {
  return of.kind === "ClusterQueue" ? [of] : of.children.flatMap(leavesOf);
}

export function* walk(nodes) {
  for (const each of nodes) {
    yield each;
    yield* walk(each.children);
  }
}

// Estimates lent amounts: quota borrowed in a tree counts as lent by the Cohorts' own quota first, then by the members in
// proportion to their idle nominal quota.
function lend(root, key) {
  const members = leavesOf(root).map((leaf) => leaf.quotas.get(key)).filter(Boolean);
  let borrowed = members.reduce((sum, entry) => sum + entry.borrowed, 0);
  for (const each of walk([root])) if (each.kind === "Cohort") borrowed -= each.own?.get(key) || 0;
  const idle = (entry) => Math.min(Math.max(0, entry.nominal - entry.used), entry.lendingLimit ?? Infinity);
  const total = members.reduce((sum, entry) => sum + idle(entry), 0);
  for (const entry of members) entry.lent = borrowed > 0 && total > 0 ? Math.min(idle(entry), (borrowed * idle(entry)) / total) : 0;
}

// Sums of a node's amounts over all flavors of a resource, or of one flavor.
export function totals(of, resource, flavor = "") {
  const sum = { nominal: 0, used: 0, borrowed: 0, lent: 0, any: false };
  for (const entry of of.quotas.values()) {
    if (entry.resource !== resource || (flavor && entry.flavor !== flavor)) continue;
    sum.any = true;
    for (const name of ["nominal", "used", "borrowed", "lent"]) sum[name] += entry[name];
  }
  return sum;
}

// Amount at the right end of the bars of a resource, one for all flavors, so that they can be compared.
export function scaleOf(quotas, resource) {
  return Math.max(0, ...[...quotas].filter((entry) => entry.resource === resource).map((entry) => Math.max(entry.nominal, entry.used)));
}

const ORDER = (resource) => (/gpu|tpu|accelerator/i.test(resource) ? 0 : resource === "cpu" ? 1 : resource === "memory" ? 2 : 3);

export const compareResources = (a, b) => ORDER(a) - ORDER(b) || a.localeCompare(b);

// Resources of some nodes, accelerators first, with the flavors of each.
export function resourcesOf(nodes) {
  const found = new Map();
  for (const each of nodes) {
    for (const { resource, flavor } of each.quotas.values()) {
      if (!found.has(resource)) found.set(resource, new Set());
      found.get(resource).add(flavor);
    }
  }
  return [...found.entries()].sort(([a], [b]) => compareResources(a, b)).map(([name, flavors]) => ({ name, flavors: [...flavors].sort() }));
}

// Nominal and used amounts of a tree by flavor: Map of {resources: Map of {nominal, used, borrowed, lent}, queues: Set of names}.
export function quotaByFlavor(roots) {
  const found = new Map();
  const of = (flavor, resource) => {
    if (!found.has(flavor)) found.set(flavor, { resources: new Map(), queues: new Set() });
    const resources = found.get(flavor).resources;
    if (!resources.has(resource)) resources.set(resource, { nominal: 0, used: 0, borrowed: 0, lent: 0 });
    return resources.get(resource);
  };
  for (const each of walk(roots)) {
    for (const [key, entry] of each.quotas) {
      const sum = of(entry.flavor, entry.resource);
      sum.nominal += each.own?.get(key) || 0;
      if (each.kind === "ClusterQueue") {
        sum.used += entry.used;
        found.get(entry.flavor).queues.add(each.name);
      }
    }
  }
  return found;
}
