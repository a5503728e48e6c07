// How charts look: the page's colours, for screen (light or dark) and print.

const root = document.documentElement;
const PRINT_WIDTH = 680;
const LEAST_WIDTH = 240;
const NARROW = 560; // below this width, in pixels, texts in charts are shorter
const narrow = (chart) => chart.clientWidth < NARROW;
const printing = () => root.classList.contains("paper");

const color = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
const scale = (name) => color(name).split(" ").map((each, k, all) => [k / (all.length - 1), each]);

/** Text that the chart library shows unchanged; it interprets some tags in labels as markup. */
const literal = (text) =>
  String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
const short = (text, most = 18) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

function axis(title, more = {}) {
  return {
    title: { text: title, font: { size: 12 }, standoff: 10 },
    gridcolor: color("faint"), zerolinecolor: color("faint"), linecolor: color("muted"),
    tickcolor: color("muted"), ticks: "outside", ticklen: 4, automargin: true, tickangle: 0, fixedrange: true, ...more,
  };
}

/** `width` is of the chart now; it is drawn again when the window has another. */
function layout(chart, height, more = {}) {
  return {
    height, width: printing() ? PRINT_WIDTH : Math.max(chart.clientWidth, LEAST_WIDTH),
    margin: { l: 48, r: 12, t: 12, b: 40 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif", size: 12, color: color("ink") },
    showlegend: false, hovermode: "closest", barmode: "stack", bargap: 0.15, dragmode: false, ...more,
  };
}

const CONFIG = { displaylogo: false, displayModeBar: false, doubleClick: false };

/** Colour and hatching of a part of an iteration; waiting is hatched. */
function paint(part) {
  const hatch = (shape, fgcolor, bgcolor) => ({ shape, size: 5, solidity: 0.25, fgcolor, bgcolor, fillmode: "replace" });
  const patterns = {
    wait: () => hatch("/", color("muted"), color("wait")),
    exposed_communication: () => hatch("\\", color("muted"), color("transfer")),
    "state-unknown": () => hatch("/", color("muted"), color("page")),
  };
  return { color: color(part), pattern: patterns[part]?.(), line: { width: 0 } };
}

/** Fill the legend of a chart. */
function showLegend(chart, parts, text) {
  const items = parts.map((part) => {
    const swatch = make("i", { class: part });
    swatch.style.setProperty("--swatch", `var(--${part})`);
    return make("li", {}, swatch, text(part));
  });
  document.querySelector(`[data-legend="${chart}"]`).replaceChildren(...items);
}

const tip = byId("tip");
function showTip(event, lines) {
  tip.textContent = lines.filter(Boolean).join("\n");
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = event.clientX + 14 + box.width > innerWidth ? event.clientX - 14 - box.width : event.clientX + 14;
  const top = event.clientY + 14 + box.height > innerHeight ? event.clientY - 14 - box.height : event.clientY + 14;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.max(4, top)}px`;
}
const hideTip = () => (tip.hidden = true);

/** Show what `lines` says of the point of a chart that the pointer is on. */
function tell(chart, lines) {
  chart.removeAllListeners("plotly_hover");
  chart.on("plotly_hover", ({ points: [point], event }) => showTip(event, lines(point)));
  chart.removeAllListeners("plotly_unhover");
  chart.on("plotly_unhover", hideTip);
}

/** A stacked bar for each row, in the chart `NAME-chart`: `lengths` gives those of a part in all rows (ms), `text` its name. */
function drawRows(name, rows, parts, { lengths, text, lines }) {
  const chart = byId(`${name}-chart`);
  showLegend(name, parts, text);
  const traces = parts.map((part) => ({
    type: "bar", orientation: "h", name: text(part), marker: paint(part), hoverinfo: "none", y: rows, x: lengths(part),
  }));
  const more = { xaxis: axis("ms"), yaxis: axis("", { autorange: "reversed", ticks: "" }), bargap: 0.3 };
  Plotly.react(chart, traces, layout(chart, 70 + 52 * rows.length, more), CONFIG);
  tell(chart, lines);
}
