// The picked cell in the page's address, as #cell=RANK/ITERATION&metric=NAME&show=value, so that a link leads to a finding.

const SHARED = { metric: "metric", show: "mode" }; // key of the address → control of the map

/** Set the picked cell and the map as the address says; true if it names a cell of this page. */
function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const [key, id] of Object.entries(SHARED)) {
    const offered = [...byId(id).options].some((option) => option.value === given.get(key) && !option.disabled);
    if (offered) byId(id).value = given.get(key);
  }
  const [rank, iteration] = (given.get("cell") ?? "").split("/").map((text) => (text === "" ? NaN : Number(text)));
  const at = { rank: placeOfRank.get(rank), iteration: placeOfIteration.get(iteration) };
  if (at.rank === undefined || at.iteration === undefined) return false;
  Object.assign(picked, at);
  return true;
}

/** Write the picked cell and the map into the address, without an entry in the browser's history. */
function writeAddress() {
  if (location.protocol === "about:") return; // inside a notebook the page has no address of its own
  const parts = [`cell=${ranks[picked.rank]}/${iterations[picked.iteration]}`];
  if (byId("metric").value !== page.metric) parts.push(`metric=${byId("metric").value}`);
  if (byId("mode").value !== "excess") parts.push(`show=${byId("mode").value}`);
  history.replaceState(null, "", `#${parts.join("&")}`);
}

/** Follow an address that was changed by hand or by a link. */
async function followAddress() {
  if (!readAddress()) return;
  await showMap();
  await pick(picked.rank, picked.iteration);
}
