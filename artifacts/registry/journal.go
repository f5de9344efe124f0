package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"quern/artifacts"
	"quern/internal/atomicfile"
)

// Journal remembers the addresses of unfinished uploads across processes. The
// addresses may hold secrets of the registry. Several goroutines use it at once.
type Journal interface {
	Load(key string) ([]byte, error) // nil when there is nothing
	Save(key string, b []byte) error
	Remove(key string) error
}

// FileJournal keeps a journal in a folder that only its owner can read.
func FileJournal(dir string) Journal { return fileJournal(dir) }

type fileJournal string

func (f fileJournal) path(key string) string { return filepath.Join(string(f), key+".json") }

func (f fileJournal) Load(key string) ([]byte, error) {
	st, err := os.Stat(f.path(key))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && st.Size() > maxJournal {
		err = errors.New("too long")
	}
	if err != nil {
		return nil, err
	}
	return os.ReadFile(f.path(key))
}

func (f fileJournal) Save(key string, b []byte) error {
	if err := os.MkdirAll(string(f), 0o700); err != nil {
		return err
	}
	return atomicfile.WriteFile(f.path(key), b, atomicfile.Options{Mode: 0o600})
}

func (f fileJournal) Remove(key string) error {
	err := os.Remove(f.path(key))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

const maxJournal = 64 << 10

// uploadDoc is a journal's JSON.
type uploadDoc struct {
	Version  int    `json:"version"`
	Location string `json:"location"`
	Chunk    int64  `json:"chunk"`
}

// journalKey names an upload without saying where it goes.
func journalKey(ref Ref, d artifacts.Descriptor) string {
	return artifacts.DigestOf([]byte(ref.Host + "/" + ref.Repository + "\n" + d.Digest.String())).Hex()[:32]
}

// remember keeps where the upload is. Only the newest address is of any use, so
// this is done after every piece. That it cannot be kept costs a later process
// time and nothing else.
func (u *upload) remember() {
	if u.c.opt.Journal == nil || u.d.Size <= u.chunk {
		return
	}
	b, err := json.Marshal(uploadDoc{1, u.loc.String(), u.chunk})
	if err == nil {
		err = u.c.opt.Journal.Save(journalKey(u.ref, u.d), b)
	}
	if err != nil {
		u.c.opt.Say("the upload cannot be remembered: " + err.Error())
	}
}

func (c *Client) forget(ref Ref, d artifacts.Descriptor) {
	if c.opt.Journal != nil {
		_ = c.opt.Journal.Remove(journalKey(ref, d)) // of no use, and found out to be so
	}
}

// recall goes on with an upload of an earlier process, if the registry knows it
// still.
func (u *upload) recall(ctx context.Context) error {
	if u.c.opt.Journal == nil {
		return nil
	}
	b, err := u.c.opt.Journal.Load(journalKey(u.ref, u.d))
	if err != nil || b == nil {
		return nil
	}
	var doc uploadDoc
	if json.Unmarshal(b, &doc) != nil || doc.Version != 1 || doc.Chunk <= 0 {
		return nil
	}
	loc, err := url.Parse(doc.Location)
	if err != nil || loc.Host == "" {
		return nil
	}
	u.loc, u.chunk = loc, max(u.chunk, doc.Chunk)
	if err := u.look(ctx); err != nil {
		return err
	}
	u.resumed, u.had = u.loc != nil && u.at > 0, u.at
	if u.resumed {
		u.c.opt.Say(fmt.Sprintf("blob %s: going on at byte %d of %d", u.d.Digest, u.at, u.d.Size))
	}
	return nil
}
