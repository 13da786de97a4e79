// Line charts as SVG, and the words for numbers and moments.
const SVG = "http://www.w3.org/2000/svg";

export function svg(name, attributes, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
  for (const child of children) element.append(child);
  return element;
}

export function h(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "style") element.style.cssText = value;
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value != null) element.setAttribute(key, value);
  }
  for (const child of children.flat()) if (child != null && child !== false) element.append(child);
  return element;
}

export const clock = (at) => (at ? new Date(at).toISOString().slice(11, 16) : "");
export const percent = (thousandths) => `${(thousandths / 10).toFixed(thousandths < 100 ? 1 : 0)} %`;
export const gib = (mib) => (mib >= 1024 * 1024 ? `${(mib / 1024 / 1024).toFixed(1)} TiB` : mib >= 1024 ? `${+(mib / 1024).toFixed(1)} GiB` : `${mib} MiB`);
export function since(seconds) {
  if (seconds < 120) return `${Math.max(0, Math.round(seconds))} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
}

// series: [{name, color, points: [[at, value]], dash}], options: {from, to, max, unit, marks: [{at, text}]}
export function lines(series, options = {}) {
  const width = 420, height = 150, left = 44, right = 8, top = 8, bottom = 20;
  const all = series.flatMap((s) => s.points);
  const from = options.from ?? Math.min(...all.map((p) => p[0])), to = options.to ?? Math.max(...all.map((p) => p[0]));
  const max = options.max ?? Math.max(1, ...all.map((p) => p[1])) * 1.05, min = Math.min(0, ...all.map((p) => p[1]));
  const x = (at) => left + ((at - from) / Math.max(1, to - from)) * (width - left - right);
  const y = (value) => height - bottom - ((value - min) / Math.max(1e-9, max - min)) * (height - top - bottom);
  const words = series.map((s) => `${s.name} ${options.unit ? options.unit(s.points.at(-1)?.[1] ?? 0) : (s.points.at(-1)?.[1] ?? 0)}`).join(", ");
  const chart = svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": words });
  for (const part of [0, 0.5, 1]) {
    const value = min + (max - min) * part;
    chart.append(svg("line", { class: "rule", x1: left, x2: width - right, y1: y(value), y2: y(value) }));
    const text = svg("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" });
    text.textContent = options.unit ? options.unit(value) : Math.round(value);
    chart.append(text);
  }
  for (const [at, anchor] of [[from, "start"], [to, "end"]]) {
    const text = svg("text", { x: x(at), y: height - 5, "text-anchor": anchor });
    text.textContent = Number.isFinite(at) ? clock(at) : "";
    chart.append(text);
  }
  for (const s of series) {
    if (!s.points.length) continue;
    const path = s.points.map((p, i) => `${i ? "L" : "M"}${x(p[0]).toFixed(1)} ${y(Math.min(max, p[1])).toFixed(1)}`).join("");
    chart.append(svg("path", { d: path, fill: "none", stroke: s.color, "stroke-width": 1.8, "stroke-dasharray": s.dash || "none", "vector-effect": "non-scaling-stroke" }));
  }
  return chart;
}

export const legend = (series) => h("div", { class: "key" }, series.map((s) => h("span", {}, h("i", { class: "dot", style: `background:${s.color}` }), s.name)));
