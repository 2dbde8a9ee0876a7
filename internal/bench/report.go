package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// section is a part of the report: a text, and a table of rows.
type section struct {
	name string // of the marker in the report
	text string
	rows []row
}

// reportName is the file in the place in which the bench inside of the user manager leaves the
// sections for the report.
const reportName = "sections.md"

// The markers in the report between which a section is replaced. What is outside of them is written
// by hand.
const (
	beginMarker = "<!-- measured: %s -->\n"
	endMarker   = "<!-- end of measured -->\n"
)

// markdown returns the section with its markers.
func (s section) markdown(p place) string {
	var b strings.Builder
	fmt.Fprintf(&b, beginMarker, s.name)
	fmt.Fprintf(&b, "%s\n\n%s", machineOf(p), s.text)
	var notes []string
	if len(s.rows) > 0 {
		b.WriteString("| what | unit | measurements | median | p99 | floor | floor p99 | ratio |\n")
		b.WriteString("|---|---|---:|---:|---:|---:|---:|---:|\n")
	}
	for _, r := range s.rows {
		fmt.Fprintf(&b, "| %s | %s | %d | %s | %s | %s | %s | %s |\n", r.name, r.unit, len(r.values),
			number(r.values.median()), number(r.values.p99()), number(r.floor.median()), number(r.floor.p99()),
			number(r.ratio()))
		for _, note := range r.notes {
			notes = append(notes, fmt.Sprintf("- %s: %s\n", r.name, note))
		}
	}
	if len(notes) > 0 {
		fmt.Fprintf(&b, "\n%s", strings.Join(notes, ""))
	}
	b.WriteString(endMarker)
	return b.String()
}

// machineOf describes when and where a section was measured.
func machineOf(p place) string {
	memory, _ := readFields("/proc/meminfo")
	load, _ := os.ReadFile("/proc/loadavg")
	average, _, _ := strings.Cut(string(load), " ")
	return fmt.Sprintf("Measured on %s: %s %.0f GiB of memory, %s, load average %s afterwards.",
		time.Now().UTC().Format(time.DateOnly), strings.TrimSuffix(circumstances(p), byTurns),
		float64(memory["MemTotal"])/(1<<20), versionOf("systemctl", "--version"), average)
}

// versionOf returns the first line that a program prints about its version.
func versionOf(name string, args ...string) string {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(line)
}

// leave writes the sections to the place, for updateReport.
func leave(p place, sections []section) error {
	var b strings.Builder
	for _, s := range sections {
		b.WriteString(s.markdown(p))
	}
	return os.WriteFile(filepath.Join(p.work(), reportName), []byte(b.String()), 0o600)
}

// updateReport replaces the sections of the report at path that were measured.
func updateReport(path string, p place) error {
	measured, err := os.ReadFile(filepath.Join(p.work(), reportName))
	if err != nil {
		return fmt.Errorf("cannot read what was measured: %w", err)
	}
	report, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("cannot read the report: %w", err)
	}
	text, err := replaceSections(string(report), string(measured))
	if err != nil {
		return fmt.Errorf("cannot update %q: %w", path, err)
	}
	return os.WriteFile(path, []byte(text), 0o600)
}

// replaceSections returns the report with these measured sections in the place of earlier ones.
func replaceSections(report, measured string) (string, error) {
	for s := range strings.SplitAfterSeq(measured, endMarker) {
		begin, _, _ := strings.Cut(s, "\n")
		if begin == "" {
			continue
		}
		before, rest, found := strings.Cut(report, begin+"\n")
		_, after, ends := strings.Cut(rest, endMarker)
		if !found || !ends {
			return "", fmt.Errorf("it has no place for %q", begin)
		}
		report = before + s + after
	}
	return report, nil
}
