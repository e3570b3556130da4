// How the wished wait of a ClusterQueue was met, by week, and what was in the way.
import { Badge, Failure, Loading } from "../lib/components.js";
import { count, duration, percent } from "../lib/format.js";
import { useAnswer } from "../lib/live.js";
import { html } from "../lib/ui.js";

const WEEKS = 12;
const NAMED = 3;
const ZONE = new Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";

export function Objective({ name }) {
  const found = useAnswer("/apis/sluice.dev/v1/reports/objectives", { clusterqueue: name, weeks: WEEKS, timezone: ZONE }, { everyMs: 300000 });
  if (found.error && !found.data) return html`<${Failure} error=${found.error} retry=${found.again} />`;
  if (!found.data) return html`<${Loading} />`;
  const [present] = found.data.items;
  if (!present) return null;
  return html`<p><b>${present.percentile} of 100</b> workloads are to start within <b>${duration(present.wishedSeconds)}</b>.</p>
    <div class="table-box" tabindex="0" role="region" aria-label="Objective by week"><table>
    <thead><tr><th scope="col">Week</th><th scope="col" class="number opt">Workloads</th><th scope="col">Wished</th><th scope="col" class="wide opt">In time</th><th scope="col" class="number">In time</th>
      <th scope="col" class="number">That share started within</th><th scope="col" class="number opt">Waiting</th><th scope="col">In the way</th></tr></thead>
    <tbody>${found.data.items.map((week) => html`<${Week} key=${week.week} ...${week} />`)}</tbody></table></div>
    <p class="soft small table-note">A workload belongs to the week in which it was created. Those that have not started count with the time that they have waited.${" "}
      <b>In the way</b> are the reasons for which those waited that did not start in time, with their shares of that time. A week is judged by the objective that the queue had at its end, or by its first one.</p>`;
}

function Week({ week, to, partial, wishedSince, wishedSeconds, percentile, workloads, met, waiting, waitSeconds, isMet, obstacles }) {
  const head = html`<th scope="row">${week} ${partial && html`<span class="small soft">a part</span>`}</th>`;
  const wish = html`<td>${percentile} % in ${duration(wishedSeconds)} ${wishedSince > to && html`<span class="small soft">set later</span>`}</td>`;
  if (!workloads) return html`<tr>${head}<td class="number opt">0</td>${wish}<td class="wide opt"></td><td class="number soft">–</td><td class="number soft">–</td><td class="number opt soft">–</td><td></td></tr>`;
  const all = obstacles.reduce((sum, each) => sum + each.seconds, 0), share = (100 * met) / workloads;
  return html`<tr>${head}<td class="number opt">${count(workloads)}</td>${wish}
    <td class="wide opt"><svg class="quota-bar" role="img" aria-label=${`${percent(met, workloads)} in time, ${percentile} % wished`} width="100%" height="16" preserveAspectRatio="none">
      <rect class="bar-track" x="0" y="3" width="100%" height="10" rx="2" /><rect class=${isMet ? "bar-used" : "bar-borrowed"} x="0" y="3" width=${`${share}%`} height="10" rx="2" />
      <rect class="bar-nominal" x=${`${percentile}%`} y="0" width="1.5" height="16" /></svg></td>
    <td class="number">${percent(met, workloads)} <${Badge} tone=${isMet ? "ok" : "warn"}>${isMet ? "met" : "missed"}<//></td>
    <td class="number">${duration(waitSeconds)}</td><td class="number opt">${count(waiting)}</td>
    <td>${obstacles.slice(0, NAMED).map((each, index) => html`${index > 0 && ", "}${each.reason} <span class="soft">${percent(each.seconds, all)}</span>`)}</td></tr>`;
}
