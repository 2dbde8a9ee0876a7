package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/corrald/corral/internal/version"
)

var mcpVerb = verb{
	name: "mcp", summary: "Serve agents that direct agents, as an MCP server",
	details: `Speaks the Model Context Protocol on stdin and stdout, for an agent that starts it. Its
tools are list, run, send, wait, peek and stop. See also: corralctl help agents
`,
	options: plainVerb(func(ctx context.Context, c *ctl, _ []string) error {
		if c.outTTY != nil {
			return &failure{exitUsage, "mcp is started by an agent, not in a terminal", "man corralctl"}
		}
		return newToolServer(c).Run(ctx, &mcp.StdioTransport{})
	}),
}

// defaultWait is how long the tool wait waits by default: less than 60 s, which is the time-out of
// Codex for any tool.
const defaultWait = 45 * time.Second

// progressInterval is how often a client that asked for it is notified that wait still waits.
const progressInterval = 10 * time.Second

// tools are the tools of an agent. Each runs corralctl itself: so it has the same rights, results
// and errors as in a shell.
type tools struct {
	program string
	host    string
}

// The arguments of the tools. The texts are for the agent.
type (
	listArguments struct {
		Patterns []string `json:"patterns,omitempty" jsonschema:"ids, or patterns such as fix-*; all sessions by default"`
		States   []string `json:"states,omitempty" jsonschema:"only sessions in one of these states or activities"`
	}
	runArguments struct {
		Agent     string   `json:"agent,omitempty" jsonschema:"the agent to run, such as claude; omit it with command"`
		Command   []string `json:"command,omitempty" jsonschema:"a program with arguments to run instead of an agent"`
		Arguments []string `json:"arguments,omitempty" jsonschema:"more arguments for the agent's command"`
		ID        string   `json:"id,omitempty" jsonschema:"the id of the new session: a-z, 0-9, '.', '_' and '-'"`
		Prompt    string   `json:"prompt,omitempty" jsonschema:"the first prompt"`
		Directory string   `json:"directory,omitempty" jsonschema:"the workspace; by default the current directory"`
		Worktree  string   `json:"worktree,omitempty" jsonschema:"work in a new git worktree on this branch"`
	}
	sendArguments struct {
		ID     string `json:"id"`
		Text   string `json:"text" jsonschema:"typed into the session's terminal, followed by Enter"`
		Resume bool   `json:"resume,omitempty" jsonschema:"resume the session first if it is suspended"`
	}
	waitArguments struct {
		IDs     []string `json:"ids" jsonschema:"all of these sessions are waited for"`
		Until   []string `json:"until,omitempty" jsonschema:"states or activities such as waiting, turn-ended; by default the end"`
		Seconds int      `json:"timeout_seconds,omitempty" jsonschema:"45 by default; ExitCode 124: call wait again"`
	}
	peekArguments struct {
		ID    string `json:"id"`
		Lines uint32 `json:"lines,omitempty" jsonschema:"the last lines of screen and history; by default the screen"`
	}
	stopArguments struct {
		IDs []string `json:"ids"`
	}
)

func newToolServer(c *ctl) *mcp.Server {
	t := &tools{program: "/proc/self/exe", host: strings.Join(c.host, ",")}
	server := mcp.NewServer(&mcp.Implementation{Name: "corral", Version: version.Version}, &mcp.ServerOptions{
		Instructions: "Corral runs other agents, and commands, in sessions of their own. You can see all sessions, " +
			"but control only those that you have created, and their descendants. An agent that has finished a turn " +
			"(turn-ended) or asks something (waiting) does not end: send it a text, or stop it.",
	})
	readOnly := &mcp.ToolAnnotations{ReadOnlyHint: true}
	mcp.AddTool(server, &mcp.Tool{Name: "list", Annotations: readOnly,
		Description: "List the sessions with state, activity, question, parent and result."}, tool(t.list))
	mcp.AddTool(server, &mcp.Tool{Name: "run",
		Description: "Create a session of an agent, or of a command, and start it."}, tool(t.run))
	mcp.AddTool(server, &mcp.Tool{Name: "send",
		Description: "Type a text into a session and press Enter: the next prompt, or an answer."}, tool(t.send))
	mcp.AddTool(server, &mcp.Tool{Name: "wait", Annotations: readOnly,
		Description: "Wait until sessions have ended, or are in a state."}, t.wait)
	mcp.AddTool(server, &mcp.Tool{Name: "peek", Annotations: readOnly,
		Description: "Show what is on the screen of a session."}, tool(t.peek))
	mcp.AddTool(server, &mcp.Tool{Name: "stop", Description: "End sessions."}, tool(t.stop))
	return server
}

// tool returns the handler of a tool that returns the output of corralctl.
func tool[In any](f func(context.Context, In) (string, error)) mcp.ToolHandlerFor[In, any] {
	return func(ctx context.Context, _ *mcp.CallToolRequest, in In) (*mcp.CallToolResult, any, error) {
		text, err := f(ctx, in)
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, err
	}
}

func (t *tools) list(ctx context.Context, in listArguments) (string, error) {
	args := []string{"list", "--json=short"}
	if len(in.States) > 0 {
		args = append(args, "--state="+strings.Join(in.States, ","))
	}
	return t.call(ctx, append(append(args, "--"), in.Patterns...)...)
}

func (t *tools) run(ctx context.Context, in runArguments) (string, error) {
	args := []string{"run", "--json=short"}
	for _, option := range [][2]string{
		{"id", in.ID}, {"dir", in.Directory}, {"worktree", in.Worktree}, {"prompt", in.Prompt},
	} {
		if option[1] != "" {
			args = append(args, "--"+option[0]+"="+option[1])
		}
	}
	if in.Agent != "" {
		args = append(args, in.Agent)
	}
	return t.call(ctx, append(append(append(args, "--"), in.Command...), in.Arguments...)...)
}

func (t *tools) send(ctx context.Context, in sendArguments) (string, error) {
	args := []string{"send", "--quiet"}
	if in.Resume {
		args = append(args, "--resume")
	}
	if _, err := t.call(ctx, append(args, "--", in.ID, in.Text)...); err != nil {
		return "", err
	}
	return t.list(ctx, listArguments{Patterns: []string{in.ID}})
}

func (t *tools) peek(ctx context.Context, in peekArguments) (string, error) {
	return t.call(ctx, "peek", "--json=short", fmt.Sprintf("--lines=%d", in.Lines), "--", in.ID)
}

func (t *tools) stop(ctx context.Context, in stopArguments) (string, error) {
	if _, err := t.call(ctx, append([]string{"stop", "--quiet", "--"}, in.IDs...)...); err != nil {
		return "", err
	}
	return t.list(ctx, listArguments{Patterns: in.IDs})
}

// wait blocks, and notifies a client that has asked for it of its progress.
func (t *tools) wait(
	ctx context.Context, request *mcp.CallToolRequest, in waitArguments,
) (*mcp.CallToolResult, any, error) {
	limit := defaultWait
	if in.Seconds > 0 {
		limit = time.Duration(in.Seconds) * time.Second
	}
	args := []string{"wait", "--json=short", fmt.Sprintf("--timeout=%d", int(limit.Seconds()))}
	if len(in.Until) > 0 {
		args = append(args, "--until="+strings.Join(in.Until, ","))
	}
	if token := request.Params.GetProgressToken(); token != nil {
		began, done := time.Now(), make(chan struct{})
		defer close(done)
		go func() {
			ticker := time.NewTicker(progressInterval)
			defer ticker.Stop()
			for {
				select {
				case <-done:
					return
				case <-ticker.C:
				}
				_ = request.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token,
					Message: "waiting for " + strings.Join(in.IDs, ", "), Progress: time.Since(began).Seconds(),
					Total: limit.Seconds()})
			}
		}()
	}
	call := func(ctx context.Context, in waitArguments) (string, error) {
		return t.call(ctx, append(append(args, "--"), in.IDs...)...)
	}
	return tool(call)(ctx, request, in)
}

// call runs corralctl and returns what it prints. If it prints nothing and fails, the error is what
// it reports; wait fails with an exit code also if it prints a result.
func (t *tools) call(ctx context.Context, args ...string) (string, error) {
	if t.host != "" {
		args = append([]string{"--host=" + t.host}, args...)
	}
	cmd := exec.CommandContext(ctx, t.program, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Args[0] = &out, &errs, os.Args[0]
	err := cmd.Run()
	switch {
	case err == nil || out.Len() > 0:
		return out.String(), nil
	case errs.Len() > 0:
		return "", errors.New(strings.TrimSpace(errs.String()))
	}
	return "", err
}
