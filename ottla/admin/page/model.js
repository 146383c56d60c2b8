// What the page knows of the last ten minutes: transactions by their id, marks on them, and counts of each second.

export const KEEP_MS = 600000;
const MOST_TRANSACTIONS = 40000;
const MARKS = new Set(["fenced", "timed_out", "expired", "refused"]);

export class Model {
  constructor() {
    this.restarts = [];
    this.series = [];
    this.lanes = new Map();
    this.buckets = new Map();
    this.lastSeq = 0;
    this.size = 0;
    this.leftOut = 0;
    this.dropped = 0;
  }

  // What was seen of the broker before stays; the events of the new one are counted from the start.
  restarted(at) {
    this.restarts.push(at);
    this.lastSeq = 0;
  }

  takeOverview(overview) {
    if (overview.bucket) this.takeBucket(overview.bucket);
    this.series.push(overview);
    if (this.series.length > KEEP_MS / 1000) this.series.shift();
  }

  takeHistory(history) {
    for (const bucket of history.buckets ?? []) this.takeBucket(bucket);
    for (const event of history.events ?? []) this.takeEvent(event);
    this.leftOut += history.left_out ?? 0;
  }

  takeBucket(bucket) {
    this.buckets.set(Math.floor(bucket.at_ms / 1000), bucket);
  }

  takeEvent(event) {
    if (event.seq <= this.lastSeq) return;
    this.lastSeq = event.seq;
    const lane = this.lane(event.transactional_id ?? "");
    lane.last = Math.max(lane.last, event.at_ms);
    if (MARKS.has(event.kind)) this.mark(lane, event);
    else this.move(lane, event);
  }

  lane(id) {
    let lane = this.lanes.get(id);
    if (lane === undefined) this.lanes.set(id, lane = { id, txs: [], marks: [], open: null, last: 0 });
    return lane;
  }

  mark(lane, event) {
    lane.marks.push({ at: event.at_ms, kind: event.kind, error: event.error, pid: event.producer_id,
      epoch: event.producer_epoch });
    if (event.kind === "timed_out" && lane.open !== null) lane.open.timedOut = event.at_ms;
  }

  begin(lane, at, source) {
    const tx = {
      id: lane.id, pid: source.producer_id, epoch: source.producer_epoch, start: at, prepared: null, end: null,
        commit: null,
      partitions: new Set(), markers: 0, records: null, bytes: null, timeout: null, waits: null, missed: 0,
        timedOut: null,
    };
    lane.txs.push(tx);
    lane.open = tx;
    this.size += 1;
    return tx;
  }

  move(lane, event) {
    const at = event.at_ms;
    if (event.kind === "begun" && lane.open !== null && lane.open.start < at) this.close(lane, at, null);
    const tx = lane.open ?? this.begin(lane, at, event);
    if (event.topic !== undefined && event.topic !== null) tx.partitions.add(`${event.topic}-${event.partition}`);
    if (event.records !== undefined) tx.records = event.records;
    if (event.bytes !== undefined) tx.bytes = event.bytes;
    if (event.commit !== undefined && event.commit !== null) tx.commit = event.commit;
    if (event.kind === "marker") tx.markers += 1;
    if (event.kind === "prepared") tx.prepared = at;
    if (event.kind === "completed") this.close(lane, at, tx.commit);
  }

  close(lane, at, commit) {
    lane.open.end = at;
    lane.open.commit = commit;
    lane.open = null;
  }

  // What is open as the broker says: of what began before the page was there, and what an event does not tell.
  takeOpen(answer, askedMs) {
    const seen = new Set();
    for (const told of answer.transactions) {
      seen.add(told.transactional_id);
      const lane = this.lane(told.transactional_id);
      if (lane.last > askedMs && lane.open === null) continue; // it has ended since
      const tx = lane.open ?? this.begin(lane, told.started_ms, told);
      tx.start = Math.min(tx.start, told.started_ms);
      lane.last = Math.max(lane.last, told.last_update_ms ?? told.started_ms);
      tx.pid = told.producer_id;
      tx.epoch = told.producer_epoch;
      tx.records = told.records ?? tx.records;
      tx.bytes = told.bytes ?? tx.bytes;
      tx.timeout = told.timeout_ms;
      tx.waits = told.waits_for;
      tx.state = told.state;
      tx.morePartitions = told.partitions_left_out ?? 0;
      for (const at of told.partitions ?? []) tx.partitions.add(`${at.topic}-${at.partition}`);
      if (tx.prepared === null && told.state.startsWith("Prepare")) {
        tx.prepared = told.last_update_ms;
        tx.commit = told.state === "PrepareCommit";
      }
    }
    if (answer.left_out) return;
    for (const lane of this.lanes.values()) {
      // Twice, as the end may be on its way here.
      const isMissing = lane.open !== null && lane.last < askedMs && !seen.has(lane.id);
      if (isMissing && ++lane.open.missed > 1) this.close(lane, askedMs, lane.open.commit);
    }
  }

  // Drops what is too old, and the oldest of what is too much.
  forget(now) {
    const since = now - KEEP_MS - 5000;
    for (const second of this.buckets.keys()) if (second * 1000 < since) this.buckets.delete(second);
    this.restarts = this.restarts.filter((at) => at >= since);
    let limit = since;
    if (this.size > MOST_TRANSACTIONS) {
      const ends = [];
      for (const lane of this.lanes.values()) for (const tx of lane.txs) if (tx.end !== null) ends.push(tx.end);
      ends.sort((left, right) => left - right);
      limit = Math.max(limit, ends[Math.min(ends.length - 1,
        this.size - Math.floor(MOST_TRANSACTIONS * 0.8))] ?? since);
    }
    for (const [id, lane] of this.lanes) {
      const before = lane.txs.length;
      lane.txs = lane.txs.filter((tx) => tx.end === null || tx.end >= limit);
      lane.marks = lane.marks.filter((mark) => mark.at >= since);
      this.size -= before - lane.txs.length;
      if (limit > since) this.dropped += before - lane.txs.length;
      if (lane.txs.length === 0 && lane.marks.length === 0) this.lanes.delete(id);
    }
  }
}

export function stateOf(tx) {
  if (tx.end !== null) return tx.commit === true ? "committed" : tx.commit === false ? "aborted" : "unknown";
  return tx.prepared !== null ? "prepared" : "open";
}
