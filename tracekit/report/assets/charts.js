// Shares of a whole as bars with a legend that is also their table; time and length charts by uPlot.
((T) => {
  const { el } = T;
  const shade = (key) => `var(--part-${key}, var(--part-other))`;

  const legend = (bars) => {
    const keys = [...new Map(bars.flatMap((bar) => bar.parts).map((p) => [p.key, p.label]))];
    const of = (bar, key) => bar.parts.filter((p) => p.key === key).reduce((sum, p) => sum + p.ns, 0);
    const most = (key) => Math.max(...bars.map((bar) => of(bar, key)));
    const used = keys.filter(([key]) => most(key) > 0);
    const head = bars.length > 1 ? el("thead", {}, el("tr", {}, el("td"), bars.map((b) => el("th", { scope: "col", class: "number", text: b.label })))) : null;
    const rows = used.map(([key, label]) =>
      el("tr", {},
        el("th", { scope: "row" }, el("span", { class: "swatch", vars: { "--fill": shade(key) } }), label),
        bars.map((bar) => {
          const ns = of(bar, key);
          return el("td", { class: "number" }, T.duration(ns), el("span", { class: "hint", text: ` ${T.percent(bar.whole_ns ? ns / bar.whole_ns : null)}` }));
        })));
    const total = el("tr", { class: "total" }, el("th", { scope: "row", text: "together" }), bars.map((b) => el("td", { class: "number", text: T.duration(b.whole_ns) })));
    return el("div", { class: "scroll" }, el("table", { class: "shares" }, head, el("tbody", {}, rows, total)));
  };

  T.shareChart = (chart) => {
    const longest = Math.max(1, ...chart.bars.map((bar) => bar.whole_ns));
    const bars = chart.bars.map((bar) => {
      const parts = bar.parts.filter((p) => p.ns > 0).map((p) => {
        const share = bar.whole_ns ? p.ns / bar.whole_ns : 0;
        return el("span", { class: "part", title: `${p.label}: ${T.duration(p.ns)}, ${T.percent(share)}`, vars: { "--fill": shade(p.key), "--size": share } },
          share > 0.13 ? el("span", { text: p.label }) : null);
      });
      return el("div", { class: "bar-line" }, chart.bars.length > 1 ? el("span", { class: "bar-label", text: bar.label }) : null,
        el("div", { class: "bar", "aria-hidden": "true", vars: { "--whole": bar.whole_ns / longest } }, parts));
    });
    return el("figure", { class: "chart", id: `chart-${chart.id}` },
      el("figcaption", {}, el("h3", { text: chart.title }), el("p", { class: "doc", text: chart.doc })),
      el("div", { class: "bars" }, bars), legend(chart.bars));
  };

  const xText = (chart) => (value) => {
    if (chart.x_unit === "ns") return T.duration(value, 3);
    if (chart.x_unit === "log_ns") return T.duration(10 ** value, 1);
    return T.count(value);
  };

  const yText = (chart) => (value) => {
    if (value === 0) return "0";
    if (chart.y_unit === "ns") return T.duration(value, 2);
    return chart.y_unit === "B" ? T.bytes(value, 3) : T.value(value, chart.y_unit);
  };

  const series = (chart, s, isStacked) => {
    const color = T.color(`part-${s.key}`) || T.color("part-other");
    const paths = isStacked ? uPlot.paths.bars({ size: [0.85, 60], align: 0 }) : uPlot.paths.stepped({ align: 1 });
    return {
      label: s.label, stroke: color, width: isStacked ? 0 : 1.5, fill: isStacked ? color : `${color}33`, paths, points: { show: false },
      value: (u, v, index, at) => (at === null ? "" : T.value(s.values[at], chart.y_unit)),
    };
  };

  // Stacked bars are drawn from the whole down, each over the sums behind it.
  const stacked = (chart) => {
    const sums = [];
    let below = chart.x.map(() => 0);
    for (const s of chart.series) {
      below = below.map((sum, i) => sum + (s.values[i] || 0));
      sums.push(below);
    }
    return { list: [...chart.series].reverse(), values: sums.reverse() };
  };

  const axes = (chart) => {
    const common = { stroke: T.color("ink-soft"), grid: { stroke: T.color("line"), width: 1 }, ticks: { stroke: T.color("line"), width: 1 }, font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif" };
    const x = { ...common, label: chart.x_label, labelSize: 18, values: (u, ticks) => ticks.map(xText(chart)) };
    if (chart.x_unit !== "ns") x.incrs = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];
    return [x, { ...common, size: 76, values: (u, ticks) => ticks.map(yText(chart)) }];
  };

  const draw = (chart, host) => {
    const isStacked = chart.kind === "stacked_bars";
    const { list, values } = isStacked ? stacked(chart) : { list: chart.series, values: chart.series.map((s) => s.values) };
    const width = Math.max(240, host.clientWidth);
    const pad = isStacked ? 0.6 : 0;
    host.replaceChildren();
    return new uPlot({
      width, height: 220, cursor: { drag: { x: !isStacked, y: false } }, legend: { live: true },
      scales: { x: { time: false, range: isStacked ? (u, a, b) => [a - pad, b + pad] : undefined }, y: { range: (u, a, b) => [0, Math.max(b, 1e-9) * 1.05] } },
      axes: axes(chart),
      series: [{ label: chart.x_label, value: (u, v) => (v === null ? "" : xText(chart)(v)) }, ...list.map((s) => series(chart, s, isStacked))],
    }, [chart.x, ...values], host);
  };

  const asTable = (chart) => {
    const head = [chart.x_label, ...chart.series.map((s) => s.label)].map((text) => el("th", { scope: "col", class: "number", text }));
    const rows = chart.x.slice(0, 200).map((x, i) =>
      el("tr", {}, el("th", { scope: "row", class: "number", text: xText(chart)(x) }), chart.series.map((s) => el("td", { class: "number", text: T.value(s.values[i], chart.y_unit) }))));
    return el("details", { class: "legend" }, el("summary", { text: "Show as a table" }),
      el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows))));
  };

  T.xyCharts = [];
  T.xyChart = (chart) => {
    const host = el("div", { class: "plot", "aria-hidden": "true" });
    T.xyCharts.push(() => draw(chart, host));
    return el("figure", { class: "chart wide", id: `chart-${chart.id}` },
      el("figcaption", {}, el("h3", { text: chart.title }), el("p", { class: "doc", text: chart.doc })), host, asTable(chart));
  };

  T.redrawCharts = () => T.xyCharts.forEach((redraw) => redraw());
})(Tracekit);
