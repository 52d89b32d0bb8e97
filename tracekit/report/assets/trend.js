// A measure over runs: a dot per point with its quartiles, the level as a line, steps marked and named.
((T) => {
  const { el } = T;
  const HEIGHT = 340;
  const TONES = { bad: "bad", good: "good", neutral: "ink-soft", warn: "warn" };
  const short = (text) => (text.length > 14 ? `${text.slice(0, 13)}…` : text);
  const font = (size) => `${size * devicePixelRatio}px system-ui, sans-serif`;
  const of = (chart, key) => chart.series.find((s) => s.key === key).values;

  // The axis starts at 0 only where values come near it: a step of a few percent has to be seen.
  const range = (chart) => {
    const all = ["value", "low", "high", "level"].flatMap((key) => of(chart, key)).filter(T.isNumber);
    const low = Math.min(...all), high = Math.max(...all);
    const room = (high - low || Math.abs(high) || 1) * 0.12;
    return [low >= 0 && (low < 0.3 * high || low < room) ? 0 : low - room, high + 1.6 * room];
  };

  const whiskers = (chart) => (u) => {
    const { ctx } = u, low = of(chart, "low"), high = of(chart, "high");
    ctx.save();
    ctx.strokeStyle = T.color("ink-soft");
    ctx.globalAlpha = 0.6;
    ctx.lineWidth = 1.5 * devicePixelRatio;
    ctx.beginPath();
    chart.x.forEach((at, i) => {
      const x = u.valToPos(at, "x", true);
      if (x < u.bbox.left || x > u.bbox.left + u.bbox.width) return;
      ctx.moveTo(x, u.valToPos(low[i], "y", true));
      ctx.lineTo(x, u.valToPos(high[i], "y", true));
    });
    ctx.stroke();
    ctx.restore();
  };

  // One line per level; between two of them stands the mark of the step.
  const levels = (chart) => (u) => {
    const { ctx } = u, level = of(chart, "level"), starts = [0, ...chart.marks.map((m) => m.at)];
    const clamp = (x) => Math.min(u.bbox.left + u.bbox.width, Math.max(u.bbox.left, u.valToPos(x, "x", true)));
    ctx.save();
    ctx.strokeStyle = T.color("part-main");
    ctx.lineWidth = 2 * devicePixelRatio;
    ctx.beginPath();
    starts.forEach((start, i) => {
      if (!T.isNumber(level[start])) return;
      const y = u.valToPos(level[start], "y", true);
      ctx.moveTo(clamp(start - 0.5), y);
      ctx.lineTo(clamp((starts[i + 1] ?? chart.x.length) - 0.5), y);
    });
    ctx.stroke();
    ctx.restore();
  };

  const marks = (chart) => (u) => {
    const { ctx, bbox } = u, scale = devicePixelRatio;
    const ends = [-Infinity, -Infinity, -Infinity];
    ctx.save();
    ctx.font = `600 ${font(12)}`;
    ctx.textBaseline = "top";
    ctx.textAlign = "left";
    for (const mark of chart.marks) {
      const x = u.valToPos(chart.x[mark.at] - 0.5, "x", true);
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      const width = ctx.measureText(mark.label).width;
      const left = Math.min(x + 4 * scale, bbox.left + bbox.width - width);
      const row = ends.findIndex((end) => left > end + 6 * scale);
      ctx.strokeStyle = ctx.fillStyle = T.color(TONES[mark.tone]);
      ctx.lineWidth = 1.5 * scale;
      ctx.setLineDash(mark.tone === "neutral" ? [4 * scale, 4 * scale] : []);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      if (row < 0) continue; // no room: the table has it
      ends[row] = left + width;
      ctx.fillText(mark.label, left, bbox.top + (4 + 16 * row) * scale);
    }
    ctx.restore();
  };

  // One unit for all ticks, and no more digits than their distance needs.
  const UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
  const yText = (chart, value, ticks) => {
    if (chart.y_unit !== "ns" || ticks.length < 2) return T.value(value, chart.y_unit);
    const [unit, name] = UNITS.find(([limit]) => Math.max(...ticks.map(Math.abs)) >= limit) || [1, "ns"];
    const places = Math.max(0, -Math.floor(Math.log10((ticks[1] - ticks[0]) / unit) + 1e-9));
    return `${(value / unit).toLocaleString("en", { minimumFractionDigits: places, maximumFractionDigits: places })} ${name}`;
  };

  const axes = (chart) => {
    const common = { stroke: T.color("ink-soft"), grid: { stroke: T.color("line"), width: 1 }, ticks: { stroke: T.color("line"), width: 1 }, font: "12px system-ui, sans-serif" };
    const longest = Math.max(...chart.ticks.map((name) => short(name).length));
    const name = (at) => (Number.isInteger(at) && chart.ticks[at] !== undefined ? short(chart.ticks[at]) : "");
    return [
      { ...common, grid: { show: false }, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000], space: 7 * longest + 18, values: (u, ticks) => ticks.map(name) },
      { ...common, size: 82, values: (u, ticks) => ticks.map((value) => yText(chart, value, ticks)) },
    ];
  };

  const series = (chart) => {
    const main = T.color("part-main"), none = () => null;
    const looks = {
      value: { stroke: main, paths: none, points: { show: true, size: 8, width: 0, fill: main } },
      low: { stroke: T.color("ink-soft"), paths: none, points: { show: false } },
      high: { stroke: T.color("ink-soft"), paths: none, points: { show: false } },
      level: { stroke: main, paths: none, points: { show: false } },
    };
    const shown = (s) => ({ label: s.label, ...looks[s.key], value: (u, v, index, at) => (at === null ? "" : T.value(s.values[at], chart.y_unit)) });
    return [{ label: "point", value: (u, v) => (v === null ? "" : chart.names[v]) }, ...chart.series.map(shown)];
  };

  const draw = (chart, host) => {
    const last = chart.x.length - 1;
    const room = 3.5 * Math.max(...chart.ticks.map((name) => short(name).length));
    host.replaceChildren();
    return new uPlot({
      padding: [null, room, null, null],
      width: Math.max(240, host.clientWidth), height: HEIGHT, cursor: { drag: { x: true, y: false } }, legend: { live: true },
      scales: { x: { time: false, range: (u, a, b) => (a === 0 && b === last ? [-0.7, last + 0.7] : [a, b]) }, y: { range: range(chart) } },
      axes: axes(chart), series: series(chart), hooks: { drawAxes: [whiskers(chart), levels(chart)], draw: [marks(chart)] },
    }, [chart.x, ...chart.series.map((s) => s.values)], host);
  };

  // In words, for those who do not see the canvas.
  const told = (chart, at) => {
    const value = (key) => T.value(of(chart, key)[at], chart.y_unit);
    const mark = chart.marks.find((m) => m.at === at);
    const level = T.isNumber(of(chart, "level")[at]) ? `, level ${value("level")}` : "";
    return `${chart.names[at]}: ${value("value")}, quartiles ${value("low")} to ${value("high")}${level}${mark ? `, step ${mark.label}` : ""}`;
  };

  const pointsChart = (chart) => {
    const host = el("div", { class: "plot", tabindex: "0", role: "application", "aria-label": `${chart.title}: ${chart.x.length} points; arrow keys go from one to the next` });
    let plot = null, at = -1;
    T.xyCharts.push(() => { plot = draw(chart, host); });
    host.addEventListener("keydown", (event) => {
      const moves = { ArrowRight: at + 1, ArrowLeft: at < 0 ? chart.x.length - 1 : at - 1, Home: 0, End: chart.x.length - 1 };
      if (!(event.key in moves) || event.altKey || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      at = Math.min(chart.x.length - 1, Math.max(0, moves[event.key]));
      plot.setCursor({ left: plot.valToPos(chart.x[at], "x"), top: plot.valToPos(of(chart, "value")[at], "y") });
      T.announce(told(chart, at));
    });
    return el("figure", { class: "chart wide", id: `chart-${chart.id}` }, el("p", { class: "doc", text: chart.doc }), host);
  };

  T.trendSections = (data) => [
    T.answer(data),
    data.charts.length ? T.section("trend", "Over the runs", data.charts.map(pointsChart)) : null,
    data.ops.total_rows ? T.section("points", data.ops.title, el("p", { class: "doc", text: data.ops.doc }), new T.DataTable(data.ops, { open: 50 }).element) : null,
    T.section("facts", "About this page", el("div", { class: "facts" }, data.facts.map((g) =>
      el("dl", {}, g.facts.flatMap(([name, value]) => [el("dt", { text: name }), el("dd", { text: value })]))))),
  ].filter(Boolean);
})(Tracekit);
