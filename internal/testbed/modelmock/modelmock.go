// Package modelmock answers as the interfaces of language models do, so that real agents have real
// turns without a network: Anthropic's messages, OpenAI's responses and chat completions, Gemini's
// content generation, streamed and whole.
//
// What the model does is for the prompt to say:
//
//	anything              is answered
//	RUN: touch y          asks to run that command, and says so once it was run
//	HOLD: name            is answered once the test calls Open("name")
//	TOOL: name {…}        asks to use that tool with these arguments
//	FAIL: 529             fails with this status, each time
//
// Requests beside the conversation, as for its title, are answered by whatever they ask for. They
// count as none.
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

// Server is a model that listens on this machine.
type Server struct {
	URL string

	http    *httptest.Server
	mu      sync.Mutex
	prompts []string
	told    map[string]string        // by prompt, what came with it
	others  []string                 // requests that no dialect knows
	gates   map[string]chan struct{} // closed ones are open
	more    chan struct{}            // closed with the next prompt
	replies int
}

// New starts a server. Whoever calls it closes it.
func New() *Server {
	s := &Server{told: map[string]string{}, gates: map[string]chan struct{}{}, more: make(chan struct{})}
	s.http = httptest.NewServer(s)
	s.URL = s.http.URL
	return s
}

// Close lets go of everything that is held, and ends the server.
func (s *Server) Close() {
	s.http.CloseClientConnections()
	s.http.Close()
}

// Release answers the prompts that are held by this name, and all later ones.
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

// Prompts returns what people have asked, in order, once each time that it was asked, and what is
// closed with the next prompt.
func (s *Server) Prompts() ([]string, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.prompts), s.more
}

// RequestFor returns the request in which a prompt came the last time, as it was sent: with all of
// the conversation that the agent keeps for the model.
func (s *Server) RequestFor(prompt string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.told[prompt]
}

// Unknown returns the requests that belong to no interface known here: most are for telemetry,
// updates and lists of models.
func (s *Server) Unknown() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.others)
}

// dialect is how one interface is spoken.
type dialect struct {
	read  func(body []byte) (request, error)
	write func(w *writer, q request, a reply)
}

// request is what every interface asks in its own words.
type request struct {
	model  string
	stream bool
	tools  []tool
	format json.RawMessage // the JSON schema that the answer has to have, if any
	last   part            // of the conversation
	body   string          // all of it
}

// part is a text that a person has written, or what came of a command.
type part struct {
	text   string
	result bool
}

// tool is one that the model may use.
type tool struct {
	Name   string          `json:"name"`
	Schema json.RawMessage `json:"schema"`
}

// reply is what the model says: a text, or that it wants to use a tool.
type reply struct {
	id        string
	text      string
	tool      string
	arguments string // JSON
	failure   int    // the HTTP status of one, 0 for none
}

// dialects are found by the end of a request's path.
func dialectOf(path string) (dialect, bool) {
	switch {
	case strings.HasSuffix(path, "/messages"):
		return anthropic, true
	case strings.HasSuffix(path, "/responses"):
		return responses, true
	case strings.HasSuffix(path, "/chat/completions"):
		return chat, true
	case strings.HasSuffix(path, ":streamGenerateContent"):
		return geminiStream, true
	case strings.HasSuffix(path, ":generateContent"):
		return gemini, true
	}
	return dialect{}, false
}

// ServeHTTP answers a request in the dialect that its path tells.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := readBody(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	d, known := dialectOf(r.URL.Path)
	if !known || r.Method != http.MethodPost {
		s.serveOther(w, r)
		return
	}
	q, err := d.read(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	q.body = string(body)
	a, ok := s.answer(r.Context(), q)
	if !ok {
		return // whoever asked has left
	}
	out := &writer{w: w}
	if a.failure != 0 {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(a.failure)
		out.json(object{"type": "error", "error": object{"type": "overloaded_error", "code": a.failure, "status": "UNAVAILABLE", "message": "The model has no time"}})
		return
	}
	d.write(out, q, a)
}

// serveOther answers what agents ask before they talk to a model. What is not known is not there.
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
		s.others = append(s.others, r.Method+" "+r.URL.Path)
		s.mu.Unlock()
		http.NotFound(w, r)
	}
}

var (
	runLine  = regexp.MustCompile(`(?m)^RUN: (.+)$`)
	holdLine = regexp.MustCompile(`(?m)^HOLD: (\S+)`)
	toolLine = regexp.MustCompile(`(?m)^TOOL: (\S+) (\{.*\})$`)
	failLine = regexp.MustCompile(`(?m)^FAIL: (\d+)$`)
)

// answer decides what the model says. It is false if whoever asked did not wait for it.
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
		s.note(q)
		if hold := holdLine.FindStringSubmatch(q.last.text); hold != nil && !s.held(ctx, hold[1]) {
			return reply{}, false
		}
		if tool := toolLine.FindStringSubmatch(q.last.text); tool != nil {
			a.tool, a.arguments = tool[1], tool[2]
		} else if fail := failLine.FindStringSubmatch(q.last.text); fail != nil {
			a.failure, _ = strconv.Atoi(fail[1])
		} else if run := runLine.FindStringSubmatch(q.last.text); run != nil {
			a.tool, a.arguments = shell.Name, string(sample(shell.Schema, &run[1]))
		} else {
			first, _, _ := strings.Cut(q.last.text, "\n")
			a.text = "The model has read: " + first
		}
	}
	return a, true
}

// note keeps a prompt, and what came with it.
func (s *Server) note(q request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prompts = append(s.prompts, q.last.text)
	s.told[q.last.text] = q.body
	close(s.more)
	s.more = make(chan struct{})
}

// held waits until the gate is open, and tells whether anybody still waits for the answer.
func (s *Server) held(ctx context.Context, name string) bool {
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

// shells are the names that agents have for the tool that runs a command.
var shells = []string{"Bash", "bash", "shell", "shell_command", "exec_command", "run_shell_command"}

// shell returns the tool that runs a command. A request without one is beside the conversation.
func (q request) shell() (tool, bool) {
	i := slices.IndexFunc(q.tools, func(t tool) bool { return slices.Contains(shells, t.Name) })
	if i < 0 {
		return tool{}, false
	}
	return q.tools[i], true
}

// added is what agents put around a person's text: Claude Code around one of several lines, Copilot
// CLI before any.
var added = regexp.MustCompile(`</?pasted_content[^>]*>|<current_datetime>[^<]*</current_datetime>`)

// spoken returns a text as a person has written it, and whether one has: what agents add to it for
// the model begins with a tag.
func spoken(text string) (string, bool) {
	text = strings.TrimSpace(added.ReplaceAllString(text, ""))
	return text, text != "" && !strings.HasPrefix(text, "<")
}
