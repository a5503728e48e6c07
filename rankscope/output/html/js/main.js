// The page, from top to bottom: the words at once, then the map, then the rest.

function say() {
  const { verdict, run } = page;
  const badge = fill("class");
  badge.textContent = verdict.class;
  badge.dataset.class = verdict.class;
  for (const [term, value, note] of page.figures) {
    fill("figures").append(make("div", {}, make("dt", {}, term), make("dd", {}, value, ...(note ? [make("small", {}, note)] : []))));
  }
  for (const warning of page.warnings) fill("warnings").append(make("li", {}, warning.message));
  byId("limits").hidden = !page.warnings.length;
  for (const [term, text] of page.quality) fill("quality").append(make("dt", {}, term), make("dd", {}, text));
  for (const [what, line] of page.commands) fill("commands").append(make("dt", {}, what), make("dd", {}, make("code", {}, line)));
  fill("made").textContent = page.made;
}

function offerMetrics() {
  const select = byId("metric");
  for (const name of known) select.append(make("option", { value: name, title: meaningOf(name) }, named(name)));
  select.value = page.metric;
  const offered = { host: new Set(hosts).size > 1, role: several };
  for (const option of byId("order").querySelectorAll("option")) option.hidden = option.disabled = offered[option.value] === false;
}

/** Let the browser paint, and react, before the next piece. */
const breath = () => new Promise((resolve) => setTimeout(resolve));

async function drawAll() {
  drawMap();
  await tellCell();
  await drawPhases();
  drawTimeline();
}

async function start() {
  say();
  offerMetrics();
  Object.assign(picked, { rank: placeOfRank.get(page.first.rank) ?? 0, iteration: placeOfIteration.get(page.first.iteration) ?? 0 });
  await showMap();
  listenToMap();
  root.dataset.interactive = Math.round(performance.now());
  await breath();
  await pick(picked.rank, picked.iteration);
  onPick(() => {
    if (follow()) drawMap();
    else Plotly.relayout(heat, { shapes: crosshair() });
    tabulateMap();
    return tellCell();
  });
  onPick(() => (byId("phases-of").value === "picked" ? drawPhases() : null));
  await tellCell();
  await breath();
  await drawPhases();
  listenToPhases();
  await breath();
  drawTimeline();
  await breath();
  showTables();
  listenToControls();
  root.dataset.complete = Math.round(performance.now());
}

function listenToControls() {
  const anew = async () => {
    await showMap();
    tabulateMap();
    await drawPhases();
    await tellCell();
  };
  for (const id of ["metric", "mode", "order"]) byId(id).addEventListener("change", anew);
  byId("marks").addEventListener("change", drawMap);
  byId("phases-of").addEventListener("change", drawPhases);
  byId("map-table").addEventListener("toggle", tabulateMap);
  for (const id of ["map-controls", "phases-controls"]) byId(id).addEventListener("submit", (event) => event.preventDefault());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  addEventListener("beforeprint", () => (root.classList.add("paper"), drawAll()));
  addEventListener("afterprint", () => (root.classList.remove("paper"), drawAll()));
  addEventListener("scroll", hideTip, { passive: true });
}

start().catch((error) => {
  byId("failed").hidden = false;
  byId("failed").textContent = `The charts could not be drawn: ${error.message}. A current browser is needed.`;
  console.error(error);
});
