package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/rcrowley/go-metrics"
	"github.com/xdg-go/scram"
)

type saramaLibrary struct {
	bootstrap string
	config    func() *sarama.Config
}

func openSarama(bootstrap string, s security) (library, error) {
	trusted, err := s.tls()
	if err != nil {
		return nil, err
	}
	return saramaLibrary{bootstrap: bootstrap, config: func() *sarama.Config {
		config := sarama.NewConfig()
		config.Version = sarama.MaxVersion
		config.Metadata.Retry.Max = 20
		config.Net.TLS.Enable, config.Net.TLS.Config = trusted != nil, trusted
		if s.Mechanism != "" {
			config.Net.SASL.Enable = true
			config.Net.SASL.Mechanism = sarama.SASLMechanism(s.Mechanism)
			config.Net.SASL.User, config.Net.SASL.Password = s.Username, s.Password
			config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &saramaScram{mechanism: s.Mechanism} }
		}
		return config
	}}, nil
}

// The library leaves SCRAM to another package, as its example does.
type saramaScram struct {
	mechanism string
	*scram.ClientConversation
}

func (s *saramaScram) Begin(username, password, authzID string) error {
	hash := scram.SHA256
	if s.mechanism == sarama.SASLTypeSCRAMSHA512 {
		hash = scram.SHA512
	}
	client, err := hash.NewClient(username, password, authzID)
	if err == nil {
		s.ClientConversation = client.NewConversation()
	}
	return err
}

func (l saramaLibrary) brokers(bootstrap string) []string { return strings.Split(bootstrap, ",") }

func (l saramaLibrary) missing() map[string]string {
	return map[string]string{
		"consumer-protocol": "it has classic groups only",
	}
}

func (l saramaLibrary) administer(use func(admin sarama.ClusterAdmin) error) error {
	admin, err := sarama.NewClusterAdmin(l.brokers(l.bootstrap), l.config())
	if err != nil {
		return err
	}
	return errors.Join(use(admin), admin.Close())
}

func (l saramaLibrary) createTopics(topics []newTopic) error {
	return l.administer(func(admin sarama.ClusterAdmin) error { return createAll(admin, topics) })
}

func createAll(admin sarama.ClusterAdmin, topics []newTopic) error {
	for _, t := range topics {
		configs := map[string]*string{}
		for name, value := range t.Configs {
			configs[name] = &value
		}
		detail := &sarama.TopicDetail{NumPartitions: t.Partitions, ReplicationFactor: 1, ConfigEntries: configs}
		if err := admin.CreateTopic(t.Name, detail, false); err != nil {
			return err
		}
	}
	return nil
}

func (l saramaLibrary) deleteTopics(names []string) error {
	return l.administer(func(admin sarama.ClusterAdmin) error {
		for _, name := range names {
			if err := admin.DeleteTopic(name); err != nil {
				return err
			}
		}
		return nil
	})
}

func (l saramaLibrary) listTopics() (names []string, err error) {
	err = l.administer(func(admin sarama.ClusterAdmin) error {
		listed, err := admin.ListTopics()
		names = slices.Collect(maps.Keys(listed))
		return err
	})
	return names, err
}

// committed waits for positions of open transactions as a consumer does; the admin client does not.
func (l saramaLibrary) committed(a args) ([]*int64, error) {
	if a.isCommitted() {
		return l.stablePositions(a)
	}
	asked := map[string][]int32{}
	for _, p := range a.Partitions {
		asked[p.topic] = append(asked[p.topic], p.partition)
	}
	var found *sarama.OffsetFetchResponse
	err := l.administer(func(admin sarama.ClusterAdmin) (err error) {
		found, err = admin.ListConsumerGroupOffsets(a.Group, asked)
		return err
	})
	if err != nil {
		return nil, err
	}
	answers := make([]*int64, len(a.Partitions))
	for i, p := range a.Partitions {
		block := found.GetBlock(p.topic, p.partition)
		if block == nil || block.Err != sarama.ErrNoError {
			return nil, fmt.Errorf("no answer for %v: %v", p, block)
		}
		answers[i] = positionOrNull(block.Offset)
	}
	return answers, nil
}

func (l saramaLibrary) stablePositions(a args) ([]*int64, error) {
	config := l.config()
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Consumer.Offsets.AutoCommit.Enable = false
	client, err := sarama.NewClient(l.brokers(l.bootstrap), config)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	manager, err := sarama.NewOffsetManagerFromClient(a.Group, client)
	if err != nil {
		return nil, err
	}
	defer manager.Close()
	answers := make([]*int64, len(a.Partitions))
	for i, p := range a.Partitions {
		managed, err := manager.ManagePartition(p.topic, p.partition)
		if err != nil {
			return nil, err
		}
		offset, _ := managed.NextOffset()
		answers[i] = positionOrNull(offset)
		managed.AsyncClose()
	}
	return answers, nil
}

func positionOrNull(offset int64) *int64 {
	if offset < 0 {
		return nil
	}
	return &offset
}

func saramaIsolation(isCommitted bool) sarama.IsolationLevel {
	if isCommitted {
		return sarama.ReadCommitted
	}
	return sarama.ReadUncommitted
}

func (l saramaLibrary) read(topics []string, isCommitted bool) ([]record, error) {
	config := l.config()
	config.Consumer.IsolationLevel = saramaIsolation(isCommitted)
	config.Consumer.MaxWaitTime = 10 * time.Millisecond
	client, err := sarama.NewClient(l.brokers(l.bootstrap), config)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	found := []record{}
	for _, topic := range topics {
		partitions, err := client.Partitions(topic)
		if err != nil {
			return nil, err
		}
		for _, partition := range partitions {
			// Each has metrics of its own, and they tell when an answer had no batch: the end.
			config.MetricRegistry = metrics.NewRegistry()
			read, err := readToEnd(client, topic, partition, config.MetricRegistry)
			if err != nil {
				return nil, err
			}
			found = append(found, read...)
		}
	}
	return found, nil
}

// readToEnd reads until an answer is empty. The consumer does not say how far it is behind markers and aborted records.
func readToEnd(client sarama.Client, topic string, partition int32, registry metrics.Registry) ([]record, error) {
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	reading, err := consumer.ConsumePartition(topic, partition, sarama.OffsetOldest)
	if err != nil {
		return nil, err
	}
	defer reading.Close()
	found := []record{}
	deadline := time.After(patienceOfReads)
	for {
		isAtEnd := false
		if sizes, ok := registry.Get("consumer-batch-size").(metrics.Histogram); ok {
			isAtEnd = sizes.Count() > 0 && sizes.Min() == 0
		}
		select {
		case message := <-reading.Messages():
			found = append(found, saramaRecord(message))
			continue
		case <-deadline:
			return nil, fmt.Errorf("stuck in %s-%d after %d records", topic, partition, len(found))
		default:
		}
		if isAtEnd {
			return found, nil
		}
		time.Sleep(time.Millisecond)
	}
}

func saramaRecord(m *sarama.ConsumerMessage) record {
	headers := []header{}
	for _, h := range m.Headers {
		headers = append(headers, header{string(h.Key), h.Value})
	}
	return record{m.Topic, m.Partition, m.Offset, [2]int64{0, m.Timestamp.UnixMilli()}, m.Key, m.Value, headers}
}

func (l saramaLibrary) join(m *member) error {
	config := l.config()
	config.Consumer.IsolationLevel = saramaIsolation(m.isCommitted())
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Session.Timeout, config.Consumer.Group.Heartbeat.Interval = session, heartbeat
	group, err := sarama.NewConsumerGroup(l.brokers(l.bootstrap), m.Group, config)
	if err != nil {
		return err
	}
	for err == nil && m.ctx.Err() == nil {
		err = group.Consume(m.ctx, m.topics(), saramaHandler{m})
	}
	if m.ctx.Err() != nil {
		err = nil
	}
	return errors.Join(err, group.Close())
}

type saramaHandler struct{ member *member }

func (h saramaHandler) Setup(s sarama.ConsumerGroupSession) error {
	h.member.own(s.Claims(), s.MemberID(), s.GenerationID())
	return nil
}

func (h saramaHandler) Cleanup(sarama.ConsumerGroupSession) error {
	h.member.own(nil, "", -1)
	return nil
}

func (h saramaHandler) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, isOpen := <-claim.Messages():
			if !isOpen {
				return nil
			}
			h.member.take(saramaRecord(message))
			s.MarkMessage(message, "")
			s.Commit()
		case <-s.Context().Done():
			return nil
		}
	}
}

type saramaProducer struct {
	async   sarama.AsyncProducer
	pending int
}

var saramaCodecs = map[string]sarama.CompressionCodec{
	"gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
	"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

var saramaAcks = map[string]sarama.RequiredAcks{
	"0": sarama.NoResponse, "1": sarama.WaitForLocal, "all": sarama.WaitForAll,
}

func (l saramaLibrary) openProducer(a args) (producer, error) {
	config := l.config()
	config.Producer.Idempotent = a.Idempotent
	config.Producer.RequiredAcks = saramaAcks[a.Acks]
	config.Producer.Compression = saramaCodecs[a.Compression]
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Retry.Max = 20
	config.Producer.Retry.Backoff = 100 * time.Millisecond
	config.Net.MaxOpenRequests = 1
	config.Net.ReadTimeout = a.requestTimeout()
	if a.TransactionalID != "" {
		config.Producer.Transaction.ID = a.TransactionalID
		config.Producer.Transaction.Timeout = time.Duration(a.TimeoutMs) * time.Millisecond
		config.Producer.Transaction.Retry.Max = 100
	}
	async, err := sarama.NewAsyncProducer(l.brokers(a.Bootstrap), config)
	if err != nil {
		return nil, err
	}
	return &saramaProducer{async: async}, nil
}

// init has nothing to do: a transactional producer asks for its id when it is opened.
func (s *saramaProducer) init() error { return nil }

func (s *saramaProducer) begin() error { return s.async.BeginTxn() }

func (s *saramaProducer) send(records []record, awaited bool) ([]int64, error) {
	messages := make([]*sarama.ProducerMessage, len(records))
	for i, r := range records {
		messages[i] = &sarama.ProducerMessage{Topic: r.Topic, Partition: r.Partition}
		if r.Key != nil {
			messages[i].Key = sarama.ByteEncoder(r.Key)
		}
		if r.Value != nil {
			messages[i].Value = sarama.ByteEncoder(r.Value)
		}
		for _, h := range r.Headers {
			messages[i].Headers = append(messages[i].Headers, sarama.RecordHeader{Key: []byte(h.name), Value: h.value})
		}
	}
	if err := s.sendAll(messages); err != nil || !awaited {
		return nil, err
	}
	err := s.settle()
	offsets := make([]int64, len(messages))
	for i, message := range messages {
		offsets[i] = message.Offset
	}
	return offsets, err
}

// sendAll takes answers while it sends: the library stops when they are not taken.
func (s *saramaProducer) sendAll(messages []*sarama.ProducerMessage) error {
	limit := time.After(patience)
	for len(messages) > 0 {
		select {
		case s.async.Input() <- messages[0]:
			s.pending++
			messages = messages[1:]
		case <-s.async.Successes():
			s.pending--
		case err := <-s.async.Errors():
			s.pending--
			return err
		case <-limit:
			return fmt.Errorf("no room")
		}
	}
	return nil
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

func (s *saramaProducer) sendOffsets(of metadata, offsets []place) error {
	positions := map[string][]*sarama.PartitionOffsetMetadata{}
	for _, o := range offsets {
		row := &sarama.PartitionOffsetMetadata{Partition: o.partition, Offset: o.offset, LeaderEpoch: -1}
		positions[o.topic] = append(positions[o.topic], row)
	}
	group := &sarama.ConsumerGroupMetadata{GroupID: of.group, MemberID: of.member, GenerationID: of.generation}
	return s.async.AddOffsetsToTxnWithGroupMetadata(positions, group)
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
