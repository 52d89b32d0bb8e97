// Puts the page together and starts it.
(async (T) => {
  const { el } = T;
  const app = document.getElementById("app");
  const data = JSON.parse(document.getElementById("report-data").textContent);

  const block = (b) => {
    const inner = [b.doc ? el("p", { class: "doc", text: b.doc }) : null, new T.DataTable(b, { open: 15 }).element];
    return el("details", { class: "block", id: `block-${b.id}` }, el("summary", {}, el("span", { text: b.title }), el("span", { class: "hint", text: ` ${T.count(b.total_rows)} row${b.total_rows === 1 ? "" : "s"}` })), inner);
  };

  const timelineSection = () => {
    const from = data.comparison ? "A and B each from their own start" : "one lane below the other, from the framework down to the device";
    return T.section("timeline", "Timeline", el("p", { class: "doc", text: `Operators per thread, device interaction per stream, runtime per logical core, execution per physical core: ${from}.` }), T.timeline.element);
  };

  const charts = () => el("div", { class: "charts" }, data.shares.map(T.shareChart), data.charts.map(T.xyChart));

  // In a comparison the parts below it are about the later side.
  const of = data.comparison ? " of B" : "";

  const sections = () => {
    if (data.part === "timeline") return [T.timeline && T.timeline.element];
    if (data.part === "charts") return [charts()];
    if (data.part === "trend") return T.trendSections(data);
    return [
      T.answer(data),
      data.comparison && T.comparison(data.comparison),
      T.findings(data.findings, of),
      data.shares.length + data.charts.length ? T.section("time", "Where the time went", charts()) : null,
      data.ops && T.section("ops", data.ops.title + of, data.ops.doc ? el("p", { class: "doc", text: data.ops.doc }) : null, new T.DataTable(data.ops, { open: 25 }).element),
      T.timeline && timelineSection(),
      data.tables.length ? T.section("tables", `More tables${of}`, data.tables.map(block)) : null,
      T.notes(data.notes),
      T.facts(data.facts),
    ].filter(Boolean);
  };

  const themeButton = () => {
    const root = document.documentElement;
    const isDark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
    return el("button", { type: "button", class: "theme", text: "Light or dark", onclick: () => { root.dataset.theme = isDark() ? "light" : "dark"; recolor(); } });
  };

  const recolor = () => {
    T.redrawCharts();
    if (T.timeline) T.timeline.recolor();
  };

  const header = (parts) => {
    const links = parts.filter((p) => p.id && p.querySelector("h2")).map((p) => el("li", {}, el("a", { href: `#${p.id}`, text: p.querySelector("h2").textContent })));
    return el("header", {},
      el("div", { class: "masthead" }, el("div", {}, el("p", { class: "title", text: data.title }), el("p", { class: "subtitle", text: data.subtitle })), themeButton()),
      el("nav", { "aria-label": "Sections" }, el("ul", {}, links)));
  };

  const footer = () => el("footer", {}, el("p", { text: `Made by tracekit ${data.version}. One file, no network: it can be mailed and opened offline. Charts by uPlot (MIT licence, in the source of this page).` }));

  const printing = () => {
    const root = document.documentElement;
    let theme, closed = [];
    addEventListener("beforeprint", () => {
      theme = root.dataset.theme;
      root.dataset.theme = "light";
      closed = [...document.querySelectorAll("details.block:not([open])")];
      closed.forEach((d) => { d.open = true; });
      recolor();
    });
    addEventListener("afterprint", () => {
      if (theme) root.dataset.theme = theme; else delete root.dataset.theme;
      closed.forEach((d) => { d.open = false; });
      recolor();
    });
  };

  try {
    if (data.timeline) {
      const columns = await T.unpack(data.timeline.columns, document.getElementById("report-columns").textContent);
      T.timeline = new T.Timeline(data.timeline, columns);
    }
    const parts = sections();
    const isReport = data.part === "report" || data.part === "trend";
    const main = el("main", { id: "main" }, parts);
    app.replaceChildren(...(isReport ? [el("a", { class: "skip", href: "#answer", text: "Skip to the answer" }), header(parts), main, footer()] : [main]), el("div", { id: "live", class: "unseen", role: "status", "aria-live": "polite" }));
    document.body.classList.toggle("part", !isReport);
    const resized = () => { T.redrawCharts(); if (T.timeline) T.timeline.relayout(); };
    resized();
    let width = innerWidth;
    addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; resized(); } });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolor);
    printing();
    document.documentElement.dataset.ready = String(Math.round(performance.now()));
  } catch (error) {
    app.replaceChildren(el("p", { class: "failed", role: "alert", text: `The report cannot be shown: ${error.message}` }));
    throw error;
  } finally {
    app.removeAttribute("aria-busy");
  }
})(Tracekit);
