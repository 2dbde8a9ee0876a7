//go:build e2e && !agents

package agents

// tried are the agents that every change is tried with.
const tried = "some"
