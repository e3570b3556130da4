// Page "My work": workloads of the signed-in user.
import { Age, Card, conditionOf, Empty, Failure, Free, Loading, PageHead, StateBadge } from "../lib/components.js";
import { plural, seconds } from "../lib/format.js";
import { useReadable, useSession, useSome } from "../lib/session.js";
import { html } from "../lib/ui.js";
import { Estimate } from "./workload.js";
import { Requests, requestsOf, WorkloadName, Workloads } from "./workloads.js";

const FINISHED = 200;

export function MyWork() {
  const session = useSession();
  const escaped = session.user.replace(/[\\,=]/g, "\\$&");
  const found = useReadable("workloads", { fieldSelector: `spec.user=${escaped},status.state!=finished` });
  // Read again when the number of active workloads changes. Not watched: a user may have very many finished ones.
  const ended = useSome("workloads", { fieldSelector: `spec.user=${escaped},status.state=finished` }, found.items.length);
  const head = html`<${PageHead} title="My work">Submitted by <bdi>${session.user}</bdi><//>`;
  if (found.error) return html`${head}<${Failure} error=${found.error} />`;
  if (!found.ready) return html`${head}<${Card}><${Loading} /><//>`;
  const waiting = found.items.filter((workload) => workload.status.state === "pending").sort((a, b) => a.status.queuedAt.localeCompare(b.status.queuedAt));
  const active = found.items.filter((workload) => workload.status.state !== "pending");
  const past = [...ended.items].sort((a, b) => endOf(b) - endOf(a)).slice(0, FINISHED);
  if (!found.items.length && !past.length) return html`${head}<${Card}><${Teach} /><//>`;
  return html`${head}
    <${Card} title="Waiting" note=${waiting.length ? plural(waiting.length, "workload") : ""}>
      ${waiting.length ? html`<ul class="work-list">${waiting.slice(0, 50).map((workload) => html`<${Waiting} key=${workload.metadata.uid} workload=${workload} />`)}</ul>
        ${waiting.length > 50 && html`<p class="soft small">The 50 that wait for longest are shown, of ${waiting.length}.</p>`}`
        : html`<${Empty} title="Nothing of yours waits">A Job that you submit to a queue appears here until it is admitted, with the reason why it waits.<//>`}
    <//>
    <${Card} title="Running" note=${active.length ? plural(active.length, "workload") : ""}>
      ${active.length ? html`<${Workloads} label="Running workloads" items=${active} columns=${["name", "namespace", "state", "requests", "running"]} highest=${320} />`
        : html`<${Empty} title="Nothing of yours runs">Admitted workloads appear here, with what they hold.<//>`}
    <//>
    ${past.length > 0 && html`<${Card} title="Finished" note=${ended.more ? `${past.length} of them; the usage report counts all` : past.length < ended.items.length ? `the last ${past.length}` : plural(past.length, "workload")}>
      <${Workloads} label="Finished workloads" items=${past} columns=${["name", "namespace", "state", "requests", "ended"]} highest=${320} /><//>`}`;
}

const endOf = (workload) => seconds(conditionOf(workload, "Finished")?.lastTransitionTime || 0) || 0;

function Waiting({ workload }) {
  const reserved = conditionOf(workload, "QuotaReserved");
  return html`<li>
    <div class="work-line"><${WorkloadName} workload=${workload} /><${StateBadge} workload=${workload} /><span class="soft"><bdi>${workload.metadata.namespace}/${workload.spec.queueName}</bdi></span><span class="grow"></span><span class="nowrap">waits <${Age} since=${workload.status.queuedAt} /></span></div>
    <p class="why"><b>${reserved?.reason}</b> <${Free} text=${reserved?.message} /></p>
    <${Requests} requests=${requestsOf(workload)} />
    ${workload.status.estimatedStart && html`<p class="soft"><${Estimate} estimate=${workload.status.estimatedStart} /></p>`}
  </li>`;
}

function Teach() {
  return html`<${Empty} title="You have submitted nothing yet">
    <p>Add a label to a Job, and it waits for its turn in that queue:</p>
    <pre><code>metadata:
  labels: {"sluice.dev/queue-name": "batch"}</code></pre>
    <p>Then its place, why it waits and what it uses are here.</p><//>`;
}
