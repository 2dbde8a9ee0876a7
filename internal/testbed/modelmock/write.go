package modelmock

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// object is a JSON object.
type object = map[string]any

// maxBody is the largest accepted request, in bytes.
const maxBody = 16 << 20

func readBody(r *http.Request) ([]byte, error) {
	return io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBody))
}

// writer writes a reply: one JSON value, or a stream of server-sent events.
type writer struct {
	w       http.ResponseWriter
	streams bool
}

func (w *writer) json(value any) {
	w.w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w.w).Encode(value) // the client may have disconnected
}

// event sends an event immediately, without a name if name is "".
func (w *writer) event(name string, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // it consists of maps, lists, strings and numbers
	}
	if name != "" {
		name = "event: " + name + "\n"
	}
	w.line(fmt.Sprintf("%sdata: %s\n\n", name, text))
}

func (w *writer) line(text string) {
	if !w.streams {
		w.w.Header().Set("Content-Type", "text/event-stream")
		w.streams = true
	}
	_, _ = io.WriteString(w.w, text)
	if f, ok := w.w.(http.Flusher); ok {
		f.Flush()
	}
}
