package main

import (
	"context"
	"errors"
	"sync"

	"github.com/IBM/sarama"
)

// The partitions of the group share the producer: one transaction at a time, of one partition.
type saramaInstance struct {
	group    sarama.ConsumerGroup
	producer producer
	lock     sync.Mutex
}

func (l saramaLibrary) openInstance(a copierArgs) (instance, error) {
	options := args{TransactionalID: a.transactionalID, TimeoutMs: int(copierTimeout.Milliseconds()), Acks: "all"}
	options.Bootstrap, options.Idempotent = l.bootstrap, true
	p, err := l.openProducer(options)
	if err != nil {
		return nil, err
	}
	config := l.config()
	config.ClientID = a.transactionalID
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Session.Timeout, config.Consumer.Group.Heartbeat.Interval = copierSession, copierHeartbeat
	group, err := sarama.NewConsumerGroup(l.brokers(l.bootstrap), a.Group, config)
	if err != nil {
		p.close()
		return nil, err
	}
	return &saramaInstance{group: group, producer: p}, nil
}

func (i *saramaInstance) close() {
	_ = i.group.Close()
	i.producer.close()
}

// copySome copies until a rebalance. After an error the next instance continues at the committed offsets.
func (i *saramaInstance) copySome(c *copier) bool {
	c.enter("poll")
	generation, end := context.WithCancel(c.ctx)
	defer end()
	handler := &saramaCopying{saramaInstance: i, copier: c, fail: end}
	err := i.group.Consume(generation, []string{c.args.Source}, handler)
	if generation.Err() != nil && errors.Is(err, context.Canceled) {
		err = nil
	}
	return !c.failed("poll", err) && generation.Err() == nil
}

type saramaCopying struct {
	*saramaInstance
	copier *copier
	fail   context.CancelFunc
}

func (s *saramaCopying) Setup(sarama.ConsumerGroupSession) error { return nil }

func (s *saramaCopying) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (s *saramaCopying) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for session.Context().Err() == nil {
		select {
		case <-session.Context().Done():
		case first, isOpen := <-claim.Messages():
			if isOpen && !s.copy(session, more(first, claim)) {
				s.fail()
				return nil
			}
		}
	}
	return nil
}

// more returns a message with those that are there already.
func more(first *sarama.ConsumerMessage, claim sarama.ConsumerGroupClaim) []*sarama.ConsumerMessage {
	messages := []*sarama.ConsumerMessage{first}
	for len(messages) < copierRecords {
		select {
		case next, isOpen := <-claim.Messages():
			if !isOpen {
				return messages
			}
			messages = append(messages, next)
		default:
			return messages
		}
	}
	return messages
}

// copy returns whether a transaction with these messages and their offset is committed.
func (s *saramaCopying) copy(session sarama.ConsumerGroupSession, messages []*sarama.ConsumerMessage) bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	if session.Context().Err() != nil {
		return true
	}
	c, last := s.copier, messages[len(messages)-1]
	rows := make([]record, len(messages))
	for i, m := range messages {
		rows[i] = record{Topic: c.args.Sink, Partition: m.Partition, Key: m.Key, Value: m.Value}
	}
	of := metadata{c.args.Group, session.MemberID(), session.GenerationID()}
	steps := []struct {
		name string
		run  func() error
	}{
		{"begin", s.producer.begin},
		{"send", func() error { _, err := s.producer.send(rows, true); return err }},
		{"send_offsets", func() error {
			return s.producer.sendOffsets(of, []place{{last.Topic, last.Partition, last.Offset + 1}})
		}},
		{"commit", func() error { return s.producer.end(true) }},
	}
	for _, step := range steps {
		c.enter(step.name)
		if c.failed(step.name, step.run()) {
			c.failed("abort", s.producer.end(false))
			return false
		}
	}
	c.add(len(messages))
	c.enter("poll")
	return true
}
