package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

// program is one of the programs that users run, in a process of its own. What it says is in a file.
type program struct {
	name string
	log  string
	cmd  *exec.Cmd
	gone chan struct{}
}

// build makes the programs, once.
func (b *bench) build(ctx context.Context) error {
	if b.built {
		return nil
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", b.dir+"/", "./cmd/metald", "./cmd/bcd", "./cmd/metalsim")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the programs (run from the module's root): %w: %s", err, out)
	}
	b.built = true
	return nil
}

// program starts one.
func (b *bench) program(ctx context.Context, environ []string, name string, arguments ...string) (*program, error) {
	if err := b.build(ctx); err != nil {
		return nil, err
	}
	b.started++
	p := &program{name: name, log: filepath.Join(b.dir, fmt.Sprintf("%s.%d.log", name, b.started)), gone: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the program has its own
	p.cmd = exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(b.dir, name), arguments...)
	p.cmd.Env = append(os.Environ(), environ...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.gone)
		_ = p.cmd.Wait() // how it ended is in what it said
	}()
	return p, nil
}

// said waits until a program has said something, and gives the parts that the expression names.
func (p *program) said(ctx context.Context, what *regexp.Regexp) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		text, err := os.ReadFile(p.log)
		if err != nil {
			return nil, err
		}
		if found := what.FindSubmatch(text); found != nil {
			var parts []string
			for _, part := range found[1:] {
				parts = append(parts, string(part))
			}
			return parts, nil
		}
		select {
		case <-tick.C:
		case <-p.gone:
			return nil, fmt.Errorf("%s has ended: %s", p.name, tail(text))
		case <-ctx.Done():
			return nil, fmt.Errorf("%s does not say %s: %s", p.name, what, tail(text))
		}
	}
}

func tail(text []byte) []byte { return text[max(0, len(text)-4000):] }

// stop asks a program to end, and ends it where it does not.
func (p *program) stop() error {
	if p == nil {
		return nil
	}
	_ = p.cmd.Process.Signal(os.Interrupt) // it may have ended
	select {
	case <-p.gone:
		return nil
	case <-time.After(20 * time.Second):
		p.kill()
		return errors.New(p.name + " did not stop when asked")
	}
}

// kill is kill -9.
func (p *program) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.gone
}

func freePort(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
