// The last ten minutes at a glance, and the part of them that is shown: drag it, or move it by keys.

import { clock, plural, svg } from "./dom.js";
import { KEEP_MS } from "./model.js";

const HEIGHT = 44;
const BASE = 36;

export class Scrubber {
  // `moved(end)` hears where the window is to end, in ms; `movedBy(step)` how far it is to go from where it is.
  constructor(place, moved, movedBy) {
    Object.assign(this, { place, moved, movedBy });
    this.root = svg("svg", { class: "scrubber", height: HEIGHT, tabindex: 0, role: "slider",
      "aria-label": "Moment shown, in the last ten minutes" });
    place.append(this.root);
    this.root.addEventListener("pointerdown", (event) => {
      this.root.setPointerCapture(event.pointerId);
      this.drag(event);
    });
    this.root.addEventListener("pointermove", (event) => this.root.hasPointerCapture(event.pointerId)
      && this.drag(event));
    this.root.addEventListener("keydown", (event) => this.key(event));
  }

  drag(event) {
    const x = event.clientX - this.root.getBoundingClientRect().left;
    this.moved(this.from + (x / this.width) * KEEP_MS + this.span / 2);
  }

  key(event) {
    const step = { ArrowLeft: -this.span / 4, ArrowRight: this.span / 4, PageUp: -this.span, PageDown: this.span,
      Home: -KEEP_MS, End: KEEP_MS }[event.key];
    if (!step) return; // another key, or nothing is drawn yet
    event.preventDefault();
    this.movedBy(step);
  }

  draw(model, now, end, span) {
    Object.assign(this, { width: this.place.clientWidth, from: now - KEEP_MS, end, span });
    const xOf = (ms) => ((ms - this.from) / KEEP_MS) * this.width;
    const columns = this.columns(model);
    const most = Math.max(1, ...columns.map((column) => column.committed + column.aborted));
    const parts = { committed: "", aborted: "", open: "" };
    const mostOpen = Math.max(1, ...columns.map((column) => column.open));
    const marks = [];
    for (const [index, column] of columns.entries()) {
      const x = index * 3;
      const tall = (number) => (number === 0 ? 0 : Math.max(1.5, Math.sqrt(number / most) * (BASE - 8)));
      const all = tall(column.committed + column.aborted);
      const aborted = column.aborted === 0 ? 0 : Math.max(1.5,
        (all * column.aborted) / (column.committed + column.aborted));
      if (all > aborted) parts.committed += `M${x} ${BASE - aborted}h2v${aborted - all}h-2z`;
      if (aborted > 0) parts.aborted += `M${x} ${BASE}h2v${-aborted}h-2z`;
      if (column.open > 0) parts.open += `M${x} ${BASE + 2}h3v${1 + (4 * column.open) / mostOpen}h-3z`;
      if (column.fenced > 0) marks.push(svg("circle", { class: "mark", cx: x + 1, cy: 4, r: 2.5 },
        svg("title", {}, plural(column.fenced, "fence or timeout", "fences and timeouts"))));
    }
    const left = Math.max(0, xOf(end - span));
    const right = Math.min(this.width, xOf(end));
    this.root.setAttribute("width", this.width);
    this.root.setAttribute("aria-valuetext", `${clock(end - span)} to ${clock(end)}`);
    this.root.setAttribute("aria-valuemin", Math.round(this.from));
    this.root.setAttribute("aria-valuemax", Math.round(now));
    this.root.setAttribute("aria-valuenow", Math.round(end));
    this.root.replaceChildren(
      svg("line", { class: "base", x1: 0, x2: this.width, y1: BASE + 0.5, y2: BASE + 0.5 }),
      ...Object.entries(parts).map(([name, path]) => svg("path", { class: name, d: path || "M0 0" })),
      ...marks,
      ...model.restarts.map((at) => svg("line", { class: "restart", x1: xOf(at), x2: xOf(at), y1: 0, y2: HEIGHT })),
      svg("rect", { class: "veil", x: 0, y: 0, width: left, height: HEIGHT }),
      svg("rect", { class: "veil", x: right, y: 0, width: Math.max(0, this.width - right), height: HEIGHT }),
      svg("rect", { class: "window", x: left + 0.5, y: 0.5, width: Math.max(3, right - left - 1), height: HEIGHT - 1,
        rx: 3 }));
  }

  columns(model) {
    const columns = Array.from({ length: Math.max(1, Math.floor(this.width / 3)) },
      () => ({ committed: 0, aborted: 0, open: 0, fenced: 0 }));
    for (const bucket of model.buckets.values()) {
      const column = columns[Math.floor(((bucket.at_ms - this.from) / KEEP_MS) * columns.length)];
      if (column === undefined) continue;
      for (const name of ["committed", "aborted", "fenced"]) column[name] += bucket[name] ?? 0;
      column.open = Math.max(column.open, bucket.open ?? 0);
    }
    return columns;
  }
}
