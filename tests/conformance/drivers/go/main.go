// Drivers of franz-go, sarama and kafka-go: `driver LIBRARY BOOTSTRAP [SECURITY]`. The lines are those of jsonl.py.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"time"
)

// How long a driver waits for one answer of a library, and for all records of topics.
const (
	patience        = 30 * time.Second
	patienceOfReads = 180 * time.Second
)

type header struct {
	name  string
	value []byte
}

func (h header) MarshalJSON() ([]byte, error) { return json.Marshal([]any{h.name, h.value}) }

func (h *header) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&h.name, &h.value})
}

// A record to send; `Offset` and `Timestamp` (0 for CreateTime or 1 for LogAppendTime, ms) are of one that was read.
type record struct {
	Topic     string   `json:"topic"`
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
	Timestamp [2]int64 `json:"timestamp"`
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   []header `json:"headers"`
}

// A partition, and an offset if it is the position of a group.
type place struct {
	topic     string
	partition int32
	offset    int64
}

func (p place) MarshalJSON() ([]byte, error) { return json.Marshal([]any{p.topic, p.partition}) }

func (p *place) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&p.topic, &p.partition, &p.offset})
}

type newTopic struct {
	Name       string            `json:"name"`
	Partitions int32             `json:"partitions"`
	Configs    map[string]string `json:"configs"`
}

type args struct {
	ID               string          `json:"id"`
	TransactionalID  string          `json:"transactional_id"`
	Acks             string          `json:"acks"`
	Compression      string          `json:"compression"`
	Idempotent       bool            `json:"idempotent"`
	TimeoutMs        int             `json:"transaction_timeout_ms"`
	RequestTimeoutMs int             `json:"request_timeout_ms"`
	Bootstrap        string          `json:"bootstrap"`
	Records          []record        `json:"records"`
	Awaited          *bool           `json:"awaited"`
	Names            []string        `json:"names"`
	Topics           json.RawMessage `json:"topics"`
	Isolation        string          `json:"isolation"`
	Offsets          []place         `json:"offsets"`
	Partitions       []place         `json:"partitions"`
	Member           string          `json:"member"`
	copierArgs
}

func (a args) requestTimeout() time.Duration {
	if a.RequestTimeoutMs == 0 {
		return patience
	}
	return time.Duration(a.RequestTimeoutMs) * time.Millisecond
}

func (a args) topics() []string { return parse[[]string](a.Topics) }

func (a args) isCommitted() bool { return a.Isolation == "read_committed" }

func parse[T any](text []byte) (value T) {
	if err := json.Unmarshal(text, &value); err != nil {
		panic(err)
	}
	return value
}

// A producer of one library. `send` returns when all is acknowledged, or at once.
type producer interface {
	init() error
	begin() error
	send(records []record, awaited bool) ([]int64, error)
	sendOffsets(of metadata, offsets []place) error
	end(commit bool) error
	close()
}

// A client library. `missing` has the reason for each feature that it does not have. `join` is a member of a group
// until it is closed. `committed` returns null where a group has no position.
type library interface {
	missing() map[string]string
	createTopics(topics []newTopic) error
	deleteTopics(names []string) error
	listTopics() ([]string, error)
	openProducer(a args) (producer, error)
	read(topics []string, isCommitted bool) ([]record, error)
	committed(a args) ([]*int64, error)
	join(m *member) error
	openInstance(a copierArgs) (instance, error)
}

type module struct {
	path string
	open func(bootstrap string, s security) (library, error)
}

var modules = map[string]module{
	"franz-go": {"github.com/twmb/franz-go", openFranz},
	"sarama":   {"github.com/IBM/sarama", openSarama},
	"kafka-go": {"github.com/segmentio/kafka-go", openKafkaGo},
}

func version(path string) string {
	info, _ := debug.ReadBuildInfo()
	for _, dependency := range info.Deps {
		if dependency.Path == path {
			return dependency.Version
		}
	}
	return "?"
}

type driver struct {
	version   string
	bootstrap string
	library   library
	producers map[string]producer
	members   map[string]*member
	copiers   map[string]*copier
}

func main() {
	chosen := modules[os.Args[1]]
	s := security{}
	if len(os.Args) > 3 {
		s = parse[security]([]byte(os.Args[3]))
	}
	opened, err := chosen.open(os.Args[2], s)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	d := driver{version(chosen.path), os.Args[2], opened, map[string]producer{}, map[string]*member{}, map[string]*copier{}}
	lines := bufio.NewReader(os.Stdin)
	answers := json.NewEncoder(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			os.Exit(0)
		}
		request := parse[struct {
			Op   string `json:"op"`
			Args args   `json:"args"`
		}](line)
		ok, err := d.serve(request.Op, request.Args)
		answer := map[string]any{"ok": ok}
		if err != nil {
			answer = map[string]any{"error": map[string]any{"type": nameOf(err), "code": codeOf(err), "message": err.Error()}}
		}
		if err := answers.Encode(answer); err != nil {
			panic(err)
		}
	}
}

func (d driver) serve(op string, a args) (any, error) {
	switch op {
	case "hello":
		return map[string]any{"version": d.version, "missing": d.library.missing()}, nil
	case "create_topics":
		return nil, d.library.createTopics(parse[[]newTopic](a.Topics))
	case "delete_topics":
		return nil, d.library.deleteTopics(a.Names)
	case "list_topics":
		return d.library.listTopics()
	case "read":
		return d.library.read(a.topics(), a.isCommitted())
	case "committed":
		return d.library.committed(a)
	case "member_open":
		d.members[a.ID] = openMember(d.library, a)
		return nil, nil
	case "member_state":
		return d.members[a.ID].look()
	case "member_close":
		return nil, d.members[a.ID].finish()
	case "copier_open":
		d.copiers[a.ID] = openCopier(d.library, a.TransactionalID, a.copierArgs)
		return nil, nil
	case "copier_state":
		return d.copiers[a.ID].look(), nil
	case "copier_close":
		return nil, d.copiers[a.ID].finish()
	}
	return d.produce(op, a)
}

func (d driver) produce(op string, a args) (any, error) {
	p := d.producers[a.ID]
	switch op {
	case "producer_open":
		if a.Bootstrap == "" {
			a.Bootstrap = d.bootstrap
		}
		opened, err := d.library.openProducer(a)
		d.producers[a.ID] = opened
		return nil, err
	case "init":
		return nil, p.init()
	case "begin":
		return nil, p.begin()
	case "send":
		return p.send(a.Records, a.Awaited == nil || *a.Awaited)
	case "send_offsets":
		return nil, p.sendOffsets(metadataOf(a.Group, d.members[a.Member]), a.Offsets)
	case "commit":
		return nil, p.end(true)
	case "abort":
		return nil, p.end(false)
	case "producer_close":
		delete(d.producers, a.ID)
		p.close()
		return nil, nil
	}
	return nil, fmt.Errorf("unknown op %s", op)
}
