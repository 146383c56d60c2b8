// Topics, their partitions and configs, and records with their fates, a bounded page at a time.

import { bytes, count, has, html, isInternal, plural, refill, table } from "./dom.js";

const ROWS = 100;
const MOST_SEARCHES = 20;
const MOST_INDENT = 40;
const SHAPES = ["text", "JSON", "hex"];

export class Topics {
  // `ask(path)` returns the answer of the broker, or is null in an exported file; `moved()` is called after each move.
  constructor(place, ask, moved) {
    Object.assign(this, { place, ask, moved, topic: "", partition: 0, after: "", from: 0, where: "", key: "",
      shape: "text", list: null, about: null, records: null, trouble: "", opened: new Set(), changes: 0, drawn: "",
      loads: 0, isLoading: false });
    this.bar = html("div", { class: "controls", hidden: true }, ...this.controls());
    this.body = html("div");
    place.append(this.bar, this.body);
  }

  controls() {
    const button = (text, onclick, more = {}) => html("button", { type: "button", onclick, ...more }, text);
    const field = (name, label, size, submit) => html("form", { role: "search", onsubmit: (event) => {
      event.preventDefault();
      submit(event.target.elements[name].value.trim());
    } }, html("input", { name, size, placeholder: label, "aria-label": label, autocomplete: "off",
      spellcheck: "false" }), button("Go", null, { type: "submit" }));
    this.back = button("← Topics", () => this.open(""));
    this.shapes = SHAPES.map((shape) => button(shape, () => this.setShape(shape)));
    return [this.back, this.name = html("h2"),
      button("Newest", () => this.move("")), button("Older", () => this.older(), { title: "[" }),
      button("Newer", () => this.newer(), { title: "]" }),
      field("at", "Offset or time", 18, (text) => this.jump(text)),
      field("key", "Key contains", 14, (text) => { this.key = text; this.move(""); }),
      html("div", { role: "group", class: "shapes", "aria-label": "How keys and values are written" }, ...this.shapes)];
  }

  // The place as a part of the page's address, and back.
  address() {
    return this.topic === "" ? {} : { topic: this.topic, partition: this.partition, records: this.where };
  }

  read(told) {
    this.open(told.get("topic") ?? "", Number(told.get("partition")) || 0, told.get("records") ?? "");
  }

  query(prefix, withInternal) {
    if (this.topic !== "") return `/${encodeURIComponent(this.topic)}?from=${this.from}&limit=${ROWS}`;
    const told = new URLSearchParams({ limit: ROWS, internal: withInternal, after: this.after, prefix });
    return `?${told}`;
  }

  take(answer) {
    if (answer.topics !== undefined) this.set("list", answer);
    else if (answer.topic !== this.topic) return;
    else this.set("about", answer);
    if (this.topic === "" || this.records !== null) this.set("trouble", "");
    const isMoving = this.where === "" || this.records === null;
    if (this.topic !== "" && isMoving && this.key === "" && !this.isLoading) this.load();
  }

  fail(reason) {
    this.set("trouble", reason);
  }

  // What stays the same is not drawn again: a record may have the focus.
  set(name, value) {
    if (JSON.stringify(this[name]) !== JSON.stringify(value)) this.changes += 1;
    this[name] = value;
  }

  open(topic, partition = 0, where = "") {
    const isOther = topic !== this.topic;
    if (isOther) Object.assign(this, { about: null, from: 0 });
    Object.assign(this, { topic, partition, key: "", records: null });
    for (const form of this.bar.querySelectorAll("form")) form.reset();
    this.move(where);
    if (isOther && topic !== "") this.back.focus();
  }

  move(where) {
    Object.assign(this, { where, trouble: "" });
    this.opened.clear();
    if (this.topic !== "") this.load();
    this.changes += 1;
    this.moved();
  }

  older() {
    if (this.records?.first > this.records?.log_start_offset) this.move(`before=${this.records.first}`);
  }

  newer() {
    if (this.records === null) return;
    this.move(this.records.next < this.records.high_watermark ? `offset=${this.records.next}` : "");
  }

  jump(text) {
    const today = new Date().toLocaleDateString("sv-SE");
    const time = Date.parse(/^\d\d?:\d\d/.test(text) ? `${today}T${text.padStart(8, "0").slice(0, 12)}` : text);
    if (/^\d{1,15}$/.test(text)) this.move(`offset=${text}`);
    else if (time >= 0) this.move(`time=${time}`);
    else this.fail(`${text} is neither an offset nor a time such as 12:30:05 or 2026-01-31 12:30`);
  }

  setShape(shape) {
    this.shape = shape;
    this.changes += 1;
    this.moved();
  }

  // A search for a key goes back piece by piece until one is found.
  async load() {
    const [load, { topic, partition, where, key }] = [++this.loads, this];
    const ask = (told) => this.ask(`v1/topics/${encodeURIComponent(topic)}/${partition}/records?${told}`
      + (key === "" ? "" : `&key=${encodeURIComponent(key)}`));
    this.isLoading = true;
    try {
      if (this.ask === null) throw new Error("This file has no records.");
      let answer = await ask(where);
      for (let tries = 1; tries < MOST_SEARCHES && key !== "" && !where.startsWith("offset") && load === this.loads
        && answer.records.length === 0 && answer.first > answer.log_start_offset; tries += 1) {
        answer = await ask(`before=${answer.first}`);
      }
      this.end(load, answer, "");
    } catch (error) {
      this.end(load, null, error.message);
    }
  }

  end(load, records, trouble) {
    if (load !== this.loads) return;
    this.set("records", records);
    this.set("trouble", trouble);
    this.isLoading = false;
  }

  draw(filter, withInternal) {
    const now = `${this.changes} ${withInternal} ${filter}`;
    if (now === this.drawn) return;
    this.drawn = now;
    this.bar.hidden = this.topic === "";
    this.name.textContent = `${this.topic} ${this.partition}`;
    for (const button of this.shapes) button.setAttribute("aria-pressed", String(button.textContent === this.shape));
    refill(this.body, this.trouble !== "" && html("p", { class: "note error", role: "alert" }, this.trouble),
      ...(this.topic === "" ? this.drawList(filter, withInternal) : [this.drawAbout(), this.drawRecords()]));
  }

  drawList(filter, withInternal) {
    if (this.list === null) return [html("p", { class: "note" }, this.ask ? "asking …" : "This file has no topics.")];
    const rows = this.list.topics.filter((row) => has(row.topic, filter) && (withInternal || !isInternal(row.topic)));
    const heads = ["<topic", "partitions", "replicas", "offsets", "bytes", "held back", "offline", "not used yet"];
    const said = `${plural(this.list.total, "topic")}${this.after ? ` after ${this.after}` : ""}`;
    return [html("p", { class: "note" }, said), table(heads, rows.map((row) => [
        html("button", { type: "button", class: "link", "data-key": `topic ${row.topic}`,
          onclick: () => this.open(row.topic) }, row.topic),
        count(row.partition_count), count(row.replication_factor), count(row.offsets), bytes(row.bytes),
        row.held > 0 && html("span", { class: "word open" }, count(row.held)),
        row.offline > 0 && html("span", { class: "error" }, count(row.offline)),
        row.unopened > 0 && count(row.unopened),
      ])), this.pager(this.after !== "", this.list.left_out > 0,
        (isOn) => { this.after = isOn ? this.list.topics.at(-1).topic : ""; })];
  }

  drawAbout() {
    if (this.about === null) return null;
    const { partitions, configs, partition_count: all, topic_id: id } = this.about;
    const heads = ["<partition", "leader", "first", "last stable", "end", "bytes", "<"];
    return html("section", { class: "about" }, html("p", { class: "note" },
      `${plural(all, "partition")}, id ${id}, ${configs.length === 0 ? "all settings are defaults"
        : configs.map(({ name, value }) => `${name}=${value}`).join(", ")}`),
    table(heads, partitions.map((row) => [
      html("button", { type: "button", class: "link", "data-key": `partition ${row.partition}`,
        "aria-current": row.partition === this.partition ? "true" : null,
        onclick: () => this.open(this.topic, row.partition) }, `${row.partition}`),
      count(row.leader), count(row.log_start_offset), count(row.last_stable_offset), count(row.log_end_offset),
      bytes(row.bytes), row.offline ? html("span", { class: "error" }, `offline: ${row.offline}`)
        : row.last_stable_offset < row.high_watermark ? html("span", { class: "word open" }, "held back") : "",
    ])), this.pager(this.from > 0, this.from + ROWS < all,
      (isOn) => { this.from = Math.max(0, this.from + (isOn ? ROWS : -ROWS)); }));
  }

  pager(hasPrevious, hasNext, turn) {
    const button = (text, isOn) => html("button", { type: "button", "data-key": text,
      onclick: () => { turn(isOn); this.moved(); } }, text);
    return html("p", { class: "controls" }, hasPrevious && button("Previous rows", false),
      hasNext && button("Next rows", true));
  }

  drawRecords() {
    if (this.records === null) return this.trouble === "" && html("p", { class: "note" }, "asking …");
    const { records, first, next, note, withheld, left_out: leftOut, held_by: holder } = this.records;
    const said = [`Offsets ${count(first)} to ${count(next)}: ${plural(records.length, "record")}`
      + (this.key === "" ? "" : ` with ${this.key} in the key`), note,
    withheld && `Keys, values and headers are not shown: ${withheld}`,
    holder && `The open transaction of ${holderName(holder)} at offset ${count(holder.first_offset)} holds `
      + "read_committed consumers back",
    ...leftOut.map((row) => `Not shown: ${count(row.first_offset)} to ${count(row.last_offset)}: ${row.reason}`)];
    return html("section", { class: "records" },
      ...said.filter(Boolean).map((line) => html("p", { class: "note" }, line)),
      ...records.toReversed().map((record) => this.drawRecord(record, holder)));
  }

  drawRecord(record, holder) {
    const { offset, fate, waiting_for: waits, key, value, headers } = record;
    const waiting = waits !== null
      && ` waits for ${holder?.first_offset === waits ? holderName(holder) : `offset ${waits}`}`;
    const parts = [["key", key], ["value", value],
      ...(headers ?? []).map(([name, content]) => [`header ${name}`, content])];
    const details = html("details", { open: this.opened.has(offset), "data-offset": offset },
      html("summary", { "data-key": `record ${offset}` }, html("b", {}, count(offset)),
        html("time", { class: "quiet" }, momentOf(record.timestamp_ms)),
        html("span", { class: `word ${fate}` }, fate, waiting && html("i", {}, waiting)),
        headers && html("span", { class: "key-text" }, shortOf(key, this.shape)),
        headers && html("span", { class: "value-text" }, shortOf(value, this.shape))),
      html("dl", {}, ...[record.transactional_id && ["transactional id", record.transactional_id],
        record.producer_id >= 0 && ["producer", `${record.producer_id} epoch ${record.producer_epoch}`]]
        .filter(Boolean).map(([term, text]) => [html("dt", {}, term), html("dd", {}, text)]),
      ...(headers ? parts : []).map(([term, content]) => [html("dt", {}, term, sizeOf(content)),
        html("dd", {}, html("pre", { tabindex: "0" }, textOf(content, this.shape)))])),
      record.headers_left_out > 0 && html("p", { class: "note" }, `and ${plural(record.headers_left_out, "header")}`),
      record.cut && html("p", { class: "note" }, "The record is large: what follows was not read."));
    details.addEventListener("toggle", () => this.opened[details.open ? "add" : "delete"](offset));
    return details;
  }
}

function holderName(holder) {
  return holder.transactional_id ?? `producer ${holder.producer_id}`;
}

function momentOf(ms) {
  const date = new Date(ms);
  return ms < 0 || Number.isNaN(date.getTime()) ? "no time" : `${date.toLocaleString("sv-SE")}.${
    String(date.getMilliseconds()).padStart(3, "0")}`;
}

function dataOf(content) {
  return content.base64 === undefined ? new TextEncoder().encode(content.text)
    : Uint8Array.from(atob(content.base64), (letter) => letter.charCodeAt(0));
}

function sizeOf(content) {
  if (content === null) return "";
  const shown = dataOf(content).length;
  return `, ${shown < content.size ? `${count(shown)} of ` : ""}${plural(content.size, "byte")}`;
}

function textOf(content, shape) {
  if (content === null) return "null";
  if (shape === "hex") return hexOf(dataOf(content));
  const text = content.text ?? new TextDecoder().decode(dataOf(content));
  return shape === "JSON" ? indented(text) : text;
}

function shortOf(content, shape) {
  if (content === null || content.size === 0) return content === null ? "null" : "\"\"";
  return (shape === "hex" ? hexOf(dataOf(content).slice(0, 16)).slice(7, 55) : textOf(content, "text").slice(0, 300))
    .replace(/\s+/g, " ");
}

function hexOf(data) {
  const lines = [];
  for (let at = 0; at < data.length; at += 16) {
    const row = [...data.slice(at, at + 16)];
    lines.push(`${at.toString(16).padStart(5, "0")}  ${row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ")
      .padEnd(47)}  ${row.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : ".")).join("")}`);
  }
  return lines.join("\n");
}

// JSON with a line for each value; any other text as it is. Numbers stay as they were written.
function indented(text) {
  try {
    JSON.parse(text);
  } catch {
    return text;
  }
  let [depth, out] = [0, ""];
  const line = () => `\n${"  ".repeat(Math.min(depth, MOST_INDENT))}`;
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g)) {
    if (token === "}" || token === "]") depth -= 1;
    if ((token === "}" || token === "]") && !/[{[]\s*$/.test(out)) out += line();
    else if (token === "}" || token === "]") out = out.trimEnd();
    out += token === ":" ? ": " : token;
    if (token === "{" || token === "[") depth += 1;
    if (token === "{" || token === "[" || token === ",") out += line();
  }
  return out;
}
