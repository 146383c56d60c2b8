// The conformance driver of kafkajs: `node kafkajs_driver.js BOOTSTRAP [SECURITY]`, with NODE_PATH where kafkajs is.
const fs = require('fs')
const { Kafka, logLevel, CompressionTypes, CompressionCodecs } = require('kafkajs')
const { serve, record } = require('./jsonl.js')

const missing = {
  'group-metadata': 'kafkajs sends no member id and generation with transactional offsets (KIP-447)',
  'codec-zstd': 'kafkajs takes zstd from a plugin, whose native module does not build for Node 20',
  'null-header': 'kafkajs refuses a header without a value',
  'consumer-protocol': 'kafkajs has the classic protocol only, no KIP-848',
}
const TYPES = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy, lz4: CompressionTypes.LZ4 }

/** Register the codecs that kafkajs takes from plugins. */
function addCodecs() {
  CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
  try {
    const Lz4 = require('kafkajs-lz4')
    CompressionCodecs[CompressionTypes.LZ4] = new Lz4().codec
  } catch (error) {
    missing['codec-lz4'] = `kafkajs-lz4 is a native module, which is not built here (${error.code})`
  }
}

function open(brokers, { mechanism, username, password, ca }) {
  addCodecs()
  const client = (bootstrap, requestTimeout = 30_000) => new Kafka({
    clientId: 'driver',
    brokers: bootstrap,
    logLevel: logLevel.NOTHING,
    requestTimeout,
    retry: { initialRetryTime: 50, maxRetryTime: 1000, retries: 20 },
    ...(ca && { ssl: { ca: [fs.readFileSync(ca)] } }),
    ...(mechanism && { sasl: { mechanism: mechanism.toLowerCase(), username, password } }),
  })
  const kafka = client(brokers)
  const assignments = new Map()
  let readers = 0

  const producer = ({ bootstrap, request_timeout_ms, transactional_id, transaction_timeout_ms, idempotent }) =>
    client(bootstrap ? [bootstrap] : brokers, request_timeout_ms ?? undefined).producer({
      ...(transactional_id && { transactionalId: transactional_id, transactionTimeout: transaction_timeout_ms }),
      idempotent,
      maxInFlightRequests: 1,
    })

  const consumer = ({ group, isolation, protocol, sessionMs, heartbeatMs, maxWaitTimeInMs = 100 }) => {
    if (protocol === 'consumer') throw new Error(missing['consumer-protocol'])
    const made = kafka.consumer({
      groupId: group,
      readUncommitted: isolation === 'read_uncommitted',
      sessionTimeout: sessionMs,
      heartbeatInterval: heartbeatMs,
      maxWaitTimeInMs,
      retry: { initialRetryTime: 50, maxRetryTime: 1000, retries: 20, restartOnFailure: async () => true },
    })
    const { GROUP_JOIN, REBALANCING, DISCONNECT } = made.events
    made.on(GROUP_JOIN, ({ payload }) => {
      assignments.set(made, Object.entries(payload.memberAssignment).flatMap(([topic, partitions]) => partitions.map((p) => [topic, p])))
    })
    for (const event of [REBALANCING, DISCONNECT]) made.on(event, () => assignments.delete(made))
    const subscribe = made.subscribe, run = made.run
    made.subscribe = ({ topics }) => subscribe({ topics, fromBeginning: true })
    made.run = (options) => run({ autoCommit: false, ...options })
    return made
  }

  const send = async (transaction, rows, { acks = 'all', compression = 'none' } = {}) => {
    const topics = new Map()
    for (const row of rows) topics.set(row.topic, [...(topics.get(row.topic) ?? []), row.message])
    const topicMessages = [...topics].map(([topic, messages]) => ({ topic, messages }))
    const answers = await transaction.sendBatch({ topicMessages, acks: acks === 'all' ? -1 : Number(acks), compression: TYPES[compression] })
    const next = Object.fromEntries(answers.map((answer) => [`${answer.topicName}-${answer.partition}`, Number(answer.baseOffset)]))
    return rows.map((row) => next[`${row.topic}-${row.message.partition}`]++ ?? -1)
  }

  /**
   * Read with a consumer of a new group, because kafkajs has no consumer without one. It does not tell the last stable
   * offset either: a fetch that returns nothing for any partition is the end.
   */
  const read = async (topics, isolation) => {
    const reader = consumer({ group: `reader-${process.pid}-${++readers}`, isolation, sessionMs: 30_000, heartbeatMs: 3_000, maxWaitTimeInMs: 10 })
    const found = []
    let isFetched = false, hasBatches = false
    await reader.connect()
    await reader.subscribe({ topics })
    const { REQUEST, FETCH_START, START_BATCH_PROCESS } = reader.events
    const ended = new Promise((resolve, reject) => {
      reader.on(REQUEST, ({ payload }) => { isFetched ||= payload.apiName === 'Fetch' })
      reader.on(START_BATCH_PROCESS, () => { hasBatches = true })
      reader.on(FETCH_START, () => {
        if (isFetched && !hasBatches) resolve()
        isFetched = hasBatches = false
      })
      reader.on(reader.events.CRASH, ({ payload }) => { if (!payload.restart) reject(payload.error) })
    })
    await reader.run({
      eachBatch: async ({ batch }) => {
        for (const each of batch.messages) found.push(record(batch.topic, batch.partition, { ...each, timestampType: each.batchContext?.timestampType }))
      },
    })
    try {
      await ended
    } finally {
      await reader.disconnect()
    }
    return found
  }

  const committed = async (group, partitions) => {
    const admin = kafka.admin()
    await admin.connect()
    try {
      const rows = await admin.fetchOffsets({ groupId: group, topics: [...new Set(partitions.map(([topic]) => topic))] })
      const offsetOf = ([topic, partition]) => Number(rows.find((row) => row.topic === topic).partitions.find((row) => row.partition === partition).offset)
      return partitions.map(offsetOf).map((offset) => (offset < 0 ? null : offset))
    } finally {
      await admin.disconnect()
    }
  }

  return {
    version: require('kafkajs/package.json').version,
    missing,
    hasLateInit: true,
    admin: () => kafka.admin(),
    producer,
    consumer,
    send,
    commitGroup: (transaction, group, topics) => transaction.sendOffsets({ consumerGroupId: group, topics }),
    assignmentOf: (made) => assignments.get(made) ?? [],
    read,
    committed,
  }
}

serve(open)
