// Lanes of transactional ids, time to the right; what the pointer or the keys are on is told in the card.

import { clock, count, duration, figure, plural, refill, svg } from "./dom.js";
import { chosen, pieces } from "./lanes.js";
import { stateOf } from "./model.js";

const AXIS = 22;
const LANE = 24;
const GROUP = 34;
const BIN = 4;
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300].map((seconds) => seconds * 1000);
export const FEWEST = 40;

const MARK_SHAPES = {
  fenced: "M0-5L5 0L0 5L-5 0z",
  timed_out: "M-4.5-5H4.5L0 0L4.5 5H-4.5L0 0z",
  expired: "M-4-4L4 4M4-4L-4 4",
  refused: "M0-5V2M0 4V5",
};
export const MARK_WORDS = { fenced: "fenced", timed_out: "timed out", expired: "expired", refused: "refused" };

export class Timeline {
  // `told(what, element)` hears what the pointer or the focus is on: null, a piece, a mark, a group; `chose` a click.
  constructor(place, told, chose) {
    Object.assign(this, { place, told, chose, most: FEWEST, targets: new WeakMap(), focusKey: null });
    this.root = svg("svg", { class: "timeline", role: "group",
      "aria-label": "Transactions, a lane for each transactional id" });
    place.append(this.root);
    for (const [name, take] of [["pointerover", told], ["focusin", told], ["click", chose]]) {
      this.root.addEventListener(name, (event) => {
        const element = event.target.closest("[data-key]");
        if (element !== null) take(this.targets.get(element), element);
        else if (name !== "focusin") take(null, null);
      });
    }
    this.root.addEventListener("pointerleave", () => told(null, null));
    this.root.addEventListener("keydown", (event) => this.key(event));
  }

  draw(model, view, now) {
    this.view = view;
    const width = this.place.clientWidth;
    const isNarrow = width < 620;
    const label = isNarrow ? 0 : Math.min(230, Math.round(width * 0.24));
    const laneHeight = isNarrow ? LANE + 14 : LANE;
    const from = view.end - view.span;
    const near = (ms) => Math.min(Math.max(ms, from - 1000), view.end + 1000);
    const xOf = (ms) => label + ((near(ms) - from) / view.span) * (width - label);
    const { lanes, groups, ids } = chosen(model, from, view.end, view.filter, this.most);
    const groupHeight = isNarrow ? GROUP + 14 : GROUP;
    const at = { label, width, xOf, from, now: Math.min(now, view.end), isNarrow };
    const restarts = model.restarts.filter((ms) => ms >= from && ms <= view.end);
    let y = AXIS + (restarts.length > 0 ? 14 : 0);
    const below = (tall) => (y += tall) - tall;
    const lane = (one) => this.lane(one, below(laneHeight), laneHeight, at);
    // What needs a look, then all the others in sum, then some of them by themselves.
    const drawn = [
      ...lanes.filter((one) => one.rank < 2).map(lane),
      ...groups.map((group) => this.band(group, below(groupHeight), groupHeight, at)),
      ...lanes.filter((one) => one.rank === 2).map(lane),
    ];
    const height = y + 6;
    this.root.setAttribute("width", width);
    this.root.setAttribute("height", Math.max(height, 120));
    refill(this.root, hatches(), clipOf(label, width, height),
      this.axis(at, Math.max(height, 120)),
      svg("g", { class: "lanes" }, ...drawn),
      ...restarts.map((ms) => restart(xOf(ms), height)));
    const isReachable = this.root.querySelector('[tabindex="0"]') !== null;
    if (!isReachable) this.root.querySelector("[data-key]")?.setAttribute("tabindex", 0);
    return { lanes: lanes.length, groups, ids };
  }

  axis({ label, width, xOf, from }, height) {
    const { span, end } = this.view;
    const step = STEPS.find((ms) => span / ms <= (width - label) / 90) ?? STEPS.at(-1);
    const ticks = [];
    for (let ms = Math.ceil(from / step) * step; ms <= end; ms += step) {
      const x = xOf(ms);
      ticks.push(svg("line", { class: "grid", x1: x, x2: x, y1: AXIS - 4, y2: height }));
      if (x > label + 26 && x < width - 26) ticks.push(svg("text", { class: "tick", x, y: 12, "text-anchor": "middle" },
        clock(ms)));
    }
    return svg("g", { class: "axis", "aria-hidden": "true" }, ...ticks);
  }

  lane(lane, y, height, at) {
    const top = at.isNarrow ? y + 14 : y;
    const bars = pieces(lane.txs, at.xOf, at.now).map((piece) => this.bar(lane, piece, top, at.now));
    const marks = lane.marks.map((mark) => {
      const key = `mark ${lane.id} ${mark.at} ${mark.kind}`;
      const shape = svg("path", { class: `mark ${mark.kind}`, d: MARK_SHAPES[mark.kind],
        transform: `translate(${at.xOf(mark.at).toFixed(1)} ${top + LANE / 2})`,
        "data-key": key, tabindex: -1, role: "img", "aria-label": `${lane.id || "(no id)"} ${MARK_WORDS[mark.kind]}` });
      this.targets.set(shape, { mark, lane });
      return shape;
    });
    const classes = `lane${lane.rank === 0 ? " stuck" : ""}`;
    return svg("g", { class: classes, "data-id": lane.id },
      svg("rect", { class: "stripe", x: 0, y, width: at.width, height }),
      this.name(lane.id || "(no id)", at.isNarrow ? y + 12 : y + height / 2 + 4, at,
        lane.rank === 0 ? duration(lane.age) : ""),
      svg("g", { "clip-path": "url(#plot)" }, ...bars, ...marks));
  }

  name(text, y, { label, width, isNarrow }, age) {
    const room = Math.floor(((isNarrow ? width : label) - 14 - age.length * 7) / 6.9);
    const shown = text.length > room
      ? `${text.slice(0, Math.ceil(room / 2) - 1)}…${text.slice(text.length - Math.floor(room / 2))}` : text;
    return svg("g", {},
      svg("text", { class: "name", x: 2, y }, svg("title", {}, text), shown),
      age !== "" && svg("text", { class: "age", x: (isNarrow ? width - 2 : label - 8), y, "text-anchor": "end" }, age));
  }

  bar(lane, piece, y, now) {
    const tx = piece.txs.at(-1);
    const first = piece.txs[0];
    const isRun = piece.txs.length > 1;
    const aborted = piece.txs.filter((one) => one.commit === false).length;
    const key = `${lane.id} ${first.pid} ${first.start}`;
    const state = isRun ? (aborted === piece.txs.length ? "aborted" : "committed") : stateOf(tx);
    const told = isRun ? plural(piece.txs.length, "transaction") : `${state}, ${duration((tx.end ?? now) - tx.start)}`;
    const box = { x: piece.x.toFixed(1), y: y + 5, width: piece.width.toFixed(1), height: LANE - 10 };
    const group = svg("g", { class: `bar ${state}${isRun ? " run" : ""}`, "data-key": key,
      tabindex: this.focusKey === key ? 0 : -1,
      role: "img", "aria-label": `${lane.id || "(no id)"}: ${told}` });
    group.append(svg("rect", { class: "body", ...box, rx: Math.min(2, piece.width / 3) }));
    if (isRun && aborted > 0 && aborted < piece.txs.length) {
      const part = Math.max(2, ((LANE - 10) * aborted) / piece.txs.length);
      group.append(svg("rect", { class: "part aborted", ...box, y: y + LANE - 5 - part, height: part }));
    }
    if (!isRun && tx.prepared !== null && piece.width > 4) {
      const share = Math.min(1, Math.max(0, (tx.prepared - tx.start) / Math.max(1, (tx.end ?? now) - tx.start)));
      const x = piece.x + piece.width * share;
      group.append(svg("rect", { class: "hatch", ...box, x: x.toFixed(1),
        width: Math.max(0, piece.x + piece.width - x).toFixed(1), fill: "url(#hatch)" }));
    }
    this.targets.set(group, { txs: piece.txs, lane });
    return group;
  }

  // What is no lane of its own: how many ended in each sliver of time.
  band(group, y, height, at) {
    const top = at.isNarrow ? y + 14 : y;
    const columns = Math.max(1, Math.floor((at.width - at.label) / BIN));
    const ended = Array.from({ length: columns }, () => [0, 0]);
    for (const tx of group.txs) {
      const index = Math.floor((at.xOf(tx.end ?? at.now) - at.label) / BIN);
      if (tx.end !== null && index >= 0 && index < columns) ended[index][tx.commit === false ? 1 : 0] += 1;
    }
    const most = Math.max(1, ...ended.map(([committed, aborted]) => committed + aborted));
    let committed = "";
    let aborted = "";
    const floor = top + GROUP - 4;
    for (const [index, pair] of ended.entries()) {
      const [up, down] = pair.map((number) => (number === 0 ? 0 : Math.max(1, (number / most) * (GROUP - 10))));
      const x = at.label + index * BIN;
      if (up > 0) committed += `M${x} ${(floor - down).toFixed(1)}h${BIN - 1}v${(-up).toFixed(1)}h${1 - BIN}z`;
      if (down > 0) aborted += `M${x} ${floor}h${BIN - 1}v${(-down).toFixed(1)}h${1 - BIN}z`;
    }
    const marks = group.marks.map((mark) => `M${(at.xOf(mark.at) - 1.5).toFixed(1)} ${top + 2}h3v5h-3z`).join("");
    const key = `group ${group.pattern}`;
    const name = group.pattern || `others, of ${plural(group.patterns, "kind")}`;
    const rate = group.txs.filter((tx) => tx.end !== null && tx.end >= at.from).length / (this.view.span / 1000);
    const open = group.open > 0 ? ` · ${count(group.open)} open` : "";
    const told = `${plural(group.ids, "id")} · ${figure(rate)}/s${open}`;
    const element = svg("g", { class: "band", "data-key": key, "data-pattern": group.pattern, "data-ids": group.ids,
      tabindex: -1, role: "img", "aria-label": `${name}: ${told}` },
      svg("rect", { class: "stripe", x: 0, y, width: at.width, height }),
      svg("text", { class: "name", x: 2, y: y + (at.isNarrow ? 12 : 14) }, svg("title", {}, name), name.slice(0, 31)),
      svg("text", { class: "age", x: at.isNarrow ? at.width - 2 : 2, y: at.isNarrow ? y + 12 : y + 28,
        "text-anchor": at.isNarrow ? "end" : "start" }, told),
      svg("path", { class: "committed", d: committed || "M0 0" }),
        svg("path", { class: "aborted", d: aborted || "M0 0" }), svg("path", { class: "mark", d: marks || "M0 0" }));
    this.targets.set(element, { group });
    return element;
  }

  // Left and right to the neighbour in the lane, up and down to the one nearest in time.
  key(event) {
    const current = event.target.closest("[data-key]");
    if (current === null) return;
    if (event.key === "Enter") {
      event.preventDefault();
      return this.chose(this.targets.get(current), current);
    }
    const way = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (way === undefined) return;
    event.preventDefault();
    const row = current.closest(".lane, .band");
    const rows = [...this.root.querySelectorAll(".lane, .band")];
    const inside = (one) => (one.matches("[data-key]") ? [one] : [...one.querySelectorAll("[data-key]")]);
    let next = null;
    if (way[0] === 0) {
      const all = inside(row).sort((left, right) => middle(left) - middle(right));
      next = all[all.indexOf(current) + way[1]];
    } else {
      for (let index = rows.indexOf(row) + way[0]; index >= 0 && index < rows.length && !next; index += way[0]) {
        next = inside(rows[index]).sort((left,
          right) => Math.abs(middle(left) - middle(current)) - Math.abs(middle(right) - middle(current)))[0];
      }
    }
    if (!next) return;
    this.focusKey = next.dataset.key;
    next.focus();
  }
}

function middle(element) {
  const box = element.getBoundingClientRect();
  return box.left + box.width / 2;
}

function hatches() {
  return svg("defs", {}, svg("pattern", { id: "hatch", width: 5, height: 5, patternUnits: "userSpaceOnUse",
    patternTransform: "rotate(45)" },
    svg("rect", { class: "hatch-line", width: 2, height: 5 })));
}

function clipOf(label, width, height) {
  return svg("clipPath", { id: "plot" }, svg("rect",
    { x: label, y: 0, width: Math.max(0, width - label), height: height + 200 }));
}

function restart(x, height) {
  return svg("g", { class: "restart" }, svg("line", { x1: x, x2: x, y1: AXIS - 4, y2: height }),
    svg("text", { x: x - 4, y: AXIS + 6, "text-anchor": "end" }, "broker started"));
}
