// Numbers as people read them. Opens the one object that the other files add to.
"use strict";
const Tracekit = {};

((T) => {
  const SCALES = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
  const BINARY = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]];
  const NONE = "–";
  const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

  const scaled = (value, scales, digits) => {
    const size = Math.abs(value);
    const [unit, name] = scales.find(([limit]) => size >= limit) || scales[scales.length - 1];
    const amount = value / unit;
    const text = Number.isInteger(amount) && Math.abs(amount) < 1e4 ? String(amount) : significant(amount, digits);
    return `${text.replace("-", "−")} ${name}`;
  };

  const significant = (value, digits) => {
    const whole = Math.max(1, Math.floor(Math.log10(Math.abs(value) || 1)) + 1);
    const places = Math.max(0, digits - whole);
    return value.toLocaleString("en", { minimumFractionDigits: places, maximumFractionDigits: places });
  };

  T.duration = (ns, digits = 4) => (isNumber(ns) ? (ns === 0 ? "0" : scaled(ns, SCALES, digits)) : NONE);
  // A moment on an axis whose ticks are `step` apart: one unit for all, no more digits than the step needs.
  T.tick = (ns, step) => {
    const [unit, name] = SCALES.find(([limit]) => step * 5 >= limit) || SCALES[SCALES.length - 1];
    const places = Math.max(0, -Math.floor(Math.log10(step / unit) + 1e-9));
    return `${(ns / unit).toLocaleString("en", { minimumFractionDigits: places, maximumFractionDigits: places })} ${name}`;
  };

  T.bytes = (value, digits = 4) => (isNumber(value) ? scaled(value, BINARY, digits) : NONE);
  T.percent = (ratio) => (isNumber(ratio) ? `${(ratio * 100).toFixed(Math.abs(ratio) < 0.0995 ? 2 : 1)} %` : NONE);
  T.count = (value) => (isNumber(value) ? (Number.isInteger(value) ? value.toLocaleString("en") : significant(value, 4)) : NONE);

  T.value = (value, unit) => {
    if (value === null || value === undefined) return NONE;
    if (typeof value === "boolean") return value ? "yes" : "no";
    if (typeof value !== "number") return String(value);
    if (unit === "ns") return T.duration(value);
    if (unit === "B") return T.bytes(value);
    if (unit === "ratio") return T.percent(value);
    return unit ? `${T.count(value)} ${unit}` : T.count(value);
  };

  T.change = (a, b) => {
    if (!isNumber(a) || !isNumber(b)) return { text: NONE, ratio: null };
    if (a === b) return { text: "no change", ratio: 0 };
    if (a === 0) return { text: "new", ratio: null };
    const ratio = b / a - 1;
    return { text: `${ratio > 0 ? "+" : "−"}${T.percent(Math.abs(ratio))}`, ratio };
  };

  T.isNumber = isNumber;
})(Tracekit);
