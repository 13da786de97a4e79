// Everything that is not the map: sums, queue, budgets, trends, one pod's story, enforcement.
import { clock, gib, h, legend, lines, percent, since } from "./chart.js";
import { color, isDark } from "./map.js";

const tone = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const part = (a, b) => (b ? Math.round((a * 1000) / b) : 0);
const hours = (value) => (Math.abs(value) >= 100 ? value.toFixed(0) : value.toFixed(1));

export function tiles(t) {
  const tile = (name, big, small, fill) =>
    h("div", { class: "tile" }, h("span", {}, name), h("b", {}, big), h("span", {}, small), fill == null ? null : h("div", { class: "meter" }, h("i", { style: `width:${fill / 10}%` })));
  const promised = part(t.promised, t.share), used = part(t.used, t.share), memory = part(t.memoryPromised, t.memory);
  const free = t.share - t.promised;
  return [
    tile("cards", t.cards, `${t.nodes} nodes${t.down ? `, ${t.down} out of service` : ""}`),
    tile("time promised", percent(promised), `${(t.promised / 1000).toFixed(1)} of ${t.share / 1000} cards`, promised),
    t.metered ? tile("time used", percent(used), "by pods' programs", used) : tile("time used", "–", "no agent reports it"),
    tile("memory promised", percent(memory), `${gib(t.memoryPromised)} of ${gib(t.memory)}`, memory),
    tile("free time in pieces", percent(part(t.stranded, free)), `${(t.stranded / 1000).toFixed(1)} of ${(free / 1000).toFixed(1)} free cards`, part(t.stranded, free)),
    tile("pods", t.running, t.waiting ? `${t.waiting} wait, the longest ${since(t.oldest)}` : "nobody waits"),
  ];
}

export function news(list, open) {
  const mood = { failed: "bad", refused: "bad", evicted: "warn", budget: "warn", mended: "good", placed: "" };
  return list.slice(0, 80).map((n) =>
    h("li", {}, h("time", {}, clock(n.at)), " ", h("span", { class: `kind ${mood[n.kind] ?? ""}` }, n.kind), " ",
      n.about.includes("/") ? h("button", { class: "link", onclick: () => open(n.about) }, n.about) : h("b", {}, n.about), n.text ? h("div", {}, n.text) : null));
}

export function queue(q, now, open) {
  if (!q.all) return [h("p", { class: "empty" }, "Nobody waits.")];
  const row = (p) =>
    h("tr", {}, h("td", {}, h("button", { class: "link", onclick: () => open(p.pod) }, p.pod), p.gang ? h("div", { class: "when" }, `gang ${p.gang}`) : null),
      h("td", { class: "num" }, since((now - p.since) / 1000)), h("td", {}, p.ask, h("div", { class: "when" }, p.dialect)),
      h("td", { class: "num" }, p.priority, p.opportunistic ? h("div", { class: "when" }, "opportunistic") : null), h("td", {}, p.why || "not tried yet"));
  const more = q.all > q.pods.length ? h("p", { class: "note" }, `and ${q.all - q.pods.length} more`) : null;
  return [h("table", {}, h("thead", {}, h("tr", {}, ["pod", "waits", "asks for", "priority", "because"].map((t) => h("th", {}, t)))), h("tbody", {}, q.pods.map(row))), more].filter(Boolean);
}

export function budgets(list) {
  if (!list.length) return [h("p", { class: "empty" }, "No budgets.")];
  const card = (b) => {
    const left = b.burn, even = [[b.from, b.total], [b.to, 0]];
    const tint = b.out ? tone("--bad") : color(b.namespaces[0] ?? "", isDark());
    const series = [{ name: "left", color: tint, points: left }, { name: "an even pace", color: tone("--dim"), points: even, dash: "4 4" }];
    const end = b.out ? "nothing is left: pods run in gaps and make room first" : b.emptyAt ? `at this pace nothing is left at ${clock(b.emptyAt)}` : "lasts until the period ends";
    return h("div", { class: "panel" },
      h("div", { class: "row" }, h("h2", {}, b.name), h("span", { class: b.out ? "out" : "fine" }, b.state)),
      h("div", { class: "row" }, h("span", { class: "big" }, `${hours(b.total - b.spent)} left`), h("span", { class: "when" }, `of ${hours(b.total)} ${b.unit}`)),
      lines(series, { from: b.from, to: b.to, unit: hours }), legend(series), h("p", { class: "note" }, end));
  };
  return [h("div", { class: "grid" }, list.map(card))];
}

export function trends(history, metered) {
  if (history.length < 2) return [h("p", { class: "empty" }, "Nothing to draw yet: a sample is taken every minute.")];
  const of = (field) => history.map((s) => [s.at, s[field]]);
  const chart = (title, series, options) => h("div", { class: "panel" }, h("h2", {}, title), lines(series, options), legend(series));
  const parts = { max: 1000, unit: (v) => percent(v) };
  const use = [{ name: "promised", color: tone("--accent"), points: of("promised") }, { name: "memory promised", color: tone("--warn"), points: of("memory") }];
  if (metered) use.push({ name: "used", color: tone("--good"), points: of("used") });
  return [h("div", { class: "grid" },
    chart("Utilisation", use, parts),
    chart("Fragmentation: free time that lies in pieces", [{ name: "of free time", color: tone("--bad"), points: of("stranded") }], parts),
    chart("Pods", [{ name: "running", color: tone("--good"), points: of("running") }, { name: "waiting", color: tone("--warn"), points: of("waiting") }]),
    chart("Cards out of service", [{ name: "cards", color: tone("--bad"), points: of("down") }]))];
}

export function story(s, open) {
  const rows = [["state", s.state], ["class", s.class], ["priority", s.priority], ["asks for", s.ask.join("; ")], ["written for", s.dialect], ...Object.entries(s.wishes)];
  const parts = [h("div", { class: "row" }, h("h2", {}, s.pod), h("form", { method: "dialog" }, h("button", {}, "Close")))];
  parts.push(h("dl", {}, rows.flatMap(([k, v]) => [h("dt", {}, k), h("dd", {}, String(v))])));
  parts.push(h("ol", { class: "chapters" }, s.chapters.map((c) => h("li", {}, h("time", { class: "when" }, clock(c.at)), " ", h("b", {}, c.what), " ", c.text))));
  if (s.answers.length) {
    parts.push(h("h2", {}, "What nodes say to it"), h("table", {}, h("tbody", {}, s.answers.map((a) => h("tr", {}, h("td", { class: "num" }, a.nodes ? `${a.nodes} nodes` : ""), h("td", {}, a.text, a.example ? h("span", { class: "when" }, ` (${a.example})`) : null))))));
  }
  if (s.grant) {
    parts.push(h("h2", {}, `Granted on ${s.grant.node} by ${s.grant.policy}`));
    parts.push(h("table", {}, h("tbody", {}, s.grant.slices.map((g) => h("tr", {}, h("td", {}, g.container), h("td", {}, `card ${g.index} · ${g.model}`), h("td", { class: "num" }, `${gib(g.memory)} of ${gib(g.cardMemory)}`),
      h("td", { class: "num" }, g.shareLimit > g.share ? `${percent(g.share)}, up to ${percent(g.shareLimit)}` : percent(g.share)))))));
  }
  if (s.usage.length > 1) {
    const series = [{ name: "time used", color: tone("--good"), points: s.usage.map((u) => [u.at, u.share]) }, { name: "waited for the card", color: tone("--warn"), points: s.usage.map((u) => [u.at, u.throttled]) }];
    parts.push(h("h2", {}, "Used"), lines(series, { unit: (v) => percent(v) }), legend(series));
  }
  if (s.neighbours.length) parts.push(h("p", { class: "note" }, "on the same cards: ", s.neighbours.slice(0, 12).flatMap((n, i) => [i ? ", " : "", n.includes("/") ? h("button", { class: "link", onclick: () => open(n) }, n) : n])));
  return parts;
}

export function card(box, open) {
  const { node, card: c, index } = box;
  const row = (s) => h("tr", {}, h("td", {}, s.pod ? h("button", { class: "link", onclick: () => open(s.pod) }, s.pod) : "another namespace"), h("td", { class: "num" }, gib(s.memory)),
    h("td", { class: "num" }, s.alone ? "alone" : percent(s.share)), h("td", { class: "num" }, s.shareUsed == null ? "" : `uses ${percent(s.shareUsed)}`));
  return [h("div", { class: "row" }, h("h2", {}, `${node.name}, card ${index}`), h("form", { method: "dialog" }, h("button", {}, "Close"))),
    h("p", {}, `${c.model}, ${gib(c.memory)}${c.down ? `, out of service: ${c.down}` : ""}`), h("p", { class: "when" }, c.id),
    c.slices?.length ? h("table", {}, h("tbody", {}, c.slices.map(row))) : h("p", { class: "empty" }, "Nobody holds a part of it.")];
}

export function proof(p) {
  const intro = h("p", {}, "Two real processes on one simulated card. Both want all of it; libdivvy.so is loaded into each, and the agent's arbiter opens and closes their gates. The numbers are the card's own counters.");
  if (!p.running) return [intro, h("p", { class: "empty", id: "proof-state" }, p.state)];
  const tenant = (t, i) => {
    const tint = [tone("--accent"), tone("--warn")][i % 2];
    const points = t.course.map((v, at) => [at * 1000, v]);
    return h("div", { class: "panel tenant" },
      h("div", { class: "row" }, h("h2", {}, `${t.name} (process ${t.pid})`), h("span", { class: "when" }, `${t.kernels} kernels`)),
      h("div", { class: "row" }, h("span", { class: "big had" }, percent(t.had)), h("span", { class: "when" }, `of the card's time, asked for ${percent(t.share)}`)),
      h("div", { class: "share" }, h("i", { style: `width:${t.had / 10}%;background:${tint}` }), h("u", { style: `left:${t.share / 10}%` })),
      h("div", { class: "row" }, h("span", {}, `${gib(t.held)} of ${gib(t.memory)}`), h("span", { class: "when" }, `${t.refused} allocations beyond it refused`)),
      h("div", { class: "share" }, h("i", { style: `width:${(t.held / t.memory) * 100}%;background:${tint}` })),
      points.length > 1 ? lines([{ name: "had", color: tint, points }, { name: "asked", color: tone("--dim"), points: [[points[0][0], t.share], [points.at(-1)[0], t.share]], dash: "4 4" }], { max: 1000, unit: (v) => percent(v), from: points[0][0] }) : null);
  };
  return [intro, h("p", { class: "when" }, `${p.card}; ${p.state}`), h("div", { class: "grid" }, p.tenants.map(tenant))];
}
