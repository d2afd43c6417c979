package ramdisk

import (
	"log/slog"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/better-compute/metal/adapters/netboot"
	"github.com/better-compute/metal/domain/fault"
)

// Settings are what the kernel's command line says.
type Settings struct {
	netboot.Boot
	RebootAfter time.Duration // metal.reboot-after: how long the gateway may be out of reach
	Level       slog.Level    // metal.log
	LLDPWait    time.Duration // metal.lldp-wait: how long a link may have been up before its neighbour counts as silent
}

// unreachableFor is how long the gateway may be out of reach unless the command line says otherwise.
const unreachableFor = 30 * time.Minute

// lldpWait is a little more than the half minute after which neighbours say again who they are.
const lldpWait = 32 * time.Second

var isFingerprint = regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString

// ParseSettings reads a kernel's command line. With an error come the settings that are right all the same.
func ParseSettings(line string) (Settings, error) {
	s := Settings{Boot: netboot.ParseArguments(line), RebootAfter: unreachableFor, LLDPWait: lldpWait}
	var issues []fault.Issue
	wrong := func(path, message string) { issues = append(issues, fault.Issue{Path: path, Message: message}) }
	for _, word := range s.Args {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "metal.reboot-after":
			if d, err := time.ParseDuration(value); err == nil && d > 0 {
				s.RebootAfter = d
			} else {
				wrong(name, "a time such as 30m is needed")
			}
		case "metal.lldp-wait":
			if d, err := time.ParseDuration(value); err == nil && d >= 0 {
				s.LLDPWait = d
			} else {
				wrong(name, "a time such as 32s is needed, or 0s")
			}
		case "metal.log":
			if s.Level.UnmarshalText([]byte(value)) != nil {
				wrong(name, "one of debug, info, warn, error")
			}
		}
	}
	if u, err := url.Parse(s.Gateway); err != nil || u.Scheme != "https" || u.Host == "" {
		wrong("metal.gateway", "an https URL is needed")
	}
	if s.CA = strings.ToLower(s.CA); !isFingerprint(s.CA) {
		wrong("metal.ca", "64 hexadecimal digits are needed")
	}
	for _, site := range netboot.Sites(s.Site) {
		if u, err := url.Parse(site); err != nil || u.Host == "" {
			wrong("metal.site", "the URLs of the site's boot servers are needed, with commas between them")
			break
		}
	}
	if s.Ref == "" {
		wrong("metal.ref", "the reference of the join token is needed")
	}
	if len(issues) > 0 {
		return s, &fault.Error{
			Code: fault.InvalidConfig, Message: "the kernel's command line does not say where the control plane is", Issues: issues,
			Remedy: "boot the machine with the script that the site's agent serves",
		}
	}
	return s, nil
}
