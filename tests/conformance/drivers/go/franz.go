package main

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The default of 5 s is longer than leaders stay in the tests that move them.
const metadataMinAge = 200 * time.Millisecond

type franz struct{ client *kgo.Client }

func openFranz(bootstrap string, a args) (producer, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.TransactionalID(a.TransactionalID),
		kgo.TransactionTimeout(time.Duration(a.TimeoutMs)*time.Millisecond),
		kgo.ProduceRequestTimeout(a.requestTimeout()),
		kgo.RequestTimeoutOverhead(a.requestTimeout()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerLinger(0),
		kgo.AllowAutoTopicCreation(),
		kgo.MetadataMinAge(metadataMinAge),
	)
	return franz{client}, err
}

func (f franz) begin() error { return f.client.BeginTransaction() }

func (f franz) send(records []row, awaited bool) ([]int64, error) {
	var lock sync.Mutex
	var failed error
	offsets := make([]int64, len(records))
	for i, r := range records {
		record := &kgo.Record{Topic: r.Topic, Partition: r.Partition, Key: decode(r.Key), Value: decode(r.Value)}
		f.client.Produce(context.Background(), record, func(r *kgo.Record, err error) {
			lock.Lock()
			defer lock.Unlock()
			offsets[i] = r.Offset
			if err != nil {
				failed = err
			}
		})
	}
	if !awaited {
		return nil, nil
	}
	limit, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := f.client.Flush(limit); err != nil {
		return nil, err
	}
	lock.Lock()
	defer lock.Unlock()
	return offsets, failed
}

func (f franz) end(commit bool) error {
	limit, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if !commit {
		if err := f.client.AbortBufferedRecords(limit); err != nil {
			return err
		}
	}
	return f.client.EndTransaction(limit, kgo.TransactionEndTry(commit))
}

func (f franz) close() { f.client.Close() }
