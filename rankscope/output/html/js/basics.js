// What every page needs: its data, elements, and numbers as text.

const byId = (id) => document.getElementById(id);
const page = JSON.parse(byId("data").textContent);

/** An element with attributes and children (nodes or text). Names from reports enter the page only here and as textContent. */
function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.map((child) => (child instanceof Node ? child : String(child))));
  return node;
}
/** A table whose cells from the place `first` on are numbers; a row starts with its heading. Cells are texts, or elements. */
function plainTable(caption, head, rows, first = 1) {
  const attributes = (scope, k) => ({ scope, class: k >= first ? "number" : null });
  const cell = (each, k) => (each instanceof Node ? each : make(k ? "td" : "th", attributes(k ? null : "row", k), each));
  const headings = head.map((text, k) => make("th", attributes("col", k), text));
  const body = rows.map((row) => make("tr", {}, ...row.map(cell)));
  return make("table", {}, make("caption", {}, ...caption), make("thead", {}, make("tr", {}, ...headings)), make("tbody", {}, ...body));
}
/** The element of the template that a text belongs into. */
const slot = (name) => document.querySelector(`[data-fill="${name}"]`);

// Numbers, formatted as on the command line.

const UNKNOWN = "–";
const digits = [0, 1, 2, 3].map(
  (count) => new Intl.NumberFormat("en-US", { minimumFractionDigits: count, maximumFractionDigits: count }),
);
const ms = (value) => (Number.isFinite(value) ? digits[Math.abs(value) < 9.995 ? 2 : 1].format(value) : UNKNOWN);
const signed = (value) => (value > 0 ? "+" : "") + ms(value).replace("-", "−");
const percent = (share) =>
  Number.isFinite(share) ? `${digits[Math.abs(share) < 0.0995 ? 1 : 0].format(share * 100)} %` : UNKNOWN;
