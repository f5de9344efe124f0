// Command stream is what internal/scripts/stream.sh needs around a build: a hub
// with a mixture of experts that exists nowhere, and a receiver that keeps only a
// SHA-256 of what it gets.
//
//	stream hub -gib N -rate BYTES     serve hf:synthetic/moe; print its address
//	stream receive -rate BYTES        serve PUT, HEAD and MOVE; print its address
package main

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"quern/hub/hubtest"
	"quern/internal/digest"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "stream: hub or receive")
		os.Exit(2)
	}
	fs := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	gib := fs.Float64("gib", 1, "GiB of weights")
	rate := fs.Int64("rate", 0, "bytes a second, 0 for no limit")
	tokenizer := fs.String("tokenizer", "testdata/models/stories260k/tokenizer.model", "a SentencePiece model of 512 pieces")
	_ = fs.Parse(os.Args[2:]) // exits by itself
	var err error
	switch os.Args[1] {
	case "hub":
		err = serveHub(int64(*gib*(1<<30)), *rate, *tokenizer)
	case "receive":
		err = receive(*rate)
	default:
		err = fmt.Errorf("%s: hub or receive", os.Args[1])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "stream:", err)
		os.Exit(1)
	}
}

// limiter lets so many bytes a second pass, over all who share it.
type limiter struct {
	rate int64
	mu   sync.Mutex
	next time.Time
}

func (l *limiter) pass(n int) {
	if l.rate <= 0 {
		return
	}
	l.mu.Lock()
	now := time.Now()
	if l.next.Before(now.Add(-100 * time.Millisecond)) {
		l.next = now.Add(-100 * time.Millisecond) // what was not used is lost
	}
	l.next = l.next.Add(time.Duration(float64(n) / float64(l.rate) * float64(time.Second)))
	wait := l.next.Sub(now)
	l.mu.Unlock()
	time.Sleep(wait)
}

// The shape: 64 experts, rows that divide by 256.
const (
	dim     = 2048
	ffn     = 1536
	experts = 64
	vocab   = 512
)

type tensor struct {
	name  string
	shape []int64
}

func tensors(layer int) []tensor {
	p := fmt.Sprintf("model.layers.%d.", layer)
	out := []tensor{
		{p + "input_layernorm.weight", []int64{dim}}, {p + "post_attention_layernorm.weight", []int64{dim}},
		{p + "self_attn.q_proj.weight", []int64{dim, dim}}, {p + "self_attn.k_proj.weight", []int64{dim / 4, dim}},
		{p + "self_attn.v_proj.weight", []int64{dim / 4, dim}}, {p + "self_attn.o_proj.weight", []int64{dim, dim}},
		{p + "block_sparse_moe.gate.weight", []int64{experts, dim}},
	}
	for e := range experts {
		q := fmt.Sprintf("%sblock_sparse_moe.experts.%d.", p, e)
		out = append(out, tensor{q + "w1.weight", []int64{ffn, dim}}, tensor{q + "w2.weight", []int64{dim, ffn}}, tensor{q + "w3.weight", []int64{ffn, dim}})
	}
	return out
}

type entry struct {
	DType   string   `json:"dtype"`
	Shape   []int64  `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

// virtual is a safetensors file: a header, and weights that repeat a pattern whose
// length no tensor divides.
type virtual struct {
	head    []byte
	pattern []byte
	size    int64
	limit   *limiter
}

func (v *virtual) ReadAt(p []byte, off int64) (int, error) {
	if off >= v.size {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), v.size-off))
	v.limit.pass(n)
	for k := 0; k < n; {
		at := off + int64(k)
		if at < int64(len(v.head)) {
			k += copy(p[k:n], v.head[at:])
			continue
		}
		k += copy(p[k:n], v.pattern[(at-int64(len(v.head)))%int64(len(v.pattern)):])
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// pattern is BF16 values like weights, deterministic.
func pattern() []byte {
	const values = 524_309 // a prime
	r := rand.New(rand.NewPCG(20, 6))
	b := make([]byte, 0, 2*values)
	for range values {
		// A sign, an exponent from 2^-9 to 2^-6, a mantissa: near enough to weights.
		x := r.Uint32()
		b = binary.LittleEndian.AppendUint16(b, uint16(x&0x8000|(118+x>>16&3)<<7|x&0x7f))
	}
	return b
}

func serveHub(size, rate int64, tokenizer string) error {
	header := map[string]entry{}
	var off int64
	add := func(t tensor) {
		n := int64(2)
		for _, d := range t.shape {
			n *= d
		}
		header[t.name] = entry{"BF16", t.shape, [2]int64{off, off + n}}
		off += n
	}
	add(tensor{"model.embed_tokens.weight", []int64{vocab, dim}})
	layers := 0
	for ; off < size; layers++ {
		for _, t := range tensors(layers) {
			add(t)
		}
	}
	add(tensor{"model.norm.weight", []int64{dim}})
	add(tensor{"lm_head.weight", []int64{vocab, dim}})
	text, err := json.Marshal(header)
	if err != nil {
		return err
	}
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	v := &virtual{head: append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), pattern: pattern(), limit: &limiter{}}
	v.size = int64(len(v.head)) + off
	spm, err := os.ReadFile(tokenizer)
	if err != nil {
		return err
	}
	config, err := os.ReadFile(filepath.Join(filepath.Dir(tokenizer), "tokenizer_config.json"))
	if err != nil {
		return err
	}
	repo := hubtest.NewRepo("synthetic/moe")
	repo.Commit(map[string]*hubtest.File{
		"config.json": hubtest.Git(fmt.Sprintf(`{"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_size": %d, "intermediate_size": %d,
"num_hidden_layers": %d, "num_attention_heads": 16, "num_key_value_heads": 4, "num_local_experts": %d, "num_experts_per_tok": 4, "vocab_size": %d,
"max_position_embeddings": 4096, "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "bos_token_id": 1, "eos_token_id": 2,
"torch_dtype": "bfloat16", "tie_word_embeddings": false}`, dim, ffn, layers, experts, vocab)),
		"tokenizer.model":       hubtest.LFS(spm),
		"tokenizer_config.json": hubtest.Git(string(config)),
		"model.safetensors":     hubtest.LFSReader(v, v.size),
	})
	v.limit.rate = rate // the digest above was not part of it
	h, err := hubtest.Start(hubtest.Options{}, repo)
	if err != nil {
		return err
	}
	defer h.Close()
	fmt.Println(h.URL, v.size)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// sums are files of which only the digest is kept.
type sums struct {
	mu    sync.Mutex
	files map[string]*sum
	limit *limiter
}

type sum struct {
	h     hash.Hash
	n     int64
	start time.Time
}

func receive(rate int64) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + l.Addr().String())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // whoever started us has gone
		l.Close()
	}()
	_ = http.Serve(l, &sums{files: map[string]*sum{}, limit: &limiter{rate: rate}}) // ends with the listener
	return nil
}

func (s *sums) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	f := s.files[r.URL.Path]
	s.mu.Unlock()
	switch r.Method {
	case http.MethodOptions:
		w.Header().Set("DAV", "1")
		w.Header().Set("Allow", "OPTIONS, HEAD, PUT, DELETE, MOVE")
	case http.MethodHead:
		if f == nil {
			http.NotFound(w, r)
			return
		}
		d := digest.Sum(f.h)
		w.Header().Set("Content-Length", strconv.FormatInt(f.n, 10))
		w.Header().Set("Repr-Digest", "sha-256=:"+base64.StdEncoding.EncodeToString(d[:])+":")
	case http.MethodPut:
		s.put(w, r, f)
	case "MOVE":
		to, err := url.Parse(r.Header.Get("Destination"))
		if err != nil || f == nil {
			http.NotFound(w, r)
			return
		}
		s.mu.Lock()
		s.files[to.Path] = f
		delete(s.files, r.URL.Path)
		s.mu.Unlock()
		d := digest.Sum(f.h)
		fmt.Printf("received %s: %d bytes in %.1f s, SHA-256 %s\n", to.Path, f.n, time.Since(f.start).Seconds(), d.Hex())
	default:
		http.Error(w, "no", http.StatusMethodNotAllowed)
	}
}

func (s *sums) put(w http.ResponseWriter, r *http.Request, f *sum) {
	if strings.HasPrefix(r.Header.Get("Content-Range"), "bytes ") {
		// Digests cannot go back: no parts.
		http.Error(w, "no parts", http.StatusNotImplemented)
		return
	}
	f = &sum{h: digest.New(), start: time.Now()}
	buf := make([]byte, 256<<10)
	for {
		n, err := r.Body.Read(buf)
		s.limit.pass(n)
		f.h.Write(buf[:n])
		f.n += int64(n)
		if err == io.EOF {
			break
		}
		if err != nil {
			return
		}
	}
	s.mu.Lock()
	s.files[r.URL.Path] = f
	s.mu.Unlock()
	w.WriteHeader(http.StatusCreated)
}
