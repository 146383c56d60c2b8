package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

type kafkaGo struct {
	bootstrap string
	mechanism sasl.Mechanism
	trusted   *tls.Config
	client    *kafka.Client
}

func openKafkaGo(bootstrap string, s security) (library, error) {
	trusted, err := s.tls()
	if err != nil {
		return nil, err
	}
	k := kafkaGo{bootstrap: bootstrap, trusted: trusted}
	switch s.Mechanism {
	case "PLAIN":
		k.mechanism = plain.Mechanism{Username: s.Username, Password: s.Password}
	case "SCRAM-SHA-256":
		k.mechanism, err = scram.Mechanism(scram.SHA256, s.Username, s.Password)
	case "SCRAM-SHA-512":
		k.mechanism, err = scram.Mechanism(scram.SHA512, s.Username, s.Password)
	}
	k.client = &kafka.Client{Addr: kafka.TCP(k.brokers()...), Timeout: patience, Transport: k.transport()}
	return k, err
}

func (k kafkaGo) brokers() []string { return strings.Split(k.bootstrap, ",") }

func (k kafkaGo) transport() *kafka.Transport {
	return &kafka.Transport{TLS: k.trusted, SASL: k.mechanism, MetadataTTL: 100 * time.Millisecond}
}

func (k kafkaGo) dialer() *kafka.Dialer {
	return &kafka.Dialer{Timeout: patience, TLS: k.trusted, SASLMechanism: k.mechanism}
}

func (k kafkaGo) missing() map[string]string {
	return map[string]string{
		"transactions":      "its Writer has no transactions",
		"idempotence":       "its Writer has no producer id",
		"consumer-protocol": "it has classic groups only",
		"empty-bytes":       "its Reader returns empty bytes as null",
		"read-committed":    "its Reader returns aborted records and markers like others",
		"copier":            "its Writer has no transactions",
	}
}

func (k kafkaGo) createTopics(topics []newTopic) error {
	request := &kafka.CreateTopicsRequest{}
	for _, t := range topics {
		row := kafka.TopicConfig{Topic: t.Name, NumPartitions: int(t.Partitions), ReplicationFactor: 1}
		for name, value := range t.Configs {
			row.ConfigEntries = append(row.ConfigEntries, kafka.ConfigEntry{ConfigName: name, ConfigValue: value})
		}
		request.Topics = append(request.Topics, row)
	}
	created, err := k.client.CreateTopics(context.Background(), request)
	if err != nil {
		return err
	}
	return join(created.Errors)
}

func join(failures map[string]error) error {
	all := []error{}
	for _, err := range failures {
		all = append(all, err)
	}
	return errors.Join(all...)
}

func (k kafkaGo) deleteTopics(names []string) error {
	deleted, err := k.client.DeleteTopics(context.Background(), &kafka.DeleteTopicsRequest{Topics: names})
	if err != nil {
		return err
	}
	return join(deleted.Errors)
}

func (k kafkaGo) listTopics() ([]string, error) {
	found, err := k.client.Metadata(context.Background(), &kafka.MetadataRequest{})
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, topic := range found.Topics {
		names = append(names, topic.Name)
	}
	return names, nil
}

func (k kafkaGo) committed(a args) ([]*int64, error) {
	asked := map[string][]int{}
	for _, p := range a.Partitions {
		asked[p.topic] = append(asked[p.topic], int(p.partition))
	}
	found, err := k.client.OffsetFetch(context.Background(), &kafka.OffsetFetchRequest{GroupID: a.Group, Topics: asked})
	if err == nil {
		err = found.Error
	}
	if err != nil {
		return nil, err
	}
	answers := make([]*int64, len(a.Partitions))
	for i, p := range a.Partitions {
		for _, row := range found.Topics[p.topic] {
			if row.Error != nil {
				return nil, row.Error
			}
			if row.Partition == int(p.partition) {
				answers[i] = positionOrNull(row.CommittedOffset)
			}
		}
	}
	return answers, nil
}

func kafkaGoIsolation(isCommitted bool) kafka.IsolationLevel {
	if isCommitted {
		return kafka.ReadCommitted
	}
	return kafka.ReadUncommitted
}

func (k kafkaGo) read(topics []string, isCommitted bool) ([]record, error) {
	limit, cancel := context.WithTimeout(context.Background(), patienceOfReads)
	defer cancel()
	found := []record{}
	for _, topic := range topics {
		ends, err := k.ends(limit, topic, isCommitted)
		if err != nil {
			return nil, err
		}
		for _, end := range ends {
			if end.LastOffset <= end.FirstOffset {
				continue
			}
			read, err := k.readToEnd(limit, topic, end, isCommitted)
			if err != nil {
				return nil, err
			}
			found = append(found, read...)
		}
	}
	return found, nil
}

// ends returns the first and the last offset of each partition.
func (k kafkaGo) ends(limit context.Context, topic string, isCommitted bool) ([]kafka.PartitionOffsets, error) {
	described, err := k.client.Metadata(limit, &kafka.MetadataRequest{Topics: []string{topic}})
	if err == nil {
		err = described.Topics[0].Error
	}
	if err != nil {
		return nil, err
	}
	asked := []kafka.OffsetRequest{}
	for _, p := range described.Topics[0].Partitions {
		asked = append(asked, kafka.FirstOffsetOf(p.ID), kafka.LastOffsetOf(p.ID))
	}
	listed, err := k.client.ListOffsets(limit, &kafka.ListOffsetsRequest{
		Topics: map[string][]kafka.OffsetRequest{topic: asked}, IsolationLevel: kafkaGoIsolation(isCommitted),
	})
	if err != nil {
		return nil, err
	}
	for _, row := range listed.Topics[topic] {
		err = errors.Join(err, row.Error)
	}
	return listed.Topics[topic], err
}

func (k kafkaGo) readToEnd(limit context.Context, topic string, end kafka.PartitionOffsets, isCommitted bool) ([]record, error) {
	reader := k.reader(topic, end.Partition, isCommitted)
	defer reader.Close()
	found := []record{}
	for {
		message, err := reader.ReadMessage(limit)
		if err != nil {
			return nil, fmt.Errorf("stuck before %d of %s: %w", end.LastOffset, topic, err)
		}
		found = append(found, kafkaGoRecord(message))
		if message.Offset >= end.LastOffset-1 {
			return found, nil
		}
	}
}

func (k kafkaGo) reader(topic string, partition int, isCommitted bool) *kafka.Reader {
	return kafka.NewReader(kafka.ReaderConfig{
		Brokers: k.brokers(), Dialer: k.dialer(), Topic: topic, Partition: partition, MaxBytes: 10 << 20,
		MaxWait: 100 * time.Millisecond, ReadLagInterval: -1, IsolationLevel: kafkaGoIsolation(isCommitted),
	})
}

func kafkaGoRecord(m kafka.Message) record {
	headers := []header{}
	for _, h := range m.Headers {
		headers = append(headers, header{h.Key, h.Value})
	}
	return record{m.Topic, int32(m.Partition), m.Offset, [2]int64{0, m.Time.UnixMilli()}, m.Key, m.Value, headers}
}

// join uses generations: a Reader with a group does not say what it is assigned.
func (k kafkaGo) join(m *member) error {
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: m.Group, Brokers: k.brokers(), Dialer: k.dialer(), Topics: m.topics(), StartOffset: kafka.FirstOffset,
		SessionTimeout: session, RebalanceTimeout: session, HeartbeatInterval: heartbeat,
	})
	if err != nil {
		return err
	}
	for {
		generation, err := group.Next(m.ctx)
		if m.ctx.Err() != nil {
			return group.Close()
		}
		if err != nil {
			return errors.Join(err, group.Close())
		}
		shares := map[string][]int32{}
		for topic, partitions := range generation.Assignments {
			for _, p := range partitions {
				shares[topic] = append(shares[topic], int32(p.ID))
				generation.Start(func(ctx context.Context) { k.follow(ctx, m, generation, topic, p) })
			}
		}
		m.own(shares, generation.MemberID, generation.ID)
	}
}

// follow reads and commits a partition until the generation ends.
func (k kafkaGo) follow(ctx context.Context, m *member, generation *kafka.Generation, topic string, p kafka.PartitionAssignment) {
	reader := k.reader(topic, p.ID, m.isCommitted())
	defer reader.Close()
	if err := reader.SetOffset(p.Offset); err != nil {
		m.note(err)
		return
	}
	for {
		message, err := reader.ReadMessage(ctx)
		if errors.Is(err, kafka.ErrGenerationEnded) {
			return
		}
		if err != nil {
			m.note(err)
			return
		}
		m.take(kafkaGoRecord(message))
		m.note(generation.CommitOffsets(map[string]map[int]int64{topic: {p.ID: message.Offset + 1}}))
	}
}

type kafkaGoProducer struct {
	writer  *kafka.Writer
	lock    sync.Mutex
	offsets map[int]int64
}

var kafkaGoCodecs = map[string]kafka.Compression{
	"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
}

var kafkaGoAcks = map[string]kafka.RequiredAcks{
	"0": kafka.RequireNone, "1": kafka.RequireOne, "all": kafka.RequireAll,
}

var errNoTransactions = errors.New("kafka-go has no transactions")

// What the Writer carries for a record: the balancer returns the partition, and the offset belongs to the row.
type placed struct{ row, partition int }

func (k kafkaGo) openProducer(a args) (producer, error) {
	if a.TransactionalID != "" {
		return nil, errNoTransactions
	}
	p := &kafkaGoProducer{offsets: map[int]int64{}}
	p.writer = &kafka.Writer{
		Addr: kafka.TCP(strings.Split(a.Bootstrap, ",")...), Transport: k.transport(), RequiredAcks: kafkaGoAcks[a.Acks],
		Compression: kafkaGoCodecs[a.Compression], BatchTimeout: time.Millisecond, ReadTimeout: a.requestTimeout(),
		Completion: p.confirm,
		Balancer:   kafka.BalancerFunc(func(m kafka.Message, _ ...int) int { return m.WriterData.(placed).partition }),
	}
	return p, nil
}

func (p *kafkaGoProducer) confirm(messages []kafka.Message, _ error) {
	p.lock.Lock()
	defer p.lock.Unlock()
	for _, m := range messages {
		p.offsets[m.WriterData.(placed).row] = m.Offset
	}
}

func (p *kafkaGoProducer) init() error { return errNoTransactions }

func (p *kafkaGoProducer) begin() error { return errNoTransactions }

func (p *kafkaGoProducer) send(records []record, awaited bool) ([]int64, error) {
	messages := make([]kafka.Message, len(records))
	for i, r := range records {
		messages[i] = kafka.Message{Topic: r.Topic, Key: r.Key, Value: r.Value, WriterData: placed{i, int(r.Partition)}}
		for _, h := range r.Headers {
			messages[i].Headers = append(messages[i].Headers, kafka.Header{Key: h.name, Value: h.value})
		}
	}
	p.writer.Async = !awaited
	err := p.writer.WriteMessages(context.Background(), messages...)
	if failures, ok := err.(kafka.WriteErrors); ok {
		err = errors.Join(failures...)
	}
	if err != nil || !awaited {
		return nil, err
	}
	p.lock.Lock()
	defer p.lock.Unlock()
	offsets := make([]int64, len(records))
	for i := range records {
		offsets[i] = p.offsets[i]
	}
	return offsets, nil
}

func (p *kafkaGoProducer) sendOffsets(metadata, []place) error { return errNoTransactions }

func (k kafkaGo) openInstance(copierArgs) (instance, error) { return nil, errNoTransactions }

func (p *kafkaGoProducer) end(bool) error { return errNoTransactions }

func (p *kafkaGoProducer) close() { _ = p.writer.Close() }
