// What a page asks the server that it comes from (`rankscope view`); a page from disk asks nothing.

const served = page.served;

/** The answer to a question, as JSON; an error says what the server said. */
async function ask(what, parameters = {}) {
  const query = new URLSearchParams(location.search);
  for (const [key, value] of Object.entries(parameters)) query.set(key, value);
  const response = await fetch(`${what}?${query}`).catch(() => {
    throw new Error("rankscope view does not answer; is it still running?");
  });
  const answer = await response.json();
  if (answer.error) throw new Error([answer.error.message, answer.error.hint].filter(Boolean).join(". "));
  return answer;
}

/** Run what takes a while, and say so, and say what went wrong. */
async function busy(place, doing, action) {
  place.textContent = doing;
  place.setAttribute("aria-busy", "true");
  try {
    await action();
    place.textContent = "";
  } catch (error) {
    place.textContent = error.message;
  } finally {
    place.removeAttribute("aria-busy");
  }
}

const shownIn = (table) => document.getElementById(`table-${table.id}`)?.closest(".tables > div");

/** Show the timeline of some ranks in an iteration, in place of the one that is there. */
function showTimeline(given, iteration) {
  return busy(byId("timeline-state"), "Reading the reports…", async () => {
    const answer = await ask("timeline", { ranks: given, iteration });
    page.timeline = answer.chart;
    drawTimeline();
    for (const table of answer.tables) {
      const node = new SortedTable(table).node();
      const before = shownIn(table);
      if (before) before.replaceWith(node);
      else document.querySelector(`[data-tables="${table.place}"]`).append(node);
    }
    byId("timeline-ranks").value = given;
    byId("timeline-iteration").value = iteration;
  });
}

function listenToServer() {
  if (!served) return;
  for (const node of document.querySelectorAll("[data-served]")) node.hidden = false;
  byId("range-iterations").value = new URLSearchParams(location.search).get("iter-range") ?? "";
  byId("timeline-ranks").value = [...new Set(page.timeline.lanes.map((each) => each.rank))].join(",");
  byId("timeline-iteration").value = page.timeline.iteration ?? page.first.iteration;
  const submits = (id, action) => byId(id).addEventListener("submit", (event) => (event.preventDefault(), action()));
  submits("range", () => {
    const given = byId("range-iterations").value.trim();
    busy(byId("range-state"), "Comparing…", async () => {
      if (given) await ask("range", { "iter-range": given }); // an error is said here, and the page stays
      location.search = given ? new URLSearchParams({ "iter-range": given }) : "";
    });
  });
  submits("timeline-controls", () => showTimeline(byId("timeline-ranks").value, byId("timeline-iteration").value));
  byId("timeline-cell").addEventListener("click", async () => {
    const { rank, iteration } = picked;
    const median = await medianRank(iteration, rank);
    const both = [rank, ...(median < 0 || median === rank ? [] : [median])].map((place) => ranks[place]);
    await showTimeline(both.join(","), iterations[iteration]);
    byId("timeline").scrollIntoView();
  });
}
