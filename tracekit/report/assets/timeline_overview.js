// The strip above the timeline: how busy the hardware is over the whole window, and the part in view.
((T) => {
  const { el } = T;
  const HEIGHT = 34;

  // Share of each pixel's time in which a hardware track is busy, averaged over tracks.
  const density = (model, width) => {
    const busy = new Float64Array(width);
    const work = new Set(["execution", "collective", "copy_in", "copy_out", "copy", "memory"].map((kind) => model.kinds.indexOf(kind)));
    let tracks = model.tracks.filter((t) => t.lane === "hardware");
    const isWork = tracks.length ? (span) => work.has(model.kind[span]) : () => true;
    if (!tracks.length) tracks = model.tracks.filter((t) => t.lane === "dispatch");
    const scale = width / model.window;
    for (const track of tracks) {
      for (let span = track.first; span < track.last; span++) {
        if (!isWork(span)) continue;
        const from = model.start[span] * scale, weight = model.length[span] ? model.busy[span] / model.length[span] : 0;
        const to = Math.min(width, from + model.length[span] * scale);
        for (let px = Math.max(0, Math.floor(from)); px < to; px++) busy[px] += (Math.min(to, px + 1) - Math.max(from, px)) * Math.min(1, weight);
      }
    }
    return busy.map((value) => Math.min(1, value / Math.max(1, tracks.length)));
  };

  Object.assign(T.Timeline.prototype, {
    drawOverview() {
      const width = this.scroller.clientWidth;
      const ratio = Math.min(2, devicePixelRatio || 1);
      if (this.densityWidth !== width) { this.density = density(this.model, width); this.densityWidth = width; }
      Object.assign(this.overview, { width: width * ratio, height: HEIGHT * ratio });
      this.overview.style.width = `${width}px`;
      this.overviewRatio = ratio;
      this.paintBackdrop(width);
    },

    // The part that stays the same from frame to frame.
    paintBackdrop(width) {
      this.backdrop = el("canvas", { width: this.overview.width, height: this.overview.height });
      const c = this.backdrop.getContext("2d");
      c.setTransform(this.overviewRatio, 0, 0, this.overviewRatio, 0, 0);
      c.fillStyle = this.drawing.colors.lane;
      c.fillRect(0, 0, width, HEIGHT);
      c.fillStyle = T.color("span-4-1");
      this.density.forEach((share, px) => { if (share > 0) c.fillRect(px, HEIGHT - 2 - share * (HEIGHT - 6), 1, share * (HEIGHT - 6)); });
    },

    drawOverviewFrame() {
      const width = this.densityWidth, c = this.overview.getContext("2d"), { colors } = this.drawing;
      c.setTransform(1, 0, 0, 1, 0, 0);
      c.drawImage(this.backdrop, 0, 0);
      c.setTransform(this.overviewRatio, 0, 0, this.overviewRatio, 0, 0);
      const from = (this.view.t0 / this.model.window) * width, to = (this.view.t1 / this.model.window) * width;
      c.fillStyle = colors.band;
      c.fillRect(from, 0, Math.max(3, to - from), HEIGHT);
      c.strokeStyle = colors.focus;
      c.lineWidth = 1.5;
      c.strokeRect(Math.max(1, from), 1, Math.max(3, Math.min(width - 1, to) - Math.max(1, from)), HEIGHT - 2);
    },

    overviewInput() {
      let isDown = false;
      const centre = (event) => {
        const box = this.overview.getBoundingClientRect();
        const at = ((event.clientX - box.left) / box.width) * this.model.window, half = (this.view.t1 - this.view.t0) / 2;
        this.setView(at - half, at + half);
      };
      this.overview.addEventListener("pointerdown", (event) => { isDown = true; this.overview.setPointerCapture(event.pointerId); centre(event); });
      this.overview.addEventListener("pointermove", (event) => { if (isDown) centre(event); });
      for (const name of ["pointerup", "pointercancel"]) this.overview.addEventListener(name, () => { isDown = false; });
    },
  });
})(Tracekit);
