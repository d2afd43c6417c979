package netboot

import (
	"fmt"
	"slices"
	"strings"

	"github.com/better-compute/metal/domain/fault"
)

// Boot is what a script says.
type Boot struct {
	Exit           bool // go on to the next boot device
	Kernel, Initrd string
	Args           []string // of the kernel, without those below

	Gateway string // metal.gateway
	CA      string // metal.ca: SHA-256 of the CA's certificate
	Site    string // metal.site: this server
	Ref     string // metal.ref: what the join token is fetched with, once
	Port    string // metal.port: MAC of the port that it boots over; empty: it is not known

	Again []string // URLs of scripts to go on with where kernel or ramdisk can't be had; none: what the firmware does then
}

const (
	magic      = "#!ipxe"
	labelAgain = ":again"
	scriptMost = 64 << 10

	// A kernel that UEFI firmware starts looks for its ramdisk by this name on its command line; one under BIOS is handed it.
	ramdiskName = "ramdisk"
	ramdiskWord = "initrd=" + ramdiskName
)

// A boot server may die while a machine loads from it. The machine then asks every server of the site for its script, in turn, until
// one has it: that is the server that has taken over. What it goes on with in the end is the next boot device.
const (
	orAgain    = "|| goto again"
	againPause = 5   // seconds between two rounds
	againMost  = 120 // rounds
	wordChain  = "chain --replace "
)

// Script writes it as iPXE reads it.
func (b Boot) Script() string {
	if b.Exit {
		return magic + "\nexit\n"
	}
	words := append([]string{"kernel", b.Kernel, ramdiskWord}, b.arguments()...)
	initrd := "initrd --name " + ramdiskName + " " + b.Initrd
	if len(b.Again) == 0 {
		return fmt.Sprintf("%s\n%s\n%s\nboot\n", magic, strings.Join(words, " "), initrd)
	}
	lines := []string{
		magic, strings.Join(words, " ") + " " + orAgain, initrd + " " + orAgain, "boot " + orAgain,
		labelAgain, "imgfree", "inc rounds", fmt.Sprintf("iseq ${rounds} %d && exit ||", againMost), fmt.Sprintf("sleep %d", againPause),
	}
	for _, url := range b.Again {
		lines = append(lines, wordChain+url+" ||")
	}
	return strings.Join(append(lines, "goto again"), "\n") + "\n"
}

// arguments are the kernel's, however it is started.
func (b Boot) arguments() []string {
	own := []string{"metal.gateway=" + b.Gateway, "metal.ca=" + b.CA, "metal.site=" + b.Site, "metal.ref=" + b.Ref}
	if b.Port != "" {
		own = append(own, "metal.port="+b.Port)
	}
	return append(own, b.Args...)
}

// ParseScript reads what Script writes, as a machine does that boots from it.
func ParseScript(text string) (Boot, error) {
	bad := func(why string) (Boot, error) {
		return Boot{}, fault.New(fault.InvalidInput, "the boot script %s", why)
	}
	if len(text) > scriptMost {
		return bad("is too long")
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if lines[0] != magic {
		return bad("does not begin with " + magic)
	}
	var b Boot
	booted, label := false, slices.Index(lines, labelAgain)
	if label >= 0 {
		b.readAgain(lines[label:])
		lines = lines[:label]
	}
	for _, line := range lines[1:] {
		words := strings.Fields(strings.TrimSuffix(strings.TrimSpace(line), orAgain))
		switch {
		case len(words) == 0:
		case words[0] == "exit" && len(words) == 1:
			return Boot{Exit: true}, nil
		case words[0] == "kernel" && len(words) > 1:
			b.Kernel = words[1]
			b.readArguments(words[2:])
		case words[0] == "initrd" && len(words) == 2:
			b.Initrd = words[1]
		case words[0] == "initrd" && len(words) == 4 && words[1] == "--name":
			b.Initrd = words[3]
		case words[0] == "boot" && len(words) == 1:
			booted = true
		default:
			return bad("has a line that is not understood")
		}
	}
	if !booted || b.Kernel == "" || b.Initrd == "" {
		return bad("boots nothing")
	}
	return b, nil
}

// readAgain reads what follows the label.
func (b *Boot) readAgain(lines []string) {
	for _, line := range lines {
		if url, ok := strings.CutPrefix(strings.TrimSpace(line), wordChain); ok {
			b.Again = append(b.Again, strings.TrimSpace(strings.TrimSuffix(url, "||")))
		}
	}
}

// ParseArguments reads a kernel's command line, as /proc/cmdline has it.
func ParseArguments(line string) Boot {
	var b Boot
	b.readArguments(strings.Fields(line))
	return b
}

func (b *Boot) readArguments(words []string) {
	for _, word := range words {
		if word == ramdiskWord {
			continue
		}
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "metal.gateway":
			b.Gateway = value
		case "metal.ca":
			b.CA = value
		case "metal.site":
			b.Site = value
		case "metal.ref":
			b.Ref = value
		case "metal.port":
			b.Port = value
		default:
			b.Args = append(b.Args, word)
		}
	}
}
