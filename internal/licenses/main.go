// Licenses writes the files that the licences of linked modules require from distributors of the
// programs: `licenses -o DIRECTORY -version VERSION PACKAGE…` writes
//
//	THIRD-PARTY-NOTICES  the licence texts and notices of all linked modules and of the Go library
//	copyright            the same in Debian's machine-readable format (DEP 5), with Corral's own
//	sbom.cdx.json        the software bill of materials (CycloneDX 1.6)
//
// A module without a licence text, or with an unrecognised one, is an error: a person has to check
// it.
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	out := flag.String("o", "build/licenses", "directory to write to")
	version := flag.String("version", "", "version of Corral")
	flag.Parse()
	if err := run(*out, *version, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "licenses:", err)
		os.Exit(1)
	}
}

func run(out, version string, packages []string) error {
	modules, err := linked(packages)
	if err != nil {
		return err
	}
	own, err := os.ReadFile("LICENSE")
	if err != nil {
		return err
	}
	bom, err := sbom(version, modules)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	for name, text := range map[string][]byte{
		"THIRD-PARTY-NOTICES": notices(modules),
		"copyright":           copyright(string(own), modules),
		"sbom.cdx.json":       bom,
	} {
		if err := os.WriteFile(filepath.Join(out, name), text, 0o644); err != nil { //nolint:gosec // for everybody to read
			return err
		}
	}
	return nil
}

// module is a Go module whose code is linked into the programs.
type module struct {
	Path, Version string
	license       string // SPDX identifier
	texts         []text // the licence first
}

// text is one file with a licence or a notice.
type text struct{ name, text string }

// goLibrary is the name of the Go standard library in the list of modules.
const goLibrary = "Go standard library"

// linked returns the modules that the packages are linked with, and the Go standard library, sorted
// by path.
func linked(packages []string) ([]module, error) {
	list := exec.Command("go", append([]string{"list", "-deps", "-json=Dir,ImportPath,Module"}, packages...)...)
	list.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	list.Stderr = os.Stderr
	output, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("cannot list dependencies: %w", err)
	}
	env, err := exec.Command("go", "env", "GOROOT", "GOVERSION").Output()
	if err != nil {
		return nil, fmt.Errorf("cannot find the Go library: %w", err)
	}
	goRoot, goVersion, _ := strings.Cut(strings.TrimSpace(string(env)), "\n")
	directories := map[[2]string]string{{goLibrary, goVersion}: goRoot}
	for decoder := json.NewDecoder(bytes.NewReader(output)); ; {
		var p struct {
			Dir, ImportPath string
			Module          *struct {
				Path, Version string
				Main          bool
			}
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("cannot list dependencies: %w", err)
		}
		if p.Module == nil || p.Module.Main {
			continue
		}
		// The module's root directory, which go list does not report for vendored modules.
		directory := strings.TrimSuffix(p.Dir, strings.TrimPrefix(p.ImportPath, p.Module.Path))
		directories[[2]string{p.Module.Path, p.Module.Version}] = directory
		if p.Module.Path == "golang.org/x/sys" && !exists(filepath.Join(goRoot, "LICENSE")) {
			// some distributions omit LICENSE from GOROOT; this is the same text
			directories[[2]string{goLibrary, goVersion}] = directory
		}
	}
	var modules []module
	for id, directory := range directories {
		m := module{Path: id[0], Version: id[1]}
		if err := m.read(directory); err != nil {
			return nil, err
		}
		modules = append(modules, m)
	}
	slices.SortFunc(modules, func(a, b module) int { return cmp.Compare(a.Path, b.Path) })
	return modules, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// read reads the licence and the notices in the module's directory.
func (m *module) read(directory string) error {
	files, err := os.ReadDir(directory)
	if err != nil {
		return fmt.Errorf("cannot read the licence of %s: %w", m.Path, err)
	}
	for _, prefix := range []string{"LICENSE", "LICENCE", "COPYING", "NOTICE", "PATENTS"} {
		for _, file := range files {
			if file.IsDir() || !strings.HasPrefix(strings.ToUpper(file.Name()), prefix) {
				continue
			}
			content, err := os.ReadFile(filepath.Join(directory, file.Name()))
			if err != nil {
				return fmt.Errorf("cannot read the licence of %s: %w", m.Path, err)
			}
			m.texts = append(m.texts, text{file.Name(), strings.TrimRight(string(content), " \n")})
		}
	}
	if len(m.texts) == 0 {
		return fmt.Errorf("module %s has no licence text in %s", m.Path, directory)
	}
	if m.license = identify(m.texts[0].text); m.license == "" {
		return fmt.Errorf("module %s: licence not recognised: %s", m.Path, filepath.Join(directory, m.texts[0].name))
	}
	return nil
}

// identify returns the SPDX identifier of a licence text, "" if none of the licences of Corral's
// dependencies matches.
func identify(license string) string {
	license = strings.Join(strings.Fields(license), " ")
	switch {
	case strings.Contains(license, "Apache License Version 2.0"):
		return "Apache-2.0"
	case strings.Contains(license, "Permission is hereby granted, free of charge"):
		return "MIT"
	case !strings.Contains(license, "Redistribution and use in source and binary forms"):
		return ""
	case strings.Contains(license, "Neither the name"):
		return "BSD-3-Clause"
	}
	return "BSD-2-Clause"
}

// notices returns the text of THIRD-PARTY-NOTICES, module by module.
func notices(modules []module) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "Corral's programs contain code of these modules.\n")
	for _, m := range modules {
		fmt.Fprintf(&b, "\n%s\n%s %s (%s)\n%[1]s\n", strings.Repeat("=", 80), m.Path, m.Version, m.license)
		for _, t := range m.texts {
			fmt.Fprintf(&b, "\n--- %s\n\n%s\n", t.name, t.text)
		}
	}
	return b.Bytes()
}

var copyrightLine = regexp.MustCompile(`(?m)^\W*(Copyright (?:\(c\)|©|[0-9]).*?)\W*$`)

// copyright returns the text of the file copyright, in the format of
// https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
func copyright(own string, modules []module) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n"+
		"Upstream-Name: Corral\nSource: https://github.com/corrald/corral\n")
	stanza := func(files, license string, texts ...text) {
		fmt.Fprintf(&b, "\nFiles: %s\nCopyright:\n", files)
		var holders []string
		for _, t := range texts {
			for _, found := range copyrightLine.FindAllStringSubmatch(t.text, -1) {
				holders = append(holders, found[1])
			}
		}
		if len(holders) == 0 {
			holders = []string{"its authors; the text below names none"}
		}
		for _, holder := range slices.Compact(holders) {
			fmt.Fprintf(&b, " %s\n", holder)
		}
		fmt.Fprintf(&b, "License: %s\n", license)
		for _, t := range texts {
			for line := range strings.Lines(t.text + "\n") {
				line = strings.ReplaceAll(strings.TrimRight(line, " \n\r"), "\t", "  ")
				fmt.Fprintf(&b, " %s\n", cmp.Or(line, "."))
			}
		}
	}
	stanza("*", "MIT", text{"LICENSE", strings.TrimSpace(own)})
	for _, m := range modules {
		m.texts = slices.Clone(m.texts)
		files := "vendor/" + m.Path + "/*"
		if m.Path == goLibrary {
			files = "go/*"
		}
		if m.license == "Apache-2.0" { // Debian ships the text and allows no other copy of it (Policy 12.5)
			m.texts[0].text = "The full text is in /usr/share/common-licenses/Apache-2.0."
		}
		stanza(files, m.license, m.texts...)
	}
	return b.Bytes()
}

// component is a component in CycloneDX format: https://cyclonedx.org/docs/1.6/json/
type component struct {
	Type     string             `json:"type"`
	Name     string             `json:"name"`
	Version  string             `json:"version"`
	PURL     string             `json:"purl,omitempty"`
	Licenses []map[string]named `json:"licenses"`
}

type named struct {
	ID string `json:"id"`
}

// sbom returns the bill of materials. It has no serial number and no time, so that the same sources
// yield the same file.
func sbom(version string, modules []module) ([]byte, error) {
	of := func(kind, name, version, purl, license string) component {
		return component{kind, name, version, purl, []map[string]named{{"license": {license}}}}
	}
	components := make([]component, len(modules))
	for i, m := range modules {
		purl := "pkg:golang/" + m.Path + "@" + m.Version
		if m.Path == goLibrary {
			purl = "pkg:golang/std@" + strings.TrimPrefix(m.Version, "go")
		}
		components[i] = of("library", m.Path, m.Version, purl, m.license)
	}
	const name = "github.com/corrald/corral"
	text, err := json.MarshalIndent(map[string]any{
		"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
		"metadata": map[string]component{"component": of("application", name, version, "pkg:golang/"+name+"@"+version,
			"MIT")},
		"components": components,
	}, "", "  ")
	return append(text, '\n'), err
}
