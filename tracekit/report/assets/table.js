// A table that sorts by any column, searches all text, and shows rows in portions.
((T) => {
  const PORTION = 50;

  const compare = (values, descending) => (i, j) => {
    const a = values[i], b = values[j];
    const hasNoA = a === null || a === undefined, hasNoB = b === null || b === undefined;
    if (hasNoA || hasNoB) return hasNoA - hasNoB || i - j;
    const order = typeof a === "string" ? a.localeCompare(b) : a - b;
    return (descending ? -order : order) || i - j;
  };

  class DataTable {
    constructor(block, { open = PORTION } = {}) {
      this.block = block;
      this.rows = block.values.length ? block.values[0].length : 0;
      this.open = this.rows <= open * 1.4 ? this.rows : open;
      this.shown = this.open;
      this.query = "";
      this.sort = { column: block.columns.findIndex((c) => c.name === block.sort), descending: true };
      this.haystack = null;
      this.element = this.build();
      this.update();
    }

    build() {
      const { block } = this;
      const search = T.el("input", {
        type: "search", placeholder: "Search", "aria-label": `Search in ${block.title}`,
        oninput: (event) => { this.query = event.target.value; this.shown = this.open; this.update(); },
      });
      this.status = T.el("span", { class: "status", role: "status" });
      this.head = T.el("tr");
      this.headers = block.columns.map((column, index) => this.header(column, index));
      this.head.append(...this.headers);
      this.body = T.el("tbody");
      this.more = T.el("button", { type: "button", class: "more", onclick: () => { this.shown += 4 * PORTION; this.update(); } });
      const caption = T.el("caption", { class: "unseen", text: block.title });
      const table = T.el("table", { id: `table-${block.id}` }, caption, T.el("thead", {}, this.head), this.body);
      const scroll = T.el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": block.title }, table);
      const bar = T.el("div", { class: "toolbar" }, this.rows > 8 ? search : null, this.status);
      return T.el("div", { class: "table" }, bar, scroll, this.more, this.legend());
    }

    header(column, index) {
      const button = T.el("button", {
        type: "button", text: column.label, title: column.doc, onclick: () => this.sortBy(index),
      });
      return T.el("th", { scope: "col", class: column.numeric ? "number" : null }, button);
    }

    legend() {
      const items = this.block.columns.filter((c) => c.doc).map((c) => [T.el("dt", { text: c.label }), T.el("dd", { text: c.doc })]);
      return T.el("details", { class: "legend" }, T.el("summary", { text: "What the columns mean" }), T.el("dl", {}, items.flat()));
    }

    sortBy(index) {
      const isSame = this.sort.column === index;
      const descending = isSame ? !this.sort.descending : this.block.columns[index].numeric;
      this.sort = { column: index, descending };
      this.update();
      T.announce(`Sorted by ${this.block.columns[index].label}, ${descending ? "largest" : "smallest"} first`);
    }

    matching() {
      const rows = Array.from({ length: this.rows }, (_, i) => i);
      const words = this.query.toLowerCase().split(/\s+/).filter(Boolean);
      if (!words.length) return rows;
      this.haystack ||= rows.map((i) => this.block.values.filter((v) => typeof v[i] === "string").map((v) => v[i]).join("\n").toLowerCase());
      return rows.filter((i) => words.every((word) => this.haystack[i].includes(word)));
    }

    update() {
      const rows = this.matching();
      const { column, descending } = this.sort;
      if (column >= 0) rows.sort(compare(this.block.values[column], descending));
      this.headers.forEach((th, index) => {
        if (index === column) th.setAttribute("aria-sort", descending ? "descending" : "ascending");
        else th.removeAttribute("aria-sort");
      });
      this.largest = column >= 0 && this.block.columns[column].numeric
        ? this.block.values[column].reduce((most, v) => Math.max(most, Math.abs(v) || 0), 0) : 0;
      this.body.replaceChildren(...rows.slice(0, this.shown).map((i) => this.row(i)));
      const left = rows.length - this.shown;
      this.more.hidden = left <= 0;
      this.more.textContent = `Show ${Math.min(left, 4 * PORTION).toLocaleString("en")} more of ${left.toLocaleString("en")}`;
      this.status.textContent = this.told(rows.length);
    }

    told(found) {
      const { total_rows: total } = this.block;
      const all = total > this.rows ? `the ${T.count(this.rows)} most important of ${T.count(total)} rows` : `${T.count(total)} row${total === 1 ? "" : "s"}`;
      return this.query ? `${T.count(found)} match in ${all}` : all;
    }

    row(i) {
      const cells = this.block.columns.map((column, index) => this.cell(column, index, i));
      return T.el("tr", {}, cells);
    }

    cell(column, index, i) {
      const value = this.block.values[index][i];
      const text = T.value(value, column.unit);
      const isSorted = index === this.sort.column && this.largest > 0 && typeof value === "number";
      const share = isSorted ? { "--share": `${(Math.abs(value) / this.largest) * 100}%` } : {};
      const tag = index === 0 ? "th" : "td";
      const attributes = { class: column.numeric ? (isSorted ? "number share" : "number") : null, vars: share };
      if (index === 0) attributes.scope = "row";
      const action = this.action(column, index, i, text);
      return T.el(tag, attributes, action || T.el("span", { class: "cell", text, title: text.length > 40 ? text : null }));
    }

    // What a cell can show in the timeline: all events of a name, or the row's own time.
    action(column, index, i, text) {
      const { find, places } = this.block;
      if (!T.timeline) return null;
      if (places && index === 0 && T.isNumber(places[1][i])) {
        return T.placeButton({ label: text, session: places[0][i], start: places[1][i], end: places[2][i] });
      }
      if (find === column.name && text !== "–") {
        return T.el("button", { type: "button", class: "place", text, title: `Find ${text} in the timeline`, onclick: () => T.timeline.find(text) });
      }
      return null;
    }
  }

  T.DataTable = DataTable;
})(Tracekit);
