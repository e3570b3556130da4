// Page "My work": workloads of the signed-in user, what failed and what waits first, those that wait for the same reason together.
import { Age, Badge, Card, conditionOf, Empty, Failure, Free, HOPELESS, Loading, PageHead, StateBadge } from "../lib/components.js";
import { count, plural, seconds } from "../lib/format.js";
import { useNow } from "../lib/live.js";
import { link } from "../lib/router.js";
import { useReadable, useSession, useSome } from "../lib/session.js";
import { html } from "../lib/ui.js";
import { NamespaceNotifications } from "./overview.js";
import { Estimate } from "./workload.js";
import { Requests, requestsOf, shortly, WorkloadName, Workloads } from "./workloads.js";

const FINISHED = 200;
const FAILED_SECONDS = 86400;
// Workloads with the same reason that are shown before the rest is folded.
const SHOWN = 3;

export function MyWork() {
  const session = useSession();
  const escaped = session.user.replace(/[\\,=]/g, "\\$&");
  const found = useReadable("workloads", { fieldSelector: `spec.user=${escaped},status.state!=finished` });
  // Read again when the number of active workloads changes. Not watched: a user may have very many finished ones.
  const ended = useSome("workloads", { fieldSelector: `spec.user=${escaped},status.state=finished` }, found.items.length);
  const now = Math.floor(useNow() / 60000) * 60;
  const head = html`<${PageHead} title="My work">Submitted by <bdi>${session.user}</bdi><//>`;
  if (found.error) return html`${head}<${Failure} error=${found.error} />`;
  if (!found.ready) return html`${head}<${Card}><${Loading} /><//>`;
  const waiting = found.items.filter((workload) => workload.status.state === "pending").sort((a, b) => a.status.queuedAt.localeCompare(b.status.queuedAt));
  const active = found.items.filter((workload) => workload.status.state !== "pending");
  const past = [...ended.items].sort((a, b) => endOf(b) - endOf(a));
  const failed = past.filter((workload) => conditionOf(workload, "Finished")?.reason === "Failed" && endOf(workload) > now - FAILED_SECONDS);
  if (!found.items.length && !past.length) return html`${head}${!session.rights.clusterQueues && html`<${NamespaceNotifications} />`}<${Card}><${Teach} /><//>`;
  const others = past.filter((workload) => !failed.includes(workload)).slice(0, FINISHED);
  return html`${head}${!session.rights.clusterQueues && html`<${NamespaceNotifications} />`}
    ${failed.length > 0 && html`<${Card} title="Failed in the last day" note=${plural(failed.length, "workload")} className="bad">
      <${Workloads} label="Failed workloads" items=${failed} columns=${["name", "namespace", "state", "why", "requests", "ended"]} highest=${230} /><//>`}
    <${Card} title="Waiting" note=${waiting.length ? plural(waiting.length, "workload") : ""}>
      ${waiting.length ? groupsOf(waiting).map((group) => html`<${WaitingGroup} key=${group.key} group=${group} />`)
        : html`<${Empty} title="Nothing of yours waits">A Job that you submit to a queue appears here until it is admitted, with the reason why it waits.<//>`}
    <//>
    <${Card} title="Running" note=${active.length ? plural(active.length, "workload") : ""}>
      ${active.length ? html`<${Workloads} label="Running workloads" items=${active} columns=${["name", "namespace", "state", "requests", "running"]} highest=${320} />`
        : html`<${Empty} title="Nothing of yours runs">Admitted workloads appear here, with what they hold.<//>`}
    <//>
    ${others.length > 0 && html`<details class="card fold"><summary><h2>Finished</h2> <span class="soft">${ended.more ? `${others.length} of them` : plural(others.length, "workload")}</span></summary>
      <${Workloads} label="Finished workloads" items=${others} columns=${["name", "namespace", "state", "requests", "ended"]} highest=${320} />
      <p class="soft small"><a href=${`${link("workloads")}?from=all&state=ended&user=${encodeURIComponent(session.user)}`}>All that ended</a></p></details>`}`;
}

const endOf = (workload) => seconds(conditionOf(workload, "Finished")?.lastTransitionTime || 0) || 0;

// Waiting workloads by reason, those that need an action first: [{key, reason, state, items}].
function groupsOf(waiting) {
  const groups = new Map();
  for (const workload of waiting) {
    const reason = conditionOf(workload, "QuotaReserved")?.reason || "", held = workload.spec.hold || workload.spec.active === false;
    const key = `${reason} ${held}`;
    if (!groups.has(key)) groups.set(key, { key, reason, items: [] });
    groups.get(key).items.push(workload);
  }
  return [...groups.values()].sort((a, b) => HOPELESS.has(b.reason) - HOPELESS.has(a.reason));
}

function WaitingGroup({ group }) {
  const { reason, items } = group;
  const said = [...new Set(items.map(messageOf))], isShared = items.length > 1 && said.length === 1;  // then it is said once
  const rows = items.map((workload) => html`<${Waiting} key=${workload.metadata.uid} workload=${workload} text=${isShared ? "" : messageOf(workload)} />`);
  const sums = {};
  for (const workload of items.slice(SHOWN)) for (const [resource, value] of Object.entries(requestsOf(workload))) sums[resource] = (sums[resource] || 0) + value;
  return html`<section class="work-group"><p class="work-line"><${StateBadge} workload=${items[0]} />${!reason.startsWith("Deactivated") && html`<${Badge} tone=${HOPELESS.has(reason) ? "bad" : "calm"}>${reason || "Evaluating"}<//>`}<span class="soft">${count(items.length)}</span></p>
    ${isShared && html`<p class="why"><${Free} text=${said[0]} longest=${300} /></p>`}
    <ul class="work-list">${rows.slice(0, SHOWN)}</ul>
    ${rows.length > SHOWN && html`<details><summary class="soft">${count(rows.length - SHOWN)} more, together <${Requests} requests=${sums} /></summary><ul class="work-list">${rows.slice(SHOWN, FINISHED)}</ul></details>`}</section>`;
}

const messageOf = (workload) => shortly(conditionOf(workload, "QuotaReserved")?.message) || "";

function Waiting({ workload, text }) {
  const { estimatedStart } = workload.status;
  return html`<li title=${conditionOf(workload, "QuotaReserved")?.message}>
    <div class="work-line"><${WorkloadName} workload=${workload} /><span class="soft"><bdi>${workload.metadata.namespace}/${workload.spec.queueName}</bdi></span><span class="grow"></span><span class="nowrap">waits <${Age} since=${workload.status.queuedAt} /></span></div>
    ${(text || estimatedStart) && html`<p class="why"><${Free} text=${text} longest=${160} />${estimatedStart && html` <span class="soft"><${Estimate} estimate=${estimatedStart} /></span>`}</p>`}
  </li>`;
}

function Teach() {
  return html`<${Empty} title="You have submitted nothing yet">
    <p>Add a label to a Job, and it waits for its turn in that queue:</p>
    <pre><code>metadata:
  labels: {"sluice.dev/queue-name": "batch"}</code></pre>
    <p>Then its place, why it waits and what it uses are here.</p><//>`;
}
