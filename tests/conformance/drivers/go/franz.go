package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// The default of 5 s is longer than leaders stay in the tests that move them.
const metadataMinAge = 200 * time.Millisecond

type franz struct {
	bootstrap string
	security  []kgo.Opt
	admin     *kadm.Client
}

func openFranz(bootstrap string, s security) (library, error) {
	options, err := franzSecurity(s)
	if err != nil {
		return nil, err
	}
	f := franz{bootstrap: bootstrap, security: options}
	client, err := f.client(bootstrap)
	if err != nil {
		return nil, err
	}
	f.admin = kadm.NewClient(client)
	return f, nil
}

func franzSecurity(s security) ([]kgo.Opt, error) {
	var options []kgo.Opt
	switch s.Mechanism {
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: s.Username, Pass: s.Password}.AsMechanism()))
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(scram.Auth{User: s.Username, Pass: s.Password}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		options = append(options, kgo.SASL(scram.Auth{User: s.Username, Pass: s.Password}.AsSha512Mechanism()))
	}
	config, err := s.tls()
	if config != nil {
		options = append(options, kgo.DialTLSConfig(config))
	}
	return options, err
}

func (f franz) client(bootstrap string, options ...kgo.Opt) (*kgo.Client, error) {
	options = append(options, f.security...)
	return kgo.NewClient(append(options, kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.MetadataMinAge(metadataMinAge))...)
}

func wait() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), patience)
}

func (f franz) missing() map[string]string { return map[string]string{} }

func (f franz) createTopics(topics []newTopic) error {
	limit, cancel := wait()
	defer cancel()
	for _, t := range topics {
		configs := map[string]*string{}
		for name, value := range t.Configs {
			configs[name] = &value
		}
		if _, err := f.admin.CreateTopic(limit, t.Partitions, 1, configs, t.Name); err != nil {
			return err
		}
	}
	return nil
}

func (f franz) deleteTopics(names []string) error {
	limit, cancel := wait()
	defer cancel()
	deleted, err := f.admin.DeleteTopics(limit, names...)
	return errors.Join(err, deleted.Error())
}

func (f franz) listTopics() ([]string, error) {
	limit, cancel := wait()
	defer cancel()
	listed, err := f.admin.ListTopics(limit)
	return listed.Names(), err
}

func (f franz) committed(a args) ([]*int64, error) {
	limit, cancel := wait()
	defer cancel()
	if a.isCommitted() {
		limit = kadm.RequireStable(limit)
	}
	found, err := f.admin.FetchOffsets(limit, a.Group)
	for errors.Is(found.Error(), kerr.UnstableOffsetCommit) && limit.Err() == nil { // until a transaction ends
		time.Sleep(50 * time.Millisecond)
		found, err = f.admin.FetchOffsets(limit, a.Group)
	}
	if err = errors.Join(err, found.Error()); err != nil {
		return nil, err
	}
	answers := make([]*int64, len(a.Partitions))
	for i, p := range a.Partitions {
		if position, ok := found.Lookup(p.topic, p.partition); ok && position.At >= 0 {
			answers[i] = &position.At
		}
	}
	return answers, nil
}

// read asks for control records too, and does not return them: it ends at the last record before the end.
func (f franz) read(topics []string, isCommitted bool) ([]record, error) {
	limit, cancel := context.WithTimeout(context.Background(), patienceOfReads)
	defer cancel()
	list, isolation := f.admin.ListEndOffsets, kgo.ReadUncommitted()
	if isCommitted {
		list, isolation = f.admin.ListCommittedOffsets, kgo.ReadCommitted()
	}
	ends, err := list(limit, topics...)
	if err = errors.Join(err, ends.Error()); err != nil {
		return nil, err
	}
	begins, err := f.admin.ListStartOffsets(limit, topics...)
	if err != nil {
		return nil, err
	}
	open := map[string]map[int32]kgo.Offset{}
	waiting := map[place]bool{}
	ends.Each(func(end kadm.ListedOffset) {
		if begin, _ := begins.Lookup(end.Topic, end.Partition); begin.Offset == end.Offset {
			return
		}
		if open[end.Topic] == nil {
			open[end.Topic] = map[int32]kgo.Offset{}
		}
		open[end.Topic][end.Partition] = kgo.NewOffset().AtStart()
		waiting[place{topic: end.Topic, partition: end.Partition}] = true
	})
	if len(waiting) == 0 {
		return []record{}, nil
	}
	client, err := f.client(
		f.bootstrap, kgo.ConsumePartitions(open), kgo.FetchIsolationLevel(isolation), kgo.KeepControlRecords(),
		kgo.FetchMaxWait(10*time.Millisecond),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	found := []record{}
	for len(waiting) > 0 {
		fetches := client.PollFetches(limit)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("stuck before the end of %v: %w", waiting, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if end, _ := ends.Lookup(r.Topic, r.Partition); r.Offset >= end.Offset-1 {
				delete(waiting, place{topic: r.Topic, partition: r.Partition})
			}
			if !r.Attrs.IsControl() {
				found = append(found, franzRecord(r))
			}
		})
	}
	return found, nil
}

func franzRecord(r *kgo.Record) record {
	headers := []header{}
	for _, h := range r.Headers {
		headers = append(headers, header{h.Key, h.Value})
	}
	stamp := [2]int64{int64(r.Attrs.TimestampType()), r.Timestamp.UnixMilli()}
	return record{r.Topic, r.Partition, r.Offset, stamp, r.Key, r.Value, headers}
}

func (f franz) join(m *member) error {
	shares := map[string][]int32{}
	forget := func(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
		for topic, partitions := range lost {
			kept := []int32{}
			for _, p := range shares[topic] {
				if !contains(partitions, p) {
					kept = append(kept, p)
				}
			}
			shares[topic] = kept
		}
		m.own(copied(shares), "", -1)
	}
	add := func(_ context.Context, client *kgo.Client, added map[string][]int32) {
		for topic, partitions := range added {
			shares[topic] = append(shares[topic], partitions...)
		}
		id, generation := client.GroupMetadata()
		m.own(copied(shares), id, generation)
	}
	isolation := kgo.ReadUncommitted()
	if m.isCommitted() {
		isolation = kgo.ReadCommitted()
	}
	options := []kgo.Opt{
		kgo.ConsumerGroup(m.Group), kgo.ConsumeTopics(m.topics()...), kgo.FetchIsolationLevel(isolation),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(add), kgo.OnPartitionsRevoked(forget), kgo.OnPartitionsLost(forget),
	}
	if m.Protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	} else {
		options = append(options, kgo.SessionTimeout(session), kgo.HeartbeatInterval(heartbeat))
	}
	client, err := f.client(f.bootstrap, options...)
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		fetches := client.PollFetches(m.ctx)
		if m.ctx.Err() != nil {
			return nil
		}
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(r *kgo.Record) { m.take(franzRecord(r)) })
		m.note(client.CommitUncommittedOffsets(context.Background()))
	}
}

func contains(partitions []int32, wanted int32) bool {
	for _, p := range partitions {
		if p == wanted {
			return true
		}
	}
	return false
}

func copied(shares map[string][]int32) map[string][]int32 {
	other := map[string][]int32{}
	for topic, partitions := range shares {
		other[topic] = append([]int32{}, partitions...)
	}
	return other
}

type franzProducer struct {
	client *kgo.Client
	id     string
}

var franzCodecs = map[string]kgo.CompressionCodec{
	"":       kgo.NoCompression(),
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

var franzAcks = map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}

func (f franz) openProducer(a args) (producer, error) {
	options := []kgo.Opt{
		kgo.ProduceRequestTimeout(a.requestTimeout()),
		kgo.RequestTimeoutOverhead(a.requestTimeout()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(franzCodecs[a.Compression]),
		kgo.ProducerLinger(0),
		kgo.AllowAutoTopicCreation(),
	}
	if a.TransactionalID != "" {
		timeout := time.Duration(a.TimeoutMs) * time.Millisecond
		options = append(options, kgo.TransactionalID(a.TransactionalID), kgo.TransactionTimeout(timeout))
	} else if !a.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite(), kgo.RequiredAcks(franzAcks[a.Acks]))
	}
	client, err := f.client(a.Bootstrap, options...)
	return franzProducer{client, a.TransactionalID}, err
}

func (p franzProducer) init() error {
	limit, cancel := wait()
	defer cancel()
	_, _, err := p.client.ProducerID(limit)
	return err
}

func (p franzProducer) begin() error { return p.client.BeginTransaction() }

func (p franzProducer) send(records []record, awaited bool) ([]int64, error) {
	var lock sync.Mutex
	var failed error
	offsets := make([]int64, len(records))
	for i, r := range records {
		headers := []kgo.RecordHeader{}
		for _, h := range r.Headers {
			headers = append(headers, kgo.RecordHeader{Key: h.name, Value: h.value})
		}
		sent := &kgo.Record{Topic: r.Topic, Partition: r.Partition, Key: r.Key, Value: r.Value, Headers: headers}
		p.client.Produce(context.Background(), sent, func(r *kgo.Record, err error) {
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
	limit, cancel := wait()
	defer cancel()
	if err := p.client.Flush(limit); err != nil {
		return nil, err
	}
	lock.Lock()
	defer lock.Unlock()
	return offsets, failed
}

// sendOffsets sends the two requests: outside of a GroupTransactSession the library has no function for them.
func (p franzProducer) sendOffsets(of metadata, offsets []place) error {
	limit, cancel := wait()
	defer cancel()
	producerID, epoch, err := p.client.ProducerID(limit)
	if err != nil {
		return err
	}
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = p.id, producerID, epoch, of.group
	added, err := add.RequestWith(limit, p.client)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(added.ErrorCode); err != nil {
		return err
	}
	topics, err := kadm.NewClient(p.client).ListTopics(limit)
	if err != nil {
		return err
	}
	commit := kmsg.NewPtrTxnOffsetCommitRequest()
	commit.TransactionalID, commit.ProducerID, commit.ProducerEpoch = p.id, producerID, epoch
	commit.Group, commit.MemberID, commit.Generation = of.group, of.member, of.generation
	for _, o := range offsets {
		topic := kmsg.NewTxnOffsetCommitRequestTopic()
		topic.Topic, topic.TopicID = o.topic, topics[o.topic].ID // version 6 has the id alone
		partition := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		partition.Partition, partition.Offset = o.partition, o.offset
		topic.Partitions = append(topic.Partitions, partition)
		commit.Topics = append(commit.Topics, topic)
	}
	committed, err := commit.RequestWith(limit, p.client)
	if err != nil {
		return err
	}
	for _, topic := range committed.Topics {
		for _, partition := range topic.Partitions {
			err = errors.Join(err, kerr.ErrorForCode(partition.ErrorCode))
		}
	}
	return err
}

func (p franzProducer) end(commit bool) error {
	limit, cancel := wait()
	defer cancel()
	if !commit {
		if err := p.client.AbortBufferedRecords(limit); err != nil {
			return err
		}
	}
	return p.client.EndTransaction(limit, kgo.TransactionEndTry(commit))
}

func (p franzProducer) close() { p.client.Close() }
