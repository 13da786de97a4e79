// The page: one stream of what changes, drawn where it is looked at.
import { clock, h } from "./chart.js";
import { ClusterMap, color, isDark } from "./map.js";
import * as panels from "./panels.js";

const $ = (id) => document.getElementById(id);
const views = ["cluster", "queue", "budgets", "trends", "proof"];
const state = { nodes: new Map(), history: [], news: [], queue: { all: 0, pods: [] }, budgets: [], totals: null, demo: null, at: 0, view: "cluster" };
let waiting = false;

window.addEventListener("error", (event) => trouble(`script error: ${event.message}`));
window.addEventListener("unhandledrejection", (event) => trouble(`script error: ${event.reason}`));
function trouble(text) {
  document.body.dataset.errors = (document.body.dataset.errors ? `${document.body.dataset.errors}\n` : "") + text;
  $("trouble").textContent = text;
  $("trouble").hidden = false;
}

const map = new ClusterMap($("map"), $("tip"), (box, slice) => (slice?.pod ? openStory(slice.pod) : show(panels.card(box, openStory))));

function take(data, whole) {
  if (whole) {
    state.nodes = new Map(data.nodes.map((n) => [n.name, { pool: "", ...n }]));
    state.history = data.history;
    state.news = data.news;
    $("only").hidden = !data.only;
    if (data.only) {
      $("only").textContent = data.only.length > 4 ? `sees ${data.only.length} namespaces` : `sees ${data.only.join(", ")}`;
      $("only").title = data.only.join(", ");
    }
  } else {
    for (const n of data.nodes || []) state.nodes.set(n.name, { pool: "", ...n });
    for (const n of data.gone || []) state.nodes.delete(n);
    state.history.push(...(data.history || []));
    if (state.history.length > 1440) state.history.splice(0, state.history.length - 1440);
    state.news = [...(data.news || []), ...state.news].slice(0, 300);
  }
  if (data.queue) state.queue = data.queue;
  if (data.budgets) state.budgets = data.budgets;
  if (data.demo) state.demo = data.demo;
  state.totals = data.totals;
  state.at = data.at;
  state.mapStale ||= whole || (data.nodes || []).length > 0 || (data.gone || []).length > 0;
  document.body.dataset.version = data.version;
  if (!waiting) {
    waiting = true;
    requestAnimationFrame(draw);
  }
}

function draw() {
  waiting = false;
  if (!state.totals) return;
  $("tiles").replaceChildren(...panels.tiles(state.totals));
  $("clock").textContent = clock(state.at);
  $("queue-count").textContent = state.queue.all || "";
  $("tab-proof").hidden = !state.demo;
  if (state.demo && state.wanted) turn(state.wanted);
  $("speed").hidden = !state.demo;
  if (state.demo) $("speed").textContent = `demo, ${state.demo.speed} × real time`;
  if (state.view === "cluster") {
    if (state.mapStale) {
      state.mapStale = false;
      map.set(state.nodes.values());
      legend();
    }
    $("news").replaceChildren(...panels.news(state.news, openStory));
  }
  const fill = {
    queue: () => panels.queue(state.queue, state.at, openStory),
    budgets: () => panels.budgets(state.budgets),
    trends: () => panels.trends(state.history, state.totals.metered),
    proof: () => (state.demo ? panels.proof(state.demo.proof) : []),
  }[state.view];
  if (fill) $(state.view).replaceChildren(...fill());
  // A task of its own comes after the frame was painted.
  if (!document.body.dataset.firstView) setTimeout(() => { document.body.dataset.firstView ||= Math.round(performance.now()); });
}

function legend() {
  const names = new Set();
  for (const node of state.nodes.values()) for (const card of node.cards) for (const slice of card.slices || []) names.add(slice.pod.split("/")[0]);
  const pick = (name) => () => { $("filter").value = map.filter === `${name}/` ? "" : `${name}/`; $("filter").dispatchEvent(new Event("input")); };
  const entry = (name) => h("button", { onclick: pick(name) }, h("i", { style: `background:${color(name, isDark())}` }), name || "other namespaces");
  $("legend").replaceChildren(...[...names].sort().slice(0, 24).map(entry));
}

function turn(view) {
  if (!views.includes(view)) return;
  // The demo's view is there once the demo has spoken.
  state.wanted = $(`tab-${view}`).hidden ? view : null;
  if (state.wanted) return;
  state.view = view;
  for (const other of views) {
    $(other).hidden = other !== view;
    $(`tab-${other}`).setAttribute("aria-selected", String(other === view));
  }
  state.mapStale = true;
  history.replaceState(null, "", `#${view}`);
  draw();
}

function show(parts) {
  const dialog = $("story");
  dialog.replaceChildren(...parts);
  if (!dialog.open) dialog.showModal();
}

async function openStory(pod) {
  const reply = await fetch(`/api/pods/${pod.split("/").map(encodeURIComponent).join("/")}`);
  const body = await reply.json();
  show(reply.ok ? panels.story(body, openStory) : [h("p", {}, body.error), h("form", { method: "dialog" }, h("button", {}, "Close"))]);
}

function theme() {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  localStorage.setItem("theme", document.documentElement.dataset.theme);
  state.mapStale = true;
  draw();
}

function connect() {
  const stream = new EventSource("/api/stream");
  const live = (on) => { $("live").textContent = on ? "live" : "reconnecting"; $("live").classList.toggle("off", !on); };
  stream.addEventListener("cluster", (event) => { live(true); take(JSON.parse(event.data), true); });
  stream.addEventListener("update", (event) => take(JSON.parse(event.data), false));
  stream.onerror = async () => {
    live(false);
    if (stream.readyState !== EventSource.CLOSED) return;
    // A stream that was refused does not come back by itself: the reply says why.
    const reply = await fetch("/api/cluster").catch(() => null);
    if (reply && [401, 403].includes(reply.status)) return login((await reply.json()).error);
    setTimeout(connect, 2000);
  };
}

function login(why) {
  $("login-error").textContent = why;
  if (!$("login").open) $("login").showModal();
}
$("login").querySelector("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const reply = await fetch("/api/login", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ token: $("token").value }) });
  if (!reply.ok) return login((await reply.json()).error);
  $("token").value = "";
  $("login").close();
  connect();
});

for (const view of views) $(`tab-${view}`).addEventListener("click", () => turn(view));
$("theme").addEventListener("click", theme);
$("help-button").addEventListener("click", () => $("help").showModal());
$("filter").addEventListener("input", () => { map.filter = $("filter").value.trim().toLowerCase(); map.draw(); });
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA)$/.test(event.target.tagName)) return;
  if (event.key >= "1" && event.key <= "5") turn(views[event.key - 1]);
  else if (event.key === "t") theme();
  else if (event.key === "?") $("help").showModal();
  else if (event.key === "/") { event.preventDefault(); turn("cluster"); $("filter").focus(); }
});
const saved = localStorage.getItem("theme");
if (saved) document.documentElement.dataset.theme = saved;
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { state.mapStale = true; draw(); });
if (location.hash.length > 1) turn(location.hash.slice(1));
connect();
