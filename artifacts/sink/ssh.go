package sink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
)

// sshRunner runs commands through the system's ssh client, as git and rsync do:
// whatever a user has set up for a host (keys, agents, jump hosts, known hosts)
// counts here too.
type sshRunner struct {
	client []string // the program and its first arguments
	t      Target
}

func newSSH(t Target, opt Options) (Sink, error) {
	client := opt.SSH
	if len(client) == 0 {
		client = []string{"ssh"}
	}
	return newShellSink(&sshRunner{client, t}, t), nil
}

// argv is the command line for a script. The login shell over there may be any:
// it sees exec, sh, -c and one quoted word.
func (r *sshRunner) argv(script string) []string {
	argv := append([]string{}, r.client...)
	argv = append(argv, "-T", "-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3", "-o", "ConnectTimeout=20")
	if r.t.Port != 0 {
		argv = append(argv, "-p", strconv.Itoa(r.t.Port))
	}
	if r.t.User != "" {
		argv = append(argv, "-l", r.t.User)
	}
	return append(argv, "--", r.t.Host, "exec sh -c "+quoteWord(script))
}

// fault tells the client's own failure (exit code 255) from that of a command.
func (r *sshRunner) fault(text string, err error) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() == 255 || exit.ExitCode() < 0 {
		why := fmt.Errorf("ssh: %w%s", err, said(text))
		for _, s := range []string{"Permission denied (", "Host key verification failed", "Too many authentication failures", "Bad configuration option", "Could not resolve hostname", "REMOTE HOST IDENTIFICATION"} {
			if strings.Contains(text, s) {
				return fmt.Errorf("%w: %w; ssh %s must work without questions", ErrRefused, why, r.t.Host)
			}
		}
		return Passing(why)
	}
	return remoteFault(fmt.Errorf("the other side: exit code %d%s", exit.ExitCode(), said(text)))
}

func (r *sshRunner) run(ctx context.Context, script string) ([]byte, error) {
	return output(ctx, r.argv(script), r.fault)
}

func (r *sshRunner) put(ctx context.Context, script string) (io.WriteCloser, error) {
	return startWriter(ctx, r.argv(script), r.fault)
}

func (r *sshRunner) get(ctx context.Context, script string) (io.ReadCloser, error) {
	return startReader(ctx, r.argv(script), r.fault)
}
