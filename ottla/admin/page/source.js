// Where the data comes from: the broker, by requests and a stream of events, or an exported file that has it inside.

const SILENCE_MS = 6000;
const OPEN_EVERY_MS = 2000;
const LONGEST_WAIT_MS = 10000;
const TOKEN_KEY = "ottla-token";

// Where the port has a token, it is kept as long as this tab, and sent with each request.
async function request(path, signal, accept) {
  const token = sessionStorage.getItem(TOKEN_KEY);
  const headers = token === null ? { Accept: accept } : { Accept: accept, Authorization: `Bearer ${token}` };
  const response = await fetch(path, { signal, headers, cache: "no-store" });
  if (response.ok) return response;
  const told = await response.json().catch(() => ({}));
  throw Object.assign(new Error(told.error ?? `status ${response.status}`), { status: response.status });
}

async function ask(path) {
  return (await request(path, AbortSignal.timeout(15000), "application/json")).json();
}

export function keepToken(token) {
  sessionStorage.setItem(TOKEN_KEY, token);
}

export async function saveFile(path) {
  const content = await (await request(path, AbortSignal.timeout(60000), "text/html")).blob();
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = `ottla-${Date.now()}.html`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

export class LiveSource {
  constructor(sink) {
    Object.assign(this, { sink, stream: null, started: null, failures: 0, heard: 0, wanted: null, isLost: false,
      timer: null });
  }

  start() {
    this.connect();
    setInterval(() => this.watch(), 1000);
    setInterval(() => this.poll(), OPEN_EVERY_MS);
  }

  async connect() {
    clearTimeout(this.timer);
    this.timer = null;
    const stream = this.stream = new AbortController();
    try {
      this.heard = performance.now();
      const overview = await ask("v1/overview");
      const isOther = this.started !== null && this.started !== overview.started_ms;
      if (this.isLost || this.started === null) {
        const to = overview.now_ms;
        const history = await ask(`v1/history?from_ms=${to - 600000}&to_ms=${to + 1000}`);
        this.sink.overview(overview);
        this.sink.history(history, isOther ? overview.started_ms : null);
      }
      this.started = overview.started_ms;
      await this.listen(stream);
      throw new Error("the stream of events ended");
    } catch (error) {
      if (this.stream === stream) this.lost(error);
    }
  }

  async listen(stream) {
    const response = await request(`v1/events?since=${this.sink.lastSeq()}`, stream.signal, "text/event-stream");
    Object.assign(this, { failures: 0, isLost: false, heard: performance.now() });
    this.sink.connected();
    this.poll();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done || this.stream !== stream) return;
      this.heard = performance.now();
      const blocks = (text + value).split("\n\n");
      text = blocks.pop();
      for (const block of blocks) this.take(block);
    }
  }

  take(block) {
    let name = "";
    let data = "";
    for (const line of block.split("\n")) {
      if (line.startsWith("event:")) name = line.slice(6).trim();
      else if (line.startsWith("data:")) data += line.slice(5);
    }
    if (data === "") return;
    const value = JSON.parse(data);
    if (name === "txn") this.sink.event(value);
    else if (name === "gap") this.sink.gap(value);
    else if (name === "overview" && value.started_ms === this.started) this.sink.overview(value);
  }

  lost(error) {
    this.stream.abort();
    this.stream = null;
    this.isLost = true;
    if (error.status === 401) return this.sink.refused(sessionStorage.getItem(TOKEN_KEY) !== null);
    const wait = Math.min(LONGEST_WAIT_MS, 500 * 2 ** Math.min(this.failures++, 5));
    this.sink.lost(error instanceof TypeError ? "no answer" : error.message, wait);
    this.timer = setTimeout(() => this.connect(), wait);
  }

  watch() {
    const silence = performance.now() - this.heard;
    if (this.stream !== null && silence > SILENCE_MS) this.lost(new Error("nothing has come for some seconds"));
  }

  // What is seen is asked for: the open transactions always, of the tabs the one in front.
  want(name) {
    this.wanted = name;
    this.poll();
  }

  async poll() {
    if (this.stream === null || this.isLost || this.started === null || this.isPolling || document.hidden) return;
    this.isPolling = true;
    try {
      const asked = this.sink.now();
      this.sink.open(await ask("v1/transactions?state=open&limit=300"), asked);
      const name = this.wanted;
      if (name !== null) this.sink.table(name, await ask(`v1/${name}${this.sink.query(name)}`));
    } catch (error) {
      this.sink.failed(error.message);
    } finally {
      this.isPolling = false;
    }
  }

  ask(path) {
    return ask(path);
  }

  why(topic, partition) {
    return ask(`v1/partitions/${encodeURIComponent(topic)}/${partition}/why`);
  }
}

export class EmbeddedSource {
  constructor(sink, data) {
    this.sink = sink;
    this.data = data;
  }

  start() {
    const { overview, history, transactions, exported_ms: exported } = this.data;
    if (overview) this.sink.overview(overview);
    this.sink.history(history, null);
    if (transactions) this.sink.open(transactions, 0);
    this.sink.exported(exported ?? history.to_ms);
  }

  want(name) {
    if (name !== null && this.data[name]) this.sink.table(name, this.data[name]);
  }

  why(topic, partition) {
    const told = (this.data.partitions?.partitions ?? []).find((row) => row.topic === topic
      && row.partition === partition);
    return told?.why ? Promise.resolve(told.why)
      : Promise.reject(new Error("This file does not say why; ask the broker: ottla txn why"));
  }
}
