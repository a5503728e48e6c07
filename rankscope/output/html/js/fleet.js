// The page of a fleet: everything but the tables is there already.

try {
  showTables();
  document.documentElement.dataset.complete = Math.round(performance.now());
} catch (error) {
  byId("failed").hidden = false;
  byId("failed").textContent = `The tables could not be shown (${error.message}). Use a current version of the browser.`;
  console.error(error);
}
