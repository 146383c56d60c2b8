// Rates, latencies and memory of the broker over the last ten minutes, who has transactions open, and what was refused.

import { NEVER_TIMES_OUT_MS, bytes, clock, count, duration, figure, has } from "./dom.js";
import { html, plural, refill, sparkline, table } from "./dom.js";

const MOST_PRODUCERS = 100;

const rate = (name) => (told) => told.rates?.[name];
const ended = (how) => (told) => told.rates?.[`transactions_${how}`] ?? told.bucket?.[how];
const latency = (name, share) => (told) => told.latency_ms?.[name]?.[share];

// A name, what it is of an overview, how it is written, and whether the page's head has it.
const FIGURES = [
  ["open now", (told) => told.open_transactions, count, true],
  ["oldest open", (told) => told.oldest_open_ms, duration, true],
  ["committed /s", ended("committed"), figure, true],
  ["aborted /s", ended("aborted"), figure, true],
  ["requests /s", rate("requests"), figure, true],
  ["errors /s", rate("errors"), figure, true],
  ["EndTxn p99", latency("end_txn", "p99"), duration, true],
  ["loop p99", (told) => told.loop?.turn_p99_ms, duration, true],
  ["records /s", rate("produced_records"), figure],
  ["produced /s", rate("produced_bytes"), bytes],
  ["fetched /s", rate("fetched_bytes"), bytes],
  ["Produce p50", latency("produce", "p50"), duration],
  ["Produce p99", latency("produce", "p99"), duration],
  ["Fetch p99", latency("fetch", "p99"), duration],
  ["sync p99", (told) => told.disk?.sync_p99_ms, duration],
  ["on disk", (told) => told.disk?.bytes, bytes],
  ["memory", (told) => told.memory_bytes, bytes],
  ["connections", (told) => told.connections, count],
];

const isKnown = (value) => value !== null && value !== undefined;

export function drawFigures(place, series) {
  const last = series.at(-1);
  if (last === undefined) return;
  const recent = series.slice(-120);
  refill(place, ...FIGURES.filter((row) => row[3]).map(([name, of, write]) => html("div", { "data-figure": name },
    html("dt", {}, name), html("dd", {}, write(of(last))), sparkline(recent.map(of), name, 96, 18))));
}

export function drawBroker(place, { series, refusals, open, filter, now }) {
  const last = series.at(-1) ?? {};
  const charts = FIGURES.filter(([, of]) => series.some((told) => isKnown(of(told)))).map(([name, of, write]) => {
    const values = series.map(of);
    const most = Math.max(0, ...values.filter(isKnown));
    return html("div", { class: "chart", "data-figure": name }, html("h3", {}, name), html("b", {}, write(of(last))),
      sparkline(values, `${name} over the last minutes`, 220, 44),
      html("small", { class: "quiet" }, `at most ${write(most)}`));
  });
  refill(place, html("div", { class: "charts" }, ...charts), producers(open, filter, now), refused(refusals, filter));
}

function producers(open, filter, now) {
  const rows = (open?.transactions ?? []).filter((tx) => has(tx.transactional_id, filter))
    .sort((left, right) => left.started_ms - right.started_ms);
  const left = (open?.left_out ?? 0) + Math.max(0, rows.length - MOST_PRODUCERS);
  const heads = ["<transactional id", "producer", "<state", "open for", "timeout", "records", "bytes", "partitions",
    "<waits for"];
  return section("producers", "Producers with an open transaction", heads, rows.slice(0, MOST_PRODUCERS).map((tx) => [
    tx.transactional_id, `${tx.producer_id}:${tx.producer_epoch}`, tx.state, duration(now - tx.started_ms),
    tx.timeout_ms === NEVER_TIMES_OUT_MS ? "never" : duration(tx.timeout_ms), count(tx.records), bytes(tx.bytes),
    count(tx.partitions.length + (tx.partitions_left_out ?? 0)), tx.waits_for,
  ]), left > 0 && html("p", { class: "note" }, `${plural(left, "transaction")} left out`));
}

function refused(answer, filter) {
  const rows = (answer?.refusals ?? []).filter((row) =>
    [row.api, row.error, row.client_id, row.transactional_id, row.reason].some((text) => has(text, filter)));
  rows.sort((left, right) => right.at_ms - left.at_ms);
  const heads = ["<at", "<request", "<error", "<client", "<transactional id", "<reason"];
  return section("refusals", "Refused requests", heads, rows.map((row) => [
    clock(row.at_ms, true), row.api,
    html("span", { class: "error" }, row.count > 1 ? `${row.error} ×${count(row.count)}` : row.error),
    html("span", { title: row.peer ?? "" }, row.client_id || row.peer || ""), row.transactional_id, row.reason,
  ]));
}

function section(name, title, heads, rows, note = null) {
  return html("section", { class: name }, html("h2", {}, title),
    rows.length === 0 ? html("p", { class: "note" }, "none") : table(heads, rows), note);
}
