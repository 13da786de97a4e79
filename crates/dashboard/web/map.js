// The cluster map: every card a box, as wide as its memory, as high as its time; who holds which part of it, to scale.
import { gib, percent } from "./chart.js";

const SIZES = [
  // nodes up to, pixels per GiB, card height, gap between cards, label
  [30, 0.42, 44, 3, true],
  [120, 0.24, 26, 2, true],
  [400, 0.14, 16, 1, false],
  [Infinity, 0.085, 11, 1, false],
];

// node-2 before node-10. Made once: localeCompare with options makes one for every two names it compares.
const names = new Intl.Collator(undefined, { numeric: true });

// Colours in the order in which namespaces are first seen, each as far as can be from the last.
const seen = new Map();
export function color(namespace, dark) {
  if (!namespace) return dark ? "#64748b" : "#94a3b8";
  if (!seen.has(namespace)) seen.set(namespace, seen.size);
  const at = seen.get(namespace);
  return `hsl(${Math.round(210 + at * 137.508) % 360} ${at % 2 ? 62 : 72}% ${(dark ? 58 : 46) + (at % 3) * 4}%)`;
}

export class ClusterMap {
  constructor(canvas, tip, open) {
    Object.assign(this, { canvas, tip, open, nodes: [], boxes: [], filter: "", focus: null });
    canvas.addEventListener("mousemove", (event) => this.hover(event));
    canvas.addEventListener("mouseleave", () => this.say(null));
    canvas.addEventListener("click", (event) => this.click(event));
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("blur", () => { this.focus = null; this.say(null); this.draw(); });
    // Drawing changes the height, which must not be answered by drawing.
    new ResizeObserver(() => requestAnimationFrame(() => { if (this.width() !== this.drawn) this.draw(); })).observe(canvas.parentElement);
  }

  set(nodes) {
    this.nodes = [...nodes].sort((a, b) => names.compare(a.pool, b.pool) || names.compare(a.name, b.name));
    this.draw();
  }

  matches(node, card, slice) {
    const words = this.filter;
    return !words || [node.name, card.model, slice?.pod ?? ""].some((text) => text.toLowerCase().includes(words));
  }

  // Where every card lies: nodes flow in lines, pool by pool.
  layout(width) {
    const [, scale, height, gap, label] = SIZES.find(([most]) => this.nodes.length <= most);
    this.boxes = [];
    const heads = [];
    let x = 0, y = 0, pool = null;
    const line = height + (label ? 18 : 4);
    for (const node of this.nodes) {
      const widths = node.cards.map((card) => Math.max(4, (card.memory / 1024) * scale));
      const whole = widths.reduce((sum, w) => sum + w + gap, 0) || 40;
      if (node.pool !== pool) {
        if (pool !== null) y += line + 6;
        pool = node.pool;
        heads.push({ y, text: pool || "nodes", count: this.nodes.filter((n) => n.pool === pool).length });
        y += 18;
        x = 0;
      } else if (x + whole > width && x > 0) {
        x = 0;
        y += line;
      }
      let left = x;
      node.cards.forEach((card, index) => {
        this.boxes.push({ node, card, index, x: left, y: y + (label ? 14 : 0), w: widths[index], h: height, first: index === 0 });
        left += widths[index] + gap;
      });
      x += whole + (label ? 14 : 6);
    }
    this.label = label;
    return { height: y + line + 6, heads };
  }

  width() {
    const box = this.canvas.parentElement;
    const style = getComputedStyle(box);
    return box.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  }

  draw() {
    const width = this.width();
    this.drawn = width;
    if (width <= 0) return;
    const { height, heads } = this.layout(width);
    const ratio = window.devicePixelRatio || 1;
    this.canvas.style.height = `${height}px`;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    const root = getComputedStyle(document.documentElement);
    const tone = (name) => root.getPropertyValue(name).trim();
    const c = this.canvas.getContext("2d");
    const dark = isDark();
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, width, height);
    c.font = "12px system-ui, sans-serif";
    c.textBaseline = "alphabetic";
    for (const head of heads) {
      c.fillStyle = tone("--text");
      c.font = "600 12px system-ui, sans-serif";
      c.fillText(head.text, 0, head.y + 12);
      const at = c.measureText(head.text).width;
      c.font = "12px system-ui, sans-serif";
      c.fillStyle = tone("--dim");
      c.fillText(`  ${head.count} nodes`, at, head.y + 12);
    }
    const free = tone("--free"), line = tone("--line"), bad = tone("--bad"), dim = tone("--dim"), face = tone("--face");
    for (const b of this.boxes) {
      if (b.first && this.label) {
        c.fillStyle = b.node.closed ? bad : dim;
        c.font = "11px system-ui, sans-serif";
        c.fillText(b.node.closed ? `${b.node.name} (${b.node.closed})` : b.node.name, b.x, b.y - 3);
      }
      c.globalAlpha = this.matches(b.node, b.card) ? 1 : 0.25;
      c.fillStyle = free;
      c.fillRect(b.x, b.y, b.w, b.h);
      let x = b.x;
      b.parts = [];
      for (const slice of b.card.slices || []) {
        // A slice without memory of its own still holds time: it gets a sliver.
        const w = Math.max(1.5, (slice.memory / b.card.memory) * b.w);
        const shown = !this.filter || this.matches(b.node, b.card, slice);
        const tint = color(slice.pod.split("/")[0], dark);
        const promised = Math.max(1.5, (slice.share / b.card.share) * b.h), used = ((slice.shareUsed ?? 0) / b.card.share) * b.h;
        c.globalAlpha = shown ? 0.38 : 0.08;
        c.fillStyle = tint;
        c.fillRect(x, b.y + b.h - promised, w, promised);
        c.globalAlpha = shown ? 0.16 : 0.05;
        c.fillRect(x, b.y, w, b.h);
        c.globalAlpha = shown ? 1 : 0.15;
        c.fillRect(x, b.y + b.h - Math.min(b.h, used), w, Math.min(b.h, used));
        if (slice.opportunistic && w > 4) stripes(c, x, b.y, w, b.h, face);
        if (slice.leaving) { c.strokeStyle = bad; c.strokeRect(x + 0.5, b.y + 0.5, Math.max(1, w - 1), b.h - 1); }
        b.parts.push({ slice, x, w });
        x = Math.min(b.x + b.w, x + w);
      }
      c.globalAlpha = 1;
      if (b.card.down) {
        c.strokeStyle = bad;
        c.lineWidth = 1.5;
        c.beginPath();
        c.moveTo(b.x, b.y); c.lineTo(b.x + b.w, b.y + b.h);
        c.moveTo(b.x + b.w, b.y); c.lineTo(b.x, b.y + b.h);
        c.stroke();
        c.lineWidth = 1;
      }
      c.strokeStyle = b.card.down ? bad : line;
      c.strokeRect(b.x - 0.5, b.y - 0.5, b.w + 1, b.h + 1);
    }
    if (this.focus != null && this.boxes[this.focus]) {
      const b = this.boxes[this.focus];
      c.strokeStyle = tone("--accent");
      c.lineWidth = 2;
      c.strokeRect(b.x - 2, b.y - 2, b.w + 4, b.h + 4);
      c.lineWidth = 1;
    }
  }

  at(event) {
    const { offsetX: x, offsetY: y } = event;
    const box = this.boxes.find((b) => x >= b.x && x <= b.x + b.w && y >= b.y && y <= b.y + b.h);
    return box && { box, part: box.parts.find((p) => x >= p.x && x <= p.x + p.w) };
  }

  hover(event) {
    const found = this.at(event);
    this.canvas.style.cursor = found ? "pointer" : "default";
    this.say(found && words(found.box, found.part), event.offsetX + 24, event.offsetY + 20);
  }

  click(event) {
    const found = this.at(event);
    if (found) this.open(found.box, found.part?.slice);
  }

  key(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const line = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Enter" && this.focus != null) return this.open(this.boxes[this.focus]);
    if (!step && !line) return;
    event.preventDefault();
    if (this.focus == null) this.focus = 0;
    else if (step) this.focus = Math.min(this.boxes.length - 1, Math.max(0, this.focus + step));
    else {
      const from = this.boxes[this.focus];
      const others = this.boxes.map((b, i) => [i, b]).filter(([, b]) => (line > 0 ? b.y > from.y + from.h : b.y < from.y - 1));
      const distance = ([, b]) => Math.abs(b.y - from.y) * 1000 + Math.abs(b.x - from.x);
      this.focus = others.sort((a, b) => distance(a) - distance(b))[0]?.[0] ?? this.focus;
    }
    this.draw();
    const b = this.boxes[this.focus];
    this.say(words(b), b.x + 16, b.y + b.h + 14);
  }

  say(text, x, y) {
    this.tip.hidden = !text;
    if (!text) return;
    this.tip.textContent = text;
    this.tip.style.left = `${Math.min(x, this.canvas.clientWidth - 240)}px`;
    this.tip.style.top = `${y}px`;
  }
}

export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function stripes(c, x, y, w, h, tone) {
  c.save();
  c.globalAlpha = 0.45;
  c.beginPath();
  c.rect(x, y, w, h);
  c.clip();
  c.strokeStyle = tone;
  c.beginPath();
  for (let at = -h; at < w; at += 5) { c.moveTo(x + at, y + h); c.lineTo(x + at + h, y); }
  c.stroke();
  c.restore();
}

export function words(box, part) {
  const { node, card, index } = box;
  const rows = [`${node.name} · card ${index} · ${card.model} · ${gib(card.memory)}`];
  if (card.down) rows.push(`out of service: ${card.down}`);
  const slices = part ? [part.slice] : card.slices || [];
  for (const s of slices.slice(0, 6)) {
    const used = s.shareUsed == null ? "" : `, uses ${percent(s.shareUsed)}`;
    rows.push(`${s.pod || "another namespace"}: ${gib(s.memory)}, ${s.alone ? "alone" : percent(s.share)}${used}`);
  }
  if (!slices.length && !card.down) rows.push("free");
  return rows.join("\n");
}
