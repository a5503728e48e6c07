// The picked cell: its rank and iteration, and its phases.

const picked = { rank: 0, iteration: 0 }; // indices, not numbers
const listeners = [];
const onPick = (listener) => listeners.push(listener);

/** Pick a cell by the indices of its rank and iteration. */
async function pick(rank, iteration) {
  picked.rank = Math.max(0, Math.min(ranks.length - 1, rank));
  picked.iteration = Math.max(0, Math.min(iterations.length - 1, iteration));
  root.dataset.picked = `${ranks[picked.rank]}/${iterations[picked.iteration]}`;
  for (const listener of listeners) await listener();
}

/** `Rank 3 (node1)`. */
const rankAndHost = (rank) => `Rank ${ranks[rank]}${hosts[rank] ? ` (${short(hosts[rank], 60)})` : ""}`;

/** A cell in words: who, value, off (difference to the median) and flag. */
async function describe(rank, iteration, metric) {
  const at = rank * iterations.length + iteration;
  const value = scaled(metric, (await column(metric))[at]);
  const middle = scaled(metric, (await medians(metric))[roleIndex[rank]][iteration]);
  const off = value - middle;
  const than = ranks.length === 1 ? "its median" : several ? `its role’s median (${short(roleOf[rank], 30)})` : "the median rank";
  return {
    who: `${rankAndHost(rank)}, iteration ${iterations[iteration]}`,
    value: `${named(metric)} ${Number.isFinite(value) ? `${ms(value)} ${unitOf(metric)}` : "unknown"}`,
    off: Number.isFinite(off) ? `${signed(off)} ${unitOf(metric)} compared with ${than}` : "",
    flag: flags.has(at) ? `flagged${flags.get(at) ? `: ${named(flags.get(at))}` : ""}` : "",
  };
}

/** The known parts of a window, name → ms; communication is split into waiting and transfer if the wait is known. */
function parts(get) {
  const exposed = get("exposed_communication");
  const wait = get("wait");
  const found = PHASES.map((name) => [name, get(name)]);
  if (Number.isFinite(wait)) found.push(["wait", wait], ["transfer", Math.max(0, exposed - wait)]);
  else found.push(["exposed_communication", exposed]);
  return new Map(found.filter(([, value]) => Number.isFinite(value)));
}

/** The known parts of a rank's mean iteration, name → ms. */
function meanParts(rank) {
  const means = page.phase_means?.parts ?? {};
  return new Map(STACK.filter((name) => (means[name]?.[rank] ?? null) !== null).map((name) => [name, means[name][rank]]));
}

async function showCell() {
  const { rank, iteration } = picked;
  byId("cell-rank").value = ranks[rank];
  byId("cell-iteration").value = iterations[iteration];
  const words = await describe(rank, iteration, byId("metric").value);
  byId("cell-title").textContent = words.who;
  byId("cell-words").textContent = [words.value, words.off, words.flag].filter(Boolean).join(" · ");
  const [columns, middles] = [new Map(), new Map()];
  for (const name of known) {
    columns.set(name, await column(name));
    middles.set(name, (await medians(name))[roleIndex[rank]][iteration]);
  }
  const width = iterations.length;
  const cell = (r) => (name) => (columns.has(name) ? scaled(name, columns.get(name)[r * width + iteration]) : NaN);
  const middle = (name) => scaled(name, middles.get(name));
  const own = (name) => (rankColumn(columnOf(name)) ?? [])[rank] / (name in cells.steps ? 1 : 1e6);
  tabulateCell(cell(rank), middle, own);
  drawCell(cell, await medianRank(iteration, rank));
  const states = showStates();
  if (!served) await states; // an answer of the server may come later
}

/** The index of the rank whose work is the median of the same role in an iteration. */
async function medianRank(iteration, rank) {
  const metric = ["work", "iteration"].find((name) => known.includes(name));
  const values = await column(metric);
  const middle = (await medians(metric))[roleIndex[rank]][iteration];
  const width = iterations.length;
  return ranks.findIndex((_, r) => roleIndex[r] === roleIndex[rank] && values[r * width + iteration] === middle);
}

function tabulateCell(cell, middle, own) {
  const heading = (name) => `${named(name)}${unitOf(name) === "ms" ? "" : ` (${unitOf(name)})`}`;
  const rows = known.map((name) => [
    make("th", { scope: "row", title: meaningOf(name) }, heading(name)),
    ms(cell(name)), ms(middle(name)), signed(cell(name) - middle(name)), ms(own(name) ?? NaN),
  ]);
  const head = ["ms", "this cell", "median", "difference", "rank’s mean"];
  byId("cell-table").replaceChildren(plainTable(["Numbers of the cell"], head, rows));
}

function drawCell(cell, median) {
  const rank = picked.rank;
  const rows = [[`rank ${ranks[rank]}`, parts(cell(rank))]];
  if (median >= 0 && median !== rank) rows.push([`rank ${ranks[median]} (median)`, parts(cell(median))]);
  rows.push([`rank ${ranks[rank]}, mean`, meanParts(rank)]);
  const present = STACK.filter((part) => rows.some(([, each]) => each.has(part)));
  drawRows("cell", rows.map(([name]) => name), present, {
    lengths: (part) => rows.map(([, each]) => each.get(part) ?? 0),
    text: named,
    lines: ({ data, x, y }) => [y, `${data.name} ${ms(x)} ms`],
  });
}

byId("cell-controls").addEventListener("submit", (event) => {
  event.preventDefault();
  const rank = placeOfRank.get(Number(byId("cell-rank").value));
  const iteration = placeOfIteration.get(Number(byId("cell-iteration").value));
  if (rank === undefined || iteration === undefined) {
    byId("cell-words").textContent = rank === undefined ? "This rank is not on the page." : "This iteration is not on the page.";
  } else pick(rank, iteration);
});
