// The producers of franz-go and sarama, for retries only: `driver franz-go|sarama BOOTSTRAP`. The lines are those of jsonl.py.
package main

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"time"
)

type row struct {
	Topic     string  `json:"topic"`
	Partition int32   `json:"partition"`
	Key       *string `json:"key"`
	Value     *string `json:"value"`
}

type args struct {
	ID               string `json:"id"`
	TransactionalID  string `json:"transactional_id"`
	TimeoutMs        int    `json:"transaction_timeout_ms"`
	RequestTimeoutMs int    `json:"request_timeout_ms"`
	Records          []row  `json:"records"`
	Awaited          *bool  `json:"awaited"`
	copierArgs
}

func decode(text *string) []byte {
	if text == nil {
		return nil
	}
	content, _ := base64.StdEncoding.DecodeString(*text)
	return content
}

func (a args) requestTimeout() time.Duration {
	if a.RequestTimeoutMs == 0 {
		return 30 * time.Second
	}
	return time.Duration(a.RequestTimeoutMs) * time.Millisecond
}

// A producer of one library. `send` returns when all is acknowledged, or at once.
type producer interface {
	begin() error
	send(records []row, awaited bool) ([]int64, error)
	end(commit bool) error
	close()
}

type library struct {
	module string
	open   func(bootstrap string, a args) (producer, error)
}

var libraries = map[string]library{
	"franz-go": {"github.com/twmb/franz-go", openFranz},
	"sarama":   {"github.com/IBM/sarama", openSarama},
}

func version(module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, dependency := range info.Deps {
		if dependency.Path == module {
			return dependency.Version
		}
	}
	return "?"
}

func main() {
	chosen, bootstrap := libraries[os.Args[1]], os.Args[2]
	producers := map[string]producer{}
	lines := bufio.NewReader(os.Stdin)
	answers := json.NewEncoder(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			os.Exit(0)
		}
		var request struct {
			Op   string `json:"op"`
			Args args   `json:"args"`
		}
		if err := json.Unmarshal(line, &request); err != nil {
			panic(err)
		}
		ok, err := serve(chosen, bootstrap, producers, request.Op, request.Args)
		if err != nil {
			told := map[string]any{"type": nameOf(err), "code": nil, "message": err.Error()}
			_ = answers.Encode(map[string]any{"error": told})
		} else {
			_ = answers.Encode(map[string]any{"ok": ok})
		}
	}
}

func serve(chosen library, bootstrap string, producers map[string]producer, op string, a args) (any, error) {
	p := producers[a.ID]
	switch op {
	case "hello":
		return map[string]any{"version": version(chosen.module), "missing": map[string]string{}}, nil
	case "producer_open":
		opened, err := chosen.open(bootstrap, a)
		producers[a.ID] = opened
		return nil, err
	case "init":
		return nil, nil
	case "begin":
		return nil, p.begin()
	case "send":
		return p.send(a.Records, a.Awaited == nil || *a.Awaited)
	case "commit":
		return nil, p.end(true)
	case "abort":
		return nil, p.end(false)
	case "copier_open":
		copiers[a.ID] = openCopier(bootstrap, a.TransactionalID, a.copierArgs)
		return nil, nil
	case "copier_state":
		return copiers[a.ID].look(), nil
	case "copier_close":
		return nil, copiers[a.ID].finish()
	case "producer_close":
		delete(producers, a.ID)
		p.close()
		return nil, nil
	}
	return nil, fmt.Errorf("unknown op %s", op)
}
