// Partitions as lines of offsets: what is read, what open transactions hold back, and who waits.

import { bytes, copier, count, duration, has, html, plural, refill, svg } from "./dom.js";

const LINE = 26;

// `asked` has the answers to why, by the name of the partition; `toggle(row)` asks, or forgets the answer.
export function drawPartitions(place, answer, filter, now, asked, toggle) {
  const rows = answer.partitions.filter((row) => has(nameOf(row), filter));
  const held = rows.filter((row) => row.open.length > 0).length;
  // Topics of the broker's own have many that nobody has written to.
  const [used, empty] = [rows.filter((row) => !isEmpty(row)), rows.filter(isEmpty)];
  refill(place,
    html("p", { class: "note" }, `${plural(rows.length, "partition")}, ${held === 0 ? "none" : count(held)} held back`,
      held > 0 && " by open transactions",
      answer.left_out > 0 && `; ${count(answer.left_out)} left out: a filter asks for names that begin with it`),
    ...used.map((row) => partition(row, place.clientWidth, now, asked, toggle)),
    empty.length > 0 && html("p", { class: "note", "data-empty": empty.length },
      `${plural(empty.length, "partition")} without records: ${emptyOnes(empty)}`));
}

function nameOf(row) {
  return `${row.topic}-${row.partition}`;
}

function isEmpty(row) {
  return row.log_start_offset === row.log_end_offset && row.waiting_fetches === 0 && !row.offline;
}

// By topic, as what is empty is often all of it.
function emptyOnes(rows) {
  const topics = new Map();
  for (const row of rows) topics.set(row.topic, (topics.get(row.topic) ?? 0) + 1);
  return [...topics].slice(0, 20).map(([topic, number]) => `${topic} (${count(number)})`).join(", ")
    + (topics.size > 20 ? ", …" : "");
}

function partition(row, width, now, asked, toggle) {
  const name = nameOf(row);
  const told = asked.get(name);
  const held = row.high_watermark - row.last_stable_offset;
  const since = Math.min(...row.open.map((tx) => tx.started_ms));
  const waiting = [row.waiting_fetches > 0 && plural(row.waiting_fetches, "reader waits", "readers wait"),
    row.waiting_committed > 0 && `${count(row.waiting_committed)} for what is committed`].filter(Boolean).join(", ");
  return html("article", { class: `partition${held > 0 ? " held" : ""}`, "data-name": name },
    html("button", { type: "button", class: "row", "aria-expanded": told !== undefined ? "true" : "false",
      "data-key": `partition ${name}`, onclick: () => toggle(row) },
      html("span", { class: "title" }, row.topic, html("b", {}, `${row.partition}`)),
      html("span", { class: "state" },
        held > 0 ? `${plural(held, "record")} held back${since === Infinity ? "" : ` for ${duration(now - since)}`}`
          : row.open.length > 0 ? plural(row.open.length, "open transaction") : ""),
      row.offline ? html("span", { class: "error" }, `offline: ${row.offline}`)
        : html("span", { class: "quiet" }, waiting || bytes(row.bytes))),
    offsets(row, Math.max(200, width - 24)),
    html("dl", { class: "offsets" }, ...[["log start", row.log_start_offset], ["last stable", row.last_stable_offset],
      ["high watermark", row.high_watermark], ["end", row.log_end_offset]]
      .map(([term, offset]) => html("div", {}, html("dt", {}, term), html("dd", {}, count(offset))))),
    told !== undefined && why(told));
}

// The line is broken in front of the first open transaction: what is held back has most of the room.
function offsets(row, width) {
  const { log_start_offset: start, last_stable_offset: stable, high_watermark: high, log_end_offset: end } = row;
  const lowest = Math.max(start, Math.min(stable, high, ...row.open.map((tx) => tx.first_offset)));
  const isBroken = lowest < end && end - lowest < (end - start) * 0.6 && lowest > start;
  const knee = isBroken ? width * 0.3 : lowest > start && end > start ? (width * (lowest - start)) / (end - start) : 0;
  const xOf = (offset) => (offset <= lowest ? (lowest === start ? 0 : (knee * (offset - start)) / (lowest - start))
    : knee + ((width - knee) * (offset - lowest)) / (end - lowest || 1));
  const part = (name, from, to) => to > from && svg("rect",
    { class: name, x: xOf(from), y: 13, width: Math.max(1, xOf(to) - xOf(from)), height: 6 });
  const tick = (name, offset) => svg("line", { class: `tick ${name}`, x1: xOf(offset), x2: xOf(offset), y1: 9,
    y2: 23 });
  const shown = row.open.slice(0, 200);
  return svg("svg", { class: "offset-line", width, height: LINE, role: "img",
    "aria-label": `offsets ${start} to ${end}, last stable ${stable}, high watermark ${high}` },
    svg("defs", {}, svg("pattern", { id: "held", width: 6, height: 6, patternUnits: "userSpaceOnUse",
      patternTransform: "rotate(45)" }, svg("rect", { class: "held-line", width: 3, height: 6 }))),
    end === start && svg("rect", { class: "empty", x: 0, y: 15, width, height: 2 }),
    part("stable", start, stable), part("held", stable, high), part("beyond", high, end),
    isBroken && svg("path", { class: "break", d: `M${knee - 14} 10l-5 12M${knee - 9} 10l-5 12` }),
    tick("lso", stable), tick("hw", high),
    ...shown.map((tx) => svg("path", { class: "open", d: `M${xOf(tx.first_offset)} 12l-5-9h10z` },
      svg("title", {}, `${tx.transactional_id ?? `producer ${tx.producer_id}`}: from offset ${tx.first_offset}`))));
}

function why(told) {
  if (told === null) return html("div", { class: "why quiet" }, "asking …");
  return html("div", { class: "why" }, html("pre", {}, told.text),
    ...(told.commands ?? []).map((command) => html("p", { class: "command" }, html("code", {}, command),
      copier(command))));
}
