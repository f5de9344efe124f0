package hubtest

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// serve sends a file's content: whole, or one range of it, or what a fault
// makes of that. It ends early when stop closes.
func serve(w http.ResponseWriter, r *http.Request, f *File, tag string, fault *Fault, compress bool, stop <-chan struct{}) {
	var ft Fault
	if fault != nil {
		ft = *fault
	}
	h := w.Header()
	if ft.ETag != "" {
		tag = ft.ETag
	}
	if _, set := h["Etag"]; !set {
		h.Set("ETag", `"`+tag+`"`)
	}
	h.Set("Accept-Ranges", "bytes")
	if compress || ft.Gzip {
		h.Set("Content-Encoding", "gzip")
		if r.Method == http.MethodHead {
			return
		}
		// Without a length, as a compressing proxy sends it.
		http.NewResponseController(w).Flush()
		z := gzip.NewWriter(w)
		io.Copy(z, io.NewSectionReader(f.Reader, 0, f.Size))
		z.Close()
		return
	}
	lo, hi, status := int64(0), f.Size, http.StatusOK
	rng := r.Header.Get("Range")
	if ir := r.Header.Get("If-Range"); ir != "" && strings.Trim(ir, `"`) != tag {
		rng = ""
	}
	if rng != "" && !ft.IgnoreRange {
		a, b, ok := parseRange(rng, f.Size)
		switch {
		case ok && a >= f.Size:
			h.Set("Content-Range", fmt.Sprintf("bytes */%d", f.Size))
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			return
		case ok:
			lo, hi, status = a, b, http.StatusPartialContent
		}
	}
	if status == http.StatusPartialContent {
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", lo, hi-1, f.Size))
		if ft.ContentRange != "" {
			h.Set("Content-Range", ft.ContentRange)
		}
	}
	if ft.Multipart {
		h.Set("Content-Type", "multipart/byteranges; boundary=THIS")
		h.Del("Content-Range")
	}
	if !ft.Chunked {
		h.Set("Content-Length", strconv.FormatInt(hi-lo, 10))
		if ft.ZeroLength && r.Method == http.MethodHead {
			h.Set("Content-Length", "0")
		}
	}
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return
	}
	b := body{w: w, r: r, ft: ft, stop: stop}
	b.send(f, lo, hi)
}

type body struct {
	w    http.ResponseWriter
	r    *http.Request
	ft   Fault
	stop <-chan struct{}
}

func (b *body) send(f *File, lo, hi int64) {
	flush := func() { http.NewResponseController(b.w).Flush() }
	end := hi
	if b.ft.Chunked {
		end -= b.ft.Drop
		flush() // makes it chunked
	}
	if b.ft.Cut || b.ft.Stall {
		end = min(end, lo+b.ft.CutAfter)
	}
	hold := int64(-1)
	if b.ft.Hold != nil {
		hold = min(end, lo+b.ft.CutAfter)
	}
	buf := make([]byte, 64<<10)
	for off := lo; off < end; {
		if off == hold {
			flush()
			b.ft.Hold()
			hold = -1
		}
		n := int(min(int64(len(buf)), end-off))
		if hold > off {
			n = int(min(int64(n), hold-off))
		}
		if k, err := f.Reader.ReadAt(buf[:n], off); k < n {
			panic(fmt.Sprintf("hubtest: content read: %v", err))
		}
		if x := b.ft.Flip - 1 - off; b.ft.Flip > 0 && x >= 0 && x < int64(n) {
			buf[x] ^= 0xff
		}
		if _, err := b.w.Write(buf[:n]); err != nil {
			return
		}
		off += int64(n)
	}
	switch {
	case b.ft.Stall:
		flush()
		if b.ft.Stalled != nil {
			b.ft.Stalled()
		}
		select {
		case <-b.r.Context().Done():
		case <-b.stop:
		}
		panic(http.ErrAbortHandler)
	case b.ft.Cut:
		flush()
		panic(http.ErrAbortHandler)
	case b.ft.Chunked && b.ft.Extra > 0:
		b.w.Write(make([]byte, b.ft.Extra))
	}
}

// parseRange reads one range: a-b, a- or -n. Several ranges are not
// understood, so that the whole file is sent.
func parseRange(s string, size int64) (lo, hi int64, ok bool) {
	spec, ok := strings.CutPrefix(s, "bytes=")
	if !ok || strings.Contains(spec, ",") {
		return 0, 0, false
	}
	a, b, ok := strings.Cut(spec, "-")
	if !ok {
		return 0, 0, false
	}
	if a == "" {
		n, err := strconv.ParseInt(b, 10, 64)
		if err != nil || n <= 0 {
			return 0, 0, false
		}
		return max(size-n, 0), size, true
	}
	lo, err := strconv.ParseInt(a, 10, 64)
	if err != nil || lo < 0 {
		return 0, 0, false
	}
	if b == "" {
		return lo, size, true
	}
	last, err := strconv.ParseInt(b, 10, 64)
	if err != nil || last < lo {
		return 0, 0, false
	}
	return lo, min(last+1, size), true
}
