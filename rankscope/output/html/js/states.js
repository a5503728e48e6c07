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
  const rows = [`rank ${ranks[rank]}`, `rank ${peer} (median)`];
  const of = (part) => all.filter(([state]) => `state-${state}` === part);
  const present = STATES.map((state) => `state-${state}`).filter((part) => of(part).length);
  drawRows("states", rows, present, {
    lengths: (part) => rows.map((_, row) => of(part).reduce((sum, [, , ...times]) => sum + times[row], 0) / 1e6),
    text: (part) => stateName(part.slice("state-".length)),
    lines: ({ data, pointNumber: row, x, y }) => [
      `${y}: ${data.name} ${ms(x)} ms`,
      ...all.filter(([state, , ...times]) => stateName(state) === data.name && times[row] > 0)
        .map(([, name, ...times]) => `${name || "other"} ${ms(times[row] / 1e6)} ms`),
    ],
  });
}

function tabulateStates(rank, { peer, parts: all }) {
  const caption = ["What the training thread did", make("small", {}, "outside of communication")];
  const head = ["state", "in", `rank ${ranks[rank]} (ms)`, `rank ${peer} (ms)`, "difference"];
  const rows = [...all].sort((a, b) => b[2] - b[3] - (a[2] - a[3])).map(([state, name, own, other]) =>
    [stateName(state), name || UNKNOWN, ms(own / 1e6), ms(other / 1e6), signed((own - other) / 1e6)]);
  byId("states-table").replaceChildren(plainTable(caption, head, rows, 2));
}
