package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/corrald/corral/dbusapi/client"
)

// searched is how many logs are searched, each of the default LogMaxSize=, 16 MiB.
const searched = 6

// grep measures `corralctl logs --grep` over all logs. The floor is grep over the same files, which
// finds what is in them, but neither lines as a terminal shows them nor their times.
func grep(ctx context.Context, b *bench) (rows []row, err error) {
	text := strings.ReplaceAll(typicalText(8<<20), "\n", "\r\n")
	var logs []string
	for range searched {
		id := b.newID("grep")
		spec := client.Spec{ID: id, Command: silent, WorkingDirectory: b.work(), NoStart: true}
		if _, err := b.client.CreateSession(ctx, "command", spec); err != nil {
			return nil, err
		}
		defer func() { _ = b.remove(ctx, id) }()
		log := filepath.Join(b.work(), "state/corral/sessions", id, "output.log")
		logs = append(logs, log+".1", log)
		size := len(text)
		for name, content := range map[string]string{
			"output.log.1": text, "output.log": text,
			"output.sizes": fmt.Sprintf("0\n%d\n0 %d %d\n", size, columns, lines), "output.times": "0 1\n",
		} {
			if err := os.WriteFile(filepath.Join(filepath.Dir(log), name), []byte(content), 0o600); err != nil {
				return nil, err
			}
		}
	}
	for _, re := range []string{"package12350", `(?i)OK\s+\S+/PACKAGE12350\b`} {
		r := row{name: fmt.Sprintf("logs --all --grep='%s', %d MiB", re, searched*len(text)>>19), unit: "ms",
			bar: medianAtMost(1000, "ms")}
		for range b.times(5) {
			for command, to := range map[string]*sample{"corralctl": &r.values, "grep": &r.floor} {
				args := []string{"logs", "--all", "--lines=1", "--grep=" + re}
				if command == "grep" {
					args = append([]string{"-caP", re}, logs...)
				} else {
					command = b.program(command)
				}
				before := time.Now()
				if err := run(ctx, command, args...); err != nil {
					return nil, err
				}
				*to = append(*to, milliseconds(time.Since(before)))
			}
		}
		rows = append(rows, r)
	}
	return rows, nil
}
