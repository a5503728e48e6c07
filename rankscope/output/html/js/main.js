// The page from top to bottom: first the texts, then the map, then the rest.

function showTexts() {
  const { verdict } = page;
  const badge = slot("class");
  badge.textContent = verdict.class;
  badge.dataset.class = verdict.class;
  for (const [term, value, note] of page.figures) {
    slot("figures").append(make("div", {}, make("dt", {}, term), make("dd", {}, value, ...(note ? [make("small", {}, note)] : []))));
  }
  for (const warning of page.warnings) slot("warnings").append(make("li", {}, warning.message));
  byId("limits").hidden = !page.warnings.length;
  for (const [term, text] of page.quality) slot("quality").append(make("dt", {}, term), make("dd", {}, text));
  for (const [purpose, line] of page.commands) slot("commands").append(make("dt", {}, purpose), make("dd", {}, make("code", {}, line)));
  slot("made").textContent = page.made;
}

function offerMetrics() {
  const select = byId("metric");
  for (const name of known) select.append(make("option", { value: name, title: meaningOf(name) }, named(name)));
  select.value = page.metric;
  if (ranks.length === 1) {
    byId("mode").value = "value"; // there is no other rank to compare with
    byId("mode").querySelector("[value=excess]").disabled = true;
  }
  const offered = { host: new Set(hosts).size > 1, role: several };
  for (const option of byId("order").querySelectorAll("option")) option.hidden = option.disabled = offered[option.value] === false;
}

const RESIZED_MS = 120; // charts are drawn again this long after the last change of the width

/** Let the browser paint and handle events before the next step. */
const nextTask = () => new Promise((resolve) => setTimeout(resolve));

async function drawAll() {
  drawMap();
  await showCell();
  await drawPhases();
  drawTimeline();
}

async function start() {
  showTexts();
  offerMetrics();
  Object.assign(picked, { rank: placeOfRank.get(page.first.rank) ?? 0, iteration: placeOfIteration.get(page.first.iteration) ?? 0 });
  const linked = readAddress();
  await showMap();
  listenToMap();
  root.dataset.interactive = Math.round(performance.now());
  await nextTask();
  await pick(picked.rank, picked.iteration);
  onPick(() => {
    if (follow()) drawMap();
    else Plotly.relayout(heat, { shapes: crosshair() });
    tabulateMap();
    return showCell();
  });
  onPick(() => (byId("phases-of").value === "picked" ? drawPhases() : markPhases()));
  onPick(writeAddress);
  await showCell();
  await nextTask();
  await drawPhases();
  listenToPhases();
  await nextTask();
  drawTimeline();
  await nextTask();
  showTables();
  listenToControls();
  listenToServer();
  addEventListener("hashchange", followAddress);
  if (linked) byId("map").scrollIntoView();
  root.dataset.complete = Math.round(performance.now());
}

function listenToControls() {
  const redraw = async () => {
    await showMap();
    tabulateMap();
    await drawPhases();
    await showCell();
    writeAddress();
  };
  for (const id of ["metric", "mode", "order"]) byId(id).addEventListener("change", redraw);
  byId("marks").addEventListener("change", drawMap);
  byId("phases-of").addEventListener("change", drawPhases);
  byId("map-table").addEventListener("toggle", tabulateMap);
  for (const id of ["map-controls", "phases-controls"]) byId(id).addEventListener("submit", (event) => event.preventDefault());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  addEventListener("beforeprint", () => (root.classList.add("paper"), drawAll()));
  addEventListener("afterprint", () => (root.classList.remove("paper"), drawAll()));
  let [width, due] = [root.clientWidth, 0];
  addEventListener("resize", () => {
    if (root.clientWidth === width) return; // the bars of a phone's browser come and go
    width = root.clientWidth;
    clearTimeout(due);
    due = setTimeout(() => printing() || drawAll(), RESIZED_MS);
  });
  addEventListener("scroll", hideTip, { passive: true });
}

start().catch((error) => {
  byId("failed").hidden = false;
  byId("failed").textContent = `The charts could not be drawn (${error.message}). Use a current version of the browser.`;
  console.error(error);
});
