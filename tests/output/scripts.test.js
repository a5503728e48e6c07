// The page's scripts in node: numbers come back as Python packed them, and medians are right.
// `pytest tests/output/test_scripts.py` writes the page's data and the truth, and starts this file.

"use strict";

const assert = require("node:assert");
const fs = require("node:fs");
const test = require("node:test");
const vm = require("node:vm");

const { scripts, page, truth } = JSON.parse(fs.readFileSync(process.env.RANKSCOPE_TEST_PAGE, "utf8"));

/** An element of which the scripts may ask anything. */
const element = () => ({
  textContent: "", value: "", checked: false, dataset: {}, style: {}, classList: { contains: () => false },
  addEventListener() {}, querySelectorAll: () => [], querySelector: () => element(), append() {},
});

/** What the scripts define, without running the page. */
function loaded(names) {
  const elements = new Map();
  const byId = (id) => elements.get(id) ?? elements.set(id, element()).get(id);
  byId("data").textContent = JSON.stringify(page);
  const document = { getElementById: byId, querySelector: () => element(), documentElement: element() };
  const globals = {
    document, atob, Blob, Response, DecompressionStream, Uint8Array, Int32Array, Float64Array, Intl,
    console, getComputedStyle: () => ({ getPropertyValue: () => "" }),
  };
  const own = scripts.map((name) => fs.readFileSync(name, "utf8")).join("\n");
  return vm.runInNewContext(`(() => {\n${own}\nreturn { ${names.join(", ")} };\n})()`, globals);
}

const page_ = loaded([
  "column", "medians", "NONE", "ms", "signed", "percent", "parts", "ticks", "quantiles", "STACK", "flags", "write",
]);
const plain = (value) => JSON.parse(JSON.stringify(value));

test("columns come back as they were packed", async () => {
  for (const [metric, values] of Object.entries(truth.columns)) {
    const found = Array.from(await page_.column(metric), (each) => (each === page_.NONE ? null : each));
    assert.deepStrictEqual(found, values, metric);
  }
});

test("medians are the lower ones of each role", async () => {
  const found = (await page_.medians("work")).map((each) => Array.from(each, (value) => (value === page_.NONE ? null : value)));
  assert.deepStrictEqual(plain(found), truth.medians);
});

test("numbers are written as the command line writes them", () => {
  for (const [ns, text] of truth.milliseconds) assert.strictEqual(page_.ms(ns === null ? NaN : ns / 1e6), text);
  for (const [share, text] of truth.percent) assert.strictEqual(page_.percent(share ?? NaN), text);
  assert.strictEqual(page_.signed(1.5), "+1.50");
  assert.strictEqual(page_.signed(-1.5), "−1.50");
  assert.strictEqual(page_.write("ms", null), "–");
  assert.strictEqual(page_.write("text", ""), "–");
});

test("communication is split only where the wait is known", () => {
  const of = (numbers) => plain([...page_.parts((name) => numbers[name] ?? NaN)]);
  const phases = [["load", 1], ["forward", 2]];
  assert.deepStrictEqual(of({ load: 1, forward: 2, exposed_communication: 5, wait: 3 }), [...phases, ["wait", 3], ["transfer", 2]]);
  assert.deepStrictEqual(of({ load: 1, forward: 2, exposed_communication: 5 }), [...phases, ["exposed_communication", 5]]);
  assert.deepStrictEqual(of({ load: 1, forward: 2 }), phases);
});

test("ticks are round numbers where labels ascend", () => {
  const labels = Array.from({ length: 100 }, (_, k) => k + 3);
  assert.deepStrictEqual(plain(page_.ticks([0, 99], labels, 10).ticktext), ["10", "20", "30", "40", "50", "60", "70", "80", "90", "100"]);
  assert.deepStrictEqual(plain(page_.ticks([0, 3], [7, 5, 6, 4], 10)), { tickvals: [0, 1, 2, 3], ticktext: ["7", "5", "6", "4"] });
});

test("quantiles leave out what is unknown", () => {
  assert.strictEqual(page_.quantiles([3, NaN, 1, 2])(0.5), 2);
  assert.strictEqual(page_.quantiles([NaN])(0.5), 0);
});

test("parts and flags are those of the page's data", () => {
  assert.deepStrictEqual(plain(page_.STACK), [...page.phases, ...page.communication]);
  assert.deepStrictEqual(plain([...page_.flags]), truth.flags);
});
