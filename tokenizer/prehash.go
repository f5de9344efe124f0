package tokenizer

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"strconv"
	"strings"
)

// preHashes lists the converter's names by the hash of the encoded probe text:
// "name hex" a line.
//
//go:embed prehash.txt
var preHashes string

// probeText is what the converter encodes to tell pre-tokenizers apart. Two
// tokenizers that cut it into the same ids get the same name.
const probeText = "\n \n\n \n\n\n \t \t\t \t\n  \n   \n    \n     \n\U0001f680 (normal) \U0001f636\u200d\U0001f32b\ufe0f (multiple emojis concatenated) \u2705 \U0001f999\U0001f999 3 33 333 3333 33333 333333 3333333 33333333 3.3 3..3 3...3 \u1780\u17b6\u1793\u17cb\u178f\u17c2\u1796\u17b7\u179f\u17c1\u179f\u17a2\u17b6\u1785\U0001f601 ?\u6211\u60f3\u5728apple\u5de5\u4f5c1314151\u5929\uff5e ------======= \u043d\u0435\u0449\u043e \u043d\u0430 \u0411\u044a\u043b\u0433\u0430\u0440\u0441\u043a\u0438 ''''''```````\"\"\"\"......!!!!!!?????? I've been 'told he's there, 'RE you sure? 'M not sure I'll make it, 'D you like some tea? We'Ve a'lL"

// hashIDs is the SHA-256, in hexadecimal, of the ids written as a Python list.
func hashIDs(ids []int32) string {
	b := []byte{'['}
	for i, id := range ids {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = strconv.AppendInt(b, int64(id), 10)
	}
	sum := sha256.Sum256(append(b, ']'))
	return hex.EncodeToString(sum[:])
}

// nameByHash finds the converter's name for a probe hash.
func nameByHash(hash string) (string, bool) {
	for line := range strings.Lines(preHashes) {
		name, sum, ok := strings.Cut(strings.TrimSpace(line), " ")
		if ok && sum == hash {
			return name, true
		}
	}
	return "", false
}
