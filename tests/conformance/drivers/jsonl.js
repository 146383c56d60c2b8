// The lines of jsonl.py, for libraries of Node with the promises of kafkajs. `serve(library)` answers them.
//
// A library has: version, missing, producer(options), consumer(options), admin(), send(transaction, records, options),
// commitGroup(transaction, group, topics, consumer), assignmentOf(consumer), read(topics, isolation),
// committed(group, partitions, isolation).
const readline = require('readline')

const bytes = (text) => (text === null ? null : Buffer.from(text, 'base64'))
const text = (data) => (data == null ? null : Buffer.from(data).toString('base64'))

/** Return the headers of a record as an object, in which a repeated name has a list. */
function headersObject(rows) {
  const headers = {}
  for (const [name, data] of rows) (headers[name] ??= []).push(bytes(data))
  for (const name of Object.keys(headers)) if (headers[name].length === 1) headers[name] = headers[name][0]
  return headers
}

const headerRows = (headers) => Object.entries(headers ?? {}).flatMap(([name, data]) => [data].flat().map((one) => [name, text(one)]))

const message = (row) => ({ partition: row.partition, key: bytes(row.key), value: bytes(row.value), headers: headersObject(row.headers) })

const record = (topic, partition, { offset, timestamp, timestampType, key, value, headers }) => ({
  topic,
  partition,
  offset: Number(offset),
  timestamp: [timestampType ?? 0, Number(timestamp)],
  key: text(key),
  value: text(value),
  headers: Array.isArray(headers) ? headers : headerRows(headers),
})

/** Return type, code and message of an error: those of its first cause with a code. */
function describe(error) {
  let inner = error
  const cause = (of) => of.errors?.[0] ?? of.cause
  while (typeof inner.code !== 'number' && cause(inner)) inner = cause(inner)
  return { type: inner.type ?? inner.name, code: typeof inner.code === 'number' ? inner.code : null, message: String(error.message) }
}

/** A member of a group that commits each batch until it is closed. */
class Member {
  constructor(library, { group, topics, isolation, protocol }) {
    Object.assign(this, { library, topics, records: [], errors: [] })
    this.consumer = library.consumer({ group, isolation, protocol, sessionMs: 10_000, heartbeatMs: 300 })
  }

  async open() {
    await this.consumer.connect()
    await this.consumer.subscribe({ topics: this.topics })
    await this.consumer.run({ eachBatch: (payload) => this.take(payload) })
  }

  async take({ batch, resolveOffset }) {
    const { topic, partition } = batch
    this.records.push(...batch.messages.map((each) => record(topic, partition, each)))
    resolveOffset(batch.lastOffset())
    // During a rebalance a commit is refused, and the next owner gets the records again.
    const offset = String(Number(batch.lastOffset()) + 1)
    await this.consumer.commitOffsets([{ topic, partition, offset }]).catch((error) => this.errors.push(`${describe(error).type}: ${error.message}`))
  }

  state() {
    return { assignment: this.library.assignmentOf(this.consumer), records: this.records, errors: this.errors }
  }

  close() {
    return this.consumer.disconnect()
  }
}

/**
 * Copies records to the same partitions of another topic, as jsonl.py describes it. It skips the records before the
 * offsets that it has committed, because kafkajs does not ask for stable offsets after a rejoin.
 */
class Copier {
  constructor(library, { group, protocol, source, sink, transactional_id }) {
    Object.assign(this, { library, group, protocol, source, sink, id: transactional_id })
    Object.assign(this, { copied: 0, instances: 0, errors: {}, step: 'open', done: {}, stopping: false })
    this.running = this.run()
  }

  async run() {
    while (!this.stopping) {
      this.instances++
      await this.copy().catch((error) => this.count(error))
      this.step = 'shut'
      for (const client of [this.consumer, this.producer]) await client?.disconnect().catch((error) => this.count(error))
    }
  }

  async copy() {
    this.step = 'open'
    this.producer = this.library.producer({ transactional_id: this.id, transaction_timeout_ms: 20_000, idempotent: true })
    await this.producer.connect()
    const { group, protocol } = this
    this.consumer = this.library.consumer({ group, protocol, isolation: 'read_committed', sessionMs: 6_000, heartbeatMs: 500 })
    await this.consumer.connect()
    await this.consumer.subscribe({ topics: [this.source] })
    const ended = new Promise((resolve) => { this.end = resolve })
    await this.consumer.run({ eachBatchAutoResolve: false, eachBatch: (payload) => this.copyBatch(payload) })
    if (!this.stopping) await ended
  }

  /** Copy a batch in a transaction. After an error the library reads it again, or another instance does. */
  async copyBatch({ batch, resolveOffset }) {
    if (this.stopping) return
    const { topic, partition } = batch
    const messages = batch.messages.filter(({ offset }) => Number(offset) >= (this.done[partition] ?? 0))
    const next = Number(batch.lastOffset()) + 1
    let transaction
    try {
      this.step = 'begin'
      transaction = await this.producer.transaction()
      this.step = 'send'
      const rows = messages.map(({ key, value }) => ({ topic: this.sink, message: { partition, key, value } }))
      if (rows.length) await this.library.send(transaction, rows)
      this.step = 'send_offsets'
      await this.library.commitGroup(transaction, this.group, [{ topic, partitions: [{ partition, offset: String(next) }] }], this.consumer)
      this.step = 'commit'
      await transaction.commit()
      this.done[partition] = next
      this.copied += messages.length
      resolveOffset(batch.lastOffset())
    } catch (error) {
      this.count(error)
      this.step = 'abort'
      await transaction?.abort().catch((failure) => { this.count(failure); this.end() })
      if (!transaction) this.end()
      throw error
    }
    this.step = 'poll'
  }

  count(error) {
    const key = `${this.step}: ${describe(error).type}`
    this.errors[key] = (this.errors[key] ?? 0) + 1
    console.error(`${this.id} ${new Date().toISOString()} ${this.step}:`, error)
  }

  state() {
    return { copied: this.copied, instances: this.instances, errors: this.errors, step: this.step }
  }

  async close() {
    this.stopping = true
    this.end?.()
    await this.running
  }
}

/** Return the ops by name. */
function operations(library) {
  const producers = {}, members = {}, copiers = {}
  const withAdmin = async (work) => {
    const admin = library.admin()
    await admin.connect()
    try {
      return await work(admin)
    } finally {
      await admin.disconnect()
    }
  }
  // Sends that nothing waited for come before the end of their transaction.
  const settle = async (own, isStrict) => {
    const results = await Promise.allSettled(own.pending.splice(0))
    const failed = results.find((result) => result.status === 'rejected')
    if (failed && isStrict) throw failed.reason
  }
  const topicRow = ({ name, partitions, configs }) => {
    const configEntries = Object.entries(configs).map(([key, value]) => ({ name: key, value }))
    return { topic: name, numPartitions: partitions, replicationFactor: 1, configEntries }
  }

  return {
    hello: () => ({ version: library.version, missing: library.missing }),
    create_topics: ({ topics }) => withAdmin((admin) => admin.createTopics({ topics: topics.map(topicRow), timeout: 20_000 })),
    delete_topics: ({ names }) => withAdmin((admin) => admin.deleteTopics({ topics: names, timeout: 20_000 })),
    list_topics: () => withAdmin(async (admin) => (await admin.listTopics()).sort()),
    producer_open: async (args) => {
      producers[args.id] = { producer: library.producer(args), options: args, pending: [], first: null }
      if (!args.transactional_id) await producers[args.id].producer.connect()
    },
    // kafkajs sends InitProducerId with its first transaction, which `begin` takes.
    init: async ({ id }) => {
      const own = producers[id]
      await own.producer.connect()
      if (library.hasLateInit) own.first = await own.producer.transaction()
    },
    begin: async ({ id }) => {
      const own = producers[id]
      own.transaction = own.first ?? (await own.producer.transaction())
      own.first = null
    },
    send: async ({ id, records, awaited }) => {
      const own = producers[id]
      const rows = records.map((row) => ({ topic: row.topic, message: message(row) }))
      // One after another: kafkajs gives overlapping sends the same sequences (tulios/kafkajs#1005).
      const sent = (own.pending.at(-1) ?? Promise.resolve()).then(() => library.send(own.transaction ?? own.producer, rows, own.options))
      sent.catch(() => {})
      if (awaited === false) own.pending.push(sent)
      else return await sent
    },
    send_offsets: async ({ id, group, offsets, member }) => {
      const topics = offsets.map(([topic, partition, offset]) => ({ topic, partitions: [{ partition, offset: String(offset) }] }))
      await library.commitGroup(producers[id].transaction, group, topics, members[member]?.consumer)
    },
    commit: async ({ id }) => { await settle(producers[id], true); await producers[id].transaction.commit() },
    abort: async ({ id }) => { await settle(producers[id], false); await producers[id].transaction.abort() },
    producer_close: async ({ id }) => {
      const { producer } = producers[id]
      delete producers[id]
      await producer.disconnect()
    },
    member_open: async ({ id, ...options }) => { members[id] = new Member(library, options); await members[id].open() },
    member_state: ({ id }) => members[id].state(),
    member_close: async ({ id }) => { await members[id].close(); delete members[id] },
    copier_open: ({ id, ...options }) => { copiers[id] = new Copier(library, options) },
    copier_state: ({ id }) => copiers[id].state(),
    copier_close: async ({ id }) => { await copiers[id].close(); delete copiers[id] },
    read: ({ topics, isolation }) => library.read(topics, isolation),
    committed: ({ group, partitions, isolation }) => library.committed(group, partitions, isolation),
  }
}

async function serve(open) {
  const [bootstrap, security] = process.argv.slice(2)
  const ops = operations(open(bootstrap.split(','), security ? JSON.parse(security) : {}))
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { op, args } = JSON.parse(line)
    let answer
    try {
      answer = { ok: (await ops[op](args)) ?? null }
    } catch (error) {
      answer = { error: describe(error) }
    }
    process.stdout.write(JSON.stringify(answer) + '\n')
  }
  // The process ends without waiting for clients that the scenario left open on purpose (zombies).
  process.exit(0)
}

module.exports = { serve, record, text }
