// Which lanes are drawn, and what of the rest is summed up: decided by what needs a look, then by name.

import { has, natural } from "./dom.js";

const LONG_MS = 5000;
const MOST_GROUPS = 12;

const overlaps = (tx, from, to) => tx.start <= to && (tx.end === null || tx.end >= from);

// The name of a family of ids: what differs in them are numbers.
export function patternOf(id) {
  return id.replace(/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/gi, "*").replace(/\d+/g, "*");
}

function summary(lane, from, to) {
  const txs = lane.txs.filter((tx) => overlaps(tx, from, to));
  const marks = lane.marks.filter((mark) => mark.at >= from && mark.at <= to);
  const isOpen = txs.some((tx) => tx.end === null || tx.end > to);
  const age = Math.max(0, ...txs.filter((tx) => tx.end === null || tx.end > to).map((tx) => to - tx.start));
  const rank = age > LONG_MS ? 0 : marks.length > 0 ? 1 : 2;
  lane.pattern ??= patternOf(lane.id);
  return { id: lane.id, pattern: lane.pattern, txs, marks, isOpen, age, rank };
}

const byNeed = (left, right) => left.rank - right.rank || (left.rank === 0 && right.age - left.age)
  || natural(left.id, right.id);

// `{lanes, groups, ids}`: at most `most` lanes, the others in groups of `{pattern, ids, txs, marks, open}`.
export function chosen(model, from, to, filter, most) {
  const seen = [];
  for (const lane of model.lanes.values()) {
    if (lane.open === null && lane.last < from) continue;
    if (!has(lane.id, filter)) continue;
    const found = summary(lane, from, to);
    if (found.txs.length > 0 || found.marks.length > 0) seen.push(found);
  }
  if (seen.length <= most) return { lanes: seen.sort(byNeed), groups: [], ids: seen.length };
  // Whoever needs a look has the room; a few of the others, those that came first, show how it usually is. To sort
  // thousands by name each time would take longer than all the rest.
  const alarming = seen.filter((lane) => lane.rank < 2).sort(byNeed).slice(0, Math.ceil(most * 0.75));
  const usual = seen.filter((lane) => lane.rank === 2).slice(0, Math.floor(most * 0.25)).sort(byNeed);
  const lanes = [...alarming, ...usual];
  const shown = new Set(lanes);
  return { lanes, groups: grouped(seen.filter((lane) => !shown.has(lane))), ids: seen.length };
}

function grouped(lanes) {
  const groups = new Map();
  for (const lane of lanes) {
    const { pattern } = lane;
    let group = groups.get(pattern);
    if (group === undefined) groups.set(pattern, group = { pattern, patterns: 1, ids: 0, open: 0, txs: [], marks: [] });
    add(group, lane);
  }
  const sorted = [...groups.values()].sort((left, right) => right.ids - left.ids);
  const rest = sorted.slice(MOST_GROUPS);
  if (rest.length === 0) return sorted;
  const others = { pattern: "", patterns: rest.length, ids: 0, open: 0, txs: [], marks: [] };
  for (const group of rest) {
    others.ids += group.ids;
    others.open += group.open;
    others.txs = others.txs.concat(group.txs);
    others.marks = others.marks.concat(group.marks);
  }
  return [...sorted.slice(0, MOST_GROUPS), others];
}

function add(group, lane) {
  group.ids += 1;
  group.open += lane.isOpen ? 1 : 0;
  for (const tx of lane.txs) group.txs.push(tx);
  for (const mark of lane.marks) group.marks.push(mark);
}

// Transactions of one lane as pieces to draw; those that are too near to each other to be told apart become one.
export function pieces(txs, xOf, now) {
  const found = [];
  for (const tx of txs) {
    const x = xOf(tx.start);
    const end = xOf(tx.end ?? now);
    const width = Math.max(2.5, end - x);
    const before = found.at(-1);
    if (before !== undefined && tx.end !== null && before.isShort && width < 5 && x - (before.x + before.width) < 1) {
      before.txs.push(tx);
      before.width = Math.max(before.width, x + width - before.x);
    } else {
      found.push({ x, width, txs: [tx], isShort: tx.end !== null && width < 5 });
    }
  }
  return found;
}
