// Elements, numbers and times. Names of topics, ids and clients are hostile: they become text and attributes only.

const SVG = "http://www.w3.org/2000/svg";

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function html(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

export const byId = (id) => document.getElementById(id);

// Replaces what an element holds, and keeps the focus where it was: by `data-key`.
export function refill(element, ...children) {
  const focused = element.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  element.replaceChildren(...children.flat().filter(Boolean));
  if (focused === undefined) return;
  for (const candidate of element.querySelectorAll("[data-key]")) {
    if (candidate.dataset.key === focused) return candidate.focus({ preventScroll: true });
  }
}

const whole = new Intl.NumberFormat("en-US");

export function count(number) {
  return number === null || number === undefined ? "–" : whole.format(number);
}

export function plural(number, noun, many = `${noun}s`) {
  return `${count(number)} ${number === 1 ? noun : many}`;
}

// A rate or another small figure: three digits that tell.
export function figure(number) {
  if (number === null || number === undefined || Number.isNaN(number)) return "–";
  if (number >= 1e6) return `${(number / 1e6).toFixed(number < 1e7 ? 1 : 0)} M`;
  if (number >= 1e4) return `${(number / 1e3).toFixed(number < 1e5 ? 1 : 0)} k`;
  if (number >= 100 || Number.isInteger(number)) return count(Math.round(number));
  return number.toFixed(number < 1 ? 2 : 1);
}

export function bytes(number) {
  if (number === null || number === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (number >= 1024 && unit < units.length - 1) [number, unit] = [number / 1024, unit + 1];
  return `${unit === 0 || number >= 100 ? Math.round(number) : number.toFixed(1)} ${units[unit]}`;
}

// The timeout of two-phase commit (KIP-939).
export const NEVER_TIMES_OUT_MS = 2147483647;

export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1) return ms === 0 ? "0 ms" : `${ms.toFixed(2)} ms`;
  if (ms < 1000) return `${ms < 10 && !Number.isInteger(ms) ? ms.toFixed(1) : Math.round(ms)} ms`;
  if (ms < 60000) return `${(ms / 1000).toFixed(ms < 10000 ? 1 : 0)} s`;
  const seconds = Math.floor(ms / 1000);
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

const two = (number) => String(number).padStart(2, "0");

export function clock(ms, withMillis = false) {
  const date = new Date(ms);
  const text = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  return withMillis ? `${text}.${String(date.getMilliseconds()).padStart(3, "0")}` : text;
}

export function copier(text, label = "Copy") {
  const button = html("button", { type: "button", class: "small" }, label);
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not allowed";
    }
    setTimeout(() => { button.textContent = label; }, 1500);
  });
  return button;
}

// The values of one figure over time, as a line over a faint area; where there was none, there is no line.
export function sparkline(values, label, width = 120, height = 24) {
  const isKnown = (value) => value !== null && value !== undefined;
  const most = Math.max(...values.filter(isKnown), 0) || 1;
  const step = width / Math.max(values.length - 1, 1);
  const xOf = (index) => (index * step).toFixed(1);
  let line = "";
  let area = "";
  for (const [index, value] of values.entries()) {
    if (!isKnown(value)) continue;
    const y = (height - 2 - (value / most) * (height - 4)).toFixed(1);
    const [isFirst, isLast] = [!isKnown(values[index - 1]), !isKnown(values[index + 1])];
    line += `${isFirst ? "M" : "L"}${xOf(index)} ${y}`;
    const foot = `${xOf(index)} ${height}`;
    area += `${isFirst ? `M${foot}` : ""}L${xOf(index)} ${y}${isLast ? `L${foot}z` : ""}`;
  }
  const part = (name, d) => d !== "" && svg("path", { class: name, d });
  return svg("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img",
    "aria-label": label }, part("area", area), part("line", line));
}

// A table. A head that begins with < is over text, any other over numbers; the first cell of a row is its name.
export function table(heads, rows) {
  const kinds = heads.map((head) => (head.startsWith("<") ? "text" : null));
  const cell = (content, index) => (index === 0 ? html("th", { scope: "row" }, content)
    : html("td", { class: kinds[index] }, content ?? ""));
  return html("div", { class: "wide" }, html("table", {},
    html("thead", {}, html("tr", {}, ...heads.map((head, index) =>
      html("th", { scope: "col", class: kinds[index] }, head.replace("<", ""))))),
    html("tbody", {}, ...rows.map((row) => html("tr", {}, ...row.map(cell))))));
}

// Whether a name has the filter in it.
export function has(name, filter) {
  return filter === "" || (name ?? "").toLowerCase().includes(filter.toLowerCase());
}

// Topics of the broker itself, which lists leave out at first.
export function isInternal(topic) {
  return topic === "__consumer_offsets" || topic === "__transaction_state";
}

export const natural = new Intl.Collator("en", { numeric: true }).compare;
