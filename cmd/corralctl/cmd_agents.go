package main

import (
	"context"
	"slices"
	"strings"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi"
)

var agentsVerb = verb{
	name: "agents", summary: "Show the agents that can be run", pages: true,
	options: plainVerb(func(ctx context.Context, c *ctl, _ []string) error {
		bus, err := c.connect(ctx)
		if err != nil {
			return err
		}
		rows, err := bus.ListAgents(ctx)
		if err != nil {
			return err
		}
		slices.SortFunc(rows, func(a, b dbusapi.AgentRow) int { return strings.Compare(a.Name, b.Name) })
		if c.wantsJSON() {
			return c.printJSON(agentValues(rows))
		}
		c.printAgents(rows)
		return nil
	}),
}

func (c *ctl) printAgents(rows []dbusapi.AgentRow) {
	t := table{columns: []column{
		{title: "AGENT"}, {title: "INSTALLED"}, {title: "RESUMES"}, {title: "ACCOUNTS"},
		{title: "COMMAND", minWidth: 12, cut: wording.Ellipsize},
		{title: "DESCRIPTION", minWidth: 12, cut: wording.Ellipsize},
	}}
	for _, row := range rows {
		installed, _ := row.Details["Available"].Value().(bool)
		resumable, _ := row.Details["Resumable"].Value().(bool)
		accounts, _ := row.Details["Accounts"].Value().(bool)
		command, _ := row.Details["Command"].Value().([]string)
		colour := ""
		if !installed {
			colour = wording.Dim
		}
		t.rows = append(t.rows, []cell{
			{row.Name, colour},
			{propertyText(installed), colour}, {propertyText(resumable), colour}, {propertyText(accounts), colour},
			{wording.ShellWords(command), colour}, {row.Description, colour},
		})
	}
	c.printTable(t)
}

func agentValues(rows []dbusapi.AgentRow) []map[string]any {
	values := []map[string]any{}
	for _, row := range rows {
		value := plainValues(row.Details)
		value["Name"], value["Description"] = row.Name, row.Description
		values = append(values, value)
	}
	return values
}
