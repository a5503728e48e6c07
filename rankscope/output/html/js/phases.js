// The phases of every rank as stacked bars: the mean of all iterations, or the picked iteration.

const phasesChart = byId("phases-chart");
const MOST_BARS = 160; // more ranks are drawn as areas, because that many bars take seconds
const stack = { parts: [], order: [], median: -1, beside: null };

async function partsOfRanks() {
  if (byId("phases-of").value === "mean") return ranks.map((_, rank) => meanParts(rank));
  const columns = new Map();
  for (const name of [...PHASES, "exposed_communication", "wait"]) {
    if (known.includes(name)) columns.set(name, await column(name));
  }
  const width = iterations.length;
  const at = picked.iteration;
  return ranks.map((_, rank) => parts((name) => (columns.has(name) ? inMs(columns.get(name)[rank * width + at]) : NaN)));
}

const work = (each) => PHASES.reduce((sum, name) => sum + (each.get(name) ?? 0), 0);

async function drawPhases() {
  stack.parts = await partsOfRanks();
  const means = byId("phases-of").value === "mean" ? page.phase_means : null;
  byId("phases-over").textContent = means ? `${[`Mean over ${means.over}`, ...means.notes].join("; ")}.` : "";
  stack.order = shown.order;
  const byWork = ranks.map((_, rank) => rank).sort((a, b) => work(stack.parts[a]) - work(stack.parts[b]) || a - b);
  stack.median = byWork[(byWork.length - 1) >> 1];
  const beside = Math.max(1, Math.round(ranks.length * 0.03));
  stack.beside = ranks.length > 2 ? -1 - beside : null;
  const shownParts = STACK.filter((part) => stack.parts.some((each) => each.has(part)));
  showLegend("phases", shownParts, named);
  const traces = shownParts.flatMap((part) => tracesOf(part, beside));
  const room = Math.max(2, (phasesChart.clientWidth - 70) / 46);
  const marks = ticks([0, ranks.length - 1], stack.order.map((place) => ranks[place]), room);
  if (stack.beside !== null) {
    marks.tickvals.unshift(stack.beside);
    marks.ticktext.unshift("median");
  }
  const x = axis("rank", { range: [(stack.beside ?? 0) - beside / 2 - 0.5, ranks.length - 0.5], ...marks, showgrid: false, zeroline: false });
  Plotly.react(phasesChart, traces, layout(phasesChart, 330, { shapes: pickedRank(), xaxis: x, yaxis: axis("ms", { rangemode: "tozero" }), margin: { l: 48, r: 12, t: 8, b: 44 } }), CONFIG);
}

/** A frame around the bar of the picked rank. */
function pickedRank() {
  const at = stack.order.indexOf(picked.rank);
  return [{ type: "rect", xref: "x", yref: "paper", x0: at - 0.5, x1: at + 0.5, y0: 0, y1: 1, line: { color: color("accent"), width: 2 } }];
}
const markPhases = () => Plotly.relayout(phasesChart, { shapes: pickedRank() });

function tracesOf(part, beside) {
  const value = (rank) => stack.parts[rank].get(part) ?? 0;
  const common = { name: named(part), hoverinfo: "none", marker: paint(part) };
  const x = stack.order.map((_, row) => row);
  const y = stack.order.map(value);
  const median = { ...common, type: "bar", x: [stack.beside], y: [value(stack.median)], width: beside, customdata: [stack.median] };
  const many = ranks.length > MOST_BARS;
  const all = many
    ? { ...common, type: "scatter", mode: "lines", stackgroup: "ranks", x, y, line: { width: 0, shape: "hvh" }, fillcolor: color(part), customdata: stack.order }
    : { ...common, type: "bar", x, y, customdata: stack.order };
  return stack.beside === null ? [all] : [all, median];
}

function listenToPhases() {
  phasesChart.on("plotly_click", ({ points: [point] }) => pick(point.customdata, picked.iteration));
  tell(phasesChart, ({ customdata: rank }) => [
    `${rankAndHost(rank)}${rank === stack.median ? ", median by work" : ""}`,
    ...[...stack.parts[rank]].map(([part, value]) => `${named(part)} ${ms(value)} ms`),
  ]);
  phasesChart.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || event.ctrlKey || event.altKey || event.metaKey) return;
    const at = Math.max(0, Math.min(ranks.length - 1, stack.order.indexOf(picked.rank) + step * (event.shiftKey ? 10 : 1)));
    pick(stack.order[at], picked.iteration);
    event.preventDefault();
  });
}
