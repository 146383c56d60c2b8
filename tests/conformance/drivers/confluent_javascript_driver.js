// The conformance driver of @confluentinc/kafka-javascript (librdkafka):
// `node confluent_javascript_driver.js BOOTSTRAP [SECURITY]`, with NODE_PATH where the package is.
const RdKafka = require('@confluentinc/kafka-javascript')
const { serve, record, text } = require('./jsonl.js')

const { Kafka } = RdKafka.KafkaJS
const OFFSET_BEGINNING = -2
const UNSTABLE_OFFSET_COMMIT = 88
const CODECS = ['gzip', 'snappy', 'lz4', 'zstd']

function open(brokers, { mechanism, username, password, ca }) {
  const absent = CODECS.filter((codec) => !RdKafka.features.includes(codec))
  const missing = {
    'empty-record': 'confluent-kafka-javascript sends an empty key or value as null',
    'null-header': 'confluent-kafka-javascript refuses a header without a value',
    ...Object.fromEntries(absent.map((codec) => [`codec-${codec}`, `this librdkafka is built without ${codec}`])),
  }
  const common = (bootstrap) => ({
    'bootstrap.servers': bootstrap ?? brokers.join(','),
    log_level: 2,
    'reconnect.backoff.ms': 50,
    ...((ca || mechanism) && { 'security.protocol': `${mechanism ? 'SASL_' : ''}${ca ? 'SSL' : 'PLAINTEXT'}` }),
    ...(ca && { 'ssl.ca.location': ca }),
    ...(mechanism && { 'sasl.mechanism': mechanism, 'sasl.username': username, 'sasl.password': password }),
  })
  const kafka = new Kafka({})

  const producer = ({ bootstrap, request_timeout_ms, transactional_id, transaction_timeout_ms, idempotent, acks, compression }) => kafka.producer({
    ...common(bootstrap),
    'enable.idempotence': idempotent,
    'linger.ms': 1,
    acks: acks ?? 'all',
    'compression.type': compression ?? 'none',
    ...(request_timeout_ms && { 'socket.timeout.ms': request_timeout_ms }),
    ...(transactional_id && { 'transactional.id': transactional_id, 'transaction.timeout.ms': transaction_timeout_ms, 'message.timeout.ms': transaction_timeout_ms }),
  })

  const consumer = ({ group, isolation, protocol = 'classic', sessionMs, heartbeatMs }) => kafka.consumer({
    ...common(),
    'group.id': group,
    'isolation.level': isolation,
    'group.protocol': protocol,
    'auto.offset.reset': 'earliest',
    'enable.auto.commit': false,
    ...(protocol === 'classic' && { 'session.timeout.ms': sessionMs, 'heartbeat.interval.ms': heartbeatMs }),
  })

  // Each record in a call: the answer to several has the first offset only.
  const send = (transaction, rows) => Promise.all(rows.map(async ({ topic, message }) => {
    const [answer] = await transaction.send({ topic, messages: [message] })
    return Number(answer.baseOffset)
  }))

  const commitGroup = async (transaction, group, topics, member) => {
    if (member) return transaction.sendOffsets({ consumer: member, topics })
    const alone = consumer({ group, isolation: 'read_committed', sessionMs: 10_000, heartbeatMs: 300 })
    await alone.connect()
    try {
      await transaction.sendOffsets({ consumer: alone, topics })
    } finally {
      await alone.disconnect()
    }
  }

  const assignmentOf = (member) => member.assignment().map(({ topic, partition }) => [topic, partition])

  const called = (target, method, ...args) => new Promise((resolve, reject) => {
    target[method](...args, (error, result) => (error ? reject(error) : resolve(result)))
  })

  /** Read with the older callbacks, which can assign partitions without a group. */
  const read = async (topics, isolation) => {
    const options = { 'group.id': 'reader-without-a-group', 'isolation.level': isolation, 'enable.auto.commit': false, 'enable.partition.eof': true }
    const reader = new RdKafka.KafkaConsumer({ ...common(), ...options, 'fetch.wait.max.ms': 10 }, {})
    reader.setDefaultConsumeTimeout(100)
    const found = [], ends = new Set()
    reader.on('partition.eof', ({ topic, partition }) => ends.add(`${topic}-${partition}`))
    await called(reader, 'connect', {})
    try {
      const assigned = []
      for (const topic of topics) {
        const metadata = await called(reader, 'getMetadata', { topic, timeout: 20_000 })
        for (const { id } of metadata.topics.find(({ name }) => name === topic).partitions) assigned.push({ topic, partition: id, offset: OFFSET_BEGINNING })
      }
      reader.assign(assigned)
      while (ends.size < assigned.length) {
        for (const each of await called(reader, 'consume', 500)) {
          const headers = (each.headers ?? []).flatMap((header) => Object.entries(header)).map(([name, data]) => [name, text(data)])
          found.push(record(each.topic, each.partition, { ...each, headers }))
        }
      }
    } finally {
      await called(reader, 'disconnect')
    }
    return found
  }

  const committed = async (group, partitions, isolation) => {
    const admin = kafka.admin(common())
    await admin.connect()
    try {
      const topics = partitions.map(([topic, partition]) => ({ topic, partitions: [partition] }))
      for (;;) {
        const rows = await admin.fetchOffsets({ groupId: group, topics, requireStableOffsets: isolation === 'read_committed', timeout: 20_000 })
        const of = ([topic, partition]) => rows.find((row) => row.topic === topic).partitions.find((row) => row.partition === partition)
        const errors = partitions.map(of).filter(({ error }) => error).map(({ error }) => error)
        const fatal = errors.find(({ code }) => code !== UNSTABLE_OFFSET_COMMIT)
        if (fatal) throw fatal
        if (!errors.length) return partitions.map((place) => Number(of(place).offset)).map((offset) => (offset < 0 ? null : offset))
      }
    } finally {
      await admin.disconnect()
    }
  }

  return {
    version: `${require('@confluentinc/kafka-javascript/package.json').version} (librdkafka ${RdKafka.librdkafkaVersion})`,
    missing,
    admin: () => kafka.admin(common()),
    producer,
    consumer,
    send,
    commitGroup,
    assignmentOf,
    read,
    committed,
  }
}

serve(open)
