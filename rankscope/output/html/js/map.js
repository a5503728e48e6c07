// The map of ranks × iterations. If there are more cells than pixels, each block shows its cell furthest from the median.

const heat = byId("heat");
const MARKS_SHOWN = 400; // most circles, and most triangles, so that drawing stays fast
const shown = { order: ranks.map((_, place) => place), rowOf: [], values: null, middle: null, blocks: null, limits: [0, 1] };
const full = () => ({ x: [-0.5, iterations.length - 0.5], y: [ranks.length - 0.5, -0.5] });
const view = full();

const byNumber = (low, high) => low - high;
const ORDERS = {
  rank: () => byNumber,
  score: () => {
    const score = rankColumn(columnOf(byId("metric").value)) || [];
    return (a, b) => (score[b] ?? -1) - (score[a] ?? -1) || a - b;
  },
  host: () => (a, b) => (hosts[a] || "").localeCompare(hosts[b] || "", "en", { numeric: true }) || a - b,
  role: () => (a, b) => roleIndex[a] - roleIndex[b] || a - b,
};

function sortRanks() {
  shown.order = ranks.map((_, place) => place).sort(ORDERS[byId("order").value]());
  shown.rowOf = new Array(ranks.length);
  shown.order.forEach((place, row) => (shown.rowOf[place] = row));
}

const heatHeight = () => Math.min(660, ranks.length * Math.max(14, Math.min(32, 240 / ranks.length)) + 120);
// the cells alone, without axes and colour scale, in pixels
const cellsWidth = () => heat.clientWidth - 70;
const cellsHeight = () => heatHeight() - 110;

/** The visible cells, merged into as many blocks of rows × columns as the screen can show. */
function blocks(excess) {
  const [left, right] = [Math.max(0, Math.ceil(view.x[0])), Math.min(iterations.length - 1, Math.floor(view.x[1]))];
  const [top, bottom] = [Math.max(0, Math.ceil(view.y[1])), Math.min(ranks.length - 1, Math.floor(view.y[0]))];
  const across = Math.max(1, Math.ceil((right - left + 1) / Math.max(100, cellsWidth())));
  const down = Math.max(1, Math.ceil((bottom - top + 1) / cellsHeight()));
  const x0 = Math.floor(left / across) * across;
  const y0 = Math.floor(top / down) * down;
  const [columns, rows] = [Math.ceil((right + 1 - x0) / across), Math.ceil((bottom + 1 - y0) / down)];
  const z = Array.from({ length: rows }, () => new Float64Array(columns).fill(NaN));
  const from = new Int32Array(rows * columns).fill(-1);
  const width = iterations.length;
  const factor = scaleOf(byId("metric").value);
  for (let row = y0; row <= bottom; row++) {
    const rank = shown.order[row];
    const line = z[Math.floor((row - y0) / down)];
    const start = Math.floor((row - y0) / down) * columns;
    const middle = shown.middle[roleIndex[rank]];
    for (let i = x0; i <= right; i++) {
      const raw = shown.values[rank * width + i];
      const block = Math.floor((i - x0) / across);
      if (from[start + block] < 0) from[start + block] = rank * width + i;
      if (raw === NONE) continue;
      const value = (excess ? raw - middle[i] : raw) * factor;
      const there = line[block];
      if (Number.isNaN(there) || (excess ? Math.abs(value) > Math.abs(there) : value > there)) {
        line[block] = value;
        from[start + block] = rank * width + i;
      }
    }
  }
  if (excess) for (const line of z) line.forEach((value, k) => (line[k] = placeOf(byId("metric").value, value)));
  return { z, from, columns, across, down, x0: x0 + (across - 1) / 2, y0: y0 + (down - 1) / 2 };
}

function quantiles(numbers) {
  const sorted = numbers.filter(Number.isFinite).sort(byNumber);
  return (share) => sorted[Math.round((sorted.length - 1) * share)] ?? 0;
}

/** The ends of the colour scale of values, or of excess (`place` of the ends). */
function limits(excess) {
  if (excess) return [-1, 1];
  const metric = byId("metric").value;
  const step = Math.max(1, Math.floor(shown.values.length / 50021)); // a prime: samples all columns
  const sample = [];
  for (let place = 0; place < shown.values.length; place += step) sample.push(scaled(metric, shown.values[place]));
  const all = quantiles(sample);
  return [all(0.005), Math.max(all(0.995), all(0.005) + 1e-3)];
}

/** Where an excess lies on the colour scale of a metric, whose ends are -1 and 1. */
function placeOf(metric, value) {
  const [linear, end] = cells.scales[metric];
  return Math.asinh(value / linear) / Math.asinh(end / linear);
}

/** Ticks of the colour scale of excess; where there is little room, only the middle and the outermost. */
function scaleTicks(metric) {
  const every = cells.ticks[metric];
  const chosen = narrow(heat) ? [every[0], 0, every.at(-1)] : every;
  const text = (value) => (value > 0 ? "+" : "") + String(value).replace("-", "−");
  return { tickvals: chosen.map((value) => placeOf(metric, value)), ticktext: chosen.map(text), tickangle: 0 };
}

/** Triangles on cells whose excess is beyond the colour scale, by more than cells are rounded. */
function triangles(excess) {
  const trace = {
    type: "scatter", mode: "markers", hoverinfo: "skip", showlegend: false, x: [], y: [],
    marker: { symbol: [], size: 8, color: color("page"), line: { color: color("mark"), width: 1.2 } },
  };
  if (!excess) return trace;
  const { z, x0, y0, across, down } = shown.blocks;
  z.forEach((line, row) => line.forEach((value, k) => {
    if (!(Math.abs(value) > 1 + 1e-3) || trace.x.length >= MARKS_SHOWN) return;
    trace.x.push(x0 + k * across);
    trace.y.push(y0 + row * down);
    trace.marker.symbol.push(value > 0 ? "triangle-up" : "triangle-down");
  }));
  return trace;
}

/** Positions and texts of ticks: round numbers if the labels ascend, else evenly spaced. */
function ticks([low, high], labels, room, text = String) {
  const [first, last] = [Math.max(0, Math.ceil(Math.min(low, high))), Math.min(labels.length - 1, Math.floor(Math.max(low, high)))];
  const least = (last - first + 1) / Math.max(1, room);
  const power = 10 ** Math.floor(Math.log10(Math.max(1, least)));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= least);
  const places = [];
  for (let place = first; place <= last; place++) places.push(place);
  const ascend = places.every((place) => place === first || labels[place] > labels[place - 1]);
  const round = places.filter((place) => (ascend ? labels[place] : place - first) % step === 0);
  const chosen = round.length ? round : places.slice(0, 1);
  return { tickvals: chosen, ticktext: chosen.map((place) => text(labels[place])) };
}

function rankTicks() {
  const room = cellsHeight() / 16;
  const order = byId("order").value;
  if (order === "host" || order === "role") {
    const names = shown.order.map((place) => (order === "host" ? hosts[place] : roleOf[place]) || UNKNOWN);
    const starts = names.map((_, row) => row).filter((row) => row === 0 || names[row] !== names[row - 1]);
    const seen = starts.filter((row) => row >= view.y[1] && row <= view.y[0]);
    if (seen.length && seen.length <= room) return { tickvals: seen, ticktext: seen.map((row) => literal(short(names[row], 14))) };
  }
  return ticks(view.y, shown.order.map((place) => ranks[place]), room);
}

/** So that a circle leaves the colour of its cell visible. */
function circleSize() {
  const across = cellsWidth() / Math.max(1, view.x[1] - view.x[0]);
  const down = cellsHeight() / Math.max(1, view.y[0] - view.y[1]);
  return Math.max(2.5, Math.min(6, 0.6 * Math.min(across, down)));
}

/** Circles on the flagged cells of the view, those with the largest excess first. */
function circles() {
  const trace = {
    type: "scatter", mode: "markers", hoverinfo: "skip", showlegend: false, x: [], y: [],
    marker: { symbol: "circle", size: circleSize(), color: color("page"), line: { color: color("mark"), width: circleSize() < 5 ? 0.8 : 1.4 } },
  };
  if (!byId("marks").checked) return trace;
  const width = iterations.length;
  for (const at of flags.keys()) {
    const [x, y] = [at % width, shown.rowOf[Math.floor(at / width)]];
    if (x < view.x[0] || x > view.x[1] || y > view.y[0] || y < view.y[1]) continue;
    trace.y.push(y);
    if (trace.x.push(x) >= MARKS_SHOWN) break;
  }
  return trace;
}

/** Lines through the picked cell and a frame around it. */
function crosshair() {
  const [x, y] = [picked.iteration, shown.rowOf[picked.rank]];
  const line = { color: color("muted"), width: 1, dash: "dot" };
  return [
    { type: "line", xref: "x", yref: "paper", x0: x, x1: x, y0: 0, y1: 1, line },
    { type: "line", xref: "paper", yref: "y", x0: 0, x1: 1, y0: y, y1: y, line },
    { type: "rect", xref: "x", yref: "y", x0: x - 0.5, x1: x + 0.5, y0: y - 0.5, y1: y + 0.5, line: { color: color("accent"), width: 3 } },
  ];
}

function drawMap() {
  const excess = byId("mode").value === "excess";
  const metric = byId("metric").value;
  shown.blocks = blocks(excess);
  const { z, x0, y0, across, down } = shown.blocks;
  const [zmin, zmax] = shown.limits;
  const [marks, flagged] = [triangles(excess), circles()];
  const what = `${named(metric)}${excess ? " above the median" : ""} (${unitOf(metric)})`;
  const notes = [
    "gray: unknown",
    marks.x.length ? `▲ beyond ${ms(cells.scales[metric][1])}` : "",
    flagged.x.length >= MARKS_SHOWN ? `circled: the ${MARKS_SHOWN} largest` : "",
  ].filter(Boolean).join("; ");
  const bar = {
    orientation: "h", x: 0, xanchor: "left", xpad: 0, ypad: 4, y: 1.01, yanchor: "bottom", thickness: 10, len: 0.6, outlinewidth: 0, nticks: narrow(heat) ? 4 : 8,
    ...(excess ? scaleTicks(metric) : {}),
    title: { text: `${what}${narrow(heat) ? "<br>" : "; "}${notes}`, side: "top", font: { size: 12 } },
  };
  const map = {
    type: "heatmap", z, x0, dx: across, y0, dy: down, zmin, zmax, zsmooth: false, hoverinfo: "none",
    colorscale: scale(excess ? "excess" : "value"), colorbar: bar,
  };
  const room = Math.max(2, cellsWidth() / 46);
  const more = {
    plot_bgcolor: color("unknown"), dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
    margin: { l: 56, r: 14, t: 8, b: 48 }, shapes: crosshair(),
    xaxis: axis("iteration", { title: { text: "iteration", font: { size: 12 }, standoff: 26 }, automargin: false, range: view.x, ...ticks(view.x, iterations, room), showgrid: false, zeroline: false, fixedrange: false }),
    yaxis: axis(byId("order").value === "host" ? "host" : "rank", { range: view.y, ...rankTicks(), showgrid: false, zeroline: false, fixedrange: false }),
  };
  Plotly.react(heat, [map, flagged, marks], layout(heat, heatHeight(), more), CONFIG);
}

async function showMap() {
  const metric = byId("metric").value;
  const excess = byId("mode").value === "excess";
  [shown.values, shown.middle] = [await column(metric), await medians(metric)];
  shown.limits = limits(excess);
  sortRanks();
  byId("map-meaning").textContent = `${named(metric)}: ${meaningOf(metric)}.`;
  drawMap();
}

function setView(x, y) {
  Object.assign(view, { x, y });
  drawMap();
}

/** Zoom around the picked cell. */
function zoom(factor) {
  const about = ([low, high], centre, least, most) => {
    const half = Math.max(2, (Math.abs(high - low) * factor) / 2);
    return [Math.max(least, centre - half), Math.min(most, centre + half)];
  };
  const [high, low] = about(view.y, shown.rowOf[picked.rank], -0.5, ranks.length - 0.5);
  setView(about(view.x, picked.iteration, -0.5, iterations.length - 0.5), [low, high]);
}

/** Move the view so that the picked cell is visible; true if the view moved. */
function follow() {
  const [x, y] = [picked.iteration, shown.rowOf[picked.rank]];
  const moved = ([low, high], at) => {
    const by = at < low ? at - 1 - low : at > high ? at + 1 - high : 0;
    return [low + by, high + by];
  };
  const before = [...view.x, ...view.y].join();
  const [top, bottom] = moved([view.y[1], view.y[0]], y);
  Object.assign(view, { x: moved(view.x, x), y: [bottom, top] });
  return before !== [...view.x, ...view.y].join();
}

const cellAt = (point) => {
  const [row, col] = point.pointNumber ?? point.pointIndex;
  return shown.blocks.from[row * shown.blocks.columns + col];
};

function listenToMap() {
  const width = iterations.length;
  heat.on("plotly_click", ({ points: [point] }) => {
    const at = cellAt(point);
    pick(Math.floor(at / width), at % width);
  });
  heat.on("plotly_hover", async ({ points: [point], event }) => {
    const at = cellAt(point);
    const cell = await describe(Math.floor(at / width), at % width, byId("metric").value);
    const many = shown.blocks.across * shown.blocks.down;
    const block = many > 1 ? `(of ${many} cells here, the one furthest from the median; zoom in)` : "";
    showTip(event, [cell.who, cell.value, cell.off, cell.flag, block]);
  });
  heat.on("plotly_unhover", hideTip);
  heat.addEventListener("dblclick", () => setView(full().x, full().y)); // plotly counts the time that it takes to draw as well
  heat.on("plotly_relayout", (change) => {
    if (!Object.keys(change).some((key) => key.startsWith("xaxis.") || key.startsWith("yaxis."))) return;
    const x = heat.layout.xaxis.range;
    const y = heat.layout.yaxis.range;
    const inside = (value, most) => Math.max(-0.5, Math.min(most - 0.5, value));
    setView(x.map((each) => inside(each, width)), y.map((each) => inside(each, ranks.length)));
  });
  heat.addEventListener("keydown", pressed);
}

const MOVES = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], PageUp: [-10, 0], PageDown: [10, 0] };

function pressed(event) {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const row = shown.rowOf[picked.rank];
  const move = MOVES[event.key];
  const go = (to, iteration) => pick(shown.order[Math.max(0, Math.min(ranks.length - 1, to))], iteration);
  if (move) go(row + move[0] * (event.shiftKey ? 10 : 1), picked.iteration + move[1] * (event.shiftKey ? 10 : 1));
  else if (event.key === "Home") go(row, 0);
  else if (event.key === "End") go(row, iterations.length - 1);
  else if (event.key === "+" || event.key === "=") zoom(0.5);
  else if (event.key === "-") zoom(2);
  else if (event.key === "0" || event.key === "Escape") setView(full().x, full().y);
  else return;
  event.preventDefault();
}

const AROUND = 8; // rows and columns of the table on each side of the picked cell

/** The same cells as a table, for readers who cannot see the map. */
function tabulateMap() {
  if (!byId("map-table").open) return;
  const excess = byId("mode").value === "excess";
  const span = (centre, count) => {
    const first = Math.max(0, Math.min(centre - AROUND, count - 2 * AROUND - 1));
    return Array.from({ length: Math.min(count, 2 * AROUND + 1) }, (_, k) => first + k);
  };
  const rows = span(shown.rowOf[picked.rank], ranks.length);
  const columns = span(picked.iteration, iterations.length);
  const metric = byId("metric").value;
  const lines = rows.map((row) => {
    const rank = shown.order[row];
    const line = columns.map((i) => {
      const at = rank * iterations.length + i;
      const value = scaled(metric, shown.values[at]) - (excess ? scaled(metric, shown.middle[roleIndex[rank]][i]) : 0);
      const here = rank === picked.rank && i === picked.iteration;
      const classes = `number${flags.has(at) ? " flagged" : ""}${here ? " picked-cell" : ""}`;
      return make("td", { class: classes }, excess ? signed(value) : ms(value));
    });
    return [ranks[rank], ...line];
  });
  const caption = `${named(metric)}, ${unitOf(metric)}${excess ? " above the role’s median" : ""}; bold: flagged`;
  const head = ["rank \\ iteration", ...columns.map((i) => iterations[i])];
  byId("map-table").querySelector(".wide").replaceChildren(plainTable([caption], head, lines));
}
