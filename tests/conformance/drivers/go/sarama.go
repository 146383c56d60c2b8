package main

import (
	"fmt"
	"time"

	"github.com/IBM/sarama"
)

type saramaProducer struct {
	async   sarama.AsyncProducer
	pending int
}

func openSarama(bootstrap string, a args) (producer, error) {
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Transaction.ID = a.TransactionalID
	config.Producer.Transaction.Timeout = time.Duration(a.TimeoutMs) * time.Millisecond
	config.Producer.Retry.Max = 20
	config.Producer.Retry.Backoff = 100 * time.Millisecond
	config.Producer.Transaction.Retry.Max = 100
	config.Net.MaxOpenRequests = 1
	config.Net.ReadTimeout = a.requestTimeout()
	config.Metadata.Retry.Max = 20
	async, err := sarama.NewAsyncProducer([]string{bootstrap}, config)
	if err != nil {
		return nil, err
	}
	return &saramaProducer{async: async}, nil
}

func (s *saramaProducer) begin() error { return s.async.BeginTxn() }

func (s *saramaProducer) send(records []row, awaited bool) ([]int64, error) {
	for _, r := range records {
		message := &sarama.ProducerMessage{Topic: r.Topic, Partition: r.Partition, Value: sarama.ByteEncoder(decode(r.Value))}
		select {
		case s.async.Input() <- message:
			s.pending++
		case <-time.After(30 * time.Second):
			return nil, fmt.Errorf("no room")
		}
	}
	if !awaited {
		return nil, nil
	}
	return nil, s.settle()
}

// settle waits for what is told of every message that was sent.
func (s *saramaProducer) settle() error {
	var failed error
	limit := time.After(60 * time.Second)
	for ; s.pending > 0; s.pending-- {
		select {
		case <-s.async.Successes():
		case err := <-s.async.Errors():
			failed = err
		case <-limit:
			return fmt.Errorf("%d messages without an answer", s.pending)
		}
	}
	return failed
}

func (s *saramaProducer) end(commit bool) error {
	if err := s.settle(); err != nil && commit {
		return err
	}
	if commit {
		return s.async.CommitTxn()
	}
	return s.async.AbortTxn()
}

func (s *saramaProducer) close() { s.async.AsyncClose() }
