// The card with the details of what the pointer or the keys are on; a click keeps it.

import { NEVER_TIMES_OUT_MS, bytes, clock, copier, count, duration, html, plural, refill } from "./dom.js";
import { stateOf } from "./model.js";
import { MARK_WORDS } from "./timeline.js";

const MOST_ROWS = 12;
const WORDS = { open: "open", prepared: "prepared, markers are being written", committed: "committed",
  aborted: "aborted", unknown: "ended unseen" };

// What stays the same when all is drawn anew.
function subjectOf({ txs, mark, group }) {
  return txs?.[0] ?? mark ?? group.pattern;
}

export class Card {
  // `filterTo(text)` is called for who wants to see that alone.
  constructor(element, now, filterTo) {
    Object.assign(this, { element, now, filterTo, what: null, dismissed: null, isKept: false });
  }

  show(what, near, isKept = false) {
    if (what === null || what === undefined) return this.isKept ? undefined : this.close();
    if (!isKept && (this.isKept || subjectOf(what) === this.dismissed)) return;
    Object.assign(this, { what, isKept, dismissed: null });
    this.element.hidden = false;
    this.element.classList.toggle("kept", isKept);
    this.refresh();
    this.place(near.getBoundingClientRect());
  }

  // The pointer may rest on it still, and drawing anew puts it there again: `dismiss` is for good.
  dismiss() {
    this.dismissed = this.what && subjectOf(this.what);
    this.close();
  }

  close() {
    Object.assign(this, { what: null, isKept: false });
    this.element.hidden = true;
  }

  // Beside what it tells of, and inside the window; a phone has it at the lower edge.
  place(box) {
    const { offsetWidth: width, offsetHeight: height } = this.element;
    const left = Math.min(Math.max(8, box.left), innerWidth - width - 12);
    const top = box.bottom + 8 + height > innerHeight ? Math.max(8, box.top - height - 8) : box.bottom + 8;
    this.element.style.left = `${left}px`;
    this.element.style.top = `${top}px`;
  }

  refresh() {
    if (this.what === null) return;
    const { txs, mark, lane, group } = this.what;
    const name = group ? group.pattern || "others" : lane.id || "(no id)";
    const rows = group ? this.groupRows(group) : mark ? this.markRows(mark) : txs.length > 1 ? this.runRows(txs)
      : this.rows(txs[0]);
    refill(this.element,
      html("header", {}, html("strong", {}, name), this.isKept && html("button",
        { class: "small", "aria-label": "Close", "data-key": "close", onclick: () => this.dismiss() }, "×")),
      html("dl", {}, ...rows.filter((row) => row[1] !== null && row[1] !== undefined)
        .map(([term, value]) => [html("dt", {}, term), html("dd", {}, value)])),
      this.isKept && html("p", { class: "actions" },
        html("button", { type: "button", class: "small", "data-key": "only",
          onclick: () => this.filterTo(group ? group.pattern.split("*")[0] : lane.id) }, "Show only this"),
        !group && copier(lane.id, "Copy id")));
  }

  rows(tx) {
    const state = stateOf(tx);
    const end = tx.end ?? this.now();
    const partitions = [...tx.partitions].sort();
    const more = Math.max(0, partitions.length - MOST_ROWS) + (tx.morePartitions ?? 0);
    return [
      ["state", html("span", { class: `word ${state}` }, WORDS[state], tx.timedOut !== null && " after its timeout")],
      ["producer", `id ${tx.pid}, epoch ${tx.epoch}`],
      ["began", clock(tx.start, true)],
      ["lasted", duration(end - tx.start)],
      ["markers", tx.prepared === null ? null : tx.end === null ? `for ${duration(this.now() - tx.prepared)}`
        : duration(tx.end - tx.prepared)],
      ["timeout", tx.prepared !== null || tx.end !== null || tx.timeout === null ? null
        : tx.timeout === NEVER_TIMES_OUT_MS ? "never"
          : `in ${duration(Math.max(0, tx.start + tx.timeout - this.now()))}`],
      ["waits for", tx.end === null ? tx.waits : null],
      ["records", tx.records === null ? null
        : `${count(tx.records)}${tx.bytes === null ? "" : `, ${bytes(tx.bytes)}`}`],
      ["partitions", partitions.length === 0 ? null
        : html("span", {}, partitions.slice(0, MOST_ROWS).join("\n"), more > 0 && `\nand ${count(more)} more`)],
    ];
  }

  runRows(txs) {
    const aborted = txs.filter((tx) => tx.commit === false).length;
    return [
      ["here are", `${plural(txs.length, "transaction")}, too near to tell apart`],
      ["aborted", aborted === 0 ? null : count(aborted)],
      ["from", clock(txs[0].start, true)],
      ["to", clock(txs.at(-1).end, true)],
      ["longest", duration(Math.max(...txs.map((tx) => tx.end - tx.start)))],
    ];
  }

  markRows(mark) {
    return [["event", html("span", { class: "word mark" }, MARK_WORDS[mark.kind])], ["at", clock(mark.at, true)],
      ["error", mark.error], ["producer", mark.pid === undefined ? null : `id ${mark.pid}, epoch ${mark.epoch}`]];
  }

  groupRows(group) {
    const ended = group.txs.filter((tx) => tx.end !== null);
    return [["ids", count(group.ids)], ["open", count(group.open)], ["ended here", count(ended.length)],
      ["aborted", count(ended.filter((tx) => tx.commit === false).length)],
      ["marks", group.marks.length === 0 ? null : count(group.marks.length)]];
  }
}
