package esdb

import (
	"fmt"
	"net/url"
	"sort"
	"strconv"
	"strings"

	client "github.com/EventStore/EventStore-Client-Go/v4/esdb"

	"github.com/better-compute/metal/domain/fault"
)

// settings are the connection string's settings that the client knows, in lower case.
var settings = map[string]bool{
	"discoveryinterval": true, "gossiptimeout": true, "maxdiscoverattempts": true, "nodepreference": true,
	"keepaliveinterval": true, "keepalivetimeout": true, "tls": true, "tlscafile": true, "usercertfile": true,
	"userkeyfile": true, "tlsverifycert": true, "defaultdeadline": true,
}

// address is a connection string in its parts.
type address struct {
	scheme, user, hosts, query string
	hasUser                    bool
}

// cut takes a connection string apart without judging it. User and password end at the last @ before the settings.
func cut(connection string) address {
	var a address
	rest := connection
	a.scheme, rest, _ = strings.Cut(rest, "://")
	rest, a.query, _ = strings.Cut(rest, "?")
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		a.user, rest, a.hasUser = rest[:at], rest[at+1:], true
	}
	a.hosts = strings.TrimSuffix(rest, "/")
	return a
}

// parse reads a connection string. All issues are told at once, as one INVALID_CONFIG. No text of the parsers below is
// passed on unless it speaks of a known setting: they quote what they could not read, which may be the password.
func parse(connection string) (*client.Configuration, error) {
	a := cut(connection)
	issues := append(checkAddress(a), checkSettings(a)...)
	user, password, err := a.credentials()
	if err != nil {
		issues = append(issues, fault.Issue{Path: "connection.user", Message: err.Error()})
	}
	if len(issues) > 0 {
		return nil, invalid(issues...)
	}
	bare := a.scheme + "://" + a.hosts
	if a.query != "" {
		bare += "?" + a.query
	}
	config, err := client.ParseConnectionString(bare)
	if err == nil {
		err = config.Validate()
	}
	if err != nil {
		return nil, invalid(fault.Issue{Path: "connection", Message: "the client cannot read it"})
	}
	config.Username, config.Password = user, password
	return config, nil
}

func invalid(issues ...fault.Issue) error {
	e := fault.New(fault.InvalidConfig, "the event store's connection string is not valid").WithRemedy(
		"write it as esdb://[user:password@]host[:port][,host[:port]…][?setting=value&…], with reserved characters of " +
			"user and password percent-encoded")
	e.Issues = issues
	return e
}

func checkAddress(a address) (issues []fault.Issue) {
	if a.scheme != "esdb" && a.scheme != "esdb+discover" {
		issues = append(issues, fault.Issue{Path: "connection.scheme", Message: "is not esdb:// or esdb+discover://"})
	}
	for i, host := range strings.Split(a.hosts, ",") {
		if message := checkHost(host); message != "" {
			issues = append(issues, fault.Issue{Path: fmt.Sprintf("connection.hosts[%d]", i), Message: message})
		}
	}
	return issues
}

func checkHost(host string) string {
	name, port, hasPort := strings.Cut(host, ":")
	switch {
	case name == "":
		return "is empty"
	case strings.ContainsAny(name, "/@#%[]\\ "):
		return "is not a host name or an IPv4 address (the client knows no others)"
	case !hasPort:
		return ""
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "has a port that is not a number from 1 to 65535"
	}
	return ""
}

// checkSettings has the client read each setting by itself, so that every wrong one is told.
func checkSettings(a address) (issues []fault.Issue) {
	query, err := url.ParseQuery(a.query)
	if err != nil {
		return []fault.Issue{{Path: "connection.settings", Message: "are not of the form name=value&name=value"}}
	}
	for name, values := range query {
		key := strings.ToLower(name)
		switch {
		case !settings[key]:
			issues = append(issues, fault.Issue{Path: "connection.settings", Message: unknownSetting(a, name)})
		case len(values) > 1:
			issues = append(issues, fault.Issue{Path: "connection.settings." + key, Message: "is given more than once"})
		case key == "nodepreference" && !strings.EqualFold(values[0], "leader"):
			issues = append(issues, fault.Issue{Path: "connection.settings." + key,
				Message: "can only be leader: what was appended must be seen by the next read"})
		case key == "defaultdeadline" && !positive(values[0]): // the client would take it for none at all
			issues = append(issues, fault.Issue{Path: "connection.settings." + key, Message: "is not a number of milliseconds"})
		default:
			alone := "esdb://localhost?" + url.Values{key: values}.Encode()
			if _, err := client.ParseConnectionString(alone); err != nil {
				issues = append(issues, fault.Issue{Path: "connection.settings." + key, Message: err.Error()})
			}
		}
	}
	sort.Slice(issues, func(i, j int) bool { return issues[i].Path < issues[j].Path })
	return issues
}

func positive(number string) bool {
	n, err := strconv.ParseUint(number, 10, 31)
	return err == nil && n > 0
}

// unknownSetting names the setting only where it can't be the tail of a password with a ? in it.
func unknownSetting(a address, name string) string {
	if strings.Contains(a.query, "@") {
		return "one is not known (a ? or @ in the password must be percent-encoded)"
	}
	return strconv.Quote(name) + " is not known"
}

func (a address) credentials() (user, password string, err error) {
	if !a.hasUser {
		return "", "", nil
	}
	rawUser, rawPassword, _ := strings.Cut(a.user, ":")
	user, err = url.PathUnescape(rawUser)
	if err == nil {
		password, err = url.PathUnescape(rawPassword)
	}
	if err != nil {
		return "", "", fmt.Errorf("holds a %% that is not followed by two hexadecimal digits")
	}
	if user == "" || password == "" {
		return "", "", fmt.Errorf("needs a name and a password")
	}
	return user, password, nil
}
