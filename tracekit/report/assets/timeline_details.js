// What is said about a span, a gap or a chain: in the tip, in the panel and to screen readers.
((T) => {
  const { el } = T;
  const KIND_NAMES = { op: "operator", python: "Python function", call: "call", execution: "execution", copy_in: "copy to device", copy_out: "copy to host", sync: "wait or synchronisation", window: "profiler window", overhead: "profiler overhead" };
  const HOP_NAMES = { dispatch: "operator", launch: "launch call", stream: "device stream", submit: "runtime submit", hardware: "hardware" };
  T.causeName = (cause) => cause.replace(/_/g, " ");

  T.spanFacts = (model, span) => {
    const kind = model.kinds[model.kind[span]];
    const track = model.tracks[model.track[span]];
    const count = model.count[span];
    const facts = [["Kind", KIND_NAMES[kind] || kind.replace("_", " ")], ["Where", `${track.laneName} · ${track.label}`]];
    if (count > 1) {
      facts.push(["Block", `${T.count(count)} events drawn as one, ${T.duration(model.busy[span])} in all`]);
      facts.push(["Longest", model.nameOf(span)]);
    }
    facts.push(["Duration", T.duration(model.length[span])], ["Starts at", T.duration(model.start[span], 9)]);
    if (model.shape[span] >= 0) facts.push(["Input shapes", model.text(model.shape[span])]);
    if (T.isNumber(model.bytes[span])) {
      const rate = model.length[span] > 0 ? `, ${T.bytes((model.bytes[span] / model.length[span]) * 1e9)}/s` : "";
      facts.push(["Moved", T.bytes(model.bytes[span]) + rate]);
    }
    if (T.isNumber(model.execution[span])) facts.push(["Execution", T.count(model.execution[span])]);
    facts.push(["Process", track.session_label]);
    return facts;
  };

  T.gapFacts = (model, i) => {
    const { gap } = model;
    const facts = [["Idle for", T.duration(gap.length[i])], ["Starts at", T.duration(gap.start[i], 9)]];
    gap.parts.forEach((part, c) => {
      if (part[i] > 0) facts.push([T.causeName(model.causes[c]), `${T.duration(part[i])} (${T.percent(part[i] / gap.length[i])})`]);
    });
    if (gap.late[i] >= 0) facts.push(["Ends with", model.text(gap.late[i])]);
    const track = model.tracks[gap.track[i]];
    facts.push(["Where", `${track.label} · ${track.session_label}`]);
    return facts;
  };

  const list = (facts) => el("dl", {}, facts.flatMap(([name, value]) => [el("dt", { text: name }), el("dd", { text: value })]));
  T.factList = list;

  const chainText = (model, chain) => {
    const { dispatchAt, from, to, missing } = model.chain;
    const parts = [];
    if (T.isNumber(dispatchAt[chain]) && T.isNumber(from[chain])) parts.push(`${T.duration(from[chain] - dispatchAt[chain])} from operator to hardware`);
    if (T.isNumber(from[chain]) && T.isNumber(to[chain])) parts.push(`${T.duration(to[chain] - from[chain])} on the device`);
    if (missing[chain] >= 0) parts.push(`breaks at: ${model.text(missing[chain])}`);
    return parts.join(", ");
  };

  const hopList = (timeline, chain) => {
    const { model } = timeline;
    const items = model.hops(chain).map(([link, span], i, all) => {
      const isParallel = link === "hardware" && all[i + 1] && all[i + 1][0] === "hardware";
      const button = el("button", { type: "button", class: "place", text: model.nameOf(span), onclick: () => timeline.goTo(span) });
      return el("li", { class: isParallel ? "parallel" : null }, el("span", { class: "hint", text: `${HOP_NAMES[link]} ` }), button, el("span", { class: "hint", text: ` ${T.duration(model.length[span])}` }));
    });
    return el("ol", { class: "hops" }, items);
  };

  T.spanPanel = (timeline, span, chains, total) => {
    const { model } = timeline;
    const head = el("h3", { text: model.count[span] > 1 ? `${T.count(model.count[span])} events` : model.nameOf(span) });
    const tools = el("p", { class: "tools" },
      el("button", { type: "button", text: "Frame", onclick: () => timeline.frameSelected() }),
      el("button", { type: "button", text: "Find all of this name", onclick: () => timeline.find(model.nameOf(span)) }),
      el("button", { type: "button", text: "Clear", onclick: () => timeline.clear() }));
    const shown = chains.slice(0, 5).map((chain) => el("div", { class: "chain" }, el("p", { class: "hint", text: chainText(model, chain) }), hopList(timeline, chain)));
    const title = total ? `${T.count(total)} chain${total === 1 ? "" : "s"}${total > chains.length ? `, arrows for the first ${chains.length}` : ""}` : "No chain: nothing on the device is linked to this event.";
    return [head, list(T.spanFacts(model, span)), tools, el("h4", { text: title }), ...shown];
  };

  T.gapPanel = (timeline, i) => [el("h3", { text: `Gap: ${T.causeName(timeline.model.causes[timeline.model.gap.cause[i]])}` }), list(T.gapFacts(timeline.model, i)),
    el("p", { class: "tools" }, el("button", { type: "button", text: "Frame", onclick: () => timeline.frameSelected() }), el("button", { type: "button", text: "Clear", onclick: () => timeline.clear() }))];
})(Tracekit);
