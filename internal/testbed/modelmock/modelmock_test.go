package modelmock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// dialects are sample requests in each interface: a conversation that ends with a text, or with the
// result of a command.
var dialects = map[string]struct {
	path, whole  string // path of a stream, and of a whole reply if that is another one
	request      func(stream bool, last string) string
	result       func() string
	withoutTools string // a request without tools, which is not part of the conversation
	end          string // the last event of a stream
}{
	"messages": {
		path: "/v1/messages",
		request: func(stream bool, last string) string {
			return fmt.Sprintf(`{"model":"m","stream":%t,"tools":[{"name":"Bash","input_schema":{"type":"object","properties":{"command":{"type":"string"},"description":{"type":"string"}},"required":["command","description"]}}],
				"messages":[{"role":"user","content":[{"type":"text","text":%q},{"type":"text","text":"<system-reminder>RUN: rm</system-reminder>"}]}]}`, stream, last)
		},
		result: func() string {
			return `{"stream":true,"tools":[{"name":"Bash"}],"messages":[{"role":"user","content":"RUN: touch y"},{"role":"user","content":[{"type":"tool_result"}]}]}`
		},
		withoutTools: `{"stream":true,"messages":[{"role":"user","content":"RUN: touch y"}]}`,
		end:          "event: message_stop\n",
	},
	"responses": {
		path: "/v1/responses",
		request: func(stream bool, last string) string {
			return fmt.Sprintf(`{"stream":%t,"tools":[{"type":"web_search"},{"name":"exec_command","parameters":{"properties":{"cmd":{"type":"string"},"sandbox_permissions":{"type":"string"}},"required":["cmd"]}}],
				"input":[{"role":"user","content":[{"text":%q}]},{"role":"user","content":[{"text":"<environment_context>"}]}]}`, stream, last)
		},
		result: func() string {
			return `{"stream":true,"tools":[{"name":"exec_command"}],"input":[{"role":"user","content":"x"},{"type":"function_call_output"}]}`
		},
		withoutTools: `{"stream":true,"input":"a title, please"}`,
		end:          "event: response.completed\n",
	},
	"chat": {
		path: "/v1/chat/completions",
		request: func(stream bool, last string) string {
			return fmt.Sprintf(`{"stream":%t,"tools":[{"function":{"name":"bash","parameters":{"properties":{"command":{"type":["string"]}},"required":["command"]}}}],
				"messages":[{"role":"system","content":"RUN: rm"},{"role":"user","content":%q}]}`, stream, last)
		},
		result: func() string {
			return `{"stream":true,"tools":[{"function":{"name":"bash"}}],"messages":[{"role":"user","content":"x"},{"role":"tool","content":"y"}]}`
		},
		withoutTools: `{"stream":true,"messages":[{"role":"user","content":"x"}]}`,
		end:          "data: [DONE]\n",
	},
	"gemini": {
		path: "/v1beta/models/m:streamGenerateContent", whole: "/v1beta/models/m:generateContent",
		request: func(_ bool, last string) string {
			return fmt.Sprintf(`{"tools":[{"functionDeclarations":[{"name":"run_shell_command","parametersJsonSchema":{"properties":{"command":{"type":"STRING"}},"required":["command"]}}]}],
				"contents":[{"role":"user","parts":[{"text":%q}]}]}`, last)
		},
		result: func() string {
			return `{"tools":[{"functionDeclarations":[{"name":"run_shell_command"}]}],"contents":[{"role":"user","parts":[{"functionResponse":{}}]}]}`
		},
		withoutTools: `{"contents":[{"role":"user","parts":[{"text":"x"}]}]}`,
		end:          `"finishReason":"STOP"`,
	},
}

func ask(ctx context.Context, url, body string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = errors.New(answer.Status)
	}
	return string(text), err
}

func TestDialects(t *testing.T) {
	for name, d := range dialects {
		t.Run(name, func(t *testing.T) {
			s := New()
			defer s.Close()
			send := func(path, body string) string {
				t.Helper()
				text, err := ask(t.Context(), s.URL+path, body)
				require.NoError(t, err)
				return text
			}
			streamed := send(d.path, d.request(true, "hello\nthere"))
			assert.Contains(t, streamed, "The model has read: hello")
			assert.Contains(t, streamed, d.end)
			assert.Contains(t, send(d.path, d.request(true, "please\nRUN: touch y")), "touch y")
			assert.Contains(t, send(d.path, d.result()), "The command was run.")
			assert.Contains(t, send(d.path, d.withoutTools), "A title")

			whole := d.whole
			if whole == "" {
				whole = d.path
			}
			var answer object
			require.NoError(t, json.Unmarshal([]byte(send(whole, d.request(false, "RUN: touch z"))), &answer))
			assert.Contains(t, fmt.Sprint(answer), "touch z")

			prompts, _ := s.Prompts()
			assert.Equal(t, []string{"hello\nthere", "please\nRUN: touch y", "RUN: touch z"}, prompts)
			assert.Equal(t, d.request(false, "RUN: touch z"), s.RequestFor("RUN: touch z"))
		})
	}
}

// TestHold_DelaysReply expects no reply before Release or before the client disconnects.
func TestHold_DelaysReply(t *testing.T) {
	s := New()
	defer s.Close()
	d := dialects["messages"]
	answer := make(chan string, 1)
	_, more := s.Prompts()
	go func() {
		text, err := ask(t.Context(), s.URL+d.path, d.request(true, "HOLD: on"))
		assert.NoError(t, err)
		answer <- text
	}()
	<-more
	select {
	case text := <-answer:
		t.Fatalf("answered at once: %s", text)
	default:
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, more = s.Prompts()
	go func() { <-more; cancel() }()
	_, err := ask(ctx, s.URL+d.path, d.request(true, "HOLD: on"))
	require.ErrorIs(t, err, context.Canceled)
	s.Release("on")
	assert.Contains(t, <-answer, "The model has read: HOLD: on")
	text, err := ask(t.Context(), s.URL+d.path, d.request(true, "HOLD: on"))
	require.NoError(t, err)
	assert.Contains(t, text, "The model has read")
}

func TestSample(t *testing.T) {
	command := "touch y"
	for _, c := range []struct {
		name, schema string
		command      *string
		want         string
	}{
		{"required properties", `{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"number"}},"required":["a"]}`,
			nil, `{"a":"A title"}`},
		{"an enumeration", `{"properties":{"a":{"enum":["user","model"]}},"required":["a"]}`, nil, `{"a":"user"}`},
		{"Gemini's capitals", `{"type":"OBJECT","properties":{"a":{"type":"BOOLEAN"},"b":{"type":"ARRAY"},"c":{"type":"INTEGER"}},"required":["a","b","c"]}`, nil, `{"a":false,"b":[],"c":1}`},
		{"a command", `{"properties":{"cmd":{"type":"string"}}}`, &command, `{"cmd":"touch y"}`},
		{"a command as a list", `{"properties":{"command":{"type":"array"}}}`, &command, `{"command":["sh","-c","touch y"]}`},
		{"a command outside of the sandbox", `{"properties":{"cmd":{"type":"string"},"sandbox_permissions":{"type":"string"}}}`,
			&command, `{"cmd":"touch y","sandbox_permissions":"require_escalated","justification":"May I run this?"}`},
		{"no schema", `nonsense`, nil, `{}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.JSONEq(t, c.want, string(sample(json.RawMessage(c.schema), c.command)))
		})
	}
}

func TestUserText(t *testing.T) {
	for text, want := range map[string]string{
		" hello\n": "hello", "<current_datetime>2026</current_datetime>\n\nhello": "hello",
		"<system-reminder>be kind</system-reminder>": "", "": "",
		"\n<pasted_content id=\"1\">\none\ntwo\n</pasted_content id=\"1\">\n": "one\ntwo",
	} {
		got, ok := userText(text)
		assert.Equal(t, want != "", ok, text)
		if ok {
			assert.Equal(t, want, got)
		}
	}
}

func TestServer_RecordsUnknownRequests(t *testing.T) {
	s := New()
	defer s.Close()
	answer, err := http.Get(s.URL + "/api/hello")
	require.NoError(t, err)
	_ = answer.Body.Close()
	assert.Equal(t, http.StatusNotFound, answer.StatusCode)
	assert.Equal(t, []string{"GET /api/hello"}, s.Unknown())
}

// TestPrompt_SelectsToolOrFailure covers the prompts other than RUN.
func TestPrompt_SelectsToolOrFailure(t *testing.T) {
	s := New()
	defer s.Close()
	for name, d := range dialects {
		answer, err := ask(t.Context(), s.URL+d.path, d.request(true, `TOOL: question {"about":"x"}`))
		require.NoError(t, err, name)
		assert.Contains(t, answer, `"question"`, name)
		_, err = ask(t.Context(), s.URL+d.path, d.request(true, "FAIL: 529"))
		require.ErrorContains(t, err, "529", name)
		_, err = ask(t.Context(), s.URL+d.path, d.request(true, "FAIL: 529 1\n"+name))
		require.ErrorContains(t, err, "529", name)
		answer, err = ask(t.Context(), s.URL+d.path, d.request(true, "FAIL: 529 1\n"+name))
		require.NoError(t, err, name)
		assert.Contains(t, answer, "The model has read", name)
		_, err = ask(t.Context(), s.URL+d.path, d.request(true, "LIMIT: 7200"))
		require.ErrorContains(t, err, "429", name)
	}
}
