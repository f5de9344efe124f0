package tokenizer

import "fmt"

// llama.cpp's patterns (v0.5.0). Contractions are spelled out since its engine
// has no case-insensitive groups.
const (
	cutContractions = `(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])`
	cutSpaces       = `|\s*[\r\n]+|\s+(?!\S)|\s+`
	cutOthers       = `| ?[^\s\p{L}\p{N}]+[\r\n]*`

	cutGPT2   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)`
	cutLlama3 = cutContractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}` + cutOthers + cutSpaces
	cutQwen2  = cutContractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}` + cutOthers + cutSpaces
	cutQwen35 = cutContractions + `|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*` + cutSpaces
	cutLines  = `[^\n]+|[\n]+`
	// cutBailing cuts as cutQwen2: \s* takes in all line ends but one.
	cutBailing = `'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}` + cutOthers + `|\s*[\r\n]|\s+(?!\S)|\s+`

	cutDigits    = `\p{AFMoE_digits}` // a name, not a pattern: groups of three from the right
	cutAyaDigits = `\d{1,3}(?=(?:\d{3})*\b)`

	cutDeepCJK   = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
	cutDeepWords = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+"
	cutDeep3     = cutDeepWords + `[\r\n]*` + cutSpaces
	cutSpark     = cutDeepWords + `|[\r\n]|\s+(?!\S)|\s+`
	cutBloom     = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"

	cutLower  = `((?=[\p{L}])([^A-Z]))`
	cutUpper  = `((?=[\p{L}])([^a-z]))`
	cutLowerM = `((?=[\p{L}\p{M}])([^A-Z]))`
	cutUpperM = `((?=[\p{L}\p{M}])([^a-z]))`
	cutFront  = `[^\r\n\p{L}\p{N}]?`
	cutEnd4o  = `| ?[^\s\p{L}\p{N}]+[\r\n/]*` + cutSpaces
	cutTekken = cutFront + cutUpper + `*` + cutLower + `+|` + cutFront + cutUpper + `+` + cutLower + `*|\p{N}` + cutEnd4o
	cutGPT4o  = cutFront + cutUpper + `*` + cutLower + `+` + cutContractions + `?|` +
		cutFront + cutUpper + `+` + cutLower + `*` + cutContractions + `?|\p{N}{1,3}` + cutEnd4o
	cutGranite = cutFront + cutUpperM + `*` + cutLowerM + `+` + cutContractions + `?|` +
		cutFront + cutUpperM + `+` + cutLowerM + `*` + cutContractions + `?|\p{N}{1,3}` + cutEnd4o

	cutCaseUpper = `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`
	cutCaseLower = `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`
	cutCases     = cutFront + cutCaseUpper + `*` + cutCaseLower + `+` + cutContractions + `?|` +
		cutFront + cutCaseUpper + `+` + cutCaseLower + `*` + cutContractions + `?`

	// cutCased is \s? before letters of the scripts that have two cases.
	cutCased = `\s?[` + "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1" +
		"\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d" +
		"\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4" +
		"\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee" +
		"\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb" +
		"\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943" + `]+`
)

// cutterSpec is one row of the table: names that are treated alike.
type cutterSpec struct {
	names    []string
	patterns []string
	flags    cutter // steps unset
}

func cutterTable() []cutterSpec {
	plain := cutter{}
	keep := cutter{keepSpaces: true}
	whole := cutter{ignoreMerges: true}
	return []cutterSpec{
		{[]string{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"},
			[]string{cutLlama3}, cutter{ignoreMerges: true, addBOS: true}},
		{[]string{"dbrx", "smaug-bpe", "glm4", "chatglm-bpe"}, []string{cutLlama3}, plain},
		{[]string{"jais-2"}, []string{cutContractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}` + cutOthers + `|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}`}, plain},
		{[]string{"qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "hunyuan", "solar-open", "grok-2"}, []string{cutQwen2}, keep},
		{[]string{"megrez", "stablelm2"}, []string{cutQwen2}, plain},
		{[]string{"qwen35"}, []string{cutQwen35}, keep},
		{[]string{"gpt-2", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de", "a.x-4.0", "mellum", "modern-bert",
			"jina-v1-en", "jina-v2-code", "roberta-bpe", "exaone4", "mpt", "olmo", "jais"}, []string{cutGPT2}, plain},
		{[]string{"trillion", "granite-docling"}, []string{cutGPT2}, keep},
		{[]string{"starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2"}, []string{`\p{N}`, cutGPT2}, plain},
		{[]string{"smollm", "command-r"}, []string{`\p{N}`, cutGPT2}, keep},
		{[]string{"default", ""}, []string{`[\p{P}\$\+<=>\^~\|]+`, cutGPT2, `\p{N}+`, `[0-9][0-9][0-9]`}, plain},
		{[]string{"falcon"}, []string{"[\\p{P}\\$\\+<=>\\^~\\|`]+", cutGPT2, `[0-9][0-9][0-9]`}, plain},
		{[]string{"deepseek-llm"}, []string{"[\r\n]", cutCased, "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", "\\s+$", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", "\\p{N}+"}, keep},
		{[]string{"deepseek-coder"}, []string{"[\r\n]", `\s?\p{L}+`, `\s?\p{P}+`, "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", `\p{N}`}, keep},
		{[]string{"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"}, []string{`\p{N}{1,3}`, cutDeepCJK, cutDeep3}, keep},
		{[]string{"spark2_5"}, []string{`\p{N}{1,3}`, cutDeepCJK, cutSpark, `\p{N}`}, keep},
		{[]string{"youtu"}, []string{"[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+|[\u3105-\u312f]+|" + cutDeepCJK, cutCases + `|\p{N}` + cutEnd4o}, cutter{keepSpaces: true, ignoreMerges: true}},
		{[]string{"bloom", "gpt3-finnish"}, []string{cutBloom}, plain},
		{[]string{"poro-chat"}, []string{cutBloom}, keep},
		{[]string{"viking"}, []string{cutBloom, `\p{N}`}, keep},
		{[]string{"tekken"}, []string{cutTekken}, cutter{keepSpaces: true, ignoreMerges: true, addBOS: true}},
		{[]string{"chameleon"}, []string{`<sentinel:[0-9]+>`, `(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z`, `([\t\n]|    |  )`, `\p{N}`, "[\\p{P}!-/:-@\\[-`{-~]", cutGPT2}, cutter{keepSpaces: true, addBOS: true}},
		{[]string{"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"}, []string{cutGPT4o}, keep},
		{[]string{"granite-embed-multi-97m"}, []string{cutGranite}, cutter{keepSpaces: true, ignoreMerges: true}},
		{[]string{"tiny_aya", "cohere2moe"}, []string{cutAyaDigits, cutCases + `|\p{N}{1,3}` + cutEnd4o}, keep},
		{[]string{"superbpe"}, []string{`\p{N}+`, `(?=(\d{3})+(?!\d))`}, cutter{keepSpaces: true, joinsSpaces: true, joinsLines: true}},
		{[]string{"bailingmoe", "bailingmoe2", "llada-moe"}, []string{cutBailing}, keep},
		{[]string{"seed-coder"}, []string{cutContractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+` + cutSpaces}, keep},
		{[]string{"ufakzeka"}, []string{`[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}` + cutOthers + cutSpaces}, keep},
		{[]string{"afmoe"}, []string{cutDigits, "[\u4e00-\u9fff\u3400-\u4dbf\u8c48-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+", cutDeep3}, keep},
		{[]string{"laguna"}, []string{cutLines, cutQwen2}, keep},
		{[]string{"exaone-moe"}, []string{cutContractions + `|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+`}, cutter{joinsSpaces: true}},
		{[]string{"minicpm5"}, []string{`\p{N}{1,3}`, cutContractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+` + cutOthers + cutSpaces}, whole},
		{[]string{"gemma4", "granite-embed-multi-311m"}, []string{cutLines}, cutter{rawUTF8: true, markSpaces: true, wholeLines: true, forceBOS: true}},
		{[]string{"sarvam-moe"}, []string{cutLines}, cutter{rawUTF8: true, markSpaces: true, keepSpaces: true}},
		{[]string{"whitespace"}, []string{`\S+`}, cutter{rawUTF8: true}},
	}
}

// cutterFor compiles the row of a name.
func cutterFor(pre string) (*cutter, error) {
	for _, spec := range cutterTable() {
		for _, name := range spec.names {
			if name != pre {
				continue
			}
			c := spec.flags
			for _, p := range spec.patterns {
				step, err := patternStep(p)
				if err != nil {
					return nil, fmt.Errorf("pre-tokenizer %q: %w", pre, err)
				}
				c.steps = append(c.steps, step)
			}
			if w, ok := patternRule(spec.patterns[0]); ok && len(spec.patterns) == 1 {
				c.rule = w.fast()
			}
			return &c, nil
		}
	}
	return nil, fmt.Errorf("pre-tokenizer %q: %w", pre, ErrUnknownPre)
}
