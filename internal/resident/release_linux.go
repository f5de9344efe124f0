package resident

import (
	"bufio"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Pages are those of mapped files.
type Pages struct{ mappings []mapping }

// Find finds the files that are mapped, but for mappings that may be written to, and those
// that hold a page which is not the file's, such as tables that were relocated before
// they became read-only: their content is nowhere else. It leaves garbage, which may be
// collected before Release; Release leaves none.
func Find() (Pages, error) {
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return Pages{}, err
	}
	defer f.Close()
	list, err := mappings(f)
	return Pages{slices.DeleteFunc(list, func(m mapping) bool { return !m.clean() })}, err
}

// Only are the pages of one file.
func (p Pages) Only(path string) Pages {
	var out Pages
	for _, m := range p.mappings {
		if m.path == path {
			out.mappings = append(out.mappings, m)
		}
	}
	return out
}

// Release takes the pages out of the page table. They stay in the system's cache, and come
// back as they are touched. No file may have been unmapped since Find. It gives the first
// error of mappings that keep their pages.
func (p Pages) Release() error {
	var first error
	// The program's own pages, which this touches, lie lowest and come last.
	for _, m := range slices.Backward(p.mappings) {
		// A kind of mapping that refuses, as locked ones do, keeps its pages.
		if _, _, e := syscall.Syscall(syscall.SYS_MADVISE, m.from, m.to-m.from, syscall.MADV_DONTNEED); e != 0 && e != syscall.EINVAL && first == nil {
			first = e
		}
	}
	return first
}

// mapping is an entry of smaps.
type mapping struct {
	from, to uintptr
	perms    string // such as r-xp
	path     string // empty, or such as [stack], for what is no file
	// KiB that are not the file's, in memory and swapped out; -1 where the entry does
	// not say.
	anonymous, swap int64
	// KiB in huge pages that only this process has, which may be the file's or not.
	huge int64
}

func (m *mapping) clean() bool {
	return strings.HasPrefix(m.path, "/") && !strings.Contains(m.perms, "w") && m.anonymous == 0 && m.swap == 0 && m.huge == 0
}

var errForm = errors.New("/proc/self/smaps has another form")

// mappings reads entries:
//
//	from-to perms offset device inode   path
//	Name:       n kB
//	...
func mappings(r io.Reader) ([]mapping, error) {
	var out []mapping
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := lines.Text()
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if name, ok := strings.CutSuffix(words[0], ":"); ok {
			if len(out) == 0 {
				return nil, errForm
			}
			if err := out[len(out)-1].set(name, words[1:]); err != nil {
				return nil, err
			}
			continue
		}
		from, to, ok := strings.Cut(words[0], "-")
		a, aErr := strconv.ParseUint(from, 16, 64)
		b, bErr := strconv.ParseUint(to, 16, 64)
		if !ok || aErr != nil || bErr != nil || b < a || len(words) < 5 {
			return nil, errForm
		}
		path := line // which may have spaces
		for range 5 {
			_, path, _ = strings.Cut(strings.TrimLeft(path, " "), " ")
		}
		path = strings.TrimSuffix(strings.TrimLeft(path, " "), " (deleted)")
		out = append(out, mapping{from: uintptr(a), to: uintptr(b), perms: words[1], path: path, anonymous: -1, swap: -1})
	}
	return out, lines.Err()
}

// set takes a line of an entry.
func (m *mapping) set(name string, words []string) error {
	var field *int64
	switch name {
	case "Anonymous":
		field = &m.anonymous
	case "Swap":
		field = &m.swap
	case "Private_Hugetlb":
		field = &m.huge
	default:
		return nil
	}
	if len(words) == 0 {
		return errForm
	}
	n, err := strconv.ParseInt(words[0], 10, 64)
	if err != nil {
		return errForm
	}
	*field = n
	return nil
}
