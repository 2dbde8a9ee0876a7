package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPager_IsChosenFromTheEnvironment(t *testing.T) {
	bin := t.TempDir()
	for _, name := range []string{"less", "most"} {
		require.NoError(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"), 0o700))
	}
	for name, row := range map[string]struct {
		variables map[string]string
		want      string
	}{
		"no variable":             {nil, "less"},
		"with options":            {map[string]string{"PAGER": "most -w"}, "most -w"},
		"with an assignment":      {map[string]string{"PAGER": "LESS=-R less"}, "LESS=-R less"},
		"SYSTEMD_PAGER":           {map[string]string{"PAGER": "less", "SYSTEMD_PAGER": "most"}, "most"},
		"CORRAL_PAGER":            {map[string]string{"SYSTEMD_PAGER": "less", "CORRAL_PAGER": "most"}, "most"},
		"turned off":              {map[string]string{"PAGER": "most", "CORRAL_PAGER": ""}, ""},
		"not installed":           {map[string]string{"PAGER": "bat --paging=always"}, "less"},
		"needs a shell to expand": {map[string]string{"PAGER": "$HOME/bin/bat"}, "$HOME/bin/bat"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("PATH", bin)
			for _, variable := range []string{"PAGER", "SYSTEMD_PAGER", "CORRAL_PAGER"} {
				t.Setenv(variable, "")
				require.NoError(t, os.Unsetenv(variable))
			}
			for variable, value := range row.variables {
				t.Setenv(variable, value)
			}
			assert.Equal(t, row.want, chosenPager())
		})
	}
}

func TestPager_IsOptional(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("PAGER", "bat")
	assert.Empty(t, chosenPager())
}

func TestProgress_IsNotShownOnADumbTerminal(t *testing.T) {
	p := newProgress(&ctl{err: os.Stderr, errTTY: &terminal{dumb: true}}, "Stopping", []string{"shop"})
	_, runs := <-p.stopped
	assert.False(t, runs)
	p.end()
}
