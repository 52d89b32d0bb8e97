// Pointer, wheel, touch and keyboard for the timeline.
((T) => {
  const KEYS = "Arrow keys move the selection and the view, plus and minus zoom, 0 shows everything, comma and full stop go to the previous and next event of a row, Enter follows the chain, F frames the selection, Escape clears.";
  T.TIMELINE_KEYS = KEYS;

  T.pointerInput = (timeline, canvas) => {
    const pointers = new Map();
    let moved = 0, pinch = null;
    const local = (event) => {
      const box = canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };

    canvas.addEventListener("pointerdown", (event) => {
      if (event.button > 0) return;
      canvas.setPointerCapture(event.pointerId);
      pointers.set(event.pointerId, local(event));
      moved = 0;
      pinch = null;
      timeline.hideTip();
    });

    canvas.addEventListener("pointermove", (event) => {
      const now = local(event);
      const before = pointers.get(event.pointerId);
      if (!before) { timeline.hover(...now, event); return; }
      pointers.set(event.pointerId, now);
      if (pointers.size === 2) {
        const [a, b] = [...pointers.values()];
        const spread = Math.max(20, Math.hypot(a[0] - b[0], a[1] - b[1]));
        if (pinch) timeline.zoom(pinch / spread, (a[0] + b[0]) / 2);
        pinch = spread;
        moved = 99;
        return;
      }
      moved += Math.abs(now[0] - before[0]) + Math.abs(now[1] - before[1]);
      timeline.pan(before[0] - now[0]);
      if (event.pointerType === "mouse") timeline.scroller.scrollTop += before[1] - now[1];
    });

    const release = (event) => {
      const wasDown = pointers.delete(event.pointerId);
      pinch = null;
      if (wasDown && event.type === "pointerup" && moved < 6) timeline.click(...local(event));
    };
    canvas.addEventListener("pointerup", release);
    canvas.addEventListener("pointercancel", release);
    canvas.addEventListener("pointerleave", () => timeline.hideTip());
    canvas.addEventListener("dblclick", (event) => timeline.zoom(0.4, local(event)[0]));
    canvas.addEventListener("wheel", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) {
        event.preventDefault();
        timeline.zoom(Math.exp(Math.max(-0.6, Math.min(0.6, event.deltaY * 0.004))), local(event)[0]);
      } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        event.preventDefault();
        timeline.pan(event.deltaX || event.deltaY);
      }
    }, { passive: false });
  };

  T.keyboardInput = (timeline, host) => {
    const part = (share) => (timeline.drawing.width - timeline.drawing.gutter) * share;
    const actions = {
      ArrowLeft: () => timeline.pan(-part(0.12)), a: () => timeline.pan(-part(0.12)),
      ArrowRight: () => timeline.pan(part(0.12)), d: () => timeline.pan(part(0.12)),
      "+": () => timeline.zoom(0.7), "=": () => timeline.zoom(0.7), w: () => timeline.zoom(0.7),
      "-": () => timeline.zoom(1 / 0.7), s: () => timeline.zoom(1 / 0.7),
      0: () => timeline.fit(), Home: () => timeline.fit(),
      ArrowUp: () => timeline.step(0, -1), ArrowDown: () => timeline.step(0, 1),
      ",": () => timeline.step(-1, 0), ".": () => timeline.step(1, 0),
      Enter: () => timeline.followSelected(), f: () => timeline.frameSelected(),
      Escape: () => timeline.clear(), "/": () => timeline.searchBox.focus(),
    };
    host.addEventListener("keydown", (event) => {
      if (event.target !== host || event.ctrlKey || event.metaKey || event.altKey) return;
      const action = actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
      if (!action) return;
      event.preventDefault();
      action();
    });
  };
})(Tracekit);
