package linux

import (
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/better-compute/metal/domain/node"
)

// cpuinfo gives the lines of /proc/cpuinfo as names and values.
func (m *Machine) cpuinfo(each func(name, value string)) {
	for line := range strings.Lines(m.text("proc/cpuinfo")) {
		if name, value, ok := strings.Cut(line, ":"); ok {
			each(strings.TrimSpace(name), strings.TrimSpace(value))
		}
	}
}

// threads is how many processors the kernel schedules on.
func (m *Machine) threads() (n int) {
	m.cpuinfo(func(name, _ string) {
		if name == "processor" {
			n++
		}
	})
	return n
}

// thread is one of those processors: which core it is of, by a text that threads of one core share, and which package.
type thread struct{ core, socket string }

// threads by their numbers; empty where the kernel does not tell.
type topology map[int]thread

var isProcessor = regexp.MustCompile(`^cpu[0-9]{1,5}$`).MatchString

func (m *Machine) topology() topology {
	out := topology{}
	for _, name := range m.names("sys/devices/system/cpu") {
		at := path.Join("sys/devices/system/cpu", name, "topology")
		if !isProcessor(name) {
			continue
		}
		core := m.text(at + "/core_cpus_list")
		if core == "" {
			core = m.text(at + "/thread_siblings_list") // of kernels before 5.3
		}
		if core == "" {
			continue // it is switched off
		}
		number, err := strconv.Atoi(strings.TrimPrefix(name, "cpu"))
		if err != nil {
			continue
		}
		out[number] = thread{core, m.text(at + "/physical_package_id")}
	}
	return out
}

// cores is how many cores the threads are of, those in the list; without a list all.
func (t topology) cores(of ...int) int {
	seen := map[string]bool{}
	if len(of) == 0 {
		for _, one := range t {
			seen[one.core] = true
		}
	}
	for _, number := range of {
		if one, ok := t[number]; ok {
			seen[one.core] = true
		}
	}
	return len(seen)
}

func (t topology) sockets() int {
	seen := map[string]bool{}
	for _, one := range t {
		if one.socket != "" && !strings.HasPrefix(one.socket, "-") {
			seen[one.socket] = true
		}
	}
	return len(seen)
}

// architecture is the kernel's. Those before 6.1 do not tell it; a PC's processors show what they are by their flags.
func (m *Machine) architecture() string {
	out := m.text("proc/sys/kernel/arch")
	m.cpuinfo(func(name, value string) {
		if out == "" && name == "flags" && slices.Contains(strings.Fields(value), "lm") {
			out = pc
		}
	})
	return out
}

// pc is the architecture of PCs.
const pc = "x86_64"

// cpu is what the processors are. ARM's do not tell their model here.
func (m *Machine) cpu(threads int, t topology) *node.CPU {
	out := node.CPU{Threads: threads, Sockets: t.sockets(), Architecture: m.architecture()}
	m.cpuinfo(func(name, value string) {
		if name == "model name" && out.Model == "" {
			out.Model = strings.Join(strings.Fields(value), " ")
		}
	})
	return &out
}

var isNUMANode = regexp.MustCompile(`^node[0-9]{1,4}$`).MatchString

// numa are the parts of the machine, some of which have memory only.
func (m *Machine) numa(t topology) (out []node.NUMANode) {
	for _, name := range m.names("sys/devices/system/node") {
		if !isNUMANode(name) {
			continue
		}
		at := path.Join("sys/devices/system/node", name)
		number, err := strconv.Atoi(strings.TrimPrefix(name, "node"))
		if err != nil {
			continue
		}
		one := node.NUMANode{Node: number}
		for line := range strings.Lines(m.text(at + "/meminfo")) {
			if bytes := kib(line, "Node "+strconv.Itoa(number)+" MemTotal:"); bytes > 0 {
				one.MemoryBytes = bytes
			}
		}
		if threads := numbers(m.text(at + "/cpulist")); len(threads) > 0 {
			one.Threads, one.Cores = len(threads), t.cores(threads...)
		}
		out = append(out, one)
	}
	slices.SortFunc(out, func(a, b node.NUMANode) int { return a.Node - b.Node })
	return out
}

// numbers reads a list as the kernel writes it: 0-3,8,10-11. One that makes no sense is empty.
func numbers(list string) (out []int) {
	const most = 1 << 14
	for part := range strings.SplitSeq(list, ",") {
		from, to, ranged := strings.Cut(part, "-")
		first, err := strconv.Atoi(from)
		last := first
		if ranged && err == nil {
			last, err = strconv.Atoi(to)
		}
		if err != nil || first < 0 || last < first || last >= most || len(out) >= most {
			return nil
		}
		for n := first; n <= last; n++ {
			out = append(out, n)
		}
	}
	return out
}

// kib is the bytes of the line that begins with key, which tells of kB.
func kib(text, key string) int64 {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, key)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
		if err != nil || n < 0 || n > 1<<52 {
			return 0
		}
		return n << 10
	}
	return 0
}
