// Package modelmock implements the interfaces of language models, so that real agents can run real
// turns without network access: Anthropic's messages, OpenAI's responses and chat completions, and
// Gemini's content generation, streamed and whole.
//
// The prompt determines what the model does:
//
//	anything              replies with text
//	RUN: touch y          asks to run the command, and replies with text after that
//	HOLD: name            replies once the test calls Release("name")
//	TOOL: name {…}        asks to use the tool with these arguments
//	FAIL: 529             fails with this HTTP status, each time
//	FAIL: 529 2           fails twice, and then replies with text
//	LIMIT: 7200           has reached a usage limit, which is reset after these seconds
//
// Requests besides the conversation, such as for its title, get a reply that their schema accepts.
// They are not recorded as prompts.
package modelmock

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Server is a model that listens on the loopback interface.
type Server struct {
	URL string

	http    *httptest.Server
	mu      sync.Mutex
	prompts []string
	bodies  map[string]string        // by prompt: the body of its last request
	unknown []string                 // requests that no dialect handles
	gates   map[string]chan struct{} // by name; closed once released
	more    chan struct{}            // closed at the next prompt
	replies int
}

// New starts a server. The caller closes it.
func New() *Server {
	s := &Server{bodies: map[string]string{}, gates: map[string]chan struct{}{}, more: make(chan struct{})}
	s.http = httptest.NewServer(s)
	s.URL = s.http.URL
	return s
}

// Close cancels all requests that wait for Release and stops the server.
func (s *Server) Close() {
	s.http.CloseClientConnections()
	s.http.Close()
}

// Release lets the server reply to all present and future prompts with HOLD: name.
func (s *Server) Release(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gate := s.gate(name)
	select {
	case <-gate:
	default:
		close(gate)
	}
}

func (s *Server) gate(name string) chan struct{} {
	if s.gates[name] == nil {
		s.gates[name] = make(chan struct{})
	}
	return s.gates[name]
}

// Prompts returns the users' prompts so far, in order and with repetitions, and a channel that is
// closed at the next prompt.
func (s *Server) Prompts() ([]string, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.prompts), s.more
}

// RequestFor returns the body of the last request with a prompt. It includes the conversation that
// the agent has kept for the model.
func (s *Server) RequestFor(prompt string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bodies[prompt]
}

// Unknown returns the requests to unknown paths. Most are for telemetry, updates and lists of
// models.
func (s *Server) Unknown() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.unknown)
}

// dialect writes the replies of one interface.
type dialect func(w *writer, q request, a reply)

// request is a request of any interface.
type request struct {
	model  string
	stream bool
	tools  []tool
	format json.RawMessage // the JSON schema of the reply, if any
	last   part            // the last user message or tool result of the conversation
	body   string          // the whole body
}

// part is a user's text or the result of a command.
type part struct {
	text   string
	result bool
}

// tool is a tool that the model may use.
type tool struct {
	Name   string          `json:"name"`
	Schema json.RawMessage `json:"schema"`
}

// reply is the model's reply: a text, or a request to use a tool.
type reply struct {
	id        string
	text      string
	tool      string
	arguments string // JSON
	failure   int    // the HTTP status of a failure, 0 for none
	limit     int    // seconds until a usage limit is reset, 0 for none
}

// dialectOf returns the dialect for the end of a request's path, nil for an unknown path.
func dialectOf(path string) dialect {
	switch {
	case strings.HasSuffix(path, "/messages"):
		return writeAnthropic
	case strings.HasSuffix(path, "/responses"):
		return writeResponses
	case strings.HasSuffix(path, "/chat/completions"):
		return writeChat
	case strings.HasSuffix(path, ":streamGenerateContent"):
		return streamGemini
	case strings.HasSuffix(path, ":generateContent"):
		return writeGemini
	}
	return nil
}

// ServeHTTP replies to a request in the dialect of its path.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := readBody(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	write := dialectOf(r.URL.Path)
	if write == nil || r.Method != http.MethodPost {
		s.serveOther(w, r)
		return
	}
	q, err := readRequest(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	a, ok := s.answer(r.Context(), q)
	if !ok {
		return // the client has disconnected
	}
	out := &writer{w: w}
	if a.limit != 0 {
		writeLimit(w, r.URL.Path, a.limit)
		return
	}
	if a.failure != 0 {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(a.failure)
		out.json(object{
			"type": "error",
			"error": object{"type": "overloaded_error", "code": a.failure, "status": "UNAVAILABLE",
				"message": "The model has no time"},
		})
		return
	}
	write(out, q, a)
}

// serveOther replies to requests that agents send before they use a model, and with status 404 to
// unknown ones.
func (s *Server) serveOther(w http.ResponseWriter, r *http.Request) {
	out := &writer{w: w}
	switch {
	case strings.HasSuffix(r.URL.Path, "/count_tokens"):
		out.json(object{"input_tokens": 1})
	case strings.HasSuffix(r.URL.Path, ":countTokens"):
		out.json(object{"totalTokens": 1})
	case strings.HasSuffix(r.URL.Path, "/models"):
		out.json(object{"object": "list", "data": []object{}, "models": []object{}})
	default:
		s.mu.Lock()
		s.unknown = append(s.unknown, r.Method+" "+r.URL.Path)
		s.mu.Unlock()
		http.NotFound(w, r)
	}
}

var (
	runLine  = regexp.MustCompile(`(?m)^RUN: (.+)$`)
	holdLine = regexp.MustCompile(`(?m)^HOLD: (\S+)`)
	toolLine = regexp.MustCompile(`(?m)^TOOL: (\S+) (\{.*\})$`)
	failLine = regexp.MustCompile(`(?m)^FAIL: (\d+)(?: (\d+))?$`)

	limitLine = regexp.MustCompile(`(?m)^LIMIT: (\d+)$`)
)

// answer determines the model's reply. It returns false if the client disconnected meanwhile.
func (s *Server) answer(ctx context.Context, q request) (reply, bool) {
	s.mu.Lock()
	s.replies++
	a := reply{id: strconv.Itoa(s.replies)}
	s.mu.Unlock()
	switch shell, hasShell := q.shell(); {
	case len(q.format) > 0:
		a.text = string(sample(q.format, nil))
	case !hasShell:
		a.text = "A title"
	case q.last.result:
		a.text = "The command was run."
	default:
		times := s.record(q)
		if hold := holdLine.FindStringSubmatch(q.last.text); hold != nil && !s.waitForRelease(ctx, hold[1]) {
			return reply{}, false
		}
		if tool := toolLine.FindStringSubmatch(q.last.text); tool != nil {
			a.tool, a.arguments = tool[1], tool[2]
		} else if fail := failLine.FindStringSubmatch(q.last.text); fail != nil && mustFail(fail[2], times) {
			a.failure, _ = strconv.Atoi(fail[1])
		} else if limit := limitLine.FindStringSubmatch(q.last.text); limit != nil {
			a.limit, _ = strconv.Atoi(limit[1])
		} else if run := runLine.FindStringSubmatch(q.last.text); run != nil {
			a.tool, a.arguments = shell.Name, string(sample(shell.Schema, &run[1]))
		} else {
			first, _, _ := strings.Cut(q.last.text, "\n")
			a.text = "The model has read: " + first
		}
	}
	return a, true
}

// mustFail reports whether a request fails that is made for this number of times, if the first ones
// fail: limit is their number, "" for all.
func mustFail(limit string, times int) bool {
	n, err := strconv.Atoi(limit)
	return err != nil || times <= n
}

// record records a prompt and its request, and returns how many times the prompt was recorded.
func (s *Server) record(q request) (times int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prompts = append(s.prompts, q.last.text)
	s.bodies[q.last.text] = q.body
	close(s.more)
	s.more = make(chan struct{})
	for _, prompt := range s.prompts {
		if prompt == q.last.text {
			times++
		}
	}
	return times
}

// waitForRelease waits until the gate is released. It returns false if the client disconnects
// before that.
func (s *Server) waitForRelease(ctx context.Context, name string) bool {
	s.mu.Lock()
	gate := s.gate(name)
	s.mu.Unlock()
	select {
	case <-gate:
		return true
	case <-ctx.Done():
		return false
	}
}

// shells are the agents' names for the tool that runs a command.
var shells = []string{"Bash", "bash", "shell", "shell_command", "exec_command", "run_shell_command", "run_commands",
	"Execute"}

// shell returns the tool that runs a command. Requests without one do not belong to the
// conversation.
func (q request) shell() (tool, bool) {
	i := slices.IndexFunc(q.tools, func(t tool) bool { return slices.Contains(shells, t.Name) })
	if i < 0 {
		return tool{}, false
	}
	return q.tools[i], true
}

// added matches what agents add to a user's text: Claude Code around a text of several lines,
// Copilot CLI before any text.
var added = regexp.MustCompile(`</?pasted_content[^>]*>|<current_datetime>[^<]*</current_datetime>`)

// userText returns a message as the user wrote it. It returns false for messages that an agent has
// added for the model, which begin with a tag.
func userText(text string) (string, bool) {
	text = strings.TrimSpace(added.ReplaceAllString(text, ""))
	return text, text != "" && !strings.HasPrefix(text, "<")
}
