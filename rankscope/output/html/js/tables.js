// Tables that sort by any column; long tables show their first rows.

const FIRST_ROWS = 12;
const KINDS = { ms: (value) => ms(value === null ? NaN : value / 1e6), share: (value) => percent(value ?? NaN) };
const NUMERIC = new Set(["ms", "share", "number", "rank", "iteration"]);

function write(kind, value) {
  if (KINDS[kind]) return KINDS[kind](value);
  if (value === null || value === undefined || value === "") return UNKNOWN;
  return typeof value === "boolean" ? (value ? "yes" : "no") : String(value);
}

/** The content of a cell: text, or a button that picks its rank or iteration if the map has it. */
function cellOf(kind, value, rowPick) {
  const text = write(kind, value);
  const can = (kind === "rank" && placeOfRank.has(value)) || (kind === "iteration" && placeOfIteration.has(value));
  if (!can) return text;
  const button = make("button", { type: "button", title: `pick ${kind} ${text}` }, text);
  button.addEventListener("click", () => rowPick(kind, value));
  return button;
}

class SortedTable {
  constructor(table) {
    this.table = table;
    this.rows = (table.values[0] ?? []).map((_, row) => row);
    this.by = null;
    this.every = false;
    this.kinds = table.columns.map((each) => each.kind);
    this.body = make("tbody");
    this.more = make("button", { type: "button", class: "more" });
    this.more.addEventListener("click", () => {
      this.every = !this.every;
      this.show();
    });
  }

  node() {
    const { title, note, columns } = this.table;
    const caption = make("caption", {}, title, ...(note ? [make("small", {}, note)] : []));
    this.heads = columns.map(({ label, kind, meaning }, place) => {
      const button = make("button", { type: "button", title: meaning }, label);
      button.addEventListener("click", () => this.sort(place));
      return make("th", { scope: "col", class: NUMERIC.has(kind) ? "number" : null }, button);
    });
    const table = make("table", { id: `table-${this.table.id}` }, caption, make("thead", {}, make("tr", {}, ...this.heads)), this.body);
    const first = columns.findIndex((each) => each.name === this.table.sorted_by);
    if (first >= 0) this.sort(first);
    else this.show();
    return make("div", {}, make("div", { class: "wide", role: "region", "aria-label": title, tabindex: "0" }, table), this.more);
  }

  /** Sort by a column: at first numbers descend, and texts, ranks and iterations ascend; unknown is always last. */
  sort(place) {
    const first = NUMERIC.has(this.kinds[place]) && this.kinds[place] !== "rank" && this.kinds[place] !== "iteration" ? -1 : 1;
    this.by = this.by?.place === place ? { place, way: -this.by.way } : { place, way: first };
    const values = this.table.values[place];
    const compare = (a, b) =>
      typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : Number(a) - Number(b);
    this.rows.sort((a, b) => {
      const [x, y] = [values[a], values[b]];
      if (x === null || y === null) return (x === null) - (y === null) || a - b;
      return this.by.way * compare(x, y) || a - b;
    });
    this.heads.forEach((head, k) => {
      if (k === place) head.setAttribute("aria-sort", this.by.way > 0 ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    });
    this.show();
  }

  show() {
    const seen = this.every ? this.rows : this.rows.slice(0, FIRST_ROWS);
    this.body.replaceChildren(...seen.map((row) => this.line(row)));
    const count = this.rows.length;
    this.more.hidden = count <= FIRST_ROWS;
    this.more.textContent = this.every ? `First ${FIRST_ROWS} rows` : `All ${digits[0].format(count)} rows`;
  }

  line(row) {
    const { values, columns } = this.table;
    const at = (kind) => columns.findIndex((each) => each.kind === kind);
    const place = (kind, places, otherwise) => (at(kind) < 0 ? otherwise : places.get(values[at(kind)][row]) ?? otherwise);
    const rowPick = (kind, value) => {
      const rank = kind === "rank" ? placeOfRank.get(value) : place("rank", placeOfRank, picked.rank);
      pick(rank, place("iteration", placeOfIteration, picked.iteration));
      byId("map").scrollIntoView();
      heat.focus({ preventScroll: true });
    };
    return make("tr", {}, ...columns.map(({ kind }, k) => {
      const value = values[k][row];
      return make(k ? "td" : "th", { scope: k ? null : "row", class: NUMERIC.has(kind) ? "number" : null }, cellOf(kind, value, rowPick));
    }));
  }
}

function showTables() {
  for (const table of page.tables) {
    const room = document.querySelector(`[data-tables="${table.place}"]`);
    if (room && (table.values[0] ?? []).length) room.append(new SortedTable(table).node());
  }
}
