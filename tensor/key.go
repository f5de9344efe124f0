package tensor

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// Key is a derivation key: a SHA-256 over what a tensor's bytes are made from
// (source digest and tensor, or stage name, version, parameters and input
// keys). Equal keys promise equal bytes. The zero Key means "not keyed": the
// bytes are never looked up or kept.
type Key [32]byte

// IsZero reports whether k is the zero Key.
func (k Key) IsZero() bool { return k == Key{} }

// String gives the key in lower-case hex.
func (k Key) String() string { return hex.EncodeToString(k[:]) }

// ParseKey reads 64 lower-case hex digits.
func ParseKey(s string) (Key, error) {
	var k Key
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(k) || hex.EncodeToString(b) != s {
		return k, fmt.Errorf("derivation key %q is not 64 lower-case hex digits", s)
	}
	copy(k[:], b)
	return k, nil
}

// Derive hashes a stage name with its version, its parameters and the keys of
// its inputs. If any input is not keyed the result is not keyed either. Every
// part is length-prefixed, so no two different lists give the same bytes.
func Derive(stage, params string, inputs ...Key) Key {
	h := sha256.New()
	part := func(b []byte) {
		var n [8]byte
		binary.LittleEndian.PutUint64(n[:], uint64(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	part([]byte("quern.key.v1"))
	part([]byte(stage))
	part([]byte(params))
	for _, k := range inputs {
		if k.IsZero() {
			return Key{}
		}
		part(k[:])
	}
	var out Key
	h.Sum(out[:0])
	return out
}
