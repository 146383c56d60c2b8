// The page: what is shown, from when, and what the keys do. The address says it too, so that it can be linked to.

import { drawBroker, drawFigures } from "./broker.js";
import { Card } from "./card.js";
import { byId, clock, count, duration, html, isInternal, plural } from "./dom.js";
import { drawGroups } from "./groups.js";
import { KEEP_MS, Model } from "./model.js";
import { drawPartitions } from "./partitions.js";
import { Scrubber } from "./scrubber.js";
import { EmbeddedSource, keepToken, LiveSource, saveFile } from "./source.js";
import { FEWEST, Timeline } from "./timeline.js";
import { Topics } from "./topics.js";

const TABS = { transactions: null, partitions: "partitions", topics: "topics", groups: "groups", broker: "refusals" };
const SPANS = { "15 s": 15000, "1 min": 60000, "5 min": 300000, "10 min": KEEP_MS };
const DRAW_EVERY_MS = 250;
const DRAW_EVERY_CALMLY_MS = 1000;

const model = new Model();
const view = { tab: "transactions", at: null, span: 60000, filter: "", internal: false };
const tables = {};
const cut = {};
const asked = new Map();
let heard = null;
let open = null;
let exported = null;
let isPressed = false;
let isAsked = false;

// The broker's time, a little ahead of what it said last: not far, as it may have gone or stand still.
function now() {
  if (exported !== null) return exported;
  return heard === null ? Date.now() : heard.now + Math.min(performance.now() - heard.at, 1500);
}

const end = () => view.at ?? now();

const sink = {
  now,
  lastSeq: () => model.lastSeq,
  query: (name) => (name === "refusals" ? ""
    : name === "topics" ? topics.query(cut.topics ? view.filter : "", view.internal)
    : `?limit=200${cut[name] && view.filter ? `&prefix=${encodeURIComponent(view.filter)}` : ""}`),
  history(history, restartedMs) {
    if (restartedMs !== null) model.restarted(restartedMs);
    model.takeHistory(history);
    draw();
  },
  overview(overview) {
    model.forget(overview.now_ms);
    heard = { now: overview.now_ms, at: performance.now() };
    model.takeOverview(overview);
    const { node_id: node, cluster_id: cluster, now_ms: time, started_ms: started } = overview;
    byId("about").textContent = `node ${node} · ${cluster} · up ${duration(time - started)}`;
    drawFigures(byId("figures"), model.series);
  },
  event: (event) => model.takeEvent(event),
  gap(gap) { model.leftOut += gap.left_out; },
  open(answer, askedMs) {
    open = answer;
    model.takeOpen(answer, askedMs);
  },
  table(name, answer) {
    if (answer.left_out > 0) cut[name] = true;
    tables[name] = answer;
    if (name === "topics") topics.take(answer);
    draw();
  },
  connected() {
    connection("live", "live");
    byId("banner").hidden = byId("token-form").hidden = true;
    document.body.classList.remove("lost");
  },
  lost(reason, wait) {
    connection("lost", "connection lost");
    const told = `What you see is of ${clock(now())}. Trying again in ${duration(wait)}.`;
    byId("banner").textContent = `The connection to the broker is lost (${reason}). ${told}`;
    byId("banner").hidden = false;
    document.body.classList.add("lost");
  },
  refused(hadOne) {
    connection("lost", "token wanted");
    byId("token-form").hidden = false;
    byId("token-told").textContent = hadOne ? "This is not the token of the port." : "This port has a token.";
    byId("token").focus();
  },
  failed(reason) {
    byId("left-out").textContent = reason;
    if (view.tab === "topics") topics.fail(reason);
  },
  exported(at) {
    exported = at;
    const { from_ms: from, to_ms: to } = embedded.history;
    const since = Math.max(from, embedded.overview?.started_ms ?? 0);
    Object.assign(view, { at: Math.min(to, at), span: Math.min(KEEP_MS, Math.max(1000, to - since)) });
    connection("exported", `exported ${new Date(at).toLocaleString("sv-SE")}`);
    byId("export").hidden = byId("pause").hidden = true;
  },
};

function connection(state, text) {
  byId("connection").dataset.state = state;
  byId("connection").lastElementChild.textContent = text;
}

const embedded = byId("data") === null ? null : JSON.parse(byId("data").textContent);
const source = embedded === null ? new LiveSource(sink) : new EmbeddedSource(sink, embedded);
const topics = new Topics(byId("topics"), embedded === null ? (path) => source.ask(path) : null, move);
const card = new Card(byId("card"), now, setFilter);
const scrubber = new Scrubber(byId("scrubber"), pauseAt, (step) => pauseAt(end() + step));
const timeline = new Timeline(byId("lanes"), (what, near) => card.show(what, near),
  (what, near) => (what ? card.show(what, near, true) : card.close()));

function draw() {
  if (isAsked) return;
  isAsked = true;
  requestAnimationFrame(() => {
    isAsked = false;
    if (!isPressed && getSelection().isCollapsed) drawNow();
  });
}

function drawNow() {
  for (const tab of Object.keys(TABS)) byId(tab).hidden = tab !== view.tab;
  if (view.tab === "transactions") drawTransactions();
  else if (view.tab === "broker") drawBroker(byId("broker"),
    { series: model.series, refusals: tables.refusals, open, filter: view.filter, now: now() });
  else if (view.tab === "topics") topics.draw(view.filter, view.internal);
  else if (tables[view.tab] === undefined) byId(view.tab).replaceChildren(html("p", { class: "note" },
    embedded === null ? "asking …" : "This file does not have them."));
  else if (view.tab === "partitions") drawPartitions(byId("partitions"),
    { ...tables.partitions, partitions: visible(tables.partitions.partitions) }, view.filter, now(), asked, toggleWhy);
  else drawGroups(byId("groups"), { ...tables.groups, groups: tables.groups.groups.map((group) =>
    ({ ...group, offsets: visible(group.offsets) })) }, view.filter);
  card.refresh();
}

function visible(rows) {
  return view.internal ? rows : rows.filter((row) => !isInternal(row.topic));
}

// Another part of the topics is wanted.
function move() {
  source.want(TABS[view.tab]);
  write();
}

function setInternal(isShown) {
  view.internal = isShown;
  byId("internal").setAttribute("aria-pressed", String(isShown));
  move();
}

function drawTransactions() {
  scrubber.draw(model, now(), end(), view.span);
  const drawn = timeline.draw(model, { end: end(), span: view.span, filter: view.filter }, now());
  byId("moment").textContent = `${clock(end() - view.span)} – ${clock(end())}`;
  byId("pause").textContent = view.at === null ? "Pause" : "Live";
  byId("pause").setAttribute("aria-pressed", String(view.at !== null));
  const since = view.at === null ? now() - KEEP_MS : view.at - view.span;
  byId("export").href = `v1/export?from_ms=${Math.floor(since)}&to_ms=${Math.ceil(end())}`;
  const told = [drawn.ids > 0 ? plural(drawn.ids, "transactional id")
    : view.filter ? "No transactional id here has the filter in its name."
      : "No transactions in this time. Whoever begins one has a lane here at once."];
  const summed = drawn.ids - drawn.lanes;
  if (summed > 0) told.push(`${count(drawn.lanes)} have a lane, ${count(summed)} are summed up`);
  const leftOut = plural(model.leftOut, "event");
  if (model.leftOut > 0) told.push(`${leftOut} left out by the broker: lanes are a sample, the counts above are whole`);
  if (model.dropped > 0) told.push(`${plural(model.dropped, "older transaction")} dropped by the page`);
  byId("left-out").replaceChildren(`${told.join("; ")} `,
    ...(drawn.groups.length > 0 || timeline.most > FEWEST ? [more(drawn)] : []));
}

function more(drawn) {
  const isMore = drawn.groups.length > 0 && timeline.most < 400;
  return html("button", { type: "button", class: "small",
    onclick: () => { timeline.most = isMore ? timeline.most * 2 : FEWEST; draw(); } },
    isMore ? "More lanes" : "Fewer lanes");
}

async function toggleWhy(row) {
  const name = `${row.topic}-${row.partition}`;
  if (asked.delete(name)) return draw();
  asked.set(name, null);
  draw();
  const told = await source.why(row.topic, row.partition).catch((error) => ({ text: error.message, commands: [] }));
  if (asked.has(name)) asked.set(name, told);
  draw();
}

function pauseAt(ms) {
  const latest = now();
  if (heard === null && embedded === null) view.at = ms; // as a link says: how late it is the broker has not said yet
  else view.at = Math.min(Math.max(ms, latest - KEEP_MS + view.span),
    embedded === null ? latest : Math.max(latest, embedded.history.to_ms));
  write();
}

function togglePause() {
  if (embedded !== null) return;
  view.at = view.at === null ? now() : null;
  write();
}

function setFilter(text) {
  view.filter = byId("filter").value = text;
  asked.clear();
  source.want(TABS[view.tab]);
  write();
}

function setTab(tab) {
  view.tab = tab;
  card.close();
  for (const name of Object.keys(TABS)) {
    byId(`tab-${name}`).setAttribute("aria-selected", String(name === tab));
    byId(`tab-${name}`).tabIndex = name === tab ? 0 : -1;
  }
  source.want(TABS[tab]);
  write();
}

function setSpan(ms) {
  view.span = ms;
  for (const button of byId("spans").children) button.setAttribute("aria-pressed",
    String(SPANS[button.textContent] === ms));
  if (view.at !== null) pauseAt(view.at);
  write();
}

// What is shown, as the part of the address behind #, and back.
function write() {
  const told = new URLSearchParams();
  if (view.tab !== "transactions") told.set("tab", view.tab);
  if (view.at !== null) told.set("at", String(view.at = Math.round(view.at))); // it leads back to the same moment
  if (view.span !== 60000) told.set("span", String(view.span));
  if (view.filter !== "") told.set("filter", view.filter);
  if (view.internal) told.set("internal", "true");
  for (const [name, value] of Object.entries(view.tab === "topics" ? topics.address() : {})) told.set(name, value);
  history.replaceState(null, "", `#${told}`);
  draw();
}

function read() {
  const told = new URLSearchParams(location.hash.slice(1));
  const at = Number(told.get("at"));
  const span = Number(told.get("span") ?? view.span);
  if (at > 0) view.at = at;
  else if (embedded === null) view.at = null;
  view.filter = byId("filter").value = told.get("filter") ?? "";
  if (span >= 1000 && span <= KEEP_MS) setSpan(span);
  topics.read(told);
  setInternal(told.get("internal") === "true");
  setTab(Object.hasOwn(TABS, told.get("tab") ?? "") ? told.get("tab") : "transactions");
}

const THEMES = ["system", "light", "dark"];

// Storage may be closed to a file, and to a browser that keeps nothing.
function setTheme(name = null) {
  try {
    name ??= localStorage.getItem("ottla-theme");
    localStorage.setItem("ottla-theme", name ?? "system");
  } catch { /* then it is as the system says, each time */ }
  name = THEMES.includes(name) ? name : "system";
  document.documentElement.dataset.theme = name;
  byId("theme").textContent = `◐ ${name}`;
}

const KEYS = {
  " ": togglePause,
  "[": () => (view.tab === "topics" ? topics.older() : pauseAt(end() - view.span / 4)),
  "]": () => (view.tab === "topics" ? topics.newer() : pauseAt(end() + view.span / 4)),
  "/": () => byId("filter").focus(),
  Escape: () => card.dismiss(),
};
Object.keys(TABS).forEach((tab, index) => { KEYS[String(index + 1)] = () => setTab(tab); });

function listen() {
  byId("pause").addEventListener("click", togglePause);
  byId("filter").addEventListener("input", (event) => setFilter(event.target.value));
  byId("filter").addEventListener("keydown", (event) => event.key === "Escape" && event.target.blur());
  byId("internal").addEventListener("click", () => setInternal(!view.internal));
  byId("theme").addEventListener("click", () => setTheme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme)
    + 1) % 3]));
  byId("token-form").addEventListener("submit", (event) => {
    event.preventDefault();
    keepToken(byId("token").value.trim());
    source.connect();
  });
  byId("export").addEventListener("click", (event) => {
    event.preventDefault();
    saveFile(event.currentTarget.href).catch((error) => sink.failed(error.message));
  });
  byId("link").addEventListener("click", async (event) => {
    if (view.at === null) pauseAt(now());
    await navigator.clipboard?.writeText(location.href).catch(() => null);
    event.target.textContent = "The address has it";
    setTimeout(() => { event.target.textContent = "Link"; }, 1500);
  });
  for (const tab of Object.keys(TABS)) byId(`tab-${tab}`).addEventListener("click", () => setTab(tab));
  byId("tabs").addEventListener("keydown", (event) => {
    const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (way === undefined || event.target.role !== "tab") return;
    const names = Object.keys(TABS);
    setTab(names[(names.indexOf(view.tab) + way + names.length) % names.length]);
    byId(`tab-${view.tab}`).focus();
  });
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.matches("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey;
    const isPressing = event.key === " " && event.target.matches("button, a");
    if (isTyping || isPressing || KEYS[event.key] === undefined) return;
    event.preventDefault();
    KEYS[event.key]();
  });
  // What is pressed must be there still when it is let go, or it was no click.
  addEventListener("pointerdown", () => { isPressed = true; }, true);
  for (const name of ["pointerup", "pointercancel"]) addEventListener(name,
    () => setTimeout(() => { isPressed = false; draw(); }), true);
  addEventListener("resize", draw);
  addEventListener("hashchange", read);
  const every = matchMedia("(prefers-reduced-motion: reduce)").matches ? DRAW_EVERY_CALMLY_MS : DRAW_EVERY_MS;
  setInterval(() => { if (exported === null && view.at === null && !document.hidden) draw(); }, every);
}

for (const [text, ms] of Object.entries(SPANS)) byId("spans").append(html("button",
  { type: "button", onclick: () => setSpan(ms) }, text));
setTheme();
listen();
if (embedded !== null) source.start();
read();
if (embedded === null) source.start();
setSpan(view.span);
