package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ticks is how many a second of CPU time has in /proc: USER_HZ, the same everywhere.
const ticks = 100

// spent is the CPU time of a process, with that of its children that have ended.
func spent(pid int) (time.Duration, error) {
	_, cpu, err := stat(pid)
	return cpu, err
}

// spentWithChildren is the CPU time of a process and of the children it has or had.
func spentWithChildren(pid int) (time.Duration, error) {
	sum, err := spent(pid)
	if err != nil {
		return 0, err
	}
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, err
	}
	for _, dir := range all {
		child, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			return 0, err
		}
		if parent, cpu, err := stat(child); err == nil && parent == pid { // it may have ended meanwhile
			sum += cpu
		}
	}
	return sum, nil
}

// stat reads /proc/<pid>/stat.
func stat(pid int) (parent int, cpu time.Duration, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // from the third field on
	var n [4]int
	for i := range n {
		if n[i], err = strconv.Atoi(fields[11+i]); err != nil {
			return 0, 0, err
		}
	}
	parent, err = strconv.Atoi(fields[1])
	return parent, time.Duration(n[0]+n[1]+n[2]+n[3]) * time.Second / ticks, err
}

// resident is the memory that a process holds, in MiB.
func resident(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.Atoi(strings.Fields(rest)[0])
			return float64(kib) / 1024, err
		}
	}
	return 0, fmt.Errorf("process %d has no VmRSS", pid)
}

// loadAverage is how many processes want a core, as the machine says: what else runs on it slows everything down.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "?"
	}
	load, _, _ := strings.Cut(string(text), " ")
	return load
}

// serverPID is the process of the database server.
func (b *bench) serverPID() (int, error) {
	text, err := os.ReadFile(filepath.Join(b.dir, "data", "postmaster.pid"))
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(text), "\n")
	return strconv.Atoi(first)
}
