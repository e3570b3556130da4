// Charts as SVG, each with a text alternative.
import { clock, day, dayOfReport, plural, shown } from "./format.js";
import { useWidth } from "./components.js";
import { html, useState } from "./ui.js";

// Bar of one queue's or Cohort's quota: used within nominal, borrowed, lent, idle. `scale` is the amount at the right end.
export function QuotaBar({ resource, totals, scale }) {
  const width = (value) => `${Math.max(0, Math.min(100, (100 * value) / (scale || 1)))}%`;
  const within = Math.min(totals.used, totals.nominal), beyond = Math.max(0, totals.used - totals.nominal);
  const text = [`${shown(resource, totals.used)} of ${shown(resource, totals.nominal)} used`,
    beyond > 0 ? `${shown(resource, beyond)} borrowed` : "", totals.lent > 0 ? `${shown(resource, totals.lent)} lent` : ""].filter(Boolean).join(", ");
  return html`<svg class="quota-bar" role="img" aria-label=${text} width="100%" height="16" preserveAspectRatio="none">
    <title>${text}</title>
    <rect class="bar-track" x="0" y="3" width=${width(totals.nominal)} height="10" rx="2" />
    ${totals.lent > 0 && html`<rect class="bar-lent" x=${width(Math.max(within, totals.nominal - totals.lent))} y="3" width=${width(Math.min(totals.lent, totals.nominal - within))} height="10" rx="2" />`}
    <rect class="bar-used" x="0" y="3" width=${width(within)} height="10" rx="2" />
    ${beyond > 0 && html`<rect class="bar-borrowed" x=${width(totals.nominal)} y="3" width=${width(beyond)} height="10" rx="2" />`}
    ${totals.nominal > 0 && html`<rect class="bar-nominal" x=${width(totals.nominal)} y="0" width="1.5" height="16" />`}
  </svg>`;
}

// Bar of a Budget's hours: spent, reserved, left, and what is beyond them.
export function BudgetBar({ resource, hours, spent, reserved }) {
  const used = spent + reserved, scale = Math.max(hours, used) || 1;
  const width = (value) => `${(100 * Math.max(0, value)) / scale}%`;
  const within = Math.min(spent, hours), upTo = Math.min(used, hours);
  const text = `${shown(resource, spent)} of ${shown(resource, hours)} hours spent${reserved > 0 ? `, ${shown(resource, reserved)} reserved` : ""}`;
  return html`<svg class="quota-bar" role="img" aria-label=${text} width="100%" height="16" preserveAspectRatio="none">
    <title>${text}</title>
    <rect class="bar-track" x="0" y="3" width="100%" height="10" rx="2" />
    <rect class="bar-used" x="0" y="3" width=${width(within)} height="10" rx="2" />
    ${upTo > within && html`<rect class="bar-lent" x=${width(within)} y="3" width=${width(upTo - within)} height="10" rx="2" />`}
    ${used > hours && html`<rect class="bar-borrowed" x=${width(hours)} y="3" width=${width(used - hours)} height="10" rx="2" />
      <rect class="bar-nominal" x=${width(hours)} y="0" width="1.5" height="16" />`}
  </svg>`;
}

// Bar of a value beside its text: `share` (0 to 1) of what the bar stands for as a whole.
export function ShareBar({ share }) {
  return html`<svg class="quota-bar" aria-hidden="true" width="100%" height="8"><rect class="bar-track" width="100%" height="8" rx="2" /><rect class="bar-used" width=${`${100 * share}%`} height="8" rx="2" /></svg>`;
}

export const SERIES_COLORS = 8;
const MOST_EVENTS = 50;

// Round tick values of an axis from zero to at least `most`.
function ticks(most) {
  const power = 2 ** Math.floor(Math.log2(most)), base = most > 4096 ? power : 10 ** Math.floor(Math.log10(most));
  const step = [0.1, 0.2, 0.25, 0.5, 1, 2, 2.5, 5].map((part) => part * base).find((each) => most / each <= 4.2) || base;
  return Array.from({ length: Math.ceil(most / step - 1e-9) + 1 }, (_, index) => index * step);
}

// Value of a step line, [{at, value}] in order of time, at a time.
export function valueAt(steps, time) {
  return steps.reduce((value, step) => (step.at <= time ? step.value : value), 0);
}

// Stacked bar chart. `series`: [{name, values}], one value for each of `times` (Unix ms); `unit`: of the axis;
// `line`: a limit over time {name, steps: [{at, value}]}; `events`: [{at, until, text}], which are marked.
export function StackedChart({ label, times, series, unit, line, events = [], format, stepMs, height = 190 }) {
  const [hovered, setHovered] = useState(-1);
  const [width, box] = useWidth();
  const left = 52, bottom = 22, top = 20, inner = height - bottom - top;
  const sums = times.map((_, index) => series.reduce((sum, each) => sum + (each.values[index] || 0), 0));
  const from = times[0], to = from + times.length * stepMs;
  const steps = line?.steps.filter((step) => step.at < to) || [];
  const marks = ticks(Math.max(...steps.map((step) => step.value), ...sums, 1e-9));
  const most = marks[marks.length - 1];
  const step = (width - left) / Math.max(1, times.length);
  const y = (value) => top + inner - (inner * value) / most;
  const x = (time) => left + (Math.max(0, time - from) / stepMs) * step;
  const below = times.map(() => 0);
  const bars = series.map((each, number) => {
    const rects = [];
    each.values.forEach((value, index) => {
      if (!value) return;
      rects.push(`M${(left + index * step).toFixed(1)} ${y(below[index]).toFixed(1)}h${Math.max(0.5, step - (step > 6 ? 1.5 : 0.3)).toFixed(1)}V${y(below[index] + value).toFixed(1)}h-${Math.max(0.5, step - (step > 6 ? 1.5 : 0.3)).toFixed(1)}z`);
      below[index] += value;
    });
    return html`<path key=${each.name} class=${`series s${number % SERIES_COLORS}`} d=${rects.join("")} />`;
  });
  const every = Math.max(1, Math.ceil(times.length / Math.max(2, Math.floor(width / 110))));
  const mean = sums.length ? sums.reduce((a, b) => a + b, 0) / sums.length : 0;
  const text = `${label}: on average ${format(mean)}, at most ${format(Math.max(0, ...sums))}${steps.length ? `, ${line.name} ${format(valueAt(steps, to))}` : ""}`;
  // Labels that do not fit before the right end are left out.
  const fits = (index) => width - (left + index * step) > 36;
  const named = (time) => (stepMs >= 86400000 ? dayOfReport(time) : clock(time));
  const stepPath = steps.map((each, index) => `${index ? "H" : "M"}${x(each.at).toFixed(1)}${index ? "" : ` ${y(each.value).toFixed(1)}`}${index ? `V${y(each.value).toFixed(1)}` : ""}`).join("") + (steps.length ? `H${width}` : "");
  const begins = hovered >= 0 ? times[hovered] : 0;
  const happened = hovered >= 0 ? events.filter((each) => (each.until ?? each.at) >= begins && each.at < begins + stepMs) : [];
  const find = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    const index = Math.floor((((event.clientX - box.left) / box.width) * width - left) / step);
    setHovered(index >= 0 && index < times.length ? index : -1);
  };
  return html`<figure class="chart" ref=${box}>
    <svg viewBox=${`0 0 ${width} ${height}`} role="img" aria-label=${text} onMouseMove=${find} onMouseLeave=${() => setHovered(-1)}>
      ${marks.map((value) => html`<g key=${value}><path class="grid" d=${`M${left} ${y(value)}H${width}`} /><text class="axis" x=${left - 6} y=${y(value) + 4} text-anchor="end">${format(value)}</text></g>`)}
      ${bars}
      ${unit && html`<text class="axis" x=${left - 6} y="10" text-anchor="end">${unit}</text>`}
      ${steps.length > 0 && html`<path class="limit" d=${stepPath} />`}
      ${events.map((each, index) => html`<g key=${index} class="event"><title>${each.text}</title>${each.until && html`<rect class="outage" x=${x(each.at)} y=${top} width=${Math.max(1, x(Math.min(each.until, to)) - x(each.at))} height=${inner} />`}<path d=${`M${x(each.at).toFixed(1)} ${top}V${top + inner}`} /><path class="event-head" d=${`M${x(each.at).toFixed(1)} ${top}l-4 -7h8z`} /></g>`)}
      ${times.map((time, index) => index % every === 0 && fits(index) && html`<text key=${time} class="axis" x=${left + index * step} y=${height - 5}>${named(time)}</text>`)}
      ${hovered >= 0 && html`<rect class="hovered" x=${left + hovered * step} y=${top} width=${step} height=${inner} />`}
    </svg>
    <figcaption class="legend">
      ${hovered >= 0 && html`<span class="legend-at">${stepMs >= 86400000 ? dayOfReport(times[hovered]) : `${day(times[hovered])} ${clock(times[hovered])}`}</span>`}
      ${series.map((each, number) => html`<span key=${each.name}><i class=${`swatch s${number % SERIES_COLORS}`}></i><bdi>${each.name}</bdi>${
        hovered >= 0 ? html` <b>${format(each.values[hovered] || 0)}</b>` : ""}</span>`)}
      ${hovered >= 0 && series.length > 1 && html`<span>in all <b>${format(sums[hovered])}</b></span>`}
      ${steps.length > 0 && html`<span><i class="swatch limit-swatch"></i>${line.name} <b>${format(valueAt(steps, hovered >= 0 ? begins + stepMs - 1 : to))}</b></span>`}
      ${happened.map((each, index) => html`<span key=${`event ${index}`}><i class="swatch event-swatch"></i><bdi>${each.text}</bdi></span>`)}
    </figcaption>
    ${events.length > 0 && html`<details class="soft small"><summary>${plural(events.length, "event")}: changes of quota, queues that were stopped, outages</summary>
      <ul class="plain">${[...events].reverse().slice(0, MOST_EVENTS).map((each, index) => html`<li key=${index}><span class="nowrap">${day(each.at)} ${clock(each.at)}</span> <bdi>${each.text}</bdi></li>`)}</ul></details>`}
  </figure>`;
}

// Small line chart of one value over time, and of its limit at the same times.
export function Sparkline({ label, values, limits, mean }) {
  const most = Math.max(...limits, ...values, 1e-9), step = 100 / Math.max(1, values.length - 1);
  const points = (of) => of.map((value, index) => `${(index * step).toFixed(2)} ${(30 - (28 * value) / most).toFixed(2)}`).join("L");
  if (!values.length) return null;
  return html`<svg class="spark" viewBox="0 0 100 32" preserveAspectRatio="none" role="img" aria-label=${`${label}: ${mean} on average`}>
    <path class="spark-area" d=${`M0 31L${points(values)}L100 31z`} /><path class="spark-line" d=${`M${points(values)}`} />
    ${limits.length > 0 && html`<path class="spark-limit" d=${`M${points(limits)}`} />`}
  </svg>`;
}
