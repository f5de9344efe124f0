package quant

import (
	"math"
	"testing"

	"quern/tensor"
)

// edgeRows is 32 rows of 512 values made of runs of many kinds, at which
// searches meet empty groups, ties, equal values, one sign and lost scales. The
// magnitudes stay where every scale is finite.
func edgeRows() []float32 {
	s := uint32(777)
	next := func() uint32 {
		s = s*1664525 + 1013904223
		return s >> 8
	}
	unit := func() float32 { return float32(int32(next())-1<<23) * (1.0 / (1 << 23)) }
	x := make([]float32, 32*512)
	for at := 0; at < len(x); {
		run := x[at:min(at+16<<(next()%5), len(x))]
		kind, scale := next()%10, float32(math.Ldexp(1, int(next()%24)-16))
		for i := range run {
			v := unit()
			switch kind {
			case 0:
				v *= scale
			case 1: // a few large values
				v = float32(float32(v*v)*v) * scale
			case 2: // ties
				v = float32(int32(next()%9)-4) * scale
			case 3: // mostly zero
				if next()%16 != 0 {
					v = 0
				}
			case 4:
				v = abs32(v) * scale
			case 5:
				v = -abs32(v) * scale
			case 6: // zeros of both signs
				v = float32(math.Copysign(0, float64(v)))
			case 7:
				v = 0.3 * scale
			case 8: // under or near the limits that count as zero
				v *= float32(math.Ldexp(1, -22-int(next()%40)))
			case 9: // every magnitude at once
				v *= float32(math.Ldexp(1, -int(next()%40)))
			}
			run[i] = v
		}
		at += len(run)
	}
	return x
}

// edgeRowWeights are weights with empty groups, with values next to nothing,
// and of a range of 2^24.
func edgeRowWeights() [3][]float32 {
	var out [3][]float32
	s := uint32(99)
	for k := range out {
		w := make([]float32, 512)
		for i := range w {
			s = s*1664525 + 1013904223
			u := float32(s>>8) * (1.0 / (1 << 24))
			switch {
			case k == 0 && i/16%3 == 0:
				u = 0
			case k == 1:
				u = u * 1e-12
			case k == 2:
				u = float32(math.Ldexp(float64(u), int(s>>4&31)-16))
			}
			w[i] = u
		}
		out[k] = w
	}
	return out
}

// TestEdgeHashes compares 64 bits of SHA-256 with what libggml-base of llama.cpp
// v0.5.0 (x86-64) makes of the same rows: plain, then with each of the weights.
func TestEdgeHashes(t *testing.T) {
	x, weights := edgeRows(), edgeRowWeights()
	if got := hash16(bytesOfFloats(x)); got != edgeInputHash {
		t.Fatalf("the input is not that of the hashes: %s", got)
	}
	for typ, want := range edgeHashes {
		t.Run(typ.String(), func(t *testing.T) {
			for i, w := range [][]float32{nil, weights[0], weights[1], weights[2]} {
				if want[i] == "" {
					continue // ggml wants weights, or stops at these
				}
				if got := hash16(encodeRows(t, typ, x, 512, w)); got != want[i] {
					t.Errorf("case %d: %s, want %s", i, got, want[i])
				}
			}
		})
	}
	for _, typ := range writable() {
		if _, ok := edgeHashes[typ]; !ok && typ != tensor.F32 && typ != tensor.KMCUQ4 {
			t.Errorf("%s has no hashes", typ)
		}
	}
}

const edgeInputHash = "81dc270479f37ef2"

var edgeHashes = map[tensor.Type][4]string{
	tensor.F16:     {"58221166815c61e3", "58221166815c61e3", "58221166815c61e3", "58221166815c61e3"},
	tensor.BF16:    {"1af73bbe155e31e0", "1af73bbe155e31e0", "1af73bbe155e31e0", "1af73bbe155e31e0"},
	tensor.Q1_0:    {"4a8396bbfb75b6c7", "4a8396bbfb75b6c7", "4a8396bbfb75b6c7", "4a8396bbfb75b6c7"},
	tensor.Q2_0:    {"d2629f281ba2723a", "d2629f281ba2723a", "d2629f281ba2723a", "d2629f281ba2723a"},
	tensor.Q4_0:    {"3f6f42eac621f148", "7a2f2afeed748bac", "a22b030cd41f223c", "03b41f410aad9f9d"},
	tensor.Q4_1:    {"9c5452d08933d4b2", "f9f2c2d45ddbdf0c", "709a31a4647e53bf", "c86150176f56b145"},
	tensor.Q5_0:    {"fedb3ddfbc4497b4", "764bf615c74b3559", "82fe4df877e18273", "b592f0e023efe2fb"},
	tensor.Q5_1:    {"01c8ef6d5603e94c", "ea2bce1d9afe5cc0", "fde448e368dfa0a8", "310d1082dc80c590"},
	tensor.Q8_0:    {"fa7498755fbf0a4a", "fa7498755fbf0a4a", "fa7498755fbf0a4a", "fa7498755fbf0a4a"},
	tensor.Q2_K:    {"9e34fff185324ca1", "00da5329ec4a54fb", "b5192c5ae078358c", "e19bf5f938309e34"},
	tensor.Q3_K:    {"158b206151e6d984", "5f86183206165631", "1de57370c0445b41", "5602d251dc1ec819"},
	tensor.Q4_K:    {"e8f551f495733852", "c02a064aba967048", "00a705e66b5dca36", "590e9d8d1c536048"},
	tensor.Q5_K:    {"fb0693f219a6eaeb", "38dd712ad14b3cd3", "181979a1084254b7", "a721ee711a7163e2"},
	tensor.Q6_K:    {"ce46ece1111079c4", "2dba18cdcd603bb9", "751ecf821eb51d45", "ea9de75c76bd7d8f"},
	tensor.TQ1_0:   {"ef78bb8b16ef0dba", "ef78bb8b16ef0dba", "ef78bb8b16ef0dba", "ef78bb8b16ef0dba"},
	tensor.TQ2_0:   {"6cea44033cb84dfb", "6cea44033cb84dfb", "6cea44033cb84dfb", "6cea44033cb84dfb"},
	tensor.IQ1_S:   {"", "73dddb758fce9450", "ed18463cff0bc43f", "51d811e33bc52849"},
	tensor.IQ1_M:   {"6cd50dd1e462f18f", "5ac976d04334196a", "f9a6755ad8f8d7e7", "9640f157a65c7fb3"},
	tensor.IQ2_XXS: {"", "916fe7c4d27ebfcd", "d321c14a9f8880fe", "2cd92edb5b664238"},
	tensor.IQ2_XS:  {"", "7ece3c4b449a8099", "2ac1a022189302e5", "6bfcf39dd13292e8"},
	tensor.IQ2_S:   {"70aeaf4e55c7c5ee", "ee41fc62b9656696", "8ed5f30e3a7ab73f", "a98195893207b735"},
	tensor.IQ3_XXS: {"a7aea9230586bb0e", "9d69c3fe17d299fc", "3ee36335ab97d415", "d840a8108a8e1d00"},
	tensor.IQ3_S:   {"a6038208005ebcca", "d0c16ebd48e021ee", "d606c9720ecbfcb0", "344e540a1d1226ed"},
	tensor.IQ4_NL:  {"0bd332bc6ebbc225", "f818f6277b7d03bb", "f3d2bc065ad99e06", "829b3fedd5f3c8f6"},
	tensor.IQ4_XS:  {"0cab5bf94e9b6de5", "eb1e38bd8bc53366", "ddcfcb9f45c1075f", "c8dac736e6d419a4"},
	tensor.MXFP4:   {"fd4a32675fe3417a", "fd4a32675fe3417a", "fd4a32675fe3417a", "fd4a32675fe3417a"},
	tensor.NVFP4:   {"bcc9c2ffedc5e0ea", "bcc9c2ffedc5e0ea", "bcc9c2ffedc5e0ea", "bcc9c2ffedc5e0ea"},
}
