// The page's data: columns of numbers, which are unpacked on first use.

const cells = page.cells;
const ranks = cells.ranks;
const iterations = cells.iterations;
const known = Object.keys(cells.columns); // metrics
const NONE = -(2 ** 31); // the packed number that means unknown
const MS = cells.unit_ns / 1e6; // ms per unit of the packed numbers

const PHASES = page.phases;
const STACK = [...PHASES, ...page.communication]; // parts of an iteration, in the order of stacked bars
const named = (name) => page.metrics[name]?.name ?? page.parts[name] ?? name.replaceAll("_", " ");
const meaningOf = (metric) => page.metrics[metric].meaning;
const unitOf = (metric) => page.metrics[metric].unit;
const columnOf = (metric) => page.metrics[metric].column;
/** The value of 1 in a packed column, in the unit that is shown. */
const scaleOf = (metric) => cells.steps[metric] ?? MS;

const rankTable = page.tables.find((table) => table.id === "ranks");
const rankColumn = (name) => rankTable.values[rankTable.columns.findIndex((each) => each.name === name)];
const hosts = rankColumn("host");
const roleOf = rankColumn("role") || ranks.map(() => "all");
const roles = [...new Set(roleOf)];
const roleIndex = roleOf.map((role) => roles.indexOf(role));
const several = roles.length > 1;
const placeOfRank = new Map(ranks.map((rank, place) => [rank, place]));
const placeOfIteration = new Map(iterations.map((number, place) => [number, place]));

/** The numbers of a packed column: base64 of deflated byte planes, the lowest bytes of all numbers first. */
async function unpack(text) {
  const letters = atob(text);
  const packed = new Uint8Array(letters.length);
  for (let k = 0; k < letters.length; k++) packed[k] = letters.charCodeAt(k);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const count = bytes.length / 4;
  const values = new Int32Array(count);
  for (let k = 0; k < count; k++) {
    values[k] =
      bytes[k] | (bytes[count + k] << 8) | (bytes[2 * count + k] << 16) | (bytes[3 * count + k] << 24);
  }
  return values;
}

const unpacked = new Map();
/** A metric of all cells, rank by rank, in the unit of the page; NONE is unknown. */
async function column(metric) {
  const place = cells.columns[metric];
  if (!unpacked.has(place)) {
    unpacked.set(place, unpack(cells.packed[place]));
    cells.packed[place] = null;
  }
  return unpacked.get(place);
}

const middles = new Map();
/** The medians that a metric's excess is measured from: for each role, one per iteration. */
async function medians(metric) {
  const place = cells.columns[metric];
  if (!middles.has(place)) {
    const all = await unpack(cells.medians[place]);
    middles.set(place, roles.map((_, role) => all.subarray(role * iterations.length, (role + 1) * iterations.length)));
  }
  return middles.get(place);
}

const flags = new Map(); // cell → phase that is the cause, or ""
{
  const place = (name) => page.flagged.columns.indexOf(name);
  const [rank, iteration, cause] = ["rank", "iteration", "cause"].map((name) => page.flagged.values[place(name)]);
  rank.forEach((each, k) => {
    const at = placeOfRank.get(each) * iterations.length + placeOfIteration.get(iteration[k]);
    flags.set(at, cause[k] || "");
  });
}

const inMs = (value) => (value === NONE ? NaN : value * MS);
const scaled = (metric, value) => (value === NONE ? NaN : value * scaleOf(metric));
