package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRun_CoversAllLinkedModules(t *testing.T) {
	t.Chdir("../..")
	dir := t.TempDir()
	require.NoError(t, run(dir, "1.2", []string{"./cmd/corrald", "./cmd/corralctl", "./cmd/corral-shim"}))
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		return string(text)
	}
	var bom struct {
		BomFormat  string
		Metadata   struct{ Component component }
		Components []component
	}
	require.NoError(t, json.Unmarshal([]byte(read("sbom.cdx.json")), &bom))
	assert.Equal(t, "CycloneDX", bom.BomFormat)
	assert.Equal(t, "1.2", bom.Metadata.Component.Version)
	licenses := map[string]string{}
	for _, c := range bom.Components {
		licenses[c.Name] = c.Licenses[0]["license"].ID
		assert.Contains(t, read("THIRD-PARTY-NOTICES"), c.Name+" "+c.Version)
	}
	assert.Equal(t, "BSD-2-Clause", licenses["github.com/godbus/dbus/v5"])
	assert.Equal(t, "Apache-2.0", licenses["github.com/coreos/go-systemd/v22"])
	assert.Equal(t, "BSD-3-Clause", licenses["github.com/spf13/pflag"])
	assert.Equal(t, "BSD-3-Clause", licenses[goLibrary])
	assert.NotContains(t, licenses, "github.com/stretchr/testify", "only tests use it")
	assert.Contains(t, read("THIRD-PARTY-NOTICES"), "CoreOS Project", "the notice that the Apache licence wants passed on")
	for _, line := range strings.Split(read("copyright"), "\n") {
		assert.NotRegexp(t, `^\s+$`, line, "a line without text ends a field")
	}
	assert.Contains(t, read("copyright"),
		"\nFiles: vendor/github.com/godbus/dbus/v5/*\nCopyright:\n Copyright (c) 2013, Georg Reinke")
}

func TestIdentify(t *testing.T) {
	assert.Equal(t, "BSD-2-Clause", identify("Redistribution and use in source\nand binary forms"))
	assert.Empty(t, identify("All rights reserved. You may not use this."))
}
