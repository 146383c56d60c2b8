// Groups: who is in them and has what; of each partition what is committed, pending in a transaction, left to read.

import { count, has, html, plural, refill, table } from "./dom.js";

const MOST_MEMBERS = 20;
const MOST_OFFSETS = 100;

export function drawGroups(place, answer, filter) {
  const groups = answer.groups.filter((group) => has(group.group_id, filter));
  refill(place, html("p", { class: "note" }, plural(groups.length, "group"),
    answer.left_out > 0 && `; ${count(answer.left_out)} left out: a filter asks for names that begin with it`),
    ...groups.map(group));
}

function group(told) {
  const lag = told.offsets.reduce((sum, row) => sum + (row.lag ?? 0), 0);
  const pending = told.offsets.reduce((sum, row) => sum + row.pending.length, 0);
  const held = told.offsets.some((row) => row.held_by);
  const details = html("article", { class: "group", "data-name": told.group_id },
    html("header", {}, html("h2", {}, told.group_id),
      html("span", { class: `badge ${held ? "held" : told.state.toLowerCase()}`, title: told.state },
        held ? "held back by an open transaction" : told.state),
      html("span", { class: "quiet" },
        `${plural(told.members.length + (told.members_left_out ?? 0), "member")}, ${epochs(told)}lag ${count(lag)}`),
        pending > 0 && html("span", { class: "word open" }, `${count(pending)} pending`)));
  if (told.members.length > 0) details.append(members(told.members, told.members_left_out ?? 0));
  if (told.offsets.length > 0) details.append(offsetsOf(told.offsets, told.offsets_left_out ?? 0));
  return details;
}

function epochs({ epoch, assignment_epoch: assigned }) {
  return assigned === null || assigned === undefined ? "" : `epoch ${epoch}, assignment epoch ${assigned}, `;
}

function assigned([topic, partitions]) {
  return `${topic} [${partitions.slice(0, 20).join(", ")}${partitions.length > 20 ? ", …" : ""}]`;
}

function pendingIn({ offset, transactional_id: id, producer_id: producer }) {
  return `${count(offset)} in ${id ?? `producer ${producer}`}`;
}

function members(all, leftOut) {
  const more = Math.max(0, all.length - MOST_MEMBERS) + leftOut;
  return html("ul", { class: "members" }, ...all.slice(0, MOST_MEMBERS).map((member) =>
    html("li", { title: member.member_id }, html("b", {}, member.client_id || member.member_id), " ",
      (member.epoch ?? null) !== null && html("span", { class: "quiet" }, `epoch ${member.epoch} `),
      member.assignment.map(assigned).join(" · ") || "nothing assigned")),
  more > 0 && html("li", { class: "quiet" }, `and ${plural(more, "more member")}`));
}

function offsetsOf(rows, leftOut) {
  const more = Math.max(0, rows.length - MOST_OFFSETS) + leftOut;
  const heads = ["<partition", "committed", "pending", "last stable", "end", "lag", "below last stable", "<held by"];
  return html("div", {}, table(heads, rows.slice(0, MOST_OFFSETS).map((row) => [
    `${row.topic}-${row.partition}`, count(row.committed),
    html("span", { class: "pending" }, row.pending.map(pendingIn).join("\n")),
    count(row.last_stable_offset), count(row.log_end_offset), count(row.lag), count(row.lag_below_lso),
    row.held_by && html("span", { class: "pending" }, pendingIn({ ...row.held_by, offset: row.held_by.first_offset })),
  ])), more > 0 && html("p", { class: "note" }, `and ${plural(more, "more partition")}`));
}
