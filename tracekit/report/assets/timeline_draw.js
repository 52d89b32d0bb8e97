// Draws the visible part of the timeline on one canvas. Cost follows the pixels, not the events.
((T) => {
  const ROW = 18, GAP = 1, TRACK_GAP = 8, HEADER = 26, RULER = 38, LABEL = 16, OPEN_ROWS = 10;
  const HARDWARE_KINDS = { op: 0, annotation: 1, python: 2, call: 3, execution: 4, collective: 5, copy_in: 6, copy_out: 6, copy: 6, memory: 7, model: 8, sync: 9 };
  T.RULER = RULER;

  const roundStep = (rough) => {
    const power = 10 ** Math.floor(Math.log10(rough));
    return [1, 2, 5, 10].find((m) => m * power >= rough) * power;
  };

  class TimelineCanvas {
    constructor(model, canvas) {
      this.model = model;
      this.canvas = canvas;
      this.context = canvas.getContext("2d", { alpha: false });
      this.collapsed = new Set();
      this.opened = new Set();
      this.readColors();
    }

    readColors() {
      const kinds = this.model.kinds.map((kind) => HARDWARE_KINDS[kind] ?? 10);
      this.kindColor = kinds.map((slot) => [0, 1, 2].map((tone) => T.color(`span-${slot}-${tone}`)));
      this.causeColor = this.model.causes.map((cause) => T.color(`part-${cause}`));
      const names = ["surface", "ink", "ink-soft", "line", "on-span", "focus", "band", "lane"];
      this.colors = Object.fromEntries(names.map((name) => [name, T.color(name)]));
    }

    color(span) {
      return this.kindColor[this.model.kind[span]][(this.model.name[span] * 7) % 3];
    }

    // Where every session header, track and row stands; labels take a line of their own on narrow screens.
    layout(width, isHidden) {
      this.width = width;
      this.isNarrow = width < 640;
      this.gutter = this.isNarrow ? 0 : Math.min(220, Math.round(width * 0.2));
      this.items = [];
      let y = RULER + 4, session = null;
      for (const track of this.model.order) {
        if (isHidden(track) || !track.rows.length) continue;
        const owner = `${track.side} ${track.session}`;
        if (owner !== session) {
          this.items.push({ type: "session", track, y, height: HEADER });
          y += HEADER;
          session = owner;
        }
        const shown = this.collapsed.has(track.index) ? 1 : this.opened.has(track.index) ? track.rows.length : Math.min(OPEN_ROWS, track.rows.length);
        const top = y + (this.isNarrow ? LABEL : 0);
        const height = Math.max(1, shown) * (ROW + GAP);
        this.items.push({ type: "track", track, y, top, height: height + top - y, shown, hidden: track.rows.length - shown });
        y = top + height + TRACK_GAP;
      }
      this.height = y + 4;
    }

    trackItem(index) { return this.items.find((item) => item.type === "track" && item.track.index === index); }

    // Middle of a span's row in content coordinates; null if its track is hidden.
    rowY(span) {
      const item = this.trackItem(this.model.track[span]);
      return item ? item.top + Math.min(this.model.depth[span], item.shown - 1) * (ROW + GAP) + ROW / 2 : null;
    }

    resize(height) {
      const ratio = Math.min(2, devicePixelRatio || 1);
      this.viewHeight = height;
      this.canvas.width = Math.round(this.width * ratio);
      this.canvas.height = Math.round(height * ratio);
      this.canvas.style.width = `${this.width}px`;
      this.canvas.style.height = `${height}px`;
      this.ratio = ratio;
    }

    draw(view) {
      const { context: c, colors } = this;
      Object.assign(this, { t0: view.t0, scale: (this.width - this.gutter) / (view.t1 - view.t0), scroll: view.scroll });
      c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
      c.fillStyle = colors.surface;
      c.fillRect(0, 0, this.width, this.viewHeight);
      c.save();
      c.beginPath();
      c.rect(this.gutter, 0, this.width - this.gutter, this.viewHeight);
      c.clip();
      this.drawGrid(view);
      c.font = "11px system-ui, sans-serif";
      c.textBaseline = "middle";
      for (const item of this.items) this.drawItem(item, view);
      this.drawArrows(view);
      this.drawRuler(view);
      c.restore();
    }

    x(time) { return this.gutter + (time - this.t0) * this.scale; }

    drawGrid(view) {
      const { context: c } = this;
      if (view.band) {
        c.fillStyle = this.colors.band;
        c.fillRect(this.x(view.band[0]), 0, Math.max(2, (view.band[1] - view.band[0]) * this.scale), this.viewHeight);
      }
      this.step = roundStep((view.t1 - view.t0) / Math.max(2, (this.width - this.gutter) / 110));
      c.fillStyle = this.colors.line;
      for (let t = Math.ceil(view.t0 / this.step) * this.step; t < view.t1; t += this.step) c.fillRect(Math.round(this.x(t)), 0, 1, this.viewHeight);
    }

    // Times in the upper line, the measured steps in the lower one.
    drawRuler(view) {
      const { context: c, colors } = this;
      c.fillStyle = colors.surface;
      c.fillRect(this.gutter, 0, this.width, RULER);
      for (const [label, from, to] of this.model.steps) {
        const left = Math.max(this.gutter, this.x(from)), right = Math.min(this.width, this.x(to));
        if (right - left < 2) continue;
        c.fillStyle = colors.lane;
        c.fillRect(left, 20, right - left - 1, 15);
        c.fillStyle = colors.ink;
        if (right - left > 7 * label.length) c.fillText(label, left + 4, 28);
      }
      c.fillStyle = colors["ink-soft"];
      for (let t = Math.ceil(view.t0 / this.step) * this.step; t < view.t1; t += this.step) c.fillText(T.tick(t, this.step), Math.round(this.x(t)) + 4, 10);
    }

    drawItem(item, view) {
      const top = item.y - view.scroll;
      if (item.type === "session" || top > this.viewHeight || top + item.height < RULER - ROW) return;
      const y = item.top - view.scroll;
      for (let row = 0; row < item.shown; row++) {
        const rowTop = y + row * (ROW + GAP);
        if (rowTop > this.viewHeight || rowTop + ROW < 0) continue;
        if (item.track.lane === "gaps") this.drawGaps(item.track.rows[0], rowTop, view);
        else if (item.track.rows[row]) this.drawRow(item.track.rows[row], rowTop, view);
      }
    }

    // Every span, or, when some are marked, all of them faint and the marked ones over them.
    drawRow(row, y, view) {
      if (view.marks === null) { this.drawSpans(row, y, view, false); return; }
      this.drawSpans(row, y, view, true);
      this.drawMarked(row, y, view);
    }

    // Of spans narrower than a pixel one per pixel is looked at; neighbours of one colour make one rectangle.
    drawSpans(row, y, view, isFaint) {
      const { model } = this;
      const run = this.run(y);
      for (let at = model.lower(row, view.t0); at < row.length; at++) {
        const span = row[at];
        const x0 = this.x(model.start[span]), x1 = x0 + model.length[span] * this.scale;
        if (x0 > this.width) break;
        if (x1 - x0 >= 2.5) {
          run.flush();
          this.drawSpan(span, Math.max(x0, this.gutter - 4), Math.min(x1, this.width + 4), y, isFaint, view);
          continue;
        }
        run.add(isFaint ? this.colors.line : this.color(span), x0, x1);
        if (x1 - x0 < 1) at = this.nextPixel(row, at, x0, model.start) - 1;
      }
      run.flush();
    }

    drawMarked(row, y, view) {
      const { model } = this;
      const run = this.run(y);
      for (let at = model.lower(row, view.t0); at < row.length; at++) {
        const span = row[at];
        if (model.start[span] > view.t1) break;
        if (!view.marks[span]) continue;
        const x0 = this.x(model.start[span]), x1 = x0 + model.length[span] * this.scale;
        if (x1 - x0 < 2.5) { run.add(this.color(span), x0, x1); continue; }
        run.flush();
        this.drawSpan(span, Math.max(x0, this.gutter - 4), Math.min(x1, this.width + 4), y, false, view);
      }
      run.flush();
    }

    // First position after `at` that starts in a later pixel: doubling steps, then halving.
    nextPixel(row, at, x, starts) {
      const time = this.t0 + (Math.floor(x) + 1 - this.gutter) / this.scale;
      let step = 1;
      while (at + step < row.length && starts[row[at + step]] < time) step *= 2;
      let low = at + (step >> 1) + 1, high = Math.min(row.length, at + step);
      while (low < high) {
        const middle = (low + high) >> 1;
        if (starts[row[middle]] < time) low = middle + 1; else high = middle;
      }
      return Math.max(at + 1, low);
    }

    // Collects neighbouring narrow rectangles of one colour.
    run(y) {
      const { context: c } = this;
      let color = null, from = 0, to = 0;
      const flush = () => {
        if (color === null) return;
        c.fillStyle = color;
        c.fillRect(from, y, Math.max(1, to - from), ROW);
        color = null;
      };
      const add = (next, x0, x1) => {
        if (next === color && x0 <= to + 1) { to = Math.max(to, x1, x0 + 1); return; }
        flush();
        [color, from, to] = [next, x0, Math.max(x1, x0 + 1)];
      };
      return { add, flush };
    }

    drawSpan(span, x0, x1, y, isFaint, view) {
      const { model, context: c } = this;
      const width = Math.max(1, x1 - x0 - (x1 - x0 > 4 ? 0.6 : 0));
      const isBlock = model.count[span] > 1;
      c.globalAlpha = isFaint ? 0.22 : isBlock ? 0.62 : 1;
      c.fillStyle = this.color(span);
      c.fillRect(x0, y, width, ROW);
      c.globalAlpha = isFaint ? 0.6 : 1;
      if (width > 26) {
        const name = isBlock ? `${model.count[span]} × ${model.nameOf(span)} …` : model.nameOf(span);
        const letters = Math.floor((width - 6) / 6);
        c.fillStyle = isFaint ? this.colors["ink-soft"] : this.colors["on-span"];
        c.fillText(name.length > letters ? `${name.slice(0, Math.max(1, letters - 1))}…` : name, x0 + 3, y + ROW / 2 + 0.5, width - 4);
      }
      c.globalAlpha = 1;
      if (span === view.selected) {
        c.strokeStyle = this.colors.focus;
        c.lineWidth = 2;
        c.strokeRect(x0 + 1, y + 1, Math.max(2, width - 2), ROW - 2);
      }
    }

    // A gap is filled from its causes: heights are the shares, the colour tells the cause.
    drawGaps(row, y, view) {
      const { gap } = this.model;
      const run = this.run(y);
      for (let at = this.model.lower(row, view.t0, gap.start, gap.length); at < row.length; at++) {
        const i = row[at];
        const x0 = this.x(gap.start[i]), x1 = x0 + gap.length[i] * this.scale;
        if (x0 > this.width) break;
        if (x1 - x0 >= 2.5) { run.flush(); this.drawGap(i, x0, x1, y, view); continue; }
        run.add(this.causeColor[gap.cause[i]], x0, x1);
        if (x1 - x0 < 1) at = this.nextPixel(row, at, x0, gap.start) - 1;
      }
      run.flush();
    }

    drawGap(i, x0, x1, y, view) {
      const { model, context: c } = this;
      let top = y;
      model.gap.parts.forEach((part, cause) => {
        const height = (part[i] / model.gap.length[i]) * ROW;
        if (!(height > 0)) return;
        c.fillStyle = this.causeColor[cause];
        c.fillRect(x0, top, Math.max(1, x1 - x0 - 0.6), height);
        top += height;
      });
      if (view.selectedGap === i) {
        c.strokeStyle = this.colors.focus;
        c.lineWidth = 2;
        c.strokeRect(x0 + 1, y + 1, x1 - x0 - 2, ROW - 2);
      }
      const letters = Math.floor((Math.min(x1, this.width) - Math.max(x0, this.gutter) - 6) / 6);
      if (letters < 6) return;
      const name = model.causes[model.gap.cause[i]].replace("_", " ");
      c.fillStyle = this.colors["on-span"];
      c.fillText(name.slice(0, letters), Math.max(x0, this.gutter) + 3, y + ROW / 2 + 0.5);
    }

    // From each hop of the highlighted chains to the next: hardware events all start at the last hop before them.
    drawArrows(view) {
      const { model, context: c } = this;
      c.lineWidth = 1.5;
      c.strokeStyle = c.fillStyle = this.colors.focus;
      for (const chain of view.chains) {
        let cause = null;
        for (const [link, span] of model.hops(chain)) {
          const y = this.rowY(span);
          if (y === null) continue;
          if (cause !== null) this.arrow(this.leaving(cause, model.start[span]), this.rowY(cause) - view.scroll, this.x(model.start[span]), y - view.scroll);
          if (link !== "hardware") cause = span;
        }
      }
    }

    // An arrow leaves its cause when the effect starts, or when the cause ends if that is earlier.
    leaving(span, time) {
      return this.x(Math.max(this.model.start[span], Math.min(this.model.end(span), time)));
    }

    arrow(x0, y0, x1, y1) {
      const { context: c } = this;
      if (Math.max(x0, x1) < this.gutter || Math.min(x0, x1) > this.width) return;
      const isSteep = x1 - x0 < 14;
      const down = y1 > y0 ? 1 : -1;
      const tip = isSteep ? [x1, y1 - (down * ROW) / 2] : [x1, y1];
      c.beginPath();
      c.moveTo(x0, y0);
      if (isSteep) c.lineTo(...tip);
      else c.bezierCurveTo(x0 + (x1 - x0) * 0.5, y0, x0 + (x1 - x0) * 0.5, y1, x1 - 4, y1);
      c.stroke();
      c.beginPath();
      c.moveTo(...tip);
      c.lineTo(tip[0] - (isSteep ? 4 : 7), tip[1] - (isSteep ? 7 * down : 4));
      c.lineTo(tip[0] - (isSteep ? -4 : 7), tip[1] - (isSteep ? 7 * down : -4));
      c.fill();
    }

    // The span or gap under a point of the canvas, with three pixels of tolerance.
    hit(x, y, view) {
      if (x < this.gutter || y < RULER) return null;
      const content = y + view.scroll;
      const item = this.items.find((it) => it.type === "track" && content >= it.top && content < it.y + it.height);
      if (!item) return null;
      const rowIndex = Math.floor((content - item.top) / (ROW + GAP));
      const row = item.track.rows[rowIndex];
      if (!row) return null;
      const { model } = this, isGap = item.track.lane === "gaps";
      const starts = isGap ? model.gap.start : model.start, lengths = isGap ? model.gap.length : model.length;
      const time = view.t0 + (x - this.gutter) / this.scale, slack = 3 / this.scale;
      const at = model.lower(row, time - slack, starts, lengths);
      if (at >= row.length || starts[row[at]] > time + slack) return null;
      let best = at;
      if (at + 1 < row.length && starts[row[at]] + lengths[row[at]] < time && starts[row[at + 1]] <= time) best = at + 1;
      return { isGap, index: row[best], track: item.track, row: rowIndex, position: best };
    }
  }

  T.TimelineCanvas = TimelineCanvas;
})(Tracekit);
