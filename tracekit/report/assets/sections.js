// The parts of the page that are text: answer, findings, comparison, notes, facts.
((T) => {
  const { el } = T;
  const place = (p) => ({ label: p.label, session: p.session, start: p.start_ns, end: p.end_ns });

  T.answer = (data) => {
    const figures = data.answer.figures.map((f) =>
      el("div", { class: "figure" },
        el("dt", { text: f.label }),
        el("dd", {}, el("span", { class: "amount", text: T.value(f.value, f.unit) }), f.hint ? el("span", { class: "hint", text: f.hint }) : null)));
    return el("section", { id: "answer", "aria-label": "Answer" },
      el("h1", { text: data.answer.headline }),
      el("div", { class: "sentences" }, data.answer.sentences.map((text) => el("p", { text }))),
      el("dl", { class: "figures" }, figures));
  };

  T.findings = (findings, of) => {
    const items = findings.map((f) =>
      el("li", { class: "finding" },
        el("div", { class: "stake" },
          el("span", { class: "amount", text: f.stake_ns === null ? "" : T.duration(f.stake_ns) }),
          f.stake_ns === null ? null : el("span", { class: "hint", text: "at stake" })),
        el("div", {},
          el("h3", { text: f.title }),
          f.text ? el("p", { text: f.text }) : null,
          f.action ? el("p", { class: "action" }, el("strong", { text: "Try: " }), f.action) : null,
          f.formula ? el("p", { class: "formula", text: `Estimate: ${f.formula}` }) : null,
          f.evidence.length ? el("p", { class: "evidence" }, el("span", { text: "Evidence: " }), f.evidence.map((e) => T.placeButton(place(e)))) : null)));
    return T.section("findings", `What to try${of ? " next in B" : ""}`,
      items.length ? el("ol", { class: "findings" }, items) : el("p", { text: "No finding has enough evidence in this capture." }));
  };

  T.comparison = (comparison) => {
    const change = (row) => {
      const { text, ratio } = T.change(row.a, row.b);
      const tone = !ratio || row.verdict !== "changed" ? "" : ratio < 0 ? "better" : "worse";
      return el("td", { class: `number ${tone}`, text });
    };
    const rows = comparison.rows.map((row) =>
      el("tr", {}, el("th", { scope: "row", text: row.label }), el("td", { class: "number", text: T.value(row.a, row.unit) }),
        el("td", { class: "number", text: T.value(row.b, row.unit) }), change(row), el("td", { class: "hint", text: row.verdict })));
    const head = ["", "A", "B", "A → B", ""].map((text, i) => el("th", { scope: "col", class: i ? "number" : null, text }));
    return T.section("comparison", "Comparison",
      el("p", { class: "sides" }, el("b", { text: "A " }), el("span", { text: comparison.a }), el("b", { text: "B " }), el("span", { text: comparison.b })),
      el("p", { class: "doc", text: `One value stands for: ${comparison.basis}` }),
      el("div", { class: "scroll" }, el("table", { class: "key" }, el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows))),
      el("div", { class: "charts" }, comparison.charts.map(T.shareChart)),
      comparison.tables.map((block) => [el("h3", { text: block.title }), block.doc ? el("p", { class: "doc", text: block.doc }) : null, new T.DataTable(block, { open: 15 }).element]));
  };

  T.notes = (notes) => {
    const items = notes.map((n) =>
      el("li", { class: `note ${n.severity}` },
        el("span", { class: "severity", text: n.severity }),
        el("div", {},
          el("p", {}, n.message, n.event_count === null ? null : el("span", { class: "hint", text: ` (${T.count(n.event_count)} events)` })),
          n.hint ? el("p", { class: "action" }, el("strong", { text: "Do: " }), n.hint) : null,
          el("p", { class: "where", text: [n.code, n.where].filter(Boolean).join(" · ") }))));
    return T.section("notes", "Notes on the data",
      items.length ? el("ul", { class: "notes" }, items) : el("p", { text: "Nothing was skipped, repaired or guessed." }));
  };

  T.facts = (groups) =>
    T.section("facts", "About this capture", el("div", { class: "facts" }, groups.map((g) =>
      el("div", {}, el("h3", { text: g.title }),
        el("dl", {}, g.facts.flatMap(([name, value]) => [el("dt", { text: name }), el("dd", { text: value })]))))));
})(Tracekit);
