// What the training thread of the picked cell did, beside the median rank's.

const STATES = Object.keys(page.state_names);
const stateName = (state) => page.state_names[state];

/** The states of a cell: on the page, or asked for; null if there are none. */
async function statesOf(rank, iteration) {
  const cell = `${ranks[rank]}/${iterations[iteration]}`;
  if (!(cell in page.states) && served) {
    page.states[cell] = (await ask("states", { rank: ranks[rank], iteration: iterations[iteration] })).states;
  }
  return page.states[cell] ?? null;
}

async function showStates() {
  const { rank, iteration } = picked;
  const found = await statesOf(rank, iteration).catch(() => null);
  if (rank !== picked.rank || iteration !== picked.iteration) return; // another cell was picked meanwhile
  byId("states").hidden = !found;
  if (!found) return;
  tabulateStates(rank, found); // first: it leaves the chart its room
  drawStates(rank, found);
}

function drawStates(rank, { peer, parts: all }) {
  const chart = byId("states-chart");
  const rows = [`rank ${ranks[rank]}`, `rank ${peer} (median)`];
  const present = STATES.filter((state) => all.some(([each]) => each === state));
  const sum = (state, side) => all.reduce((total, part) => total + (part[0] === state ? part[side] : 0), 0) / 1e6;
  const traces = present.map((state) => ({
    type: "bar", orientation: "h", name: stateName(state), marker: paint(`state-${state}`), hoverinfo: "none",
    y: rows, x: [sum(state, 2), sum(state, 3)], customdata: [2, 3],
  }));
  showLegend("states", present.map((state) => `state-${state}`), (part) => stateName(part.slice("state-".length)));
  const more = { xaxis: axis("ms"), yaxis: axis("", { autorange: "reversed", ticks: "" }), bargap: 0.3 };
  Plotly.react(chart, traces, layout(chart, 70 + 52 * rows.length, more), CONFIG);
  chart.removeAllListeners("plotly_hover");
  chart.on("plotly_hover", ({ points: [point], event }) => {
    const mine = all.filter(([state, , ...times]) => stateName(state) === point.data.name && times[point.customdata - 2] > 0);
    const lines = mine.map((part) => `${part[1] || "other"} ${ms(part[point.customdata] / 1e6)} ms`);
    showTip(event, [`${point.y}: ${point.data.name} ${ms(point.x)} ms`, ...lines]);
  });
  chart.removeAllListeners("plotly_unhover");
  chart.on("plotly_unhover", hideTip);
}

function tabulateStates(rank, { peer, parts: all }) {
  const head = ["state", "in", `rank ${ranks[rank]} (ms)`, `rank ${peer} (ms)`, "difference"];
  const table = make("table", {}, make("caption", {}, "What the training thread did", make("small", {}, "outside of communication")));
  table.append(make("thead", {}, make("tr", {}, ...head.map((text, k) => make("th", { scope: "col", class: k > 1 ? "number" : null }, text)))));
  const sorted = [...all].sort((a, b) => b[2] - b[3] - (a[2] - a[3]));
  const body = make("tbody");
  for (const [state, name, own, other] of sorted) {
    const numbers = [ms(own / 1e6), ms(other / 1e6), signed((own - other) / 1e6)];
    body.append(make("tr", {}, make("th", { scope: "row" }, stateName(state)), make("td", {}, name || UNKNOWN), ...numbers.map((text) => make("td", { class: "number" }, text))));
  }
  table.append(body);
  byId("states-table").replaceChildren(table);
}
