package tokenizer

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
)

func TestParseConfig(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       Config
	}{
		{"plain", `{"architectures":["LlamaForCausalLM"],"model_type":"llama","vocab_size":7,"bos_token_id":1,"eos_token_id":2,"pad_token_id":null}`,
			Config{Architecture: "LlamaForCausalLM", ModelType: "llama", VocabSize: 7, TokenIDs: map[string]int64{"bos": 1, "eos": 2}}},
		{"class default", `{"model_type":"qwen3","tokenizer_class":"Qwen2Tokenizer"}`,
			Config{ModelType: "qwen3", TokenizerClass: "Qwen2Tokenizer", VocabSize: 151936, TokenIDs: map[string]int64{}}},
		{"inner config", `{"model_type":"gemma3","eos_token_id":[1,106],"bos_token_id":2,"text_config":{"vocab_size":9,"bos_token_id":3,"pad_token_id":0}}`,
			Config{ModelType: "gemma3", VocabSize: 9, TokenIDs: map[string]int64{"bos": 2, "pad": 0}, EndIDs: []int64{1, 106}}},
		{"inner list", `{"eos_token_id":null,"text_config":{"eos_token_id":[5]}}`, Config{TokenIDs: map[string]int64{}, EndIDs: []int64{5}}},
		{"odd values", `{"mask_token_id":true,"sep_token_id":1.5,"cls_token_id":"x","time_step_limit":[0.0,Infinity]}`,
			Config{TokenIDs: map[string]int64{"mask": 1}}},
	} {
		got, err := ParseConfig("config.json", []byte(c.text))
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v; want %+v", c.name, got, err, c.want)
		}
	}
	if _, err := ParseConfig("config.json", []byte("[]")); !errors.Is(err, ErrFormat) {
		t.Errorf("a list: %v", err)
	}
}

func TestEndsOf(t *testing.T) {
	for text, want := range map[string]string{
		`{"eos_token_id":7}`: "[7]", `{"eos_token_id":[7,9]}`: "[7 9]", `{}`: "[]", `{"eos_token_id":"7"}`: "[]", `not JSON`: "[]",
	} {
		if got := fmt.Sprint(endsOf([]byte(text))); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
