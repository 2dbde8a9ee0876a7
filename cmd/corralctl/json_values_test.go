package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/dbusapi/client"
)

var documentedKey = regexp.MustCompile("(?m)^\\| `([A-Za-z]+)` \\| (text|number or null|number|bool|list|object) \\|")

// documented returns the keys in docs/reference/json.md with their types, by section.
func documented(t *testing.T) map[string]map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/reference/json.md")
	require.NoError(t, err)
	sections := map[string]map[string]string{}
	for _, section := range strings.Split(string(text), "\n## ")[1:] {
		title, body, _ := strings.Cut(section, "\n")
		sections[title] = map[string]string{}
		for _, m := range documentedKey.FindAllStringSubmatch(body, -1) {
			sections[title][m[1]] = m[2]
		}
	}
	return sections
}

// jsonType returns the type of a value as docs/reference/json.md names it.
func jsonType(value any) string {
	switch value.(type) {
	case string:
		return "text"
	case json.Number:
		return "number"
	case bool:
		return "bool"
	case []any:
		return "list"
	case map[string]any:
		return "object"
	}
	return "nothing"
}

func TestJSON_MatchesItsDocumentation(t *testing.T) {
	sections := documented(t)
	stage := newStoryRun(t)
	run := func(line string) []byte {
		t.Helper()
		command := exec.Command("sh", "-c", line)
		command.Dir, command.Env = stage.home, stage.environment
		output, err := command.Output()
		if exit := (*exec.ExitError)(nil); err != nil {
			require.ErrorAs(t, err, &exit)
			require.NotContains(t, string(exit.Stderr), "corralctl:", line)
		}
		return output
	}
	seen := map[string]bool{"Others": true, "Hooks": true} // corrald prints these
	sections["Runs"] = map[string]string{"Runs": sections["status"]["Runs"]}
	sections["UnitProperties"] = map[string]string{"UnitProperties": sections["status"]["UnitProperties"]}
	check := func(line string, titles ...string) {
		t.Run(line, func(t *testing.T) {
			decoder := json.NewDecoder(strings.NewReader(string(run(line))))
			decoder.UseNumber()
			var value any
			require.NoError(t, decoder.Decode(&value))
			if list, ok := value.([]any); ok {
				require.NotEmpty(t, list)
				value = list[0]
			}
			object, ok := value.(map[string]any)
			require.True(t, ok, "%v", value)
			got, want := map[string]string{}, map[string]string{}
			for key, value := range object {
				got[key] = jsonType(value)
			}
			for _, title := range titles {
				require.NotEmpty(t, sections[title], title)
				seen[title] = true
				for key, kind := range sections[title] {
					if number, may := strings.CutSuffix(kind, " or null"); may {
						if kind = number; got[key] == "nothing" {
							got[key] = kind
						}
					}
					want[key] = kind
				}
			}
			assert.Equal(t, want, got)
		})
	}
	check("corralctl run -j --id shop --label a=b -- sh -c 'echo hello; cat'", "Session", "Runs")
	check("corralctl list -j", "Session")
	check("corralctl list --json=pretty", "Session")
	check("corralctl status -j shop", "Session", "status")
	check("corralctl status -j", "show")
	check("corralctl why -j shop", "why")
	check("corralctl why --environment -j shop", "why --environment")
	check("corralctl show -j", "show")
	check("corralctl show -j shop", "Session", "Runs", "UnitProperties")
	check("corralctl is-active -j shop", "is-active, is-failed, is-waiting")
	check("corralctl is-waiting -j nothing", "is-active, is-failed, is-waiting")
	check("corralctl peek -j shop", "peek")
	check("corralctl wait -j --until=running shop", "wait")
	check("corralctl run -j --wait -- sh -c 'echo hello; exit 3'", "Session", "Runs")
	check("corralctl logs -j --grep hello sh", "logs --grep")
	check("corralctl agents -j", "agents")
	check("corralctl doctor -j", "doctor")
	check("corralctl linger -j", "linger")
	check("corralctl version -j", "version")
	run("corralctl describe shop text")
	check("{ corralctl monitor -j & } | { read -r line; corralctl describe shop new; grep -m 1 changed; }", "monitor")
	for title := range sections {
		assert.True(t, seen[title], "nothing prints what is documented under %q", title)
	}
	assert.JSONEq(t, `{"a": "b"}`, string(run("corralctl label shop -j")))
	run("corralctl set-property shop TasksMax=77")
	for _, line := range []string{"corralctl show -j shop", "corralctl status -j shop"} {
		assert.Contains(t, string(run(line)), `"UnitProperties":{"TasksMax":77}`, line)
	}
	assert.JSONEq(t, `[]`, string(run("corralctl clean -j --dry-run")))
}

// TestJSON_EscapesControlCharacters: text from an agent is escaped and decodes to the same text.
func TestJSON_EscapesControlCharacters(t *testing.T) {
	session := client.Session{Id: "shop", Description: "\u009b31mred", AttentionMessage: "\u202etfel\u200e 👩\u200d👧"}
	for _, style := range []string{"short", "pretty"} {
		var out bytes.Buffer
		c := &ctl{out: bufio.NewWriter(&out), globals: globals{json: style}}
		require.NoError(t, c.printJSON([]client.Session{session}))
		require.NoError(t, c.out.Flush())
		assert.NotContains(t, out.String(), "\u009b")
		assert.Contains(t, out.String(), `"\u009b31mred"`)
		assert.Contains(t, out.String(), `"\u202etfel\u200e 👩`+"\u200d👧")
		var again []client.Session
		require.NoError(t, json.Unmarshal(out.Bytes(), &again))
		assert.Equal(t, session.AttentionMessage, again[0].AttentionMessage)
		assert.NotContains(t, compactJSON(session), "\u009b")
	}
}

func TestJSON_KeysOfAttentionAreThoseOfSessions(t *testing.T) {
	text, err := json.Marshal(client.Manager{Attention: []dbusapi.AttentionRow{{ID: "shop", Reason: "failed", Path: "/"}}})
	require.NoError(t, err)
	assert.Contains(t, string(text), `"Attention":[{"Id":"shop","Reason":"failed","Path":"/"}]`)
}

// TestJSON_PrintsUnknownNumbersAsNull: the number that means unknown on the bus would be taken for
// a value by readers of JSON.
func TestJSON_PrintsUnknownNumbersAsNull(t *testing.T) {
	text := `"MemoryCurrent":18446744073709551615,`
	session := dbusapi.NewSession()
	session.Description, session.Labels = text, map[string]string{text: text}
	properties := client.Properties{"Description": dbus.MakeVariant(text), "Labels": dbus.MakeVariant(session.Labels)}
	for _, p := range dbusapi.SessionProperties {
		if p.MayBeUnknown {
			properties[p.Name] = dbus.MakeVariant(p.NotKnown)
		}
	}
	for _, style := range []string{"short", "pretty"} {
		for _, value := range []any{[]client.Session{session}, []statusValue{{Session: session}},
			[]any{plainValues(properties)}} {
			var out bytes.Buffer
			c := &ctl{out: bufio.NewWriter(&out), globals: globals{json: style}}
			require.NoError(t, c.printJSON(value))
			require.NoError(t, c.out.Flush())
			var again []map[string]any
			require.NoError(t, json.Unmarshal(out.Bytes(), &again))
			for _, p := range dbusapi.SessionProperties {
				if p.MayBeUnknown {
					value, is := again[0][p.Name]
					assert.True(t, is, p.Name)
					assert.Nil(t, value, p.Name)
				}
			}
			assert.Equal(t, text, again[0]["Description"])
			assert.Equal(t, map[string]any{text: text}, again[0]["Labels"])
		}
	}
}
