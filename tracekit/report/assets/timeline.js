// The timeline as a part of the page: view, selection, search, labels, overview.
((T) => {
  const { el } = T;
  const ARROWS = 200;

  class Timeline {
    constructor(description, columns) {
      this.model = new T.TimelineModel(description, columns);
      this.description = description;
      const [t0, t1] = description.view;
      this.view = { t0, t1, scroll: 0, marks: null, chains: [], selected: -1, selectedGap: -1, band: null };
      this.hiddenLanes = new Set();
      this.frames = 0;
      this.build();
      this.drawing = new T.TimelineCanvas(this.model, this.canvas);
      T.pointerInput(this, this.canvas);
      T.keyboardInput(this, this.scroller);
    }

    build() {
      this.canvas = el("canvas", { "aria-hidden": "true" });
      this.labels = el("div", { class: "track-labels" });
      this.spacer = el("div", { class: "spacer" }, this.canvas, this.labels);
      this.scroller = el("div", {
        class: "canvas-scroller", tabindex: "0", role: "application", "aria-label": "Timeline of events",
        "aria-describedby": "timeline-keys timeline-summary", onscroll: () => { this.view.scroll = this.scroller.scrollTop; this.redraw(); },
      }, this.spacer);
      this.tip = el("div", { class: "tip", hidden: true, "aria-hidden": "true" });
      this.overview = el("canvas", { class: "overview", "aria-hidden": "true" });
      this.panel = el("div", { class: "panel", "aria-live": "polite" });
      this.element = el("div", { class: "timeline" }, this.toolbar(), this.overview, el("div", { class: "stage" }, this.scroller, this.tip), this.legend(), this.panel, this.remarks());
      this.overviewInput();
      this.showHelp();
    }

    toolbar() {
      const button = (text, label, action) => el("button", { type: "button", text, "aria-label": label, title: label, onclick: action });
      this.searchBox = el("input", { type: "search", placeholder: "Find events", "aria-label": "Find events in the timeline", oninput: () => this.search(this.searchBox.value) });
      this.searchBox.addEventListener("keydown", (event) => {
        if (event.key === "Enter") { event.preventDefault(); this.next(event.shiftKey ? -1 : 1); }
        if (event.key === "Escape") { this.clear(); this.scroller.focus(); }
      });
      this.found = el("span", { class: "status", role: "status" });
      const lanes = [...new Set(this.model.tracks.map((t) => t.lane))].map((lane) => {
        const box = el("input", { type: "checkbox", checked: true, onchange: () => { this.hiddenLanes[box.checked ? "delete" : "add"](lane); this.relayout(); } });
        return el("label", { class: "lane" }, box, lane);
      });
      if (this.model.hasPython) lanes.push(this.pythonBox());
      return el("div", { class: "toolbar" }, this.searchBox, button("‹", "Previous match", () => this.next(-1)), button("›", "Next match", () => this.next(1)), this.found,
        el("span", { class: "grow" }), lanes, button("+", "Zoom in", () => this.zoom(0.6)), button("−", "Zoom out", () => this.zoom(1 / 0.6)), button("All", "Show everything", () => this.fit()));
    }

    pythonBox() {
      const box = el("input", { type: "checkbox", checked: !this.model.withoutPython, onchange: () => { this.model.layRows(!box.checked); this.relayout(); } });
      this.pythonInput = box;
      return el("label", { class: "lane" }, box, "Python frames");
    }

    legend() {
      const used = new Set(this.model.kind);
      const kinds = this.model.kinds.map((kind, i) => [kind, i]).filter(([, i]) => used.has(i));
      const causes = this.model.causes.filter((_, c) => this.model.gap.parts[c].some((ns) => ns > 0));
      const item = (key, text) => el("li", {}, el("span", { class: "swatch", vars: { "--fill": `var(${key})` } }), text);
      const slots = { op: 0, annotation: 1, python: 2, call: 3, execution: 4, collective: 5, copy_in: 6, copy_out: 6, copy: 6, memory: 7, model: 8, sync: 9 };
      return el("ul", { class: "key" }, kinds.map(([kind]) => item(`--span-${slots[kind] ?? 10}-1`, kind.replace("_", " "))), causes.map((c) => item(`--part-${c}`, `gap: ${T.causeName(c)}`)));
    }

    remarks() {
      const { remarks, focus } = this.description;
      const button = focus && el("li", {}, T.placeButton({ label: focus[0], start: focus[1], end: focus[2] }, `Show ${focus[0]}, drawn in full`));
      return el("ul", { class: "remarks" }, remarks.map((text) => el("li", { text })), button);
    }

    showHelp() {
      this.panel.replaceChildren(el("p", { class: "hint", id: "timeline-keys" },
        "Drag to pan, Ctrl and wheel (or pinch) to zoom, click an event to follow its chain from operator to hardware. Keys, once the timeline has the focus: ", T.TIMELINE_KEYS),
        el("p", { class: "unseen", id: "timeline-summary", text: `${T.count(this.model.spans)} spans on ${this.model.tracks.length} tracks over ${T.duration(this.model.window)}, ${T.count(this.model.chains)} chains, ${T.count(this.model.gaps)} gaps.` }));
    }

    // --- geometry -------------------------------------------------------------------------------------------------
    relayout() {
      const width = this.scroller.clientWidth;
      if (!width) return;
      this.drawing.layout(width, (track) => this.hiddenLanes.has(track.lane));
      const height = Math.max(140, Math.min(this.drawing.height, Math.max(320, innerHeight * 0.68)));
      this.scroller.style.height = `${height}px`;
      this.spacer.style.height = `${Math.max(height, this.drawing.height)}px`;
      this.drawing.resize(height);
      this.placeLabels();
      this.drawOverview();
      this.redraw();
    }

    placeLabels() {
      const { drawing } = this;
      const nodes = drawing.items.flatMap((item) => (item.type === "session" ? this.sessionLabel(item) : this.trackLabel(item)));
      this.labels.classList.toggle("narrow", drawing.isNarrow);
      this.labels.style.setProperty("--gutter", drawing.isNarrow ? "100%" : `${drawing.gutter - 8}px`);
      this.labels.replaceChildren(...nodes);
    }

    sessionLabel(item) {
      const side = item.track.side ? `${item.track.side}: ` : "";
      return el("div", { class: "session-label", vars: { "--y": `${item.y}px` }, text: side + item.track.session_label, title: item.track.session_label });
    }

    trackLabel(item) {
      const { collapsed, opened } = this.drawing;
      const { index, laneName, label, rows } = item.track;
      const toggle = (set) => () => { set.has(index) ? set.delete(index) : set.add(index); this.relayout(); };
      const name = el("button", { type: "button", class: "track-label", "aria-expanded": String(!collapsed.has(index)), title: `${laneName} · ${label}`, vars: { "--y": `${item.y}px` }, onclick: toggle(collapsed) },
        el("span", { class: "lane-name", text: laneName }), ` ${label.replace(/ · gaps$|^gaps$/, "")}`);
      if (rows.length <= 10 || collapsed.has(index)) return [name];
      const text = opened.has(index) ? "fewer rows" : `+${item.hidden} rows`;
      return [name, el("button", { type: "button", class: "track-more", vars: { "--y": `${item.y + 22}px` }, text, onclick: toggle(opened) })];
    }

    redraw() {
      if (this.isDue) return;
      this.isDue = true;
      requestAnimationFrame(() => {
        this.isDue = false;
        this.frames++;
        this.drawing.draw(this.view);
        this.drawOverviewFrame();
      });
    }

    recolor() { this.drawing.readColors(); this.drawOverview(); this.redraw(); }

    // --- view -----------------------------------------------------------------------------------------------------
    setView(t0, t1) {
      const most = this.model.window * 1.1, length = Math.min(most, Math.max(20, t1 - t0));
      const low = -this.model.window * 0.05, middle = (t0 + t1) / 2;
      const from = Math.max(low, Math.min(low + most - length, middle - length / 2));
      Object.assign(this.view, { t0: from, t1: from + length });
      this.hideTip();
      this.redraw();
    }

    pan(pixels) {
      const shift = (pixels * (this.view.t1 - this.view.t0)) / (this.drawing.width - this.drawing.gutter);
      this.setView(this.view.t0 + shift, this.view.t1 + shift);
    }

    zoom(factor, x = null) {
      const { gutter, width } = this.drawing;
      const share = x === null ? 0.5 : Math.max(0, (x - gutter) / (width - gutter));
      const at = this.view.t0 + share * (this.view.t1 - this.view.t0);
      this.setView(at - (at - this.view.t0) * factor, at + (this.view.t1 - at) * factor);
    }

    fit() { this.moveTo(0, this.model.window); }

    moveTo(t0, t1) {
      if (T.reducedMotion()) { this.setView(t0, t1); return; }
      const from = { ...this.view }, began = performance.now();
      const tick = (now) => {
        const share = Math.min(1, (now - began) / 180), eased = 1 - (1 - share) ** 3;
        this.setView(from.t0 + (t0 - from.t0) * eased, from.t1 + (t1 - from.t1) * eased);
        if (share < 1) requestAnimationFrame(tick);
      };
      requestAnimationFrame(tick);
    }

    frame(start, end) {
      const pad = Math.max(20, (end - start) * 0.15);
      this.moveTo(start - pad, end + pad);
    }

    reveal(y) {
      if (y === null) return;
      const { scrollTop, clientHeight } = this.scroller;
      if (y < scrollTop + 60 || y > scrollTop + clientHeight - 40) this.scroller.scrollTop = y - clientHeight / 2;
    }

    // --- selection ------------------------------------------------------------------------------------------------
    hover(x, y, event) {
      const hit = this.drawing.hit(x, y, this.view);
      if (!hit || event.pointerType === "touch") { this.hideTip(); return; }
      const { model } = this;
      const name = hit.isGap ? `Gap: ${T.causeName(model.causes[model.gap.cause[hit.index]])}` : model.nameOf(hit.index);
      const facts = hit.isGap ? T.gapFacts(model, hit.index) : T.spanFacts(model, hit.index);
      this.tip.replaceChildren(el("strong", { text: name }), T.factList(facts.slice(0, 7)));
      this.tip.hidden = false;
      const box = this.tip.getBoundingClientRect(), room = this.element.getBoundingClientRect();
      this.tip.style.left = `${Math.max(0, Math.min(x + 14, room.width - box.width - 4))}px`;
      this.tip.style.top = `${y + 16 + box.height > this.scroller.clientHeight && y > box.height ? y - box.height - 10 : y + 16}px`;
    }

    hideTip() { if (this.tip) this.tip.hidden = true; }

    click(x, y) {
      this.scroller.focus({ preventScroll: true });
      const hit = this.drawing.hit(x, y, this.view);
      if (!hit) this.clear();
      else if (hit.isGap) this.selectGap(hit.index);
      else this.select(hit.index);
    }

    select(span) {
      const { chains, total } = this.model.chainsFor(span, ARROWS);
      const marks = new Uint8Array(this.model.spans);
      marks[span] = 1;
      for (const chain of chains) for (const [, hop] of this.model.hops(chain)) marks[hop] = 1;
      Object.assign(this.view, { selected: span, selectedGap: -1, chains, marks: total ? marks : null, band: null });
      this.panel.replaceChildren(...T.spanPanel(this, span, chains, total));
      this.redraw();
    }

    selectGap(i) {
      Object.assign(this.view, { selected: -1, selectedGap: i, chains: [], marks: null, band: [this.model.gap.start[i], this.model.gap.start[i] + this.model.gap.length[i]] });
      this.panel.replaceChildren(...T.gapPanel(this, i));
      this.redraw();
    }

    clear() {
      Object.assign(this.view, { selected: -1, selectedGap: -1, chains: [], marks: null, band: null });
      this.searchBox.value = "";
      this.found.textContent = "";
      this.matches = null;
      this.showHelp();
      this.redraw();
    }

    goTo(span) {
      this.ensureShown(span);
      this.select(span);
      const length = this.view.t1 - this.view.t0, end = this.model.end(span);
      if (this.model.start[span] < this.view.t0 || end > this.view.t1 || end - this.model.start[span] < length / 400) {
        const room = Math.max(this.model.length[span] * 8, 2000);
        this.moveTo(this.model.start[span] - room / 2, end + room / 2);
      }
      this.reveal(this.drawing.rowY(span));
    }

    ensureShown(span) {
      const track = this.model.track[span];
      const { lane } = this.model.tracks[track];
      const needsPython = this.model.withoutPython && this.model.kind[span] === this.model.python;
      if (needsPython) { this.model.layRows(false); this.pythonInput.checked = true; }
      const needsLayout = needsPython || this.hiddenLanes.has(lane) || this.drawing.collapsed.has(track) || this.model.depth[span] >= 10;
      if (!needsLayout) return;
      const depth = this.model.depth[span];
      this.hiddenLanes.delete(lane);
      for (const label of this.element.querySelectorAll("label.lane")) if (label.textContent === lane) label.firstChild.checked = true;
      this.drawing.collapsed.delete(track);
      if (depth >= 10) this.drawing.opened.add(track);
      this.relayout();
    }

    followSelected() {
      const span = this.view.selected >= 0 ? this.view.selected : this.central();
      if (span < 0) return;
      this.select(span);
      const spans = this.view.chains.slice(0, 1).flatMap((chain) => this.model.hops(chain).map(([, hop]) => hop));
      if (spans.length) this.frame(Math.min(...spans.map((s) => this.model.start[s])), Math.max(...spans.map((s) => this.model.end(s))));
    }

    frameSelected() {
      const { selected, selectedGap } = this.view;
      if (selected >= 0) this.frame(this.model.start[selected], this.model.end(selected));
      else if (selectedGap >= 0) this.frame(...this.view.band);
    }

    // The span nearest to the middle of the view, on the first visible track that has one.
    central() {
      const time = (this.view.t0 + this.view.t1) / 2;
      for (const item of this.drawing.items) {
        if (item.type !== "track" || item.track.lane === "gaps") continue;
        const row = item.track.rows[0];
        if (row && row.length) return row[Math.min(row.length - 1, this.model.lower(row, time))];
      }
      return -1;
    }

    // Moves the selection along its row, or to the nearest span of the row above or below.
    step(along, across) {
      const { model, view } = this;
      if (view.selected < 0) { const span = this.central(); if (span >= 0) this.goTo(span); return; }
      const tracks = this.drawing.items.filter((it) => it.type === "track" && it.track.lane !== "gaps");
      const rows = tracks.flatMap((it) => it.track.rows.slice(0, it.shown).filter(Boolean));
      const at = rows.findIndex((row) => row[model.lower(row, model.start[view.selected])] === view.selected || row.includes(view.selected));
      const row = rows[at + across];
      if (at < 0 || !row || !row.length) return;
      const position = across ? model.lower(row, model.start[view.selected]) : row.indexOf(view.selected) + along;
      if (position < 0 || (!across && position >= row.length)) return;
      this.goTo(row[Math.min(position, row.length - 1)]);
    }

    // --- search ---------------------------------------------------------------------------------------------------
    search(query, isExact = false) {
      this.matches = this.model.find(query, isExact);
      this.at = -1;
      Object.assign(this.view, { marks: this.matches && this.matches.marks, chains: [], selected: -1, selectedGap: -1 });
      this.found.textContent = this.matches ? `${T.count(this.matches.found.length)} found` : "";
      this.redraw();
    }

    next(direction) {
      if (!this.matches || !this.matches.found.length) return;
      const { found, marks } = this.matches;
      this.at = (this.at + direction + found.length) % found.length;
      const text = `${T.count(this.at + 1)} of ${T.count(found.length)}`;
      this.goTo(found[this.at]);
      this.view.marks = marks.map((mark, span) => mark || (this.view.marks ? this.view.marks[span] : 0));
      this.found.textContent = text;
    }

    find(name) {
      this.searchBox.value = name;
      this.search(name, true);
      if (!this.matches.found.length) this.search(name);
      this.comeIntoView();
      this.at = -1;
      this.next(1);
    }

    // Shows a place: session, start and end in ns since the origin.
    show(place) {
      const band = [place.start, place.end];
      this.clear();
      this.view.band = band;
      this.comeIntoView();
      this.frame(...band);
      const item = place.session && this.drawing.items.find((it) => it.type === "track" && it.track.session === place.session && it.track.side !== "A");
      if (item) this.reveal(item.y);
      T.announce(`Timeline shows ${place.label || "the evidence"}`);
    }

    comeIntoView() {
      this.element.scrollIntoView({ behavior: T.reducedMotion() ? "auto" : "smooth", block: "start" });
      this.scroller.focus({ preventScroll: true });
    }
  }

  T.Timeline = Timeline;
})(Tracekit);
