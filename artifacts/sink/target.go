package sink

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"
)

// Kind says how a target is reached.
type Kind string

// The kinds of targets.
const (
	File   Kind = "file"   // PATH, file:PATH
	Stdout Kind = "stdout" // -, stdout:
	ADB    Kind = "adb"    // adb:[SERIAL:]/PATH
	SSH    Kind = "ssh"    // ssh:[USER@]HOST[:PORT]:PATH, ssh://...
	HTTP   Kind = "http"   // http://..., https://...
	Flash  Kind = "flash"  // flash:FILE?offset=..&partition-size=..
)

// Target is where a file goes, as a recipe or a command line says it.
type Target struct {
	Kind Kind
	// Path is the file, or the folder, on this machine or the other one.
	Path string
	// Host is the host of ssh and the serial number of adb, empty for the only
	// device; User and Port are of ssh, 0 where its configuration decides.
	Host string
	User string
	Port int
	// URL is the whole address of HTTP.
	URL *url.URL
	// Folder says that the file goes into Path under its own name.
	Folder bool
	// Image is how a flash image is laid out.
	Image Image
}

// Parse reads a target. Nothing is reached.
func Parse(s string) (Target, error) {
	t, err := parse(s)
	if err != nil {
		return t, fmt.Errorf("%w: %s", ErrSyntax, err)
	}
	for _, part := range []string{t.Path, t.Host, t.User} {
		if strings.ContainsFunc(part, func(r rune) bool { return unicode.IsControl(r) || r == unicode.ReplacementChar }) {
			return t, fmt.Errorf("%w: %q holds control characters", ErrSyntax, part)
		}
	}
	base := t.Path[strings.LastIndexByte(t.Path, '/')+1:]
	t.Folder = t.Kind != Stdout && (base == "" || base == "." || base == "..")
	return t, nil
}

func parse(s string) (Target, error) {
	scheme, rest, found := strings.Cut(s, ":")
	switch {
	case s == "":
		return Target{}, fmt.Errorf("it is empty")
	case s == "-" || s == "stdout:":
		return Target{Kind: Stdout}, nil
	case !found || !isScheme(scheme):
		return Target{Kind: File, Path: s}, nil
	}
	switch strings.ToLower(scheme) {
	case "file":
		rest = strings.TrimPrefix(rest, "//")
		if rest == "" {
			return Target{}, fmt.Errorf("%q names no file", s)
		}
		return Target{Kind: File, Path: rest}, nil
	case "stdout":
		return Target{}, fmt.Errorf("stdout: takes no path")
	case "adb":
		return parseADB(rest)
	case "ssh":
		return parseSSH(rest)
	case "http", "https":
		return parseHTTP(s)
	case "flash":
		return parseFlash(rest)
	}
	return Target{}, fmt.Errorf("unknown kind %q; known are a path, -, adb:, ssh:, http:, https:, flash: and file: for paths with a colon", scheme)
}

// isScheme tells adb: from C: and from ./a:b.
func isScheme(s string) bool {
	if len(s) < 2 {
		return false
	}
	for i, r := range s {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || !(r >= '0' && r <= '9' || r == '+' || r == '-' || r == '.')) {
			return false
		}
	}
	return true
}

// parseADB reads /PATH and SERIAL:/PATH. A serial number may have colons, as that
// of a device on the network has.
func parseADB(s string) (Target, error) {
	t := Target{Kind: ADB, Path: s}
	if !strings.HasPrefix(s, "/") {
		i := strings.Index(s, ":/")
		if i <= 0 {
			return t, fmt.Errorf("adb:%s: want adb:/PATH or adb:SERIAL:/PATH, with a path from the root", s)
		}
		t.Host, t.Path = s[:i], s[i+1:]
	}
	if strings.HasPrefix(t.Host, "-") {
		return t, fmt.Errorf("adb: %q is not a serial number", t.Host)
	}
	if t.Path == "" || t.Path == "/" {
		return t, fmt.Errorf("adb:%s names no file or folder", s)
	}
	return t, nil
}

// parseSSH reads [USER@]HOST[:PORT]:PATH and //[USER@]HOST[:PORT]/PATH.
func parseSSH(s string) (Target, error) {
	t := Target{Kind: SSH}
	const want = "want ssh:[USER@]HOST[:PORT]:PATH or ssh://[USER@]HOST[:PORT]/PATH"
	rest, address := strings.CutPrefix(s, "//")
	if user, after, ok := strings.Cut(rest, "@"); ok && !strings.ContainsAny(user, "/:[") {
		t.User, rest = user, after
		if user == "" {
			return t, fmt.Errorf("ssh:%s: the user is missing", s)
		}
	} else if ok && address && !strings.Contains(user, "/") {
		return t, fmt.Errorf("ssh: no password goes into a target; use a key or an agent")
	}
	if strings.HasPrefix(rest, "[") { // an IPv6 address
		end := strings.IndexByte(rest, ']')
		if end < 0 {
			return t, fmt.Errorf("ssh:%s: %s", s, want)
		}
		t.Host, rest = rest[1:end], rest[end+1:]
	} else {
		end := strings.IndexAny(rest, ":/")
		if end < 0 {
			return t, fmt.Errorf("ssh:%s: %s", s, want)
		}
		t.Host, rest = rest[:end], rest[end:]
	}
	if after, ok := strings.CutPrefix(rest, ":"); ok {
		digits := len(after) - len(strings.TrimLeft(after, "0123456789"))
		sep := digits < len(after) && (after[digits] == ':' && !address || after[digits] == '/' && address)
		if digits > 0 && sep {
			port, err := strconv.Atoi(after[:digits])
			if err != nil || port < 1 || port > 65535 {
				return t, fmt.Errorf("ssh:%s: port %s", s, after[:digits])
			}
			t.Port, rest = port, after[digits:]
		}
	}
	if address {
		t.Path = rest
	} else if after, ok := strings.CutPrefix(rest, ":"); ok {
		t.Path = after
	}
	switch {
	case t.Host == "" || strings.HasPrefix(t.Host, "-") || strings.HasPrefix(t.User, "-"):
		return t, fmt.Errorf("ssh:%s: %q is no host", s, t.Host)
	case strings.ContainsAny(t.Host+t.User, " \t'\""):
		return t, fmt.Errorf("ssh:%s: a host or user with a space or quote in it", s)
	case t.Path == "" || t.Path == "/":
		return t, fmt.Errorf("ssh:%s names no file or folder; %s", s, want)
	}
	return t, nil
}

func parseHTTP(s string) (Target, error) {
	u, err := url.Parse(s)
	if err != nil {
		// The error repeats the address, which may hold a password.
		return Target{}, fmt.Errorf("the address cannot be read")
	}
	if u.Host == "" || u.Path == "" {
		return Target{}, fmt.Errorf("%s names no file or folder", showURL(u))
	}
	if u.Fragment != "" {
		return Target{}, fmt.Errorf("%s: a fragment (#) is never sent", showURL(u))
	}
	return Target{Kind: HTTP, Path: u.Path, URL: u}, nil
}

// showURL writes an address without what may be secret in it.
func showURL(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// In places a relative path of this machine below a folder, and finds out whether
// it is one itself.
func (t Target) In(dir string) Target {
	if t.Kind != File && t.Kind != Flash {
		return t
	}
	if !filepath.IsAbs(t.Path) {
		t.Path = filepath.Join(dir, filepath.FromSlash(t.Path))
	}
	if st, err := os.Stat(t.Path); t.Kind == File && err == nil && st.IsDir() {
		t.Folder = true
	}
	return t
}

// At is the target of a file called name: below a folder, or the target as it is.
func (t Target) At(name string) Target {
	if !t.Folder {
		return t
	}
	t.Folder = false
	switch t.Kind {
	case File:
		t.Path = filepath.Join(t.Path, filepath.FromSlash(name))
	case HTTP:
		u := *t.URL
		u.Path, u.RawPath = strings.TrimSuffix(u.Path, "/")+"/"+name, ""
		t.URL, t.Path = &u, u.Path
	default:
		t.Path = strings.TrimSuffix(t.Path, "/") + "/" + name
	}
	return t
}

// ID is equal for targets that are one file. It may hold secrets.
func (t Target) ID() string {
	if t.URL != nil {
		return t.URL.String()
	}
	if t.Kind == File || t.Kind == Flash {
		return "file:" + filepath.Clean(t.Path)
	}
	return t.String()
}

// String is the target as messages show it.
func (t Target) String() string {
	switch t.Kind {
	case Stdout:
		return "standard output"
	case ADB:
		if t.Host != "" {
			return "adb:" + t.Host + ":" + t.Path
		}
		return "adb:" + t.Path
	case SSH:
		s := t.Host
		if strings.Contains(s, ":") {
			s = "[" + s + "]"
		}
		if t.User != "" {
			s = t.User + "@" + s
		}
		if t.Port != 0 {
			s += ":" + strconv.Itoa(t.Port)
		}
		return "ssh:" + s + ":" + t.Path
	case HTTP:
		return showURL(t.URL)
	case Flash:
		return "flash:" + t.Path
	}
	return t.Path
}
