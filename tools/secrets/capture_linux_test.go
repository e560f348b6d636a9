package secrets

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

const childVariable = "SECRETS_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		child()
		return
	}
	goleak.VerifyTestMain(m)
}

// childReport is what the child says about itself after Capture.
type childReport struct {
	PID      int
	Args     []string
	Argv     []string
	Token    string
	TokenSet bool
	Flag     string
	Dropped  []string
	Names    []string
	Environ  []string
	Command  string // output of env, started by the child
	Files    []string
}

// child captures its secrets, reports, and waits for the end of its input.
func child() {
	env, err := Capture(&CaptureOptions{
		Secret: func(name string) bool { return name == "TOKEN" || name == "EMPTY" },
		Arguments: func(args []string) ([]string, map[string]string) {
			var rest []string
			flags := map[string]string{}
			for _, a := range args {
				if v, ok := strings.CutPrefix(a, "--key="); ok {
					flags["KEY"] = v
				} else {
					rest = append(rest, a)
				}
			}
			return rest, flags
		},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	r := childReport{
		PID: os.Getpid(), Args: env.Args, Argv: os.Args[1:], Dropped: env.Dropped, Names: env.Names(), Environ: os.Environ(),
	}
	r.Token, r.TokenSet = env.Lookup("TOKEN")
	r.Flag, _ = env.Flag("KEY")
	out, _ := exec.Command("env").Output()
	r.Command = string(out)
	files, _ := os.ReadDir("/proc/self/fd")
	for _, f := range files {
		if to, err := os.Readlink("/proc/self/fd/" + f.Name()); err == nil {
			r.Files = append(r.Files, to)
		}
	}
	_ = json.NewEncoder(os.Stdout).Encode(r)
	_, _ = bufio.NewReader(os.Stdin).ReadByte()
}

// startChild starts the test binary as a child and returns its report and what
// /proc shows of it while it runs.
func startChild(t *testing.T, environ []string, args ...string) (report childReport, proc string, pid int) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(environ, childVariable+"=1", "PATH="+os.Getenv("PATH"))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	require.NoError(t, json.NewDecoder(out).Decode(&report))
	for _, name := range []string{"environ", "cmdline"} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", cmd.Process.Pid, name))
		require.NoError(t, err)
		proc += string(b)
	}
	require.NoError(t, in.Close())
	require.NoError(t, cmd.Wait())
	return report, proc, cmd.Process.Pid
}

// (S1.3)
func TestCapture(t *testing.T) {
	t.Parallel()
	report, proc, pid := startChild(t, []string{
		"TOKEN= top-secret-value\n", "COPY=x=top-secret-value", "EMPTY=", "PLAIN=plain",
	}, "serve", "--key=flag-secret-value", "--other")

	require.Equal(t, pid, report.PID, "same process")
	require.Equal(t, "top-secret-value", report.Token, "trimmed")
	require.Equal(t, "flag-secret-value", report.Flag)
	require.Equal(t, []string{"serve", "--other"}, report.Args)
	require.Equal(t, []string{"serve", "--other"}, report.Argv)
	require.Equal(t, []string{"COPY"}, report.Dropped)
	require.Subset(t, report.Names, []string{"EMPTY", "PLAIN", "TOKEN"})
	require.Contains(t, report.Environ, "PLAIN=plain")
	require.Contains(t, proc, "PLAIN=plain")
	for what, text := range map[string]string{
		"/proc": proc, "environment": strings.Join(report.Environ, "\n"), "environment of a command": report.Command,
	} {
		require.NotContains(t, text, "secret-value", what)
	}
	require.NotContains(t, strings.Join(report.Environ, "\n"), marker)
	require.NotContains(t, report.Command, marker)
	require.False(t, slices.ContainsFunc(report.Files, func(f string) bool { return strings.Contains(f, "memfd") }), "%v", report.Files)
}

func TestCapture_NoSecrets(t *testing.T) {
	t.Parallel()
	report, _, pid := startChild(t, []string{"PLAIN=plain"}, "serve")
	require.Equal(t, pid, report.PID)
	require.False(t, report.TokenSet)
	require.Empty(t, report.Dropped)
	require.Equal(t, []string{"serve"}, report.Args)
}

// Nobody can make the program take another file for its secrets.
func TestCapture_ForeignMarker(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"0", "1", "99", "x"} {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = []string{childVariable + "=1", marker + "=" + value}
		out, err := cmd.CombinedOutput()
		require.Error(t, err)
		require.Contains(t, string(out), marker)
	}
}

// The file with the secrets is one that cannot be executed, which systems may
// demand; an older kernel that does not know such files gets another.
func TestMemoryFile(t *testing.T) {
	t.Parallel()
	data, err := json.Marshal(sealed{Env: map[string]string{"TOKEN": "value"}})
	require.NoError(t, err)
	for _, known := range []bool{true, false} {
		var asked []int
		fd, err := memoryFile(data, func(name string, flags int) (int, error) {
			asked = append(asked, flags)
			if flags&unix.MFD_NOEXEC_SEAL != 0 {
				if !known {
					return -1, unix.EINVAL
				}
				flags &^= unix.MFD_NOEXEC_SEAL
			}
			return unix.MemfdCreate(name, flags)
		})
		require.NoError(t, err)
		require.NotZero(t, asked[0]&unix.MFD_NOEXEC_SEAL)
		if known {
			require.Len(t, asked, 1)
		} else {
			require.Equal(t, []int{asked[0], unix.MFD_ALLOW_SEALING}, asked)
		}
		s, err := receive(fmt.Sprint(fd))
		require.NoError(t, err)
		require.Equal(t, "value", s.Env["TOKEN"])
	}
	fd, err := memoryFile(data, unix.MemfdCreate)
	require.NoError(t, err)
	got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	require.NoError(t, err)
	require.Equal(t, seals, got&seals)
	_, err = receive(fmt.Sprint(fd))
	require.NoError(t, err, "seals %#x", got)
	t.Logf("cannot be executed: %v", got&unix.F_SEAL_EXEC != 0)
	fd, err = unix.MemfdCreate("secrets", unix.MFD_ALLOW_SEALING)
	require.NoError(t, err)
	_, err = receive(fmt.Sprint(fd))
	require.ErrorContains(t, err, "not a file of this program", "it is not sealed")
	require.NoError(t, unix.Close(fd))
}
