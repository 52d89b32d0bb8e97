// Elements without markup: every text goes through textContent, so that text of a trace stays text.
((T) => {
  T.el = (tag, attributes = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (name === "text") node.textContent = value;
      else if (name === "vars") for (const [key, v] of Object.entries(value)) node.style.setProperty(key, v);
      else node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
    return node;
  };

  T.section = (id, title, ...children) =>
    T.el("section", { id, "aria-labelledby": `${id}-title` }, T.el("h2", { id: `${id}-title`, text: title }), ...children);

  T.announce = (text) => {
    const live = document.getElementById("live");
    if (live) live.textContent = text;
  };

  T.reducedMotion = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

  T.color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

  // A button that shows a stretch of time in the timeline.
  T.placeButton = (place, label) =>
    T.el("button", {
      type: "button", class: "place", text: label || place.label,
      title: "Show in the timeline", onclick: () => T.timeline && T.timeline.show(place),
    });
})(Tracekit);
