// The producer of kafkajs, for retries only: `node kafkajs_driver.js BOOTSTRAP`, with NODE_PATH where kafkajs is. The
// lines are those of jsonl.py.
const readline = require('readline')
const { Kafka, logLevel } = require('kafkajs')

const kafka = (timeoutMs) => new Kafka({
  clientId: 'driver',
  brokers: [process.argv[2]],
  logLevel: logLevel.NOTHING,
  requestTimeout: timeoutMs || 30000,
  retry: { initialRetryTime: 50, maxRetryTime: 1000, retries: 20 },
})
const producers = {}

const ops = {
  hello: () => ({ version: require('kafkajs/package.json').version, missing: {} }),
  producer_open: async (args) => {
    const producer = kafka(args.request_timeout_ms).producer({
      transactionalId: args.transactional_id,
      transactionTimeout: args.transaction_timeout_ms,
      idempotent: true,
      maxInFlightRequests: 1,
    })
    await producer.connect()
    producers[args.id] = { producer, pending: [] }
    return null
  },
  init: () => null,
  begin: async ({ id }) => { producers[id].transaction = await producers[id].producer.transaction(); return null },
  send: async ({ id, records, awaited }) => {
    const own = producers[id]
    const messages = records.map((r) => ({ partition: r.partition, value: Buffer.from(r.value, 'base64') }))
    const { transaction } = own
    // One after another: it gives sends that overlap the same sequences (tulios/kafkajs#1005).
    const sent = (own.pending.at(-1) ?? Promise.resolve()).then(() => transaction.send({ topic: records[0].topic, messages, acks: -1 }))
    own.pending.push(sent)
    sent.catch(() => {})
    if (awaited !== false) await sent
    return null
  },
  commit: async ({ id }) => { await settle(producers[id], true); await producers[id].transaction.commit(); return null },
  abort: async ({ id }) => { await settle(producers[id], false); await producers[id].transaction.abort(); return null },
  producer_close: async ({ id }) => { await producers[id].producer.disconnect(); delete producers[id]; return null },
}

// It sends each call by itself, so that one that was not waited for would come behind the end of its transaction.
async function settle(own, strict) {
  const results = await Promise.allSettled(own.pending.splice(0))
  const failed = results.find((result) => result.status === 'rejected')
  if (failed && strict) throw failed.reason
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { op, args } = JSON.parse(line)
    let answer
    try {
      answer = { ok: await ops[op](args) }
    } catch (error) {
      answer = { error: { type: error.name, code: error.code ?? null, message: String(error.message) } }
    }
    process.stdout.write(JSON.stringify(answer) + '\n')
  }
  process.exit(0)
}

main()
