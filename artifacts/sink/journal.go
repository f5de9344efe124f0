package sink

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"quern/internal/atomicfile"
	"quern/internal/digest"
)

// Mark is a place in a stream from where it can be produced again: the state of
// its digest, and what the producer has to remember.
type Mark struct {
	Offset int64  `json:"offset"`
	State  []byte `json:"state"` // of the SHA-256 up to Offset
	// Aux is the producer's own, nil at the start of the file.
	Aux json.RawMessage `json:"aux,omitempty"`
}

// Journal keeps the marks of a transfer across processes.
type Journal interface {
	Load() ([]byte, error) // nil when there is none
	Save([]byte) error
}

// keptMarks are the marks in memory, savedMarks those of a journal, and
// saveEvery the time between two writes of it.
const (
	keptMarks  = 64
	savedMarks = 8
	saveEvery  = 5 * time.Second
	maxJournal = 64 << 20
)

// journalDoc is a journal's JSON. Where the file went is not in it.
type journalDoc struct {
	Version int             `json:"version"`
	Key     string          `json:"key"`
	Size    int64           `json:"size"`
	SHA256  *digest.Digest  `json:"sha256,omitempty"` // of the whole, once it is known
	Marks   []Mark          `json:"marks,omitempty"`
	Final   json.RawMessage `json:"final,omitempty"`
}

const journalVersion = 1

// Mark remembers the place that the stream is at, if the last mark is far enough
// away. aux is called only then.
func (t *Transfer) Mark(aux func() (any, error)) error {
	last := int64(0)
	if n := len(t.marks); n > 0 {
		last = t.marks[n-1].Offset
	}
	if t.at-last < t.opt.Interval {
		return nil
	}
	state, err := digest.State(t.hash)
	if err != nil {
		return err
	}
	v, err := aux()
	if err != nil {
		return err
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	t.marks = append(t.marks, Mark{t.at, state, b})
	if n := len(t.marks); n > keptMarks {
		t.marks = append(t.marks[:0], t.marks[n-keptMarks:]...)
	}
	t.save(false)
	return nil
}

// load takes marks of an earlier process over if they are of the same bytes.
func (t *Transfer) load() {
	if t.opt.Journal == nil || t.opt.Key == "" {
		return
	}
	b, err := t.opt.Journal.Load()
	if err != nil || b == nil {
		return
	}
	doc, err := readJournal(b)
	if err != nil || doc.Key != t.opt.Key || doc.Size != t.opt.Size {
		return // of another build, or damaged: nothing is lost but time
	}
	for _, m := range doc.Marks {
		if t.opt.Check != nil && t.opt.Check(m) != nil {
			return
		}
	}
	t.begun, t.marks, t.final = true, doc.Marks, doc.Final
	if doc.SHA256 != nil && t.known.IsZero() {
		t.known = *doc.SHA256
	}
}

// readJournal checks what the transfer relies on.
func readJournal(b []byte) (*journalDoc, error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	doc := &journalDoc{}
	if err := dec.Decode(doc); err != nil {
		return nil, err
	}
	if doc.Version != journalVersion {
		return nil, errors.New("journal of another version")
	}
	last := int64(0)
	for _, m := range doc.Marks {
		if m.Offset <= last || m.Offset > doc.Size {
			return nil, errors.New("journal with marks out of order")
		}
		if _, err := digest.Resume(m.State); err != nil {
			return nil, err
		}
		last = m.Offset
	}
	return doc, nil
}

// save writes the journal, at most now and then unless now is set. That it cannot
// be written costs a later process time and nothing else.
func (t *Transfer) save(now bool) {
	if t.opt.Journal == nil || t.opt.Key == "" || !now && time.Since(t.saved) < saveEvery {
		return
	}
	t.saved = time.Now()
	t.begun = true
	t.journal(journalDoc{Marks: t.marks[max(0, len(t.marks)-savedMarks):]})
}

// finished keeps the digest, so that the same build finds its work done.
func (t *Transfer) finished() {
	if t.opt.Journal == nil || t.opt.Key == "" {
		return
	}
	t.journal(journalDoc{SHA256: &t.sum, Final: t.final})
}

func (t *Transfer) journal(doc journalDoc) {
	doc.Version, doc.Key, doc.Size = journalVersion, t.opt.Key, t.opt.Size
	b, err := json.Marshal(doc)
	if err == nil {
		err = t.opt.Journal.Save(b)
	}
	if err != nil {
		t.opt.Say("the journal of the transfer cannot be written: " + err.Error())
		t.opt.Journal = nil
	}
}

// FileJournal keeps a journal in a folder, under a name made of the targets.
func FileJournal(dir string, targets []Target) Journal {
	var names []string
	for _, t := range targets {
		names = append(names, t.ID())
	}
	sum := digest.Of([]byte(strings.Join(names, "\n")))
	return fileJournal(filepath.Join(dir, sum.Hex()[:32]+".json"))
}

type fileJournal string

func (f fileJournal) Load() ([]byte, error) {
	st, err := os.Stat(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if st.Size() > maxJournal {
		return nil, errors.New("journal too long")
	}
	return os.ReadFile(string(f))
}

func (f fileJournal) Save(b []byte) error {
	if err := os.MkdirAll(filepath.Dir(string(f)), 0o700); err != nil {
		return err
	}
	return atomicfile.WriteFile(string(f), b, atomicfile.Options{Mode: 0o600})
}
