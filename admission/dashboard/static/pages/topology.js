// Page "Topology" of a flavor: a map of its blocks, racks and nodes with what is used, what runs where, and what would fit.
import { Card, Empty, Failure, Loading, PageHead, Segments, Table } from "../lib/components.js";
import { amount, count, percent, plural, resourceName, shown } from "../lib/format.js";
import { useAnswer } from "../lib/live.js";
import { link, navigate, useParameter, workloadLink } from "../lib/router.js";
import { html, useEffect, useMemo, useRef, useState } from "../lib/ui.js";

const HOSTNAME = "kubernetes.io/hostname";
const MOST_OUT = 50;
const MOST_CELLS = 2500;  // above that racks are drawn, and the nodes of the one that is opened
const levelName = (label) => (label === HOSTNAME ? "node" : label.split("/").pop());

export function TopologyPage({ flavor }) {
  const [within, setWithin] = useParameter("within");
  const found = useAnswer("/apis/sluice.dev/v1/reports/topology", { flavor, most: MOST_CELLS, ...(within ? { within } : {}) }, { everyMs: 10000 });
  const [wanted, setWanted] = useParameter("resource");
  const report = found.data;
  const head = html`<${PageHead} title=${`Topology of ${flavor}`} crumbs=${[{ href: link("flavors"), text: "Flavors and nodes" }]}>What is free on its nodes, and what runs where<//>`;
  if (found.error && !report) return html`${head}<${Failure} error=${found.error} retry=${found.again} />`;
  if (!report) return html`${head}<${Card}><${Loading} lines=${8} /><//>`;
  if (!report.domains.length) return html`${head}<${Card}><${Empty} title="There are no nodes">No node has the labels of the flavor and of all levels: ${report.levels.map((level) => level.nodeLabel).join(", ")}.<//><//>`;
  const resource = report.resources.includes(wanted) ? wanted : report.resources.find((name) => name.includes("/")) || report.resources[0];
  return html`${head}
    ${report.resources.length > 1 && html`<div class="filters"><${Segments} label="Resource" options=${report.resources.map((value) => ({ value, text: resourceName(value) }))} value=${resource} onChange=${setWanted} /></div>`}
    <${Fits} report=${report} resource=${resource} />
    <${NodeMap} key=${within} report=${report} resource=${resource} within=${within} onOpen=${setWithin} />
    <${OutNodes} report=${report} />`;
}

// The largest workload that would fit now into one domain of each level.
function Fits({ report, resource }) {
  const single = report.levels[report.levels.length - 1].nodeLabel === HOSTNAME;
  const { capacity, used, usedByOthers, free } = report.total;
  return html`<${Card} title="What would fit now" note=${`${shown(resource, amount(free[resource]))} of ${shown(resource, amount(capacity[resource]))} ${resourceName(resource)} free`}>
    <${Table} label="Largest free domain of each level" rows=${report.levels} keyOf=${(level) => level.nodeLabel} columns=${[
      { name: "In one", cell: (level) => html`<b>${levelName(level.nodeLabel)}</b>` },
      { name: "Free at most", className: "number", cell: (level) => shown(resource, amount(fitOf(level, resource).free)) },
      { name: "Where", cell: (level) => html`<bdi>${fitOf(level, resource).values.join(" / ") || "–"}</bdi>` },
      ...(single ? [{ name: "Nodes without pods at most", className: "number", cell: (level) => (level.nodeLabel === HOSTNAME ? "" : count(level.mostWhole)) },
        { name: "In", className: "opt", cell: (level) => (level.nodeLabel === HOSTNAME ? "" : html`<bdi>${level.mostWholeIn.join(" / ") || "–"}</bdi>`) }] : []),
    ]} />
    <p class="soft small table-note">${percent(amount(used[resource]), amount(capacity[resource]))} used by workloads that are placed by topology, ${percent(amount(usedByOthers[resource]), amount(capacity[resource]))} by other pods; ${plural(report.out.length, "node")} out.</p>
  <//>`;
}

const fitOf = (level, resource) => level.mostFree.find((fit) => fit.resource === resource) || { free: 0, values: [] };

const CELL = 13, GAP = 2, PAD = 8, TITLE = 17, BLOCK = 24;

// Positions of all cells: racks flow in rows below the name of their block; a rack has its nodes in a near square.
function arrange(report, width) {
  const depth = shownDepth(report);
  const leaves = report.domains.filter((domain) => domain.values.length === depth);
  const groups = new Map();  // block -> rack -> leaves; with two levels there is one group, with one a single rack
  for (const leaf of leaves) {
    const block = depth > 2 ? leaf.values.slice(0, depth - 2).join(" / ") : "";
    const rack = depth > 1 ? leaf.values[depth - 2] : report.topology;
    if (!groups.has(block)) groups.set(block, new Map());
    if (!groups.get(block).has(rack)) groups.get(block).set(rack, []);
    groups.get(block).get(rack).push(leaf);
  }
  const cells = [], titles = [];
  let y = 0;
  for (const [block, racks] of groups) {
    if (block) {
      titles.push({ text: block, x: 0, y: y + 14, strong: true, most: width });
      y += BLOCK;
    }
    let x = 0, tallest = 0;
    for (const [rack, members] of racks) {
      const across = Math.max(4, Math.min(Math.floor(width / (CELL + GAP)), Math.ceil(Math.sqrt(members.length))));
      const wide = across * (CELL + GAP), high = TITLE + Math.ceil(members.length / across) * (CELL + GAP);
      if (x && x + wide > width) {
        x = 0;
        y += tallest + PAD;
        tallest = 0;
      }
      titles.push({ text: rack, x, y: y + 11, most: wide });
      members.forEach((leaf, index) => cells.push({ leaf, x: x + (index % across) * (CELL + GAP), y: y + TITLE + Math.floor(index / across) * (CELL + GAP) }));
      x += wide + PAD;
      tallest = Math.max(tallest, high);
    }
    y += tallest + PAD * 2;
  }
  return { cells, titles, height: Math.max(1, y) };
}

// How many levels the answer has: with very many nodes not all.
const shownDepth = (report) => report.domains.reduce((most, domain) => Math.max(most, domain.values.length), 1);

// The state of a node for its colour: out, or the used share in five steps.
function shade(leaf, resource) {
  if (leaf.nodes === leaf.out) return "out";
  const whole = amount(leaf.capacity[resource]), free = amount(leaf.free[resource]);
  if (leaf.whole === leaf.nodes - leaf.out) return 0;
  return whole ? Math.max(1, Math.min(4, Math.ceil((4 * (whole - free)) / whole))) : 4;
}

// A canvas draws ten thousand nodes in one frame, which as many elements of SVG do not.
function NodeMap({ report, resource, within, onOpen }) {
  const box = useRef(null), canvas = useRef(null);
  const [width, setWidth] = useState(0);
  const [chosen, setChosen] = useState(-1);
  const [marked, setMarked] = useState(-1);  // workload whose pods are outlined
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  const plan = useMemo(() => arrange(report, width || 320), [report, width]);
  const reasons = useMemo(() => new Map(report.out.map((node) => [node.values.join("\n"), node.reason])), [report]);
  const [painted, repaint] = useState(0);
  useEffect(() => {  // the theme is changed by the system, or by the user
    const again = () => repaint((number) => number + 1);
    const media = matchMedia("(prefers-color-scheme: dark)");
    const observer = new MutationObserver(again);
    media.addEventListener("change", again);
    observer.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    return () => {
      media.removeEventListener("change", again);
      observer.disconnect();
    };
  }, []);
  useEffect(() => {
    if (width && canvas.current) paint(canvas.current, plan, { width, resource, chosen, marked });
  }, [plan, width, resource, chosen, marked, painted]);
  const depth = shownDepth(report), single = depth === report.levels.length;
  const cellName = levelName(report.levels[depth - 1].nodeLabel);
  const enter = (leaf) => (single ? open(leaf, report) : onOpen(leaf.values.join("/")));
  const at = (event) => {
    const place = canvas.current.getBoundingClientRect(), x = event.clientX - place.left, y = event.clientY - place.top;
    return plan.cells.findIndex((cell) => x >= cell.x && x < cell.x + CELL + GAP && y >= cell.y && y < cell.y + CELL + GAP);
  };
  const steps = { ArrowRight: 1, ArrowLeft: -1 };
  const keys = (event) => {
    const cell = plan.cells[chosen];
    if (event.key === "Escape") setChosen(-1);
    else if (event.key === "Enter" && cell) enter(cell.leaf);
    else if (event.key in steps) setChosen(Math.max(0, Math.min(plan.cells.length - 1, chosen + steps[event.key])));
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") setChosen(beside(plan.cells, chosen, event.key === "ArrowDown"));
    else return;
    event.preventDefault();
  };
  const cell = plan.cells[chosen];
  const partly = plan.cells.filter(({ leaf }) => !leaf.whole && leaf.nodes > leaf.out && amount(leaf.free[resource]) > 0).length;
  return html`<${Card} title="Map" note=${within ? "" : `${plural(report.total.nodes, "node")}, ${count(report.total.whole)} without pods, ${single ? `${count(partly)} partly used, ` : ""}${count(report.out.length)} out`}>
    ${within && html`<p>Only <b><bdi>${within.split("/").join(" / ")}</bdi></b>. <button type="button" class="text-button" onClick=${() => onOpen("")}>Show all</button></p>`}
    ${!single && html`<p class="soft">Each square is a ${cellName}: open one to see its nodes.</p>`}
    <p class="legend topology-legend">${[["0", "no pods"], ["1", "up to ¼"], ["2", "½"], ["3", "¾"], ["4", "full"], ["out", "out"]].map(([name, text]) => html`<span key=${name}><i class=${`swatch heat-${name}`}></i>${text}</span>`)}</p>
    <div class="topology" ref=${box}>
      <canvas ref=${canvas} role="application" tabindex="0" style=${{ height: `${plan.height}px` }}
        aria-label=${single ? `Map of ${plural(plan.cells.length, "node")}. The arrow keys choose one, Enter opens its workload.` : `Map of ${plural(plan.cells.length, cellName)}. The arrow keys choose one, Enter shows its nodes.`} aria-describedby="topology-cell"
        onMouseMove=${(event) => { const index = at(event); if (index >= 0) setChosen(index); }}
        onClick=${(event) => { const index = at(event); if (index >= 0) { setChosen(index); enter(plan.cells[index].leaf); } }} onKeyDown=${keys}></canvas>
    </div>
    <div id="topology-cell" class="topology-cell" aria-live="polite">${cell ? html`<${Node} leaf=${cell.leaf} report=${report} resource=${resource} reason=${reasons.get(cell.leaf.values.join("\n"))} marked=${marked} onMark=${setMarked} />`
      : html`<p class="soft">Point at a node, or choose one with the arrow keys, to see what is there.</p>`}</div>
  <//>`;
}

// The nearest cell below or above.
function beside(cells, chosen, down) {
  const from = cells[chosen] || { x: 0, y: -1 };
  let best = chosen, distance = Infinity;
  cells.forEach((cell, index) => {
    const dy = down ? cell.y - from.y : from.y - cell.y;
    if (dy <= 0) return;
    const far = dy * 4 + Math.abs(cell.x - from.x);
    if (far < distance) [best, distance] = [index, far];
  });
  return best;
}

function open(leaf, report) {
  const known = (leaf.runs || []).map((run) => report.workloads[run.workload]).filter((workload) => workload.name);
  if (known.length) navigate(workloadLink(known[0].namespace, known[0].workload));
}

function Node({ leaf, report, resource, reason, marked, onMark }) {
  const runs = leaf.runs || [], others = runs.filter((run) => !report.workloads[run.workload].name);
  return html`<p><b><bdi>${leaf.values.join(" / ")}</bdi></b> <span class="soft">${shown(resource, amount(leaf.free[resource]))} of ${shown(resource, amount(leaf.capacity[resource]))} ${resourceName(resource)} free${amount(leaf.usedByOthers[resource]) > 0 ? `, ${shown(resource, amount(leaf.usedByOthers[resource]))} used by other pods` : ""}</span></p>
    ${reason && html`<p class="failed">It ${reason}.</p>`}
    ${leaf.values.length < report.levels.length && html`<p>${plural(leaf.nodes, "node")}, ${count(leaf.whole)} without pods, ${count(leaf.out)} out</p>`}
    ${runs.length > 0 && html`<ul class="plain">${runs.filter((run) => report.workloads[run.workload].name).map((run) => {
      const workload = report.workloads[run.workload];
      return html`<li key=${run.workload}><a href=${workloadLink(workload.namespace, workload.workload)}><bdi>${workload.namespace}/${workload.name}</bdi></a> <span class="soft">${plural(run.pods, "pod")} of ${count(workload.pods)}</span>
        <button type="button" class="text-button" aria-pressed=${String(marked === run.workload)} onClick=${() => onMark(marked === run.workload ? -1 : run.workload)}>Outline all its nodes</button></li>`;
    })}</ul>`}
    ${others.length > 0 && html`<p class="soft">${plural(others.reduce((sum, run) => sum + run.pods, 0), "pod")} of workloads in namespaces that you may not read</p>`}`;
}

function paint(canvas, plan, { width, resource, chosen, marked }) {
  const scale = devicePixelRatio || 1, style = getComputedStyle(canvas);
  const color = (name) => {  // a canvas does not know `light-dark()`, which only the value of a property resolves
    canvas.style.color = `var(${name})`;
    return style.color;
  };
  canvas.width = width * scale;
  canvas.height = plan.height * scale;
  const draw = canvas.getContext("2d");
  draw.scale(scale, scale);
  draw.clearRect(0, 0, width, plan.height);
  draw.textBaseline = "alphabetic";
  for (const title of plan.titles) {
    draw.font = `${title.strong ? "620 13px" : "11px"} ${style.fontFamily}`;
    draw.fillStyle = color(title.strong ? "--ink" : "--soft");
    let text = title.text;
    while (text.length > 2 && draw.measureText(text).width > title.most) text = `${text.slice(0, -2)}…`;
    draw.fillText(text, title.x, title.y);
  }
  const fills = Object.fromEntries([0, 1, 2, 3, 4, "out"].map((name) => [name, color(`--heat-${name}`)]));
  for (const { leaf, x, y } of plan.cells) {
    const name = shade(leaf, resource);
    draw.fillStyle = fills[name];
    draw.fillRect(x, y, CELL, CELL);
    if (name === "out") {  // a cross, so that colour alone does not tell it
      draw.strokeStyle = color("--card");
      draw.lineWidth = 1.5;
      draw.beginPath();
      draw.moveTo(x + 3, y + 3); draw.lineTo(x + CELL - 3, y + CELL - 3); draw.moveTo(x + CELL - 3, y + 3); draw.lineTo(x + 3, y + CELL - 3);
      draw.stroke();
    }
  }
  draw.strokeStyle = color("--ink");
  draw.lineWidth = 2;
  plan.cells.forEach(({ leaf, x, y }, index) => {
    if (index === chosen || (marked >= 0 && (leaf.runs || []).some((run) => run.workload === marked))) draw.strokeRect(x, y, CELL, CELL);
  });
}

function OutNodes({ report }) {
  if (!report.out.length) return null;
  return html`<${Card} title="Nodes that are out" note=${count(report.out.length)}>
    <${Table} label="Nodes that get no pods" rows=${report.out.slice(0, MOST_OUT)} keyOf=${(node) => node.name} columns=${[
      { name: "Node", cell: (node) => html`<bdi>${node.name}</bdi>` }, { name: "Where", cell: (node) => html`<bdi>${node.values.slice(0, -1).join(" / ") || "–"}</bdi>` }, { name: "Why", cell: (node) => `It ${node.reason}.` }]} />
    ${report.out.length > MOST_OUT && html`<p class="soft small table-note">The first ${MOST_OUT}; <code>sluice tree --topology ${report.flavor} -o json</code> has all.</p>`}
  <//>`;
}
