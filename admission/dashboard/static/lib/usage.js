// Usage over time: parameters of the usage report, and conversion of its items to series for charts.
import { amount, duration, resourceName, seconds, shown } from "./format.js";

export const PERIODS = {
  hour: { text: "Hour", from: "1h", seconds: 3600 },
  day: { text: "Day", from: "1d", seconds: 86400 },
  month: { text: "Month", from: "30d", seconds: 2592000 },
};
export const PERIOD_OPTIONS = Object.entries(PERIODS).map(([value, { text }]) => ({ value, text }));

// The server begins with the first usage of all, and chooses the interval for what is left.
export const INTERVAL = "auto";

// Time that a report is about: shorter than the one asked for, as long as usage is known for less.
export const knownSeconds = (report) => seconds(report.to) - seconds(report.from);

// Name of an item's group; the report sums up the groups beyond the parameter `top` in one item.
export const nameIn = (item, nameOf) => (item.others ? `${item.others} others` : nameOf(item));

// Converts a report to average amounts in use: {times, series, total}. The largest series come first; those beyond `most` are
// summed up as "others".
export function seriesOf(report, resource, nameOf, most = 7) {
  const step = report.intervalSeconds, start = seconds(report.from), end = seconds(report.to);
  const times = [];
  for (let at = start; at < end; at += step) times.push(at * 1000);
  const found = new Map();
  for (const item of report.items) {
    if (item.resource !== resource) continue;
    const index = Math.round((seconds(item.from) - start) / step);
    const length = Math.min(step, end - (start + index * step));
    const name = nameIn(item, nameOf);
    if (!found.has(name)) found.set(name, { name, values: times.map(() => 0), sum: 0, others: item.others || 0 });
    const series = found.get(name);
    if (index >= 0 && index < times.length) series.values[index] += item.amountSeconds / length;
    series.sum += item.amountSeconds;
  }
  const sorted = [...found.values()].sort((a, b) => !!a.others - !!b.others || b.sum - a.sum);
  const kept = sorted.slice(0, most), rest = sorted.slice(most);
  if (rest.length) {
    const values = times.map((_, index) => rest.reduce((sum, each) => sum + each.values[index], 0));
    kept.push({ name: `${rest.reduce((sum, each) => sum + (each.others || 1), 0)} others`, values, sum: rest.reduce((sum, each) => sum + each.sum, 0) });
  }
  return { times, series: kept, total: sorted.reduce((sum, each) => sum + each.sum, 0) };
}

// Nominal quota of a resource over the time of a report with `quota`, for charts: {name, steps: [{at, value}]}.
export function nominalOf(report, resource) {
  const found = report.quotas?.find((each) => each.resource === resource);
  return { name: "nominal quota", steps: (found?.steps || []).map((step) => ({ at: seconds(step.from) * 1000, value: amount(step.amount) })) };
}

// Average of a step line between two times (Unix ms).
export function meanOf(steps, from, to) {
  const ends = [...steps.slice(1).map((step) => step.at), to];
  return steps.reduce((sum, step, index) => sum + step.value * Math.max(0, Math.min(ends[index], to) - Math.max(step.at, from)), 0) / Math.max(1, to - from);
}

// Events of a report with `quota`, for charts: [{at, until, text}]; `until`: of those that lasted. Changes of the quota of other resources are left out.
export function eventsOf(report, resource) {
  const events = [];
  for (const event of report.events || []) {
    const at = seconds(event.time) * 1000, name = event.namespace ? `${event.namespace}/${event.name}` : event.name;
    if (event.type === "Outage") events.push({ at, until: seconds(event.until) * 1000, text: `nothing was decided for ${duration(seconds(event.until) - seconds(event.time))}: ${event.message}` });
    else if (event.type !== "QuotaChanged") events.push({ at, text: `${event.kind} ${name} was ${event.type.toLowerCase()}` });
    else {
      const changes = event.changes.filter((change) => change.resource === resource)
        .map((change) => `${shown(resource, amount(change.from))} → ${shown(resource, amount(change.to))} ${resourceName(resource)} (${change.flavor})`);
      if (changes.length) events.push({ at, text: `quota of ${name}: ${changes.join(", ")}` });
    }
  }
  return events;
}
