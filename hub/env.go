package hub

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// maxTokenFile is more than any token; a larger file is something else.
const maxTokenFile = 64 << 10

// OptionsFromEnv reads the variables that other Hugging Face tools obey:
//
//	HF_ENDPOINT                          the hub's address
//	HF_TOKEN, HUGGING_FACE_HUB_TOKEN     the token, else the file
//	HF_TOKEN_PATH, $HF_HOME/token        that holds it
//	HF_HUB_DISABLE_IMPLICIT_TOKEN        do not send any of these
//	HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE no requests
//	HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE,
//	HF_HOME, XDG_CACHE_HOME              the cache folder
//	HF_HUB_ETAG_TIMEOUT,
//	HF_HUB_DOWNLOAD_TIMEOUT              seconds
//
// Proxies (HTTPS_PROXY and the like) are net/http's own business. getenv is
// os.Getenv outside of tests.
func OptionsFromEnv(getenv func(string) string) (Options, error) {
	e := env{getenv}
	o := Options{
		Endpoint:  strings.TrimRight(strings.TrimSpace(getenv("HF_ENDPOINT")), "/"),
		Offline:   e.truth("HF_HUB_OFFLINE") || e.truth("TRANSFORMERS_OFFLINE"),
		CacheDirs: []string{e.cacheDir()},
	}
	var err error
	if o.MetadataTimeout, err = e.seconds("HF_HUB_ETAG_TIMEOUT"); err != nil {
		return Options{}, err
	}
	if o.DownloadTimeout, err = e.seconds("HF_HUB_DOWNLOAD_TIMEOUT"); err != nil {
		return Options{}, err
	}
	if !e.truth("HF_HUB_DISABLE_IMPLICIT_TOKEN") {
		if o.Token, err = e.token(); err != nil {
			return Options{}, err
		}
	}
	return o, nil
}

type env struct{ get func(string) string }

// truth is 1, ON, YES or TRUE in any letter case.
func (e env) truth(name string) bool {
	switch strings.ToUpper(strings.TrimSpace(e.get(name))) {
	case "1", "ON", "YES", "TRUE":
		return true
	}
	return false
}

func (e env) seconds(name string) (time.Duration, error) {
	v := strings.TrimSpace(e.get(name))
	if v == "" {
		return 0, nil
	}
	n, ok := parseDigits(v)
	if !ok || n == 0 {
		return 0, fmt.Errorf("%w: %s=%q: want a whole number of seconds, at least 1", ErrOptions, name, v)
	}
	return seconds(n), nil
}

func (e env) home() string {
	for _, name := range []string{"HOME", "USERPROFILE"} {
		if h := e.get(name); h != "" {
			return h
		}
	}
	h, err := os.UserHomeDir()
	if err != nil {
		return "."
	}
	return h
}

// expand replaces a leading "~" and $VAR, as Python's expanduser and
// expandvars do: an unknown variable stays as it is written.
func (e env) expand(path string) string {
	if path == "~" || strings.HasPrefix(path, "~/") || strings.HasPrefix(path, `~\`) {
		path = e.home() + path[1:]
	}
	return os.Expand(path, func(name string) string {
		if v := e.get(name); v != "" {
			return v
		}
		return "$" + name
	})
}

func (e env) hfHome() string {
	if v := e.get("HF_HOME"); v != "" {
		return e.expand(v)
	}
	if v := e.get("XDG_CACHE_HOME"); v != "" {
		return filepath.Join(e.expand(v), "huggingface")
	}
	return filepath.Join(e.home(), ".cache", "huggingface")
}

func (e env) cacheDir() string {
	for _, name := range []string{"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"} {
		if v := e.get(name); v != "" {
			return e.expand(v)
		}
	}
	return filepath.Join(e.hfHome(), "hub")
}

// token follows huggingface_hub's order; an empty value counts as not set.
func (e env) token() (string, error) {
	for _, name := range []string{"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"} {
		if t := strings.TrimSpace(e.get(name)); t != "" {
			return t, nil
		}
	}
	path := e.get("HF_TOKEN_PATH")
	if path == "" {
		path = filepath.Join(e.hfHome(), "token")
	}
	b, err := readLimited(e.expand(path), maxTokenFile)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("%w: read the token file: %w", ErrOptions, err)
	}
	return strings.TrimSpace(string(b)), nil
}

// readLimited reads a regular file of at most limit bytes.
func readLimited(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", path)
	}
	if st.Size() > limit {
		return nil, fmt.Errorf("%s: %w: %d bytes, at most %d", path, ErrTooLarge, st.Size(), limit)
	}
	b := make([]byte, st.Size())
	n, err := readFullAt(f, b, 0)
	return b[:n], err
}
